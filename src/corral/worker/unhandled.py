"""UnhandledNames: jobs that come to a worker without a handler for them are left to others."""

from collections.abc import Iterable

from corral.core.outcome import Dead, Outcome, Unhandled
from corral.telemetry.logs import logger
from corral.worker.config import WorkerConfig

WARN_EVERY_MS = 60_000
RECENT_MS = 120_000
"""How long a name is shown after such a job was last seen; while there are any, that is more often."""
MOST_NAMES = 100


class UnhandledNames:
    """The names of jobs that this worker has seen and has no handler for; a log line a minute names them."""

    def __init__(self, config: WorkerConfig) -> None:
        self._known = config.handlers.names
        self._after = config.profile.unknown_ms
        self._clock = config.clock
        self._log = logger("worker", queue=config.queue, worker=config.profile.name)
        self._seen: dict[str, int] = {}
        self._warned_at: int | None = None

    def outcome(self, name: str) -> Outcome:
        """Return the outcome of a claimed job of that name."""
        names = ", ".join(map(repr, self._known)) or "none at all"
        reason = f"no handler for job name {name!r}; this worker knows {names}"
        if self._after == 0:
            return Dead(reason)
        self.note([name])
        return Unhandled(reason, self._after)

    def note(self, names: Iterable[str]) -> None:
        """Note that there are jobs of these names, and warn of them unless that was done a minute ago."""
        now = self._clock()
        for name in names:
            self._seen.pop(name, None)
            self._seen[name] = now
        while len(self._seen) > MOST_NAMES:
            del self._seen[next(iter(self._seen))]
        if self._warned_at is not None and 0 <= now - self._warned_at < WARN_EVERY_MS:
            return
        self._warned_at = now
        self._log.warning(
            "there are jobs without a handler in this worker; they are left to other workers, and end dead "
            f"when none has had a handler for them for {self._after / 1000:g} s",
            names=sorted(self.recent()),
        )

    def recent(self) -> dict[str, int]:
        """Return the names of late, and when such a job was last seen; also in the heartbeat's thread."""
        since = self._clock() - RECENT_MS
        return {name: at for name, at in dict(self._seen).items() if at >= since}
