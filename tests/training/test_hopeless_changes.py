"""Changes that are not estimated because they would miss the deadline at the speed of light."""

from __future__ import annotations

import itertools

import pytest
from cases import REGISTRY, ask

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import Change, changed
from xe_sizer.training.advice import beyond_the_speed_of_light
from xe_sizer.training.resolve import resolve
from xe_sizer.training.search import size

JOB = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "gpus": 8, "train.global_batch": 64, "data.profile": "alpaca"}
GPUS = ({}, {"gpus": 16}, {"gpus": 64}, {"gpu": "h100-sxm-80gb", "gpus": 8})
LENGTHS = ({}, {"train.seq_len": 256}, {"train.seq_len": 1024})
CHANGES = [Change("", {**gpus, **length}, 1) for gpus, length in itertools.product(GPUS, LENGTHS) if gpus or length]


@pytest.mark.parametrize("padding", ["packed", "to-seq-len", "longest-in-micro-batch"])
@pytest.mark.parametrize("job", ["sft", "lora"])
def test_what_is_hopeless_misses_the_deadline_when_it_is_estimated(job: str, padding: str) -> None:
    hopeless = 0
    for hours in (1e-5, 1e-3, 0.01, 0.05, 0.2, 1.0):
        before = size(ask({**JOB, "job": job, "train.padding": padding, "limits.max_hours": hours}))
        for change in CHANGES:
            if not beyond_the_speed_of_light(before, change, REGISTRY):
                continue
            hopeless += 1
            try:
                after = size(resolve(changed(before.resolved.given, change.values), REGISTRY))
            except InputError:
                continue
            assert after.hours > hours
    assert hopeless


@pytest.mark.parametrize("values", [{"gpus": 16, "job": "lora"}, {"layout.tp": 2}, {"optimizer": "sgd"}])
def test_other_changes_are_always_estimated(values: dict[str, object]) -> None:
    before = size(ask({**JOB, "limits.max_hours": 1e-6}))
    assert not beyond_the_speed_of_light(before, Change("", values, 1), REGISTRY)
    assert beyond_the_speed_of_light(before, Change("", {"gpus": 16}, 1), REGISTRY)


def test_nothing_is_hopeless_without_a_deadline() -> None:
    before = size(ask({**JOB, "limits.max_cost": 1e-6, "cost.price_per_gpu_hour": 2.0}))
    assert not any(beyond_the_speed_of_light(before, change, REGISTRY) for change in CHANGES)
