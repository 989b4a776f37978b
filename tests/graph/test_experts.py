"""Experts one after the other: kernels of each, gathers, gradients of slices, by hand."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from cases import GPT, graph, job
from msgspec.structs import replace

from xe_sizer.graph.experts import (
    balanced_load,
    busiest_load,
    expert_rows,
    largest_load,
    largest_of,
    padded_sides,
    reserved_rows,
    touched_experts,
)
from xe_sizer.graph.inputs import CASTS, Block, Learning
from xe_sizer.graph.model import Experts, ModelShape
from xe_sizer.graph.operators import Collective, Kernels, Matmul, MemoryBound, Operator, launches
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.laws.operator_time import operator_times
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
    """Quantiles of gamma distributions, by bisection: of 2 ranks with 16 experts that vary by 45 %, 8 with 4 or 16.

    One rank has all, two at most twice; experts that all get as many have the imbalance of their ranks alone.
    """
    ranks, many = np.array([1.0, 2.0, 8.0]), np.full(3, 1e9)
    varied = Kernels(expert_imbalance=1.1, expert_spread=0.45)
    assert busiest_load(ranks, many, 32, varied) == pytest.approx([1.0, 1.1 * 1.0634, 1.1 * 1.3383], rel=2e-3)
    assert busiest_load(ranks, many, 128, varied)[2] == pytest.approx(1.1 * 1.1655, rel=2e-3)
    assert busiest_load(ranks, many, 32, Kernels(expert_imbalance=9.0)).tolist() == [1.0, 2.0, 8.0]
    assert busiest_load(ranks, many, 32, Kernels()).tolist() == [1.0] * 3


def test_of_few_tokens_chance_makes_some_rank_busy() -> None:
    """One token copy a rank in the mean of 8: throws of 8 balls into 8 bins have 2.6 in the fullest (65,536 throws)."""
    load = busiest_load(np.array([8.0]), np.ones(1), 10**9, Kernels(expert_spread=1e-6))
    assert load == pytest.approx(2.6, rel=0.12)


def test_experts_are_as_unbalanced_as_published() -> None:
    """DeepSeek-R1, 256 experts that vary by 1.28 on 32 ranks, 1,024 tokens each (TensorRT-LLM blog 4, table 1)."""
    load = busiest_load(np.array([32.0]), np.array([1024.0]), 256, Kernels(expert_spread=1.28))[0]
    assert load == pytest.approx(2.564, rel=0.18)


@pytest.mark.parametrize(("ranks", "varied", "published"), [(32, 52.0, 1.109), (36, 53.9, 1.115)])
def test_the_traffic_that_experts_were_placed_by_is_as_balanced_as_published(
    ranks: int, varied: float, published: float
) -> None:
    """The same, with 32 copies: what the table has as deviation of ranks, on top of what the placement leaves."""
    left = largest_load(np.array([float(ranks)]), np.array([(varied / 1024.0) ** 2]))[0]
    assert balanced_load(256, 32, ranks, 1.28) * left == pytest.approx(published, rel=0.02)


def test_other_traffic_is_less_balanced_than_that_which_experts_were_placed_by() -> None:
    """DeepSeek-V3 on 32 ranks with 32 copies: prompts take 2,606 ms, with balanced experts 2,209 (SGLang, LMSYS).

    Routed experts have half to three quarters of the latter, so that the busiest rank has 1.24 to 1.36 of the mean.
    """
    kernels = Kernels(expert_spread=1.2, redundant_experts=32)
    load = busiest_load(np.array([32.0]), np.array([16384.0 * 8.0]), 256, kernels)[0]
    assert 1.0 + 397.0 / (0.75 * 2209.0) < load < 1.0 + 397.0 / (0.5 * 2209.0)


def test_copies_go_to_the_busiest_experts() -> None:
    """Of 2 experts that vary by 3 the heavier has w, a copy leaves half of it, and one more a third."""
    alone = balanced_load(2, 0, 2, 3.0) / 2.0  # the heavier's share
    assert alone > 0.75
    assert balanced_load(2, 2, 4, 3.0) / 4.0 == pytest.approx(max(alone / 3.0, 1.0 - alone))
    assert balanced_load(256, 0, 64, 1.2) > balanced_load(256, 64, 64, 1.2) >= 1.0


def test_a_rank_is_as_busy_as_is_said() -> None:
    said = Kernels(expert_spread=1.2, expert_skew=1.7)
    assert busiest_load(np.array([1.0, 8.0]), np.ones(2), 256, said).tolist() == [1.0, 1.7]


def test_an_expert_takes_no_more_than_its_capacity_and_padding_fills_it() -> None:
    """The busiest of 8 ranks has 1.4 times the mean, or 1.25; all have 1.25, even one alone, where all are padded."""
    ranks, copies = np.array([1.0, 8.0]), np.full(2, 1e9)
    skewed = Kernels(expert_imbalance=1.4)
    assert busiest_load(ranks, copies, 32, skewed).tolist() == [1.0, 1.4]
    assert busiest_load(ranks, copies, 32, replace(skewed, expert_capacity=1.25)).tolist() == [1.0, 1.25]
    padded = replace(skewed, expert_capacity=1.25, pads_experts=True)
    assert busiest_load(ranks, copies, 32, padded).tolist() == [1.25, 1.25]


def shared_out(stack: str = "megatron-lm", ep: float = 8, **flags: object) -> dict[str, Operator]:
    """Operators of a layer whose experts are shared out among ranks, with the kernels of a job."""
    kernels = job("mixtral-8x7b", "pretrain", stack, **flags).kernels
    return {op.name: op for op in layer_operators(graph(model("modules"), ALL, kernels, ep=ep, sequence=4096))}


def size_of(op: Operator, field: str) -> float:
    return float(np.sum(getattr(op, field)))


def test_skew_and_capacity_reach_products_and_what_is_received() -> None:
    """Products and received tokens of the busiest rank grow with its load; the router's work does not."""
    even, skewed = shared_out(train__expert_skew=1), shared_out(train__expert_skew=1.5)
    capped = shared_out(train__expert_skew=1.5, train__capacity_factor=1.2)
    for name, field in (("expert down", "m"), ("dispatch", "saved_bytes"), ("router", "m")):
        sizes = [size_of(found[name], field) for found in (even, skewed, capped)]
        grown = (1.0, 1.0) if name == "router" else (1.5, 1.2)
        assert (sizes[1] / sizes[0], sizes[2] / sizes[0]) == pytest.approx(grown), name


