"""The gateway: jobs, their events and every queue by HTTP."""

from corral.gateway.app import create_app
from corral.gateway.settings import Settings

__all__ = ["Settings", "create_app"]
