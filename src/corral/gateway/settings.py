"""What the gateway can be told, by the environment or in code."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from corral.protocols import names_with_http


class Settings(BaseSettings):
    """Each is read from `CORRAL_` and its name in capitals; `REDIS_URL` and `JOB_TTL_S` as they stand.

    >>> Settings(max_backlog=500).max_backlog
    500
    """

    model_config = SettingsConfigDict(
        env_prefix="CORRAL_", frozen=True, extra="ignore", populate_by_name=True
    )

    redis_url: Annotated[str | None, Field(validation_alias=AliasChoices("redis_url", "REDIS_URL"))] = None
    folder: Annotated[Path | None, Field(description="Where a private server keeps its data.")] = None
    namespaces: Annotated[
        dict[str, str], Field(description="Protocol to what its keys begin with, as JSON.")
    ] = {}
    protocol: Annotated[str, Field(description="The protocol that /v1/jobs serves.")] = names_with_http()[0]

    job_ttl_s: Annotated[
        int, Field(ge=1, le=2_147_483_647, validation_alias=AliasChoices("job_ttl_s", "JOB_TTL_S"))
    ] = 3600
    max_backlog: Annotated[int | None, Field(ge=1, description="Jobs undelivered or pending.")] = 10_000
    client_jobs: Annotated[int | None, Field(ge=1, description="New jobs of one client in the window.")] = (
        None
    )
    client_window_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    retry_after_s: Annotated[int, Field(ge=1, description="When to ask again after a full queue.")] = 2
    max_wait_s: Annotated[int, Field(ge=0, description="The longest `Prefer: wait` that is kept.")] = 30

    heartbeat_s: Annotated[float, Field(gt=0)] = 15.0
    sweep_s: Annotated[float, Field(gt=0, description="How often tails look for what strangers wrote.")] = 1.0
    feed_s: Annotated[float, Field(gt=0, description="How often the feed of all queues looks.")] = 0.2
    retry_ms: Annotated[int, Field(ge=0, description="When a tail that broke off should come back.")] = 2000
    stall_s: Annotated[
        float, Field(gt=0, description="How long a client may leave what it is sent unread.")
    ] = 10.0
    tail_bytes: Annotated[int, Field(ge=1024, description="What is read ahead for one tail.")] = 262_144
    tails_per_client: Annotated[int, Field(ge=1)] = 500
    max_tails: Annotated[int, Field(ge=1)] = 20_000

    max_body_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    max_payload_bytes: Annotated[int, Field(ge=2, le=204_800, description="As it comes over the wire.")] = (
        204_800
    )
    max_header_bytes: Annotated[int, Field(ge=1024)] = 16_384
    max_headers: Annotated[int, Field(ge=8)] = 100
    max_json_depth: Annotated[int, Field(ge=2, le=150)] = 64
    body_s: Annotated[float, Field(gt=0, description="How long a request's body may take to come.")] = 10.0

    keys: Annotated[SecretStr | None, Field(description="Keys and their roles, as JSON.")] = None
    keys_file: Annotated[Path | None, Field(description="The same in a file, JSON or TOML.")] = None
    ownership: Annotated[bool, Field(description="Does a client see only its own jobs?")] = False
    hosts: Annotated[
        tuple[str, ...], Field(description="Host names to answer to besides loopback, without keys.")
    ] = ()

    answer_s: Annotated[float, Field(gt=0, description="How long the server may take to answer.")] = 0.9
    grace_s: Annotated[
        float, Field(ge=0, description="How long requests have to end once the gateway stops.")
    ] = 10.0
