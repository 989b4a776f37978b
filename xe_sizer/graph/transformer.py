"""A model's layers as operators of one rank and one micro-batch.

Per layer, in order: norm, QKV, rotary, attention, output projection (or a state-space mixer), residual, norm, MLP or
experts, residual; with the collectives of tensor, context and expert parallelism between them. What autograd saves is
stated per operator, following what the eager Hugging Face modules and Megatron-LM keep (Korthikanti et al. 2022,
arXiv:2205.05198, section 4, for the fused and sharded variants).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.attention import INDEX, attention_core, attention_half, cross_attention
from xe_sizer.graph.blocks import (
    beside,
    enter_parallel,
    exchange,
    leave_parallel,
    linear,
    memory_bound,
    mixed_streams,
    norm,
    residual,
)
from xe_sizer.graph.drafter import mtp_module
from xe_sizer.graph.inputs import MASK, Block, head_adapters
from xe_sizer.graph.mlp import PLAIN_PASSES, activation, experts_half, mlp_half
from xe_sizer.graph.model import CLASSES, MASKED, NO_HEAD, NUM_CLASSES, OVER_VOCABULARY, REPLACED, VALUES, WORDS
from xe_sizer.graph.operators import Matmul, MemoryBound, as_array
from xe_sizer.graph.recompute import with_recomputation
from xe_sizer.graph.state_space import scan, state_space_half
from xe_sizer.graph.weights import NGRAM_TABLE, embedding_weights, head_weights, layer_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import LayerKind
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.graph.weights import Weight

# Heads that are no logits of the vocabulary: classes, values, pooled states.

TANH_PASSES = (2.0, 3.0)  # counted: read x, write y; read dy and y, write dx
POOLING_PASSES = (3.0, 3.0)  # counted: times the mask, and summed up
# Counted: log-softmax and what it takes to choose and to average, as the eager kernel of a loss launches them.
ENTROPY_PASSES, ENTROPY_LAUNCHES = (4.0, 4.0), (6.0, 5.0)


def pooled_operators(inputs: GraphInputs) -> Iterator[Operator]:
    """Final norm, and a classifier on one state of each sequence, or a value of each token.

        FLOPs = 2 b h (h + classes)      classes
        FLOPs = 2 tokens h               values
        FLOPs = 4 tokens h               two words of the vocabulary
        FLOPs = 2 queries candidates h   states that are compared
        FLOPs = 2 tokens h (h + 1)       whether tokens were replaced

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: BertPooler and the classification heads of transformers, of which those of decoders score every token
    (modeling_layers.py, GenericForSequenceClassification); ms-swift, get_generative_reranker_logits;
    ElectraDiscriminatorPredictions.
    """
    model, rank = inputs.model, inputs.rank
    block = Block(inputs, {weight.name: weight for weight in head_weights(model)}, 1.0)
    if model.final_norm:
        yield norm(block, "final norm", model.hidden, rank.resident_tokens)
    if model.head == NO_HEAD and inputs.compared is not None:
        yield from _comparison(block, *inputs.compared)
    if model.head == REPLACED:
        made = rank.resident_tokens * model.hidden * inputs.returned_bytes
        yield from linear(block, "head transform", ("head_transform",), rank.resident_tokens, inputs.hidden_bytes)
        yield memory_bound(block, "head activation", "head", made, PLAIN_PASSES, (1.0, 1.0), made)
    if model.head in (VALUES, REPLACED):
        yield from linear(block, "score", ("score",), rank.tokens, inputs.hidden_bytes)
    if model.head == WORDS:
        yield _words(block)
    if model.head == REPLACED:
        loss = rank.tokens * FLOAT32
        yield memory_bound(block, "loss", "head", loss, ENTROPY_PASSES, ENTROPY_LAUNCHES)
    if model.head != CLASSES:
        return
    pooled = rank.batch * model.hidden * inputs.element_bytes
    yield from linear(block, "pooler", ("pooler",), rank.batch, pooled)
    yield memory_bound(block, "pooler activation", "head", pooled, TANH_PASSES, (1.0, 1.0), pooled)
    yield from linear(block, "classifier", ("classifier",), rank.batch, pooled)
    loss = rank.batch * NUM_CLASSES * FLOAT32
    yield memory_bound(block, "loss", "head", loss, ENTROPY_PASSES, ENTROPY_LAUNCHES)


def _words(block: Block) -> Matmul:
    """Two rows of the vocabulary's matrix, "yes" and "no", over every token."""
    inputs, rank, hidden = block.inputs, block.inputs.rank, block.inputs.model.hidden
    learns = inputs.learning.trains("head")
    return Matmul(
        name="words",
        module="head",
        layers=1.0,
        saved_bytes=rank.tokens * hidden * inputs.element_bytes * float(learns),
        m=rank.tokens * rank.ones,
        n=NUM_CLASSES * rank.ones,
        k=hidden * rank.ones,
        copies=rank.ones,
        input_gradient=True,
        weight_gradient=inputs.learning.weight_gradients or learns,
        learns=learns,
    )


