"""`corral prove`: run the plans of a seed, or judge the histories of others.

The exit code is 0, 1 (a promise was broken) or 2 (a history cannot be read).
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from corral.protocols import protocol_names
from tests.faults.checker import HistoryError, as_text, check, read
from tests.faults.checker.report import as_json
from tests.faults.prove.plan import Plan, make_plan
from tests.faults.prove.run import Finding, prove

SHORTEST_S = 4.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return _check(words[1:]) if words[:1] == ["check"] else _prove(words)


def prove_parser() -> argparse.ArgumentParser:
    """Return the parser of `corral prove`."""
    parser = argparse.ArgumentParser(
        prog="corral prove",
        description="Work jobs while workers are killed and frozen, replies are lost and the server is "
        "restarted; then judge what every process saw. `corral prove check DIR` judges other histories.",
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed has the same plan (default 1)")
    parser.add_argument("--minutes", type=float, default=0.5, help="for all protocols together (default 0.5)")
    parser.add_argument(
        "--protocol", action="append", choices=protocol_names(), help="only this one; may be repeated"
    )
    parser.add_argument("--jobs", type=int, help="of each protocol (default: 60 a second)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the histories here")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each protocol")
    return parser


def _prove(words: list[str]) -> int:
    options = prove_parser().parse_args(words)
    protocols = options.protocol or list(protocol_names())
    seconds = max(options.minutes * 60 / len(protocols), SHORTEST_S)
    plans = [make_plan(protocol, options.seed, seconds, options.jobs) for protocol in protocols]
    if options.plan:
        for plan in plans:
            _print_plan(plan)
        return 0
    with tempfile.TemporaryDirectory(prefix="corral-prove-") as temporary:
        folder = options.keep or Path(temporary)
        results = [_run(plan, folder, options.json) for plan in plans]
    return 0 if all(results) else 1


def _print_plan(plan: Plan) -> None:
    print(f"{plan.protocol}, seed {plan.seed}: {plan.jobs:,} jobs, fsync {plan.fsync}")
    for fault in plan.faults:
        print(f"  {fault}")


def _run(plan: Plan, folder: Path, is_json: bool) -> bool:
    """Carry one plan out and print what the checker says; return whether every rule holds."""
    finding = prove(plan, folder / f"{plan.protocol}-{plan.seed}")
    print(_document(finding) if is_json else _text(finding), flush=True)
    return finding.report.ok


def _text(finding: Finding) -> str:
    plan = finding.plan
    counts = dict.fromkeys(sorted({fault.action for fault in plan.faults}), 0)
    for fault in plan.faults:
        counts[fault.action] += 1
    faults_text = ", ".join(f"{count} {action}" for action, count in counts.items())
    title = f"{plan.protocol}, seed {plan.seed}, {plan.seconds:.0f} s: {faults_text}"
    return f"{title}\n{'=' * len(title)}\n{as_text(finding.report)}"


def _document(finding: Finding) -> str:
    plan = {"protocol": finding.plan.protocol, "seed": finding.plan.seed, "faults": len(finding.plan.faults)}
    return json.dumps(plan | json.loads(as_json(finding.report)))


def _check(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="corral prove check",
        description="Judge histories that somebody wrote; tests/faults/checker/README.md has the format.",
    )
    parser.add_argument(
        "histories", nargs="+", type=Path, metavar="DIR", help="a folder of *.jsonl, or a file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(words)
    try:
        report = check(read(options.histories))
    except HistoryError as error:
        print(error, file=sys.stderr)
        return 2
    print(as_json(report).decode() if options.json else as_text(report))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
