"""The operator graph against what papers count: FLOPs per parameter and token, activations per layer, messages."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.blocks import visited_places
from xe_sizer.graph.inputs import GraphInputs, Learning, LowRank
from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.operators import Attention, Collective, Kernels, Matmul, Picks, layers_per_stage
from xe_sizer.graph.transformer import embedding_operators, head_operators, layer_operators
from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights

ALL, FROZEN = Learning(True), Learning(False)
MODELS = REGISTRY.names("model")


def products(inputs: GraphInputs) -> list[Matmul]:
    operators = (*embedding_operators(inputs), *layer_operators(inputs), *head_operators(inputs))
    return [op for op in operators if isinstance(op, Matmul) and not op.name.startswith("position ")]


def forward_flops(inputs: GraphInputs) -> float:
    return float(sum((op.layers * op.forward_flops).sum() for op in products(inputs)))


def backward_flops(inputs: GraphInputs) -> float:
    return float(sum((op.layers * op.backward_flops).sum() for op in products(inputs)))


def linear_parameters(model: ModelShape) -> int:
    """Weights that multiply one token: all matrices but the embedding's, and of the experts those it is routed to.

    Qwen's scalar gate of the shared expert is left out: one column, which the graph folds into the expert.
    """
    layers = [(layer_weights(model, kind), count) for kind, count in model.layer_kinds]
    total = (model.embedding_size or model.hidden) * (model.head_vocab or model.vocab)
    for weights, count in (*layers, (embedding_weights(model), 1), (head_weights(model), 1)):
        for weight in weights if count else ():
            if weight.kind == "linear" and weight.name not in ("head", "shared_gate"):
                used = model.experts.per_token if model.experts and weight.split == "expert" else weight.copies
                total += count * used * weight.inputs * weight.outputs
    return total


@pytest.mark.parametrize("name", MODELS)
def test_two_flops_a_parameter_and_token(name: str) -> None:
    """Every matrix product of every model of the catalogue is there, exactly, and 6 FLOPs with both gradients.

    With frozen weights it is 4: the gradient passes through, but no weight gradient (arXiv:2106.09685).
    """
    model = REGISTRY.model(name)
    tokens = 2 * 512
    expected = 2 * linear_parameters(model) * tokens
    learning, frozen = graph(model, ALL, batch=2), graph(model, FROZEN, batch=2)
    assert forward_flops(learning) == pytest.approx(expected, rel=1e-12)
    assert backward_flops(learning) == pytest.approx(2 * expected, rel=1e-12)
    assert forward_flops(frozen) + backward_flops(frozen) == pytest.approx(2 * expected, rel=1e-12)


def test_scores_against_relative_positions_by_hand() -> None:
    """DeBERTa v3 base, two sequences of 512: 512 rows pass q and k, and meet 12 heads of 64 both ways."""
    inputs = graph(REGISTRY.model("deberta-v3-base"), ALL, batch=2)
    found = {op.name: op for op in layer_operators(inputs) if op.name.startswith("position ")}
    flops = {name: float(op.forward_flops[0]) for name, op in found.items() if isinstance(op, Matmul)}
    assert flops == {
        "position projections": 2 * 2 * 512 * 768 * 768, "position scores": 2 * 2 * (2 * 12) * 512 * 512 * 64,
    }  # fmt: skip
    kept = 2 * (2 * 2 * 12 * 512 * 512) + 512 * 512 * (2 * 8 + 2 * 1) + 2 * (2 * 512 * 768)
    assert float(found["position gathers"].saved_bytes[0]) == kept
    assert {op.kernel for op in layer_operators(inputs) if isinstance(op, Attention)} == {"eager"}


def test_ranks_beyond_the_key_value_heads_hold_copies() -> None:
    """Falcon 7B has one key-value head: four ranks each make all keys and values, 3 more than once in all."""
    model = REGISTRY.model("falcon-7b")
    tokens, copies = 512, 3 * 2 * model.layers * model.hidden * model.head_dim
    assert 4 * forward_flops(graph(model, ALL, tp=4, expert_tp=4)) == pytest.approx(
        forward_flops(graph(model, ALL)) + 2 * copies * tokens, rel=1e-12
    )


def test_flops_of_llama_2_7b_by_hand() -> None:
    """6.607 billion weights in products: 32 (4 x 4096^2 + 3 x 4096 x 11008) + 4096 x 32000."""
    model = REGISTRY.model("llama-2-7b")
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000
    assert weights == 6_607_077_376
    inputs = graph(model, ALL, sequence=4096)
    assert forward_flops(inputs) + backward_flops(inputs) == 6 * weights * 4096


@pytest.mark.parametrize("sizes", [{"tp": 4, "expert_tp": 4}, {"cp": 4}, {"tp": 2, "expert_tp": 2, "cp": 2}])
@pytest.mark.parametrize("name", ["llama-2-70b", "mixtral-8x7b", "gpt2-medium"])
def test_ranks_share_the_products(name: str, sizes: dict[str, float]) -> None:
    """Over all tensor and context ranks nothing is lost and nothing is done twice."""
    model = REGISTRY.model(name)
    ranks = sizes.get("tp", 1) * sizes.get("cp", 1)
    assert ranks * forward_flops(graph(model, ALL, **sizes)) == pytest.approx(
        forward_flops(graph(model, ALL)), rel=1e-12
    )


def test_expert_groups_keep_the_routed_tokens() -> None:
    """Fewer experts on a rank get more tokens each: the FLOPs of a balanced rank stay."""
    model = REGISTRY.model("mixtral-8x7b")
    whole = forward_flops(graph(model, ALL))
    assert forward_flops(graph(model, ALL, ep=8)) == pytest.approx(whole, rel=1e-12)
    busiest = forward_flops(graph(model, ALL, Kernels(expert_imbalance=1.5), ep=8))
    expert_flops = 2 * 512 * 32 * 2 * 3 * 4096 * 14336
    assert busiest - whole == pytest.approx(0.5 * expert_flops, rel=1e-9)


def attention_flops(model: ModelShape, **sizes: float) -> float:
    operators = layer_operators(graph(model, ALL, **sizes))
    return float(sum((op.layers * op.forward_flops).sum() for op in operators if isinstance(op, Attention)))


def test_causal_attention_of_llama_2_7b() -> None:
    """2 products x 2 FLOPs x 128 for each of 4096 x 4097 / 2 pairs, 32 heads, 32 layers."""
    expected = 4 * 128 * (4096 * 4097 // 2) * 32 * 32
    assert attention_flops(REGISTRY.model("llama-2-7b"), sequence=4096) == expected


def test_windowed_layers_attend_to_less() -> None:
    """Gemma 2 alternates: half of its 42 layers see at most 4096 tokens back."""
    model = REGISTRY.model("gemma-2-9b")
    assert (model.layers, model.windowed_layers, model.sliding_window) == (42, 21, 4096)
    pairs = 21 * 8192 * 8193 // 2 + 21 * (4096 * 4097 // 2 + 4096 * 4096)
    assert attention_flops(model, sequence=8192) == pytest.approx(4 * model.head_dim * model.heads * pairs, rel=1e-12)


def test_lora_adds_its_low_rank_products() -> None:
    """r = 8 on q and v of Llama-2-7B: 4,194,304 weights, 6 FLOPs each, as they learn."""
    model = REGISTRY.model("llama-2-7b")
    plain, adapted = graph(model, FROZEN), graph(model, Learning(False, {"q": LowRank(8), "v": LowRank(8)}))
    assert forward_flops(adapted) - forward_flops(plain) == 2 * 4_194_304 * 512
    assert backward_flops(adapted) - backward_flops(plain) == 4 * 4_194_304 * 512


def saved_per_layer(inputs: GraphInputs) -> float:
    operators = layer_operators(inputs)
    return float(sum((op.layers * op.saved_bytes).sum() for op in operators)) / inputs.model.layers


B, S, H, A = 2, 512, 1024, 16


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_activations_of_a_megatron_layer(t: int) -> None:
    """Korthikanti et al. 2022 (arXiv:2205.05198), equations 2 and 4, without the dropout masks: 34 sbh less 2.

    Tensor parallelism leaves norms and their inputs whole (8 sbh) and splits 24 sbh; sequence parallelism splits
    all 32. A fused attention keeps a float32 log-sum-exp, 4 a s b, in place of 5 a s^2 b.
    """
    sbh, statistics = S * B * H, 4 * A * S * B
    sizes = {"batch": B, "sequence": S, "tp": t}
    plain = saved_per_layer(graph(GPT, ALL, **sizes))
    assert plain == pytest.approx((8 + 24 / t) * sbh + statistics / t, rel=1e-12)
    sharded = saved_per_layer(graph(GPT, ALL, **sizes, sequence_parallel=1))
    assert sharded == pytest.approx((32 * sbh + statistics) / t, rel=1e-12)


def test_eager_attention_keeps_the_scores() -> None:
    """The s x s probabilities cost 2 bytes in the paper; PyTorch's softmax keeps them in float32 besides."""
    flash = saved_per_layer(graph(GPT, ALL, batch=B, sequence=S))
    eager = saved_per_layer(graph(GPT, ALL, Kernels(attention="eager"), batch=B, sequence=S))
    assert eager - flash == 6 * A * S * S * B - 4 * A * S * B


