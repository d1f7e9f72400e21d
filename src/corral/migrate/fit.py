"""Which jobs a target can hold: what does not fit, why, and what can be left out."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from corral.core.job import DEFAULT_KEEP_LOGS, Job, JobOptions, JobState
from corral.core.options import Capability
from corral.core.transfer import HeldJob, Transfer
from corral.errors import Refused
from corral.protocols.base import Protocol

KINDS = ("fixed", "exponential")
"""The kinds of backoff that every protocol with retries has."""
DATED = ("timestamp",)
"""Options that another field of a job has."""


class Misfit(Struct, frozen=True):
    """Something of a job that the target has no word for."""

    part: str
    """delay, priority, attempts, backoff, lifo, keep_completed, keep_dead, keep_logs, an option, name, data,
    id or flow."""
    reason: str
    is_optional: bool = True
    """Whether the job can do without it; else it stays at the source."""


class Fit(Struct, frozen=True, kw_only=True):
    """What becomes of jobs at a target: checked by its capabilities, then by its own codec."""

    source: str
    """The name of the protocol that they come from; empty for another library."""
    target: Protocol
    adapts: bool = False
    """Whether jobs leave behind what they can do without."""
    names: Mapping[str, str] = {}
    """New names of jobs."""

    def misfits(self, held: HeldJob, transfer: Transfer) -> list[Misfit]:
        """Return everything about a job that does not fit."""
        found = list(self._options(held.job)) + list(self._parts(held))
        if not any(not misfit.is_optional for misfit in found):
            try:
                transfer.check(self._without(held, {misfit.part for misfit in found}))
            except Refused as error:
                found.append(Misfit("data", str(error), is_optional=False))
        return found

    def adapted(self, held: HeldJob, misfits: list[Misfit]) -> HeldJob | None:
        """Return the job as the target takes it; None where it stays at the source."""
        if any(not misfit.is_optional or not self.adapts for misfit in misfits):
            return None
        return self._without(held, {misfit.part for misfit in misfits})

    def _options(self, job: Job) -> Iterator[Misfit]:
        options, spec = job.options, self.target.spec
        able = spec.capabilities
        if self.source == spec.name:
            return
        name = spec.name
        if options.priority and Capability.PRIORITY not in able:
            yield Misfit("priority", f"protocol {name!r} has no priorities")
        elif options.priority:
            yield Misfit("priority", f"priorities mean something else in protocol {name!r}: {spec.priority}")
        if options.attempts > 1 and Capability.RETRY not in able:
            yield Misfit("attempts", f"protocol {name!r} has no retries: a failure is final")
        if options.backoff is not None and Capability.RETRY not in able and options.attempts > 1:
            yield Misfit("backoff", f"protocol {name!r} has no retries")
        elif options.backoff is not None and options.attempts > 1 and options.backoff.kind not in KINDS:
            kind = options.backoff.kind
            yield Misfit("backoff", f"backoff {kind!r} is a function of the source's workers")
        if options.lifo and Capability.LIFO not in able:
            yield Misfit("lifo", f"protocol {name!r} has no lifo")
        if Capability.REMOVAL not in able:
            for part, keep in (("keep_completed", options.keep_completed), ("keep_dead", options.keep_dead)):
                if keep is not None:
                    yield Misfit(part, f"protocol {name!r} keeps ended jobs by rules of its own")
        # the default cannot be told from no option
        if options.keep_logs not in (None, DEFAULT_KEEP_LOGS) and Capability.LOGS not in able:
            yield Misfit("keep_logs", f"protocol {name!r} has no logs")
        for option in sorted(options.extra.keys() - spec.options.keys() - set(DATED)):
            yield Misfit(f"option {option}", f"protocol {name!r} does not know it")

    def _parts(self, held: HeldJob) -> Iterator[Misfit]:
        job, spec = held.job, self.target.spec
        if job.state is JobState.DELAYED and Capability.DELAY not in spec.capabilities:
            yield Misfit("delay", f"protocol {spec.name!r} has no delay; promote it first", is_optional=False)
        if held.group and self.source != spec.name:
            yield Misfit("flow", f"protocol {spec.name!r} has no flows", is_optional=False)
        try:
            self.target.check_name(self.names.get(job.name, job.name))
        except Refused as error:
            yield Misfit("name", f"{error}; give it another by --rename {job.name}=…", is_optional=False)

    def _without(self, held: HeldJob, parts: set[str]) -> HeldJob:
        job = replace(held.job, name=self.names.get(held.job.name, held.job.name))
        if self.source != self.target.spec.name:
            job = replace(job, options=self._left(job.options, parts), extra={})
        return replace(held, job=job, protocol=self.source if self.source == self.target.spec.name else "")

    def _left(self, options: JobOptions, parts: set[str]) -> JobOptions:
        """Return the options of a job of another protocol as far as the target knows them."""
        able = self.target.spec.capabilities
        changes: dict[str, Any] = {
            "extra": {
                name: value for name, value in options.extra.items() if name in self.target.spec.options
            }
        }
        usual = JobOptions()
        for part in parts & {"priority", "lifo", "keep_completed", "keep_dead", "keep_logs"}:
            changes[part] = {"priority": 0, "lifo": usual.lifo}.get(part)
        changes["attempts"] = max(options.attempts, 1) if Capability.RETRY in able else 1
        if Capability.RETRY not in able or "backoff" in parts:
            changes["backoff"] = None
        if Capability.DELAY not in able:
            changes["delay"] = 0
        if Capability.LOGS not in able:
            changes["keep_logs"] = None
        shared = {name: value for name, value in _shared(options).items() if name not in changes}
        return JobOptions(**shared, **changes)


def _shared(options: JobOptions) -> dict[str, Any]:
    """Return the options that every protocol has a field for, of whatever class they are."""
    return {
        "priority": options.priority,
        "delay": options.delay,
        "attempts": options.attempts,
        "backoff": options.backoff,
        "keep_completed": options.keep_completed,
        "keep_dead": options.keep_dead,
        "lifo": options.lifo,
        "keep_logs": options.keep_logs,
    }
