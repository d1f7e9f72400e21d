"""Who else is in the field: what to install, which driver, which settings to try, how many jobs."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peer import ROOT, Peer, ProcessPeer

ENVIRONMENTS = ROOT / ".make" / "field"
DRIVERS = Path(__file__).parent


@dataclass(frozen=True)
class FieldPeer:
    """One job system for Python, in an environment of its own."""

    name: str
    driver: str
    packages: Sequence[str]
    settings: Sequence[int]
    """Concurrencies or threads to try; what counts is the one it is best at."""
    jobs: int = 6_000
    """To process: enough for several seconds; the slower the peer, the fewer."""

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.driver / "bin" / "python"

    def install(self) -> None:
        """Make its environment, unless it is there."""
        mark = ENVIRONMENTS / self.driver / "done"
        wanted = "\n".join(self.packages)
        if mark.exists() and mark.read_text() == wanted:
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENTS / self.driver], check=True)
        pip = [self.python, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        subprocess.run([*pip, *self.packages, "hiredis==3.5.0"], check=True)
        mark.write_text(wanted)

    def peer(self) -> Peer:
        return ProcessPeer(self.name, [str(self.python), str(DRIVERS / f"{self.driver}_driver.py")])


ASYNC = (10, 50, 200)
THREADS = (1, 4, 8)
FEW = (10, 50)
"""More than this is more than saq's connections can take."""

FIELD = (
    FieldPeer("bullmq 3.4.4 (official Python)", "official", ["bullmq==3.4.4"], ASYNC),
    FieldPeer("arq 0.28", "arq", ["arq==0.28.0"], ASYNC),
    FieldPeer("saq 0.26", "saq", ["saq==0.26.4", "redis==8.1.0", "typing_extensions"], FEW),
    FieldPeer("streaq 7.2", "streaq", ["streaq==7.2.0"], ASYNC, jobs=4_000),
    FieldPeer("taskiq 0.13", "taskiq", ["taskiq==0.13.0", "taskiq-redis==1.2.4"], ASYNC, jobs=10_000),
    FieldPeer("dramatiq 2.2", "dramatiq", ["dramatiq[redis]==2.2.1"], THREADS, jobs=10_000),
    FieldPeer("celery 5.7", "celery", ["celery[redis]==5.7.0"], (0, 4, 8), jobs=4_000),
    FieldPeer("rq 2.12", "rq", ["rq==2.12.0"], (1,), jobs=2_000),
    FieldPeer("huey 3.5", "huey", ["huey==3.5.4", "redis==8.1.0"], THREADS, jobs=20_000),
)
