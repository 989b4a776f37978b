"""DeepSeek-V4 and its kin: entries of many tokens beside a window, residual streams, and Kimi delta attention."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.attention import cache_width
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.operators import Attention, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.graph.weights import count_parameters

ALL = Learning(True)
V4 = "deepseek-v4-flash"


def operators(name: str, sequence: int, letters: str) -> tuple[Operator, ...]:
    """Of one layer of each letter, in order."""
    model = REGISTRY.model(name)
    return layer_operators(graph(replace(model, layers=len(letters), layer_pattern=letters), ALL, sequence=sequence))


def attended(letters: str, sequence: int) -> dict[str, float]:
    found = operators(V4, sequence, letters)
    return {op.name: float(op.pairs[0]) for op in found if isinstance(op, Attention)}


def test_a_query_sees_its_window_and_entries_by_hand() -> None:
    """8,192 tokens: windows of 128; all 64 entries of 128 tokens; 512 picked of 2,048 entries of 4 tokens."""
    s, w = 8192, 128
    window = s * w - w * (w - 1) / 2
    assert attended("*", s) == {"windowed attention": window}
    assert attended("H", s) == {"compressed attention": pytest.approx(window + s * (s + 1) / 2 / 128)}
    picked = 512 * 4
    seen = s * picked - picked * (picked - 1) / 2
    assert attended("C", s) == {
        "indexer": pytest.approx(s * (s + 1) / 2 / 4),
        "compressed attention": pytest.approx(window + seen / 4),
    }


def test_short_sequences_leave_nothing_to_pick() -> None:
    """Below 512 x 4 tokens every entry is seen."""
    s, w = 1024, 128
    window = s * w - w * (w - 1) / 2
    assert attended("C", s)["compressed attention"] == pytest.approx(window + s * (s + 1) / 2 / 4)


def test_a_cache_holds_one_head_of_what_is_key_and_value() -> None:
    model, one = REGISTRY.model(V4), np.ones(1)
    widths = {kind.mixer: float(cache_width(model.seen_by(kind), one)[0]) for kind, _ in model.layer_kinds}
    assert sorted(widths.values()) == [512 / 128, 512 / 4, 512]


def test_projections_have_the_flops_of_their_weights() -> None:
    """Low-rank queries, one head of keys, entries of two runs, the indexer, and outputs by 8 groups of 8 heads."""
    found = {op.name: op for op in operators(V4, 256, "C") if isinstance(op, Matmul)}
    h, size, heads = 4096, 512, 64
    weights = {
        "q down": h * 1024,
        "q up": 1024 * heads * size,
        "k": h * size,
        "entries": h * 2 * 2 * size,
        "indexer entries": h * 2 * 2 * 128,
        "indexer q": 1024 * 64 * 128,
        "output groups": heads * size // 8 * 8 * 1024,
        "output projection": 8 * 1024 * h,
    }
    for name, elements in weights.items():
        (op,) = (each for key, each in found.items() if key.rpartition(": ")[2] == name)
        assert float(op.forward_flops[0]) == 2 * 256 * elements, name


@pytest.mark.parametrize("name", [V4, "glm-5.3-flash"])
def test_streams_have_weights_traffic_and_memory(name: str) -> None:
    """`fn` of (2 + n) n rows of n hidden, `base` and three scales of each block; every block keeps what it reads."""
    model = REGISTRY.model(name)
    n, hidden = model.residual_streams, model.hidden
    rows = (2 + n) * n
    without = replace(model, residual_streams=1)
    added = count_parameters(model).total - count_parameters(without).total
    assert added == model.layers * 2 * (rows * n * hidden + rows + 3) + n * n * hidden + n + 1

    streams = [op for op in layer_operators(graph(model, ALL, sequence=256)) if op.name.endswith("streams")]
    assert {op.name for op in streams} == {"mixer streams", "mlp streams"}
    assert all(isinstance(op, MemoryBound) for op in streams)
    assert sum(op.layers for op in streams) == 2 * model.layers
    assert not [op for op in layer_operators(graph(without, ALL, sequence=256)) if op.name.endswith("streams")]
    one, many = (graph(each, ALL, sequence=256).residual_bytes[0] for each in (without, model))
    assert many == n * one
    assert all(float(op.saved_bytes[0]) == many for op in streams)


def test_kimi_delta_attention_by_hand() -> None:
    """Kimi-Linear-48B: 32 heads of 128; decay and gate through 128; the count of the reference implementation."""
    model = REGISTRY.model("kimi-linear-48b-a3b")
    assert count_parameters(model).total == 49_133_074_464  # transformers.KimiLinearForCausalLM
    h, inner = 2304, 32 * 128
    found = {op.name: op for op in operators("kimi-linear-48b-a3b", 256, "M") if isinstance(op, Matmul)}
    products = {"projection in": 3 * h * inner, "step size": h * 32, "decay down": h * 128, "decay up": 128 * inner}
    products |= {"gate down": h * 128, "gate up": 128 * inner, "projection out": inner * h}
    for name, elements in products.items():
        (op,) = (each for key, each in found.items() if key.rpartition(": ")[2] == name)
        assert float(op.forward_flops[0]) == 2 * 256 * elements, name
