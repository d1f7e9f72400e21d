"""A FastAPI app with Corral's dashboard and HTTP API inside, behind its own sign-in.

pip install 'corral[gateway]'
uvicorn fastapi_dashboard:api
curl -X POST localhost:8000/orders/17
curl -u ada:milk localhost:8000/jobs/v1/queues
open http://localhost:8000/jobs/
"""

import secrets
from base64 import b64decode

from fastapi import FastAPI, Request

from corral import Corral
from corral.contrib.fastapi import ApiClient, Role, mount, use

app = Corral()
api = FastAPI()


@app.job(queue="orders")
async def charge(order_id: int) -> str:
    return f"order {order_id} is charged"


def find_user(request: Request) -> ApiClient | None:
    """Whatever your app knows its users by: a session, a token, here a password."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic" and secrets.compare_digest(b64decode(value), b"ada:milk"):
        return ApiClient("ada", frozenset({Role.OPERATE}))
    return None


use(api, app)
mount(api, app, "/jobs", find_user=find_user)


@api.post("/orders/{order_id}", status_code=202)
async def create(order_id: int) -> dict[str, str]:
    return {"id": (await charge.add(order_id)).id}
