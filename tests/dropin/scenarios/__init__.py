"""Scenarios: what a producer and a worker do, said once for every pair of clients."""

from collections.abc import Awaitable, Callable

from tests.dropin.scenarios import adding, flows, operating, working
from tests.dropin.scenarios.run import Run

SCENARIOS: dict[str, Callable[[Run], Awaitable[None]]] = {
    scenario.__name__: scenario
    for module in (adding, working, flows, operating)
    for scenario in module.SCENARIOS
}
