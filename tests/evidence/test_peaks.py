"""How sure a job fits: the distribution of measured peaks, and whether what it says of others comes true."""

import math
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import pytest

from xe_sizer.evidence.calibrate import (
    MemoryFits,
    Peak,
    brier,
    collect_peaks,
    fit_spread,
    left_out,
    peaks_below,
    reliability,
    said_to_fit,
    spreads_left_out,
)
from xe_sizer.evidence.records import Batch, LayoutStated, Measured, Record
from xe_sizer.software.uncertainty import MemoryChance, Spread
from xe_sizer.training.uncertainty import memory_suffices, peak_spread


def peak(source: str, ratio: float | None = None, room: float = 1.0, fits: bool | None = None) -> Peak:
    return Peak(source, ratio, room, fits)


def test_publications_weigh_alike_in_the_distribution_of_peaks() -> None:
    """Nine runs of one at 1.0 against one each of two others: the middle is theirs."""
    peaks = [*(peak("many", 1.0) for _ in range(9)), peak("one", 1.2), peak("two", 1.3), peak("three")]
    spread, runs, sources = fit_spread(peaks)
    assert (runs, sources) == (11, 3)
    assert spread.middle == pytest.approx(1.2)
    assert spread.low == pytest.approx(1.0)
    assert spread.high > 1.25


def test_a_publication_is_judged_by_the_others() -> None:
    peaks = [peak(name, ratio) for name, ratio in (("a", 0.8), ("b", 1.0), ("c", 1.25), ("far", 9.0))]
    spreads = spreads_left_out(peaks)
    assert spreads["far"].high == pytest.approx(1.25, rel=0.01)
    assert spreads["a"].high > 2.0


def test_the_chance_of_a_known_truth_is_found_again() -> None:
    """Runs of which half end at 1.1 of the card, spread by 0.25, one in fifty otherwise; one in five ran anyhow."""
    random = np.random.default_rng(7)
    rooms = np.exp(random.uniform(-1.0, 0.8, 8000))
    truth = MemoryChance(spread=0.25, least=0.02, centre=1.1)
    fits = (random.uniform(size=rooms.size) < truth.probability(rooms)) | (random.uniform(size=rooms.size) < 0.2)
    rows = zip(rooms, fits, strict=True)
    peaks = [peak(str(place % 40), None, float(room), bool(ran)) for place, (room, ran) in enumerate(rows)]
    tried = MemoryFits(peaks)
    found = tried.best
    assert tried.odd == pytest.approx(0.2, abs=0.05)
    assert found.out_of_memory([0.5, 0.7, 1.0, 1.25, 1.6]) == pytest.approx(
        truth.out_of_memory([0.5, 0.7, 1.0, 1.25, 1.6]), abs=0.04
    )


def test_one_publication_of_failures_does_not_judge_itself() -> None:
    honest = [peak(str(place), room=room, fits=room >= 1.0) for place in range(9) for room in (0.5, 0.8, 1.25, 2.0)]
    odd = [peak("odd", room=3.0, fits=False) for _ in range(50)]
    found = left_out([*honest, *odd])
    assert found["odd"] == MemoryFits(honest).best
    assert float(found["odd"].out_of_memory(1 / 3)) <= float(found["0"].out_of_memory(1 / 3))


def test_brier_scores_by_hand() -> None:
    """Verdicts of 1 on a run and on a failure, (0 + 1) / 2; half at the card, (0.25 + 0.25) / 2; 79 % at 1.5 of it."""
    chances, spreads = dict.fromkeys("ab", MemoryChance(0.5, 0.0)), dict.fromkeys("ab", Spread(0.5, 2.0))
    even = brier([peak("a", fits=True), peak("b", fits=False)], chances, spreads)
    assert (even.yes_or_no, even.of_peaks, even.chance) == (0.5, 0.25, 0.25)
    roomy = brier([peak("a", room=1.5, fits=True), peak("b", room=1.5, fits=False)], chances, spreads)
    said = NormalDist().cdf(math.log(1.5) / 0.5)
    assert roomy.chance == pytest.approx(((1 - said) ** 2 + said**2) / 2)


