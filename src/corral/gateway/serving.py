"""Serve the gateway: one process or several on one address."""

import ipaddress
import os
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from corral.errors import InvalidOptions
from corral.gateway.app import create_app
from corral.gateway.callers import KeyRing
from corral.gateway.settings import Settings

PROTOCOL = "corral.gateway.http_protocol:GatewayProtocol"
FACTORY = "corral.gateway.serving:from_environment"


@dataclass(frozen=True)
class Address:
    """Where to listen, with how many processes."""

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1


def from_environment() -> FastAPI:
    """The gateway as the environment says; each process makes its own."""
    return create_app(Settings())


def check_address(host: str, ring: KeyRing) -> None:
    """Refuse to be reached from elsewhere by people who need no key."""
    if not ring and not is_loopback(host):
        raise InvalidOptions(
            f"without keys the gateway listens on loopback only, and {host!r} is not; "
            f"set CORRAL_KEYS or CORRAL_KEYS_FILE, or use --host 127.0.0.1"
        )


def check_keys(host: str) -> Settings:
    """The settings of the environment, if its keys allow to be reached at this address."""
    settings = Settings()
    check_address(host, KeyRing.load(settings))
    return settings


def is_loopback(host: str) -> bool:
    """Does this address reach only this machine?"""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def configure(app: Any, address: Address, settings: Settings, log_level: str = "warning") -> uvicorn.Config:
    """uvicorn as the gateway needs it."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        host=address.host,
        port=address.port,
        workers=address.workers,
        http=PROTOCOL,
        ws="none",
        lifespan="on",
        log_level=log_level,
        access_log=False,
        server_header=False,
        # anybody could write these headers; a proxy's word is not taken
        proxy_headers=False,
        timeout_graceful_shutdown=max(int(settings.grace_s), 1),
    )


def serve(address: Address, log_level: str = "warning") -> int:
    """Serve as the environment says until a signal comes; the exit code."""
    settings = check_keys(address.host)
    config = configure(FACTORY, address, settings, log_level)
    if address.workers == 1:
        server = uvicorn.Server(config)
        server.run()
        return 0 if server.started else 1
    with TemporaryDirectory(prefix="corral-metrics-") as folder, config.bind_socket() as socket:
        # whichever process is asked for metrics answers for all of them
        os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        Multiprocess(config, sockets=[socket]).run()
    return 0