def rows_of(kernels: Kernels, routed: float) -> float:
    rows, _ = expert_rows(kernels, *(np.array([size]) for size in (routed, routed, 8.0, 8.0)), None)
    return float(rows[0])


def test_a_tile_that_two_experts_share_is_computed_for_both() -> None:
    """4,096 rows of 8 experts: half a tile is wasted where each begins at one, else all but one row of it."""
    aligned = Kernels(expert_tile=128.0)
    assert rows_of(aligned, 4096) == 512 + 64
    assert rows_of(replace(aligned, expert_starts="anywhere"), 4096) == 512 + 127
    assert rows_of(Kernels(), 4096) == 512


def test_sides_are_computed_in_whole_tiles() -> None:
    """1,408 columns are two tiles of 1,024, as 2,048 rows are; 704 are one of their own."""
    kernels = Kernels(expert_side=1024.0)
    rows, columns = np.array([2048.0, 2048.0, 1408.0]), np.array([1408.0, 704.0, 1408.0])
    assert padded_sides(kernels, rows, columns) == pytest.approx([2048 / 1408, 1.0, (2048 / 1408) ** 2])
    assert padded_sides(Kernels(), rows, columns) is None


def test_masks_take_tokens_to_padded_experts_and_back() -> None:
    """2,048 tokens x 2 experts x 1.25 places: a product each way, and batched ones of the experts, without tiles."""
    padded = {"train__capacity_factor": 1.25, "train__pad_to_capacity": True}
    by_rows, by_masks = shared_out("megatron-lm", 1, **padded), shared_out("maxtext", 1, **padded)
    assert isinstance(by_rows["dispatch"], MemoryBound)
    places = 4096 * PICKED * 1.25
    there, back, product = by_masks["dispatch"], by_masks["combine"], by_masks["expert down"]
    assert isinstance(there, Matmul)
    assert isinstance(back, Matmul)
    assert isinstance(product, Matmul)
    assert [size_of(there, side) for side in "mkn"] == [places, 4096, HIDDEN]
    assert [size_of(back, side) for side in "mkn"] == [4096, places, HIDDEN]
    assert (there.input_gradient, back.input_gradient) == (False, True)
    assert not product.grouped
    assert size_of(product, "m") == pytest.approx(places / COUNT)


