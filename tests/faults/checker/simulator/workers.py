"""The simulated workers."""

from itertools import count

import msgspec

from tests.faults.checker.history import encode_value
from tests.faults.checker.records import End, Extended, Lost, Outcome, Settled, Start, Tick
from tests.faults.checker.simulator.server import Claimed
from tests.faults.checker.simulator.world import LOCK_MS, QUEUE, Process, Simulation


class Workers:
    """Worker processes; one that is killed is followed by another."""

    def __init__(self, world: Simulation) -> None:
        self.world, self.names = world, count(1)
        self.running: list[Process] = []

    def begin(self) -> None:
        world, options = self.world, self.world.options
        for _ in range(options.workers):
            self._start_worker()
        for _ in range(options.kills):
            world.later(world.random.uniform(50, options.horizon_ms), None, self._kill_one)
        for _ in range(options.freezes):
            world.later(world.random.uniform(50, options.horizon_ms), None, self._freeze_one)
        for number in range(options.failovers):
            share = (number + world.random.uniform(0, 0.8)) / options.failovers
            world.later(share * options.horizon_ms, None, lambda: world.fail_over(60.0))

    def _start_worker(self) -> None:
        worker = self.world.process(f"worker-{next(self.names)}")
        self.running.append(worker)
        self.world.later(self.world.random.uniform(0, 20), worker, lambda: self._poll(worker))

    def _kill_one(self) -> None:
        worker = self.world.random.choice(self.running)
        self.running.remove(worker)
        self.world.kill(worker)
        self._start_worker()

    def _freeze_one(self) -> None:
        self.world.freeze(self.world.random.choice(self.running), self.world.random.uniform(50, 600))

    def _poll(self, worker: Process) -> None:
        """Ask for jobs until every slot has one or a request under way."""
        world = self.world
        while len(worker.busy) + worker.requests < world.options.slots:
            worker.requests += 1
            requested_at = world.clock(worker)

            def answer(claimed: Claimed | None, requested_at: float = requested_at) -> None:
                worker.requests -= 1
                if claimed is None:
                    world.later(world.random.uniform(3, 8), worker, lambda: self._poll(worker))
                else:
                    self._start(worker, claimed, requested_at)

            def lost() -> None:
                worker.requests -= 1
                world.later(5.0, worker, lambda: self._poll(worker))

            world.request(worker, lambda: world.server.claim(world.now, worker.name), answer, lost)

    def _start(self, worker: Process, claimed: Claimed, requested_at: float) -> None:
        world = self.world
        worker.busy.add(claimed.receipt)
        if claimed.tick is not None:
            world.write(worker, Tick(queue=QUEUE, job=claimed.job, schedule="every", tick=claimed.tick))
        start = Start(
            queue=QUEUE,
            job=claimed.job,
            receipt=claimed.receipt,
            worker=worker.name,
            attempt=claimed.attempt,
            lock_until=requested_at + LOCK_MS,
            requested_at=requested_at,
            claim=claimed.claim,
            tag=claimed.tag,
        )
        world.write(worker, start)
        slow = world.random.random() < world.options.slow
        duration = world.random.uniform(LOCK_MS, 3 * LOCK_MS) if slow else world.random.uniform(0.1, 40.0)
        if not slow or world.random.random() < 0.5:
            world.later(LOCK_MS / 3, worker, lambda: self._extend(worker, claimed))
        world.later(duration, worker, lambda: self._end(worker, claimed))

    def _extend(self, worker: Process, claimed: Claimed) -> None:
        world = self.world
        if claimed.receipt not in worker.busy:
            return
        until = world.clock(worker) + LOCK_MS
        job, receipt = claimed.job, claimed.receipt

        def answer(held: bool) -> None:
            if claimed.receipt in worker.busy and held:
                world.write(worker, Extended(queue=QUEUE, job=job, receipt=receipt, until=until))
                world.later(LOCK_MS / 3, worker, lambda: self._extend(worker, claimed))
            elif claimed.receipt in worker.busy:
                world.write(worker, Lost(queue=QUEUE, job=job, receipt=receipt))

        world.request(
            worker,
            lambda: world.server.extend(world.now, claimed.job, claimed.receipt),
            answer,
            lambda: self._extend(worker, claimed),
        )

    def _end(self, worker: Process, claimed: Claimed) -> None:
        world, draw = self.world, self.world.random.random()
        worker.busy.discard(claimed.receipt)
        end = End(queue=QUEUE, job=claimed.job, receipt=claimed.receipt, outcome="abandoned")
        if draw < world.options.raises:
            world.write(worker, msgspec.structs.replace(end, outcome="raised", error="it went wrong"))
            self._settle(worker, claimed, "dead" if claimed.last else "retry", None)
        elif draw > 0.97:
            world.write(worker, end)
            self._settle(worker, claimed, "released", None)
        else:
            value = encode_value(f"{claimed.job} {claimed.attempt} {draw}".encode())
            world.write(worker, msgspec.structs.replace(end, outcome="returned", value=value))
            self._settle(worker, claimed, "completed", value)
        self._poll(worker)

    def _settle(self, worker: Process, claimed: Claimed, outcome: Outcome, value: str | None) -> None:
        world = self.world
        delay = world.random.choice((0.0, 30.0)) if outcome == "retry" else 0.0
        settled = Settled(
            queue=QUEUE,
            job=claimed.job,
            receipt=claimed.receipt,
            outcome=outcome,
            verdict="unknown",
            delay=delay,
        )

        def send() -> None:
            world.request(
                worker,
                lambda: world.server.settle(world.now, claimed.job, claimed.receipt, outcome, value, delay),
                answer,
                lost,
            )

        def answer(applied: bool) -> None:
            verdict = "applied" if applied else "refused"
            world.write(worker, msgspec.structs.replace(settled, verdict=verdict))

        def lost() -> None:
            world.write(worker, settled)
            if world.random.random() < 0.7:
                send()

        send()
