"""Bulk add: many jobs into a queue, in batches of 1,000, each batch waited for."""

from bench.measure import Figure, Measure, rate, server_us

MEASURE = Measure(
    name="bulk_add",
    count=50_000,
    quick_count=5_000,
    figures=(
        Figure("bulk add", "jobs/s", True, rate, "≥ 5x", lambda _, times: times >= 5),
        Figure("bulk add: server", "µs/job", False, server_us),
    ),
)
