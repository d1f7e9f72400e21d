"""Writing and reading histories, from Python and from Node."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker.check import check
from tests.faults.checker.history import HistoryError, Writer, encode_value, read
from tests.faults.checker.records import End, NewJob, Process, Promise, Settled, Start

ROOT = Path(__file__).parents[3]
START = Start(queue="mail", job="7", receipt="r1", worker="w1")


def line(seq: int, at: float = 1.0, process: str = "p", **fields: Any) -> str:
    return json.dumps({"kind": "lost", "queue": "mail", "job": "7", "receipt": "r", **fields}
                      | {"at": at, "process": process, "seq": seq}) + "\n"  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.jsonl", "worker") as writer:
        written = writer.write(START)
    history = read([tmp_path / "a.jsonl"])
    assert isinstance(history.records[0], Process)
    assert history.records[1] == written
    assert (written.process, written.seq) == (writer.process, 1)
    assert written.at > 1e12


def test_fields_that_are_not_set_are_not_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.jsonl", "worker", process="p", clock=lambda: 5.0) as writer:
        writer.write(START)
    about = {"kind": "start", "queue": "mail", "job": "7", "receipt": "r1", "worker": "w1"}
    record = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1])
    assert record == {**about, "at": 5.0, "process": "p", "seq": 1}


def test_an_operation_and_its_answer_have_the_same_value(tmp_path: Path) -> None:
    with Writer.in_folder(tmp_path, "client") as writer:
        first = writer.invoke("add", "mail", jobs=[NewJob(id="7", priority=3)])
        second = writer.invoke("cancel", "mail", ids=["7"])
        writer.ok(first, ["7"])
        writer.unknown(second, "timeout")
    history = read([tmp_path])
    assert first != second
    assert [type(record).__name__ for record in history.records] == [
        "Process",
        "Invoke",
        "Invoke",
        "Ok",
        "Unknown",
    ]
    assert check(history).jobs == 1


def test_the_files_of_a_folder_are_merged_by_time(tmp_path: Path) -> None:
    clock = iter(range(100))
    writers = [
        Writer(tmp_path / f"{n}.jsonl", "worker", f"p{n}", lambda: float(next(clock))) for n in range(3)
    ]
    for number in range(9):
        writers[number % 3].write(START)
    history = read([tmp_path])
    assert [record.at for record in history.records] == [float(at) for at in range(12)]
    assert history.files == 3


def test_a_clock_that_goes_back_does_not_change_the_order(tmp_path: Path) -> None:
    clock = iter([10.0, 20.0, 15.0])
    with Writer(tmp_path / "a.jsonl", "worker", clock=lambda: next(clock)) as writer:
        writer.write(START)
        writer.write(START)
    assert [record.at for record in read([tmp_path]).records] == [10.0, 20.0, 20.0]


def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.jsonl", "worker") as writer:
        threads = [
            threading.Thread(target=lambda: [writer.write(START) for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [record.seq for record in read([tmp_path]).records] == list(range(201))


def test_a_writer_of_another_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer(tmp_path / "a.jsonl", "worker") as writer:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(HistoryError, match="open a Writer after the fork"):
            writer.write(START)


def test_an_incomplete_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line(0) + line(1) + line(2)[:20])
    history = read([tmp_path])
    assert (len(history.records), history.torn) == (2, 1)


def test_a_process_may_go_on_in_the_file_of_one_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line(0) + line(1)[:20])
    Writer(path, "worker").close()
    history = read([path])
    assert (len(history.records), history.torn) == (2, 1)


def test_an_incomplete_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line(0) + line(1)[:20] + "\n" + line(2))
    with pytest.raises(HistoryError, match=r"a\.jsonl:2: this line is not JSON"):
        read([tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(0) + line(2), r":2: `seq` is 2 where process p should have 1; are lines missing\?"),
        (line(0, at=5) + line(1, at=4), ":2: `at` is 4.0, earlier than 5.0"),
        (line(0, job=7), r":1: Expected `str`, got `int` - at `\$.job`"),
        (line(0, recept="r"), r":1: Object contains unknown field `recept`"),
        (line(0, kind="begin"), r":1: Invalid value 'begin' - at `\$.kind`"),
        (line(0, process=""), ":1: the record has no `process`"),
    ],
)
def test_what_is_no_history_is_an_error_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(HistoryError, match=message):
        read([tmp_path])


def test_a_missing_file_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"no \*.jsonl file"):
        read([tmp_path])
    with pytest.raises(HistoryError, match="cannot be read"):
        read([tmp_path / "none.jsonl"])


def test_a_killed_process_leaves_a_history_that_can_be_read(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tests.faults.checker.history import Writer
from tests.faults.checker.records import Start
writer = Writer(Path(sys.argv[1]), "worker")
for number in range(10_000_000):
    writer.write(Start(queue="mail", job=str(number), receipt="r", worker="w"))
    if number == 100:
        print("ready", flush=True)
"""
    path = tmp_path / "a.jsonl"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    history = read([path])
    assert len(history.records) > 100
    assert [record.seq for record in history.records] == list(range(len(history.records)))


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

NODE_WORKER = """
import {{ History, encodeValue }} from '{module}'
const history = History.inFolder('{folder}', 'node-worker')
const op = history.invoke('add', 'mail', {{ jobs: [{{ id: 'n1' }}, {{ id: 'n2', priority: 2 }}] }})
history.ok(op, {{ ids: ['n1', 'n2'] }})
history.refused(history.invoke('add', 'mail', {{ jobs: [{{ id: 'n3' }}] }}), new Error('too large'))
for (const job of ['7', 'n1']) {{
  const of = {{ queue: 'mail', job, receipt: 'token:1' }}
  history.write({{ kind: 'start', ...of, worker: 'node-1', attempt: 1, lock_until: history.clock() + 30000 }})
  history.write({{ kind: 'end', ...of, outcome: 'returned', value: encodeValue('{{"sent":"Zoë"}}') }})
  history.write({{ kind: 'settled', ...of, outcome: 'completed', verdict: 'applied', note: undefined }})
}}
history.close()
"""


def run_node(folder: Path) -> None:
    module = Path(__file__).with_name("node.mjs").as_uri()
    program = NODE_WORKER.format(module=module, folder=folder)
    subprocess.run(["node", "--input-type=module", "-e", program], check=True, timeout=30)


@needs_node
def test_a_history_that_node_wrote_is_read_and_holds(tmp_path: Path) -> None:
    with Writer.in_folder(tmp_path, "python-client") as client:
        client.write(Promise(max_attempts=1))
        client.ok(client.invoke("add", "mail", jobs=[NewJob(id="7")]), ["7"])
    run_node(tmp_path)
    history = read([tmp_path])
    report = check(history)
    assert report.ok, report.violations
    assert (report.processes, report.jobs, report.attempts) == (2, 4, 2)
    value = encode_value('{"sent":"Zoë"}'.encode())
    assert [record.value for record in history.records if isinstance(record, End)] == [value, value]


@needs_node
def test_a_contradiction_between_node_and_python_is_found(tmp_path: Path) -> None:
    with Writer.in_folder(tmp_path, "python-worker") as worker:
        worker.ok(worker.invoke("add", "mail", jobs=[NewJob(id="7")]), ["7"])
        worker.write(START)
        run_node(tmp_path)
        worker.write(Settled(queue="mail", job="7", receipt="r1", outcome="completed", verdict="applied"))
    broken = {f"{violation.rule}/{violation.code}" for violation in check(read([tmp_path])).violations}
    assert "end_once/ended_twice" in broken
