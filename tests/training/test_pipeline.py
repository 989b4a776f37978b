"""The pipeline schedule against Narayanan et al. 2021 (arXiv:2104.04473) and a simulation."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from cases import job, layouts
from msgspec.structs import replace

from xe_sizer.graph.operators import Array
from xe_sizer.laws.collectives import ALL_GATHER, POINT_TO_POINT, collective_time_s
from xe_sizer.training.communication import pipeline_bubble_s, pipeline_transfer_s
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import SCHEDULES, Passes, Split, build_stages
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step_time import operator_costs, timeline_of


class Pipeline(NamedTuple):
    """Idle time and transfers of one optimizer step, shape (layout,) [s]."""

    bubble_s: Array
    transfer_s: Array


def scheduled(made: Job, stage_s: Array, weights: float = 1 / 3, **sizes: object) -> Pipeline:
    chosen = layouts(**sizes)
    tokens = np.full(len(chosen), 2048.0)
    passes = Passes(stage_s / 3.0, (2.0 / 3.0 - weights) * stage_s, weights * stage_s)
    found = Evaluation(made, chosen, Sequences.of_length(tokens))
    return Pipeline(pipeline_bubble_s(found, passes), pipeline_transfer_s(found))


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [1, 2, 4])
def test_bubble_of_equal_stages(pp: int, vpp: int) -> None:
    """Share of the ideal time: (pp - 1) / (v m), section 2.2 of the paper."""
    micro_batches, stage_s = 16, 0.25
    made = scheduled(job(), np.full((3, 1), stage_s), pp=pp, vpp=vpp, grad_accum=micro_batches)
    assert made.bubble_s / (micro_batches * stage_s) == pytest.approx((pp - 1) / (vpp * micro_batches), rel=1e-12)


def fill_and_drain_s(stages: list[float], micro_batches: int) -> float:
    """Time of a pipeline without transfers, whose stages work on one micro-batch after the other, in order.

    Stage i starts a micro-batch when stage i - 1 has passed it on and its own last one is done.
    """
    done = [0.0] * len(stages)
    for _ in range(micro_batches):
        before = 0.0
        for stage, seconds in enumerate(stages):
            done[stage] = before = max(done[stage], before) + seconds
    return done[-1]


@pytest.mark.parametrize("stages", [[3.0, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 4.0], [2.0, 2.0, 2.0, 2.0], [1.0, 2.0]])
def test_uneven_stages_fill_and_drain(stages: list[float]) -> None:
    """The slowest stage works all the time but for filling and draining: the sum of the others."""
    middle = stages[1] if len(stages) > 2 else 0.0
    stage_s = np.array([[stages[0]], [stages[-1]], [middle]])
    made = scheduled(job(), stage_s, pp=len(stages), grad_accum=12)
    assert 12 * max(stages) + made.bubble_s[0] == pytest.approx(fill_and_drain_s(stages, 12), rel=1e-12)


def codes(*names: str) -> list[int]:
    return [SCHEDULES.index(name) for name in names]


def test_deferred_weight_gradients_shrink_the_bubble() -> None:
    """Table 1 of arXiv:2401.10241 with F = B = W = t: 1F1B (p - 1) 3 t, ZB-H1 (p - 1) t; ZB-V none."""
    schedules = codes("1f1b", "zb-h1", "zb-v")
    made = scheduled(job(), np.full((3, 3), 3.0), pp=8, vpp=[1, 1, 2], grad_accum=32, schedule=schedules)
    assert made.bubble_s == pytest.approx([7 * 3.0, 7 * 1.0, 0.0], abs=1e-12)


def test_the_two_chunks_of_the_v_do_not_shrink_its_bubble_again() -> None:
    """They are what makes it a V: what is left of the other stages is waited for whole, and sent twice as often."""
    stage_s = np.full((3, 2), 3.0)
    made = scheduled(job(), stage_s, weights=0.2, pp=8, vpp=[1, 2], grad_accum=32, schedule=codes("1f1b", "zb-v"))
    assert made.bubble_s == pytest.approx([7 * 3.0, 7 * (1.4 - 0.6)], rel=1e-12)
    assert made.transfer_s[1] == pytest.approx(2 * made.transfer_s[0], rel=1e-12)


def test_frozen_weights_leave_nothing_to_defer() -> None:
    schedules = codes("1f1b", "zb-h1", "zb-h2")
    made = scheduled(job(), np.full((3, 3), 3.0), weights=0.0, pp=8, grad_accum=32, schedule=schedules)
    assert made.bubble_s == pytest.approx([21.0] * 3)


def test_no_pipeline_no_bubble() -> None:
    made = scheduled(job(), np.ones((3, 1)), pp=1, grad_accum=8)
    assert (made.bubble_s[0], made.transfer_s[0]) == (0.0, 0.0)


def hiding(share: float) -> Job:
    """A job on Megatron-LM that hides this share of the sends that it can hide."""
    made = job(stack="megatron-lm")
    overlap = msgspec.structs.replace(made.stack.overlap, pipeline=share)
    return replace(made, stack=msgspec.structs.replace(made.stack, overlap=overlap))


def test_transfers_of_a_boundary_tensor() -> None:
    """2 vpp crossings a micro-batch of b s h in 16 bit; across nodes when they are full."""
    made = hiding(0.4)
    one_s = [float(collective_time_s(POINT_TO_POINT, 2048 * 4096 * 2, 2, local, made.network)) for local in (2, 1)]
    near = scheduled(made, np.ones((3, 1)), pp=2, vpp=2, tp=2, grad_accum=8)
    assert near.transfer_s[0] == pytest.approx(2 * 2 * 8 * one_s[0] * 0.6, rel=1e-12)
    far = scheduled(made, np.ones((3, 1)), pp=2, tp=8, grad_accum=8)
    assert far.transfer_s[0] == pytest.approx(2 * 8 * one_s[1], rel=1e-12)
    sharded = scheduled(made, np.ones((3, 1)), pp=2, tp=8, grad_accum=8, sequence_parallel=1)
    assert sharded.transfer_s[0] < far.transfer_s[0]


def test_sends_hide_behind_other_chunks_or_deferred_weight_gradients_alone() -> None:
    """One chunk and passes that follow one another: Megatron-LM turns the overlap off, whatever a stack hides else."""
    schedules, chunks = codes("1f1b", "1f1b", "gpipe", "zb-h1", "zb-v"), [1, 2, 1, 1, 2]
    sizes = {"pp": 4, "tp": 2, "vpp": chunks, "grad_accum": 8, "schedule": schedules}
    hidden, shown = (scheduled(hiding(share), np.ones((3, 5)), **sizes).transfer_s for share in (1.0, 0.0))
    assert hidden / shown == pytest.approx([1, 0, 1, 0, 0], abs=1e-12)


def test_scattered_boundaries_are_gathered_after() -> None:
    """8 tensor-parallel ranks send an eighth each to the next node and gather 2048 x 4096 in 16 bit inside it."""
    made = job(stack="megatron-deepspeed")
    network, bytes_whole = made.network, 2048 * 4096 * 2
    send_s = float(collective_time_s(POINT_TO_POINT, bytes_whole / 8, 2, 1, network))
    gather_s = float(collective_time_s(ALL_GATHER, bytes_whole, 8, 8, network))
    found = scheduled(made, np.ones((3, 1)), pp=2, tp=8, grad_accum=8)
    assert found.transfer_s[0] == pytest.approx(2 * 8 * (send_s + gather_s), rel=1e-12)
    alone = scheduled(made, np.ones((3, 1)), pp=2, tp=1, grad_accum=8)
    whole_s = float(collective_time_s(POINT_TO_POINT, bytes_whole, 2, 2, network))
    assert alone.transfer_s[0] == pytest.approx(2 * 8 * whole_s, rel=1e-12)
    split = scheduled(made, np.ones((3, 1)), pp=2, tp=8, grad_accum=8, sequence_parallel=1)
    assert split.transfer_s[0] == pytest.approx(2 * 8 * send_s, rel=1e-12)


def test_stages_between_others_wait_for_both_neighbours() -> None:
    """One after the other a middle stage sends and receives 4 tensors a micro-batch, an end 2; paired 2 as well."""
    stages = np.ones((3, 2))
    apart, paired = (scheduled(job(stack=name), stages, pp=[2, 4], tp=2) for name in ("aleph-alpha-scaling", "generic"))
    assert apart.transfer_s[1] / paired.transfer_s[1] == pytest.approx(2.0, rel=1e-12)
    assert apart.transfer_s[0] == pytest.approx(paired.transfer_s[0], rel=1e-12)


def test_ranks_of_both_ways_hold_two_stages_and_run_half_of_each() -> None:
    """Ends are on the same ranks: weights of twice 4 layers with embedding and head, and activations of one stage."""
    made = job("llama-2-7b", stack="hai-llm")
    sizes = {"pp": 8, "dp": 4, "grad_accum": 32, "zero": 1}
    plain, both = (Evaluation(made, layouts(schedule=codes(name), **sizes)) for name in ("zb-h1", "dualpipe"))
    layer, end = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096, 32_000 * 4096
    assert plain.held.base[0] == pytest.approx(4 * layer + end, rel=1e-4)
    assert both.held.base[0] == pytest.approx(8 * layer + 2 * end, rel=1e-4)
    assert both.updated[0] == pytest.approx(plain.updated.sum(axis=0) / 2, rel=1e-4)  # shared with the mirrored ranks
    assert (both.in_flight[0, 0], both.stages.at_ends[0, 0]) == (9, 4)
    of_layers, embedding, head = (share[:, 0] for share in both.stage_shares)
    assert of_layers == pytest.approx([4 / 32] * 3)
    assert (embedding.tolist(), head.tolist()) == ([0.5, 0.5, 0], [0.5, 0.5, 0])
    alone = Evaluation(made, layouts(pp=8, dp=1, grad_accum=32, schedule=codes("dualpipe")))
    assert timeline_of(alone).components["data-parallel communication"][0] > 0  # the two that hold a stage


def test_uneven_stages_of_both_ways_are_the_mean_of_both_ends() -> None:
    """30 layers and the ends on 8 stages: 3 on the first and the last, 4 on others."""
    stages = build_stages(30, Split(embedding=True), layouts(pp=8, grad_accum=16, schedule=codes("dualpipe")))
    assert stages.layers[:, 0].tolist() == [3, 3, 4]


def test_exchanges_of_experts_hide_behind_another_micro_batch() -> None:
    """What kernels leave uncovered, and the 0.15 of the multiprocessors that they give up meanwhile."""
    made = job("qwen3-30b-a3b", stack="hai-llm")
    sizes = {"pp": 4, "dp": 16, "ep": 16, "grad_accum": 16, "zero": 1}
    plain, both = (Evaluation(made, layouts(schedule=codes(name), **sizes)) for name in ("zb-h1", "dualpipe"))
    exchange_s = sum(float(side[0]) for side in plain.collectives_s[0]["ep"])
    kernels_s = sum(float(time.forward_s[0] + time.backward_s[0]) for time in plain.times[0])
    left_s = max(exchange_s - kernels_s, 0.0) + 0.15 * kernels_s
    assert plain.exposed_exchange_s("ep")[2] == pytest.approx(exchange_s / 4, rel=1e-6)
    assert both.exposed_exchange_s("ep")[2] == pytest.approx(left_s / 4, rel=1e-6)
    assert left_s < exchange_s
    costs = operator_costs(timeline_of(both))
    name = "expert-parallel communication"
    assert sum(cost.parts.get(name, 0.0) for cost in costs) == pytest.approx(timeline_of(both).components[name][0])


def test_exchanges_of_experts_hide_only_behind_another_micro_batch() -> None:
    """NeMo's hide 0.9: between chunks of a pipeline, or micro-batches without one; not where whole layers run again."""
    made = job("qwen3-30b-a3b", stack="nemo")
    sizes = {"pp": [1, 1, 4, 4, 1], "vpp": [1, 1, 1, 2, 1], "grad_accum": [8, 1, 8, 8, 8], "recompute": [0, 0, 0, 0, 2]}
    found = Evaluation(made, layouts(dp=8, ep=8, **sizes))
    assert found.exposed["ep"][0] == pytest.approx([0.1, 1, 1, 0.1, 1])
    hybrid = Evaluation(job("nemotron-3-nano-30b-a3b", stack="nemo"), layouts(dp=8, ep=8, grad_accum=8))
    assert hybrid.exposed["ep"][0] == pytest.approx([1])  # its forward is not cut into parts
