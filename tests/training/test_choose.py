"""The choice among layouts, against looking at each of them."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.training import search as choosing
from xe_sizer.training.estimate import smallest_count
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import SPARE_SHARE, fits, memory_ledger, spare_bytes
from xe_sizer.training.search import LAYOUT_ERROR, TIE, choose, choose_each, counts_that_keep
from xe_sizer.training.search_space import FIELDS, legal_layouts
from xe_sizer.training.step_time import timeline

GIB = 2**30


def small_card(made: Job, memory_gib: float) -> Job:
    card = replace(made.server.accelerator, memory_bytes=memory_gib * GIB)
    return replace(made, server=replace(made.server, accelerator=card))


def row(chosen: Layouts, index: int = 0) -> tuple[int, ...]:
    return tuple(int(getattr(chosen, name)[index]) for name in FIELDS)


def candidates(gpus: tuple[int, ...] = (8,)) -> tuple[Job, Layouts]:
    resolved = ask({"model": "llama-2-7b", "job": "sft", "train.global_batch": 16, "train.seq_len": 2048})
    return resolved.job, legal_layouts(resolved.rules, gpus)


def times_of_fitting(made: Job, everything: Layouts, headroom: float) -> list[float]:
    """One layout after the other."""
    each = (everything[index : index + 1] for index in range(len(everything)))
    return [float(timeline(made, one).step_s[0]) for one in each if fits(memory_ledger(made, one), made, headroom)[0]]


@pytest.mark.parametrize("chunk", [7, 1 << 14])
@pytest.mark.parametrize("memory_gib", [40, 79])
def test_the_fastest_that_fits_with_room(memory_gib: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is evaluated together. Time may differ by what the model cannot tell apart."""
    monkeypatch.setattr(choosing, "CHUNK", chunk)
    made, everything = candidates()
    made, everything = small_card(made, memory_gib), everything[::23]
    found = choose(made, everything, GIB)
    spare = max(GIB, SPARE_SHARE * memory_gib * GIB)
    roomy = times_of_fitting(made, everything, spare)
    feasible = int(fits(memory_ledger(made, everything), made, GIB).sum())
    assert (found.fits_with_headroom, found.considered, found.feasible) == (True, len(everything), feasible)
    assert 0 < len(roomy) < len(everything)
    assert float(timeline(made, found.layouts).step_s[0]) <= min(roomy) * (1 + LAYOUT_ERROR) * (1 + TIE)
    assert fits(memory_ledger(made, found.layouts), made, spare)[0]


def test_the_price_that_comes_with_the_choice_is_its_own() -> None:
    made, everything = candidates()
    found = choose(made, everything, 0.0)
    assert found.ledger.peak_bytes == pytest.approx(memory_ledger(made, found.layouts).peak_bytes, rel=1e-12)
    assert found.timeline.step_s == pytest.approx(timeline(made, found.layouts).step_s, rel=1e-12)


def test_a_layout_that_fits_by_a_hair_is_taken_when_there_is_no_other() -> None:
    made = job(kind="qlora", train__seq_len=512)
    one = layouts()
    hair = small_card(made, float(memory_ledger(made, one).peak_bytes[0]) / GIB * (1 + 1e-6))
    assert choose(hair, one, 0.0).fits_with_headroom
    assert smallest_count(hair, [one], 0.0) == 1
    assert smallest_count(hair, [one], spare_bytes(hair, 0.0)) is None


def test_room_comes_before_speed() -> None:
    """Of two layouts that fit, the slower one with room wins over the faster one by a hair."""
    made = job(kind="lora", train__seq_len=2048)
    both = layouts(recompute=[0, 2], grad_accum=4)
    peaks, times = memory_ledger(made, both).peak_bytes, timeline(made, both).step_s
    assert peaks[0] > peaks[1] / (1 - SPARE_SHARE)
    assert times[0] < times[1] * (1 - TIE)
    tight = small_card(made, float(peaks[0]) / GIB * (1 + 1e-6))
    assert row(choose(tight, both, 0.0).layouts) == row(both, 1)
    assert row(choose(made, both, 0.0).layouts) == row(both, 0)


