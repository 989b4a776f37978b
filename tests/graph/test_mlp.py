"""The MLP half of a layer: activations by the kernels that they are, what waits, tiles, dropout and shared inputs."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import GraphInputs, Learning, LowRank
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.operators import Kernels, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators

ALL, FROZEN = Learning(True), Learning(False)
TOKENS, HIDDEN, FFN, TP = 3 * 700, 1024, 4096, 2
WIDTH = TOKENS * FFN / TP * 2  # bytes of the MLP's inner tensor on a rank
STATES = TOKENS * HIDDEN * 2
GATED = replace(GPT, norm="rmsnorm", activation="swiglu", mlp_bias=False)


def of(
    model: ModelShape, kernels: Kernels | None = None, learning: Learning = ALL, **changes: object
) -> dict[str, Operator]:
    inputs = graph(model, learning, kernels, batch=3, sequence=700, tp=TP)
    return named(replace(inputs, **changes))


def named(inputs: GraphInputs) -> dict[str, Operator]:
    return {op.name: op for op in layer_operators(inputs)}


def numbers(op: Operator, *fields: str) -> list[float]:
    return [float(np.sum(getattr(op, field))) for field in fields]


def acted(found: dict[str, Operator]) -> tuple[list[float], list[float], list[float]]:
    """Passes over the inner tensor; launches; tensors that are kept, held in the backward, and while it runs."""
    op = found["activation"]
    assert isinstance(op, MemoryBound)
    sizes = numbers(op, "forward_bytes", "backward_bytes", "saved_bytes", "temporary_bytes", "forward_temporary_bytes")
    passes = [size / WIDTH for size in sizes]
    return passes[:2], numbers(op, "forward_launches", "backward_launches"), passes[2:]


@pytest.mark.parametrize(
    ("activation", "kind", "passes", "launched", "lives"),
    [
        # One kernel: gate and up in, a tensor out; back, both and the gradient in, two out.
        ("swiglu", "fused", [3, 5], [1, 1.5], [2, 3, 1]),
        # Two kernels: the activation 2 and the product 3; back, 3 of each input of the product, 3 of the activation.
        ("swiglu", "native", [5, 9], [2, 3], [3, 3, 1]),
        ("swiglu", "eager", [5, 9], [2, 3], [3, 3, 1]),
        ("gelu", "native", [2, 3], [1, 1.5], [1, 2, 1]),
        # x sigmoid(1.702 x): a scale 2, the sigmoid 2, the product 3.
        ("gelu-quick", "native", [7, 14], [3, 5], [2, 2, 1]),
        # Written out: what powers, sums and the tanh return is kept beside x.
        ("gelu-new", "eager", [20, 32], [8, 16], [4, 3, 1]),
        ("gelu-new", "native", [2, 3], [1, 1.5], [1, 2, 1]),
        # The same, and its product with the other half, both of which are kept.
        ("geglu-new", "eager", [20 + 3, 32 + 5], [9, 18], [4 + 2, 3, 1]),
        ("geglu-new", "native", [5, 9], [2, 3], [3, 3, 1]),
    ],
)
def test_an_activation_is_its_kernels(
    activation: str, kind: str, passes: list[float], launched: list[float], lives: list[float]
) -> None:
    model = replace(GATED if "glu" in activation else GPT, activation=activation)
    assert acted(of(model, Kernels(activation=kind))) == (passes, launched, lives)


@pytest.mark.parametrize(
    ("model", "kept", "held"),
    [
        # 4 results, three of them float32; the output in float32 and its cast; back, three gradients in float32.
        (replace(GPT, activation="gelu-new"), 4 + 3, 6),
        # Both factors of the product besides, one of which is float32.
        (replace(GATED, activation="geglu-new"), 4 + 3 + 2 + 1, 6),
    ],
)
def test_autocast_widens_what_is_written_out(model: ModelShape, kept: float, held: float) -> None:
    eager = Kernels(activation="eager")
    assert acted(of(model, eager, autocast=True))[2] == [kept, held, 3]
    # Where linear layers return float32 already everything is twice as large, and nothing is widened.
    wide = acted(of(model, eager, autocast=True, returned_element_bytes=4.0))[2]
    assert wide == [2 * size for size in acted(of(model, eager))[2]]


def test_what_a_relu_keeps_is_what_the_down_projection_and_its_adapter_read() -> None:
    """A GELU's output waits beside the product; that of a ReLU is there already, and counts once where both keep it."""
    adapted = replace(FROZEN, adapters={"down": LowRank(8)}, adapter_element_bytes=4.0)
    for learning, ops in ((FROZEN, ("down",)), (adapted, ("down", "down adapter A", "down adapter add"))):
        plain, relu = (of(replace(GPT, activation=one), learning=learning) for one in ("gelu", "relu"))
        for name in ops:
            waits, read = (numbers(found[name], "forward_temporary_bytes")[0] for found in (plain, relu))
            assert waits - read == WIDTH
    narrow = of(replace(GPT, activation="relu"), learning=replace(adapted, adapter_element_bytes=2.0))
    assert numbers(narrow["activation"], "saved_bytes") + numbers(narrow["down"], "saved_bytes") == [0, WIDTH]


