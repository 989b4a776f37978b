"""How sure an answer is, in words: limits that the end of a range misses, ranges, and which way runs were off."""

import msgspec
import pytest

from xe_sizer.report.format import bias_words, limit_doubts, limit_words, outcome_words, probability_words, range_words
from xe_sizer.result.common import Basis, Bias, Limit, Verdict, certainty_of


def limit(name: str, allowed: float, value: float, low: float, high: float, probability: float) -> Limit:
    return Limit(
        name=name,
        limit=allowed,
        value=value,
        ok=probability >= 0.5,
        probability=probability,
        certainty=certainty_of(probability),
        low=low,
        high=high,
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (limit("max_hours", 24, 23.7, 18.1, 70.3, 0.51), "met, unsure (51 %, range to 70.3 h)"),
        (limit("max_hours", 24, 16, 12, 25, 0.85), "met, likely (85 %, range to 25 h)"),
        (limit("max_hours", 24, 11, 9, 20, 0.97), "met"),
        (
            msgspec.structs.replace(limit("max_hours", 24, 11, 9, 20, 0.97), certainty="likely"),
            "met, likely (not tested by such runs, range to 20 h)",
        ),
        (limit("max_hours", 24, 40, 30, 60, 0.02), "MISSED"),
        (limit("max_ttft_s", 0.5, 0.4, 0.3, 0.6, 0.8), "met, likely (80 %, range to 600 ms)"),
        (limit("min_headroom_gib", 2, 3, -8.5, 12, 0.6), "met, unsure (60 %, range down to -8.50 GiB)"),
        (limit("max_cost", 900, 800, 700, 1200, 0.7), "met, unsure (70 %, range to 1,200)"),
        (Limit(name="max_gpus", limit=8, value=8, ok=True, probability=1.0, certainty="sure"), "met"),
        (Limit(name="max_hours", limit=8, value=8, ok=True, certainty="bound"), "met at best"),
        (Limit(name="max_hours", limit=8, value=9, ok=False, certainty="bound"), "MISSED"),
        (Limit(name="max_cost", limit=8, value=None, ok=False, certainty="unknown"), "MISSED"),
        (Limit(name="max_hours", limit=8, value=7, ok=True), "met"),
    ],
)
def test_what_became_of_a_limit(found: Limit, words: str) -> None:
    assert outcome_words(found) == words


def test_a_limit_that_is_missed_for_more_confidence_says_how_far_it_reaches() -> None:
    found = limit("max_hours", 24, 16, 12, 25, 0.85)
    refused = Limit(**{name: getattr(found, name) for name in found.__struct_fields__} | {"ok": False})
    assert outcome_words(refused) == "NOT SURE ENOUGH, likely (85 %, range to 25 h)"
    verdict = Verdict(fits=True, meets_limits=False)
    assert limit_words(verdict, refused).endswith("estimate 16 h: NOT SURE ENOUGH, likely (85 %, range to 25 h)")


def test_only_limits_that_are_met_are_doubted() -> None:
    limits = (limit("max_hours", 24, 23.7, 18.1, 70.3, 0.51), limit("max_cost", 9, 11, 8, 12, 0.2))
    found = limit_doubts(Verdict(fits=True, meets_limits=False, limits=limits))
    assert found == ("max_hours met, unsure (51 %, range to 70.3 h)",)


@pytest.mark.parametrize(("probability", "words"), [(0.784, "78 %"), (0.9999, ">99 %"), (0.0, "<1 %"), (1.0, ">99 %")])
def test_nobody_is_quite_sure(probability: float, words: str) -> None:
    assert probability_words(probability) == words


def test_a_range_says_that_it_is_one_of_80_per_cent() -> None:
    assert range_words("4 of 5 runs lie inside it", True) == ("80 % range", "80 % range: 4 of 5 runs lie inside it.")
    assert range_words("nothing", False) == ("80 % range *", "* uncalibrated: nothing.")


def test_a_bias_is_said_with_the_runs_that_show_it() -> None:
    bias = Bias(runs=31, publications=5, median=1.42, slowest=2.96, fastest=0.93)
    basis = Basis(runs=9, publications=2, inside=8, software="hf-trainer", comparable=True, strength="weak", bias=bias)
    took = "Published runs with the hf-trainer stack took 0.9 to 3.0 times the prediction (31 runs, 5 publications)"
    assert bias_words(basis) == f"{took}; conditions decide."


def test_a_bias_names_the_conditions_that_the_job_leaves_open() -> None:
    """The release, and of the keys on which times turn those that neither a file nor a flag gives."""
    bias = Bias(runs=31, publications=5, median=1.42, slowest=2.96, fastest=0.93)
    basis = Basis(runs=9, publications=2, inside=8, software="hf-trainer", bias=bias)
    origin = {"train.seq_len": "file", "train.padding": "stack", "precision": "flag", "attention": "default"}
    open_ = {"stack": "hf-trainer", "origin": origin}
    assert bias_words(basis, open_).endswith("which this job does not state: release, padding, attention kernel.")
    stated = {"stack": "hf-trainer@4.46", "origin": dict.fromkeys(origin, "file")}
    assert bias_words(basis, stated).endswith("conditions decide, which no job states: host, network, drivers.")


def test_without_a_bias_nothing_is_said() -> None:
    assert bias_words(Basis(runs=9, publications=2, inside=8)) == bias_words(None) == ""
