"""The dashboard's page: one HTML, one CSS, one JavaScript file, which hold no data of any queue."""

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
"""What is served, without a key too: what a queue holds, the page asks for with one."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # text from a queue can reach no place where a browser would run it
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

router = APIRouter(include_in_schema=False)


async def page(request: Request) -> Response:
    """One of the page's files."""
    name, kind = FILES[request.url.path]
    found = files("corral.gateway") / "static" / name
    if not found.is_file():
        raise Problem("not-found", f"{name} is not part of this installation")
    return Response(found.read_bytes(), media_type=kind, headers={"Content-Security-Policy": POLICY})


for path in FILES:
    router.add_api_route(path, page, methods=["GET", "HEAD"])
