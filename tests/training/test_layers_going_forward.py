"""What a layer's forward holds, by arithmetic on its sizes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning, LowRank
from xe_sizer.graph.operators import MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.training.activations import forward_peak_bytes

LLAMA = REGISTRY.model("llama-2-7b")
TOKENS, HIDDEN, FFN = 256, 4096, 11008


def kernel(kept: float, beside: float) -> MemoryBound:
    zero = np.zeros(1)
    return MemoryBound(
        name="kernel", module="mlp", layers=2.0, saved_bytes=np.array([kept]), forward_bytes=zero, backward_bytes=zero,
        forward_launches=1.0, backward_launches=1.0, temporary_bytes=zero,
        forward_temporary_bytes=np.array([beside]),
    )  # fmt: skip


@pytest.mark.parametrize(("stops_early", "expected"), [(True, 50.0), (False, 95.0)])
def test_a_forward_holds_what_is_kept_so_far_and_its_temporaries(stops_early: bool, expected: float) -> None:
    """Two layers each: 10 + 40, 10 + 20 + 0, then 30 + 65, which runs again only for what is kept by then."""
    operators = (kernel(10.0, 40.0), kernel(20.0, 0.0), kernel(0.0, 65.0))
    assert float(forward_peak_bytes(operators, 2.0, stops_early)[0]) == expected


def adapted(autocast: bool) -> dict[str, Operator]:
    learning = Learning(False, {"down": LowRank(8)}, adapter_element_bytes=4.0)
    inputs = replace(graph(LLAMA, learning, batch=1, sequence=TOKENS), autocast=autocast)
    return {op.name: op for op in layer_operators(inputs)}


@pytest.mark.parametrize(("autocast", "copies"), [(True, 4 + 2), (False, 2)])
def test_adapters_wait_beside_their_input_and_the_frozen_result(autocast: bool, copies: int) -> None:
    """Under autocast peft's float32 copy of the input lives beside the 16-bit one that the product keeps."""
    first = adapted(autocast)["down adapter A"]
    assert float(first.forward_temporary_bytes[0]) == TOKENS * (2 * HIDDEN + copies * FFN)


def test_an_output_of_adapters_lives_beside_its_scaled_copy() -> None:
    """Both in float32 where adapters are, and in 16 bit under autocast."""
    for autocast, size, copies in ((True, 2, 6), (False, 4, 2)):
        last = adapted(autocast)["down adapter add"]
        assert float(last.forward_temporary_bytes[0]) == TOKENS * ((2 + 2 * size) * HIDDEN + copies * FFN)


@pytest.mark.parametrize(("activation", "there"), [("fused", 1), ("eager", 2)])
def test_a_gate_and_its_activation_wait_for_the_up_projection(activation: str, there: int) -> None:
    """2 bytes of each, the activation where it is a kernel of its own, and the frozen projection's input and result."""
    inputs = graph(LLAMA, Learning(False, {"q": LowRank(8)}), batch=1, sequence=TOKENS)
    kernels = replace(inputs.kernels, fused_gate_up=False, activation=activation)
    up = next(op for op in layer_operators(replace(inputs, kernels=kernels)) if op.name == "up")
    assert float(up.forward_temporary_bytes[0]) == TOKENS * (there * 2 * FFN + 2 * (FFN + HIDDEN))


def test_a_written_out_gelu_returns_float32_under_autocast() -> None:
    """Result and its cast: 4 + 2 bytes an element, in place of 2; kept are 2 + 3 x 4 in place of 4 x 2."""
    model = REGISTRY.model("gpt2-xl")
    inputs = graph(model, Learning(False, {"q": LowRank(8)}), batch=1, sequence=TOKENS)
    inputs = replace(inputs, kernels=replace(inputs.kernels, activation="eager"))
    for autocast, passing, kept in ((False, 2, 8), (True, 6, 14)):
        found = {op.name: op for op in layer_operators(replace(inputs, autocast=autocast))}["activation"]
        assert float(found.forward_temporary_bytes[0]) == TOKENS * model.ffn * passing
        assert float(found.saved_bytes[0]) == TOKENS * model.ffn * kept
