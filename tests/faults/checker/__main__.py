"""The command `python -m tests.faults.checker FILE…`; exit code 0 (holds), 1 (broken) or 2 (unreadable)."""

import argparse
import sys
from pathlib import Path

import msgspec

from tests.faults.checker.check import check
from tests.faults.checker.history import HistoryError, read
from tests.faults.checker.records import AnyRecord
from tests.faults.checker.report import as_json, as_text
from tests.faults.checker.rules import RULES


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="checker", description="Judge the history of a job queue.")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a history file, or a folder of *.jsonl files"
    )
    parser.add_argument(
        "--rule", action="append", choices=RULES, help="judge by this rule only; may be repeated"
    )
    parser.add_argument(
        "--shown", type=int, default=3, help="violations to reduce and show of each rule (default 3)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a record and exit")
    options = parser.parse_args(arguments)
    if options.schema:
        schema = msgspec.json.schema(AnyRecord)
        print(msgspec.json.format(msgspec.json.encode(schema)).decode())
        return 0
    if not options.files:
        parser.error("no FILE")
    try:
        report = check(read(options.files), options.rule or tuple(RULES), options.shown)
    except HistoryError as error:
        print(error, file=sys.stderr)
        return 2
    print(as_json(report).decode() if options.json else as_text(report), end="\n" if options.json else "")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
