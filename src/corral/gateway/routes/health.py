"""Liveness, readiness and metrics."""

import asyncio

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from corral.errors import RedisError, RedisWrongTypeError
from corral.gateway.models import Liveness, Readiness
from corral.gateway.openapi import problem_responses, text_response
from corral.gateway.problems import Problem
from corral.gateway.responses import json_response
from corral.gateway.routes.dependencies import authorize, state_of
from corral.gateway.security.auth import Role
from corral.gateway.state import GatewayState
from corral.queue import Queue

EXAMPLE = """# HELP corral_job_count Jobs in a queue, by state.
# TYPE corral_job_count gauge
corral_job_count{protocol="bullmq",queue="mail",state="waiting"} 2.0
"""

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Liveness)
async def is_alive() -> Response:
    """Confirm that the process runs, without calling Redis."""
    return json_response({"status": "alive"})


@router.get("/readyz", response_model=Readiness, responses=problem_responses(503))
async def is_ready(request: Request) -> Response:
    """Check that Redis answers, the scripts are loaded and the consumer group exists."""
    state = state_of(request)
    if state.is_stopping:
        raise Problem("stopping", "the gateway is stopping")
    return json_response({"status": "ready", "checks": await state.call(state.http.check())})


@router.get(
    "/metrics",
    response_class=Response,
    responses=problem_responses(401, 403, more=text_response("Prometheus metrics.", "text/plain", EXAMPLE)),
)
async def metrics(request: Request) -> Response:
    """Return the gateway's metrics, and the number of jobs in each state of each queue.

    Where clients see only their own jobs, a client without the role `operate` gets only its own open tails.
    """
    state, client = authorize(request, Role.READ)
    if state.visible_owner(client) is not None:
        return Response(state.client_metrics(client), media_type=CONTENT_TYPE_LATEST)
    try:
        queues = await state.call(state.queue_cache.queues())
        await state.call(asyncio.gather(*(_count(state, queue) for queue in queues)))
    except RedisError:
        # the other metrics are still of use
        state.metrics.set_redis_up(False)
    else:
        state.metrics.set_redis_up(True)
    state.publish()
    return Response(state.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


async def _count(state: GatewayState, queue: Queue) -> None:
    spec = queue.protocol.spec
    try:
        counts = await queue.counts()
    except RedisWrongTypeError:
        return  # the counts of the other queues are still of use
    state.metrics.set_jobs(spec.name, queue.name, {name.value: count for name, count in counts.items()})
    if spec.metric_states is not None:
        names = spec.metric_states
        own = {names[name]: count for name, count in counts.items() if name in names}
        state.corral.metrics.count_jobs(queue.name, own)
