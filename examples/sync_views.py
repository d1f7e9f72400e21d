"""Views without an event loop, as in Django or Flask, behind any WSGI server.

python sync_views.py 8000                  # in one terminal
corral worker sync_views:app               # in another
curl -d 'email=ada@example.com' localhost:8000/
curl localhost:8000/welcome-ada+example.com

In Django `create` and `show` are the bodies of two views: request.POST["email"] in, JsonResponse(…) out.
`app.sync` can be called from any thread, also after the server has forked its workers.
"""

import json
import sys
from http import HTTPStatus
from urllib.parse import parse_qs
from wsgiref.simple_server import make_server

from corral import Corral, SyncJobContext

app = Corral()


@app.job(queue="letters", attempts=5)
def welcome(job: SyncJobContext, email: str) -> dict[str, str]:  # a plain def runs in a thread
    job.log(f"writing to {email}")
    return {"welcomed": email}


def create(form):
    """Add one job per address: adding the same address again returns the same job."""
    email = form["email"]
    job = app.sync(welcome.options(id=f"welcome-{email.replace('@', '+')}").add(email), timeout=5)
    return 202, {"id": job.id}


def show(job_id):
    job = app.sync(welcome.queue.job(job_id), timeout=5)
    if job is None:
        return 404, {"detail": "no such letter"}
    return 200, {"id": job.id, "state": job.state, "result": job.result}


def wsgi(environ, start_response):
    if environ["REQUEST_METHOD"] == "POST":
        size = int(environ.get("CONTENT_LENGTH") or 0)
        form = parse_qs(environ["wsgi.input"].read(size).decode())
        status, document = create({name: values[0] for name, values in form.items()})
    else:
        status, document = show(environ["PATH_INFO"].strip("/"))
    start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", "application/json")])
    return [json.dumps(document).encode()]


if __name__ == "__main__":
    with make_server("127.0.0.1", int(sys.argv[1]), wsgi) as server:
        server.serve_forever()
