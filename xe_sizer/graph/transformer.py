"""A model's layers as operators of one rank and one micro-batch.

Per layer, in order: norm, QKV, rotary, attention, output projection (or a state-space mixer), residual, norm, MLP or
experts, residual; with the collectives of tensor, context and expert parallelism between them. What autograd saves is
stated per operator, following what the eager Hugging Face modules and Megatron-LM keep (Korthikanti et al. 2022,
arXiv:2205.05198, section 4, for the fused and sharded variants).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.adapters import MASK, head_adapters
from xe_sizer.graph.attention import attention_core, attention_half
from xe_sizer.graph.building_blocks import beside, linear, memory_bound, norm
from xe_sizer.graph.cross_attention import cross_attention
from xe_sizer.graph.exchanges import enter_parallel, exchange, leave_parallel
from xe_sizer.graph.heads import loss_operator, pooled_logits, pooled_operators
from xe_sizer.graph.inputs import Block
from xe_sizer.graph.mlp import PLAIN_PASSES, experts_half, mlp_half
from xe_sizer.graph.model import MASKED, OVER_VOCABULARY
from xe_sizer.graph.operators import Matmul, MemoryBound, as_array
from xe_sizer.graph.parameters import embedding_weights, head_weights, layer_weights
from xe_sizer.graph.selective import with_recomputation
from xe_sizer.graph.state_space import scan, state_space_half
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import LayerKind
    from xe_sizer.graph.operators import Array, Operator

# Rows are read and written; the scatter reads the gradient, and reads and writes the rows that it adds to.
LOOKUP_PASSES, SCATTER_PASSES = 2.0, 3.0
# Softmax, sort or top-k and the draw, over float32 logits.
SAMPLING_PASSES, SAMPLING_LAUNCHES = 6.0, 6.0


def layer_kinds(inputs: GraphInputs) -> tuple[tuple[float, tuple[Operator, ...]], ...]:
    """The kinds of layer that the model mixes, each as its operators in forward order.

        operators = norm, mixer, residual, norm, MLP or experts, residual; with the collectives between them

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    tuple of (number of layers [-], operators); sizes and bytes broadcast to shape (rank shape,)

    Source: reference implementations in Hugging Face transformers; Korthikanti et al. 2022 (arXiv:2205.05198, section
    4) for the fused and sharded variants.
    """
    model = inputs.model
    kinds = []
    for kind, layers in model.layer_kinds:
        weights = {weight.name: weight for weight in layer_weights(model, kind)}
        block = Block(inputs.seen_by(kind), weights, float(layers))
        crossed = cross_attention(block, inputs.rank) if kind.cross else ()
        operators = (*_mixer(block, kind), *crossed, *_mlp(block, kind))
        kinds.append((float(layers), with_recomputation(operators, block.inputs)))
    return tuple(kinds)


def _mixer(block: Block, kind: LayerKind) -> Iterator[Operator]:
    if kind.attends:
        yield from attention_half(block, not (kind.bare or block.inputs.model.post_norm))
    elif kind.mixer and block.inputs.model.state_space:
        yield from state_space_half(block, block.inputs.model.state_space)


def _mlp(block: Block, kind: LayerKind) -> Iterator[Operator]:
    model = block.inputs.model
    own_norm = (model.norms_per_layer >= 2 or kind.mixer is None) and not model.post_norm
    if kind.mlp == "experts" and block.inputs.model.experts:
        yield from experts_half(block, block.inputs.model.experts)
    elif kind.mlp:
        yield from mlp_half(block, own_norm)


def layer_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Operators of all layers of the model, each with the number of layers that contain it.

        operators = those of each kind of layer, layers = how many are of the kind

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: `layer_kinds`.
    """
    return tuple(op for _, operators in layer_kinds(inputs) for op in operators)


