"""Adapters: their size, and that what a rank holds of them is what it multiplies with."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph

from xe_sizer.graph.adapters import model_adapters
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.low_rank import LowRank
from xe_sizer.graph.operators import Matmul
from xe_sizer.graph.transformer import layer_operators

LLAMA = REGISTRY.model("llama-2-70b")  # 80 layers of 8192, 64 heads and 8 key-value heads of 128


def on_rank(targets: dict[str, LowRank], tp: int) -> float:
    return float(
        sum(layers * each.on_rank(np.array([float(tp)]))[0] for layers, each in model_adapters(LLAMA, targets))
    )


@pytest.mark.parametrize(("tp", "key_outputs"), [(1, 1024), (4, 256), (8, 128), (16, 128), (64, 128)])
def test_key_adapters_are_split_as_far_as_there_are_heads(tp: int, key_outputs: int) -> None:
    assert on_rank({"k": LowRank(16)}, tp) == 80 * 16 * (8192 + key_outputs)


def test_an_adapter_of_a_row_parallel_weight_splits_its_inputs() -> None:
    assert on_rank({"o": LowRank(16)}, 8) == 80 * 16 * (8192 / 8 + 8192)


@pytest.mark.parametrize("tp", [1, 8, 32])
@pytest.mark.parametrize("targets", [("q", "v"), ("qkv", "o"), ("gate_up", "down"), ("k", "v", "o", "gate")])
def test_a_rank_multiplies_with_what_it_holds(targets: tuple[str, ...], tp: int) -> None:
    adapters = dict.fromkeys(targets, LowRank(16))
    operators = layer_operators(graph(LLAMA, Learning(False, adapters), tp=tp))
    products = [op.layers * float((op.n * op.k)[0]) for op in operators if isinstance(op, Matmul) and op.adapter]
    assert sum(products) == pytest.approx(on_rank(adapters, tp), rel=1e-12)


def test_parameters_are_those_of_one_rank_that_shares_with_none() -> None:
    adapters = {"qkv": LowRank(8), "down": LowRank(32)}
    whole = sum(layers * each.parameters for layers, each in model_adapters(LLAMA, adapters))
    assert whole == on_rank(adapters, 1) == 80 * (8 * (8192 + 8192 + 2 * 1024) + 32 * (28672 + 8192))
