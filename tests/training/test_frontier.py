"""The search in chunks: what it keeps for each number of GPUs. On random spaces it is in tests/property."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cases import ask
from msgspec.structs import replace

from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger, spare_bytes
from xe_sizer.training.search import frontier, preferred
from xe_sizer.training.search_space import layout_chunks, legal_layouts
from xe_sizer.training.step_time import timeline
from xe_sizer.training.uncertainty import memory_doubtful


@pytest.mark.parametrize("size", [1, 50, 100_000])
@pytest.mark.parametrize(("stack", "kind", "batch"), [("deepspeed", "sft", 8), ("hf-bf16", "lora", 12)])
def test_nothing_is_lost_whatever_is_evaluated_together(stack: str, kind: str, batch: int, size: int) -> None:
    """For each number of GPUs the layout that evaluating all of them at once prefers, of those with room if any has."""
    flags = {"model": "llama-2-7b", "stack": stack, "job": kind, "train.seq_len": 2048, "train.global_batch": batch}
    resolved, counts = ask({**flags, "layout.offload": "none"}), (1, 2, 4)
    job, rules = resolved.job, replace(resolved.rules, every_way=True)
    every = legal_layouts(rules, counts)
    ledger, step_s = memory_ledger(job, every), timeline(job, every).step_s
    expected = {}
    for count in counts:
        for spare_bytes_ in (0.0, spare_bytes(job, 0.0)):  # what has room comes last, and stays
            places = np.flatnonzero(fits(ledger, job, spare_bytes_) & (every.gpus == count))
            if places.size:
                peaks = ledger.peak_bytes[places]
                chosen = places[preferred(every[places], step_s[places], peaks, memory_doubtful(job, peaks))]
                expected[count] = (float(step_s[chosen]), float(ledger.peak_bytes[chosen]))
    found = frontier(job, layout_chunks(rules, counts, size))
    assert (found.considered, found.feasible) == (len(every), int(fits(ledger, job).sum()))
    answers = zip(found.layouts.gpus.tolist(), found.step_s.tolist(), found.peak_bytes.tolist(), strict=True)
    assert {count: (step, peak) for count, step, peak in answers} == {
        count: pytest.approx(best, rel=1e-12) for count, best in expected.items()
    }


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
