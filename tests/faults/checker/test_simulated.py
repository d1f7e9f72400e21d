"""Histories of a simulated queue: a correct one breaks no rule, and every known bug is found."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.faults.checker.check import check
from tests.faults.checker.simulator import Bug, Options, simulate

runs = st.builds(
    Options,
    seed=st.integers(0, 2**32),
    jobs=st.integers(0, 25),
    workers=st.integers(1, 4),
    slots=st.integers(1, 3),
    skew_ms=st.sampled_from([0.0, 4.0, 20.0]),
    lost_answers=st.sampled_from([0.0, 0.05, 0.3]),
    raises=st.sampled_from([0.0, 0.2, 0.6]),
    slow=st.sampled_from([0.0, 0.1, 0.5]),
    kills=st.integers(0, 4),
    freezes=st.integers(0, 3),
    failovers=st.integers(0, 2),
    operations=st.integers(0, 10),
    pauses=st.integers(0, 2),
    flows=st.integers(0, 3),
    rate=st.none() | st.integers(2, 6),
    concurrency=st.none() | st.integers(2, 4),
    keeps_ended=st.booleans(),
    stops_early=st.booleans(),
)


@given(runs)
@settings(max_examples=80, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
def test_a_correct_queue_breaks_no_rule(options: Options) -> None:
    report = check(simulate(options), shown=1)
    assert report.ok, report.contradictions


def test_a_run_with_everything_in_it_judges_every_rule() -> None:
    options = Options(seed=1, jobs=60, kills=4, rate=6, concurrency=4, recovery_ms=20_000)
    report = check(simulate(options))
    assert report.ok, report.contradictions
    assert report.not_judged == []


BUGS: dict[Bug, tuple[str, dict[str, Any]]] = {
    "loses_job": ("place/lost", {}),
    "forgets_recovery": ("place/lost", {}),
    "keeps_active": ("place/two_places", {}),
    "claims_twice": ("lock/overlap", {}),
    "recovers_early": ("lock/overlap", {}),
    "recovers_at_kill": ("lock/early_restart", {"kills": 6}),
    "settles_without_lock": ("fence/applied_without_lock", {"slow": 0.4}),
    "settles_twice": ("end_once/ended_twice", {"slow": 0.4}),
    "forgets_bound": ("attempts/too_many", {"raises": 0.6}),
    "counts_stalls": ("attempts/wrong_number", {}),
    "ignores_delay": ("delay/early", {}),
    "keeps_refused": ("refused/left_something", {}),
    "leaks_lock": ("leaks/lock", {}),
    "leaks_key": ("leaks/orphan", {"keeps_ended": False}),
    "adds_twice": ("origin/made_twice", {"lost_answers": 0.3}),
    "invents_job": ("origin/from_nowhere", {"lost_answers": 0.0}),
    "newest_first": ("fifo/out_of_order", {"workers": 1, "kills": 0, "freezes": 0, "jobs": 60}),
    "ignores_priority": ("priority/passed_over", {"workers": 1, "kills": 0, "freezes": 0, "jobs": 60}),
    "ignores_pause": ("pause/claimed", {}),
    "forgets_tick": ("schedule/missed", {}),
    "doubles_tick": ("schedule/doubled", {}),
    "parent_early": ("flow/early", {"flows": 6}),
    "parent_stuck": ("flow/stuck", {"stops_early": True, "flows": 10}),
    "exceeds_rate": ("rate_limit/too_many", {"rate": 3}),
    "exceeds_concurrency": ("concurrency/too_many", {"concurrency": 2}),
    "corrupts_result": ("result/differs", {}),
    "forgets_event": ("events/missing", {}),
    "logs_twice": ("end_once/logged_twice", {}),
    "recovers_slowly": ("recovery/slow", {"recovery_ms": 600.0, "pauses": 0}),
    "runs_ended_job": ("end_once/started_after_end", {}),
}


@pytest.mark.parametrize(
    ("bug", "finding", "options"), [(b, *how) for b, how in BUGS.items()], ids=list(BUGS)
)
def test_a_queue_with_a_bug_is_found_out(bug: Bug, finding: str, options: Any) -> None:
    for seed in range(5):
        report = check(simulate(Options(seed=seed, **options), bug), shown=1)
        findings = {f"{violation.rule}/{violation.code}" for violation in report.violations}
        if finding in findings:
            shown = next(one for one in report.contradictions if one.violation.rule == finding.split("/")[0])
            assert 0 < len(shown.records) <= 60
            return
    pytest.fail(f"five runs with the bug {bug} show no {finding}")
