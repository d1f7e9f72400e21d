"""Bulk add: many jobs into a queue, in batches of 1,000, each batch waited for."""

from bench.measure import Figure, Measure, own_us, rate, server_us

MEASURE = Measure(
    name="bulk_add",
    count=50_000,
    quick_count=5_000,
    figures=(
        Figure("bulk add", "jobs/s", True, rate, "≥ 5x", lambda _, times: times >= 5),
        Figure("bulk add: own CPU", "µs/job", False, own_us),
        Figure("bulk add: server's CPU", "µs/job", False, server_us),
    ),
)