def test_the_share_of_peaks_below_a_quantile_is_counted() -> None:
    """Of four peaks at known quantiles of one distribution, those at most there."""
    spread = Spread(0.5, 2.0)
    peaks = [peak(str(place), ratio) for place, ratio in enumerate((0.4, 0.9, 1.5, 3.0))]
    found = peaks_below(peaks, {one.source: spread for one in peaks})
    assert found == {0.1: 0.25, 0.25: 0.25, 0.5: 0.5, 0.75: 0.5, 0.9: 0.75, 0.95: 0.75}


def test_reliability_compares_what_was_said_with_what_ran() -> None:
    """1 - Phi(-ln 1.5 / 0.5) = 79 % at a room of 1.5; three in four ran."""
    peaks = [peak(name, room=1.5, fits=name != "d") for name in "abcd"] + [peak("e", room=9.0, fits=True), peak("f")]
    likely, sure = reliability(peaks, dict.fromkeys("abcdef", MemoryChance(0.5, 0.0)))
    assert (likely.low, likely.high, likely.runs, likely.publications, likely.out_of_memory) == (0.75, 0.9, 4, 4, 1)
    assert likely.said == pytest.approx(1 - NormalDist().cdf(-math.log(1.5) / 0.5))
    assert likely.ran == 0.75
    assert (sure.low, sure.high, sure.ran) == (0.9, 1.0, 1.0)


RUN = Record(
    date="2024-09",
    id="a",
    job="sft",
    stack="hf-trainer",
    model="llama-3.2-1b",
    gpu="a100-sxm-80gb",
    gpus=1,
    batch=Batch(micro=1, total=8),
    layout=LayoutStated(zero=0),
    seq_len=1024,
    mean_tokens=1024,
)


def measured(**figures: Any) -> Peak:
    (found,) = collect_peaks([msgspec.structs.replace(RUN, measured=Measured(**figures))])
    return found


def test_a_record_gives_its_peak_over_the_cautious_one_and_its_room() -> None:
    found, half = (measured(peak_memory_gib=size, memory_metric="allocated") for size in (20.0, 10.0))
    assert found.ratio is not None
    assert half.ratio is not None
    assert 0.3 < found.ratio < 3.0
    assert half.ratio == pytest.approx(found.ratio / 2)
    assert half.room == found.room > 1.0
    assert found.fits is True
    oom = measured(oom=True)
    assert (oom.ratio, oom.fits, oom.room) == (None, False, found.room)


def test_a_record_whose_lengths_are_guessed_says_nothing_of_measured_peaks() -> None:
    bare = msgspec.structs.replace(RUN, seq_len=None, mean_tokens=None, measured=Measured(peak_memory_gib=9.0))
    guessed = msgspec.structs.replace(RUN, batch=Batch(total=8), measured=Measured(peak_memory_gib=9.0))
    known = msgspec.structs.replace(RUN, measured=Measured(peak_memory_gib=9.0))
    peaks = list(collect_peaks([bare, guessed, known]))
    assert [one.guessed for one in peaks] == [True, True, False]
    assert fit_spread(peaks)[1:] == (1, 1)


def test_the_distributions_that_ship() -> None:
    spread, chance = peak_spread(), memory_suffices(lengths_assumed=False)
    assert spread.low < spread.middle <= 1.0 < spread.high
    assert 0.5 < float(chance.probability(1.0)) < 0.75, "what just fits is tight, and no word contradicts the exit code"
    assert chance.quantile(0.5) < 1.0, "a confidence of half asks for no headroom"
    assert float(chance.probability(0.2)) < 0.2
    guessed = memory_suffices(lengths_assumed=True)
    assert 0.25 < float(guessed.probability(1.0)) < 0.75, "no word contradicts the exit code"


def test_a_run_of_which_what_is_counted_is_too_much_is_not_said_to_fit() -> None:
    """At a room of one over the centre one in two fits, unless weights and states alone are more than the card."""
    chances = {"a": MemoryChance(spread=0.2, least=0.02, centre=1.0)}
    one = Peak("a", None, 1.0, True)
    assert said_to_fit(one, chances) == pytest.approx(0.5)
    assert said_to_fit(msgspec.structs.replace(one, counted_too_much=True), chances) == 0.0
