"""The dashboard: HTML, CSS and JavaScript modules, served without a key and without data."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.responses import Response

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    # no text from a queue can be run as a script
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, tuple[bytes, str]]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        media_type = TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif entry.name == "index.html":
            yield "/", (entry.read_bytes(), TYPES["html"])
        elif media_type is not None:
            yield f"{path}/{entry.name}", (entry.read_bytes(), media_type)


FILES: dict[str, tuple[bytes, str]] = dict(_files(files(__name__), "/static"))
"""Content and media type by path."""

router = APIRouter(include_in_schema=False)


async def show(request: Request) -> Response:
    """Return one of the dashboard's files."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    content, media_type = FILES[path]
    return Response(content, media_type=media_type, headers={"Content-Security-Policy": POLICY})


for path in FILES:
    router.add_api_route(path, show, methods=["GET", "HEAD"])
