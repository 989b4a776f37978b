"""Weights of a model: each with its sizes and place, and the numbers of them that a rank holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.model import CLASSES, NO_HEAD, NUM_CLASSES, REPLACED, VALUES, VOCABULARY
from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.model import (
        CompressedAttention,
        Experts,
        LatentAttention,
        LayerKind,
        ModelShape,
        SharedBlocks,
        StateSpace,
    )
    from xe_sizer.graph.operators import Array

# Weight tensors, and groups of them.

WeightGroups = tuple[tuple[float, tuple["Weight", ...]], ...]
"""How often a group of weights exists [-], and its weights."""
NORMS_WITH_BIAS = frozenset({"layernorm", "layernorm1p"})
NORMS_WITHOUT_WEIGHTS = frozenset({"layernorm-nonparam"})


class Weight(Immutable):
    """One weight tensor of one layer, or of the whole model.

    name     canonical: q, k, v, o, the same with cross_ before them, q_down, q_up, kv_down, kv_up, output_gate, o_down,
             entries, indexer_q, indexer_k, indexer_entries, indexer_head_weights, sinks, in, x, dt, decay_down,
             decay_up, mixer_gate_down, mixer_gate_up, out and the vectors of state-space mixers, own_q_down, own_q_up,
             the same of k and v, own_down, own_up, own_out of layers that share the others, streams, stream_down,
             stream_up, stream_shares, ngram_table, ngram_values, ngram_scales, gate, up, down, input_gate,
             input_projection, router, latent_down, latent_up, expert_gate, expert_up, expert_down, shared_gate,
             shared_expert_gate, shared_expert_up, shared_expert_down, embedding, position, token_type, layer_embedding,
             layer_inputs, relative_positions, embedding_in, embedding_out, head_transform, head, head_bias, pooler,
             classifier, and the norms (`*_norm`)
    module   embedding | norm | qkv | attention | output_projection | state_space | mlp | experts | router | head
    kind     linear | vector | embedding
    inputs   rows of the matrix [-]; 1 for a vector
    outputs  columns of the matrix, or elements of the vector [-]
    bias     elements of the bias [-]
    copies   experts [-]
    split    how tensor parallelism shards it: column | row | vocabulary | expert | replicated
    shards   most shards it can be split into [-]; further ranks hold copies (heads of keys and values); None: any
    sharing  layers of a kind over their sets of weights [-]: of what they have in common each layer counts a part
    adapter_sharing  the same of the adapters on it: 1 where every layer has its own [-]
    """

    name: str
    module: str
    kind: str
    inputs: int
    outputs: int
    bias: int = 0
    copies: int = 1
    split: str = "replicated"
    shards: int | None = None
    sharing: float = 1.0
    adapter_sharing: float = 1.0

    @property
    def parameters(self) -> float:
        """Elements of all copies, a layer's part of them [-]."""
        return self.matrix_elements + self.bias_elements

    @property
    def matrix_elements(self) -> float:
        """Elements of all copies without their biases, a layer's part of them [-]."""
        return self.copies * self.inputs * self.outputs / self.sharing

    @property
    def bias_elements(self) -> float:
        """Elements of the biases of all copies, a layer's part of them [-]."""
        return self.copies * self.bias / self.sharing

    def output_shards(self, tp: Array) -> Array:
        """Ranks that share the outputs of a column-parallel weight; further ranks hold copies [-]."""
        return tp if self.shards is None else np.minimum(tp, self.shards)

    def on_rank(self, matrix: float, bias: float, tp: Array, expert_ranks: Array) -> Array:
        """What one rank holds of a weight: of its elements, or of their bytes.

            held = (matrix + bias) / min(tp, shards)      column-parallel, or over the vocabulary
            held = matrix / tp + bias                     row-parallel: biases are added after the reduction
            held = (matrix + bias) / expert_ranks         experts
            held = matrix + bias                          replicated

        Parameters
        ----------
        matrix, bias : of all copies together [-] or [bytes]
        tp, expert_ranks : tensor-parallel ranks, and ranks among which the experts are divided, shape (layout,) [-]

        Returns
        -------
        ndarray of float, shape (layout,) [-] or [bytes]

        Source: Megatron-LM's column- and row-parallel layers (arXiv:1909.08053).
        """
        if self.split in ("column", "vocabulary"):
            return (matrix + bias) / self.output_shards(tp)
        if self.split == "row":
            return matrix / tp + bias
        if self.split == "expert":
            return (matrix + bias) / expert_ranks
        return (matrix + bias) * np.ones_like(tp)