def test_relu_keeps_its_output_which_the_next_product_keeps_anyway() -> None:
    relu = replace(GPT, activation="relu", dropout=("mlp",))
    assert acted(of(relu))[2] == [0, 3, 1]
    assert acted(of(relu, learning=FROZEN))[2] == [1, 2, 1]
    dropped = of(relu, Kernels(dropout=True))
    assert acted(dropped)[2] == [1, 2, 1]
    mask = dropped["mlp dropout"]
    assert numbers(mask, "forward_bytes", "backward_bytes", "saved_bytes") == [2.5 * WIDTH, 2.5 * WIDTH, WIDTH / 2]
    assert numbers(mask, "forward_launches", "backward_launches") == [1, 1]
    assert "mlp dropout" not in of(relu)


@pytest.mark.parametrize(("kind", "there"), [("fused", 1), ("native", 2)])
def test_the_gate_waits_while_the_up_projection_runs(kind: str, there: float) -> None:
    """Its output, and its activation where that is a kernel of its own; frozen, input and output of the product too."""
    found = of(GATED, Kernels(fused_gate_up=False, activation=kind))
    assert numbers(found["up"], "forward_temporary_bytes") == [there * WIDTH]
    frozen = of(GATED, Kernels(fused_gate_up=False, activation=kind), FROZEN)
    assert numbers(frozen["up"], "forward_temporary_bytes") == [there * WIDTH + STATES + WIDTH]
    wide = of(GATED, Kernels(fused_gate_up=False, activation=kind), returned_element_bytes=4.0)
    assert numbers(wide["up"], "forward_temporary_bytes") == [2 * there * WIDTH]


def test_gate_and_up_keep_their_input_once_or_a_cast_of_it_each() -> None:
    apart = Kernels(fused_gate_up=False)
    for state, casts in ((2.0, 0), (4.0, 1)):
        found = of(GATED, apart, residual_element_bytes=state)
        assert numbers(found["gate"], "saved_bytes") + numbers(found["up"], "saved_bytes") == [STATES, casts * STATES]
    frozen = of(GATED, apart, FROZEN)
    assert numbers(frozen["gate"], "saved_bytes") + numbers(frozen["up"], "saved_bytes") == [0, 0]
    assert numbers(of(GATED)["gate and up"], "saved_bytes", "n") == [STATES, 2 * FFN / TP]
    assert numbers(of(GPT)["up"], "saved_bytes", "n") == [STATES, FFN / TP]


def test_beside_the_attention_the_mlp_reads_what_the_attention_keeps() -> None:
    beside = replace(GPT, parallel_block=True, norms_per_layer=1)
    for state, casts in ((2.0, 0), (4.0, 1)):
        assert numbers(of(beside, residual_element_bytes=state)["up"], "saved_bytes") == [casts * STATES]
    own_norm = replace(beside, norms_per_layer=2)
    assert numbers(of(own_norm)["up"], "saved_bytes") == [STATES]


@pytest.mark.parametrize("model", [GPT, GATED])
def test_the_down_projection_keeps_the_inner_tensor_where_it_learns(model: ModelShape) -> None:
    assert numbers(of(model)["down"], "saved_bytes", "m", "n", "k") == [WIDTH, TOKENS, HIDDEN, FFN / TP]
    assert numbers(of(model, learning=FROZEN)["down"], "saved_bytes") == [0]


def test_a_sum_is_normalised_while_the_module_holds_what_its_last_product_read_and_returned() -> None:
    after = replace(GPT, post_norm=True)
    assert numbers(of(after)["mlp norm"], "forward_temporary_bytes") == [STATES]
    frozen = of(after, learning=FROZEN, residual_element_bytes=4.0)
    assert numbers(frozen["mlp norm"], "forward_temporary_bytes") == [2 * STATES + STATES + WIDTH]


def test_slices_of_tokens_keep_the_input_alone_and_compute_the_rest_again() -> None:
    """ALST (arXiv:2506.13996, section 3.1): as many tokens a slice as the hidden size, here 2,100 / 1,024 -> 3."""
    whole, tiled = of(GATED), of(GATED, Kernels(mlp="tiled"))
    assert list(whole) == list(tiled)
    inside = sum(numbers(whole[name], "saved_bytes")[0] for name in ("activation", "down"))
    for name in ("gate and up", "activation", "down"):
        one, all_at_once = tiled[name], whole[name]
        assert numbers(one, "saved_bytes") == [STATES if name == "gate and up" else 0]
        if isinstance(one, Matmul):
            assert numbers(one, "tiles", "forward_flops") == [3, *numbers(all_at_once, "forward_flops")]
            continue
        forward, backward, held = numbers(all_at_once, "forward_bytes", "backward_bytes", "temporary_bytes")
        assert numbers(one, "forward_bytes", "backward_bytes") == [forward, forward + backward]
        assert numbers(one, "temporary_bytes") == [pytest.approx((held + inside) / 3)]
        started = numbers(all_at_once, "forward_launches", "backward_launches")
        assert numbers(one, "forward_launches", "backward_launches") == [started[0], sum(started)]
    assert numbers(tiled["mlp norm"], "saved_bytes") == numbers(whole["mlp norm"], "saved_bytes")
