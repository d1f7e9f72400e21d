"""The bullmq protocol: the Redis protocol of BullMQ 5.62.0 and 6.7.0."""

from typing import TYPE_CHECKING

from corral.core.job import JobOptions, JobState
from corral.core.naming import check_job_name
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.bullmq.keys import GENERATIONS, NAME
from corral.protocols.bullmq.options import CAPABILITIES, LACKS, OPTIONS, check_policy

if TYPE_CHECKING:
    from corral.protocols.bullmq.ports import BullmqPorts
    from corral.store.client import Store


class BullmqProtocol:
    """The bullmq protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="the Redis protocol of BullMQ 5 and 6, shared with Node, its Python client and Bull Board",
        capabilities=CAPABILITIES,
        options=OPTIONS,
        default_queue="default",
        default_namespace="bull",
        lacks=LACKS,
        tags_queues=True,
        generations=GENERATIONS,
        priority="lower runs earlier, none runs first",
        metric_names={
            "corral_lock_renewals": "bullmq_heartbeat",
            "corral_lock_renewal_failures": "bullmq_heartbeat_failure",
            "corral_lock_renewal_duration_seconds": "bullmq_lock_extend_duration_seconds",
            "corral_locks_lost": "bullmq_lock_lost",
            "corral_outcomes_lost": "bullmq_lost_work",
            "corral_jobs_stalled": "bullmq_stalled_jobs_detected",
            "corral_recoveries_skipped": "bullmq_stalled_checker_skipped",
            "corral_redis_up": "bullmq_redis_connection_status",
            "corral_redis_reconnects": "bullmq_redis_reconnect_attempts",
        },
        metric_states={
            JobState.WAITING: "waiting",
            JobState.DELAYED: "delayed",
            JobState.ACTIVE: "active",
            JobState.COMPLETED: "completed",
            JobState.DEAD: "failed",
        },
    )

    def check(self, options: JobOptions, now: int) -> None:
        """Refuse an unknown policy; the codec refuses what else cannot be encoded."""
        if "if_dead" in options.extra:
            check_policy(options.extra["if_dead"])

    def check_name(self, name: str) -> str:
        return check_job_name(name)

    async def queues(self, store: "Store", namespace: str) -> list[str]:
        from corral.protocols.bullmq.inspector import bullmq_queues

        return await bullmq_queues(store, namespace)

    def bind(self, binding: Binding) -> "BullmqPorts":
        from corral.protocols.bullmq.ports import BullmqPorts

        return BullmqPorts(binding)


PROTOCOL = BullmqProtocol()