def _comparison(block: Block, queries: Array, candidates: Array) -> Iterator[Operator]:
    """Means of the tokens' states, their norms, all similarities, and a cross-entropy over the candidates of a query.

    Source: Pooling, Normalize and MultipleNegativesRankingLoss of sentence-transformers, in float32.
    """
    inputs, rank, hidden = block.inputs, block.inputs.rank, block.inputs.model.hidden
    states = rank.batch * hidden * FLOAT32
    masked = rank.resident_tokens * hidden * inputs.element_bytes
    yield memory_bound(block, "pooling", "head", masked, POOLING_PASSES, (4.0, 4.0), masked)
    yield memory_bound(block, "normalisation", "head", states, POOLING_PASSES, (3.0, 5.0), states)
    one = rank.ones
    yield Matmul(
        name="similarities",
        module="head",
        layers=1.0,
        saved_bytes=candidates * hidden * FLOAT32 * one,
        m=queries * one,
        n=candidates * one,
        k=hidden * one,
        copies=one,
        input_gradient=True,
        weight_gradient=True,
        learns=True,
    )
    yield loss_operator(inputs, pooled_logits(inputs))


def loss_operator(inputs: GraphInputs, logits: Array) -> MemoryBound:
    """Build the operator of the stack's loss, over logits of any kind.

        bytes = bytes per logit of the kernel x logits

    Parameters
    ----------
    inputs : the kernel of the loss
    logits : of the rank, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: each kernel of `graph.operators.LOSSES` names its own.
    """
    kernel = inputs.kernels.loss
    sums = 3.0 * chunked_gradient_bytes(inputs) * chunks_of_loss(inputs)  # read twice and written
    return MemoryBound(
        name="loss",
        module="head",
        layers=1.0,
        saved_bytes=np.zeros_like(logits),
        forward_bytes=kernel.forward_bytes * logits + sums,
        backward_bytes=kernel.backward_bytes * logits,
        forward_launches=kernel.forward_launches * chunks_of_loss(inputs),
        backward_launches=kernel.backward_launches,
        temporary_bytes=inputs.zeros,
    )


def chunks_of_loss(inputs: GraphInputs) -> Array:
    """Chunks in which the loss of a micro-batch is computed [-].

        chunks = `Loss.chunks` of its sequences and tokens

    Parameters
    ----------
    inputs : the kernel of the loss, and the batch of shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: as of `Loss.chunks`.
    """
    rank = inputs.scored.rank
    return np.asarray(inputs.kernels.loss.chunks(rank.batch, rank.tokens) * rank.ones)


def chunked_gradient_bytes(inputs: GraphInputs) -> float | Array:
    """Gradient of the head's weight that a loss in chunks sums up [bytes]; 0 of others.

        bytes = hidden V / tp x element        whether the weight learns or not

    Parameters
    ----------
    inputs : model, kernel of the loss, and the ranks of shape (rank shape,)

    Returns
    -------
    float or ndarray of float, shape (rank shape,) [bytes]

    Source: Liger-Kernel chunked_loss/fused_linear_preference.py (grad_weight).
    """
    loss, rank = inputs.kernels.loss, inputs.scored.rank
    if not (loss.sequences or loss.tokens):
        return 0.0
    return np.asarray(inputs.model.hidden * inputs.model.vocab * inputs.element_bytes / as_array(rank.tp) * rank.ones)


