"""The attention half of a layer by hand: what autograd keeps, masks, scores, rotary, prefixes, relative positions."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.attention import kv_heads_per_rank, mask_bytes
from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.model import LatentAttention, ModelShape, SparseIndexer
from xe_sizer.graph.operators import Attention, Kernels, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators

ALL, FROZEN = Learning(True), Learning(False)
B, S, TP = 3, 70, 2
TOKENS = B * S
# 16 query heads over 4 of keys and values, of 64; a rank of two has 8 and 2.
HEADS, KV, SIZE = 8, 2, 64
ROPE = replace(GPT, kv_heads=4, position="rope", learned_positions=0)
QUERIES, KEYS = TOKENS * HEADS * SIZE * 2, TOKENS * KV * SIZE * 2  # bytes of queries, and of keys or values


def of(model: ModelShape, kernels: Kernels, learning: Learning = ALL, **changes: object) -> GraphInputs:
    sizes = {"batch": B, "sequence": S, "tp": TP}
    return replace(graph(model, learning, kernels, **sizes), **changes)


def named(inputs: GraphInputs) -> dict[str, Operator]:
    return {op.name: op for op in layer_operators(inputs)}


def core(inputs: GraphInputs) -> Attention:
    op = named(inputs)["attention"]
    assert isinstance(op, Attention)
    return op


def numbers(op: Operator, *fields: str) -> list[float]:
    return [float(np.sum(getattr(op, field))) for field in fields]


def moved(op: Operator) -> list[float]:
    assert isinstance(op, MemoryBound)
    return numbers(op, "forward_bytes", "backward_bytes", "forward_launches", "backward_launches")


def kept(inputs: GraphInputs) -> float:
    """Queries, keys, values and output [bytes]."""
    op = core(inputs)
    return float(np.sum(op.saved_bytes - op.statistics_bytes))


# What autograd keeps.


def test_fused_kernels_keep_queries_keys_values_and_output() -> None:
    """And the fused projection whole, of which values are a view, unless it returns a wider type."""
    apart = Kernels(fused_qkv=False)
    assert kept(of(ROPE, apart)) == 2 * QUERIES + 2 * KEYS
    assert kept(of(ROPE, Kernels())) == 2 * QUERIES + 2 * KEYS + QUERIES + KEYS
    assert kept(of(ROPE, Kernels(), returned_element_bytes=4.0)) == 2 * QUERIES + 2 * KEYS
    learned = replace(ROPE, position="learned")
    assert kept(of(learned, Kernels())) == 2 * QUERIES + 2 * KEYS
    assert kept(of(ROPE, apart, FROZEN)) == 2 * QUERIES + 2 * KEYS
    assert kept(of(ROPE, replace(apart, repeats_kv=True))) == 4 * QUERIES
    assert numbers(core(of(ROPE, apart)), "statistics_bytes") == [TOKENS * HEADS * 4]


def test_eager_attention_keeps_its_output_where_the_next_product_learns() -> None:
    eager = Kernels(attention="eager")
    assert kept(of(ROPE, eager)) == 2 * QUERIES + 2 * KEYS
    assert kept(of(ROPE, eager, FROZEN)) == QUERIES + 2 * KEYS


def test_half_turned_queries_leave_an_output_that_is_copied() -> None:
    sdpa = Kernels(attention="sdpa", rotary="eager", fused_qkv=False)
    half = replace(ROPE, rotary_fraction=0.5)
    assert kept(of(ROPE, sdpa)) == 2 * QUERIES + 2 * KEYS
    assert kept(of(half, sdpa)) == 3 * QUERIES + 2 * KEYS
    assert kept(of(half, sdpa, FROZEN)) == 2 * QUERIES + 2 * KEYS
    assert kept(of(half, replace(sdpa, rotary="fused"))) == 2 * QUERIES + 2 * KEYS


def test_keys_and_values_have_sizes_of_their_own() -> None:
    """Latent attention without ranks for queries: heads of 24 + 8 compare, heads of 40 are summed."""
    latent = replace(ROPE, kv_heads=16, latent_attention=LatentAttention(None, 32, 24, 8, 40))
    found = of(latent, Kernels(fused_qkv=False))
    assert kept(found) == TOKENS * HEADS * 2 * (32 + 40 + 32 + 40)
    assert kept(of(latent, Kernels(fused_qkv=True))) == kept(found)  # no projection of all three
    pairs = B * HEADS * S * (S + 1) / 2
    assert numbers(core(found), "forward_flops") == [2 * pairs * (32 + 40)]
    assert kept(of(latent, Kernels(fused_qkv=False, attention="eager"), FROZEN)) == TOKENS * HEADS * 2 * (32 + 32 + 40)


@pytest.mark.parametrize(("batch", "heads"), [(3, HEADS), (1, KV)])
def test_the_fallback_of_sdpa_computes_in_float32(batch: int, heads: int) -> None:
    """Copies of Q, K and V for all heads, where there are several sequences; the output where the product learns."""
    refused = replace(ROPE, math_attention=True)
    for learning, output in ((ALL, 2), (FROZEN, 0)):
        inputs = replace(graph(refused, learning, Kernels(attention="sdpa"), batch=batch, sequence=S, tp=TP))
        elements = 4 * (HEADS + heads) + HEADS * output + 4 * heads
        assert kept(inputs) == batch * S * SIZE * elements
        one = core(inputs)
        assert (one.kernel, one.score_temporary_bytes) == ("eager", 8.0)
        assert numbers(one, "statistics_bytes") == [batch * HEADS * S * S * 4]


@pytest.mark.parametrize(
    ("model", "kernels", "autocast", "score", "held"),
    [
        # The softmax in float32 and its cast; back, two gradients in float32, one of which takes the cast's place.
        (ROPE, Kernels(attention="eager"), False, 4 + 2, 8 - 2),
        (ROPE, Kernels(attention="eager", softmax="fused"), False, 2, 4),
        (replace(ROPE, soft_caps=("scores",)), Kernels(attention="eager"), False, 4 + 2 + 2, 6),
        # A mask, and the dropped probabilities in place of the cast ones; in 16 bit as Korthikanti et al. 2022 have it.
        (replace(ROPE, dropout=("attention",)), Kernels(attention="eager", dropout=True), False, 4 + 1 + 2, 12 - 7),
        (
            replace(ROPE, dropout=("attention",), narrow_softmax=True),
            Kernels(attention="eager", dropout=True),
            False,
            2 + 1 + 2,
            7 - 5,  # the product's gradient beside all that is kept
        ),
        (replace(ROPE, dropout=("attention",)), Kernels(attention="eager"), False, 4 + 2, 6),
        # Models without a float32 softmax; autocast has one all the same.
        (replace(ROPE, narrow_softmax=True), Kernels(attention="eager"), False, 2, 4),
        (replace(ROPE, narrow_softmax=True), Kernels(attention="eager"), True, 4 + 2, 6),
    ],
)
def test_bytes_of_a_score(model: ModelShape, kernels: Kernels, autocast: bool, score: float, held: float) -> None:
    one = core(of(model, kernels, autocast=autocast))
    assert numbers(one, "statistics_bytes") == [B * HEADS * S * S * score]
    assert one.score_temporary_bytes == held


@pytest.mark.parametrize(
    ("model", "softmax", "beside", "returned"),
    [
        # While the softmax runs: masked scores, their float32 copy and the result; of that 4 + 2 are kept in the end.
        (ROPE, "float32", 2 + 4 + 4 - 6, 0),
        (ROPE, "fused", 2 + 2 - 2, 0),
        (replace(ROPE, narrow_softmax=True), "float32", 2 + 2 - 2, 0),
        # BLOOM holds the product that is not masked, and each of its blocks returns the probabilities.
        (replace(ROPE, held_scores=("unmasked", "returned")), "float32", 2 + 2 + 4 + 4 - 6, 2),
        (replace(ROPE, held_scores=("returned",)), "float32", 4, 2),
    ],
)
def test_a_forward_holds_several_copies_of_the_scores(
    model: ModelShape, softmax: str, beside: float, returned: float
) -> None:
    one = core(of(model, Kernels(attention="eager", softmax=softmax)))
    scores = B * HEADS * S * S
    assert numbers(one, "forward_temporary_bytes", "returned_bytes") == [scores * beside, scores * returned]


def test_the_fallback_of_sdpa_returns_no_scores() -> None:
    refused = replace(ROPE, math_attention=True, held_scores=("unmasked", "returned"))
    one = core(of(refused, Kernels(attention="sdpa")))
    assert numbers(one, "forward_temporary_bytes", "returned_bytes") == [B * HEADS * S * S * 4, 0]


# Masks.

PADDED = Kernels(attention="sdpa", attention_mask="padded", fused_qkv=False)
WINDOWED = replace(ROPE, sliding_window=50, windowed_layers=3)


def masked(inputs: GraphInputs) -> dict[str, list[float] | None]:
    found = (op for op in layer_operators(inputs) if isinstance(op, Attention))
    return {op.name: None if op.masked is None else op.masked.tolist() for op in found}


def test_a_mask_is_given_for_padding_and_past_the_window() -> None:
    """transformers masking_utils.py, _ignore_causal_mask_sdpa: 70 tokens are longer than a window of 50, not of 71."""
    assert masked(of(WINDOWED, PADDED)) == {"attention": None, "windowed attention": [1.0]}
    assert masked(of(WINDOWED, PADDED, padded=np.array([0.4]))) == {"attention": [0.4], "windowed attention": [1.0]}
    longer = replace(WINDOWED, sliding_window=71)
    assert masked(of(longer, PADDED)) == {"attention": None, "windowed attention": None}
    assert masked(of(longer, PADDED, padded=np.array([0.4])))["windowed attention"] == [0.4]
    assert masked(of(replace(WINDOWED, sliding_window=70), PADDED))["windowed attention"] == [1.0]
    for kernels in (replace(PADDED, attention="flash"), replace(PADDED, attention_mask="none")):
        assert masked(of(WINDOWED, kernels, padded=np.array([0.4]))) == dict.fromkeys(masked(of(WINDOWED, PADDED)))
    prefix = replace(FROZEN, prefix=5)  # fewer queries than keys, which only a mask tells
    assert masked(of(ROPE, replace(PADDED, attention_mask="none"), prefix)) == {"attention": [1.0]}


def test_a_mask_is_written_out_and_has_no_groups_of_heads() -> None:
    """Of each sequence in the compute type, and keys and values for the 6 heads that share another's."""
    plain, given = of(ROPE, PADDED), of(ROPE, PADDED, padded=np.array([0.4]))
    assert kept(given) - kept(plain) == TOKENS * 6 * 2 * SIZE * 2
    assert numbers(core(given), "statistics_bytes")[0] == TOKENS * HEADS * 4 + B * S * S * 2
    repeats = replace(PADDED, repeats_kv=True)
    assert kept(of(ROPE, repeats, padded=np.array([0.4]))) == kept(of(ROPE, repeats))
    copies = named(given)["repeated keys and values"]
    share = 0.4 * TOKENS * (HEADS + KV) * 2 * SIZE * 2
    assert moved(copies) == pytest.approx([share, share, 2, 2])
    assert numbers(copies, "temporary_bytes", "saved_bytes") == [0, 0]
    whole = replace(ROPE, kv_heads=16)
    for inputs in (plain, of(whole, PADDED, padded=np.array([0.4]))):
        assert "repeated keys and values" not in named(inputs)
    # 3 of 4 layers are past their window, the other is padded in 40 % of the micro-batches.
    mixed = named(of(WINDOWED, PADDED, padded=np.array([0.4])))["repeated keys and values"]
    assert moved(mixed)[0] == pytest.approx(share / 0.4 * (3 + 0.4) / 4)
    assert mixed.layers == 4