def test_when_nothing_fits_the_nearest_miss() -> None:
    made, everything = candidates()
    made = small_card(made, 4)
    found = choose(made, everything, 0.0)
    peaks = memory_ledger(made, everything).peak_bytes
    assert (found.fits_with_headroom, found.feasible) == (False, 0)
    assert memory_ledger(made, found.layouts).peak_bytes[0] <= peaks.min() * (1 + 1e-12)


def test_headroom_rules_layouts_out() -> None:
    made = job(kind="qlora", train__seq_len=512)
    one = layouts()
    room = made.server.accelerator.memory_bytes - float(memory_ledger(made, one).peak_bytes[0])
    assert choose(made, one, room - 1).fits_with_headroom
    assert not choose(made, one, room + 1).fits_with_headroom


def test_ties_go_to_the_layout_with_more_headroom() -> None:
    """The same layout twice but for ZeRO, on a job whose states are tiny: times tie, memory decides."""
    made = job("gpt2", "lora", train__seq_len=512)
    both = layouts(dp=8, zero=[0, 1], grad_accum=4)
    times, peaks = timeline(made, both).step_s, memory_ledger(made, both).peak_bytes
    assert abs(times[0] / times[1] - 1) < TIE
    assert peaks[0] != peaks[1]
    assert row(choose(made, both, 0.0).layouts) == row(both, int(np.argmin(peaks)))


@pytest.mark.parametrize("chunk", [11, 1 << 14])
def test_the_smallest_count_that_fits(chunk: int) -> None:
    made, everything = candidates((1, 2, 4, 8, 16))
    made = small_card(made, 40)
    chunks = [everything[start : start + chunk] for start in range(0, len(everything), chunk)]
    ok = fits(memory_ledger(made, everything), made, 2 * GIB)
    assert smallest_count(made, chunks, 2 * GIB) == everything.gpus[ok].min() > 1
    assert smallest_count(small_card(made, 2), chunks, 0.0) is None


def test_counts_on_which_some_layout_fits_and_keeps_the_limits() -> None:
    """Against one layout after the other: those that fit on their number of GPUs, and are fast enough there."""
    made, everything = candidates((1, 2, 4, 8, 16))
    made = small_card(made, 40)
    step_s = timeline(made, everything).step_s
    limit_s = float(np.median(step_s))
    ok = fits(memory_ledger(made, everything), made, GIB) & (step_s <= limit_s)
    expected = sorted({int(gpus) for gpus in everything.gpus[ok]})
    found = list(counts_that_keep(made, [everything], GIB, lambda _, seconds: seconds <= limit_s))
    assert found == expected
    assert 0 < len(expected) < 5


@pytest.mark.parametrize("memory_gib", [4, 30, 79])
def test_sets_that_are_evaluated_as_one_array_choose_as_they_do_alone(memory_gib: float) -> None:
    """Some sets fit with room, some by a hair, some not at all."""
    made, _ = candidates()
    made = small_card(made, memory_gib)
    rules = ask({"model": "llama-2-7b", "job": "sft", "train.global_batch": 16, "train.seq_len": 2048}).rules
    sets = [legal_layouts(rules, (gpus,)) for gpus in (8, 1, 4, 2)]
    together = choose_each(made, sets, GIB)
    alone = [choose(made, one, GIB) for one in sets]
    for found, expected in zip(together, alone, strict=True):
        assert row(found.layouts) == row(expected.layouts)
        assert (found.rank, found.considered, found.feasible) == (expected.rank, expected.considered, expected.feasible)
        assert found.ledger.peak_bytes == pytest.approx(expected.ledger.peak_bytes, rel=1e-12)
        assert found.timeline.step_s == pytest.approx(expected.timeline.step_s, rel=1e-12)
