"""Tests of sync_views.py, with Corral's pytest plugin: `pytest test_sync_views.py`."""

import pytest
from sync_views import app as corral
from sync_views import create, show, welcome

from corral import testing


@pytest.fixture
def app(corral_app):
    return corral_app(corral)


def test_an_address_is_welcomed_once(app):
    _, document = create({"email": "ada@example.com"})
    assert create({"email": "ada@example.com"}) == (202, document)
    assert len(app.sync(testing.added(welcome))) == 1
    assert app.sync(app.run_until_idle()) == 1
    assert show(document["id"])[1]["result"] == {"welcomed": "ada@example.com"}


def test_the_handler_is_an_ordinary_function():
    job = testing.sync_context()
    assert welcome(job, "ada@example.com") == {"welcomed": "ada@example.com"}
    assert job.reports.log == ["writing to ada@example.com"]