def test_masks_are_made_once_for_all_layers() -> None:
    """One byte a pair for whole and for windowed attention, of each sequence that is padded in its own way.

    While one is made there are two conditions and their conjunction; of an encoder's window 64-bit distances.
    """
    pairs = S * S

    def made(model: ModelShape, kernels: Kernels = PADDED, **changes: object) -> list[float]:
        return [float(np.sum(side)) for side in mask_bytes(of(model, kernels, **changes))]

    padded = {"padded": np.array([0.4])}
    assert made(ROPE) == [0, 0]
    assert made(ROPE, **padded) == [3 * B * pairs, B * pairs]
    assert made(WINDOWED) == [3 * pairs, pairs]  # one mask serves all sequences
    assert made(WINDOWED, **padded) == [B * pairs + 3 * B * pairs, 2 * B * pairs]
    every = replace(WINDOWED, windowed_layers=4)
    assert made(every, **padded) == [3 * B * pairs, B * pairs]
    assert made(every, replace(PADDED, windows=False), **padded) == [0, 0]
    encoder = replace(every, bidirectional=True)
    assert made(encoder) == [16 * pairs, pairs]
    assert made(ROPE, replace(PADDED, attention="flash"), **padded) == [0, 0]


# Rotary positions, norms, gates, prefixes.


