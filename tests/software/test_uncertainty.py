"""Ranges of times: from the residuals of runs like the job, wider where there are fewer of them."""

import math

import pytest
from cases import job

from xe_sizer.laws.device import Efficiency
from xe_sizer.result.common import certainty_of
from xe_sizer.software.uncertainty import (
    ANY,
    TABLES,
    Evidence,
    Observed,
    Residuals,
    Seen,
    Table,
    from_residuals,
    in_words,
    published,
    range_of,
    seen,
)
from xe_sizer.training.uncertainty import STEP, conditions, uncertainty

TABLE: Table = {
    (STEP, ()): Residuals(540, 36, -0.5, 0.5),
    (STEP, ("stated",)): Residuals(500, 30, -0.3, 0.4),
    (STEP, ("stated", "fast")): Residuals(40, 6, -0.1, 0.2),
    (STEP, ("slow",)): Residuals(40, 6, 0.3, 0.7),
}


def test_a_range_is_that_of_the_runs_under_all_conditions() -> None:
    assert range_of(TABLE, STEP, ("stated", "fast")) == (-0.1, 0.2, True)


def test_where_these_are_few_the_first_conditions_count_and_the_range_is_untested() -> None:
    assert range_of(TABLE, STEP, ("stated", "other")) == (-0.3, 0.4, False)
    assert range_of(TABLE, STEP, ("guessed", "fast")) == (-0.5, 0.5, False)


def test_the_few_runs_under_all_conditions_have_the_range_that_the_table_completed_and_it_is_untested() -> None:
    table = {**TABLE, (STEP, ("stated", "other")): Residuals(9, 2, -0.2, 0.9)}
    assert range_of(table, STEP, ("stated", "other")) == (-0.2, 0.9, False)


def test_the_expected_time_lies_in_its_range() -> None:
    """A group whose runs all took longer moves the far end only."""
    assert range_of(TABLE, STEP, ("slow",)) == (0.0, 0.7, True)


def test_by_an_untested_range_nothing_is_sure() -> None:
    """But what holds by a range twice as wide; by a tested one what is more than one run in ten with the stack took."""
    tested, untested, unknown = (
        from_residuals(TABLE, STEP, ("stated", name), "sft", evidence(own))
        for name, own in (("fast", "own"), ("other", "own"), ("fast", "new"))
    )
    assert untested.evidence.endswith("; fewer than 4 publications ran like this (stated, other)")
    assert tested.evidence == evidence("own").words("sft")
    spreads = [span.spread for span in (tested, untested, unknown)]
    assert [spread.sure_from for spread in spreads if spread] == pytest.approx([1.6, math.exp(0.8), 0.0])
    rates = [span.of_inverse for span in (tested, untested, unknown)]
    assert [rate.sure_from for rate in rates if rate] == pytest.approx([1 / 0.9, math.exp(0.6), 0.0])
    assert [certainty_of(0.99, known) for known in (True, False)] == ["sure", "likely"]


@pytest.mark.parametrize("name", ["training", "serving"])
def test_the_tables_that_ship(name: str) -> None:
    """Every group belongs to a wider one, has enough runs, and is of conditions that a job may have."""
    table = published(TABLES / f"{name}.json")
    for (quantity, known), row in table.items():
        assert math.isfinite(row.low)
        assert row.low <= row.high or any("guessed" in one for one in known)  # each of another guess: they may cross
        wider = table[quantity, known[:-1]]
        assert wider.runs >= row.runs >= 4
    quantities = {"training": {STEP}, "serving": {"ttft", "tpot", "throughput", "encoding"}}[name]
    assert {quantity for quantity, _ in table} == quantities


def test_conditions_of_a_job_are_those_of_the_table() -> None:
    found = {conditions(job(kind="sft", stack=name), guessed) for name in ("hf-trainer", "megatron-lm", "generic")
             for guessed in (True, False)}  # fmt: skip
    assert ("stated", "launched from Python", "stack of its own") in found
    assert ("stated", "launched by graphs or C++", "stack of its own") in found
    assert {one[2] for one in found} == {"stack of its own", "no stack of its own"}
    known = {word for _, one in published(TABLES / "training.json") for word in one}
    assert known <= {word for one in found for word in one}


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


def test_stacks_that_launch_from_python_have_wider_ranges() -> None:
    tuned, eager = (
        uncertainty(job(kind="pretrain", stack=name), Efficiency()) for name in ("megatron-lm", "hf-trainer")
    )
    assert tuned.high / tuned.low < eager.high / eager.low
    guessed = uncertainty(job(kind="pretrain", stack="hf-trainer"), Efficiency(), assumed=True)
    assert guessed.high / guessed.low > eager.high / eager.low


def test_a_large_error_is_told_as_a_factor() -> None:
    assert in_words(0.169) == "closer than 17 %"
    assert in_words(1.58) == "within a factor of 2.6"