def test_frozen_weights_keep_no_inputs() -> None:
    """What autograd keeps for weight gradients alone is dropped.

    The inputs of QKV and MLP, 4 sbh, and of the second MLP product, 8 sbh.
    """
    sizes = {"batch": B, "sequence": S}
    difference = saved_per_layer(graph(GPT, ALL, **sizes)) - saved_per_layer(graph(GPT, FROZEN, **sizes))
    assert difference == 12 * S * B * H


def messages(inputs: GraphInputs, group: str) -> list[Collective]:
    return [op for op in layer_operators(inputs) if isinstance(op, Collective) and op.group == group]


def sent(operators: list[Collective], kind: str, side: str) -> float:
    return float(sum(np.sum(size) for op in operators for name, size in getattr(op, side) if name == kind))


def test_tensor_parallel_messages_of_a_layer() -> None:
    """Megatron-LM (arXiv:1909.08053): two all-reduces of b s h forward, two backward.

    With sequence parallelism (arXiv:2205.05198) each is a gather and a scatter, and the backward gathers the sharded
    inputs once more.
    """
    tensor = B * S * H * 2
    whole = messages(graph(GPT, ALL, batch=B, sequence=S, tp=4), "tp")
    assert [sent(whole, "all_reduce", side) for side in ("forward", "backward")] == [2 * tensor, 2 * tensor]
    assert sent(whole, "all_gather", "forward") == 0
    split = messages(graph(GPT, ALL, batch=B, sequence=S, tp=4, sequence_parallel=1), "tp")
    assert [sent(split, kind, "forward") for kind in ("all_gather", "reduce_scatter")] == [2 * tensor, 2 * tensor]
    assert [sent(split, kind, "backward") for kind in ("all_gather", "reduce_scatter")] == [4 * tensor, 2 * tensor]
    assert sent(split, "all_reduce", "forward") == sent(split, "all_reduce", "backward") == 0


