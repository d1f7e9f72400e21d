"""The names of workers' metrics and their help texts, without the Prometheus client."""

TURNS = "corral_turns"
UNKNOWN = "corral_outcomes_unknown"
LOST = "corral_outcomes_lost"
RENEWALS = "corral_lock_renewals"
RENEWAL_FAILURES = "corral_lock_renewal_failures"
LOST_LOCKS = "corral_locks_lost"
STALLED = "corral_jobs_stalled"
SKIPPED = "corral_recoveries_skipped"
LEFT_OUT = "corral_recoveries_left_out"
RECONNECTS = "corral_redis_reconnects"
RUNNING = "corral_jobs_running"
REDIS_UP = "corral_redis_up"
RENEWAL_SECONDS = "corral_lock_renewal_duration_seconds"

COUNTERS = {
    TURNS: "Round trips that settled or claimed.",
    UNKNOWN: "Outcomes that may have been written or not.",
    LOST: "Outcomes that were refused because the lock was lost.",
    RENEWALS: "Lock renewals tried, one per job and beat.",
    RENEWAL_FAILURES: "Lock renewals that failed.",
    LOST_LOCKS: "Locks that a renewal found lost while the job ran.",
    STALLED: "Abandoned jobs that recovery found.",
    SKIPPED: "Recoveries skipped because the previous one had not ended.",
    LEFT_OUT: "Recoveries left out because another worker had run one within the interval.",
    RECONNECTS: "Tries to reach Redis again.",
}
GAUGES = {
    RUNNING: "Jobs held by the workers of this process.",
    REDIS_UP: "Whether Redis replies: 1 or 0.",
}
HELP = {**COUNTERS, **GAUGES, RENEWAL_SECONDS: "How long one round trip of lock renewals took, in seconds."}
