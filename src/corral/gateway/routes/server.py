"""The Redis server: memory, persistence, replication, slow commands, and what the doctor finds."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.doctor import check_server
from corral.doctor.node import read_info
from corral.doctor.results import merge_nodes
from corral.errors import RedisError
from corral.gateway import documents
from corral.gateway.openapi import problem_responses
from corral.gateway.responses import json_response
from corral.gateway.routes.dependencies import QueueRoute, authorize_all_jobs
from corral.protocols import all_protocols
from corral.store.client import Store

SLOW = 25
FIELDS = {
    "used_memory": "used_memory",
    "peak_memory": "used_memory_peak",
    "max_memory": "maxmemory",
    "fragmentation": "mem_fragmentation_ratio",
    "clients": "connected_clients",
    "blocked_clients": "blocked_clients",
    "commands_per_second": "instantaneous_ops_per_sec",
    "commands": "total_commands_processed",
    "uptime_s": "uptime_in_seconds",
    "replicas": "connected_slaves",
    "evicted_keys": "evicted_keys",
    "expired_keys": "expired_keys",
    "input_kbps": "instantaneous_input_kbps",
    "output_kbps": "instantaneous_output_kbps",
    "aof_enabled": "aof_enabled",
    "last_save_at_s": "rdb_last_save_time",
    "unsaved_changes": "rdb_changes_since_last_save",
}
"""Numbers of INFO under the interface's names."""

router = APIRouter(tags=["server"], route_class=QueueRoute, responses=problem_responses(401, 403, 503))


@router.get("/v1/server", response_model=documents.ServerView)
async def get_server(request: Request) -> Response:
    """Return the server's memory, persistence and replication, slow commands, and the doctor's findings."""
    state, _ = authorize_all_jobs(request)
    store = state.corral.store()
    info, slow, findings = await asyncio.gather(
        _info(store), _slow(store), check_server(state.corral, all_protocols())
    )
    document = {
        "nodes": [_node(info)],
        "slow": slow,
        "findings": [result.document for result in merge_nodes(findings)],
    }
    return json_response(document)


async def _info(store: Store) -> Mapping[str, str]:
    try:
        return await read_info(store)
    except RedisError:
        return {}  # a finding says so


def _node(info: Mapping[str, str]) -> dict[str, Any]:
    product = (
        f"Valkey {info['valkey_version']}"
        if "valkey_version" in info
        else f"Redis {info.get('redis_version', '')}"
    )
    numbers = {name: _number(info[field]) for name, field in FIELDS.items() if field in info}
    keys = {name: value for name, value in info.items() if name.startswith("db")}
    return {"role": info.get("role", ""), "version": product, **numbers, "databases": keys}


def _number(text: str) -> float | int | str:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


async def _slow(store: Store) -> list[dict[str, Any]]:
    try:
        rows = await store.call("SLOWLOG", "GET", SLOW)
    except RedisError:
        return []
    return [_slow_command(row) for row in rows]


def _slow_command(row: Sequence[Any]) -> dict[str, Any]:
    number, at, duration, words, *client = row
    texts = [word.decode("utf-8", "replace")[:80] for word in words[:6]]
    return {
        "id": number,
        "at": at * 1000,
        "duration_us": duration,
        "command": " ".join(texts),
        "client": client[0].decode("utf-8", "replace") if client else "",
    }
