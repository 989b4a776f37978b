"""The search in chunks against evaluating every layout at once, on random spaces."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask
from msgspec.structs import replace

from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger, spare_bytes
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.search import frontier, preferred
from xe_sizer.training.search_space import layout_chunks, legal_layouts
from xe_sizer.training.step_time import timeline
from xe_sizer.training.uncertainty import memory_doubtful

MODELS = ("llama-3.2-1b", "llama-2-7b", "llama-2-70b", "mixtral-8x7b", "nemotron-h-8b")
STACKS = ("generic", "megatron-lm", "nemo", "hf-trainer", "deepspeed")
SPACES = 60


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