def pooled_logits(inputs: GraphInputs) -> Array:
    """Logits of the classes or values of the tokens, none where the job has neither, of shape (rank shape,) [-].

        logits = b classes
        logits = tokens      values
        logits = 2 tokens    two words of the vocabulary
        logits = queries candidates      states that are compared

    Parameters
    ----------
    inputs : model, and the batch of shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: definition.
    """
    if inputs.compared is not None and inputs.model.head == NO_HEAD:
        queries, candidates = inputs.compared
        return np.asarray(queries * candidates * inputs.rank.ones)
    if inputs.model.head in (VALUES, REPLACED):
        return np.asarray(inputs.rank.tokens * inputs.rank.ones)
    if inputs.model.head == WORDS:
        return np.asarray(NUM_CLASSES * inputs.rank.tokens * inputs.rank.ones)
    classes = NUM_CLASSES if inputs.model.head == CLASSES else 0
    return np.asarray(inputs.rank.batch * classes * inputs.rank.ones)


JOINING = "joined norm", "joined states"
# Rows are read and written; the scatter reads the gradient, and reads and writes the rows that it adds to.
LOOKUP_PASSES, SCATTER_PASSES = 2.0, 3.0
# Softmax, sort or top-k and the draw, over float32 logits.
SAMPLING_PASSES, SAMPLING_LAUNCHES = 6.0, 6.0


# Layers, embedding and head.


