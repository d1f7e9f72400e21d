"""The bullmq protocol: BullMQ 5.62.0's Redis protocol."""

from functools import cached_property

from corral.core.job import JobOptions, JobState
from corral.core.options import Capability
from corral.protocols.base import Binding, ProtocolSpec
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.events import BullmqEventLog
from corral.protocols.bullmq.flows import BullmqFlows
from corral.protocols.bullmq.inspector import BullmqInspector, bullmq_queues
from corral.protocols.bullmq.keys import NAME
from corral.protocols.bullmq.operator import BullmqOperator
from corral.protocols.bullmq.reporter import BullmqReporter
from corral.protocols.bullmq.schedules import BullmqSchedules
from corral.protocols.bullmq.snapshot import BullmqSnapshot
from corral.store.client import Store


class BullmqPorts:
    """The ports of one queue."""

    http = None

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    @cached_property
    def broker(self) -> BullmqBroker:
        return BullmqBroker(self._binding)

    @cached_property
    def reporter(self) -> BullmqReporter:
        return BullmqReporter(self._binding)

    @cached_property
    def events(self) -> BullmqEventLog:
        return BullmqEventLog(self._binding)

    @cached_property
    def inspector(self) -> BullmqInspector:
        return BullmqInspector(self._binding)

    @cached_property
    def operator(self) -> BullmqOperator:
        return BullmqOperator(self._binding)

    @cached_property
    def snapshot(self) -> BullmqSnapshot:
        return BullmqSnapshot(self._binding)

    @cached_property
    def schedules(self) -> BullmqSchedules:
        return BullmqSchedules(self._binding)

    @cached_property
    def flows(self) -> BullmqFlows:
        return BullmqFlows(self._binding)


class BullmqProtocol:
    """The bullmq protocol."""

    spec = ProtocolSpec(
        name=NAME,
        summary="BullMQ 5.62.0's Redis protocol, shared with Node BullMQ, its Python client and Bull Board",
        capabilities=frozenset(
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
                Capability.CRON,
                Capability.INTERVAL,
            }
        ),
        options={
            "timestamp": "When it was created, ms since the epoch",
            "stackTraceLimit": "How many traces are kept",
            "sizeLimit": "The most bytes its data may have",
            "telemetry": "Trace context for its worker",
            "deduplication": "One job for all that are added under the same id",
            "parent": "The job that waits for it",
            "failParentOnFailure": "Its failure fails its parent",
            "continueParentOnFailure": "Its failure lets its parent run at once",
            "ignoreDependencyOnFailure": "Its failure is noted, and its parent goes on without it",
            "removeDependencyOnFailure": "Its parent goes on without it where it fails",
        },
        default_queue="default",
        default_namespace="bull",
        tags_queues=True,
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
        """Accept all options: the codec refuses what cannot be encoded."""

    async def queues(self, store: Store, namespace: str) -> list[str]:
        return await bullmq_queues(store, namespace)

    def bind(self, binding: Binding) -> BullmqPorts:
        return BullmqPorts(binding)


PROTOCOL = BullmqProtocol()
