"""Weights and counts. Expected totals are those of published checkpoints, or summed by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from xe_sizer.graph.model import Experts, LatentAttention, LayerKind, ModelShape, SparseIndexer
from xe_sizer.graph.weights import Weight, count_parameters, embedding_weights, head_weights, layer_weights

DENSE, MOE = LayerKind(), LayerKind(mlp="experts")
LLAMA_2_7B = ModelShape(
    name="llama-2-7b",
    family="llama-2",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_dim=128,
    ffn=11008,
    vocab=32000,
    max_positions=4096,
    tied_embeddings=False,
    norm="rmsnorm",
    norms_per_layer=2,
    activation="swiglu",
    position="rope",
)
SMALL = replace(LLAMA_2_7B, layers=3, hidden=8, heads=4, kv_heads=2, head_dim=2, ffn=16, vocab=10)


def names(weights: tuple[Weight, ...]) -> list[str]:
    return [weight.name for weight in weights]


def test_llama_2_7b_has_its_published_count() -> None:
    count = count_parameters(LLAMA_2_7B)
    assert count.total == 6_738_415_616
    assert count.active == count.total
    assert count.layer_dense == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert count.layer_moe == 0
    assert (count.embedding, count.head) == (32000 * 4096, 32000 * 4096 + 4096)


def test_weights_of_a_llama_layer() -> None:
    weights = layer_weights(LLAMA_2_7B, DENSE)
    assert names(weights) == ["input_norm", "pre_mlp_norm", "q", "k", "v", "o", "gate", "up", "down"]
    split = {weight.name: weight.split for weight in weights}
    assert [split[name] for name in ("q", "k", "v", "gate", "up")] == ["column"] * 5
    assert [split[name] for name in ("o", "down")] == ["row"] * 2
    assert split["input_norm"] == "replicated"


def test_grouped_queries_shrink_keys_and_values_only() -> None:
    sizes = {weight.name: (weight.inputs, weight.outputs) for weight in layer_weights(SMALL, DENSE)}
    assert (sizes["q"], sizes["k"], sizes["v"], sizes["o"]) == ((8, 8), (8, 4), (8, 4), (8, 8))


@pytest.mark.parametrize(
    ("field", "value", "added"),
    [
        ("qkv_bias", True, 8 + 4 + 4),
        ("output_bias", True, 8),
        ("mlp_bias", True, 16 + 16 + 8),
        ("qk_norm", "perhead", 2 + 2),
        ("qk_norm", "full", 8 + 4),
        ("attention_sinks", True, 4),
        ("norms_per_layer", 4, 2 * 8),
        ("norms_per_layer", 1, -8),
        ("norm", "layernorm", 2 * 8),
        ("norm", "layernorm1p", 2 * 8),
        ("norm", "layernorm-nobias", 0),
        ("norm", "layernorm-nonparam", -2 * 8),
        ("activation", "gelu", -8 * 16),
    ],
)
def test_each_option_adds_its_elements_to_a_layer(field: str, value: object, added: int) -> None:
    changed = replace(SMALL, **{field: value})  # type: ignore[arg-type]
    assert count_parameters(changed).layer_dense - count_parameters(SMALL).layer_dense == added


def test_head_and_embedding_variants() -> None:
    tied = replace(SMALL, tied_embeddings=True)
    assert names(head_weights(tied)) == ["final_norm"]
    assert count_parameters(SMALL).total - count_parameters(tied).total == 8 * 10
    assert names(head_weights(replace(tied, head_bias=True))) == ["final_norm", "head_bias"]
    assert head_weights(replace(SMALL, head_bias=True))[-1].parameters == 8 * 10 + 10
    learned = replace(SMALL, learned_positions=7, embedding_norm=True, norm="layernorm")
    assert [weight.parameters for weight in embedding_weights(learned)] == [80, 56, 16]


def test_narrow_embeddings_are_projected_in_and_out() -> None:
    narrow = replace(SMALL, embedding_size=4, tied_embeddings=True, final_norm=False)
    assert [(w.name, w.inputs, w.outputs) for w in embedding_weights(narrow)] == [
        ("embedding", 10, 4),
        ("embedding_in", 4, 8),
    ]
    assert [(w.name, w.inputs, w.outputs) for w in head_weights(narrow)] == [("embedding_out", 8, 4)]


def test_idle_experts_are_not_active() -> None:
    experts = Experts(count=8, per_token=2, ffn=4, shared_ffn=6, shared_gate=True, first_dense_layers=1)
    model = replace(SMALL, experts=experts)
    count = count_parameters(model)
    expert = 3 * 8 * 4
    assert count.layer_moe == 8 * 8 + 2 * 8 + (2 * 8 * 8 + 2 * 8 * 4) + 8 * expert + 3 * 8 * 6 + 8
    assert count.total - count.active == 2 * (8 - 2) * expert
    assert count.total == count.embedding + count.head + count.layer_dense + 2 * count.layer_moe


def test_biases_of_router_and_experts() -> None:
    plain = replace(SMALL, experts=Experts(count=4, per_token=1, ffn=4))
    biased = replace(plain, experts=Experts(count=4, per_token=1, ffn=4, router_bias=True, expert_bias=True))
    added = count_parameters(biased).layer_moe - count_parameters(plain).layer_moe
    assert added == 4 + 4 * (4 + 4 + 8)


def test_deepseek_v3_latent_attention() -> None:
    """671,026,404,352 parameters, 37.6e9 of them active: the published weights, less the prediction layer."""
    model = replace(
        LLAMA_2_7B,
        layers=61,
        hidden=7168,
        heads=128,
        kv_heads=128,
        head_dim=192,
        ffn=18432,
        vocab=129280,
        latent_attention=LatentAttention(1536, 512, 128, 64, 128),
        experts=Experts(count=256, per_token=8, ffn=2048, shared_ffn=2048, first_dense_layers=3),
    )
    count = count_parameters(model)
    assert (count.total, count.active) == (671_026_404_352, 37_552_282_624)
    indexed = replace(model, indexer=SparseIndexer(64, 128, 2048))
    assert count_parameters(indexed).total == 671_877_929_216
    sizes = {weight.name: weight.outputs for weight in layer_weights(model, MOE)}
    assert (sizes["q_down"], sizes["q_up"], sizes["kv_down"], sizes["kv_up"]) == (1536, 24576, 576, 32768)


def test_layers_that_borrow_keys_and_values_have_none() -> None:
    shared = replace(SMALL, kv_layers=1)
    assert count_parameters(SMALL).total - count_parameters(shared).total == 2 * 2 * 8 * 4