def layer_kinds(inputs: GraphInputs) -> tuple[tuple[float, tuple[Operator, ...]], ...]:
    """Build the kinds of layer that the model mixes, each as its operators in forward order.

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
        operators = (*_mixer(block, kind), *crossed, *_mlp(block, kind), *_own_embedding(block))
        kinds.append((float(layers), with_recomputation(operators, block.inputs)))
    return tuple(kinds)


def _mixer(block: Block, kind: LayerKind) -> Iterator[Operator]:
    if kind.mixer:
        yield from mixed_streams(block, "mixer streams")
    if kind.attends:
        yield from attention_half(block, not (kind.bare or block.inputs.model.post_norm))
    if kind.recurs and block.inputs.model.state_space:
        yield from state_space_half(block, block.inputs.model.state_space, own_norm=not kind.attends)


def _mlp(block: Block, kind: LayerKind) -> Iterator[Operator]:
    model = block.inputs.model
    if kind.mlp:
        yield from mixed_streams(block, "mlp streams")
    own_norm = (model.norms_per_layer >= 2 or kind.mixer is None) and not model.post_norm
    if kind.mlp == "experts" and block.inputs.model.experts:
        yield from experts_half(block, block.inputs.model.experts)
    elif kind.mlp:
        yield from mlp_half(block, own_norm)


def _own_embedding(block: Block) -> Iterator[Operator]:
    """What a layer adds of its own embedding of each token: two products, an activation between them, norm and sum."""
    inputs, own = block.inputs, block.inputs.model.layer_embedding
    if own is None:
        return
    tokens, resident = inputs.rank.tokens, inputs.rank.resident_tokens
    rows = tokens * own.size * inputs.returned_bytes
    yield from linear(block, "input gate", ("input_gate",), tokens, inputs.hidden_bytes)
    yield activation(block, "input activation", "mlp", tokens * own.size)
    yield from linear(block, "input projection", ("input_projection",), tokens, rows)
    yield norm(block, "layer input norm", inputs.model.hidden, resident)
    yield residual(block, "layer input residual")


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
        if kind.recurs and inputs.model.state_space:
            operators.append(scan(block, inputs.model.state_space))
    return tuple(operators)


def embedding_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Token (and position) lookup; the backward of a learning table scatters into a dense gradient.

        forward bytes = LOOKUP_PASSES x tables x resident tokens x hidden x element
        backward bytes = SCATTER_PASSES x resident tokens x hidden x element + table elements / tp x element
        rows of a table with a row for every layer are as wide as all of them together

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
    learned = [weight for weight in embedding_weights(model) if weight.kind == "embedding"]
    tables = [weight for weight in learned if weight.name != NGRAM_TABLE]
    resident, tokens = rank.resident_tokens, rank.tokens
    if model.encoder_layers:
        resident, tokens = resident + inputs.decoding.rank.resident_tokens, tokens + inputs.decoding.rank.tokens
    rows = resident * model.hidden * inputs.element_bytes
    own = model.layer_embedding
    of_layers = resident * (model.layers * own.size if own else 0) * inputs.element_bytes
    gradient = sum(table.parameters for table in learned) / rank.tp * inputs.element_bytes
    lookup = MemoryBound(
        name="embedding",
        module="embedding",
        layers=1.0,
        saved_bytes=inputs.drops("embedding") * MASK * resident * model.hidden,
        forward_bytes=LOOKUP_PASSES * (rows * (len(tables) - (own is not None)) + of_layers),
        backward_bytes=(SCATTER_PASSES * (rows + of_layers) + gradient) * learns,
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
        *linear(block, "layer inputs", ("layer_inputs",), tokens, inputs.hidden_bytes),
        *((norm(block, "layer inputs norm", model.layers * own.size, tokens),) if own else ()),
        *((norm(block, JOINING[0], model.joined_width, tokens),) if model.joined_width else ()),
        *linear(block, JOINING[1], ("joined",), tokens, tokens * model.joined_width * inputs.element_bytes),
        *_ngram_lookups(inputs, weights),
        *_between_the_halves(block),
    )


# Counted. The gate reads the keys and the streams, each for a norm and for their product, the value, and adds to the
# streams; backward what it read, and the gradients of all. The convolution norms, reads, writes and adds once more.
NGRAM_GATE, NGRAM_GATE_LAUNCHES = (5.0, 9.0), (2.0, 4.0)
NGRAM_CONVOLUTION, NGRAM_CONVOLUTION_LAUNCHES = (5.0, 9.0), (2.0, 4.0)
# Counted: without a gate the value and the embedding are read, and their sum is written; backward copies it.
NGRAM_SUM, NGRAM_SUM_LAUNCHES = (3.0, 2.0), (1.0, 1.0)


def _ngram_lookups(inputs: GraphInputs, weights: Mapping[str, Weight]) -> Iterator[Operator]:
    """Lookups of n-grams, the product that makes keys and a value of them, and the gate of the residual streams.

    They hang on the tokens alone, so that rows in host memory come while other layers run, and only the gate waits for
    its layer (vLLM and SGLang fetch them ahead).
    """
    tables = inputs.model.ngram_tables
    if tables is None:
        return
    block, tokens = Block(inputs, weights, float(len(tables.rows))), inputs.rank.resident_tokens
    rows = tokens * tables.joined * inputs.element_bytes
    learns = float(inputs.learning.trains("embedding"))
    reads = 1.0 if tables.on_host else LOOKUP_PASSES
    yield memory_bound(block, "n-gram lookup", "embedding", rows, (reads, SCATTER_PASSES * learns), (1.0, 2.0 * learns))
    yield leave_parallel(block, "n-gram lookup", "embedding", tables.joined / inputs.model.hidden)
    yield from linear(block, "n-gram values", ("ngram_values",), tokens, rows)
    streams = inputs.residual_bytes
    if not tables.gated:
        yield memory_bound(block, "n-gram sum", "embedding", streams, NGRAM_SUM, NGRAM_SUM_LAUNCHES)
        return
    yield memory_bound(block, "n-gram gate", "norm", streams, NGRAM_GATE, NGRAM_GATE_LAUNCHES, 2.0 * streams)
    if tables.conv_kernel:
        passes = NGRAM_CONVOLUTION
        yield memory_bound(
            block, "n-gram convolution", "norm", streams, passes, NGRAM_CONVOLUTION_LAUNCHES, 2.0 * streams
        )


BETWEEN_THE_HALVES, RELATIVE_POSITIONS = ("encoder norm", "encoder output"), "relative positions"


def _between_the_halves(block: Block) -> Iterator[Operator]:
    """What all layers of a half share: the encoder's output, which every layer of the decoder reads, and biases.

    Biases of relative positions are made once for the encoder and once for the decoder, one for each head and pair. A
    table that learns keeps which of its rows each pair has taken, as a 64-bit integer.
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
        rows = half.rank.sequence / half.rank.cp * half.rank.keys * INDEX * float(inputs.learning.base)
        yield memory_bound(block, RELATIVE_POSITIONS, "attention", biases, (2.0, 3.0), (3.0, 2.0), rows)


