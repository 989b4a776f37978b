"""What a job reads from the last layer where it is not logits of the vocabulary: classes, values, the state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.building_blocks import linear, memory_bound, norm
from xe_sizer.graph.inputs import Block
from xe_sizer.graph.mlp import PLAIN_PASSES
from xe_sizer.graph.model import CLASSES, NO_HEAD, NUM_CLASSES, REPLACED, VALUES, WORDS
from xe_sizer.graph.operators import Matmul, MemoryBound
from xe_sizer.graph.parameters import head_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.operators import Array, Operator

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
    """The kernels of the stack's loss, over logits of any kind.

        bytes = bytes per logit of the kernel x logits

    Parameters
    ----------
    inputs : the kernel of the loss
    logits : of the rank, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: each kernel of `graph.losses` names its own.
    """
    kernel = inputs.kernels.loss
    return MemoryBound(
        name="loss",
        module="head",
        layers=1.0,
        saved_bytes=np.zeros_like(logits),
        forward_bytes=kernel.forward_bytes * logits,
        backward_bytes=kernel.backward_bytes * logits,
        forward_launches=kernel.forward_launches,
        backward_launches=kernel.backward_launches,
        temporary_bytes=inputs.zeros,
    )


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
