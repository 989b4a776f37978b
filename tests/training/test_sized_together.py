"""Changed scenarios of one job, sized as one array and one by one."""

from __future__ import annotations

import pytest
from cases import REGISTRY, ask

from xe_sizer.scenario.read import changed
from xe_sizer.training.resolve import rearranged, resolve
from xe_sizer.training.search import size, size_each

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
    given = [changed(before.given, values) for values in CHANGES]
    same_job = [rearranged(before, one, REGISTRY) for one in given]
    assert all(one is not None for one in same_job)
    together = size_each([one for one in same_job if one is not None])
    assert together[-1] is None  # three GPUs divide no batch of 64
    for one, found in zip(given[:-1], together[:-1], strict=True):
        alone = size(resolve(one, REGISTRY))
        assert found is not None
        assert (found.gpus, found.fits, found.margin) == (alone.gpus, alone.fits, alone.margin)
        assert found.total_s == pytest.approx(alone.total_s, rel=1e-12)
        assert found.peak_bytes == pytest.approx(alone.peak_bytes, rel=1e-12)
        assert found.minimum == alone.minimum


def test_another_number_of_gpus_may_make_another_job() -> None:
    """Where the batch is left to what is usual, an odd number of GPUs has another one."""
    before = ask({"model": "llama-2-7b", "gpus": 8})
    assert rearranged(before, changed(before.given, {"gpus": 16}), REGISTRY) is not None
    assert rearranged(before, changed(before.given, {"gpus": 24}), REGISTRY) is None
    assert rearranged(ask({"model": "llama-2-7b"}), before.given, REGISTRY) is not None