def test_outputs_of_experts_are_kept_until_the_activation_is_weighted() -> None:
    """Megatron-Core 0.13 multiplies by probabilities in the activation; before, all token copies wait for them."""
    assert size_of(shared_out()["combine"], "saved_bytes") == 0
    assert size_of(shared_out("megatron-lm@0.12")["combine"], "saved_bytes") == 4096 * PICKED * HIDDEN * 2


def test_a_grouped_product_of_one_expert_is_a_single_one() -> None:
    """Of sixteen experts on as many ranks each is alone, and takes the time of a product without a group."""
    alone, grouped = shared_out(ep=16)["expert down"], shared_out(ep=8)["expert down"]
    assert isinstance(alone, Matmul)
    assert isinstance(grouped, Matmul)
    assert alone.alone is not None
    assert (bool(np.all(alone.alone)), bool(np.any(grouped.alone))) == (True, False)
    device = job("mixtral-8x7b", "pretrain", "megatron-lm").device
    apart = replace(alone, grouped=False, alone=None)
    (one,), (single,) = operator_times((alone,), device), operator_times((apart,), device)
    assert one.forward_s == pytest.approx(single.forward_s)
    (together,) = operator_times((replace(alone, alone=None),), device)
    assert np.all(together.forward_s > one.forward_s)


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
    op = moving(found["expert bias"])
    assert (op.forward_launches, op.backward_launches) == (2, 2)
    frozen = {op.name: op for op in layer_operators(graph(biased, FROZEN, replace(LOOP, experts=way)))}
    assert moving(frozen["expert bias"]).backward_launches == 0
    assert bytes_of(frozen["expert bias"])[1] == 0
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
    # Each rank weights and sums up what came back for the tokens that it sent.
    returned = 0.5 * MIB
    (combine,) = (op for op in found if op.name == "combine")
    assert bytes_of(combine) == (5 * returned, 10 * returned)
    assert combine.saved_bytes.tolist() == [returned]


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


# Numbers of tokens and experts: who is busiest, how many are touched, and rows of grouped products.


def block(kernels: Kernels | None = None, **sizes: float) -> Block:
    return Block(graph(model("modules"), ALL, kernels, **sizes), {}, 1.0)


MANY = Experts(count=64, per_token=6, ffn=FFN)


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_one_token_touches_the_experts_that_it_picks_and_many_touch_all(spread: float) -> None:
    kernels = Kernels(expert_spread=spread)
    assert touched_experts(block(kernels, sequence=1), MANY).tolist() == pytest.approx([6])
    assert touched_experts(block(kernels, sequence=1e7), MANY).tolist() == pytest.approx([64])
    each = replace(MANY, per_token=64)
    assert touched_experts(block(kernels, sequence=1), each).tolist() == pytest.approx([64])
    counts = [float(touched_experts(block(kernels, sequence=tokens), MANY)[0]) for tokens in (1, 2, 8, 32, 128)]
    assert counts == sorted(counts)


