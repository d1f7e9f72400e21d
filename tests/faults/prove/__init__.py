"""Runs of Corral under faults: producers, workers and a server whose histories the checker judges."""

from tests.faults.prove.plan import Plan, make_plan
from tests.faults.prove.run import Finding, prove

__all__ = ["Finding", "Plan", "make_plan", "prove"]