def relative_bias_bytes(inputs: GraphInputs) -> Array:
    """Biases of relative positions, which all layers of a half share, one for each head and pair of tokens.

        bytes = heads / tp  s / cp  s  element of the hidden state

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
    return np.asarray(pairs * inputs.residual_element_bytes * float(inputs.model.relative_buckets > 0))


def cross_bias_bytes(inputs: GraphInputs) -> Array:
    """Biases of cross attention in a model with relative positions: zeros, which all layers of the decoder share.

        bytes = heads / tp  t / cp  s  element that linear layers return      t tokens of the decoder, s of the encoder

    Parameters
    ----------
    inputs : model, and sequences of encoder and decoder, tp and cp of shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,), 0 where the model has none [bytes]

    Source: T5Attention.forward of transformers (position_bias = torch.zeros(...) without a table of its own).
    """
    rank, crossed = inputs.decoding.rank, float(inputs.model.relative_buckets > 0 and inputs.model.encoder_layers > 0)
    pairs = inputs.model.heads / rank.tp * rank.sequence / rank.cp * inputs.rank.keys
    return np.asarray(pairs * inputs.returned_bytes * crossed)


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
    return as_array(rank.tokens * inputs.model.logits / (1.0 if inputs.kernels.loss.gathers else rank.tp))


def further_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Operators of the layers that predict further tokens in training, without their heads; none where none learn.

        operators of each = norms, W [embedding; state], a layer as the model's last

    Parameters
    ----------
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: DeepSeek-V3 (arXiv:2412.19437, section 2.2); MultiTokenPredictionLayer of Megatron-Core.
    """
    count = inputs.model.trained_mtp_layers
    if not count:
        return ()
    module = replace(inputs, model=mtp_module(inputs.model))
    joining = (one for one in embedding_operators(module) if one.name in JOINING)
    operators = (*joining, *layer_operators(module))
    return tuple(replace(one, layers=count * one.layers) for one in operators)


def head_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Final norm, output head and cross-entropy; and what draws a token for each that is masked, if any does.

    Layers that predict further tokens have the head again, and a loss each; they run behind the model's layers.

        FLOPs of the head = 2 tokens hidden V / tp (1 + layers that predict further tokens)
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
    if further := further_operators(inputs):
        once = head_operators(replace(inputs, model=replace(inputs.model, trained_mtp_layers=0)))
        again = inputs.model.trained_mtp_layers
        return (*further, *(replace(one, layers=(1 + again) * one.layers) for one in once))
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
        bytes = states of all tokens                     no vocabulary: those of a text are picked or averaged

    The logits of all tensor-parallel ranks are gathered, widened to float32, and pass a softmax and a sort or a scan.

    Parameters
    ----------
    inputs : model, rank and kernels; one token for every sequence that gets its next, or all tokens where the model has
        no head over its vocabulary; sizes of shape (rank shape,)

    Returns
    -------
    tuple of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: the samplers of vLLM and TensorRT-LLM; the poolers of vLLM and sentence-transformers.
    """
    rank, model = inputs.rank, inputs.model
    block = Block(inputs, {weight.name: weight for weight in head_weights(model)}, 1.0)
    if model.head not in OVER_VOCABULARY:
        return (
            *_before_head(block),
            memory_bound(block, "pooling", "head", inputs.residual_bytes, (1.0, 0.0), (1.0, 0.0)),
        )
    logits_bytes = rank.tokens * model.logits * FLOAT32
    gathered = exchange(block, "logits", "head", "tp", (("all_gather", logits_bytes / 2.0),), ())
    return (*_before_head(block), *_logits(block), gathered, _draw(block, logits_bytes))


def _draw(block: Block, logits_bytes: Array) -> MemoryBound:
    """The choice of a token for each row of float32 logits, forward alone."""
    return memory_bound(block, "sampling", "head", logits_bytes, (SAMPLING_PASSES, 0.0), (SAMPLING_LAUNCHES, 0.0))


def _before_head(block: Block) -> Iterator[Operator]:
    """Sum of residual streams, final norm, and what a model of masked tokens has before its head."""
    inputs, model, tokens = block.inputs, block.inputs.model, block.inputs.rank.resident_tokens
    yield from mixed_streams(block, "head streams")
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
        n=model.logits / rank.tp,
        k=width * one,
        copies=one,
        input_gradient=True,
        weight_gradient=learning.weight_gradients or learning.trains("head"),
        learns=learning.trains("head"),
        unpadded=not inputs.kernels.pads_vocabulary,
    )
    for adapter in head_adapters(model, learning.adapters):
        yield from beside(block, adapter, rank.tokens)
