"""The simulated clients, which add jobs and operate on them."""

from itertools import count

import msgspec

from tests.faults.checker.records import Flow, Invoke, NewJob, Ok, Refused, Result, Unknown, Verb
from tests.faults.checker.simulator.world import QUEUE, Process, Simulation


class Clients:
    """Client processes that add jobs and operate on them."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.processes = [world.process("client-1"), world.process("client-2")]
        self.operator = world.process("operator")
        self.ids: list[str] = []
        self.numbers = count(1)

    def begin(self) -> None:
        world, options = self.world, self.world.options
        for _ in range(options.jobs):
            world.later(world.random.uniform(0, options.horizon_ms), None, self._add)
        for _ in range(options.flows):
            world.later(world.random.uniform(0, options.horizon_ms), None, self._add_flow)
        for _ in range(options.operations):
            world.later(world.random.uniform(0, options.horizon_ms), None, self._operate)
        for _ in range(options.jobs):
            world.later(world.random.uniform(0, options.horizon_ms), None, self._read)
        for number in range(options.pauses):
            begin = (number + world.random.uniform(0.1, 0.4)) / options.pauses * options.horizon_ms
            world.later(begin, None, self._pause)
            world.later(
                begin + world.random.uniform(0.1, 0.4) / options.pauses * options.horizon_ms,
                None,
                self.resume,
            )

    def _invoke(
        self, process: Process, verb: Verb, jobs: tuple[NewJob, ...] = (), ids: tuple[str, ...] = ()
    ) -> str:
        op = f"op-{next(self.numbers)}"
        self.world.write(process, Invoke(op=op, verb=verb, queue=QUEUE, jobs=jobs, ids=ids))
        return op

    def _spec(self) -> NewJob:
        random, options = self.world.random, self.world.options
        spec = NewJob(
            priority=random.randrange(options.priorities),
            delay=random.uniform(1, 200) if random.random() < options.delayed else 0.0,
        )
        draw, name = random.random(), f"job-{next(self.numbers)}"
        if draw < 0.45:
            return msgspec.structs.replace(spec, id=name)
        if draw < 0.55 and self.ids:
            return msgspec.structs.replace(spec, id=random.choice(self.ids))
        return spec if draw < 0.6 else msgspec.structs.replace(spec, tag=f"tag-{name}")

    def _add(self, specs: tuple[NewJob, ...] | None = None) -> None:
        world, process = self.world, self.world.random.choice(self.processes)
        if world.random.random() < 0.05:
            self._add_refused(process)
            return
        if specs is None:
            specs = tuple(self._spec() for _ in range(world.random.choice((1, 1, 1, 3))))
        op = self._invoke(process, "add", specs)

        def execute() -> list[tuple[str, bool]]:
            return [
                world.server.add(world.now, id=s.id, tag=s.tag, priority=s.priority, delay=s.delay)
                for s in specs
            ]

        def answer(added: list[tuple[str, bool]]) -> None:
            self.ids += (id for id, _ in added)
            existed = tuple(place for place, (_, existed) in enumerate(added) if existed)
            world.write(process, Ok(op=op, ids=tuple(id for id, _ in added), existed=existed))

        def lost() -> None:
            world.write(process, Unknown(op=op, reason="timeout"))
            if all(spec.id is not None for spec in specs):
                self._add(specs)

        world.request(process, execute, answer, lost)

    def _add_refused(self, process: Process) -> None:
        world, id = self.world, f"refused-{next(self.numbers)}"
        op = self._invoke(process, "add", (NewJob(id=id),))
        world.request(
            process,
            lambda: world.server.refuse(id),
            lambda _: world.write(process, Refused(op=op, reason="the data is too large")),
            lambda: world.write(process, Unknown(op=op)),
        )

    def _add_flow(self) -> None:
        world, process, number = self.world, self.world.random.choice(self.processes), next(self.numbers)
        children, parent = (f"child-{number}-a", f"child-{number}-b"), f"parent-{number}"
        flow = Flow(
            queue=QUEUE, parent=parent, children=tuple((QUEUE, child) for child in children), after="ended"
        )
        world.write(process, flow)
        op = self._invoke(process, "add", tuple(NewJob(id=id) for id in (*children, parent)))

        def execute() -> None:
            for child in children:
                world.server.add(world.now, id=child)
            world.server.add(world.now, id=parent, children=frozenset(children))

        def answer(_: None) -> None:
            world.write(process, Ok(op=op))

        world.request(process, execute, answer, lambda: world.write(process, Unknown(op=op)))

    def _operate(self) -> None:
        """Cancel, remove, retry or replay a job."""
        world, server = self.world, self.world.server
        dead = [job.id for job in server.jobs.values() if job.place == "dead"]
        verb: Verb = (
            world.random.choice(("retry", "replay")) if dead else world.random.choice(("cancel", "remove"))
        )
        choices = dead or self.ids
        if not choices:
            return
        id = world.random.choice(choices)
        op = self._invoke(self.operator, verb, ids=(id,))

        def execute() -> bool | None:
            if verb == "cancel":
                return world.server.cancel(world.now, id)
            if verb == "remove":
                return world.server.remove(id) or None
            return world.server.reopen(id, anew=verb == "replay") or None

        def answer(done: bool | None) -> None:
            if done is None:
                world.write(self.operator, Refused(op=op))
            else:
                world.write(self.operator, Ok(op=op, ids=(id,) if done else ()))

        world.request(self.operator, execute, answer, lambda: world.write(self.operator, Unknown(op=op)))

    def _read(self) -> None:
        done = [
            job
            for job in self.world.server.jobs.values()
            if job.place == "completed" and job.result is not None
        ]
        if done:
            job = self.world.random.choice(done)
            self.world.write(self.processes[0], Result(queue=QUEUE, job=job.id, value=job.result or ""))

    def _pause(self) -> None:
        self._switch("pause", True, again=False)

    def resume(self) -> None:
        """Resume the queue, and try until it is known to be."""
        self._switch("resume", False, again=True)

    def _switch(self, verb: Verb, paused: bool, again: bool) -> None:
        world = self.world
        op = self._invoke(self.operator, verb)

        def execute() -> None:
            world.server.paused = paused

        def lost() -> None:
            world.write(self.operator, Unknown(op=op))
            if again:
                self._switch(verb, paused, again)

        world.request(self.operator, execute, lambda _: world.write(self.operator, Ok(op=op)), lost)
