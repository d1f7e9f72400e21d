"""The dashboard: one HTML, one CSS and one JavaScript file, served without a key and without data."""

from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.gateway.problems import Problem

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
    "/static/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""File and media type by path."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    # no text from a queue can be run as a script
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

router = APIRouter(include_in_schema=False)


async def show(request: Request) -> Response:
    """Return one of the dashboard's files."""
    name, media_type = FILES[request.url.path]
    file = files(__name__) / name
    if not file.is_file():
        raise Problem("not-found", f"{name} is not part of this installation")
    return Response(file.read_bytes(), media_type=media_type, headers={"Content-Security-Policy": POLICY})


for path in FILES:
    router.add_api_route(path, show, methods=["GET", "HEAD"])
