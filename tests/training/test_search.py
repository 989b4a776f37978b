"""The search in chunks: what it keeps for each number of GPUs. On random spaces it is in tests/property."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cases import REGISTRY, ask, layouts
from msgspec.structs import replace

from xe_sizer.scenario.read import changed
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger, spare_bytes
from xe_sizer.training.resolve import rearranged, resolve
from xe_sizer.training.search import LAYOUT_ERROR, TIE, complexity, drawbacks, frontier, preferred, size, size_each
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


# Which of the layouts that the model cannot tell apart is taken.


def test_each_thing_to_set_up_counts() -> None:
    """By hand: one a kind of parallelism, a doubling of the chunks and full recompute, two for host memory and cp."""
    rows = layouts(
        tp=[1, 8, 4, 4, 1, 1, 1], cp=[1, 1, 2, 1, 1, 1, 1], pp=[1, 1, 2, 2, 1, 1, 1], vpp=[1, 1, 20, 1, 1, 1, 1],
        zero=[1, 1, 1, 1, 3, 0, 3], recompute=[0, 1, 0, 2, 0, 0, 0], offload=[0, 0, 0, 0, 0, 1, 0],
        zero_group=[0, 0, 0, 0, 0, 0, 8],
    )  # fmt: skip
    assert complexity(rows).tolist() == [0, 1, 4 + 5, 3, 1, 2, 2]


def test_the_plainer_wins_inside_the_error_of_the_model_and_loses_beyond() -> None:
    both = layouts(tp=[4, 8], cp=[2, 1], pp=[2, 1], vpp=[20, 1])
    peaks = np.array([10.0, 20.0])
    alike = np.zeros(2, dtype=bool)
    assert preferred(both, np.array([1.0, 1.0 + 0.99 * LAYOUT_ERROR]), peaks, alike) == 1
    assert preferred(both, np.array([1.0, 1.0 + 1.01 * LAYOUT_ERROR]), peaks, alike) == 0


def test_doubtful_memory_counts_as_two_things_to_set_up() -> None:
    both, peaks, near = layouts(tp=[4, 8], pp=[1, 2]), np.array([20.0, 10.0]), 1.0 + 0.99 * LAYOUT_ERROR
    assert drawbacks(both, np.array([True, False])).tolist() == [3, 2]
    assert preferred(both, np.array([1.0, near]), peaks, np.array([True, False])) == 1
    assert preferred(both, np.array([1.0, near]), peaks, np.array([True, True])) == 0
    assert preferred(both, np.array([1.0, 1.0 + 1.01 * LAYOUT_ERROR]), peaks, np.array([True, False])) == 0


def test_of_layouts_equally_plain_the_fastest_and_then_the_one_with_more_headroom() -> None:
    alike = layouts(tp=[2, 4, 8])
    peaks = np.array([30.0, 20.0, 10.0])
    doubt = np.zeros(3, dtype=bool)
    assert preferred(alike, np.array([1.0, 1.0 + 0.9 * TIE, 1.05]), peaks, doubt) == 1
    assert preferred(alike, np.array([1.0, 1.0 + 1.1 * TIE, 1.05]), peaks, doubt) == 0


# Changed scenarios of one job, sized as one array and one by one.

CHANGES = (
    {"gpus": 4},
    {"gpus": 16},
    {"layout.recompute": "full"},
    {"layout.zero": 1, "gpus": 32},
    {"train.micro_batch": 1},
    {"gpus": 3},
)


def test_changes_that_keep_the_job_are_sized_together_as_they_are_alone() -> None:
    before = ask({"model": "llama-2-13b", "job": "sft", "gpus": 8, "train.global_batch": 64, "stack": "megatron-lm"})
    given = [changed(before.scenario, values) for values in CHANGES]
    same_job = [rearranged(before, one, REGISTRY) for one in given]
    assert all(one is not None for one in same_job)
    together = size_each([one for one in same_job if one is not None])
    assert together[-1] is None  # three GPUs divide no batch of 64
    for one, found in zip(given[:-1], together[:-1], strict=True):
        alone = size(resolve(one, REGISTRY))
        assert found is not None
        assert (found.gpus, found.fits, found.fit_probability) == (alone.gpus, alone.fits, alone.fit_probability)
        assert found.total_s == pytest.approx(alone.total_s, rel=1e-12)
        assert found.peak_bytes == pytest.approx(alone.peak_bytes, rel=1e-12)
        assert found.minimum == alone.minimum


def test_another_number_of_gpus_may_make_another_job() -> None:
    """Where the batch is left to what is usual, an odd number of GPUs has another one."""
    before = ask({"model": "llama-2-7b", "gpus": 8})
    assert rearranged(before, changed(before.scenario, {"gpus": 16}), REGISTRY) is not None
    assert rearranged(before, changed(before.scenario, {"gpus": 24}), REGISTRY) is None
    assert rearranged(ask({"model": "llama-2-7b"}), before.scenario, REGISTRY) is not None
