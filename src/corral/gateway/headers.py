"""Headers in and out: idempotency keys, preferences, resume points, limits, links."""

import re
from urllib.parse import urlencode

from fastapi import Request

from corral.core.http_api import Admission, AdmissionLimits
from corral.gateway.problems import Problem

_KEY = re.compile(r"[!-~]{1,255}")
_WAIT = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.IGNORECASE)
_EVENT_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
BEGINNING = "0-0"
NOW = "$"


def idempotency_key(request: Request) -> str | None:
    """The request's Idempotency-Key, if it has one that fits."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise Problem(
            "invalid-idempotency-key",
            f"Idempotency-Key {', '.join(values)[:80]!a} does not fit; "
            f"send one of 1 to 255 visible ASCII characters without spaces",
        )
    return values[0]


def wait_s(request: Request) -> int | None:
    """How long the client would like to wait for the end (RFC 7240); what cannot be read is left alone."""
    values = request.headers.getlist("prefer")
    for part in ",".join(values).split(",") if values else ():
        found = _WAIT.fullmatch(part.partition(";")[0].strip())
        if found:
            return int(found[1])
    return None


def last_event_id(header: str | None, query: str | None) -> str | None:
    """Where a tail resumes; None where no event is named. What a reconnect says goes before the address.

    >>> last_event_id(None, "17-3"), last_event_id("18", "17-3")
    ('17-3', '18-0')
    """
    given = header or query
    if given is None:
        return None
    if given == NOW:
        return NOW
    found = _EVENT_ID.fullmatch(given)
    parts = (int(found[1]), int(found[2] or 0)) if found else (2**64, 0)
    if max(parts) >= 2**64:
        raise Problem(
            "invalid-last-event-id",
            f"{given[:60]!a} is no id of an event; send one that a tail gave, such as 1767225600000-0, "
            f"or none for the beginning",
        )
    return f"{parts[0]}-{parts[1]}"


def order(event_id: str) -> tuple[int, int]:
    """An event id as numbers, which can be compared."""
    moment, _, place = event_id.partition("-")
    return int(moment), int(place)


def limits(admission: Admission, bounds: AdmissionLimits) -> dict[str, str]:
    """The RateLimit headers: the policies, what is left of each, and the older form of the tighter one."""
    policies, states, older = [], [], (0, 0, 0)
    if bounds.backlog is not None:
        left = max(bounds.backlog - admission.backlog, 0)
        policies.append(f'"backlog";q={bounds.backlog}')
        states.append(f'"backlog";r={left}')
        older = (bounds.backlog, left, 0)
    if bounds.rate is not None:
        seconds = -(-admission.wait_ms // 1000)
        policies.append(f'"client";q={bounds.rate.count};w={bounds.rate.duration // 1000}')
        states.append(f'"client";r={max(admission.left, 0)};t={seconds}')
        older = (bounds.rate.count, max(admission.left, 0), seconds)
    if not policies:
        return {}
    return {
        "RateLimit-Policy": ", ".join(policies),
        "RateLimit": ", ".join(states),
        "RateLimit-Limit": str(older[0]),
        "RateLimit-Remaining": str(older[1]),
        "RateLimit-Reset": str(older[2]),
    }


def next_link(request: Request, cursor: str) -> str:
    """The Link header of a page that has a next one (RFC 8288)."""
    query = {**request.query_params, "cursor": cursor}
    # as it was sent: a name of any letters is fit for a header only while it is escaped
    path = request.scope["raw_path"].decode("latin-1")
    return f'<{path}?{urlencode(query)}>; rel="next"'