def test_a_parallel_block_reduces_once() -> None:
    """GPT-J runs attention and MLP side by side: one all-reduce each way instead of two."""
    side_by_side = replace(GPT, parallel_block=True, norms_per_layer=1)
    operators = messages(graph(side_by_side, ALL, batch=B, sequence=S, tp=4), "tp")
    assert sent(operators, "all_reduce", "forward") == B * S * H * 2


def test_context_parallel_ranks_gather_keys_and_values() -> None:
    grouped = replace(GPT, kv_heads=4)
    operators = messages(graph(grouped, ALL, batch=B, sequence=S, cp=4), "cp")
    assert sent(operators, "all_gather", "forward") == 2 * B * S * 4 * 64 * 2


def test_experts_exchange_every_routed_token_twice() -> None:
    """Dispatch and combine: b s k h elements each, forward and backward."""
    model = REGISTRY.model("mixtral-8x7b")
    operators = messages(graph(model, ALL, batch=B, sequence=S, ep=8), "ep")
    routed = B * S * 2 * 4096 * 2
    assert [sent(operators, "all_to_all", side) for side in ("forward", "backward")] == [2 * routed, 2 * routed]


def test_tokens_that_go_once_to_each_rank_of_experts_that_they_picked() -> None:
    """Two evenly picked experts on 8 ranks lie on 8 (1 - (7/8)^2) = 1.875 of them."""
    model = REGISTRY.model("mixtral-8x7b")
    operators = messages(graph(model, ALL, Kernels(dispatch="per-place"), batch=B, sequence=S, ep=8), "ep")
    assert sent(operators, "all_to_all", "forward") == pytest.approx(2 * B * S * 1.875 * 4096 * 2)


