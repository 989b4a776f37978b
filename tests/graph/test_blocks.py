"""Norms, residuals, casts of weights, embeddings, drawing tokens, launches, and the same graph for many layouts."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import CASTS, Expansion, GraphInputs, Learning, LowRank
from xe_sizer.graph.model import Experts, ModelShape
from xe_sizer.graph.operators import Attention, Collective, Kernels, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import (
    cross_bias_bytes,
    embedding_operators,
    head_operators,
    layer_operators,
    logits_per_rank,
    relative_bias_bytes,
    sampling_operators,
    sequence_operators,
)

ALL, FROZEN = Learning(True), Learning(False)
B, S, TP, H = 3, 40, 2, GPT.hidden
TOKENS = B * S
STATES = TOKENS * H * 2  # hidden states of all tokens in 16 bit [bytes]
RMS = replace(GPT, norm="rmsnorm")


def of(model: ModelShape, kernels: Kernels | None = None, learning: Learning = ALL, **changes: object) -> GraphInputs:
    return replace(graph(model, learning, kernels, batch=B, sequence=S, tp=TP), **changes)


def named(operators: tuple[Operator, ...]) -> dict[str, Operator]:
    return {op.name: op for op in operators}


def layer(*args: object, **changes: object) -> dict[str, Operator]:
    return named(layer_operators(of(*args, **changes)))  # type: ignore[arg-type]


def moved(op: Operator) -> tuple[float, ...]:
    """Bytes and launches of both directions, what is kept, and what the backward holds."""
    assert isinstance(op, MemoryBound)
    sides = (op.forward_bytes, op.backward_bytes, op.forward_launches, op.backward_launches)
    return tuple(float(np.sum(size)) for size in (*sides, op.saved_bytes, op.temporary_bytes))


def test_a_fused_norm_reads_and_writes_and_keeps_its_input() -> None:
    assert moved(layer(RMS)["input norm"]) == (2 * STATES, 3 * STATES, 1, 2, STATES, 2 * STATES)
    wide = layer(RMS, residual_element_bytes=4.0)["input norm"]
    assert moved(wide) == (4 * STATES, 6 * STATES, 1, 2, 2 * STATES, 4 * STATES)


@pytest.mark.parametrize(
    ("model", "changes", "kept"),
    [
        (RMS, {}, 4 + 2),  # float32, and the normalised value in the type of the state
        (RMS, {"learning": FROZEN}, 4),
        (RMS, {"learning": replace(FROZEN, norms=True)}, 4 + 2),
        (RMS, {"residual_element_bytes": 4.0}, 4 + 4),
        (replace(RMS, wide_norm=True), {}, 4 + 4),  # the weight is applied in float32
        (replace(GPT, wide_norm=True), {}, 2 * 4 + 4),  # and what is left of the mean twice (Cohere)
        (replace(RMS, norm="rmsnorm-t5"), {}, 4 + 2 + 2),  # the state itself besides, which is what is scaled
        (replace(RMS, norm="rmsnorm-t5"), {"learning": FROZEN}, 4 + 2),
        (replace(RMS, norm="rmsnorm-t5"), {"residual_element_bytes": 4.0}, 4 + 4),  # which needs no copy
        (GPT, {}, 2),  # layer norms are one kernel in every stack
        (GPT, {"autocast": True}, 4),  # which autocast runs in float32
        (replace(RMS, fused_norms=True), {}, 2),
        (replace(RMS, fused_norms=True), {"autocast": True}, 2),
    ],
)
def test_what_a_norm_that_is_written_out_keeps(model: ModelShape, changes: dict[str, object], kept: float) -> None:
    learning = changes.get("learning", ALL)
    op = layer(model, Kernels(norm="eager"), **{"learning": learning, **changes})["input norm"]
    assert moved(op)[4] == TOKENS * H * kept
    state = changes.get("residual_element_bytes", 2.0)
    passes = (18, 30) if kept >= 4 and not changes.get("autocast") else (2, 3)
    assert moved(op)[:2] == (passes[0] * TOKENS * H * state, passes[1] * TOKENS * H * state)  # type: ignore[operator]
    assert isinstance(op, MemoryBound)
    assert op.adapter is learning.norms  # type: ignore[attr-defined]


def test_norms_inside_a_block_read_what_linear_layers_return() -> None:
    """Heads' queries and keys do not learn with the norms of the hidden state."""
    found = layer(replace(RMS, qk_norm="perhead"), Kernels(), replace(FROZEN, norms=True), returned_element_bytes=4.0)
    inner = found["qk norm"]
    assert moved(inner)[0] == 2 * TOKENS * 2 * H / TP * 4
    assert isinstance(inner, MemoryBound)
    assert not inner.adapter


