"""The gateway's settings, from the environment or from code."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, IPvAnyNetwork, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from corral.protocols import names_with_http


class GatewaySettings(BaseSettings):
    """Each is read from `CORRAL_` and its name in capitals; `REDIS_URL` and `JOB_TTL_S` have no prefix.

    >>> GatewaySettings(max_backlog=500).max_backlog
    500
    """

    model_config = SettingsConfigDict(
        env_prefix="CORRAL_", frozen=True, extra="ignore", populate_by_name=True
    )

    redis_url: Annotated[
        str | None,
        Field(
            validation_alias=AliasChoices("redis_url", "REDIS_URL"),
            repr=False,  # it may have a password
            description="Redis URL; without one, a private server is started.",
        ),
    ] = None
    folder: Annotated[Path | None, Field(description="Data folder of the private server.")] = None
    namespaces: Annotated[dict[str, str], Field(description="Key prefix by protocol, as JSON.")] = {}
    bullmq: Annotated[
        int | None, Field(description="Generation that queues of BullMQ must be of; else each its own.")
    ] = None
    protocol: Annotated[str, Field(description="Protocol that /v1/jobs serves.")] = names_with_http()[0]

    lake: Annotated[
        str | None, Field(description="Folder or URL of the lake that the history is read from.")
    ] = None
    app: Annotated[
        str | None, Field(description="`module:name` of the Corral whose handlers' options new jobs have.")
    ] = None

    job_ttl_s: Annotated[
        int,
        Field(
            ge=1,
            le=2_147_483_647,
            validation_alias=AliasChoices("job_ttl_s", "JOB_TTL_S"),
            description="Time to live of jobs that name none.",
        ),
    ] = 3600
    max_backlog: Annotated[int | None, Field(ge=1, description="Undelivered and pending jobs allowed.")] = (
        10_000
    )
    client_jobs: Annotated[int | None, Field(ge=1, description="New jobs of one client in a window.")] = None
    client_window_s: Annotated[int, Field(ge=1, le=86_400, description="Length of that window.")] = 60
    retry_after_s: Annotated[int, Field(ge=1, description="`Retry-After` of a full backlog.")] = 2
    max_wait_s: Annotated[int, Field(ge=0, description="Longest `Prefer: wait` that is honoured.")] = 30

    heartbeat_s: Annotated[float, Field(gt=0, description="Time between heartbeats of a tail.")] = 15.0
    sweep_s: Annotated[float, Field(gt=0, description="Time between checks for events without hints.")] = 1.0
    feed_s: Annotated[float, Field(gt=0, description="Time between reads of the queues' event logs.")] = 0.2
    retry_ms: Annotated[int, Field(ge=0, description="Reconnection time sent to tails as `retry:`.")] = 2000
    send_timeout_s: Annotated[float, Field(gt=0, description="How long a tail's client may not read.")] = 10.0
    tail_bytes: Annotated[int, Field(ge=1024, description="Bytes read ahead for one tail.")] = 262_144
    tails_per_client: Annotated[int, Field(ge=1, description="Open tails of one client.")] = 500
    max_tails: Annotated[int, Field(ge=1, description="Open tails of one process.")] = 20_000

    max_body_bytes: Annotated[int, Field(ge=1024, description="Size of a request's body.")] = 1_048_576
    max_payload_bytes: Annotated[int, Field(ge=2, le=204_800, description="Size of a payload as sent.")] = (
        204_800
    )
    max_page_bytes: Annotated[int, Field(ge=1024, description="Size of the jobs in a page.")] = 4_194_304
    max_header_bytes: Annotated[int, Field(ge=1024, description="Size of headers and URL.")] = 16_384
    max_headers: Annotated[int, Field(ge=8, description="Number of headers.")] = 100
    max_json_depth: Annotated[int, Field(ge=2, le=150, description="Levels of nesting of a body.")] = 64
    body_timeout_s: Annotated[float, Field(gt=0, description="How long a body may take to arrive.")] = 10.0
    connections_per_address: Annotated[int, Field(ge=1, description="Connections from one address.")] = 10_000
    max_connections: Annotated[int, Field(ge=1, description="Connections of one process.")] = 25_000

    keys: Annotated[SecretStr | None, Field(description="API keys and their roles, as JSON.")] = None
    keys_file: Annotated[Path | None, Field(description="The same in a file, JSON or TOML.")] = None
    ownership: Annotated[bool, Field(description="Whether a client sees only its own jobs.")] = False
    session_s: Annotated[int, Field(ge=60, le=2_592_000, description="How long a sign-in lasts.")] = 43_200
    read_only: Annotated[bool, Field(description="Whether all changes are refused.")] = False
    trusted_proxies: Annotated[
        tuple[IPvAnyNetwork, ...],
        Field(description="Addresses or networks whose `X-Forwarded-User` is believed, as JSON."),
    ] = ()
    forwarded_roles: Annotated[
        tuple[Literal["submit", "read", "operate", "admin"], ...],
        Field(description="Roles of the users that such a proxy names, as JSON."),
    ] = ("read",)
    hosts: Annotated[tuple[str, ...], Field(description="Host names accepted without keys.")] = ()

    redis_timeout_s: Annotated[float, Field(gt=0, description="How long Redis may be silent.")] = 0.9
    grace_s: Annotated[float, Field(ge=0, description="Time for running requests to end on shutdown.")] = 10.0
