"""Addresses whose names have slashes of their own: written %2F, they part nothing."""

from typing import Any
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

_INNER_SLASH = "\ufdd0"
"""Stands for a name's own slash while routes are matched; no text has it, for it is no character."""


def keep_inner_slashes(scope: Scope) -> None:
    """Let a path be parted only where its sender parted it."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.decode("latin-1").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", _INNER_SLASH) for part in parts)


class NamedRoute(APIRoute):
    """A route whose names come with the slashes that they were sent with.

    >>> from fastapi import APIRouter
    >>> router = APIRouter(route_class=NamedRoute)
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        names: dict[str, Any] = found.get("path_params", {})
        for name, value in names.items():
            if isinstance(value, str):
                names[name] = value.replace(_INNER_SLASH, "/")
        return match, found
