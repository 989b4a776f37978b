"""Experts one after the other: kernels of each, gathers, gradients of slices, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph, job
from msgspec.structs import replace

from xe_sizer.graph.experts import busiest_load
from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import Experts, ModelShape
from xe_sizer.graph.operators import Collective, Kernels, Matmul, MemoryBound, Operator, launches
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.profiles.catalogue import load_stack

ALL, FROZEN = Learning(True), Learning(False)
TOKENS, HIDDEN, FFN, COUNT, PICKED = 512, 1024, 256, 16, 2
LOOP = Kernels(experts="loop", fused_gate_up=False)
SORTED = TOKENS * PICKED * HIDDEN  # elements of all token copies


def model(loop: str) -> ModelShape:
    experts = Experts(count=COUNT, per_token=PICKED, ffn=FFN, loop=loop)
    return replace(GPT, norm="rmsnorm", activation="swiglu", mlp_bias=False, layers=1, experts=experts)


def of(loop: str, kernels: Kernels = LOOP, learning: Learning = ALL) -> dict[str, Operator]:
    operators = layer_operators(graph(model(loop), learning, kernels))
    return {op.name: op for op in operators if op.module == "experts"}


def moving(op: Operator) -> MemoryBound:
    assert isinstance(op, MemoryBound)
    return op


def bytes_of(op: Operator) -> tuple[float, float]:
    return float(moving(op).forward_bytes[0]), float(moving(op).backward_bytes[0])


def test_every_expert_launches_its_own_products() -> None:
    found = of("modules")
    gate, up, down = found["expert gate"], found["expert up"], found["expert down"]
    for product in (gate, up, down):
        assert isinstance(product, Matmul)
        assert product.apart
        assert not product.grouped
        assert [float(side[0]) for side in launches(product)] == pytest.approx([16, 32])
    assert float(np.sum(moving(found["expert activation"]).forward_launches)) == pytest.approx(COUNT)
    assert "expert gate and up" in of("sliced")


def test_grouped_products_are_one_launch_and_products_side_by_side_one_for_each() -> None:
    grouped, apart = (of("modules", Kernels(experts=way))["expert down"] for way in ("grouped", "products"))
    assert launches(grouped) == (1.0, 2.0)
    assert isinstance(apart, Matmul)
    assert apart.grouped
    assert [float(np.sum(side)) for side in launches(apart)] == pytest.approx([16 * 15, 16 * 2 * 20])


def test_each_expert_gathers_its_tokens_and_has_a_gradient_like_all_of_them() -> None:
    """Gather: read and write. Back: zeros, an indexed addition (3 of the copies), and the sum of two into one."""
    forward, backward = bytes_of(of("modules")["dispatch"])
    assert forward == pytest.approx(2 * SORTED * 2)
    assert backward == pytest.approx(2 * (3 * SORTED + 4 * COUNT * TOKENS * HIDDEN))


def test_sorted_tokens_have_one_gradient_and_are_put_together_again() -> None:
    forward, backward = bytes_of(of("split")["dispatch"])
    assert forward == pytest.approx(2 * SORTED * 2)
    assert backward == pytest.approx(2 * (7 * SORTED + 4 * TOKENS * HIDDEN))
    assert moving(of("split")["dispatch"]).forward_launches == 8.0


def test_outputs_are_weighted_and_added() -> None:
    """Multiplication 2, indexed addition 3; back, its gather 2, and gradients of outputs and weights 2 + 4."""
    assert bytes_of(of("modules")["combine"]) == pytest.approx((2 * 5 * SORTED, 2 * 8 * SORTED))


@pytest.mark.parametrize("loop", ["sliced", "split"])
def test_slices_of_one_tensor_have_gradients_like_the_whole(loop: str) -> None:
    """Of 16 experts each writes zeros and sums two tensors of all 16 x 3 x 256 x 1024 weights into one."""
    slices = moving(of(loop)["expert slices"])
    assert slices.backward_bytes[0] == pytest.approx(4 * COUNT * (COUNT * 3 * FFN * HIDDEN) * 2)
    assert float(np.sum(slices.backward_launches)) == pytest.approx(3 * 2 * COUNT)
    assert "expert slices" not in of(loop, learning=FROZEN)
    assert "expert slices" not in of("modules")


def test_float32_weights_have_float32_slices() -> None:
    inputs = replace(graph(model("split"), ALL, LOOP), residual_element_bytes=4.0)
    found = {op.name: op for op in layer_operators(inputs)}
    assert moving(found["expert slices"]).backward_bytes[0] == pytest.approx(16 * COUNT * COUNT * 3 * FFN * HIDDEN)


def test_transformers_5_groups_experts_but_for_those_that_it_splits() -> None:
    kernels = Kernels(experts="unsplit")
    assert "expert slices" in of("split", kernels)
    assert "expert slices" not in of("sliced", kernels)
    assert load_stack("hf-trainer@4.57").kernels.experts == "loop"
    assert load_stack("hf-trainer@5.0").kernels.experts == "unsplit"
    assert {load_stack(name).kernels.experts for name in ("torchtune", "unsloth", "megatron-bridge")} == {"grouped"}
    assert {load_stack(name).kernels.experts for name in ("megatron-lm", "megatron-bridge@26.04")} == {"products"}


def test_a_loop_takes_a_quarter_of_a_millisecond_an_expert_to_launch() -> None:
    """Qwen1.5-MoE, 16 tokens: 40 experts in 24 layers took 0.207 s more than grouped ones (transformers pull 42697)."""
    looped = job("qwen1.5-moe-a2.7b", stack="hf-trainer@4.57")
    assert looped.model.experts is not None
    sliced = replace(looped.model, experts=replace(looped.model.experts, loop="sliced"))
    kernels = looped.stack.graph_kernels("sdpa")
    launched = []
    for way in (kernels, replace(kernels, experts="grouped")):
        operators = layer_operators(graph(sliced, ALL, way, sequence=16))
        launched.append(sum(float(np.sum(op.layers * launches(op)[0])) for op in operators))
    assert (launched[0] - launched[1]) * looped.stack.forward_launch_s == pytest.approx(0.207, rel=0.15)


def test_the_busiest_rank_has_more_the_fewer_experts_it_holds() -> None:
    """8 ranks of 4 experts with loads that vary by 45 %: 1 + 0.45 x 1.434 / 2; one rank has all, two at most twice."""
    ranks, local = np.array([1.0, 2.0, 8.0, 8.0]), np.array([32.0, 16.0, 4.0, 16.0])
    loads = busiest_load(ranks, local, Kernels(expert_imbalance=1.1, expert_spread=0.45))
    assert loads == pytest.approx([1.0, 1.1 * (1 + 0.45 * 0.589 / 4), 1.1 * 1.3227, 1.1 * 1.1613], rel=1e-3)
    assert busiest_load(ranks, local, Kernels(expert_spread=9.0)).tolist()[1] == pytest.approx(2.0)
    assert busiest_load(ranks, local, Kernels()).tolist() == [1.0] * 4


def test_only_fine_tuning_leaves_loads_uneven() -> None:
    stack = load_stack("megatron-lm")
    assert stack.graph_kernels("flash", fine_tunes=True).expert_spread == stack.tuned_expert_spread > 0
    assert stack.graph_kernels("flash").expert_spread == 0


@pytest.mark.parametrize(
    ("way", "forward", "backward"),
    [
        ("grouped", 4 * 2 * (2 * FFN + HIDDEN), 2 * 2 * (2 * FFN + HIDDEN)),
        ("loop", 2 * 2 * (2 * FFN + HIDDEN), 2 * (2 * FFN + HIDDEN)),
        ("products", 28 * HIDDEN, 40 * HIDDEN),
    ],
)
def test_biases_of_experts_are_added_row_by_row(way: str, forward: float, backward: float) -> None:
    """Rows of biases gathered and added to both outputs; side by side the second alone, weighted in float32."""
    shape = model("sliced")
    assert shape.experts is not None
    biased = replace(shape, experts=replace(shape.experts, expert_bias=True))
    found = {op.name: op for op in layer_operators(graph(biased, ALL, replace(LOOP, experts=way)))}
    copies = TOKENS * PICKED
    assert bytes_of(found["expert bias"]) == pytest.approx((copies * forward, copies * backward))
    assert "expert bias" not in of("sliced")


def test_fused_routing_passes_once_each_way_and_eager_gathers_twice() -> None:
    fused, eager = (of("modules", Kernels(routing=way)) for way in ("fused", "eager"))
    assert bytes_of(fused["dispatch"]) == bytes_of(fused["combine"]) == (2 * 2 * SORTED, 2 * 2 * SORTED)
    assert bytes_of(eager["dispatch"]) == (2 * 4 * SORTED, 2 * 7 * SORTED)
    assert bytes_of(eager["combine"]) == (2 * 5 * SORTED, 2 * 10 * SORTED)
    assert {load_stack(name).kernels.routing for name in ("megatron-lm", "nemo-automodel")} == {"fused"}


@pytest.mark.parametrize(
    ("kind", "passes", "kept"), [("fused", (11, 15), 4), ("native", (14, 24), 6), ("eager", (16, 26), 6)]
)
def test_a_clamped_gate_is_many_kernels(kind: str, passes: tuple[float, float], kept: float) -> None:
    """Fused: gate and up are limited (2 + 2), joined (4) and read by one kernel (2 + 1), and back."""
    clamped = replace(model("modules"), activation="swiglu-clamped")
    (op,) = (
        op for op in layer_operators(graph(clamped, ALL, Kernels(activation=kind))) if op.name == "expert activation"
    )
    width = TOKENS * PICKED * FFN * 2
    assert bytes_of(op) == pytest.approx((passes[0] * width, passes[1] * width))
    assert float(op.saved_bytes[0]) == pytest.approx(kept * width)


def test_products_in_turn_are_single_ones_on_tokens_sorted_before() -> None:
    found = of("modules", Kernels(experts="in-turn"))
    product = found["expert down"]
    assert isinstance(product, Matmul)
    assert product.apart
    assert not product.grouped
    assert [float(np.sum(side)) for side in launches(product)] == pytest.approx([16, 32])
    assert "expert gate and up" in found
    assert bytes_of(found["dispatch"]) == (2 * 4 * SORTED, 2 * 7 * SORTED)
    assert load_stack("nemo-automodel").kernels.experts == "in-turn"


# Experts that are split over some of the tensor ranks: what each rank sends, gathers and multiplies.

# 4 layers of 8 experts, 2 for each token, on sequences of 512 tokens of 1,024 elements in 2 bytes: 1 MiB.
MIXTURE = replace(GPT, experts=Experts(count=8, per_token=2, ffn=4096))
MIB = 2**20


def operators(split: str, shared: int = 0, **sizes: float) -> tuple[Operator, ...]:
    model = replace(MIXTURE, experts=replace(MIXTURE.experts, shared_ffn=shared))
    kernels = Kernels(split_experts=split)  # type: ignore[arg-type]
    return layer_operators(graph(model, Learning(True), kernels, tp=4, sequence_parallel=1, **sizes))


def messages(found: tuple[Operator, ...], group: str) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Messages of the experts' exchanges over a group [MiB], forward and backward."""

    def sizes(side: tuple[tuple[str, np.ndarray], ...]) -> dict[str, float]:
        return {operation: float(size[0]) / MIB for operation, size in side if np.any(size)}

    chosen = [op for op in found if isinstance(op, Collective) and op.group == group and op.module == "experts"]
    return {op.name: both for op in chosen if any(both := (sizes(op.forward), sizes(op.backward)))}


