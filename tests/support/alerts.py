"""The alerting rules of the documentation, evaluated over samples of a registry."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Samples = dict[str, Vector]
"""Metric name -> labels -> value."""

_RULE = re.compile(r"- alert: (\w+)\n +expr: (?:>\n((?: {10}.*\n)+)|(.*)\n)")
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?(?![\w.])|\w+|==|[()\[\],*<>])")


def alert_rules() -> dict[str, str]:
    """Return alert name -> expression."""
    return {name: folded or plain for name, folded, plain in _RULE.findall(PAGE.read_text())}


class Alerts:
    """Samples of a registry, and the alerts that fire over them.

    All samples count as taken within every window, and how long a condition must last (`for`) is left out.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._samples: list[Samples] = []

    def sample(self) -> None:
        """Scrape."""
        samples: Samples = {}
        for family in self._registry.collect():
            for each in family.samples:
                samples.setdefault(each.name, {})[frozenset(each.labels.items())] = each.value
        self._samples.append(samples)

    def firing(self) -> set[str]:
        """Return the names of the alerts whose condition holds."""
        return {name for name, text in alert_rules().items() if _Expression(text, self._samples).holds()}


class _Expression:
    """As much of PromQL as the rules use."""

    def __init__(self, text: str, samples: list[Samples]) -> None:
        self._tokens = _TOKEN.findall(text.strip())
        assert "".join(self._tokens) == re.sub(r"\s", "", text), f"cannot be read: {text}"
        self._tokens.append("")
        self._samples = samples

    def holds(self) -> bool:
        left = self._product()
        compare: Callable[[float, float], bool] = {
            ">": lambda one, other: one > other,
            "==": lambda one, other: one == other,
        }[self._next()]
        right = self._product()
        assert self._tokens == [""]
        assert isinstance(left, dict)
        limits = right if isinstance(right, dict) else dict.fromkeys(left, right)
        return any(compare(value, limits[labels]) for labels, value in left.items() if labels in limits)

    def _next(self, expected: str = "") -> str:
        token = self._tokens.pop(0)
        assert expected in ("", token), f"{expected!r} expected, not {token!r}"
        return token

    def _product(self) -> Vector | float:
        value = self._value()
        while self._tokens[0] == "*":
            self._next()
            factor, vector = value, self._value()
            assert isinstance(factor, float)
            assert isinstance(vector, dict)
            value = {labels: factor * each for labels, each in vector.items()}
        return value

    def _value(self) -> Vector | float:
        token = self._next()
        if token[0].isdigit():
            return float(token)
        if token in ("sum", "min"):
            return self._aggregate(sum if token == "sum" else min)
        if token == "histogram_quantile":
            return self._quantile()
        if token in ("rate", "increase", "avg_over_time"):
            return self._over_time(token)
        return self._samples[-1].get(token, {})

    def _inner(self) -> Vector:
        value = self._product()
        assert isinstance(value, dict)
        self._next(")")
        return value

    def _aggregate(self, join: Callable[[list[float]], float]) -> Vector:
        self._next("by")
        self._next("(")
        names = []
        while (token := self._next()) != ")":
            names.append(token)
        self._next("(")
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._inner().items():
            group = frozenset((name, text) for name, text in labels if name in names)
            groups.setdefault(group, []).append(value)
        return {group: join(values) for group, values in groups.items()}

    def _over_time(self, function: str) -> Vector:
        self._next("(")
        name = self._next()
        self._next("[")
        self._next()
        self._next("]")
        self._next(")")
        first, last = self._samples[0].get(name, {}), self._samples[-1].get(name, {})
        if function == "avg_over_time":
            series = [each.get(name, {}) for each in self._samples]
            return {labels: _mean([each[labels] for each in series if labels in each]) for labels in last}
        # a series that is not there from the start has no increase in Prometheus either
        return {labels: value - first.get(labels, value) for labels, value in last.items()}

    def _quantile(self) -> Vector:
        self._next("(")
        share = float(self._next())
        self._next(",")
        buckets: dict[Labels, dict[float, float]] = {}
        for labels, count in self._inner().items():
            edge = float(dict(labels)["le"])
            others = frozenset((name, text) for name, text in labels if name != "le")
            buckets.setdefault(others, {})[edge] = count
        return {labels: _quantile_of(counts, share) for labels, counts in buckets.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _quantile_of(counts: Mapping[float, float], share: float) -> float:
    """Return the upper edge of the bucket that the quantile is in; 0 without values."""
    total = counts[float("inf")]
    reached = [edge for edge, count in sorted(counts.items()) if total and count >= share * total]
    return reached[0] if reached else 0.0
