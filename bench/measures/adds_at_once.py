"""Adds of 100 callers at once, as of a web server's requests: each caller adds one job after the other."""

from bench.measure import Figure, Measure, own_us, rate, server_us

MEASURE = Measure(
    name="adds_at_once",
    count=20_000,
    quick_count=2_000,
    figures=(
        Figure("adds of 100 callers", "jobs/s", True, rate, "≥ 8x", lambda _, times: times >= 8),
        Figure("adds of 100 callers: own CPU", "µs/job", False, own_us),
        Figure("adds of 100 callers: server's CPU", "µs/job", False, server_us),
    ),
)
