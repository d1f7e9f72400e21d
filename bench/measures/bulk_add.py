"""Bulk add: many jobs into a queue, each call waited for.

Each peer is taken at the number of jobs a call that it is best at.
"""

from bench.measure import Figure, Measure, own_us, rate, server_us

MEASURE = Measure(
    name="bulk_add",
    count=50_000,
    quick_count=5_000,
    sweep=(250, 1_000, 5_000),
    quick_sweep=(1_000,),
    figures=(
        Figure("bulk add", "jobs/s", True, rate, "≥ 5x", lambda _, times: times >= 5),
        Figure("bulk add: own CPU", "µs/job", False, own_us),
        Figure("bulk add: server's CPU", "µs/job", False, server_us),
    ),
)