def test_queries_and_keys_are_turned() -> None:
    """One pass over both; or ten in ten kernels and twelve in eighteen back (transformers); or none of its own."""
    turned = QUERIES + KEYS
    assert moved(named(of(ROPE, Kernels()))["rotary"]) == [2 * turned, 2 * turned, 1, 1]
    assert moved(named(of(ROPE, Kernels(rotary="eager")))["rotary"]) == [10 * turned, 12 * turned, 10, 18]
    assert moved(named(of(ROPE, Kernels(rotary="in-attention")))["rotary"]) == [0, 0, 0, 0]
    quarter = replace(ROPE, rotary_fraction=0.25)
    assert moved(named(of(quarter, Kernels()))["rotary"])[0] == turned / 2
    assert "rotary" not in named(of(GPT, Kernels()))


def test_heads_of_keys_are_copied_where_there_are_fewer_than_ranks() -> None:
    assert kv_heads_per_rank(ROPE, np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [4, 2, 1, 1]


def test_norms_of_queries_and_keys_are_split_with_the_heads() -> None:
    op = named(of(replace(ROPE, norm="rmsnorm", qk_norm="perhead"), Kernels()))["qk norm"]
    assert numbers(op, "saved_bytes", "forward_bytes") == [
        TOKENS * 20 / TP * SIZE * 2, 2 * TOKENS * 20 / TP * SIZE * 2,
    ]  # fmt: skip


def test_a_gate_on_the_output_is_a_sigmoid_and_a_product() -> None:
    """Forward 2 and 3 passes; back, 3 and 5; both factors are kept; the query projection is twice as wide."""
    found = named(of(replace(ROPE, output_gate=True), Kernels(fused_qkv=False)))
    assert moved(found["output gate"]) == [5 * QUERIES, 8 * QUERIES, 2, 3]
    assert numbers(found["output gate"], "saved_bytes") == [2 * QUERIES]
    assert numbers(found["q"], "n") == [2 * 1024 / TP]


def test_keys_and_values_that_learn_stand_before_those_of_the_sequence() -> None:
    """30 positions of 2 heads of keys and values; joined keys are read and written, and sliced back."""
    plain, prefixed = of(ROPE, Kernels()), of(ROPE, Kernels(), replace(FROZEN, prefix=30))
    joined = named(prefixed)["prefix"]
    assert moved(joined) == [2 * 2 * KEYS, 2 * 2 * KEYS, 2, 4]
    assert isinstance(joined, MemoryBound)
    assert joined.adapter
    assert kept(prefixed) - kept(plain) == B * 30 * KV * 2 * SIZE * 2
    masked = of(ROPE, Kernels(attention="sdpa"), replace(FROZEN, prefix=30))
    assert numbers(core(masked), "statistics_bytes")[0] == TOKENS * HEADS * 4 + B * S * (S + 30) * 2
    repeated = B * (S + 30) * 6 * 2 * SIZE * 2
    assert kept(masked) - kept(of(ROPE, Kernels(attention="sdpa"), FROZEN)) == (
        repeated + B * 30 * KV * 2 * SIZE * 2
    )  # fmt: skip


def test_readers_of_one_input_keep_it_once_or_a_cast_each() -> None:
    apart, hidden = Kernels(fused_qkv=False), TOKENS * 1024 * 2
    for state, casts in ((2.0, 0), (4.0, hidden)):
        found = named(of(ROPE, apart, residual_element_bytes=state))
        assert [numbers(found[name], "saved_bytes")[0] for name in ("q", "k", "v")] == [hidden, casts, casts]
    assert [numbers(found[name], "n")[0] for name in ("q", "k", "v")] == [1024 / TP, 256 / TP, 256 / TP]


# Relative positions and encoders.


def test_an_encoder_attends_to_all_pairs_and_its_windows_lie_side_by_side() -> None:
    both_ways = replace(WINDOWED, bidirectional=True)
    found = named(of(both_ways, Kernels()))
    whole, windowed = found["attention"], found["windowed attention"]
    assert (whole.layers, windowed.layers) == (1, 3)
    assert (numbers(whole, "pairs"), numbers(windowed, "pairs")) == ([S * S], [S * 50])
    assert "windowed attention" not in named(of(both_ways, Kernels(windows=False)))


def test_biases_of_relative_positions_are_a_mask_of_every_head() -> None:
    biased = replace(ROPE, relative_buckets=32)
    assert numbers(core(of(biased, Kernels())), "statistics_bytes")[0] == TOKENS * HEADS * 4 + HEADS * S * S * 2


def test_disentangled_attention_compares_with_a_table_of_positions() -> None:
    """DeBERTa (arXiv:2006.03654, section 3.1): content to position and back, over 512 rows of the table.

    The table's rows pass both projections; tokens are compared with them in every head, and scores are gathered to
    pairs by 64-bit indices. Kept: copies of the rows for each sequence and term, scores against rows, indices, a mask
    of each sequence, scaled keys.
    """
    rows, e = 512, 2
    model = replace(GPT, disentangled_positions=rows, bidirectional=True)
    found, pairs = named(of(model, Kernels())), S * S
    projected, scored = found["position projections"], found["position scores"]
    assert isinstance(projected, Matmul)
    assert isinstance(scored, Matmul)
    assert numbers(projected, "m", "n", "k", "copies") == [rows, HEADS * SIZE, 1024, 2]
    assert numbers(projected, "saved_bytes") == [2 * B * HEADS * rows * SIZE * e]
    assert numbers(scored, "m", "n", "k", "copies", "saved_bytes") == [S, rows, SIZE, 2 * B * HEADS, 0]
    assert (projected.learns, scored.input_gradient) == (True, True)
    scores = B * HEADS * pairs * e
    gathers = found["position gathers"]
    assert moved(gathers) == [22 * scores, 26 * scores, 12, 12]
    against = 2 * B * HEADS * S * rows * e
    assert numbers(gathers, "saved_bytes") == [against + pairs * (2 * 8 + B) + TOKENS * HEADS * SIZE * e]
    assert numbers(gathers, "temporary_bytes") == [5 * scores + pairs * (8 + B * 4)]
    assert core(of(model, Kernels())).kernel == "eager"  # no fused kernel adds the terms
    assert "position scores" not in named(of(GPT, Kernels()))
    assert not named(of(model, Kernels(), FROZEN))["position projections"].learns  # type: ignore[attr-defined]


def test_cross_attention_reads_the_encoder_from_every_decoder_layer() -> None:
    """30 tokens of the decoder look at 70 of the encoder, without a mask or biases, in two of four layers."""
    model = replace(GPT, encoder_layers=2, relative_buckets=32)
    found = named(of(model, Kernels(), target_share=30 / 70, residual_element_bytes=4.0))
    one = found["cross attention"]
    assert isinstance(one, Attention)
    assert one.layers == 2
    assert numbers(one, "query", "key", "pairs", "batch") == pytest.approx([30, 70, 30 * 70, B])
    assert numbers(one, "statistics_bytes") == pytest.approx([B * 30 * HEADS * 4])
    target, source = B * 30, B * 70
    for name, rows, kept_bytes in (
        ("cross q", target, target * 1024 * 2),
        ("cross k", source, source * 1024 * 2),  # a cast of the one output for each
        ("cross v", source, source * 1024 * 2),
        ("cross output projection", target, 0),
    ):
        assert numbers(found[name], "m", "saved_bytes") == pytest.approx([rows, kept_bytes])
    narrow = named(of(model, Kernels(), target_share=30 / 70))
    assert numbers(narrow["cross k"], "saved_bytes") == [0]
    order = list(found)
    assert order.index("cross norm") < order.index("cross q") < order.index("cross residual")
    after = list(named(of(replace(model, post_norm=True), Kernels(), target_share=30 / 70)))
    assert after.index("cross norm") == after.index("cross residual") + 1


# Latent attention and its indexer.


def test_latents_are_normalised_and_projected_up() -> None:
    """DeepSeek-V2 (arXiv:2405.04434, section 2.1): ranks of 96 and 32, read by all heads, held whole on every rank."""
    latent = replace(ROPE, norm="rmsnorm", kv_heads=16, latent_attention=LatentAttention(96, 32, 24, 8, 40))
    found = named(of(latent, Kernels()))
    assert "q" not in found
    for name, n, k, kept_bytes in (
        ("q down", 96, 1024, TOKENS * 1024 * 2),
        ("q up", 16 * 32 / TP, 96, TOKENS * 96 * 2),
        ("kv down", 32 + 8, 1024, 0),
        ("kv up", 16 * (24 + 40) / TP, 32, TOKENS * 32 * 2),
        ("output projection", 1024, 16 * 40 / TP, 0),
    ):
        assert numbers(found[name], "m", "n", "k", "saved_bytes") == [TOKENS, n, k, kept_bytes]
    assert numbers(found["q latent norm"], "saved_bytes") == [TOKENS * 96 * 2]
    assert numbers(found["kv latent norm"], "saved_bytes") == [TOKENS * 32 * 2]
    whole = replace(latent, latent_attention=LatentAttention(None, 32, 24, 8, 40))
    assert {"q latent norm", "q up", "q down"}.isdisjoint(named(of(whole, Kernels())))


def test_an_indexer_ranks_all_keys_and_attention_works_on_the_chosen() -> None:
    """5 heads of 12 score every pair; of 70 keys a query attends to 20."""
    latent = replace(
        ROPE, kv_heads=16, latent_attention=LatentAttention(96, 32, 24, 8, 40), indexer=SparseIndexer(5, 12, 20)
    )
    found = named(of(latent, Kernels()))
    ranking, attention = found["indexer"], found["attention"]
    assert isinstance(ranking, Attention)
    assert isinstance(attention, Attention)
    causal = S * (S + 1) / 2
    assert numbers(ranking, "heads", "kv_heads", "pairs", "forward_flops") == [5, 1, causal, 2 * B * 5 * causal * 12]
    assert numbers(ranking, "saved_bytes", "statistics_bytes", "query", "key") == [0, 0, S, S]
    assert numbers(attention, "pairs") == [20 * 21 / 2 + 50 * 20]
    assert ranking.layers == attention.layers == 4
    for name, n, k in (("indexer q", 5 * 12, 96), ("indexer k", 12, 1024), ("indexer head weights", 5, 1024)):
        assert numbers(found[name], "n", "k", "saved_bytes") == [n, k, 0]


def test_an_indexer_scores_in_8_bit_and_selects() -> None:
    """Of each key it reads 12 bytes and their scales; scores are written once and read three times, 4 bytes each."""
    latent = replace(
        ROPE, kv_heads=16, latent_attention=LatentAttention(96, 32, 24, 8, 40), indexer=SparseIndexer(5, 12, 20)
    )
    found = named(of(latent, Kernels(attention="decode", cache="paged")))
    ranking, causal = found["indexer"], S * (S + 1) / 2
    assert isinstance(ranking, Attention)
    assert (ranking.kernel, ranking.narrow) == ("decode", True)
    queries_bytes = B * 5 * S * 12 * 2
    assert ranking.operand_bytes(2.0).tolist() == pytest.approx([queries_bytes + B * S * 12 * (1 + 4 / 128)])
    assert numbers(found["key selection"], "forward_bytes", "forward_launches") == [4 * 4 * B * causal, 1]
    assert numbers(found["indexer cast"], "forward_bytes") == [5.5 * B * S * (5 + 1) * 12 * 2]
    assert "indexer cast" not in named(of(latent, Kernels()))


def test_queries_that_pick_their_keys_from_a_cache_work_on_the_latent() -> None:
    """Kernels pad to 64 heads and to the 20 keys that each of 70 queries may pick, which it gathers.

    Keys are 32 + 8 wide, values are the latent part of them.
    """
    latent = replace(
        ROPE, kv_heads=16, latent_attention=LatentAttention(96, 32, 24, 8, 40), indexer=SparseIndexer(5, 12, 20)
    )
    one = core(of(latent, Kernels(cache="paged", sparse_heads=64.0)))
    assert (one.heads.tolist(), one.kv_heads.tolist()) == ([64], [1])
    assert (one.qk_head_dim, one.v_head_dim, one.values_in_keys) == (40, 32, True)
    assert (one.pairs.tolist(), one.gathers) == ([20 * S], True)
    assert one.gathered_bytes(2.0).tolist() == [B * 20 * S * 40 * 2]
    decoding = core(of(latent, Kernels(attention="decode", cache="paged", sparse_heads=64.0)))
    assert decoding.heads.tolist() == [64]
    unpadded = core(of(latent, Kernels(cache="in-attention")))
    assert (unpadded.heads.tolist(), unpadded.pairs.tolist()) == ([HEADS], [20 * 21 / 2 + 50 * 20])
    plain = core(of(latent, Kernels(sparse_heads=64.0)))
    assert (plain.heads.tolist(), plain.qk_head_dim, plain.values_in_keys) == ([HEADS], 32, False)
