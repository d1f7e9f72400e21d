"""The routing table of the docs, strategies for targets, and the rule in Python."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from corral.core.routing import CRITERIA, Identity, check_identity, fits, read_target
from corral.errors import InvalidOptions

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"^\| `(?P<target>.+?)` \| `(?P<worker>\{.+?\})` \| (?P<answer>yes|no|cannot be read) \|$", re.MULTILINE
)
TABLE = [
    (json.loads(row["target"]), json.loads(row["worker"]), {"yes": True, "no": False}.get(row["answer"]))
    for row in ROW.finditer((ROOT / "docs/reference/routing.md").read_text())
]

WORDS = st.sampled_from(["gpu", "cuda", "sms", "node", "python", "eu", "us-east", "", "ü"])
LISTS = st.lists(WORDS, max_size=3)


def identity(worker: dict[str, Any]) -> Identity:
    return check_identity(worker["server"], *(worker.get(part, []) for part in CRITERIA))


def judged(target: Any, worker: dict[str, Any]) -> bool | None:
    """True, False, or None where the target cannot be read."""
    try:
        return fits(identity(worker), read_target(target))
    except InvalidOptions:
        return None