@pytest.mark.parametrize(("way", "passes", "launched"), [("apart", (3, 2), 1), ("in-norm", (2, 1), 0)])
def test_sums_with_the_residual(way: str, passes: tuple[float, float], launched: float) -> None:
    """Dropout before it reads and writes the output and a mask of one byte, which it keeps."""
    dropping = replace(GPT, dropout=("hidden",))
    plain = layer(dropping, Kernels(residual=way))["attention residual"]  # type: ignore[arg-type]
    assert moved(plain)[:5] == (passes[0] * STATES, passes[1] * STATES, launched, launched, 0)
    dropped = layer(dropping, Kernels(residual=way, dropout=True))["mlp residual"]  # type: ignore[arg-type]
    both = ((passes[0] + 2.5) * STATES, (passes[1] + 2.5) * STATES, launched + 1, launched + 1)
    assert moved(dropped)[:5] == (*both, TOKENS * H)


def test_weights_are_cast_and_their_gradients_added_up_once_a_micro_batch() -> None:
    """float32 weights: read 4, write 2; gradients 8 bytes an element of the rank's shard."""
    sizes = {"weight_forward_bytes": np.array([6.0]), "weight_backward_bytes": np.array([8.0])}
    shard = H * 4096 / TP
    assert moved(layer(GPT, **sizes)["up weight traffic"]) == (6 * shard, 8 * shard, 1, 1, 0, 0)
    assert "up weight traffic" not in layer(GPT)
    forward = {**sizes, "weight_backward_bytes": np.zeros(1)}
    assert moved(layer(GPT, **forward)["up weight traffic"])[:4] == (6 * shard, 0, 1, 0)
    backward = {**sizes, "weight_forward_bytes": np.zeros(1)}
    assert moved(layer(GPT, **backward)["up weight traffic"])[:4] == (0, 8 * shard, 0, 1)


def test_frozen_weights_in_few_bits_are_expanded() -> None:
    """Operands of the product in 8 bit move with its input and output, forward alone; casts of a module both ways."""
    shard, read, written = H * 4096 / TP, TOKENS * H, TOKENS * 4096 / TP
    eight = Expansion(launches=(3.0, 2.0), input_bytes=5.0, output_bytes=6.0)
    sizes = {"weight_backward_bytes": np.array([3.0]), "expansion": eight}
    forward, backward, *launched = moved(layer(GPT, None, FROZEN, **sizes)["up weight traffic"])
    assert (forward, backward) == (5 * read + 6 * written, 3 * shard)
    assert launched[:2] == [3, 2]
    only = layer(GPT, None, FROZEN, expansion=eight)["up weight traffic"]
    assert moved(only)[:4] == (5 * read + 6 * written, 0, 3, 0)
    casting = Expansion(cast_bytes=7.0)
    sizes = {"weight_forward_bytes": np.array([0.5]), "expansion": casting}
    forward, backward, *_ = moved(layer(GPT, None, FROZEN, **sizes)["up weight traffic"])
    assert (forward, backward) == (shard / 2 + 7 * (read + written), 7 * (read + written))
    keeping = layer(GPT, None, FROZEN, expansion=Expansion(keeps_input=True))["up"]
    assert (keeping.saved_bytes.tolist(), keeping.forward_temporary_bytes) == ([STATES], 0)


def test_products_that_keep_nothing_hold_input_and_output_while_they_run() -> None:
    op = layer(GPT, None, FROZEN)["up"]
    assert float(np.sum(op.forward_temporary_bytes)) == TOKENS * (H + 4096 / TP) * 2
    assert layer(GPT)["up"].forward_temporary_bytes == 0
    wasteful = layer(GPT, None, replace(FROZEN, frozen_gradients=True))["up"]
    assert isinstance(wasteful, Matmul)
    assert (wasteful.weight_gradient, wasteful.learns) == (True, False)


