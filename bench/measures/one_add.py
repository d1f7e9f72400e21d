"""One add at a time: each waited for before the next."""

from bench.measure import Figure, Measure, own_us, rate, server_us

MEASURE = Measure(
    name="one_add",
    count=5_000,
    quick_count=1_000,
    figures=(
        Figure("one add at a time", "jobs/s", True, rate, "≥ 1x", lambda _, times: times >= 1),
        Figure("one add at a time: own CPU", "µs/job", False, own_us),
        Figure("one add at a time: server's CPU", "µs/job", False, server_us),
    ),
)