def norm_weight(model: ModelShape, name: str, size: int) -> Weight:
    """A norm over `size` elements, with a bias or without any elements when the model's norms are so."""
    if model.norm in NORMS_WITHOUT_WEIGHTS:
        return Weight(name, "norm", "vector", 1, 0)
    return Weight(name, "norm", "vector", 1, size, bias=size if model.norm in NORMS_WITH_BIAS else 0)


def linear_weight(
    name: str, module: str, inputs: int, outputs: int, biased: bool, split: str, copies: int = 1
) -> Weight:
    """A matrix, with a bias as long as its outputs where it is biased."""
    return Weight(name, module, "linear", inputs, outputs, outputs if biased else 0, copies, split)


# All weight tensors of a model, and its parameter count.
#
# The names are the tensors that the reference implementations train, kept apart where a framework may fuse them
# (q, k and v; gate and up), because adapters and quantisation address them one by one.

# One norm: attention and MLP run side by side on the same input. Four: before and after both (Gemma 2).
LAYER_NORMS = {
    1: ("input_norm",),
    2: ("input_norm", "pre_mlp_norm"),
    4: ("input_norm", "post_attention_norm", "pre_mlp_norm", "post_mlp_norm"),
}
OWN_NORMS = ("post_shared_expert_norm", "pre_experts_norm", "post_experts_norm")
# Weights that an implementation may keep, and adapt, as one matrix.
HEAD = "head"
"""Name of the matrix of the vocabulary, as a target of adapters."""
FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


class ParameterCount(Immutable):
    """Parameters of a model [-]. `active`: those that work on one token, embeddings included.

    `layer_dense` and `layer_moe` are one layer with such an MLP (0 when the model has none of it). Modules that
    predict further tokens are no part of them, as in the reference implementations.
    """

    total: int
    active: int
    layer_dense: int
    layer_moe: int
    embedding: int
    head: int


@lru_cache(maxsize=1024)
def layer_weights(model: ModelShape, kind: LayerKind) -> tuple[Weight, ...]:
    """Build the weights of one layer of a kind.

    With cross-layer attention (`kv_layers`) only some layers have k and v; here is a layer that has them. What layers
    have in common counts in parts (`Weight.sharing`).
    """
    mixer: tuple[Weight, ...] = ()
    mlp: tuple[Weight, ...] = ()
    seen = model.seen_by(kind)
    if kind.attends:
        latent = seen.latent_attention
        mixer = (
            _latent_weights(seen, latent)
            if latent
            else _compressed_weights(seen, seen.compressed_attention)
            if seen.compressed_attention
            else _attention_weights(seen)
        )
    if kind.borrows:
        mixer = tuple(weight for weight in mixer if weight.name not in ("k", "v", "k_norm"))
    if kind.recurs and model.state_space:
        mixer += STATE_SPACE_WEIGHTS[model.state_space.kind](model, model.state_space)
    if kind.mlp:
        mlp = _expert_weights(model, model.experts) if kind.mlp == "experts" and model.experts else _mlp_weights(seen)
    doubled = model.doubled_input and kind.attends and model.norms_per_layer == 1
    read = model.hidden * (2 if doubled else 1)  # a drafter has its second norm among those of what it joins
    norms = [norm_weight(model, name, read) for name in LAYER_NORMS[model.norms_per_layer]]
    cross: tuple[Weight, ...] = ()  # the attention to the encoder's output has the projections of that to its own
    if kind.cross:
        norms.append(norm_weight(model, "cross_norm", model.hidden))
        own = (weight for weight in _attention_weights(model) if weight.name in ("q", "k", "v", "o"))
        cross = tuple(replace(weight, name=f"cross_{weight.name}") for weight in own)
    if kind.bare:
        norms = norms[1:]
    weights = (*_present(norms), *_stream_weights(model, kind), *mixer, *cross, *mlp, *_input_weights(model))
    if model.shared_blocks is None or kind.recurs:
        return weights
    layers = dict(model.layer_kinds)[kind]
    sharing = layers / min(model.shared_blocks.sets, layers)
    adapters = 1.0 if model.shared_blocks.tied else sharing
    common = (replace(weight, sharing=sharing, adapter_sharing=adapters) for weight in weights)
    return (*common, *_own_weights(model, kind, model.shared_blocks))


