"""How sure a job fits: the distribution of measured peaks, and whether what it says of others comes true."""

from typing import Any

import msgspec
import pytest

from xe_sizer.evidence.peaks import Peak, left_out, peaks_below, peaks_of, reliability, spread_of
from xe_sizer.evidence.records import Batch, LayoutStated, Measured, Record
from xe_sizer.software.certainty import Spread
from xe_sizer.training.uncertainty import peak_spread


def peak(source: str, ratio: float | None = None, room: float = 1.0, fits: bool | None = None) -> Peak:
    return Peak(source, ratio, room, fits)


def test_publications_weigh_alike_in_the_distribution_of_peaks() -> None:
    """Nine runs of one at 1.0 against one each of two others: the middle is theirs."""
    peaks = [*(peak("many", 1.0) for _ in range(9)), peak("one", 1.2), peak("two", 1.3), peak("three")]
    spread, runs, sources = spread_of(peaks)
    assert (runs, sources) == (11, 3)
    assert spread.middle == pytest.approx(1.2)
    assert spread.low == pytest.approx(1.0)
    assert spread.high > 1.25


def test_a_publication_is_judged_by_the_others() -> None:
    peaks = [peak(name, ratio) for name, ratio in (("a", 0.8), ("b", 1.0), ("c", 1.25), ("far", 9.0))]
    spreads = left_out(peaks)
    assert spreads["far"].high == pytest.approx(1.25, rel=0.01)
    assert spreads["a"].high > 2.0


def test_the_share_of_peaks_below_a_quantile_is_counted() -> None:
    """Of four peaks at known quantiles of one distribution, those at most there."""
    spread = Spread(0.5, 2.0)
    peaks = [peak(str(place), ratio) for place, ratio in enumerate((0.4, 0.9, 1.5, 3.0))]
    found = peaks_below(peaks, {one.source: spread for one in peaks})
    assert found == {0.1: 0.25, 0.25: 0.25, 0.5: 0.5, 0.75: 0.5, 0.9: 0.75, 0.95: 0.75}


def test_reliability_compares_what_was_said_with_what_ran() -> None:
    """A peak below twice with 90 % is below 1.5 times with Phi(1.28155 x ln 1.5 / ln 2) = 77 %; three in four ran."""
    peaks = [peak(name, room=1.5, fits=name != "d") for name in "abcd"] + [peak("e", room=4.0, fits=True), peak("f")]
    spreads = {name: Spread(0.5, 2.0) for name in "abcdef"}
    likely, sure = reliability(peaks, spreads)
    assert (likely.low, likely.high, likely.runs, likely.publications, likely.out_of_memory) == (0.75, 0.9, 4, 4, 1)
    assert likely.said == pytest.approx(0.7733, abs=1e-4)
    assert likely.ran == 0.75
    assert (sure.low, sure.high, sure.ran) == (0.9, 1.0, 1.0)


RUN = Record(
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
    (found,) = peaks_of([msgspec.structs.replace(RUN, measured=Measured(**figures))])
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


def test_a_record_whose_lengths_are_guessed_says_nothing_of_the_model() -> None:
    bare = msgspec.structs.replace(RUN, seq_len=None, mean_tokens=None, measured=Measured(oom=True))
    assert list(peaks_of([bare])) == []


def test_the_distribution_that_ships_reaches_both_ways() -> None:
    spread = peak_spread()
    assert spread.low < spread.middle <= 1.0 < spread.high
