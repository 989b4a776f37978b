"""The table of residuals: quantiles with every source weighted alike."""

import math

import pytest

from xe_sizer.evidence.residuals import (
    Run,
    coverage,
    left_out_coverage,
    left_out_ranges,
    left_out_width,
    observed,
    residual_table,
)


def run(source: str, ratio: float, stack: str = "nemo", kind: str = "sft", inside: bool = False) -> Run:
    return Run(stack, kind, False, source, math.log(ratio), inside)


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


def test_the_median_of_a_group_weighs_publications_alike() -> None:
    """Eight runs of one paper at 1.0 and two of two others at 1.4 and 1.5: the median is that of the papers."""
    runs = [run("many", 1.0, inside=True) for _ in range(8)] + [run("one", 1.4), run("two", 1.5)]
    found = observed(runs)["nemo", "sft"]
    assert (found.runs, found.publications, found.inside) == (10, 3, 8)
    assert found.median == pytest.approx(1.4)
    assert found == observed(runs)["nemo", ""]


def test_a_run_that_was_another_job_than_it_says_counts_as_six_times_off() -> None:
    found = observed([run(name, 20.0) for name in "abcd"])["nemo", "sft"]
    assert found.slowest == pytest.approx(6.0)


def test_ranges_of_training_go_by_what_explains_the_spread() -> None:
    """Tuned runs are close and eager ones far apart, whatever the stack is called."""
    tuned = [Run(f"s{i}", "sft", False, f"t{i}", 0.1 * (-1) ** i, explained=("dense", "tuned")) for i in range(40)]
    eager = [Run(f"e{i}", "sft", False, f"e{i}", 0.8 * (-1) ** i, explained=("dense", "eager")) for i in range(40)]
    low, high = left_out_ranges([*tuned, *eager])
    assert max(high[:40] - low[:40]) < 0.5
    assert min(high[40:] - low[40:]) > 1.0
    assert left_out_coverage([*tuned, *eager]) == 1.0
    assert left_out_width([*tuned]) == pytest.approx(math.exp(0.2), rel=0.05)


@pytest.mark.parametrize(("own", "missed"), [(5, 5), (6, 0)])
@pytest.mark.parametrize("launched", ["eager", "tuned"])
def test_a_stack_reaches_its_own_runs_from_five_other_publications_on(own: int, missed: int, launched: str) -> None:
    """Some publications of one stack are twice as slow as sixty of others, whose ranges alone miss them."""
    runs = [
        Run(stack, "sft", False, f"{place} of {stack}", math.log(ratio), explained=("dense", launched))
        for stack, ratio, publications in (("own", 2.0, own), ("other", 1.0, 60))
        for place in range(publications)
        for _ in range(2)
    ]
    assert left_out_coverage(runs) == pytest.approx(1.0 - missed / (60 + own))


def test_runs_whose_lengths_were_guessed_say_nothing_of_a_stack() -> None:
    runs = [Run("nemo", "sft", True, name, 0.0) for name in "abcd"]
    assert observed(runs) == {}


def test_the_coverage_of_the_ranges_as_they_are_weighs_publications_alike() -> None:
    runs = [run("many", 1.0, inside=True) for _ in range(9)] + [run("few", 3.0)]
    assert coverage(runs) == pytest.approx(0.5)