def sequence_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Operators of all layers that depend on whose tokens they work on: attention, its cache, scans.

        operators = attention core or scan of each kind of layer, layers = how many are of the kind

    Parameters
    ----------
    inputs : model, rank, kernels; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: engines batch the tokens of all sequences but for attention, scans and the cache (arXiv:2309.06180).
    """
    operators: list[Operator] = []
    for kind, layers in inputs.model.layer_kinds:
        block = Block(inputs.seen_by(kind), {}, float(layers))
        if kind.attends:
            operators += attention_core(block)
        elif kind.mixer and inputs.model.state_space:
            operators.append(scan(block, inputs.model.state_space))
    return tuple(operators)


def embedding_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Token (and position) lookup; the backward of a learning table scatters into a dense gradient.

        forward bytes = LOOKUP_PASSES x tables x resident tokens x hidden x element
        backward bytes = SCATTER_PASSES x resident tokens x hidden x element + table elements / tp x element

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Megatron-LM's vocabulary-parallel embedding (arXiv:1909.08053): each rank looks up its part, rows are summed
    over the ranks; own derivation of the bytes from what the kernels read and write.
    """
    rank, model, learns = inputs.rank, inputs.model, float(inputs.learning.trains("embedding"))
    weights = {weight.name: weight for weight in embedding_weights(model)}
    tables = [weight for weight in weights.values() if weight.kind == "embedding"]
    resident, tokens = rank.resident_tokens, rank.tokens
    if model.encoder_layers:
        resident, tokens = resident + inputs.decoding.rank.resident_tokens, tokens + inputs.decoding.rank.tokens
    rows = resident * model.hidden * inputs.element_bytes
    gradient = sum(table.parameters for table in tables) / rank.tp * inputs.element_bytes
    lookup = MemoryBound(
        name="embedding",
        module="embedding",
        layers=1.0,
        saved_bytes=inputs.drops("embedding") * MASK * resident * model.hidden,
        forward_bytes=LOOKUP_PASSES * rows * len(tables),
        backward_bytes=(SCATTER_PASSES * rows + gradient) * learns,
        forward_launches=float(len(tables)),
        backward_launches=2.0 * learns,
        temporary_bytes=inputs.zeros,
    )
    width = model.embedding_size or model.hidden
    block = Block(inputs, weights, 1.0)
    input_bytes = tokens * width * inputs.element_bytes
    # Each rank looks up its part of the vocabulary; the rows are summed over the ranks.
    rows_shared = leave_parallel(block, "embedding", "embedding")
    normed = width if model.bidirectional else model.hidden
    return (
        lookup,
        rows_shared,
        *((norm(block, "embedding norm", normed, resident),) if model.embedding_norm else ()),
        *linear(block, "embedding projection", ("embedding_in",), tokens, input_bytes),
        *_between_the_halves(block),
    )


def _between_the_halves(block: Block) -> Iterator[Operator]:
    """What all layers of a half share: the encoder's output, which every layer of the decoder reads, and biases.

    Biases of relative positions are made once for the encoder and once for the decoder, one for each head and pair.
    """
    inputs, model = block.inputs, block.inputs.model
    if model.encoder_layers:
        if model.final_norm:
            yield norm(block, "encoder norm", model.hidden, inputs.rank.resident_tokens)
        kept = float(inputs.keeps_input("cross_k", "cross_v")) * (1.0 - inputs.casts_inputs)
        dropped = inputs.drops("hidden") * float(model.final_norm) * MASK
        output = inputs.rank.resident_tokens * model.hidden
        saved = output * (kept * inputs.element_bytes + dropped)
        yield memory_bound(block, "encoder output", "norm", inputs.residual_bytes, (0.0, 2.0), (0.0, 1.0), saved)
    for half in (inputs, inputs.decoding) if model.relative_buckets else ():
        biases = relative_bias_bytes(half)
        yield memory_bound(block, "relative positions", "attention", biases, (2.0, 3.0), (3.0, 2.0), biases)


def relative_bias_bytes(inputs: GraphInputs) -> Array:
    """Biases of relative positions, which all layers of a half share, one for each head and pair of tokens.

        bytes = heads / tp  s / cp  s  element

    Parameters
    ----------
    inputs : model, and the half's sequence s, tp and cp of shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,), 0 where the model has none [bytes]

    Source: T5Attention.compute_bias of transformers.
    """
    rank = inputs.rank
    pairs = inputs.model.heads / rank.tp * rank.sequence / rank.cp * rank.keys
    return np.asarray(pairs * inputs.element_bytes * float(inputs.model.relative_buckets > 0))


def logits_per_rank(inputs: GraphInputs) -> Array:
    """Logits that the loss of one rank works on: its share of the vocabulary, or all where it gathers them.

        logits = tokens V / tp

    Parameters
    ----------
    inputs : tokens of the rank and tp of shape (rank shape,); V, the vocabulary; the kernel of the loss

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: Megatron-LM's vocabulary-parallel cross-entropy (arXiv:1909.08053).
    """
    if inputs.model.head not in OVER_VOCABULARY:
        return pooled_logits(inputs)
    rank = inputs.scored.rank
    return as_array(rank.tokens * inputs.model.vocab / (1.0 if inputs.kernels.loss.gathers else rank.tp))