def test_evenly_picked_experts_against_a_draw() -> None:
    """E (1 - (1 - k / E)^T); the mean of a thousand draws is within a percent."""
    draw = np.random.default_rng(1)
    for tokens in (3, 12, 40):
        picked = [np.argsort(draw.random((tokens, 64)), axis=1)[:, :6] for _ in range(1000)]
        seen = np.mean([len(np.unique(picks)) for picks in picked])
        found = float(touched_experts(block(sequence=tokens), MANY)[0])
        assert found == pytest.approx(64 * (1 - (1 - 6 / 64) ** tokens))
        assert found == pytest.approx(seen, rel=0.01)


def test_popular_experts_leave_others_untouched() -> None:
    """Counts of an expert are negative binomial: (1 + s^2 l)^(-1 / s^2), which evens out as s goes to 0."""
    each = -np.log(1 - 6 / 64)
    for spread in (0.3, 0.9):
        missed = (1 - 6 / 64) * (1 + spread**2 * 19 * each) ** (-1 / spread**2)
        found = touched_experts(block(Kernels(expert_spread=spread), sequence=20), MANY)
        assert found.tolist() == pytest.approx([64 * (1 - missed)])
    even, nearly = (
        touched_experts(block(Kernels(expert_spread=spread), sequence=20), MANY)[0] for spread in (0.0, 1e-3)
    )
    assert nearly == pytest.approx(even, rel=1e-4)


def test_the_busiest_of_expert_parallel_ranks_touches_more_than_its_share() -> None:
    """8 ranks of 8 experts and 20 tokens each: of 160, the busiest is 1.43 deviations of n q (1 - q) above the mean."""
    ranks = touched_experts(block(sequence=2, ep=8), MANY)
    missed = (1 - 6 / 64) ** 16
    assert ranks.tolist() == pytest.approx([8 * (1 - missed) + largest(8) * np.sqrt(8 * missed * (1 - missed))])
    assert touched_experts(block(sequence=200, ep=8), MANY).tolist() == pytest.approx([8])
    # Tensor ranks that share a batch route it once: tokens of the group are those of a rank, times ep over tp; where
    # some of them split an expert, these see the tokens of all of them.
    for split in (1, 2):
        shared = touched_experts(block(sequence=16, tp=8 * split, ep=8, expert_tp=split), MANY)
        assert shared.tolist() == pytest.approx(ranks.tolist())


def largest(ranks: int) -> float:
    """Blom 1958: the expected maximum of so many normal values [deviations]."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def test_the_largest_of_many_normal_values() -> None:
    """1.267 of 5, 1.539 of 10 (tables of Harter 1961); 0 of one; of any shape."""
    found = largest_of(np.array([[1.0, 5.0], [10.0, 5.0]]))
    assert found == pytest.approx(np.array([[0.0, 1.163], [1.539, 1.163]]), abs=0.02)


def test_rows_of_grouped_products_are_rounded_up_to_tiles() -> None:
    """Half a tile of 128 on average, half a row's worth of few rows, no less than half of 16; nothing without tiles."""
    routed, local = np.array([8.0, 320.0, 8000.0]), np.array([8.0, 8.0, 8.0])
    rows, passing = expert_rows(Kernels(expert_tile=128.0), routed, routed, local, local, None)
    assert rows.tolist() == [1 + 8, 40 + 20, 1000 + 64]
    assert passing.tolist() == routed.tolist()
    assert expert_rows(Kernels(), routed, routed, local, local, None)[0].tolist() == [1, 40, 1000]


def test_reserved_rows_are_those_of_the_worst_case() -> None:
    """Of 64 held experts each could leave 127 of 128 rows empty; 8 that are touched share them."""
    routed, local, held = np.array([48.0, 48.0]), np.array([8.0, 8.0]), np.array([64.0, 64.0])
    reserves, possible = np.array([True, False]), np.array([384.0, 384.0])
    rows, passing = expert_rows(Kernels(expert_tile=128.0), routed, possible, local, held, reserves)
    assert passing.tolist() == [384 + 64 * 127, 48]
    assert rows.tolist() == [(384 + 64 * 127) / 8, 6 + 16 / 2]


