"""The pages about Spark say what is: every option and column is named, and every command is typed."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import typer

from corral.cli import root
from corral.spark.lake.audit.findings import AuditExit, AuditVerdict
from corral.spark.lake.tables import BRONZE_SCHEMA, Lake
from corral.spark.options import EventReadOptions, JobReadOptions, WriteOptions, option_names
from corral.spark.schema import EVENTS, JOBS
from tests.docs.pages import HOME, Page, PageCommand, Terminal
from tests.docs.pages import _compare as compare

REFERENCE = (HOME / "docs/reference/spark.md").read_text()
COMMAND_S = 300
NAMED = set(re.findall(r"`([^`\n]+)`", REFERENCE))


def test_every_option_is_on_the_page():
    kinds = (EventReadOptions, JobReadOptions, WriteOptions)
    known = {name for kind in kinds for name in option_names(kind)}
    assert known - NAMED == set()


def test_every_row_of_the_table_beside_kafka_names_a_test_that_exists():
    table = REFERENCE.partition("### Beside Spark's Kafka source")[2].partition("###")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert len(rows) == 14
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, row
        assert [name for name in names if f"def {name}(" not in tests] == [], row


def test_every_column_is_on_the_page(spark, tmp_path: Path):
    assert {*EVENTS.fieldNames(), *JOBS.fieldNames()} - NAMED == set()
    lake = Lake(str(tmp_path))
    tables = {"attempts": lake.attempts, "jobs": lake.jobs, "minutes": lake.minutes}
    for name, read in tables.items():
        [row] = re.findall(rf"^\| `{name}` \| .* \| `(.*)` \|$", REFERENCE, re.MULTILINE)
        assert row.split() == read(spark).columns, name
    assert BRONZE_SCHEMA.fieldNames() == [*EVENTS.fieldNames(), "date"]


def test_every_verdict_exit_code_and_option_of_the_lake_is_on_the_page():
    assert {str(verdict) for verdict in AuditVerdict} - NAMED == set()
    assert f"| command | {AuditExit.NOTHING_LOST} | {AuditExit.WRONG} | {AuditExit.UNPROVABLE} |" in REFERENCE
    lake = typer.main.get_command(root).commands["lake"].load()  # type: ignore[attr-defined]
    for name, command in lake.commands.items():
        assert f"corral lake {name}" in REFERENCE
        for parameter in command.params:
            if parameter.param_type_name == "option" and "--help" not in parameter.opts:
                assert max(parameter.opts, key=len) in REFERENCE, (name, parameter.opts)


class Patient(Terminal):
    """A shell for commands that start a Spark each."""

    def run(self, typed: PageCommand) -> None:
        process = self._start(typed.command)
        try:
            out, err = process.communicate(timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode == 0, f"{typed.command}: {err}{out}"
        compare(typed, out)


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_the_commands_of_the_how_to_do_what_it_says(tmp_path: Path, url: str):
    page = Page("docs/how-to/spark.md")
    page.unpack(tmp_path)
    terminal = Patient(tmp_path, url)
    typed = [typed for block in page.consoles() for typed in block]
    assert len(typed) >= 7
    for one in typed:
        terminal.run(one)
    assert "<svg" in (tmp_path / "report.html").read_text()
