"""Weights and counts. Expected totals are those of published checkpoints, or summed by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from xe_sizer.graph.model import (
    CLASSES,
    MASKED,
    NO_HEAD,
    REPLACED,
    VALUES,
    WORDS,
    Experts,
    Generator,
    GlobalAttention,
    LatentAttention,
    LayerKind,
    ModelShape,
    SparseIndexer,
    StateSpace,
)
from xe_sizer.graph.weights import (
    Weight,
    count_parameters,
    count_tensors,
    embedding_weights,
    generator_weights,
    head_weights,
    layer_weights,
)
from xe_sizer.profiles.catalogue import Registry

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


# Published models, their tensors, and models that are cut.


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("mamba-2.8b", 2_768_345_600),
        ("mamba2-2.7b", 2_702_599_680),
        ("jamba-v0.1", 51_570_323_328),
        ("qwen3-next-80b-a3b", 79_674_391_296),
        ("gpt2", 124_439_808),
        ("bert-base-uncased", 109_514_298),
        ("t5-base", 222_903_552),
        ("bart-base", 139_420_416),
    ],
)
def test_published_checkpoints_have_so_many_parameters(name: str, total: int) -> None:
    model = replace(Registry().model(name), name="counted once more")
    assert count_parameters(model).total == total


def test_tensors_of_a_checkpoint() -> None:
    """GPT-2: 8 weights in each of 12 layers, all with biases, the norm at the end, and two tables, with q, k, v apart.

    Experts have three matrices each; Llama's have no biases.
    """
    assert count_tensors(replace(Registry().model("gpt2"), name="counted once more")) == 12 * 2 * 8 + 2 + 2
    assert count_tensors(replace(SMALL, name="counted once more")) == 3 * 9 + 3
    experts = replace(SMALL, experts=Experts(count=8, per_token=2, ffn=4))
    assert count_tensors(experts) == 3 * (6 + 1 + 8 * 3) + 3


SPACE = StateSpace("mamba-2", inner=24, state=5, conv_kernel=3, heads=6, head_dim=4, groups=2)


@pytest.mark.parametrize(
    ("space", "elements"),
    [
        # Projection in, convolution with biases, state projection, step size, decay, skip, projection out.
        (
            StateSpace("mamba-1", inner=24, state=5, conv_kernel=3, dt_rank=7),
            8 * 48 + 24 * 3 + 24 + 24 * 17 + 7 * 24 + 24 + 24 * 5 + 24 + 24 * 8,
        ),
        # Gate, values, two groups of inputs and outputs, step sizes; three vectors of the heads; the gate's norm.
        (SPACE, 8 * (24 + 44 + 6) + 44 * 3 + 44 + 3 * 6 + 24 + 24 * 8),
        # Queries and keys of 3 heads of 2, values and gate; decay and step of 6 heads; their vectors; a norm of a head.
        (
            StateSpace("gated-delta-net", 24, 5, 3, heads=6, head_dim=4, key_heads=3, key_head_dim=2),
            8 * (24 + 36) + 8 * 12 + 36 * 3 + 2 * 6 + 4 + 24 * 8,
        ),
    ],
)
def test_weights_of_a_mixer(space: StateSpace, elements: int) -> None:
    model = replace(SMALL, layer_pattern="MMM", state_space=space)
    count = count_parameters(model)
    assert count.layer_dense == elements + 3 * 8 * 16 + 2 * 8
    normed = replace(model, state_space=replace(space, inner_norms=True))
    more = space.dt_rank + 2 * space.state if space.kind == "mamba-1" else 0
    assert count_parameters(normed).layer_dense - count.layer_dense == more


def test_heads_of_jobs_that_read_no_vocabulary() -> None:
    """A dense layer and classes, with biases or without; a value; a value behind a dense layer; nothing."""
    final, dense = 8, 8 * 8 + 8
    for head, extra in (
        (CLASSES, dense + 2 * 8 + 2), (VALUES, 8), (REPLACED, dense + 8 + 1), (NO_HEAD, 0), (WORDS, 10 * 8),
    ):  # fmt: skip
        assert count_parameters(SMALL.headed(head)).head == final + extra
    unbiased = replace(SMALL, head_transform="unbiased").headed(CLASSES)
    assert count_parameters(unbiased).head == final + 8 * 8 + 2 * 8 + 2
    tied = replace(SMALL, tied_embeddings=True)
    assert (tied.headed(WORDS).tied_embeddings, tied.headed(VALUES).tied_embeddings) == (True, False)
    transform = replace(SMALL, head_transform="biased", embedding_size=4, norm="layernorm")
    assert count_parameters(transform).head == 2 * 8 + (8 * 4 + 4) + 2 * 4 + 4 * 10


def test_halves_of_an_encoder_decoder_have_tables_and_norms_of_their_own() -> None:
    """Positions, biases of relative positions and final norms twice; the decoder's layers look at the encoder too."""
    halves = replace(SMALL, layers=4, encoder_layers=2, learned_positions=7, relative_buckets=5, embedding_norm=True)
    sizes = {weight.name: weight.parameters for weight in embedding_weights(halves)}
    assert sizes == {"embedding": 80, "position": 2 * 56, "relative_positions": 2 * 5 * 4, "embedding_norm": 2 * 8}
    assert head_weights(halves)[0].parameters == 2 * 8
    first, last = (kind for kind, _ in halves.layer_kinds)
    cross = count(halves, last) - count(halves, first)
    assert cross == 8 + 8 * 8 + 2 * 8 * 4 + 8 * 8  # a norm, queries, keys and values, output
    both_ways = replace(SMALL, bidirectional=True, embedding_size=4, embedding_norm=True, token_types=3)
    sizes = {weight.name: weight.parameters for weight in embedding_weights(both_ways)}
    assert sizes == {"embedding": 40, "token_type": 12, "embedding_in": 4 * 8 + 8, "embedding_norm": 4}
    compared = {w.name: w.parameters for w in embedding_weights(replace(SMALL, disentangled_positions=6))}
    assert compared == {"embedding": 80, "relative_table": 48, "relative_norm": 8}