def test_rows_are_reserved_for_sizes_that_the_kernel_takes() -> None:
    """vLLM, _valid_deep_gemm: at least 128 tokens, width above 512, both sizes multiples of 128, fewer than 8 ranks."""
    columns = {
        "tokens": [128.0, 127.0, 128.0, 128.0, 128.0, 128.0],
        "width": [640.0, 640.0, 512.0, 700.0, 640.0, 640.0],
        "hidden": [1024.0, 1024.0, 1024.0, 1024.0, 1000.0, 1024.0],
        "ranks": [7.0, 7.0, 7.0, 7.0, 7.0, 8.0],
    }
    sizes = [np.array(column) for column in columns.values()]
    gated = reserved_rows(Kernels(reserved_below=8.0, reserved_gated=True), *sizes)
    assert gated is not None
    assert gated.tolist() == [True, False, False, False, False, False]
    always = reserved_rows(Kernels(reserved_below=8.0), *sizes)
    assert always is not None
    assert always.tolist() == [True, True, True, True, True, False]
    assert reserved_rows(Kernels(), *sizes) is None


def test_the_products_of_a_rank_go_over_the_reserved_rows() -> None:
    """Where all ranks have all tokens, these could all pick its experts: 2 x 256 tokens of 2 ranks, 2 each."""
    kernels = Kernels(dispatch="to-all", expert_tile=64.0, reserved_below=2.0)
    inputs = graph(model("modules"), ALL, kernels, sequence=256, ep=2)
    found = {op.name: op for op in layer_operators(inputs)}
    product = found["expert down"]
    assert isinstance(product, Matmul)
    rows = 2 * 256 * PICKED + COUNT / 2 * 63
    assert (product.m * product.copies).tolist() == pytest.approx([rows])
    assert product.reserved is not None
    assert product.reserved.tolist() == [True]
    width = rows * FFN * 2
    assert bytes_of(found["expert activation"]) == pytest.approx((3 * width, 5 * width))
    assert float(found["expert down"].saved_bytes[0]) == pytest.approx(width)


# Loops on a float32 hidden state, and what experts take beside their products.


def wide(loop: str, kernels: Kernels = LOOP, learning: Learning = ALL, **changes: object) -> dict[str, Operator]:
    inputs = replace(graph(model(loop), learning, kernels), residual_element_bytes=4.0)
    return {op.name: op for op in layer_operators(replace(inputs, **changes)) if op.module == "experts"}


def test_a_loop_casts_what_it_gathers_of_a_float32_state_for_each_reader() -> None:
    """Gate and up read it apart: 2 casts of 6 bytes; fused or sorted one."""
    apart, state = wide("modules"), TOKENS * HIDDEN
    assert bytes_of(apart["dispatch"]) == pytest.approx(
        (2 * SORTED * 4 + 2 * 6 * SORTED, 4 * (3 * SORTED + 4 * COUNT * state) + 2 * 6 * SORTED)
    )
    for loop in ("sliced", "split"):
        forward, backward = bytes_of(wide(loop)["dispatch"])
        assert forward == pytest.approx(2 * SORTED * 4 + 6 * SORTED)
        gathered = 7 * SORTED + 4 * state if loop == "split" else 3 * SORTED + 4 * COUNT * state
        assert backward == pytest.approx(4 * gathered + 6 * SORTED)
    fused = bytes_of(wide("modules", replace(LOOP, fused_gate_up=True))["dispatch"])
    assert fused[0] == pytest.approx(2 * SORTED * 4 + 6 * SORTED)
    assert float(moving(apart["dispatch"]).temporary_bytes[0]) == 2 * SORTED * 4
    assert float(np.sum(moving(apart["dispatch"]).forward_launches)) == pytest.approx(7 * COUNT)
    assert float(np.sum(moving(apart["dispatch"]).backward_launches)) == pytest.approx(8 * COUNT)


def test_gate_and_up_of_a_loop_keep_a_cast_each() -> None:
    """The dispatch keeps the first; the up projection has one of its own where the state is wider."""
    found = wide("modules")
    assert float(found["dispatch"].saved_bytes[0]) == float(found["expert up"].saved_bytes[0]) == 2 * SORTED
    assert float(of("modules")["expert up"].saved_bytes[0]) == 0
    frozen = wide("modules", learning=FROZEN)
    assert [float(frozen[name].saved_bytes[0]) for name in ("dispatch", "expert up", "expert down")] == [0, 0, 0]