def head_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Final norm, output head and cross-entropy; and what draws a token for each that is masked, if any does.

        FLOPs of the head = 2 tokens hidden V / tp
        bytes of the loss = bytes per logit of the stack's kernel x logits of the rank
        bytes of the draw = SAMPLING_PASSES x logits of the rank x 4

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Megatron-LM's vocabulary-parallel cross-entropy (arXiv:1909.08053): maximum, sum of exponentials and the
    target's logit of every token are reduced in float32. sample_from_softmax of google-research/electra, which adds
    noise before a softmax and its maximum.
    """
    if inputs.model.head not in OVER_VOCABULARY:
        return tuple(pooled_operators(inputs))
    logits, scored, inputs = logits_per_rank(inputs), inputs.scored.rank.tokens, inputs.predicting
    model = inputs.model
    block = Block(inputs, {weight.name: weight for weight in head_weights(model)}, 1.0)
    # Maximum, sum of exponentials and the target's logit of every token, in float32.
    statistics = exchange(
        block, "loss statistics", "head", "tp", tuple(("all_reduce", FLOAT32 * scored) for _ in range(3)), ()
    )
    return (
        *_before_head(block),
        enter_parallel(block, "head", "head"),
        *_logits(block),
        statistics,
        loss_operator(inputs, logits),
        *([_draw(block, logits * FLOAT32)] if model.head == MASKED else []),
    )


def sampling_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Final norm, output head and the choice of the next token.

        bytes = SAMPLING_PASSES x tokens V x 4

    The logits of all tensor-parallel ranks are gathered, widened to float32, and pass a softmax and a sort or a scan.

    Parameters
    ----------
    inputs : model, rank and kernels; one token for every sequence that gets its next; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: the samplers of vLLM and TensorRT-LLM.
    """
    rank, model = inputs.rank, inputs.model
    block = Block(inputs, {weight.name: weight for weight in head_weights(model)}, 1.0)
    logits_bytes = rank.tokens * model.vocab * FLOAT32
    gathered = exchange(block, "logits", "head", "tp", (("all_gather", logits_bytes / 2.0),), ())
    return (*_before_head(block), *_logits(block), gathered, _draw(block, logits_bytes))


def _draw(block: Block, logits_bytes: Array) -> MemoryBound:
    """The choice of a token for each row of float32 logits, forward alone."""
    return memory_bound(block, "sampling", "head", logits_bytes, (SAMPLING_PASSES, 0.0), (SAMPLING_LAUNCHES, 0.0))


def _before_head(block: Block) -> Iterator[Operator]:
    """Final norm, and the product, activation and norm that a model of masked tokens has before its head."""
    inputs, model, tokens = block.inputs, block.inputs.model, block.inputs.rank.resident_tokens
    if model.final_norm:
        yield norm(block, "final norm", model.hidden, tokens)
    if model.head_transform:
        yield from linear(block, "head transform", ("head_transform",), tokens, inputs.hidden_bytes)
        width = model.embedding_size or model.hidden
        made = tokens * width * inputs.returned_bytes
        yield memory_bound(block, "head activation", "head", made, PLAIN_PASSES, (1.0, 1.0), made)
        yield norm(block, "head norm", width, tokens, inner=True)


def _logits(block: Block) -> Iterator[Operator]:
    """Output head."""
    inputs, rank, model, learning = block.inputs, block.inputs.rank, block.inputs.model, block.inputs.learning
    one = np.ones_like(rank.tp)
    width = model.embedding_size or model.hidden
    yield from linear(block, "head projection", ("embedding_out",), rank.tokens, inputs.hidden_bytes)
    copied = inputs.wide_adapters or learning.adapter_dropout
    kept = learning.trains("head") or learning.reads_input("head", copied=copied)
    yield Matmul(
        name="head",
        module="head",
        layers=1.0,
        saved_bytes=rank.resident_tokens * width * inputs.element_bytes * float(kept),
        m=rank.tokens * one,
        n=model.vocab / rank.tp,
        k=width * one,
        copies=one,
        input_gradient=True,
        weight_gradient=learning.weight_gradients or learning.trains("head"),
        learns=learning.trains("head"),
    )
    for adapter in head_adapters(model, learning.adapters):
        yield from beside(block, adapter, rank.tokens)
