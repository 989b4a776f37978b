"""FSDP in the stages of a pipeline: gathered once a step, against sums by hand and against ZeRO-1."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.step_time import timeline

STAGES, RANKS = 4, 2
LOSS = MOMENTS.index("loss")


def held(zero: int, pp: int, name: str) -> float:
    """Bytes on the last stage at the loss."""
    shape = layouts(pp=pp, dp=RANKS, zero=zero, grad_accum=8)
    ledger = memory_ledger(job(stack="torchtitan-eager", kind="pretrain", data__tokens=1e9), shape)
    part = np.broadcast_to(ledger.components[name], ledger.total_bytes.shape)
    return float(part[1, LOSS, 0])


def test_a_stage_holds_its_weights_whole_and_their_shard() -> None:
    """7 layers of 202.4 M and the head: 2 bytes each gathered, 4 bytes of half of them as the sharded masters."""
    layer, head = 202_383_360, 4096 * 32000 + 4096
    stage = 7 * layer + head  # 34 with the ends on 4 stages: 8, 9, 8, 7
    assert held(3, STAGES, "gathered layers") == pytest.approx(2 * stage, rel=1e-9)
    assert held(3, STAGES, "weights") == pytest.approx(4 * stage / RANKS, rel=1e-9)


def test_gradients_wait_whole_in_float32() -> None:
    """FSDP2 adds them up in the type in which it reduces them."""
    layer, head = 202_383_360, 4096 * 32000 + 4096
    assert held(3, STAGES, "gradients") == pytest.approx(4 * (7 * layer + head), rel=1e-9)


def test_the_exchange_is_once_a_step() -> None:
    """Micro-batches add nothing to it with a pipeline, as under ZeRO-1; without one each gathers anew."""
    of = job(stack="torchtitan-eager", kind="pretrain", data__tokens=1e9, train__seq_len=512)
    shape = layouts(pp=[4, 4, 4, 1, 1], dp=8, zero=[3, 3, 1, 3, 3], grad_accum=[8, 16, 16, 8, 16])
    exchanged = timeline(of, shape).components["data-parallel communication"]
    assert exchanged[0] == pytest.approx(exchanged[1]) == pytest.approx(exchanged[2])
    assert exchanged[4] > 1.5 * exchanged[3]


def test_only_stacks_that_shard_stages_do() -> None:
    with pytest.raises(InputError, match="cannot be combined with pipeline stages by megatron-lm"):
        job(stack="megatron-lm", layout__zero=3, layout__pp=2)
    assert job(stack="torchtitan", layout__zero=3, layout__pp=2).stack.supports.sharded_stages
