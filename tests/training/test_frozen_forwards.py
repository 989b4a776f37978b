"""Passes through frozen weights beside the training, and copies of the model that make them."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts
from msgspec.structs import replace

from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.step_time import Timeline, timeline

PARAMETERS, NORMS = 6_738_415_616, 65 * 4096  # Llama 2 7B
LINKS = ("tensor-parallel communication", "pipeline transfers")


def with_frozen(made: Job, forwards: int = 1, copies: int = 1) -> Job:
    frozen = (Frozen("reference model", copies=copies, forwards=forwards),)
    return replace(made, method=replace(made.method, frozen=frozen))


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


def test_a_teacher_has_its_own_shape() -> None:
    """Llama 2 13B beside 7B: its weights in 16 bit, its forward, its layers in the gathers and at the boundaries."""
    teacher = job("llama-2-13b")
    made, larger = job(), 13_015_864_320
    taught = replace(made, method=replace(made.method, frozen=(Frozen("teacher", model=teacher.model),)))
    one = timeline(taught, layouts(grad_accum=8))
    alone = timeline(teacher, layouts(grad_accum=8))
    assert one.components["frozen forward"][0] == pytest.approx(alone.components["forward"][0], rel=1e-9)
    whole = memory_ledger(taught, layouts(dp=8, zero=[0, 3]))
    assert whole.components["frozen copies"].max(axis=(0, 1)) == pytest.approx([2 * larger, 2 * larger / 8], rel=1e-12)
    flops = timeline(made, layouts(grad_accum=8)).flops[0] + alone.flops[0] / 3
    assert one.flops[0] == pytest.approx(flops, rel=1e-9)
    staged = [timeline(each, layouts(grad_accum=8, pp=4)) for each in (made, taught, teacher)]
    sent = [line.components[LINKS[1]][0] for line in staged]
    assert sent[1] == pytest.approx(sent[0] + sent[2] / 2, rel=1e-9)


def test_what_a_teacher_gathers_is_there_in_the_forward() -> None:
    """ZeRO-3: beside the root of the student the root and two layers of the teacher, where those are more."""
    teacher = job("llama-2-13b", stack="deepspeed")
    made = job(stack="deepspeed")
    taught = replace(made, method=replace(made.method, frozen=(Frozen("teacher", model=teacher.model),)))
    chosen = layouts(dp=8, zero=3)
    own, both, theirs = (memory_ledger(one, chosen).components["gathered layers"] for one in (made, taught, teacher))
    root = 2 * (2 * 32_000 * 4096 + 4096)
    assert both[0, MOMENTS.index("loss"), 0] == pytest.approx(theirs[0, MOMENTS.index("loss"), 0] + root, rel=1e-12)
    assert both[0, MOMENTS.index("end of forward"), 0] == own[0, MOMENTS.index("end of forward"), 0]
