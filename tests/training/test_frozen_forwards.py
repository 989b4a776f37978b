"""Passes through frozen weights beside the training, and copies of the model that make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step import Timeline, timeline

PARAMETERS, NORMS = 6_738_415_616, 65 * 4096  # Llama 2 7B
LINKS = ("tensor-parallel communication", "pipeline transfers")


def with_frozen(made: Job, forwards: int = 1, copies: int = 1) -> Job:
    return replace(made, method=replace(made.method, frozen_forwards=forwards, frozen_copies=copies))


def lines(made: Job, forwards: int = 1, **sizes: object) -> tuple[Timeline, Timeline]:
    """The step without and with the passes."""
    chosen = layouts(grad_accum=8, **sizes)
    return timeline(made, chosen), timeline(with_frozen(made, forwards), chosen)


def test_a_pass_through_equal_weights_takes_as_long_as_the_forward() -> None:
    plain, frozen = lines(job())
    assert frozen.components["frozen forward"][0] == pytest.approx(plain.components["forward"][0], rel=1e-9)
    assert frozen.step_s[0] == pytest.approx(plain.step_s[0] + plain.components["forward"][0], rel=1e-9)
    assert lines(job(), forwards=2)[1].components["frozen forward"][0] == 2 * frozen.components["frozen forward"][0]


def test_adapters_are_no_part_of_it() -> None:
    """A method with adapters has its reference in the frozen weights: no copy, and a pass without the adapters."""
    plain, frozen = lines(job(kind="lora"))
    full = timeline(job(), layouts(grad_accum=8)).components["forward"][0]
    assert frozen.components["frozen forward"][0] == pytest.approx(full, rel=1e-9)
    assert full < plain.components["forward"][0]


def test_its_exchanges_are_its_own_part() -> None:
    plain, frozen = lines(job(), tp=4)
    assert frozen.components[LINKS[0]][0] == plain.components[LINKS[0]][0] > 0
    assert frozen.components["frozen forward"][0] > 1.01 * plain.components["forward"][0]


def test_stages_of_a_pipeline_send_and_wait_for_it_too() -> None:
    plain, frozen = lines(job(), pp=4)
    assert frozen.components[LINKS[1]][0] == pytest.approx(1.5 * plain.components[LINKS[1]][0], rel=1e-9)
    assert frozen.components["pipeline bubble"][0] > 1.2 * plain.components["pipeline bubble"][0]


def test_sharded_weights_are_gathered_for_it() -> None:
    plain, frozen = lines(job(stack="deepspeed"), dp=64, zero=3)
    name = "data-parallel communication"
    assert frozen.components[name][0] > plain.components[name][0] > 0


def test_flops_and_modules_count_it() -> None:
    plain, frozen = lines(job())
    assert frozen.flops[0] == pytest.approx(plain.flops[0] * 4 / 3, rel=1e-9)
    for module, (forward_s, backward_s) in plain.modules.items():
        assert frozen.modules[module][0] == pytest.approx(2 * forward_s, rel=1e-9)
        assert frozen.modules[module][1] == pytest.approx(backward_s, rel=1e-9)


@pytest.mark.parametrize(("tp", "zero", "shards"), [(1, 0, 1), (4, 0, 1), (1, 1, 1), (1, 3, 8), (4, 3, 8)])
def test_copies_are_spread_as_the_model_is(tp: int, zero: int, shards: int) -> None:
    """Two copies in 16 bit; norms are whole on every tensor-parallel rank."""
    ledger = memory_ledger(with_frozen(job(), copies=2), layouts(tp=tp, dp=8, zero=zero))
    held = (PARAMETERS - NORMS) / tp + NORMS
    assert np.max(ledger.components["frozen copies"]) == pytest.approx(2 * 2 * held / shards, rel=1e-12)


def test_a_copy_goes_to_the_host_with_the_weights() -> None:
    chosen = layouts(dp=8, zero=3, offload=2)
    plain, frozen = (memory_ledger(made, chosen) for made in (job(), with_frozen(job())))
    assert np.max(frozen.components["frozen copies"]) == 0
    assert frozen.host_bytes[0] - plain.host_bytes[0] == pytest.approx(2 * PARAMETERS, rel=1e-9)