def _input_weights(model: ModelShape) -> Iterator[Weight]:
    """What gates and widens a layer's own embedding of a token, and the norm behind it."""
    if model.layer_embedding:
        size = model.layer_embedding.size
        yield linear_weight("input_gate", "mlp", model.hidden, size, False, "replicated")
        yield linear_weight("input_projection", "mlp", size, model.hidden, False, "replicated")
        yield norm_weight(model, "layer_input_norm", model.hidden)


def _own_weights(model: ModelShape, kind: LayerKind, shared: SharedBlocks) -> Iterator[Weight]:
    """What layers with shared weights have of their own (Zamba2Attention, Zamba2MLP and Zamba2HybridLayer)."""
    width = model.hidden * (2 if model.doubled_input else 1)
    if kind.attends and shared.attention_rank:
        for name, outputs in (("q", model.heads), ("k", model.kv_heads), ("v", model.kv_heads)):
            yield linear_weight(f"own_{name}_down", "qkv", width, shared.attention_rank, False, "replicated")
            yield linear_weight(
                f"own_{name}_up", "qkv", shared.attention_rank, outputs * model.head_dim, False, "column"
            )
    if kind.mlp and shared.mlp_rank:
        yield linear_weight("own_down", "mlp", model.hidden, shared.mlp_rank, False, "replicated")
        yield linear_weight("own_up", "mlp", shared.mlp_rank, model.ffn * (2 if model.gated else 1), False, "column")
    if kind.mlp and shared.projection:
        yield linear_weight("own_out", "mlp", model.hidden, model.hidden, False, "replicated")


@lru_cache(maxsize=1024)
def embedding_weights(model: ModelShape) -> tuple[Weight, ...]:
    """Token embedding, the other tables, the norm behind them, and the way into a layer of another width.

    Encoders add and normalise narrow rows before they widen them (ELECTRA), decoders wide ones (OPT). Of an
    encoder-decoder both halves have positions, norms and biases of relative positions of their own.
    """
    width = model.embedding_size or model.hidden
    summed, halves = width if model.bidirectional else model.hidden, 2 if model.encoder_layers else 1
    weights = [Weight("embedding", "embedding", "embedding", model.vocab, width, split="vocabulary")]
    if model.learned_positions:
        positions = Weight("position", "embedding", "embedding", model.learned_positions, summed)
        weights.append(replace(positions, copies=halves))
    if model.token_types:
        weights.append(Weight("token_type", "embedding", "embedding", model.token_types, summed))
    if model.relative_buckets:
        buckets = Weight("relative_positions", "attention", "vector", model.relative_buckets, model.heads)
        weights.append(replace(buckets, copies=halves, split="column"))
    if width != model.hidden:
        biased = model.bidirectional
        weights.append(linear_weight("embedding_in", "embedding", width, model.hidden, biased, "replicated"))
    if model.joined_width:  # of a drafter: norms on the states, and the product of them side by side
        weights.append(norm_weight(model, "joined_norm", model.joined_width))
        weights.append(linear_weight("joined", "embedding", model.joined_width, model.hidden, False, "replicated"))
    if model.embedding_norm:
        weights.append(replace(norm_weight(model, "embedding_norm", summed), copies=halves))
    weights += _ngram_weights(model)
    if own := model.layer_embedding:  # of all layers, and what the token's embedding says of them, normed for each
        rows = model.layers * own.size
        weights.append(Weight("layer_embedding", "embedding", "embedding", own.vocab, rows, split="vocabulary"))
        weights.append(linear_weight("layer_inputs", "embedding", model.hidden, rows, False, "replicated"))
        weights.append(norm_weight(model, "layer_inputs_norm", own.size))
    if model.disentangled_positions:
        weights.append(Weight("relative_table", "embedding", "embedding", model.disentangled_positions, model.hidden))
        weights.append(norm_weight(model, "relative_norm", model.hidden))
    return tuple(weights)


NGRAM_TABLE = "ngram_table"