def test_outputs_of_experts_are_added_to_a_float32_state() -> None:
    """Multiplication 2 and addition 3; back, the gather of 2 in float32, and 2 + 4 of outputs and weights."""
    for loop, joined in (("modules", 0), ("split", 2 * 2)):
        combine = moving(wide(loop)["combine"])
        sides = ((2 * 2 + 3 * 4 + joined) * SORTED, ((2 + 4) * 2 + 2 * 4 + joined) * SORTED)
        assert bytes_of(combine) == pytest.approx(sides)
        assert combine.temporary_bytes.tolist() == [2 * SORTED * 2]
        assert combine.saved_bytes.tolist() == [SORTED * 2]
        started = [float(np.sum(side)) for side in (combine.forward_launches, combine.backward_launches)]
        assert started == pytest.approx([8, 6] if loop == "split" else [3 * COUNT, 12 * COUNT])


def test_slices_hold_two_gradients_like_the_whole() -> None:
    slices = moving(of("sliced")["expert slices"])
    assert slices.temporary_bytes.tolist() == pytest.approx([2 * COUNT * 3 * FFN * HIDDEN * 2])
    assert slices.forward_bytes.tolist() == [0]
    assert slices.forward_launches == 0


def test_a_loop_that_skips_no_expert_comes_to_those_that_no_token_picked() -> None:
    """Two tokens pick at most 4 of 16 experts; the older loop goes over all of them."""

    def turns(way: str) -> float:
        inputs = graph(model("modules"), ALL, replace(LOOP, experts=way), sequence=2)
        found = {op.name: op for op in layer_operators(inputs)}
        return float(np.sum(moving(found["expert activation"]).forward_launches))

    assert turns("loop-all") == COUNT
    assert turns("loop") == pytest.approx(COUNT * (1 - (1 - PICKED / COUNT) ** 2))


def test_weights_of_experts_are_cast_one_by_one_in_a_loop_and_together_elsewhere() -> None:
    """float32 weights: 6 bytes an element of the three matrices of every expert, one kernel for each in a loop."""
    matrices = COUNT * 3 * FFN * HIDDEN
    traffic = {"weight_forward_bytes": np.array([6.0]), "weight_backward_bytes": np.array([12.0])}
    for way, kernels in (("loop", 3 * COUNT), ("grouped", 1)):
        cast = moving(wide("modules", replace(LOOP, experts=way), **traffic)["experts weight traffic"])
        assert bytes_of(cast) == pytest.approx((6 * matrices, 12 * matrices))
        assert float(np.sum(cast.forward_launches)) == float(np.sum(cast.backward_launches)) == pytest.approx(kernels)


def test_casts_of_experts_to_8_bit() -> None:
    """Scaled by a history: 4 bytes of what products read and write; weights are narrowed with the update.

    Side by side each of the two products of an expert has a cast of its own; autograd keeps one byte of an input.
    """
    casts = CASTS["transformer-engine"]["delayed"]
    read, written = SORTED + TOKENS * PICKED * FFN, TOKENS * PICKED * 2 * FFN + SORTED
    for way, kernels in (("grouped", 1), ("products", 2 * COUNT)):
        found = wide("modules", Kernels(experts=way), casts=casts)
        cast = moving(found["experts cast"])
        assert bytes_of(cast) == pytest.approx((4 * read, 4 * written))
        assert float(np.sum(cast.forward_launches)) == pytest.approx(kernels)
        assert found["expert down"].saved_bytes.tolist() == pytest.approx([TOKENS * PICKED * FFN])


