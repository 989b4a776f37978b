"""The table of residuals: quantiles with every source weighted alike."""

import math

import pytest
from msgspec.structs import replace

from xe_sizer.evidence.residuals import Run, coverage, left_out, left_out_ranges, observed, residual_table
from xe_sizer.software.uncertainty import range_of

STATED = ("stated", "fast")


def run(
    source: str, ratio: float, inside: bool = False, conditions: tuple[str, ...] = STATED, stack: str = "nemo"
) -> Run:
    return Run(stack, "sft", conditions[0] == "guessed", source, math.log(ratio), inside, "step_time", conditions)


def test_sources_weigh_alike() -> None:
    """Ninety runs of one source do not outvote ten each of three others."""
    runs = [run("many", 1.0) for _ in range(90)] + [run(name, 2.0) for name in "abc" for _ in range(10)]
    found = residual_table(runs)["step_time", STATED]
    assert (found.runs, found.publications) == (120, 4)
    assert found.low == pytest.approx(0)
    assert found.high == pytest.approx(math.log(2))


def test_a_group_of_few_publications_is_completed_by_wider_ones() -> None:
    """Two publications at four times the prediction, completed to ten by twelve of which ten are at it.

    The wider group weighs eight: two thirds of a publication each. Of the ten then 2 + 4/3 lie at ln 4, and the
    quantile is that of 0.5 + 0.5 x 0.8 x 11 / 10 = 0.94.
    """
    few = [run(name, 4.0, conditions=("stated", "slow")) for name in "xxyy"]
    many = [run(name, 1.0) for name in "abcdefghij"]
    table = residual_table([*many, *few])
    found = table["step_time", ("stated", "slow")]
    assert (found.runs, found.publications) == (4, 2)
    assert (found.low, found.high) == (pytest.approx(0.0), pytest.approx(math.log(4.0)))
    assert range_of(table, "step_time", ("stated", "slow")) == (0.0, pytest.approx(math.log(4.0)), False)
    three = residual_table([*many, *few[:3]])
    assert ("step_time", ("stated", "slow")) not in three, "three runs say nothing"


def test_wider_groups_weigh_no_more_than_completes_a_group() -> None:
    """Nine publications at the prediction and thirty at eight times it: the wider group has a tenth of the weight.

    The quantile of 0.94 lies in it. Ten publications need no others.
    """
    own = [run(f"own{place}", 1.0, conditions=("stated", "slow")) for place in range(9)]
    others = [run(f"other{place}", 8.0) for place in range(30)]
    found = residual_table([*own, *others])["step_time", ("stated", "slow")]
    assert found.high == pytest.approx(math.log(8.0))
    ten = [*own, run("own9", 1.0, conditions=("stated", "slow"))]
    assert residual_table([*ten, *others])["step_time", ("stated", "slow")].high == 0.0


@pytest.mark.parametrize(("publications", "quantile"), [(4, 1.0), (10, 0.94), (40, 0.91)])
def test_ends_lie_farther_out_the_fewer_publications_there_are(publications: int, quantile: float) -> None:
    """Split conformal prediction: 0.8 (n + 1) / n of the publications lie inside, as many beyond either end.

    Evenly from 0 to n - 1, whose middles are at (i + 1/2) / n of the weight.
    """
    runs = [run(str(place), math.exp(place)) for place in range(publications)]
    runs += [run(str(place), math.exp(place)) for place in range(publications)]
    found = residual_table(runs)["step_time", ()]
    assert found.high == pytest.approx(min(quantile * publications - 0.5, publications - 1.0), abs=0.26)
    assert found.low == pytest.approx(max((1.0 - quantile) * publications - 0.5, 0.0), abs=0.26)


def test_nothing_is_centred_and_nothing_cut_off() -> None:
    """Four publications that took eight times as long, but for one that took four."""
    found = residual_table([run(name, 4.0 if name == "a" else 8.0) for name in "abcd"])["step_time", STATED]
    assert found.low > math.log(3.9)
    assert found.high == pytest.approx(math.log(8.0))


def test_a_test_that_may_have_been_another_lies_beyond_all_that_it_may_have_been() -> None:
    """Predicted between 0.5 and 2, and measured at 3: half as much again beyond the most, six times the least."""
    beyond = Run("vllm", "ttft", False, "a", math.log(3.0), False, "ttft", (), math.log(6.0), math.log(1.5))
    assert beyond.ends == (math.log(6.0), math.log(1.5))
    table = residual_table([replace(beyond, source=name) for name in "abcd"])
    assert table["ttft", ()].high == pytest.approx(math.log(1.5))
    assert table["ttft", ()].low == pytest.approx(math.log(6.0))


def test_coverage_is_that_of_sources_not_seen() -> None:
    """Each source lies on its own side, so a range without it misses it."""
    apart = left_out([run(name, ratio) for name, ratio in (("fast", 0.25), ("slow", 4.0)) for _ in range(4)])
    assert apart.coverage() == 0
    alike = left_out([run(str(place), 1 + 0.1 * copy) for place in range(5) for copy in range(4)])
    assert alike.coverage() >= 0.5
    assert alike.coverage([0]) in (0.0, 1.0)
    assert alike.median_width() == pytest.approx(1.3, rel=0.1)


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


def test_ranges_go_by_conditions_and_not_by_stack() -> None:
    """Tuned runs are close and eager ones far apart, whatever the stack is called."""
    tuned = [run(f"t{i}", math.exp(0.1 * (-1) ** i), stack=f"s{i}") for i in range(40)]
    slow = ("stated", "slow")
    eager = [run(f"e{i}", math.exp(0.8 * (-1) ** i), conditions=slow, stack=f"s{i}") for i in range(40)]
    low, high = left_out_ranges([*tuned, *eager])
    assert max(high[:40] - low[:40]) < 0.5
    assert min(high[40:] - low[40:]) > 1.0
    assert left_out([*tuned, *eager]).coverage() == 1.0
    assert left_out(tuned).median_width() == pytest.approx(math.exp(0.2), rel=0.05)


def test_runs_whose_lengths_were_guessed_say_nothing_of_a_stack() -> None:
    runs = [run(name, 1.0, conditions=("guessed", "fast")) for name in "abcd"]
    assert observed(runs) == {}


def test_the_coverage_of_the_ranges_as_they_are_weighs_publications_alike() -> None:
    runs = [run("many", 1.0, inside=True) for _ in range(9)] + [run("few", 3.0)]
    assert coverage(runs) == pytest.approx(0.5)
