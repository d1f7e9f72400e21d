"""Django: a Corral app from the settings, `jobs.py` of every installed app, `manage.py corral_worker`.

INSTALLED_APPS = [..., "corral.contrib.django"]
CORRAL = {"url": "redis://localhost:6379"}      # any option of Corral(…)
"""

from typing import Any

from django.conf import settings
from django.db import close_old_connections, transaction

from corral.app import Corral
from corral.job_call import JobCall
from corral.worker.context import SyncJobContext

app = Corral(**getattr(settings, "CORRAL", {}))
"""The app whose handlers stand in the modules `jobs` of the installed apps."""


def add_on_commit(call: JobCall[Any], using: str | None = None) -> None:
    """Add a job when the database's transaction is committed; never if it is rolled back.

    >>> add_on_commit(send_receipt.call(order.id))                                  # doctest: +SKIP
    """
    transaction.on_commit(lambda: app.sync(call.add()), using)


@app.middleware
def with_fresh_connections(job: SyncJobContext[Any], call_next: Any) -> Any:
    """Close database connections that are too old or broken, as Django does around a request."""
    close_old_connections()
    try:
        return call_next(job)
    finally:
        close_old_connections()
