"""The BullMQ protocol: BullMQ 5.62.0's Redis protocol."""

from corral.core.job import JobState
from corral.core.options import Capability

NAME = "bullmq"
DEFAULT_QUEUE = "default"
DEFAULT_NAMESPACE = "bull"
CAPABILITIES = frozenset(
    {
        Capability.DELAY,
        Capability.RETRY,
        Capability.PRIORITY,
        Capability.LIFO,
        Capability.CUSTOM_ID,
        Capability.REMOVAL,
        Capability.PAUSE,
        Capability.LOGS,
        Capability.RATE_LIMIT,
    }
)
EXTRAS: frozenset[str] = frozenset(
    {
        *("timestamp", "stackTraceLimit", "sizeLimit", "telemetry", "deduplication", "parent"),
        *("failParentOnFailure", "continueParentOnFailure"),
        *("ignoreDependencyOnFailure", "removeDependencyOnFailure"),
    }
)
"""Options only this contract knows, in its own words; they reach `JobOptions.extra`."""
METRIC_WORDS = {
    JobState.WAITING: "waiting",
    JobState.DELAYED: "delayed",
    JobState.ACTIVE: "active",
    JobState.COMPLETED: "completed",
    JobState.DEAD: "failed",
}
"""The states as `bullmq_job_count` has them."""