def count(model: ModelShape, kind: LayerKind) -> int:
    return sum(weight.parameters for weight in layer_weights(model, kind))


def test_a_generator_shares_the_tables_of_its_discriminator() -> None:
    """ELECTRA small: rows of 128 are widened to a quarter of the heads' width; a transform and biases before them."""
    model = replace(SMALL, bidirectional=True, embedding_size=4, head_transform="biased", norm="layernorm")
    model = replace(model, generator=Generator(layers=2, hidden=6, heads=3, ffn=12), head=REPLACED)
    own = model.generator_model
    assert own is not None
    assert (own.layers, own.hidden, own.heads, own.kv_heads, own.head_dim, own.ffn) == (2, 6, 3, 3, 2, 12)
    assert (own.embedding_size, own.tied_embeddings, own.head, own.generator) == (4, True, MASKED, None)
    groups = generator_weights(own)
    assert [times for times, _ in groups] == [1, 2]
    assert [weight.name for weight in groups[0][1]] == ["embedding_in", "final_norm", "head_transform", "head_norm"]
    assert replace(model, generator=None).generator_model is None
    assert replace(model, embedding_size=None).generator_model.embedding_size == 8  # type: ignore[union-attr]


def test_models_that_are_cut_mix_their_layers_as_before() -> None:
    """Every fourth of 8 layers sees everything, or of ModernBERT the first of three; halves and shares stay."""
    windowed = replace(SMALL, layers=8, windowed_layers=6, sliding_window=4)
    assert [windowed.with_layers(count).windowed_layers for count in (3, 4, 8, 10)] == [3, 3, 6, 8]
    first = replace(SMALL, layers=22, windowed_layers=14, sliding_window=4, bare_first_layer=True)
    assert [first.with_layers(count).windowed_layers for count in (1, 3, 4, 22)] == [0, 2, 2, 14]
    every = replace(SMALL, layers=4, windowed_layers=4, sliding_window=4)
    assert [every.with_layers(count).windowed_layers for count in (2, 6)] == [2, 6]
    assert SMALL.with_layers(7).windowed_layers == 0
    mixed = replace(SMALL, layers=4, layer_pattern="MM*M", kv_layers=2, encoder_layers=2, state_space=SPACE)
    longer = mixed.with_layers(10)
    assert (longer.layers, longer.layer_pattern) == (10, "MM*MMM*MMM")
    assert (longer.kv_layers, longer.encoder_layers) == (5, 5)
    assert mixed.with_layers(1).kv_layers == 1
    assert SMALL.with_layers(2).kv_layers is None
    assert mixed.with_layers(4) is mixed


def test_kinds_of_layers_in_their_order() -> None:
    """Experts in every second layer behind the first two; an encoder before a decoder; a first layer without norm."""
    experts = Experts(count=4, per_token=1, ffn=4, first_dense_layers=2, every_n_layers=2)
    mlps = [kind.mlp for kind in replace(SMALL, layers=7, experts=experts).layer_sequence]
    assert mlps == ["dense", "dense", "dense", "experts", "dense", "experts", "dense"]
    every = replace(SMALL, experts=replace(experts, first_dense_layers=1, every_n_layers=1))
    assert [kind.mlp for kind in every.layer_sequence] == ["dense", "experts", "experts"]
    halves = [(kind.source, kind.cross) for kind in replace(SMALL, encoder_layers=1).layer_sequence]
    assert halves == [(True, False), (False, True), (False, True)]
    bare = replace(SMALL, bare_first_layer=True)
    assert [kind.bare for kind in bare.layer_sequence] == [True, False, False]
    assert count(bare, bare.layer_sequence[1]) - count(bare, bare.layer_sequence[0]) == 8
    patterned = replace(SMALL, layer_pattern="*GM", state_space=SPACE)
    assert [kind.mixer for kind in patterned.layer_sequence] == ["attention", "global attention", "state-space"]
    wide = GlobalAttention(kv_heads=1, head_dim=4, values_are_keys=True)
    mixed = replace(SMALL, layer_pattern="*G*", global_attention=wide, sliding_window=4, windowed_layers=2)
    names_of = {kind.mixer: names(layer_weights(mixed, kind)) for kind in mixed.layer_sequence}
    assert ("v" in names_of["attention"], "v" in names_of["global attention"]) == (True, False)
    sees = mixed.seen_by(mixed.layer_sequence[1])
    assert (sees.head_dim, sees.kv_heads, sees.sliding_window, sees.windowed_layers) == (4, 1, None, 0)
    assert mixed.seen_by(mixed.layer_sequence[0]).windowed_layers == 3
    assert mixed.seen_by(LayerKind("state-space")) is mixed