@pytest.mark.parametrize(("expert_tp", "part"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_megatron_sends_a_token_to_one_rank_and_gathers_it_there(expert_tp: int, part: float) -> None:
    """A tensor rank sends the copies of its quarter of the tokens, 2 x 1 MiB / 4; those of an expert gather theirs."""
    found = operators("gather-copies", ep=2, expert_tp=expert_tp)
    sent = {"all_to_all": 0.5}
    assert messages(found, "ep") == {"expert dispatch": (sent, sent), "expert combine": (sent, sent)}
    gathered, summed = {"all_gather": 2 * part}, {"reduce_scatter": 2 * part}
    both = {"split experts input": (gathered, summed), "split experts output": (summed, gathered)}
    assert messages(found, "etp") == (both if expert_tp > 1 else {})
    assert messages(found, "tp") == {}


@pytest.mark.parametrize(("expert_tp", "part"), [(2, 0.5), (4, 1.0)])
def test_others_gather_the_tokens_first_and_send_all_of_them(expert_tp: int, part: float) -> None:
    found = operators("gather-tokens", ep=2, expert_tp=expert_tp)
    sent = {"all_to_all": 2 * part}
    assert messages(found, "ep") == {"expert dispatch": (sent, sent), "expert combine": (sent, sent)}
    name, group = ("split experts", "etp") if expert_tp < 4 else ("experts", "tp")
    gathered, back = {"all_gather": part}, {"reduce_scatter": part, "all_gather": part}
    assert messages(found, group) == {
        f"{name} input": (gathered, back), f"{name} output": ({"reduce_scatter": part}, gathered)
    }  # fmt: skip


def test_shared_experts_need_all_tokens_on_all_tensor_ranks() -> None:
    found = operators("gather-copies", shared=1024, ep=2, expert_tp=2)
    assert set(messages(found, "tp")) == {"experts input", "experts output"}
    assert set(messages(found, "etp")) == {"split experts input", "split experts output"}


@pytest.mark.parametrize("split", ["gather-tokens", "gather-copies"])
def test_the_products_of_a_rank_do_not_depend_on_how_experts_are_split(split: str) -> None:
    def flops(**sizes: float) -> float:
        found = (op for op in operators(split, **sizes) if isinstance(op, Matmul) and op.module == "experts")
        return float(sum((op.layers * op.forward_flops)[0] for op in found if "router" not in op.name))

    assert flops(ep=2, expert_tp=1) == pytest.approx(flops(ep=2, expert_tp=2)) == pytest.approx(flops(expert_tp=4))
