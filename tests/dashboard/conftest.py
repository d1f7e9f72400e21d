"""The gateways of the gateway's own tests."""

from tests.gateway.conftest import client, gateway, opened, standing

__all__ = ["client", "gateway", "opened", "standing"]
