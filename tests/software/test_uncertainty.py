"""Ranges of times: from the residuals of runs like the job, wider where there are fewer of them."""

import math

import pytest
from cases import job

from xe_sizer.laws.device import Efficiency
from xe_sizer.software.uncertainty import ANY, TABLES, Residuals, Table, blended, published
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


@pytest.mark.parametrize(
    ("stack", "words"), [("megatron-lm", "pretrain with the stack megatron-lm"), ("torchtune", "torchtune")]
)
def test_what_the_range_rests_on_is_said(stack: str, words: str) -> None:
    found = uncertainty(job(kind="pretrain", stack=stack), Efficiency())
    assert words in found.evidence
    assert found.calibrated
    assert found.low < 1 < found.high


def test_the_speed_of_light_has_no_range() -> None:
    found = uncertainty(job(), Efficiency(ideal=True))
    assert (found.low, found.high, found.calibrated) == (1, 1, False)
    assert "speed of light" in found.evidence


def test_borrowed_laws_widen_the_range() -> None:
    own, borrowed = (uncertainty(job(gpu=name, gpus=1), Efficiency()) for name in ("a100-sxm-80gb", "a40"))
    assert borrowed.high > own.high
    assert borrowed.low < own.low