def _ngram_weights(model: ModelShape) -> Iterator[Weight]:
    """Tables of n-grams and what turns their rows into keys of the residual streams and a value.

        elements beside the tables = (n + 1) rows x width x hidden + (2 or 3) n hidden + n hidden kernel, n streams
                                   = rows x width x hidden without a gate

    Source: Qwen4ExpTextPLELayer of transformers; Engram of DeepSeek-V4.1 (its reference implementation);
    NgramEmbedding of LongCat-Flash-Lite.
    """
    tables = model.ngram_tables
    if tables is None:
        return
    streams, layers = model.residual_streams * model.hidden * tables.gated, len(tables.rows)
    for rows in tables.rows:
        yield Weight(NGRAM_TABLE, "embedding", "embedding", rows, tables.width, split="vocabulary")
    values = linear_weight("ngram_values", "embedding", tables.joined, streams + model.hidden, False, "replicated")
    yield replace(values, copies=layers)
    if tables.gated:
        vectors = 2 + (1 + tables.conv_kernel) * (tables.conv_kernel > 0)
        yield Weight("ngram_scales", "norm", "vector", 1, vectors * streams, copies=layers)


@lru_cache(maxsize=1024)
def head_weights(model: ModelShape) -> tuple[Weight, ...]:
    """Final norm and what the job reads from the last layer: the vocabulary's logits, classes, a value, or nothing.

    A tied head uses the embedding's weight, so none is listed. The halves of an encoder-decoder have a norm each.
    """
    width = model.embedding_size or model.hidden
    halves = 2 if model.encoder_layers else 1
    final = replace(norm_weight(model, "final_norm", model.hidden), copies=halves)
    weights = list(_present((final, *_last_streams(model)))) if model.final_norm else []
    if model.head == CLASSES:
        # A dense layer on the first token, or on the mean of all, and the classes (RobertaClassificationHead).
        biased = model.head_transform != "unbiased"
        dense = linear_weight("pooler", "head", model.hidden, model.hidden, biased, "replicated")
        return (*weights, dense, linear_weight("classifier", "head", model.hidden, NUM_CLASSES, True, "replicated"))
    if model.head == VALUES:
        return (*weights, Weight("score", "head", "linear", model.hidden, 1))
    if model.head == REPLACED:
        # A dense layer and a value, on every token (ElectraDiscriminatorPredictions of transformers).
        dense = linear_weight("head_transform", "head", model.hidden, model.hidden, True, "replicated")
        return (*weights, dense, Weight("score", "head", "linear", model.hidden, 1, 1))
    if model.head == NO_HEAD:
        return tuple(weights)
    if model.head_transform:
        biased = model.head_transform == "biased"
        weights.append(linear_weight("head_transform", "head", model.hidden, width, biased, "replicated"))
        weights.append(norm_weight(model, "head_norm", width))
    elif width != model.hidden:
        weights.append(Weight("embedding_out", "head", "linear", model.hidden, width))
    bias = model.logits if model.head_bias else 0
    if not model.tied_embeddings:
        weights.append(Weight("head", "head", "linear", width, model.logits, bias, split="vocabulary"))
    elif bias:
        weights.append(Weight("head_bias", "head", "vector", 1, bias, split="vocabulary"))
    return tuple(weights)


def generator_weights(generator: ModelShape) -> WeightGroups:
    """Weights of a generator beside the tables and the norm of the embedding, which are those of its discriminator.

        weights = way in from the rows of the embedding, head, layers

    Parameters
    ----------
    generator : its shape, as a model of its own

    Returns
    -------
    tuple of (how often a group of weights exists, its weights) [-]

    Source: google-research/electra modeling.py, BertModel: all but `embeddings_project` is in a scope of both.
    """
    own = tuple(weight for weight in embedding_weights(generator) if weight.name == "embedding_in")
    layers = tuple((float(count), layer_weights(generator, kind)) for kind, count in generator.layer_kinds)
    return ((1.0, (*own, *head_weights(generator))), *layers)


def count_parameters(model: ModelShape) -> ParameterCount:
    """Parameters by part: sums over the weights of the model.

        total = embedding + head + dense layers + MoE layers - k and v of the layers that borrow a neighbour's
        active = total - (experts - experts per token) x parameters of one expert x MoE layers
                 - rows of n-grams that a token does not read

    Parameters
    ----------
    model : shape of the model

    Returns
    -------
    ParameterCount [-]

    Source: counts of the reference implementations, which the profiles of models state and the loader checks.
    """
    layers = [(kind, count, layer_weights(model, kind)) for kind, count in model.layer_kinds]
    embedding, head = _sum(embedding_weights(model)), _sum(head_weights(model))
    total = embedding + head + sum(count * _sum(weights) for _, count, weights in layers)
    if model.kv_layers is not None:
        shared = (weight for weight in layers[0][2] if weight.name in ("k", "v"))
        total -= (model.layers - model.kv_layers) * _sum(shared)
    idle = 0.0
    if model.experts:
        experts = sum(count * _sum(w for w in weights if w.split == "expert") for _, count, weights in layers)
        idle = experts / model.experts.count * (model.experts.count - model.experts.per_token)
    if model.ngram_tables:
        tables = model.ngram_tables
        idle += (sum(tables.rows) - len(tables.rows) * tables.lookups) * tables.width
    dense, moe = (next((_sum(w) for kind, _, w in layers if kind.mlp == mlp), 0.0) for mlp in ("dense", "experts"))
    return ParameterCount(*(round(size) for size in (total, total - idle, dense, moe, embedding, head)))


