"""The gateways of the gateway's own tests."""

from tests.gateway.conftest import client, gateway, open_gateway, shared_gateway

__all__ = ["client", "gateway", "open_gateway", "shared_gateway"]
