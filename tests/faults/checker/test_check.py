"""Checking a history: the report, the shortest contradicting history and the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tests.faults.checker.__main__ import main
from tests.faults.checker.check import check
from tests.faults.checker.history import History, Writer
from tests.faults.checker.index import Index
from tests.faults.checker.records import AnyRecord, Invoke, NewJob, Ok, Record, Start, kind
from tests.faults.checker.report import as_json, as_text
from tests.faults.checker.rules import RULES
from tests.faults.checker.simulator import Bug
from tests.faults.checker.written import Written

PAGE = Path(__file__).with_name("README.md")


def noise(history: Written, jobs: int = 30) -> Written:
    """Jobs that have nothing to do with the violation."""
    for number in range(jobs):
        history.add(1, f"noise-{number}")
        history.run(2 + number, 3 + number, f"noise-{number}", f"n{number}", worker="noise")
        history.fault(2 + number, "cut", "proxy")
    return history


def overlap() -> Written:
    history = noise(Written(max_attempts=3))
    history.call(10, "add", jobs=[NewJob(id="6"), NewJob(id="7"), NewJob(id="8")])
    history.run(20, 100, "7", "r1", verdict="refused")
    history.run(50, 150, "7", "r2", "w2")
    history.event(150, "7", "completed", "e1")
    return history


def test_the_shortest_history_has_only_what_contradicts() -> None:
    (contradiction,) = overlap().check().contradictions
    assert [(kind(record), record.at) for record in contradiction.records] == [
        ("start", 20),
        ("start", 50),
        ("end", 100),
    ]


def test_the_record_that_decides_stays_in_the_shortest_history() -> None:
    history = Written()
    history.add(10, "7")
    history.start(20, "7", "r1")
    history.extended(500, "7", until=2000.0)
    history.start(1500, "7", "r2", "w2")
    (contradiction,) = history.check().contradictions
    assert [kind(record) for record in contradiction.records] == ["start", "extended", "start"]


def test_a_batch_is_reduced_to_the_jobs_that_matter() -> None:
    history = Written()
    history.call(
        10,
        "add",
        jobs=[NewJob(id=f"{n}") for n in range(50)],
        result=[f"{n}" for n in range(50)],
        existed=[3, 4],
    )
    history.dump(100, {f"{n}": "waiting" for n in range(50) if n != 7})
    (contradiction,) = history.check().contradictions
    assert [kind(record) for record in contradiction.records] == ["invoke", "ok", "dump"]
    invoke, ok, _ = contradiction.records
    assert isinstance(invoke, Invoke)
    assert isinstance(ok, Ok)
    assert (invoke.jobs, ok.ids) == ((NewJob(id="7"),), ("7",))


def fifo() -> Written:
    history = noise(Written(fifo="start"))
    history.add(100, "a")
    history.add(200, "b")
    history.run(300, 310, "b")
    history.run(400, 410, "a")
    return history


def rate() -> Written:
    history = noise(Written())
    history.limit(2, 100, by="worker")
    for number in range(4):
        history.add(100, f"{number}")
        history.run(200 + number, 300, f"{number}", f"r{number}", worker="w1")
    return history


def missed() -> Written:
    history = noise(Written())
    history.schedule(100, 200)
    history.tick(101, 100, "every:100")
    return history


def lost() -> Written:
    history = noise(Written())
    history.add(10, "7")
    history.start(20, "7")
    history.fault(50)
    history.dump(9000)
    return history


def early_parent() -> Written:
    history = noise(Written())
    history.flow("parent", "a", "b")
    history.run(10, 20, "a", "ra")
    history.run(15, 60, "b", "rb", "w2")
    history.run(32, 40, "parent", "rp")
    return history


@pytest.mark.parametrize(
    "history", [overlap, fifo, rate, missed, lost, early_parent], ids=lambda f: f.__name__
)
def test_no_record_of_a_shortest_history_can_be_left_out(history: Callable[[], Written]) -> None:
    for contradiction in history().check().contradictions:
        rule, violation = RULES[contradiction.violation.rule], contradiction.violation
        records = list(contradiction.records)
        assert violation in rule.judge(Index(records)).violations
        for place in range(len(records)):
            rest = records[:place] + records[place + 1 :]
            assert violation not in rule.judge(Index(rest)).violations


def test_the_shortest_contradiction_comes_first() -> None:
    history = overlap()
    history.dump(9000)
    lengths = [len(contradiction.records) for contradiction in history.check().contradictions]
    assert lengths == sorted(lengths)
    assert len(lengths) > 1


def test_every_violation_is_counted_and_a_few_of_each_rule_are_shown() -> None:
    history = Written()
    for number in range(10):
        history.add(10, f"{number}")
    history.dump(100)
    report = check(history.history(), shown=2)
    assert (len(report.violations), len(report.contradictions)) == (10, 2)


def test_only_the_rules_that_are_named_are_used() -> None:
    report = check(overlap().history(), rules=["fifo"])
    assert report.ok
    assert report.not_judged == ["fifo"]
    with pytest.raises(ValueError, match="unknown rule 'order'; the rules are origin, refused"):
        check(overlap().history(), rules=["order"])


def test_an_empty_history_judges_nothing() -> None:
    report = check(History([]))
    assert report.ok
    assert report.not_judged == list(RULES)


def test_records_about_what_never_began_are_counted() -> None:
    history = Written()
    history.end(10, "7")
    history.settled(11, "7")
    assert history.check().dangling == 2
    assert "2 records about an attempt or operation that never began" in as_text(history.check())


def test_the_text_has_the_rules_and_the_shortest_history() -> None:
    text = as_text(overlap().check())
    assert "lock         BROKEN 1 time in 1 case " in text
    assert "fifo         not judged: no case" in text
    assert "lock/overlap in queue 'mail': attempt 'r2' of worker 'w2' started 50.0 ms before" in text
    assert "100.000 ms  w1  end queue='mail' job='7' receipt='r1' outcome='returned' value='MQ=='" in text


def test_the_json_has_the_same_as_the_text() -> None:
    report = json.loads(as_json(overlap().check()))
    assert report["ok"] is False
    assert report["rules"]["lock"]["violations"] == 1
    assert [record["kind"] for record in report["contradictions"][0]["shortest"]] == ["start", "start", "end"]


def test_the_command_exits_with_0_1_or_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    with Writer(path, "worker", process="p", clock=lambda: 5.0) as writer:
        writer.ok(writer.invoke("add", "mail", jobs=[NewJob(id="7")]))
        assert main([str(path)]) == 0
        writer.write(Start(queue="mail", job="8", receipt="r", worker="w"))
        assert main([str(path), "--json", "--rule", "origin"]) == 1
        assert main([str(path), "--rule", "lock"]) == 0
    assert main([str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_command_prints_the_schema_of_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["discriminator"]["propertyName"] == "kind"
    assert "start" in schema["discriminator"]["mapping"]


@pytest.mark.parametrize("record", get_args(AnyRecord), ids=lambda record: record.__name__)
def test_the_page_has_every_kind_and_field(record: type[Record]) -> None:
    page = PAGE.read_text()
    names = {str(record.__struct_config__.tag), *record.__struct_fields__}
    assert {name for name in names if f"`{name}`" not in page} == set()


def blocks(language: str) -> list[str]:
    """The blocks of the page in a language."""
    parts = PAGE.read_text().split("```")[1::2]
    return [part.removeprefix(language) for part in parts if part.startswith(f"{language}\n")]


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python")
    exec(compile(program, str(PAGE), "exec"), {})
    assert main(["run-1"]) == 0


def test_the_report_of_the_page_is_what_is_printed() -> None:
    history = Written()
    history.add(10, "7")
    history.run(20, 100, "7", "r1", verdict="refused")
    history.run(50, 150, "7", "r2", "w2")
    (text,) = blocks("text")
    assert text.strip() in as_text(history.check())


def test_the_checker_knows_nothing_of_corral() -> None:
    sources = [path for path in PAGE.parent.rglob("*.*") if path.suffix in (".py", ".mjs")]
    assert [
        path.name for path in sources if "corral" in path.read_text().lower() and path != Path(__file__)
    ] == []


def test_the_page_has_every_rule_and_bug() -> None:
    page = PAGE.read_text()
    assert [rule for rule in RULES if f"| `{rule}` |" not in page] == []
    assert f"one of {len(get_args(Bug))} bugs" in page