def test_latent_experts_work_in_a_narrower_space() -> None:
    """Tokens are projected to a quarter of the width, routed there, and projected back (Nemotron 3)."""
    shape = model("modules")
    narrow = replace(shape, experts=replace(shape.experts, latent=HIDDEN // 4))
    found = {op.name: op for op in layer_operators(graph(narrow, ALL, tp=2, expert_tp=2))}
    down, up, product = found["latent down"], found["latent up"], found["expert gate and up"]
    assert isinstance(down, Matmul)
    assert isinstance(up, Matmul)
    assert isinstance(product, Matmul)
    assert (down.m.tolist(), down.n.tolist(), down.saved_bytes.tolist()) == ([TOKENS / 2], [HIDDEN / 4], [0])
    assert (up.m.tolist(), up.k.tolist()) == ([TOKENS / 2], [HIDDEN / 4])
    assert up.saved_bytes.tolist() == [TOKENS / 2 * HIDDEN / 4 * 2]
    assert (product.k.tolist(), product.n.tolist()) == ([HIDDEN / 4], [2 * FFN / 2])
    assert found["dispatch"].saved_bytes.tolist() == [SORTED / 4 * 2]
    assert "latent up" not in of("modules")


def test_shared_experts_are_one_dense_mlp_of_their_summed_size() -> None:
    shape = model("modules")
    shared = replace(shape, experts=replace(shape.experts, shared_ffn=768))
    found = {op.name: op for op in layer_operators(graph(shared, ALL, tp=2, expert_tp=2))}
    first, last = found["shared expert gate and up"], found["shared expert down"]
    assert isinstance(first, Matmul)
    assert isinstance(last, Matmul)
    assert (first.m.tolist(), first.n.tolist(), first.k.tolist()) == ([TOKENS], [2 * 768 / 2], [HIDDEN])
    assert (last.n.tolist(), last.k.tolist()) == ([HIDDEN], [768 / 2])
    width = TOKENS * 768 / 2 * 2
    assert bytes_of(found["shared expert activation"]) == (3 * width, 5 * width)
    assert last.saved_bytes.tolist() == [width]
    assert first.saved_bytes.tolist() == [TOKENS * HIDDEN * 2]


@pytest.mark.parametrize("ranks", [1, 4])
def test_ranks_that_attend_to_their_own_sequences_give_each_other_all_tokens(ranks: int) -> None:
    """Gathered before the experts and summed after them; nothing where one group has all of them."""
    found = layer_operators(graph(model("modules"), ALL, Kernels(dispatch="to-all"), ep=ranks, sequence=TOKENS))
    tensor = ranks * TOKENS * HIDDEN * 2 / MIB
    gathered, summed = {"all_gather": tensor}, {"reduce_scatter": tensor}
    both = {"expert dispatch": (gathered, summed), "expert combine": (summed, gathered)}
    assert messages(found, "dp") == (both if ranks > 1 else {})
    assert messages(found, "ep") == {}


def test_tensor_ranks_with_whole_experts_give_each_other_the_results() -> None:
    """Each of 4 ranks had a quarter of the tokens; without sharded norms all of them need all results."""
    found = layer_operators(graph(model("modules"), ALL, tp=4, ep=4, sequence=TOKENS))
    tensor = TOKENS * HIDDEN * 2 / MIB
    assert messages(found, "tp")["expert output"] == ({"all_gather": tensor}, {"reduce_scatter": tensor})
    assert {"experts input", "experts output"}.isdisjoint(messages(found, "tp"))
    sharded = layer_operators(graph(model("modules"), ALL, tp=4, ep=4, sequence=TOKENS, sequence_parallel=1))
    assert "expert output" not in messages(sharded, "tp")
    split = layer_operators(graph(model("modules"), ALL, tp=4, expert_tp=4, sequence=TOKENS))
    assert set(messages(split, "tp")) == {"experts input", "experts output"}


def test_the_router_reads_a_share_of_the_tokens_on_each_tensor_rank() -> None:
    router = {op.name: op for op in layer_operators(graph(model("modules"), ALL, tp=4, ep=4))}["router"]
    assert isinstance(router, Matmul)
    assert (router.m.tolist(), router.n.tolist(), router.k.tolist()) == ([TOKENS / 4], [COUNT], [HIDDEN])