@pytest.mark.parametrize(("library", "recipe"), [("transformer-engine", "mxfp8"), ("torchao", "rowwise")])
@pytest.mark.parametrize("learns", [True, False])
def test_operands_are_narrowed_once_more_where_the_weight_learns(library: str, recipe: str, learns: bool) -> None:
    casts = CASTS[library][recipe]
    found = layer(GPT, None, Learning(learns), casts=casts)
    each = casts.operand + casts.again * learns
    shard, read, written = H * 4096 / TP, TOKENS * H, TOKENS * 4096 / TP
    forward, backward = casts.weight_forward * shard, casts.weight_backward * shard
    assert moved(found["up cast"]) == pytest.approx(
        (each * read + forward, each * written + backward, *casts.launches, 0, 0)
    )
    kept = TOKENS * H * (casts.kept_input or 2.0) * learns
    assert found["up"].saved_bytes.tolist() == pytest.approx([kept])
    head = named(head_operators(of(replace(GPT, embedding_size=512), None, Learning(learns), casts=casts)))
    assert "head projection cast" not in head  # stays 16 bit


# Embedding and head.


def test_rows_are_looked_up_and_their_gradient_scattered() -> None:
    """Tables of words and of positions; the dense gradient of both, over the tensor ranks."""
    tables = (GPT.vocab + GPT.learned_positions) * H
    lookup = embedding_operators(of(GPT))[0]
    assert moved(lookup)[:4] == (2 * 2 * STATES, 3 * STATES + tables / TP * 2, 2, 2)
    frozen = embedding_operators(of(GPT, None, FROZEN))[0]
    assert moved(frozen)[:4] == (2 * 2 * STATES, 0, 2, 0)
    saved = embedding_operators(of(GPT, None, replace(FROZEN, saved=("embedding",))))[0]
    assert moved(saved)[1] == moved(lookup)[1]
    dropping = replace(GPT, dropout=("embedding",))
    assert embedding_operators(of(dropping, Kernels(dropout=True)))[0].saved_bytes.tolist() == [TOKENS * H]


def test_narrow_rows_are_normalised_before_they_are_widened_in_encoders() -> None:
    """ELECTRA normalises rows of 256, OPT has none; both widen them to the hidden size."""
    narrow = replace(GPT, embedding_size=256, embedding_norm=True)
    for both_ways, width in ((True, 256), (False, H)):
        found = named(embedding_operators(of(replace(narrow, bidirectional=both_ways))))
        assert moved(found["embedding norm"])[4] == TOKENS * width * 2
        projection = found["embedding projection"]
        assert isinstance(projection, Matmul)
        assert (projection.m.tolist(), projection.k.tolist(), projection.n.tolist()) == ([TOKENS], [256], [H])
        assert projection.saved_bytes.tolist() == [TOKENS * 256 * 2]
    assert "embedding norm" not in named(embedding_operators(of(replace(narrow, embedding_norm=False))))


def test_both_halves_of_an_encoder_decoder_look_up_their_tokens() -> None:
    """40 tokens of the encoder and 10 of the decoder; the encoder's output is one tensor for all decoder layers."""
    halves = replace(GPT, encoder_layers=2, relative_buckets=32, learned_positions=0, dropout=("hidden",))
    inputs = of(halves, target_share=0.25)
    found = named(embedding_operators(inputs))
    assert moved(found["embedding"])[0] == pytest.approx(2 * STATES * 1.25)
    assert moved(found["encoder norm"])[4] == STATES
    assert moved(found["encoder output"])[:5] == (0, 2 * STATES, 0, 1, STATES)
    dropped = named(embedding_operators(replace(inputs, kernels=Kernels(dropout=True))))["encoder output"]
    assert moved(dropped)[4] == STATES + TOKENS * H
    wide = named(embedding_operators(replace(inputs, residual_element_bytes=4.0)))["encoder output"]
    assert moved(wide)[4] == 0  # each projection keeps a cast of its own
    frozen = named(embedding_operators(replace(inputs, learning=FROZEN)))["encoder output"]
    assert moved(frozen)[4] == 0
    bare = named(embedding_operators(replace(inputs, model=replace(halves, final_norm=False))))
    assert "encoder norm" not in bare
    biases = [op for op in embedding_operators(inputs) if op.name == "relative positions"]
    for op, length in zip(biases, (S, S / 4), strict=True):
        size = 16 / TP * length**2 * 2
        assert moved(op) == (2 * size, 3 * size, 3, 2, length**2 * 8, 2 * size)  # kept: the row of every pair
    given = named(embedding_operators(replace(inputs, learning=FROZEN)))["relative positions"]
    assert moved(given)[4] == 0
    assert cross_bias_bytes(inputs).tolist() == [16 / TP * S / 4 * S * 2]
    assert cross_bias_bytes(replace(inputs, returned_element_bytes=4.0)).tolist() == [16 / TP * S / 4 * S * 4]
    assert cross_bias_bytes(of(replace(halves, relative_buckets=0))).tolist() == [0]
    assert relative_bias_bytes(inputs).tolist() == [16 / TP * S * S * 2]
    assert relative_bias_bytes(replace(inputs, residual_element_bytes=4.0)).tolist() == [16 / TP * S * S * 4]
    assert relative_bias_bytes(of(GPT)).tolist() == [0]
    split = graph(halves, ALL, batch=B, sequence=S, cp=4)
    assert relative_bias_bytes(split).tolist() == [16 * S / 4 * S * 2]


