"""Ranges of times: from the residuals of runs like the job, wider where there are fewer of them."""

import math

import pytest
from cases import job

from xe_sizer.laws.device import Efficiency
from xe_sizer.software.uncertainty import (
    ANY,
    TABLES,
    Evidence,
    Observed,
    Residuals,
    Seen,
    Table,
    Uncertainty,
    blended,
    from_residuals,
    in_words,
    published,
    reaching_own,
    seen,
)
from xe_sizer.training.uncertainty import uncertainty

WIDE, NARROW = Residuals(500, 30, -0.5, 0.5), Residuals(40, 6, -0.1, 0.1)
TABLE: Table = {(ANY, ANY, False): WIDE, ("known", "sft", False): NARROW, (ANY, ANY, True): Residuals(9, 5, -2.0, 2.0)}


def test_an_unknown_stack_has_the_range_of_all_runs() -> None:
    assert blended(TABLE, "unknown", "sft", False) == (-0.5, 0.5)


def test_a_group_counts_by_its_sources() -> None:
    """Six sources: two thirds of the way from all runs to the group's own."""
    low, high = blended(TABLE, "known", "sft", False)
    assert (low, high) == (pytest.approx(-0.7 / 3), pytest.approx(0.7 / 3))


def test_guessed_lengths_widen_the_range() -> None:
    assert blended(TABLE, "known", "sft", True) == (-2.0, 2.0)


def test_the_expected_time_lies_in_its_range() -> None:
    """A group whose runs all took longer moves the far end only."""
    table = TABLE | {("slow", ANY, False): Residuals(50, 1000, 0.4, 0.8)}
    low, high = blended(table, "slow", "sft", False)
    assert (low, high) == (0.0, pytest.approx(0.8, abs=1e-3))


def test_the_table_that_ships_covers_every_kind_of_run() -> None:
    table = published(TABLES / "training.json")
    assert {assumed for _, _, assumed in table} == {True, False}
    assert all(math.isfinite(row.low) and row.low <= row.high and row.runs >= 4 for row in table.values())
    for stack, kind, assumed in table:
        assert (stack, ANY, assumed) in table
        assert (ANY, kind, assumed) in table


def test_what_the_range_rests_on_is_said() -> None:
    found = uncertainty(job(kind="pretrain", stack="megatron-lm"), Efficiency())
    basis = found.basis
    assert basis is not None
    assert (basis.software, basis.comparable, basis.strength) == ("megatron-lm", True, "fair")
    assert basis.inside <= basis.runs
    assert found.evidence == (
        f"{basis.inside} of {basis.runs} comparable runs with megatron-lm lie inside it "
        f"({basis.publications} publications: fair evidence)"
    )
    assert found.calibrated
    assert found.low < 1 < found.high


SEEN: Seen = {
    (ANY, ANY): Observed(2000, 40, 1600, 0.8, 1.0, 1.5),
    ("own", ANY): Observed(90, 8, 70, 0.9, 1.3, 2.0),
    ("own", "sft"): Observed(30, 7, 25, 0.9, 1.05, 1.6),
    ("own", "lora"): Observed(60, 1, 45, 1.1, 1.44, 2.6),
    ("fast", ANY): Observed(8, 2, 6, 0.6, 0.8, 0.9),
}


RELATIVE = "runs with own, the nearest relative of kin,"


def evidence(*names: str, alike: bool = True) -> Evidence:
    return Evidence(SEEN, names, "comparable runs", "runs of other jobs", alike)


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        (("own",), "sft", "25 of 30 comparable runs with own lie inside it (7 publications: fair evidence)"),
        (("own",), "lora", "45 of 60 comparable runs with own lie inside it (1 publication: weak evidence)"),
        (
            ("own",),
            "pretrain",
            "70 of 90 runs of other jobs with own lie inside theirs (8 publications: strong evidence)",
        ),
        (
            ("kin", "own"),
            "lora",
            f"45 of 60 comparable {RELATIVE} lie inside it (1 publication: weak evidence)",
        ),
        (
            ("new",),
            "sft",
            "no comparable runs with new are published; 1,600 of 2,000 with others lie inside theirs (40 publications)",
        ),
    ],
)
def test_the_sentence_names_runs_publications_and_strength(names: tuple[str, ...], kind: str, words: str) -> None:
    assert evidence(*names).words(kind) == words


