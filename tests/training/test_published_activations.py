"""Activations per layer against the table of Korthikanti et al. 2022 (arXiv:2205.05198, table 2) for its four models.

The paper counts 16-bit activations and one-byte masks: s b h (34 + 5 a s / h) bytes for a layer on one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from cases import GPT, job, layouts
from msgspec.structs import replace

from xe_sizer.training.activations import activations
from xe_sizer.training.job import Job
from xe_sizer.training.rank import rank_shapes

SEQUENCE, TENSOR = 2048, 8


@dataclass(frozen=True)
class Published:
    """Configuration of one model of the paper (table 3)."""

    hidden: int
    heads: int
    layers: int
    batch: int


MODELS = {
    "22B": Published(6144, 64, 48, 4),
    "175B": Published(12288, 96, 96, 1),
    "530B": Published(20480, 128, 105, 1),
    "1T": Published(25600, 160, 128, 1),
}


def subject(size: Published) -> Job:
    made = job(stack="megatron-deepspeed", train__seq_len=SEQUENCE)
    shape = replace(
        GPT,
        hidden=size.hidden,
        heads=size.heads,
        kv_heads=size.heads,
        head_dim=size.hidden // size.heads,
        layers=size.layers,
        ffn=4 * size.hidden,
        dropout=("embedding", "attention", "hidden"),
    )
    kernels = msgspec.structs.replace(made.stack.kernels, rotary="fused")
    return replace(made, model=shape, stack=msgspec.structs.replace(made.stack, kernels=kernels))


def layer_bytes(size: Published, recompute: int = 0, tp: int = 1, sequence_parallel: int = 0) -> float:
    made = subject(size)
    chosen = layouts(tp=tp, sequence_parallel=sequence_parallel, micro_batch=size.batch, recompute=recompute)
    (shapes,) = rank_shapes(made, chosen, np.array([float(SEQUENCE)]))
    return float(activations(shapes, chosen, 2.0, np.ones(1), np.asarray(chosen.recompute == 2, dtype=float)).kept[0])


def in_units(size: Published, value: float) -> float:
    """Bytes in units of s b h."""
    return value / (SEQUENCE * size.batch * size.hidden)


@pytest.mark.parametrize("size", MODELS.values(), ids=MODELS)
def test_activations_of_a_layer_are_those_of_the_paper(size: Published) -> None:
    scores = 5 * size.heads * SEQUENCE / size.hidden
    t = TENSOR
    assert in_units(size, layer_bytes(size)) == pytest.approx(34 + scores, rel=0.025)
    assert in_units(size, layer_bytes(size, tp=t)) == pytest.approx(10 + 24 / t + scores / t, rel=0.025)
    assert in_units(size, layer_bytes(size, tp=t, sequence_parallel=1)) == pytest.approx((34 + scores) / t, rel=0.025)
    assert in_units(size, layer_bytes(size, 1, t)) == pytest.approx(10 + 24 / t, rel=0.025)
    assert in_units(size, layer_bytes(size, 1, t, 1)) == pytest.approx(34 / t, rel=0.025)
    assert in_units(size, layer_bytes(size, 2)) == pytest.approx(2, rel=0.025)