@pytest.mark.parametrize(
    ("picks", "places", "visited"),
    [
        (Picks(8), 8, 8 * (1 - (7 / 8) ** 8)),  # 5.25 of 8 nodes
        (Picks(8), 1, 1.0),
        (Picks(8, 8, 4), 8, 4 * (1 - (3 / 4) ** 8)),  # DeepSeek-V3 on 8 nodes: 4 at most
        (Picks(8, 8, 4), 16, 8 * (1 - (7 / 8) ** 8)),  # each of the 4 groups on two places
        (Picks(8, 8, 4), 2, 1.875 * (1 - (1 - 1 / 1.875) ** 8)),  # 2 (1 - (1/2)^4) of them are reached
    ],
)
def test_places_that_hold_experts_of_a_token(picks: Picks, places: int, visited: float) -> None:
    assert visited_places(picks, np.array([float(places)]))[0] == pytest.approx(visited, rel=1e-12)


def test_visited_places_against_a_draw() -> None:
    """256 experts in 8 groups, 8 picked out of 4 drawn groups, on 8 nodes: the formula is within 3 % of the draw."""
    draw = np.random.default_rng(0)
    seen = []
    for _ in range(2000):
        groups = draw.choice(8, 4, replace=False)
        experts = draw.choice(np.concatenate([np.arange(32) + 32 * group for group in groups]), 8, replace=False)
        seen.append(len(set(experts // 32)))
    assert visited_places(Picks(8, 8, 4), np.array([8.0]))[0] == pytest.approx(np.mean(seen), rel=0.03)


def test_only_learning_embeddings_have_a_backward() -> None:
    for learning, moved in ((ALL, True), (FROZEN, False)):
        lookup = embedding_operators(graph(GPT, learning))[0]
        assert bool(np.all(lookup.backward_bytes > 0)) is moved  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "learning",
    [ALL, Learning(False, {"q": LowRank(8), "up": LowRank(8)}, 2.0), Learning(False, {"up": LowRank(8)}, 2.0)],
)
@pytest.mark.parametrize("fused", [True, False])
def test_what_reads_one_norm_keeps_its_output_once(learning: Learning, fused: bool) -> None:
    """Command-R: q, k, v, gate and up read the same tensor, whichever of them learn."""
    kernels = Kernels(fused_qkv=fused, fused_gate_up=fused)
    operators = products(graph(REGISTRY.model("command-r"), learning, kernels, batch=B, sequence=S))
    readers = [op for op in operators if op.name in ("q", "k", "v", "qkv", "gate", "up", "gate and up")]
    assert sum(op.layers * op.saved_bytes[0] for op in readers) == 40 * B * S * 8192 * 2


def test_global_layers_have_heads_of_their_own() -> None:
    """Gemma 4: ten global layers with wider heads, and no product of values; fifty windowed layers see 1,024 tokens."""
    model = REGISTRY.model("gemma-4-31b")
    assert [(kind.mixer, count) for kind, count in model.layer_kinds] == [("attention", 50), ("global attention", 10)]
    windowed, wide = (
        {weight.name: weight.parameters for weight in layer_weights(model, kind)} for kind, _ in model.layer_kinds
    )
    assert windowed["q"] == 5376 * 32 * 256
    assert wide["q"] == 5376 * 32 * 512
    assert (windowed["v"], "v" in wide) == (5376 * 16 * 256, False)
    assert wide["k"] == 5376 * 4 * 512


# Layers of pipeline stages.


def test_the_fullest_stage_has_whole_layers() -> None:
    assert layers_per_stage(32, np.array([1, 2, 5])).tolist() == [32, 16, 7]


def test_one_kind_of_layer_is_spread_over_the_stages_too() -> None:
    assert layers_per_stage(6.0, np.array([4, 8])).tolist() == [2, 1]