def test_a_token_is_drawn_from_the_gathered_logits() -> None:
    """Logits of all ranks come together in 16 bit, and pass six kernels in float32."""
    found = named(sampling_operators(of(GPT)))
    logits = TOKENS * GPT.vocab
    gathered = found["logits"]
    assert isinstance(gathered, Collective)
    assert [(kind, size.tolist()) for kind, size in gathered.forward] == [("all_gather", [2 * logits])]
    assert gathered.backward == ()
    assert moved(found["sampling"])[:4] == (6 * 4 * logits, 0, 6, 0)
    head = found["head"]
    assert isinstance(head, Matmul)
    assert (head.m.tolist(), head.n.tolist(), head.k.tolist()) == ([TOKENS], [GPT.vocab / TP], [H])
    alone = named(sampling_operators(graph(GPT, ALL, sequence=S)))["logits"]
    assert not np.any(alone.forward[0][1])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("learning", "kept", "learns", "gradient"),
    [
        (ALL, 1, True, True),
        (FROZEN, 0, False, False),
        (replace(FROZEN, saved=("head",)), 1, True, True),
        (replace(FROZEN, frozen_gradients=True), 0, False, True),
        (Learning(False, {"head": LowRank(8)}, 2.0), 1, False, False),
        (Learning(False, {"head": LowRank(8)}, 4.0), 0, False, False),  # reads a copy
        (Learning(False, {"head": LowRank(8)}, 2.0, adapter_dropout=True), 0, False, False),
    ],
)
def test_the_head_keeps_its_input_where_something_learns_from_it(
    learning: Learning, kept: float, learns: bool, gradient: bool
) -> None:
    op = named(head_operators(of(GPT, None, learning)))["head"]
    assert isinstance(op, Matmul)
    assert (op.saved_bytes.tolist(), op.learns, op.weight_gradient) == ([kept * STATES], learns, gradient)


def test_a_transform_stands_before_the_head_of_masked_tokens() -> None:
    """BertPredictionHeadTransform: dense to the width of the embedding, GELU and a norm on what that returns."""
    model = replace(GPT, embedding_size=256, head_transform="biased")
    found = named(head_operators(of(model, returned_element_bytes=4.0)))
    transform, head = found["head transform"], found["head"]
    assert isinstance(transform, Matmul)
    assert isinstance(head, Matmul)
    assert (transform.n.tolist(), transform.saved_bytes.tolist()) == ([256], [STATES])
    made = TOKENS * 256 * 4
    assert moved(found["head activation"]) == (2 * made, 3 * made, 1, 1, made, 2 * made)
    assert moved(found["head norm"])[0] == 2 * made
    assert (head.k.tolist(), head.saved_bytes.tolist()) == ([256], [TOKENS * 256 * 2])


# The same graph for many layouts at once.

