"""The HTTP gateway: jobs, their events, and the queues of every protocol."""

from corral.gateway.app import create_app
from corral.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "create_app"]