def count_tensors(model: ModelShape) -> int:
    """Tensors of a checkpoint, in which every expert has its own.

        tensors = sum over weights of copies x (1, or 2 with a bias), in all layers, the embedding and the head

    Parameters
    ----------
    model : shape of the model

    Returns
    -------
    int [-]

    Source: state dictionaries of the reference implementations.
    """
    layers = sum(count * _tensors(layer_weights(model, kind)) for kind, count in model.layer_kinds)
    return layers + _tensors(embedding_weights(model)) + _tensors(head_weights(model))


def _tensors(weights: Iterable[Weight]) -> int:
    return sum(weight.copies * (1 + (weight.bias > 0)) for weight in weights)


def _sum(weights: Iterable[Weight]) -> float:
    return sum(weight.parameters for weight in weights)


def head_matrix(model: ModelShape) -> Weight | None:
    """The matrix of the vocabulary as an adapter sees it, tied or not; None where the job reads something else."""
    if model.head != VOCABULARY:
        return None
    width = model.embedding_size or model.hidden
    return Weight(HEAD, "head", "linear", width, model.logits, split="vocabulary")


def adapted_weights(target: str) -> tuple[str, ...]:
    """Names of the weights that one adapter sits on: three for a fused `qkv`, two for `gate_up`, else one."""
    return FUSED.get(target, (target,))


def _present(weights: Iterable[Weight]) -> tuple[Weight, ...]:
    return tuple(weight for weight in weights if weight.parameters)


def _attention_weights(model: ModelShape) -> tuple[Weight, ...]:
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    width = model.hidden * (2 if model.doubled_input else 1)
    weights = [
        linear_weight("q", "qkv", width, query * (2 if model.output_gate else 1), model.qkv_bias, "column"),
        replace(linear_weight("k", "qkv", width, key, model.qkv_bias, "column"), shards=model.kv_heads),
    ]
    if not model.values_are_keys:
        weights.append(replace(linear_weight("v", "qkv", width, key, model.qkv_bias, "column"), shards=model.kv_heads))
    if model.qk_norm:
        per_head = model.qk_norm == "perhead"
        weights.append(Weight("q_norm", "norm", "vector", 1, model.head_dim if per_head else query))
        weights.append(Weight("k_norm", "norm", "vector", 1, model.head_dim if per_head else key))
    if model.attention_sinks:
        weights.append(Weight("sinks", "attention", "vector", 1, model.heads, split="column"))
    output = linear_weight("o", "output_projection", query, model.hidden, model.output_bias, "row")
    return (*weights, *_indexer_weights(model, model.hidden), output)


def _latent_weights(model: ModelShape, latent: LatentAttention) -> tuple[Weight, ...]:
    """Projections of multi-head latent attention: down to the ranks (on every GPU), then up to the heads."""
    query = model.heads * model.qk_head_dim
    if latent.query_rank:
        weights = [
            linear_weight("q_down", "qkv", model.hidden, latent.query_rank, model.qkv_bias, "replicated"),
            norm_weight(model, "q_down_norm", latent.query_rank),
            _query_up(model, latent, latent.query_rank),
        ]
    else:
        weights = [linear_weight("q", "qkv", model.hidden, query, model.qkv_bias, "column")]
    compressed = latent.kv_rank + latent.qk_rope_head_dim
    expanded = model.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    weights += [
        linear_weight("kv_down", "qkv", model.hidden, compressed, model.qkv_bias, "replicated"),
        norm_weight(model, "kv_down_norm", latent.kv_rank),
        linear_weight("kv_up", "qkv", latent.kv_rank, expanded, False, "column"),
    ]
    mixed = model.heads * latent.v_head_dim
    if model.attention_sinks:
        weights.append(Weight("sinks", "attention", "vector", 1, model.heads, split="column"))
    if model.output_gate and not latent.joint_gate:
        weights.append(linear_weight("output_gate", "qkv", model.hidden, mixed, False, "column"))
    output = linear_weight("o", "output_projection", mixed, model.hidden, model.output_bias, "row")
    return (*weights, *_indexer_weights(model, latent.query_rank or model.hidden), output)


