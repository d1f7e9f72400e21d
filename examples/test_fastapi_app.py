"""Tests of fastapi_app.py, with Corral's pytest plugin: `pytest test_fastapi_app.py`."""

import pytest
from fastapi_app import Signup, api, welcome
from fastapi_app import app as corral
from httpx import ASGITransport, AsyncClient

from corral import testing

ADA = Signup(email="ada@example.com")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def app(corral_app):
    return corral_app(corral)  # on a private server, emptied for each test


@pytest.mark.anyio
async def test_a_signup_is_welcomed(app):
    async with AsyncClient(transport=ASGITransport(api), base_url="http://test") as client:
        answer = await client.post("/signups", json={"email": "ada@example.com"})
        await testing.assert_added(welcome, ADA)
        assert await app.run_until_idle() == 1
        shown = (await client.get(f"/signups/{answer.json()['id']}")).json()
    assert (shown["state"], shown["result"]) == ("completed", {"welcomed": "ada@example.com"})


@pytest.mark.anyio
async def test_the_handler_is_an_ordinary_function():
    job = testing.context()
    assert await welcome(job, ADA) == {"welcomed": "ada@example.com"}
    assert job.reports.progress == [50, 100]