def test_a_median_off_by_more_than_a_tenth_is_a_bias() -> None:
    """Of the kind of job where enough publications have it, else of all runs with the stack; a tenth off is none."""
    own, all_own, fast = (
        evidence(name).basis(kind).bias for name, kind in (("own", "lora"), ("own", "sft"), ("fast", "x"))
    )
    assert own is not None
    assert (own.median, own.slowest, own.runs, own.publications) == (1.3, 2.0, 90, 8)
    assert all_own is None
    assert fast is not None
    assert fast.median == 0.8
    assert evidence("new").basis("sft").bias is None
    assert evidence("kin", "own").basis("lora").bias is None
    assert evidence("own", alike=False).basis("sft").bias is None
    lone = evidence("own", alike=False).basis("lora").bias
    assert lone is not None
    assert (lone.median, lone.publications) == (1.44, 1)


def test_one_in_ten_that_is_twice_off_is_worth_a_word() -> None:
    table = {**SEEN, ("own", "sft"): Observed(30, 7, 25, 0.9, 1.05, 2.1)}
    bias = Evidence(table, ("own",), "comparable runs", "runs of other jobs", True).basis("sft").bias
    assert bias is not None
    assert (bias.median, bias.slowest) == (1.05, 2.1)


def test_a_range_reaches_the_own_runs_of_enough_publications() -> None:
    """0.9 and 2.0 lie outside 0.95 to 1.5 and become its ends; runs of two publications leave it as it is."""
    own, few = Observed(90, 8, 70, 0.9, 1.3, 2.0), Observed(90, 2, 70, 0.9, 1.3, 2.0)
    inside = Observed(90, 8, 70, 0.96, 1.05, 1.4)
    span = Uncertainty(0.95, 1.5, "", True)
    found = reaching_own(span, own)
    assert (found.low, found.high) == pytest.approx((0.9, 2.0))
    assert found.spread is not None
    for factor, probability in ((0.9, 0.1), (1.0, 0.5), (2.0, 0.9)):
        assert found.spread.probability(factor) == pytest.approx(probability)
    for group in (few, inside, None):
        found = reaching_own(span, group)
        assert (found.low, found.high) == pytest.approx((0.95, 1.5))


def test_the_tables_of_runs_that_ship_are_consistent() -> None:
    for name in ("training", "serving"):
        table = seen(TABLES / f"{name}-seen.json")
        for (stack, _), row in table.items():
            assert (stack, ANY) in table
            assert 0 <= row.inside <= row.runs >= 4
            assert row.publications <= row.runs
            assert row.fastest <= row.median <= row.slowest


def test_the_speed_of_light_has_no_range() -> None:
    found = uncertainty(job(), Efficiency(ideal=True))
    assert (found.low, found.high, found.calibrated) == (1, 1, False)
    assert "roofline limit" in found.evidence


def test_borrowed_laws_widen_a_range_by_stack() -> None:
    own, wider = (
        from_residuals(TABLE, ("known", "sft"), "sft", False, borrowed, evidence("own")) for borrowed in (False, True)
    )
    assert wider.high == pytest.approx(1.15 * own.high)
    assert wider.low == pytest.approx(own.low / 1.15)


def test_tuned_stacks_have_narrower_ranges_than_eager_ones() -> None:
    tuned, eager = (
        uncertainty(job(kind="pretrain", stack=name), Efficiency()) for name in ("megatron-lm", "hf-trainer")
    )
    assert tuned.high / tuned.low < 2.2 < eager.high / eager.low
    mixture = uncertainty(job(kind="pretrain", stack="megatron-lm", model="mixtral-8x7b"), Efficiency())
    assert mixture.high / mixture.low > tuned.high / tuned.low


def test_a_large_error_is_told_as_a_factor() -> None:
    assert in_words(0.169) == "closer than 17 %"
    assert in_words(1.58) == "within a factor of 2.6"