def _query_up(model: ModelShape, latent: LatentAttention, rank: int) -> Weight:
    """From the low-rank query to the heads, together with the gate of their outputs where one product makes both."""
    if latent.joint_gate:
        outputs = model.heads * (model.qk_head_dim + latent.v_head_dim)
        return linear_weight("q_up", "qkv", 2 * rank, outputs, False, "column")
    return linear_weight("q_up", "qkv", rank, model.heads * model.qk_head_dim, False, "column")


def _indexer_weights(model: ModelShape, query_width: int) -> tuple[Weight, ...]:
    """Scorer of sparse attention, which picks the tokens that a query attends to.

    One key per token serves all heads, and every rank has it. Heads whose scores are summed are needed whole; others
    rank for their own group of query heads, on the ranks that have those. Where heads are weighted per token, the key
    has a layer norm with bias; else queries and key have a norm of RMS each.

    query_width : of what its queries are projected from, the low-rank query or the hidden state [-]

    Source: reference implementation of DeepSeek-V3.2 (Indexer); MiniMaxM3VLIndexer of transformers, and of vLLM and
    TensorRT-LLM (index_q_proj) for the ranks.
    """
    indexer = model.indexer
    if indexer is None or not indexer.weights:
        return ()
    heads, size = indexer.heads, indexer.head_dim
    query = linear_weight("indexer_q", "qkv", query_width, heads * size, False, "replicated")
    key = linear_weight("indexer_k", "qkv", model.hidden, size, False, "replicated")
    if indexer.scoring.weighted:
        return (
            query,
            key,
            Weight("indexer_k_norm", "norm", "vector", 1, size, bias=size),
            linear_weight("indexer_head_weights", "qkv", model.hidden, heads, False, "replicated"),
        )
    return (
        query if indexer.scoring.summed else replace(query, split="column", shards=heads),
        key,
        Weight("indexer_q_norm", "norm", "vector", 1, size),
        Weight("indexer_k_norm", "norm", "vector", 1, size),
    )


def _compressed_weights(model: ModelShape, compressed: CompressedAttention) -> tuple[Weight, ...]:
    """Low-rank queries, one head of keys that are values, entries of many tokens, and the output by groups of heads.

    An entry is a sum of projected tokens, weighed by a second projection and by their places; those of the sparse kind
    are summed up from two runs of tokens. Source: DeepseekV4Attention and its compressors of transformers.
    """
    query, size = model.heads * model.head_dim, model.head_dim
    weights = [
        linear_weight("q_down", "qkv", model.hidden, compressed.query_rank, False, "replicated"),
        norm_weight(model, "q_down_norm", compressed.query_rank),
        linear_weight("q_up", "qkv", compressed.query_rank, query, False, "column"),
        linear_weight("k", "qkv", model.hidden, size, False, "replicated"),
        norm_weight(model, "k_norm", size),
        Weight("sinks", "attention", "vector", 1, model.heads, split="column"),
    ]
    made = compressed.tokens > 0 and not compressed.lent
    if made:
        weights += _entry_weights(model, compressed, "entries", size)
    if compressed.tokens and model.indexer and model.indexer.own:
        own, heads = model.indexer.head_dim, model.indexer.heads
        weights += _entry_weights(model, compressed, "indexer_entries", own) if made else ()
        weights.append(linear_weight("indexer_q", "qkv", compressed.query_rank, heads * own, False, "replicated"))
        weights.append(linear_weight("indexer_head_weights", "qkv", model.hidden, heads, False, "replicated"))
    mixed = compressed.output_groups * compressed.output_rank
    in_group = query // compressed.output_groups
    weights.append(linear_weight("o_down", "output_projection", in_group, mixed, False, "column"))
    weights.append(linear_weight("o", "output_projection", mixed, model.hidden, False, "row"))
    return tuple(weights)


def _entry_weights(model: ModelShape, compressed: CompressedAttention, name: str, size: int) -> Iterator[Weight]:
    """What sums up tokens in entries: values and their weights, a bias of each place, and a norm."""
    runs = compressed.runs
    yield linear_weight(name, "qkv", model.hidden, 2 * runs * size, False, "replicated")
    yield Weight(f"{name}_places", "attention", "vector", 1, compressed.tokens * runs * size)
    yield norm_weight(model, f"{name}_norm", size)