MANY = {
    "gpt": (GPT, Kernels(dropout=True)),
    "mixture": (replace(GPT, experts=Experts(8, 2, 512, shared_ffn=256)), Kernels(dispatch="to-all")),
    "sorted": (replace(GPT, experts=Experts(8, 2, 512, expert_bias=True, loop="split")), Kernels(experts="loop")),
    "latent": (REGISTRY.model("deepseek-v3"), Kernels(cache="paged", attention="decode")),
    "hybrid": (REGISTRY.model("nemotron-h-8b"), Kernels(mixer="copied")),
    "delta net": (REGISTRY.model("qwen3.5-397b-a17b"), Kernels()),
    "jamba": (REGISTRY.model("jamba-v0.1"), Kernels()),
    "t5": (REGISTRY.model("t5-base"), Kernels(attention="eager")),
    "deberta": (REGISTRY.model("deberta-v3-base"), Kernels()),
    "gemma": (REGISTRY.model("gemma-2-9b"), Kernels(attention="sdpa", attention_mask="padded", mlp="tiled")),
}


@pytest.mark.parametrize("case", MANY)
def test_many_layouts_at_once_are_each_as_alone(case: str) -> None:
    """Sizes of products have one entry a layout, and so do all others that depend on it."""
    model, kernels = MANY[case]
    model = model.with_layers(min(model.layers, 8))
    rows = [
        {"batch": 1, "sequence": 64, "tp": 1, "cp": 1, "ep": 1, "expert_tp": 1, "sequence_parallel": 0},
        {"batch": 2, "sequence": 96, "tp": 4, "cp": 2, "ep": 2, "expert_tp": 4, "sequence_parallel": 1},
        {"batch": 3, "sequence": 32, "tp": 2, "cp": 1, "ep": 4, "expert_tp": 1, "sequence_parallel": 0},
    ]
    one = graph(model, ALL, kernels)
    shared = {"padded": np.array([0.3]), "weight_forward_bytes": np.array([2.0])}
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    rank = replace(one.rank, past=5.0, **columns)
    together = replace(one, rank=rank, **{name: value * np.ones(3) for name, value in shared.items()})

    def every(inputs: GraphInputs) -> list[Operator]:
        built = (embedding_operators, layer_operators, head_operators, sampling_operators, sequence_operators)
        return [op for build in built for op in build(inputs)]

    whole = every(together)
    assert logits_per_rank(together).shape == (3,)
    for op in whole:
        if isinstance(op, Matmul):
            assert {op.m.shape, op.n.shape, op.k.shape, op.copies.shape} == {(3,)}
        elif isinstance(op, Attention):
            assert {op.heads.shape, op.kv_heads.shape, op.query.shape, op.pairs.shape} == {(3,)}
    for place, row in enumerate(rows):
        own = replace(one.rank, past=5.0, **{name: np.array([float(size)]) for name, size in row.items()})
        alone = every(replace(one, rank=own, **shared))
        for op, among in zip(alone, whole, strict=True):
            assert op.name == among.name
            for ours, theirs in zip(sizes_of(op), sizes_of(among), strict=True):
                np.testing.assert_allclose(ours, np.broadcast_to(theirs, (3,))[place], err_msg=op.name)


def test_graphs_are_the_same_where_all_arrays_of_their_inputs_are() -> None:
    """Arrays of the rank, of casts, of padding and of comparisons, by layout; numbers that all share are left out."""
    one = graph(GPT, ALL)
    two = {name: np.array([1.0, 2.0]) for name in ("batch", "sequence", "tp", "cp", "ep", "expert_tp")}
    rank = replace(one.rank, **two, sequence_parallel=np.zeros(2))
    inputs = replace(one, rank=rank, compared=(np.array([3.0, 4.0]), np.array([5.0, 6.0])))
    assert len(inputs.columns) == 7 + 2
    assert len(replace(inputs, padded=np.array([0.1, 0.2])).columns) == 7 + 2 + 1
    single = replace(one, padded=np.array([0.1]))
    assert len(single.columns) == 7 + 3
    with pytest.raises(AssertionError):
        _ = replace(inputs, padded=np.zeros(3)).columns


def sizes_of(op: Operator) -> list[float | np.ndarray]:
    """Every number and array of an operator, messages of collectives and products of scans among them."""
    found: list[float | np.ndarray] = []
    held = [getattr(op, name) for name in op.__struct_fields__]
    while held:
        value = held.pop()
        if isinstance(value, tuple):
            held += value
        elif isinstance(value, int | float | np.ndarray):
            found.append(value)
    return found
