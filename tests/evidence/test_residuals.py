"""The table of residuals: quantiles with every source weighted alike."""

import math

import pytest

from xe_sizer.evidence.residuals import Run, left_out_coverage, residual_table


def run(source: str, ratio: float, stack: str = "nemo", kind: str = "sft") -> Run:
    return Run(stack, kind, False, source, math.log(ratio))


def test_sources_weigh_alike() -> None:
    """Ninety runs of one source do not outvote ten of another."""
    runs = [run("many", 1.0) for _ in range(90)] + [run("few", 2.0) for _ in range(10)]
    found = residual_table(runs)["nemo", "sft", False]
    assert (found.runs, found.sources) == (100, 2)
    assert found.low == pytest.approx(0)
    assert found.high == pytest.approx(math.log(2))


def test_groups_of_a_few_runs_are_left_out() -> None:
    table = residual_table([run("a", 1.1), run("a", 1.2), run("b", 1.0), run("b", 1.3), run("c", 2.0, stack="other")])
    assert ("nemo", "sft", False) in table
    assert ("other", "sft", False) not in table


def test_coverage_is_that_of_sources_not_seen() -> None:
    """Each source lies on its own side, so a range without it misses it."""
    apart = [run(name, ratio) for name, ratio in (("fast", 0.25), ("slow", 4.0)) for _ in range(4)]
    alike = [run(str(place), 1 + 0.1 * copy) for place in range(4) for copy in range(4)]
    assert left_out_coverage(apart) == 0
    assert left_out_coverage(alike) >= 0.5