def _stream_weights(model: ModelShape, kind: LayerKind) -> Iterator[Weight]:
    """What mixes the residual streams, before and behind each block of a layer.

        elements = (2 + n) n (n hidden + 1) + 3,  n streams: weights of what goes in, what comes out and what stays
        elements = n hidden (1 + 2 rank + n)      with `stream_rank`: a norm, a product through it, shares of the output

    Source: DeepseekV4HyperConnection of transformers (manifold-constrained hyper-connections, arXiv:2512.24880);
    Qwen4ExpTextGatedResidual.
    """
    streams = model.residual_streams
    blocks = (kind.mixer is not None) + (kind.mlp is not None)
    if model.stream_rank:
        shares = linear_weight("stream_shares", "norm", streams * model.hidden, streams, False, "replicated")
        for weight in (*_through_rank(model), shares):
            yield replace(weight, copies=blocks)
    elif streams > 1:
        mixed = (2 + streams) * streams
        yield Weight("streams", "norm", "vector", 1, mixed * (streams * model.hidden + 1) + 3, copies=blocks)


def _through_rank(model: ModelShape) -> Iterator[Weight]:
    """A norm on each residual stream, of which the block's own is one, and two matrices that weigh what it reads."""
    width = model.residual_streams * model.hidden
    yield Weight("stream_norm", "norm", "vector", 1, width - model.hidden)
    yield linear_weight("stream_down", "norm", width, model.stream_rank, False, "replicated")
    yield linear_weight("stream_up", "norm", model.stream_rank, width, False, "replicated")


def _last_streams(model: ModelShape) -> Iterator[Weight]:
    """What sums up the residual streams before the last norm (DeepseekV4HyperHead of transformers)."""
    streams = model.residual_streams
    if model.stream_rank:
        yield from _through_rank(model)
    elif streams > 1:
        yield Weight("streams", "norm", "vector", 1, streams * streams * model.hidden + streams + 1)


def _mlp_weights(model: ModelShape) -> tuple[Weight, ...]:
    ffn, bias = model.ffn, model.mlp_bias
    gate = (linear_weight("gate", "mlp", model.hidden, ffn, bias, "column"),) if model.gated else ()
    return (
        *gate,
        linear_weight("up", "mlp", model.hidden, ffn, bias, "column"),
        linear_weight("down", "mlp", ffn, model.hidden, bias, "row"),
    )


def _expert_weights(model: ModelShape, experts: Experts) -> tuple[Weight, ...]:
    """Router and experts; latent ones work in a narrower space that all tokens are projected to and from."""
    hidden, ffn, bias, count = model.hidden, experts.ffn, experts.expert_bias, experts.count
    width = experts.latent or hidden
    projections: tuple[Weight, ...] = ()
    if experts.latent:
        projections = (
            linear_weight("latent_down", "experts", hidden, experts.latent, False, "replicated"),
            linear_weight("latent_up", "experts", experts.latent, hidden, False, "replicated"),
        )
    gate = (linear_weight("expert_gate", "experts", width, ffn, bias, "expert", count),) if model.gated else ()
    return (
        linear_weight("router", "router", hidden, count, experts.router_bias, "replicated"),
        *(_own_norms(model, experts) if experts.own_norms else ()),
        *projections,
        *gate,
        linear_weight("expert_up", "experts", width, ffn, bias, "expert", count),
        linear_weight("expert_down", "experts", ffn, width, bias, "expert", count),
        *_shared_expert_weights(model, experts),
    )


def _own_norms(model: ModelShape, experts: Experts) -> Iterator[Weight]:
    """Norms around routed and shared experts, and the scales of the router's input and of each expert's output."""
    for name in OWN_NORMS:
        yield norm_weight(model, name, model.hidden)
    yield Weight("router_scale", "router", "vector", 1, model.hidden)
    yield Weight("expert_scale", "router", "vector", 1, experts.count)


def _shared_expert_weights(model: ModelShape, experts: Experts) -> tuple[Weight, ...]:
    """The experts that see every token, taken as one of their summed size, and the scalar gate of Qwen's."""
    hidden, ffn = model.hidden, experts.shared_ffn
    if not ffn:
        return ()
    scalar = linear_weight("shared_gate", "router", hidden, 1, False, "replicated")
    gate = (linear_weight("shared_expert_gate", "mlp", hidden, ffn, False, "column"),) if model.gated else ()
    return (
        *((scalar,) if experts.shared_gate else ()),
        *gate,
        linear_weight("shared_expert_up", "mlp", hidden, ffn, False, "column"),
        linear_weight("shared_expert_down", "mlp", ffn, hidden, False, "row"),
    )


