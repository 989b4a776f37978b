"""Weights in host memory: their copies over PCIe are a part of the step, apart from what ranks exchange."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import ask, layouts
from xe_sizer.training.step_time import timeline

TRANSFERS, EXCHANGE = "transfers to and from host memory", "data-parallel communication"


def parts(gpus: int, offload: int, **flags: object) -> dict[str, float]:
    job = ask({"model": "llama-2-7b", "gpu": "rtx-4090", "stack": "deepspeed", "train.steps": 10, **flags}).job
    line = timeline(job, layouts(dp=gpus, zero=3, offload=offload, recompute=2))
    return {name: float(seconds[0]) for name, seconds in line.components.items()}


def test_one_gpu_has_no_data_parallel_communication() -> None:
    found = parts(1, 2)
    assert found[EXCHANGE] == 0.0
    assert found[TRANSFERS] > 0.0


def test_the_copies_of_one_gpu_take_at_least_the_first_layer_of_each_pass() -> None:
    """Nothing runs yet that could hide the first layer of 32, 13.5 GB in all at 31.5 GB/s, forward and backward."""
    least_s = 2 * 6.74e9 * 2 / 31.5e9 / 32
    assert parts(1, 2, **{"train.global_batch": 1})[TRANSFERS] >= 0.9 * least_s


@pytest.mark.parametrize("gpus", [2, 8])
def test_the_exchange_between_ranks_is_what_it_is_without_offload(gpus: int) -> None:
    assert parts(gpus, 2)[EXCHANGE] == pytest.approx(parts(gpus, 1)[EXCHANGE])
    assert parts(gpus, 1)[TRANSFERS] == 0.0
    assert parts(gpus, 2)[TRANSFERS] >= 0.0


def test_layouts_priced_together_are_those_priced_alone() -> None:
    job = ask({"model": "llama-2-7b", "gpu": "rtx-4090", "stack": "deepspeed", "train.steps": 10}).job
    many = timeline(job, layouts(dp=np.array([1, 1, 8]), zero=3, offload=np.array([0, 2, 2]), recompute=2)).components
    assert many[TRANSFERS][0] == 0.0
    assert many[TRANSFERS][1] == pytest.approx(parts(1, 2)[TRANSFERS])
    assert many[EXCHANGE][2] == pytest.approx(parts(8, 2)[EXCHANGE])
