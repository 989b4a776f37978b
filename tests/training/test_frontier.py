"""The search in chunks against evaluating every layout at once, on random spaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from cases import ask

from xe_sizer.training.frontier import frontier
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger, spare_bytes
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.space import layout_chunks, legal_layouts
from xe_sizer.training.step import timeline
from xe_sizer.training.ties import preferred
from xe_sizer.training.uncertainty import memory_doubtful

MODELS = ("llama-3.2-1b", "llama-2-7b", "llama-2-70b", "mixtral-8x7b", "nemotron-h-8b")
STACKS = ("generic", "megatron-lm", "nemo", "hf-trainer", "deepspeed")
SPACES = 200


def random_question(seed: int) -> tuple[ResolvedTraining, tuple[int, ...], int]:
    """A job, numbers of GPUs and a chunk size."""
    draw = np.random.default_rng(seed)
    resolved = ask(
        {
            "model": str(draw.choice(MODELS)),
            "stack": str(draw.choice(STACKS)),
            "job": str(draw.choice(["pretrain", "sft", "lora"])),
            "train.seq_len": int(draw.choice([512, 2048, 4096])),
            "train.global_batch": int(draw.choice([8, 24, 32])),
            "lora.targets": ["q"],
        }
    )
    counts = tuple(int(count) for count in draw.choice([1, 2, 4, 8, 16, 24], size=3, replace=False))
    return resolved, counts, int(draw.choice([1, 100, 1000, 100_000]))


@pytest.mark.parametrize("seed", range(SPACES))
def test_nothing_is_lost(seed: int) -> None:
    """For every number of GPUs the answer is that of evaluating all layouts: as fast, and with as much headroom."""
    resolved, counts, size = random_question(seed)
    job, rules = resolved.job, replace(resolved.rules, every_way=True)
    every = legal_layouts(rules, counts)
    found = frontier(job, layout_chunks(rules, counts, size))
    expected = {count: best for count in counts if (best := _brute_force(job, every[every.gpus == count])) is not None}
    assert found.considered == len(every)
    assert found.feasible == int(fits(memory_ledger(job, every), job).sum())
    answers = zip(found.layouts.gpus.tolist(), found.step_s.tolist(), found.peak_bytes.tolist(), strict=True)
    assert {count: (step, peak) for count, step, peak in answers} == {
        count: pytest.approx(best, rel=1e-12) for count, best in expected.items()
    }


def _brute_force(job: object, layouts: Layouts) -> tuple[float, float] | None:
    if not len(layouts):
        return None
    ledger = memory_ledger(job, layouts)
    peaks, steps = ledger.peak_bytes, timeline(job, layouts).step_s
    for spare in (spare_bytes(job, 0.0), 0.0):
        ok = fits(ledger, job, spare)
        if ok.any():
            index = np.flatnonzero(ok)[preferred(layouts[ok], steps[ok], peaks[ok], memory_doubtful(job, peaks[ok]))]
            return float(steps[index]), float(peaks[index])
    return None


def test_an_interrupt_keeps_what_was_found() -> None:
    resolved = ask({"model": "llama-2-7b", "train.seq_len": 2048, "train.global_batch": 32})
    rules = replace(resolved.rules, every_way=True)

    def interrupted() -> Iterator[Layouts]:
        yield from layout_chunks(rules, (8,), 1000)
        raise KeyboardInterrupt

    whole, found = frontier(resolved.job, layout_chunks(rules, (8,), 1000)), frontier(resolved.job, interrupted())
    assert (whole.complete, found.complete) == (True, False)
    assert found.step_s.tolist() == whole.step_s.tolist()


def test_nothing_fits() -> None:
    resolved = ask({"model": "llama-3.1-405b", "train.seq_len": 8192, "train.global_batch": 8})
    found = frontier(resolved.job, layout_chunks(resolved.rules, (1,), 1000))
    assert (len(found.layouts), found.feasible, found.complete) == (0, 0, True)
    assert found.considered > 0


def test_what_is_in_time_goes_before_what_has_more_headroom() -> None:
    resolved = ask({"model": "llama-2-70b", "stack": "megatron-lm", "train.global_batch": 128})
    job, rules = resolved.job, replace(resolved.rules, every_way=True)
    every = legal_layouts(rules, (64,))
    fastest = float(timeline(job, every[fits(memory_ledger(job, every), job, spare_bytes(job, 0.0))]).step_s.min())
    free = frontier(job, [every])
    hurried = frontier(job, [every], keeps_limits=lambda _, step_s: step_s <= fastest * 1.0001)
    assert free.step_s[0] > fastest * 1.0001  # else the limit decides nothing
    assert hurried.step_s[0] <= fastest * 1.0001