def _vector(name: str, elements: int, bias: int = 0) -> Weight:
    return Weight(name, "state_space", "vector", 1, elements, bias, split="column")


def _mixer(name: str, inputs: int, outputs: int, split: str, biased: bool = False) -> Weight:
    return linear_weight(name, "state_space", inputs, outputs, biased, split)


def _mamba_1_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """Reference implementation of mamba-ssm; Jamba adds norms on step size, input and output."""
    extra = (space.dt_rank, space.state, space.state) if space.inner_norms else ()
    return (
        _mixer("in", model.hidden, 2 * space.inner, "column"),
        _vector("conv", space.inner * space.conv_kernel, space.inner),
        _mixer("x", space.inner, space.dt_rank + 2 * space.state, "row"),
        _mixer("dt", space.dt_rank, space.inner, "column", biased=True),
        _vector("decay", space.inner * space.state),
        _vector("skip", space.inner),
        *(Weight(f"{name}_norm", "norm", "vector", 1, size) for name, size in zip("dbc", extra, strict=False)),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _mamba_2_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """Reference implementation of mamba-ssm: one projection yields gate, values, input, output and step size."""
    return (
        _mixer("in", model.hidden, space.inner + space.mixed_channels + space.heads, "column"),
        _vector("conv", space.mixed_channels * space.conv_kernel, space.mixed_channels),
        _vector("dt_bias", space.heads),
        _vector("decay", space.heads),
        _vector("skip", space.heads),
        *((_vector("gate_norm", space.inner),) if space.gate_norm else ()),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _lightning_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """MiniMax in transformers: queries, keys, values and a gate; each head decays at a rate that is no parameter."""
    return (
        _mixer("in", model.hidden, space.mixed_channels + space.inner, "column"),
        _vector("gate_norm", space.inner),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _delta_net_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """Qwen3-Next in transformers: queries, keys, values and gate in one projection, decay and step in another."""
    return (
        _mixer("in", model.hidden, space.inner + space.mixed_channels, "column"),
        _mixer("dt", model.hidden, 2 * space.heads, "column"),
        _vector("conv", space.mixed_channels * space.conv_kernel),
        _vector("decay", space.heads),
        _vector("skip", space.heads),
        Weight("gate_norm", "norm", "vector", 1, space.head_dim),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _kimi_delta_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """Kimi Linear in transformers: a decay of every channel, and a gate, each through a narrow width or at once."""
    gate = 0 if space.gate_rank else space.inner
    decay = 0 if space.decay_rank else space.inner
    return (
        _mixer("in", model.hidden, space.mixed_channels + gate + decay, "column"),
        _mixer("dt", model.hidden, space.heads, "column"),
        *_narrow(model, "decay", space.decay_rank, space.inner),
        *_narrow(model, "mixer_gate", space.gate_rank, space.inner),
        _vector("conv", space.mixed_channels * space.conv_kernel),
        _vector("decay", space.heads),
        _vector("dt_bias", space.inner),
        Weight("gate_norm", "norm", "vector", 1, space.head_dim),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _short_convolution_weights(model: ModelShape, space: StateSpace) -> tuple[Weight, ...]:
    """LFM2 in transformers: one projection yields the values and the gates before and behind the convolution."""
    return (
        _mixer("in", model.hidden, 3 * space.inner, "column"),
        _vector("conv", space.inner * space.conv_kernel),
        _mixer("out", space.inner, model.hidden, "row"),
    )


def _narrow(model: ModelShape, name: str, rank: int, outputs: int) -> Iterator[Weight]:
    """Two products through a narrow width; none where there is no such width."""
    if rank:
        yield _mixer(f"{name}_down", model.hidden, rank, "replicated")
        yield _mixer(f"{name}_up", rank, outputs, "column")


STATE_SPACE_WEIGHTS = {
    "mamba-1": _mamba_1_weights,
    "mamba-2": _mamba_2_weights,
    "gated-delta-net": _delta_net_weights,
    "kimi-delta-attention": _kimi_delta_weights,
    "lightning-attention": _lightning_weights,
    "short-convolution": _short_convolution_weights,
}
