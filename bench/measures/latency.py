"""Add to start on an idle queue: from just before `add` until the handler's first line, in one process.

The worker waits for work each time: a job is added when the one before has ended and 10 ms have passed.
"""

from bench.measure import Figure, Measure, percentile

MEASURE = Measure(
    name="latency",
    count=500,
    quick_count=100,
    figures=(
        Figure("add to start, idle: p50", "ms", False, percentile(0.50)),
        Figure("add to start, idle: p99", "ms", False, percentile(0.99), "< 5 ms", lambda ours, _: ours < 5),
    ),
)
