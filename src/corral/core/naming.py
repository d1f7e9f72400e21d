"""The grammar of names: queues, job ids, job names, steps.

Only new names are checked; those already on the wire are read as they are.
"""

import re
import unicodedata
from typing import Any

from corral.errors import InvalidName, short_repr

LONGEST_QUEUE = 255
LONGEST_ID = 512
LONGEST_JOB_NAME = 1024
LONGEST_STEP = 255

RESERVED_IDS = frozenset(
    {
        *("wait", "waiting", "active", "paused", "prioritized", "priority", "delayed", "delay"),
        *("completed", "failed", "stalled", "stalled-check", "waiting-children", "repeat", "de"),
        *("meta", "id", "events", "limiter", "marker", "pc", "metrics", "cancelling", "groups", "grouped"),
    }
)
"""Keys of a queue beside its jobs: a job of that name would overwrite one."""

_QUEUE = re.compile(r"[A-Za-z0-9._-]*(\{[A-Za-z0-9._-]+\})?[A-Za-z0-9._-]*")
_ID_MARKS = "-_.~@+=,"
_PLAIN_ID = re.compile(rf"[A-Za-z0-9{re.escape(_ID_MARKS)}]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FIRING = re.compile(r".*@[0-9]+", re.DOTALL)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def check_queue(name: Any) -> str:
    """Return the queue name, if it is valid: letters, digits, '-', '_', '.', and one hash tag in braces.

    A queue's name is part of every key, of a connection's name and of URLs, so it is limited to what is
    safe in all of them. Braces choose a cluster slot: `{mail}` or `eu.{mail}`.

    >>> check_queue("a:b")
    Traceback (most recent call last):
    ...
    corral.errors.InvalidName: queue name 'a:b' contains ':'; use letters, digits, '-', '_', '.' (braces only around a hash tag)
    """  # noqa: E501
    _check_text("queue name", name, LONGEST_QUEUE)
    way_out = "use letters, digits, '-', '_', '.' (braces only around a hash tag)"
    invalid = re.search(r"[^A-Za-z0-9._{}-]", name)
    if invalid:
        raise InvalidName(f"queue name {name!a} contains {invalid.group()!a}; {way_out}")
    if not _QUEUE.fullmatch(name):
        raise InvalidName(f"queue name {name!r} has braces that are no hash tag; {way_out}")
    if not _LETTER_OR_DIGIT.search(name):
        raise InvalidName(f"queue name {name!r} has no letter or digit; {way_out}")
    return str(name)


def check_id(job_id: Any) -> str:
    """Return the job id, if it is valid.

    Letters and digits of any script, and `- _ . ~ @ + = ,`: enough for UUIDs, e-mail addresses and
    URL-safe base64. Excluded is what has a meaning where ids are used: ':' separates parts of keys, braces
    choose a cluster slot, `* ? [ ] ^ \\` are patterns, `/ ? # % &` belong to URLs, quotes and `< >` to
    markup; spaces and control characters are invisible. Text must be in composed form (NFC), or two ids
    that look alike would be two jobs. Also refused: integers (the server assigns those), names of a
    queue's own keys, and `…@<digits>` (a schedule's firings).

    >>> check_id("1:lock")
    Traceback (most recent call last):
    ...
    corral.errors.InvalidName: job id '1:lock' contains ':'; use letters, digits and any of - _ . ~ @ + = ,
    """
    _check_text("job id", job_id, LONGEST_ID)
    if not _PLAIN_ID.fullmatch(job_id):
        _check_id_characters(job_id)
    if _INTEGER.fullmatch(job_id):
        raise InvalidName(
            f"job id {job_id!r} is an integer, and those are given out by the server; "
            f"put a word in front, such as 'job-{job_id.lstrip('+-')}'"
        )
    if job_id in RESERVED_IDS:
        raise InvalidName(
            f"job id {job_id!r} is the name of one of the queue's own keys; "
            f"put a word in front, such as 'job-{job_id}'"
        )
    if _FIRING.fullmatch(job_id):
        raise InvalidName(
            f"job id {job_id!r} ends in '@' and digits, as only a schedule's firings do; "
            f"use another mark than '@'"
        )
    if not _LETTER_OR_DIGIT.search(job_id):
        raise InvalidName(f"job id {job_id!r} has no letter or digit; use at least one")
    return str(job_id)


def is_job_id(job_id: str) -> bool:
    """Return whether a text can be a job's id, and not the name of another key beside the jobs.

    >>> is_job_id("17"), is_job_id("repeat:nightly:1767225600000"), is_job_id("17:lock")
    (True, True, False)
    """
    if job_id in RESERVED_IDS or not 0 < len(job_id) <= LONGEST_ID:
        return False
    return ":" not in job_id or (job_id.startswith("repeat:") and job_id.rpartition(":")[2].isdigit())


def check_job_name(name: Any) -> str:
    """Return the job name, if it is valid: any text that is not blank, on one line.

    >>> check_job_name("send-email")
    'send-email'
    """
    return _check_line("job name", name, LONGEST_JOB_NAME)


def check_step(step: Any) -> str:
    """Return the step, if it is valid: any text that is not blank, on one line.

    >>> check_step("render.scene 1")
    'render.scene 1'
    """
    return _check_line("step", step, LONGEST_STEP)


def _check_text(what: str, text: Any, longest: int) -> None:
    if not isinstance(text, str):
        raise InvalidName(f"{what} {short_repr(text)} is of type {type(text).__name__}; use text")
    if not text:
        raise InvalidName(f"{what} is empty; give it at least one letter or digit")
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > longest:
        raise InvalidName(f"{what} {text[:40]!a}… has {size} bytes; use at most {longest}")


def _check_id_characters(job_id: str) -> None:
    for character in job_id:
        # letters, numbers, and the marks that some scripts put on letters
        if unicodedata.category(character)[0] not in "LNM" and character not in _ID_MARKS:
            marks = " ".join(_ID_MARKS)
            raise InvalidName(
                f"job id {job_id!a} contains {character!a}; use letters, digits and any of {marks}"
            )
    if not unicodedata.is_normalized("NFC", job_id):
        raise InvalidName(
            f"job id {job_id!a} is not in composed form; use unicodedata.normalize('NFC', …) on it"
        )


def _check_line(what: str, text: Any, longest: int) -> str:
    _check_text(what, text, longest)
    if text.isascii() and text.isprintable() and not text.isspace():
        return str(text)
    for character in text:
        # control characters, half surrogate pairs, line and paragraph separators
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidName(f"{what} {text!a} contains {character!a}; use text on one line")
    if text.isspace():
        raise InvalidName(f"{what} {text!r} is blank; give it at least one letter or digit")
    return str(text)
