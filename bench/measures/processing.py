"""Processing: from the start of a worker with a full queue until the server holds every job as completed.

The handler does nothing. Each peer is taken at the concurrency it is best at.
"""

from bench.measure import Figure, Measure, own_us, rate, server_us

MEASURE = Measure(
    name="processing",
    count=30_000,
    quick_count=5_000,
    sweep=(50, 100, 200, 400),
    quick_sweep=(50, 200),
    figures=(
        Figure("processing", "jobs/s", True, rate, "≥ 2.5x", lambda _, times: times >= 2.5),
        Figure("processing: own CPU", "µs/job", False, own_us),
        Figure("processing: server's CPU", "µs/job", False, server_us),
    ),
)
