"""Run the gateway with uvicorn, in one process or several on one address."""

import ipaddress
import os
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from corral.errors import InvalidOptions
from corral.gateway.history import check_packages
from corral.gateway.security.auth import ApiKeys
from corral.gateway.settings import GatewaySettings

CONNECTION = "corral.gateway.connection:HttpConnection"
FACTORY = "corral.gateway.app:create_app"


def check_address(host: str, keys: ApiKeys) -> None:
    """Refuse to listen beyond loopback without keys."""
    if not keys and not _is_loopback(host):
        raise InvalidOptions(
            f"without keys the gateway listens on loopback only, and {host!r} is not; "
            f"set CORRAL_KEYS or CORRAL_KEYS_FILE, or use --host 127.0.0.1"
        )


def check_settings(host: str) -> GatewaySettings:
    """Return the settings of the environment, if its keys allow to listen on this address."""
    settings = GatewaySettings()
    check_address(host, ApiKeys.load(settings))
    if settings.lake is not None:
        check_packages()
    return settings


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def configure(
    app: FastAPI | str,
    settings: GatewaySettings,
    port: int,
    host: str = "127.0.0.1",
    workers: int = 1,
    log_level: str = "warning",
) -> uvicorn.Config:
    """Return uvicorn's configuration for an app, or for the import string of a factory."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        host=host,
        port=port,
        workers=workers,
        http=CONNECTION,
        ws="none",
        lifespan="on",
        log_level=log_level,
        access_log=False,
        server_header=False,
        # any client could send these headers
        proxy_headers=False,
        timeout_graceful_shutdown=max(int(settings.grace_s), 1),
    )


def serve(host: str, port: int, workers: int, log_level: str) -> int:
    """Serve with the settings of the environment until a signal comes; return the exit code."""
    config = configure(FACTORY, check_settings(host), port, host, workers, log_level)
    if workers == 1:
        server = uvicorn.Server(config)
        server.run()
        return 0 if server.started else 1
    with TemporaryDirectory(prefix="corral-metrics-") as folder, config.bind_socket() as socket:
        # any process answers /metrics for all of them
        os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        Multiprocess(config, sockets=[socket]).run()
    return 0
