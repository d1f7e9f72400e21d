"""Runs of scenarios by every pair of clients, beside each other on one server and with one Node process."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.dropin.scenarios import SCENARIOS
from tests.dropin.scenarios.clients import Client, DropInClient, NodeClient
from tests.dropin.scenarios.run import Result, Run
from tests.support.node import Node
from tests.support.servers import Server

PAIRS = {
    "nn": "Node alone",
    "nc": "Node adds, Corral works",
    "cn": "Corral adds, Node works",
    "cc": "Corral alone",
}
AT_ONCE = 24
"""How many runs are under way at a time."""


@dataclass
class Results:
    """What every pair did in each scenario, or how it failed."""

    runs: dict[tuple[str, str], Result | BaseException]

    def of(self, scenario: str, pair: str) -> Result:
        result = self.runs[scenario, pair]
        if isinstance(result, BaseException):
            raise AssertionError(f"{PAIRS[pair]}: {result}") from result
        return result


async def run_all(selected: Sequence[str], server: Server, node: Node, **opts: Any) -> Results:
    """Run each scenario by each pair; `opts` are options of all objects of the drop-in."""
    await node("closeAll")
    limit = asyncio.Semaphore(AT_ONCE)
    with server.connect() as redis:

        async def run(scenario: str, pair: str) -> Result:
            prefix = f"{pair}-run"

            def client(side: str) -> Client:
                if side == "n":
                    return NodeClient(node, server.url, prefix)
                return DropInClient(server.url, prefix, opts)

            name = scenario.replace("_", "-")
            async with limit:
                return await Run(name, prefix, client(pair[0]), client(pair[1]), redis).result(
                    SCENARIOS[scenario]
                )

        async def run_pairs(scenario: str) -> list[Result | BaseException]:
            # one after the other: of jobs that have stalled, one at a time runs in a process
            results: list[Result | BaseException] = []
            for pair in PAIRS:
                failed = results and isinstance(results[-1], BaseException)
                results.append(results[-1] if failed else await _ended(run(scenario, pair)))
            return results

        ended = await asyncio.gather(*map(run_pairs, selected))
    await node("closeAll")
    return Results({
        (scenario, pair): result
        for scenario, results in zip(selected, ended, strict=True)
        for pair, result in zip(PAIRS, results, strict=True)
    })  # fmt: skip


async def _ended(run: Awaitable[Result]) -> Result | BaseException:
    try:
        return await run
    except Exception as error:
        return error
