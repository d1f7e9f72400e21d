"""The contract's page and the wire: every key on the one is on the other, and of the same type."""

import re
from pathlib import Path

from corral.core.job import Unique
from corral.core.outcome import Completed, Dead, Retry
from corral.core.ports import Ledger
from corral.protocols.bridgemq.schedules.leader import ScheduleLeader
from tests.support.bridgemq_harness import BridgemqHarness

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "bridgemq.md"


def listed_keys() -> dict[str, str]:
    """Key -> type, as the tables of the contract's page have them; `{…}` stands for any word."""
    rows = re.findall(r"^\| `(bridge:[^`]+)` \| (\w+(?: \w+)?)", PAGE.read_text(), re.MULTILINE)
    types = {"string": "string", "set": "set", "list": "list", "sorted set": "zset", "hash": "hash"}
    return {key: types.get(kind, kind) for key, kind in rows}


async def live_through_everything(harness: BridgemqHarness) -> dict[str, str]:
    """Do whatever leaves keys behind; every key that was ever seen -> its type."""
    seen: dict[str, str] = {}

    def look() -> None:
        for key in harness.keyspace():
            seen[key.decode()] = harness.client.type(key).decode()

    broker, operator = harness.broker("w1"), harness.operator
    rate = {"concurrent": 3, "per_minute": 9}
    await broker.submit([harness.job(name="sms", id=name, rate=rate) for name in ("j1", "j2", "j3")])
    await broker.submit([harness.job(id="later", delay=60_000), harness.job(id="s", cron="* * * * *")])
    await broker.submit([harness.job(id="written", delay=60_000)], Ledger("write", 60))
    await broker.submit([harness.job(delay=60_000, unique=Unique(key="order-17"))])
    await operator.pause()
    await operator.keep_events(500)
    look()
    await operator.resume()
    await harness.broker("w2", serves=("mail",)).turn([], 1)
    claims = (await broker.turn([], 3)).claims
    reporter = harness.reporter("w1")
    await reporter.beat()
    await reporter.progress(claims[0], 50)
    await reporter.log(claims[0], "a line", "mark-1")
    await operator.cancel(["j2"])
    look()
    outcomes = [Completed(b"1"), Dead("x"), Retry(500, "y")]
    await broker.turn([harness.settle(claim, one) for claim, one in zip(claims, outcomes, strict=True)], 0)
    harness.now = harness.clock() + 61_000
    leader = ScheduleLeader(harness.binding("w1"))
    assert await leader.take() is not None
    look()
    await broker.submit([harness.job(group="a"), harness.job(group="a"), harness.job()])
    look()
    await harness.broker("w3", extra={"group_concurrency": 1}).turn([], 3)
    look()
    return seen


async def test_every_key_on_the_wire_is_on_the_contracts_page_and_the_other_way_round(
    harness: BridgemqHarness,
):
    seen, listed = await live_through_everything(harness), listed_keys()
    patterns = {
        key: re.compile(re.escape(re.sub(r"\{\w+\}", "WORD", key)).replace("WORD", "[^:]+")) for key in listed
    }
    met: dict[str, str] = {}
    for key, kind in seen.items():
        # `workers:active` is also what a pattern with a word would match: the plain name wins
        fitting = [key] if key in listed else [name for name in listed if patterns[name].fullmatch(key)]
        assert len(fitting) == 1, f"{key} is on the page {len(fitting)} times"
        assert listed[fitting[0]] == kind, key
        met[fitting[0]] = kind
    assert met == listed, "the page lists keys that are never there"
