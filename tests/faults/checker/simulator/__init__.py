"""A simulated job queue that writes histories: correct ones, and those of a queue with a known bug."""

from functools import partial

from tests.faults.checker.history import History
from tests.faults.checker.simulator.clients import Clients
from tests.faults.checker.simulator.server import Bug
from tests.faults.checker.simulator.workers import Workers
from tests.faults.checker.simulator.world import Options, Simulation

__all__ = ["Bug", "Options", "simulate"]


def simulate(options: Options, bug: Bug | None = None) -> History:
    """Return the history of one run."""
    world = Simulation(options, bug)
    workers, clients = Workers(world), Clients(world)
    world.declare()
    workers.begin()
    clients.begin()
    world.sweep()
    for at in world.ticks():
        world.later(at - world.now, None, partial(world.tick, at))
    world.later(options.horizon_ms / 2, None, world.invent)
    end = 1000.0 + options.horizon_ms
    if options.stops_early:
        world.run(world.random.uniform(1000.0, end))
    else:
        world.run(end)
        clients.resume()
        world.run(end + 20_000.0, lambda: not world.server.unfinished and not world.server.paused)
    world.dump()
    return world.history()
