"""What a layer that runs again keeps of its tensors by name, and what runs again for it."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.operators import Attention, Kernels, Matmul, Operator
from xe_sizer.graph.transformer import layer_operators

# 512 tokens of 1,024 elements in 2 bytes are 1 MiB; queries, keys and values have as many, the MLP is 4 times as wide.
MIB = 2**20
LLAMA = replace(GPT, norm="rmsnorm", position="rope", activation="swiglu")
PRODUCTS = ("query_proj", "key_proj", "value_proj", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo")


def operators(*kept: str, hosted: tuple[str, ...] = (), post_norms: bool = False) -> dict[str, Operator]:
    model = replace(LLAMA, norms_per_layer=4) if post_norms else LLAMA
    kernels = Kernels(kept=kept, hosted=hosted, fused_qkv=False, fused_gate_up=False)
    return {op.name: op for op in layer_operators(graph(model, Learning(True), kernels))}


def products_again(found: dict[str, Operator]) -> set[str]:
    return {name for name, op in found.items() if isinstance(op, Matmul) and op.again}


def on_card(found: dict[str, Operator]) -> float:
    """MiB that a layer keeps until its backward."""
    return float(sum(np.sum(op.saved_bytes - op.dropped_bytes) for op in found.values())) / MIB


def on_host(found: dict[str, Operator]) -> float:
    return float(sum(np.sum(op.hosted_bytes) for op in found.values())) / MIB


def test_without_a_name_a_layer_keeps_its_input_and_all_but_the_last_product_run_again() -> None:
    found = operators()
    assert on_card(found) == pytest.approx(1.0)
    assert products_again(found) == {"q", "k", "v", "output projection", "gate", "up"}
    assert found["attention"].again == 1.0


def test_the_result_of_the_last_product_is_needed_by_no_gradient() -> None:
    """1 of the input, 3 of queries, keys and values, 1 of the projection, 4 and 4 of the MLP: mlpwo adds nothing."""
    found = operators(*PRODUCTS)
    assert on_card(found) == pytest.approx(13.0)
    assert products_again(found) == set()
    assert found["rotary"].again == 0.0
    assert found["attention"].again == 1.0


def test_a_norm_behind_the_last_product_needs_its_result() -> None:
    found = operators("mlpwo", post_norms=True)
    assert on_card(found) == pytest.approx(2.0)


def test_attention_that_is_kept_does_not_run_again_and_keeps_its_statistics() -> None:
    """One float32 for each head and query beside the output of 1 MiB."""
    found = operators("context")
    attention = found["attention"]
    assert isinstance(attention, Attention)
    assert attention.again == 0.0
    assert products_again(found) == {"q", "k", "v", "output projection", "gate", "up"}
    assert on_card(found) == pytest.approx(2.0 + float(np.sum(attention.statistics_bytes)) / MIB)


def test_what_is_named_for_the_host_is_not_on_the_card() -> None:
    found = operators(hosted=("decoder_layer_input", "query_proj", "out_proj"))
    assert on_card(found) == pytest.approx(0.0)
    assert on_host(found) == pytest.approx(3.0)
    assert products_again(found) == {"k", "v", "gate", "up"}
    assert found["rotary"].again == 1.0
