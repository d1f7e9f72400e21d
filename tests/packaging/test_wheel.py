"""The wheel in an environment of its own: it works, it is typed, and it lives beside other job systems."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PROGRAM = """
import asyncio
from corral import Corral

app = Corral(folder="data")

@app.job
async def double(number: int) -> int:
    return number * 2

async def main() -> None:
    async with app:
        handle = await double.add(21)
        await app.run(burst=True)
        print(await handle.result(timeout=10))

asyncio.run(main())
"""
WRONG = """
from corral import Corral

app = Corral()

@app.job
async def double(number: int) -> int:
    return number * 2

async def main() -> str:
    handle = await double.add("21")
    return await handle.result()
"""


def run(*words: str | Path, cwd: Path = ROOT, check: bool = True) -> str:
    # the environments have the wheel, not the sources of this one
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sources as they stand."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--constraint", ROOT / "constraints.txt", wheel, "mypy")
    return python


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    endings = (".lua", ".json", ".js", ".css", ".html", "py.typed")
    for path in sorted((ROOT / "src" / "corral").rglob("*")):
        if path.name.endswith(endings) or path.suffix == ".py":
            assert str(path.relative_to(ROOT / "src")) in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"corral", "pyspark_corral"}


def test_a_job_runs(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert run(python, "program.py", cwd=tmp_path) == "42\n"
    assert "worker" in run(python.with_name("corral"), "--help")


def test_a_type_checker_downstream_sees_the_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert "Success" in run(python, "-m", "mypy", "--strict", "program.py", cwd=tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    said = run(python, "-m", "mypy", "--strict", "wrong.py", cwd=tmp_path, check=False)
    assert 'Argument 1 to "add" of "JobType" has incompatible type "str"; expected "int"' in said
    assert "Incompatible return value type" in said


def test_it_lives_beside_other_job_systems(wheel: Path, tmp_path: Path) -> None:
    """The resolver finds versions that suit all of them, and jobs run with those."""
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", wheel, "arq>=0.26", "rq>=2", "celery>=5.4")
    run(python, "-m", "pip", "check")
    (tmp_path / "program.py").write_text(PROGRAM)
    assert run(python, "program.py", cwd=tmp_path) == "42\n"
