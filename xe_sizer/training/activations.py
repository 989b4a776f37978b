"""Activations of one rank: what autograd keeps, and what the backward of a layer needs beside it.

The backward is walked operator by operator, last first: an operator's saved tensors go when its gradient is done,
its weight gradient comes and stays, and its temporaries live for the moment. Verified against the live storages of
the real Hugging Face modules (docs/development/trace.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.attention import mask_bytes
from xe_sizer.graph.inputs import head_adapters
from xe_sizer.graph.model import MASKED
from xe_sizer.graph.operators import Attention, Matmul, MemoryBound, Scan, as_array
from xe_sizer.graph.transformer import (
    BETWEEN_THE_HALVES,
    RELATIVE_POSITIONS,
    chunked_gradient_bytes,
    chunks_of_loss,
    cross_bias_bytes,
    logits_per_rank,
    relative_bias_bytes,
)
from xe_sizer.graph.vision import COLOURS, vision_groups
from xe_sizer.graph.weights import layer_weights
from xe_sizer.immutable import Immutable
from xe_sizer.training.layout import FULL, RECOMPUTE, SELECTIVE
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.inputs import GraphInputs, Learning
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.model_states import ParameterCounts
    from xe_sizer.training.rank import RankShapes

# FLOPs of one micro-batch on one rank: what the training needs, and what recomputation adds.

ATTENTION_PASSES = 3.0  # counted: forward, and a backward of two products for each of the forward's


def needed_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of forward and backward over all layers that contain the operators, whatever the stack wastes.

        F = sum of layers (forward + input gradient + weight gradient, where they are needed)      matrix products
        F = sum of layers x 3 x forward                                                            attention and scans

    Parameters
    ----------
    operators : of one rank and one micro-batch; sizes broadcast to shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [FLOP]

    Source: model FLOPs as in PaLM (arXiv:2204.02311, appendix B).
    """
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul):
            total = total + op.layers * (op.forward_flops + op.backward_flops)
        elif isinstance(op, Attention | Scan):
            total = total + op.layers * ATTENTION_PASSES * op.forward_flops
    return total


def forward_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of one forward over all layers that contain the operators.

        F = sum of layers x forward

    Parameters
    ----------
    operators : of one rank and one micro-batch; sizes broadcast to shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [FLOP]

    Source: definition; a multiply and an add are two.
    """
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            total = total + op.layers * op.forward_flops
    return total


def recomputed_flops(operators: Iterable[Operator], shapes: RankShapes, layouts: Layouts, whole: Array) -> Array:
    """FLOPs of the forward that runs again: whole layers, what the stack selects, or nothing.

        F = whole x sum of layers x forward            full
        F = sum of layers x share x forward            selective

    Parameters
    ----------
    operators : of the layers; sizes broadcast to shape (rank shape,)
    shapes : of the ranks under each layout
    layouts : their recomputation, shape (layout,)
    whole : share of the layers that full recomputation runs again, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [FLOP]

    Source: Korthikanti et al. 2022 (arXiv:2205.05198); `graph.recompute.with_recomputation`.
    """
    everything, selected = np.zeros(1), np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            everything = everything + op.layers * op.forward_flops
            selected = selected + op.again * op.layers * op.forward_flops
    return np.where(layouts.recompute == SELECTIVE, shapes.broadcast(selected), whole * shapes.broadcast(everything))


class Activations(Immutable):
    """Bytes of one micro-batch on one rank, shape (layout,).

    kept : by one layer until its backward, after recomputation; hosted : of one layer, what waits in host memory by
    name beside that; checkpoint : of that, what outlives the layer's
    backward; backward_peak : the most that a layer's backward holds, its own tensors and fresh gradients included;
    first_peak : the same of the first layers, where they are an encoder's; last_left : what the last layer's backward
    leaves of what it kept, less all of it; source_kept : by an encoder's layers when the backward reaches them, less
    the one in it; without an encoder before a decoder the checkpoint; first_kept : by one of the first layers;
    forward_more : the most that the forward of a layer holds beside all that is kept at its end; unkept : the most that
    unfused attention holds in a forward that keeps nothing; before_learning : what the first layer does not keep
    because nothing before its first adapter learns; between : of `entered`, what stands between an encoder and a
    decoder, and goes with the latter; entered : kept until the first layer's backward is done of what comes before the
    layers; entering : the most that is there before the first layer runs; ends : kept by embedding and head; loss_kept,
    loss_live : around the loss
    """

    kept: Array
    hosted: Array
    checkpoint: Array
    backward_peak: Array
    first_peak: Array
    last_left: Array
    source_kept: Array
    first_kept: Array
    before_learning: Array
    forward_more: Array
    unkept: Array
    between: Array
    entered: Array
    entering: Array
    ends: Array
    loss_kept: Array
    loss_live: Array


def saved_bytes(operators: Iterable[Operator]) -> Array:
    """Bytes that autograd keeps of one micro-batch over all the layers that contain the operators.

        bytes = sum of layers x saved_bytes

    Parameters
    ----------
    operators : of one rank and one micro-batch; sizes broadcast to shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [bytes]

    Source: what the eager Hugging Face modules and Megatron-LM keep (arXiv:2205.05198, section 4), stated by operator
    and traced.
    """
    return np.asarray(sum(op.layers * op.saved_bytes for op in operators))


def temporary_bytes(op: Operator, element_bytes: float) -> Array:
    """Tensors that live only while the operator's backward runs: gradients of its outputs and inputs.

        bytes = element m (n + k) copies / tiles                   matrix product
        bytes = Q, K, V and output that are there at a time + b heads q k x per score       attention
        bytes = 3 states                                           scan

    Parameters
    ----------
    op : one operator of one layer; sizes broadcast to shape (rank shape,)
    element_bytes : size of an activation element [bytes]

    Returns
    -------
    ndarray of float, shape (rank shape,) [bytes]

    Source: own derivation from the order in which autograd allocates and frees tensors; traced.
    """
    if isinstance(op, Matmul):
        return element_bytes * op.copies * op.m * (op.n + op.k) / (1.0 if op.tiles is None else op.tiles)
    if isinstance(op, Attention):
        scores = op.batch * op.heads * op.query * op.key
        operands = op.resident_bytes(element_bytes)
        unfused = np.where(scores * op.score_temporary_bytes > 0, 0.5 * operands, 0.0)
        return np.maximum(operands, unfused + scores * op.score_temporary_bytes)
    if isinstance(op, Scan):
        return 3.0 * op.state_bytes
    return op.temporary_bytes if isinstance(op, MemoryBound) else np.zeros(1)


def backward_peak_bytes(
    operators: tuple[Operator, ...], layers: float, element_bytes: float, gradient_bytes: float, keeps_gradients: Array
) -> Array:
    """Peak memory of the backward of one layer [bytes].

        peak = max over operators, last first, of tensors not yet freed + gradients so far + fresh one + temporaries

    What operators keep that only some of the layers contain counts by their share, as the others have another in place.

    Parameters
    ----------
    operators : of one kind of layer, in forward order; sizes broadcast to shape (rank shape,)
    layers : how many layers are of the kind [-]
    element_bytes, gradient_bytes : size of an element of an activation, and of a weight gradient [bytes]
    keeps_gradients : 1 where fresh gradients stay, 0 where each is added to a buffer that exists already and dropped
        [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [bytes]

    Source: own derivation: the backward walked operator by operator, checked against the live storages of the real
    modules (docs/development/trace.md).
    """
    shares = [op.layers / layers for op in operators]
    remaining = np.asarray(sum(share * op.saved_bytes for share, op in zip(shares, operators, strict=True)))
    grown: Array = np.zeros(1)
    peak = remaining
    for share, op in reversed(list(zip(shares, operators, strict=True))):
        fresh: Array = np.zeros(1)
        if isinstance(op, Matmul) and op.weight_gradient and (op.learns or op.adapter) and not op.computed:
            fresh = share * (gradient_bytes * op.copies * op.n * op.k)
        peak = np.maximum(peak, remaining + grown + fresh + temporary_bytes(op, element_bytes))
        grown = grown + fresh * keeps_gradients
        remaining = remaining - share * op.saved_bytes
    return np.asarray(np.maximum(peak, grown))


def forward_peak_bytes(operators: tuple[Operator, ...], layers: float, stops_early: bool) -> Array:
    """Peak memory of the forward of one layer where autograd keeps its tensors [bytes].

        peak = max over operators, first to last, of tensors kept so far, its own included + its temporaries

    Parameters
    ----------
    operators : of one kind of layer, in forward order; sizes broadcast to shape (rank shape,)
    layers : how many layers are of the kind [-]
    stops_early : the forward ends with the last tensor that is kept, as it does where it runs again for the backward

    Returns
    -------
    ndarray of float, shape (rank shape,) [bytes]

    Source: torch.utils.checkpoint, which leaves the second forward when all tensors are there; traced.
    """
    kept, peak, keeping = np.zeros(1), np.zeros(1), np.zeros(1)
    for op in operators:
        share = op.layers / layers
        kept = kept + share * op.saved_bytes
        peak = np.maximum(peak, kept + share * op.forward_temporary_bytes)
        keeping = np.where(np.asarray(op.saved_bytes) > 0, peak, keeping)
    return np.asarray(keeping if stops_early else peak)


def unkept_bytes(operators: tuple[Operator, ...], layers: float) -> Array:
    """Most that unfused attention holds in a forward that keeps nothing: layers run again, or are frozen [bytes].

        bytes = Q, K, V and output + scores while the softmax runs + probabilities that the layer before has returned

    Parameters
    ----------
    operators : of one kind of layer; sizes broadcast to shape (rank shape,)
    layers : how many layers are of the kind [-]

    Returns
    -------
    ndarray of float, shape (rank shape,), 0 where attention is fused [bytes]

    Source: the eager modules of transformers 5, whose blocks return their probabilities in some classes; traced.
    """
    most: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Attention) and op.kernel == "eager":
            alive = op.saved_bytes + op.forward_temporary_bytes + op.returned_bytes
            most = np.maximum(most, op.layers / layers * alive)
    return most


def _walks(
    operators: tuple[Operator, ...], layers: float, element_bytes: float, gradient_bytes: float
) -> tuple[Array, Array]:
    """Peaks of a layer's backward where fresh gradients stay, and where they go at once."""
    stays, goes = (
        backward_peak_bytes(operators, layers, element_bytes, gradient_bytes, np.full(1, keeps)) for keeps in (1.0, 0.0)
    )
    return stays, goes


def _fullest(operators: tuple[Operator, ...], layers: float) -> tuple[Operator, ...]:
    """The operators of the layer that keeps the most, where some have whole attention and others a window.

    One layer at a time runs again, and has its own mask whole.
    """
    turns = [op for op in operators if isinstance(op, Attention) and op.layers < layers and np.any(op.saved_bytes > 0)]
    if len(turns) < 2:
        return operators
    most = turns[0].saved_bytes
    for op in turns[1:]:
        most = np.maximum(most, op.saved_bytes)
    whole = replace(turns[0], layers=layers, saved_bytes=most)
    return tuple(whole if op is turns[0] else op for op in operators if op not in turns[1:])


def _saved_twice(operators: tuple[Operator, ...], layers: float, inputs: GraphInputs) -> Array:
    """Of what a layer that runs again keeps, the tensor that is its checkpoint too [bytes].

    The first operator keeps the hidden state itself where it needs it as it is: not in another type.
    """
    first = next((op for op in operators if np.any(op.saved_bytes > 0)), None)
    size = np.asarray(inputs.residual_element_bytes, dtype=float)
    if isinstance(first, MemoryBound) and first.module == "norm":
        copied = inputs.kernels.norm == "eager" and inputs.model.norm.startswith("rms") and not inputs.model.fused_norms
        itself = size >= (FLOAT32 if copied or inputs.autocast else 0.0)
    elif isinstance(first, Matmul) and not first.adapter:
        itself = size <= inputs.element_bytes
    else:
        return inputs.zeros
    return np.where(itself, first.layers / layers * np.minimum(first.saved_bytes, inputs.residual_bytes), 0.0)


def _waits(operators: tuple[Operator, ...], inputs: GraphInputs) -> Array:
    """The gradient of what the layer's last product returns, while the layer runs again for that product's operands.

    It passes as the hidden state's own but behind an adapter, which makes it float32 where autocast does not cast it. A
    norm behind the product calls for what it read before there is such a gradient.
    """
    last = next((op for op in reversed(operators) if np.any(op.saved_bytes > 0)), None)
    if isinstance(last, Matmul) and last.adapter and inputs.wide_adapters and not inputs.autocast:
        return np.asarray(FLOAT32 * last.m * last.n * last.copies)
    return inputs.zeros


def _of_adapter(op: Operator) -> bool:
    return (isinstance(op, Matmul | MemoryBound) and op.adapter) or (isinstance(op, Matmul) and op.computed)


def _before_learning(operators: tuple[Operator, ...], inputs: GraphInputs) -> Array:
    """Saved bytes of the first layer that no gradient reaches [bytes].

    Its operators before the first adapter; and of adapters that read the layer's input what they are multiplied with,
    which the gradient of the input alone needs.
    """
    if inputs.learning.trains("embedding") or inputs.learning.before:
        return inputs.zeros
    adapted = [op for op in operators if _of_adapter(op)]
    if not adapted:
        return inputs.zeros
    before = list(takewhile(lambda op: not _of_adapter(op), operators))
    if not inputs.expansion.keeps_input:  # what a frozen product keeps is what its adapter reads
        before = [op for op in before if not isinstance(op, Matmul)]
    if inputs.model.parallel_block and "mlp" not in {op.module for op in adapted}:
        before += [op for op in operators if op.module == "mlp"]  # beside the attention, not behind it
    operands = (
        op.operand_bytes
        for op in adapted
        if isinstance(op, Matmul) and op.operand_bytes is not None and op.module == adapted[0].module
    )
    return inputs.zeros + sum(op.saved_bytes for op in before) + sum(operands)


def _relative_biases(inputs: GraphInputs) -> Array:
    """Of the encoder, and of the decoder where there is one, with those of its cross attention [bytes]."""
    encoder = relative_bias_bytes(inputs)
    if not inputs.model.encoder_layers:
        return encoder
    return encoder + relative_bias_bytes(inputs.decoding) + cross_bias_bytes(inputs)


def _bytes_of(operators: Iterable[Operator], names: tuple[str, ...]) -> Array:
    return np.zeros(1) + sum(op.saved_bytes for op in operators if op.name in names)


def _entered(shapes: RankShapes, full: Array) -> Array:
    """What is kept until the backward ends of what comes before the layers.

    A frozen embedding keeps nothing, unless layers run again: then its output is made to learn, so that their input
    does, and autograd holds it, as it is and as what comes behind the table reads it. Layers that run again are given
    their masks and biases once more.
    Source: enable_input_require_grads of transformers, which trainers call for adapters; traced.
    """
    inputs, broadcast = shapes.inputs, shapes.broadcast
    model, learning = inputs.model, inputs.learning
    kept = broadcast(saved_bytes(op for op in shapes.graph.embedding if op.name != RELATIVE_POSITIONS))
    rows = broadcast(_bytes_of(shapes.graph.embedding, (RELATIVE_POSITIONS,)))  # that the first layer takes again
    given = broadcast(mask_bytes(inputs)[1] + _relative_biases(inputs))
    if learning.trains("embedding") or learning.before:
        return np.asarray(kept + np.where(full, given, rows))
    cast = np.asarray(inputs.residual_element_bytes) > np.asarray(inputs.returned_bytes)
    table = inputs.rank.resident_tokens * model.hidden * inputs.returned_bytes
    behind = (model.learned_positions > 0) | (bool(model.embedding_norm) & cast)
    return np.asarray(np.where(full, kept + given + broadcast(table * behind), 0.0))


def _most(sizes: Sequence[Array]) -> Array:
    return np.asarray(np.max(np.broadcast_arrays(*sizes), axis=0))


class _Half(Immutable):
    """The layers of an encoder or of a decoder: how many, and bytes of one as in `Activations`."""

    layers: float
    kept: Array
    hosted: Array
    checkpoint: Array
    backward_peak: Array
    forward_more: Array
    unkept: Array


def _half(
    shapes: RankShapes, layouts: Layouts, kinds: list[tuple[float, tuple[Operator, ...]]], inputs: GraphInputs,
    gradient_bytes: float, keeps_gradients: Array, recomputed: Array,
) -> _Half:  # fmt: skip
    """The half whose layers are of these kinds, and see these sequences."""
    broadcast = shapes.broadcast
    layers = sum(count for count, _ in kinds)
    everything = np.asarray(sum(saved_bytes(ops) for _, ops in kinds)) / layers
    selective = everything - np.asarray(sum(op.layers * op.dropped_bytes for _, ops in kinds for op in ops)) / layers
    hosted = np.asarray(sum(op.layers * op.hosted_bytes for _, ops in kinds for op in ops)) / layers
    checkpoint = broadcast(inputs.residual_bytes)
    # Gradients of biases grow layer by layer: of those that a table learns, and of the zeros of cross attention, which
    # are made to need one where layers run again (T5Attention.forward).
    learns = float(inputs.learning.base)
    biases = broadcast(relative_bias_bytes(inputs) * learns + cross_bias_bytes(shapes.inputs))
    full, partial = (layouts.recompute == RECOMPUTE.index(mode) for mode in ("full", "selective"))
    peaks = []
    for count, ops in kinds:
        stays, goes = _walks(ops, count, inputs.element_bytes, gradient_bytes)
        peak = np.where(keeps_gradients > 0, broadcast(stays), broadcast(goes))
        worst = _fullest(ops, count)
        if worst is not ops:
            stays, goes = _walks(worst, count, inputs.element_bytes, gradient_bytes)
            peak = np.where(full, np.where(keeps_gradients > 0, broadcast(stays), broadcast(goes)), peak)
        peaks.append(peak - np.where(full, broadcast(_saved_twice(ops, count, inputs)), 0.0))
    again = [
        np.where(full, broadcast(forward_peak_bytes(_fullest(ops, count), count, True) + _waits(ops, inputs)), 0.0)
        - broadcast(_saved_twice(ops, count, inputs))
        for count, ops in kinds
    ]
    shared = relative_bias_bytes(inputs) + cross_bias_bytes(shapes.inputs)  # there until the half's last layer is done
    once = [
        broadcast(forward_peak_bytes(ops, count, False) - saved_bytes(ops) / count + shared) for count, ops in kinds
    ]
    passing = [broadcast(unkept_bytes(ops, count)) for count, ops in kinds]
    # Beside a layer's forward stands the hidden state. Norms behind the sums keep what they read, not what they return.
    beside = 2.0 if inputs.model.post_norm else 1.0
    unkept = _most(passing)
    unkept = np.where(unkept > 0, unkept + beside * checkpoint, 0.0)
    return _Half(
        layers,
        np.where(partial, broadcast(selective), recomputed * checkpoint + (1.0 - recomputed) * broadcast(everything)),
        np.where(partial, broadcast(hosted + inputs.zeros), 0.0),
        np.where(full, checkpoint, 0.0),
        # The gradient of the hidden state passes beside every layer. Recomputation starts while the norm of the layer
        # after still holds two more of its size (traced).
        np.maximum(
            _most(peaks) + checkpoint + np.where(full, biases, 0.0),
            _most(again) + np.where(full, 3.0 * checkpoint + biases, 0.0),
        ),
        np.where(partial, 0.0, np.where(recomputed >= 1.0, unkept, _most(once) + beside * checkpoint)),
        unkept,
    )


def _ungathered_bytes(inputs: GraphInputs) -> Array:
    """The gradient of all logits where the loss works on those of masked tokens, gathered from them [bytes]."""
    if inputs.model.head != MASKED or inputs.kernels.predicted != "all":
        return np.asarray(inputs.zeros)
    rank = inputs.rank
    return np.asarray(rank.tokens * inputs.model.logits / rank.tp * inputs.element_bytes)


def _run_again(shapes: RankShapes, layouts: Layouts) -> Array:
    """Of what layers that predict further tokens would keep, what they compute again instead [bytes].

    In full all but their two inputs, the state and the embedding; else what is selected.
    """
    further, inputs = shapes.graph.further, shapes.inputs
    full, partial = (layouts.recompute == RECOMPUTE.index(mode) for mode in ("full", "selective"))
    count = 2.0 * inputs.model.trained_mtp_layers
    whole = shapes.broadcast(saved_bytes(further) - count * inputs.residual_bytes)
    selected = shapes.broadcast(np.asarray(sum(op.layers * op.dropped_bytes for op in further)) + inputs.zeros)
    return np.where(full, whole, np.where(partial, selected, 0.0)) * float(count > 0)


def activations(
    shapes: RankShapes, layouts: Layouts, gradient_bytes: float, keeps_gradients: Array, recomputed: Array
) -> Activations:
    """Activations of one micro-batch under each layout.

        kept = saved bytes of an average layer; selective: less what is recomputed; full: its input alone, of the
               layers that are recomputed
        backward_peak = peak of the layer's walk + hidden state x (1, or 3 where layers are recomputed)
        loss = logits of the rank x bytes per logit of the stack's kernel; with an adapter on the head at least three
               elements

    Parameters
    ----------
    shapes : inputs of the operator graph for the distinct rank shapes
    layouts : shape (layout,)
    gradient_bytes : size of a weight gradient's element [bytes]
    keeps_gradients : 1 where fresh gradients stay until the optimizer runs, else 0, shape (layout,) [-]
    recomputed : share of a stage's layers that run again as a whole, shape (layout,) [-]

    Returns
    -------
    Activations, shape (layout,) [bytes]

    Source: Korthikanti et al. 2022 (arXiv:2205.05198) for recomputation; the walk and the three hidden states are
    traced.
    """
    inputs, broadcast = shapes.inputs, shapes.broadcast
    model = inputs.model
    kinds = shapes.graph.kinds
    source = [kind.source for kind, _ in model.layer_kinds]
    full = layouts.recompute == RECOMPUTE.index("full")
    halves = [
        _half(shapes, layouts, inside, seen, gradient_bytes, keeps_gradients, recomputed)
        for inside, seen in (
            ([kind for kind, first in zip(kinds, source, strict=True) if first], inputs),
            ([kind for kind, first in zip(kinds, source, strict=True) if not first], inputs.decoding),
        )
        if inside
    ]
    first, last = halves[0], halves[-1]
    logits = broadcast(logits_per_rank(inputs))
    making, made = mask_bytes(inputs)
    entered, embedded = _entered(shapes, full), broadcast(saved_bytes(shapes.graph.embedding))
    loss = inputs.kernels.loss
    # Beside an adapter the head's product, the adapter's and their sum are there together.
    summed = 3.0 * inputs.element_bytes * float(any(head_adapters(model, inputs.learning.adapters)))
    chunked = broadcast(chunked_gradient_bytes(inputs) * inputs.scored.rank.ones)
    narrowed = min(loss.words / model.vocab, 1.0) if loss.words else 1.0
    capped = inputs.element_bytes * float("logits" in model.soft_caps and not loss.caps)  # the tanh keeps its result
    return Activations(
        kept=np.asarray(sum(half.layers * half.kept for half in halves)) / model.layers,
        hosted=np.asarray(sum(half.layers * half.hosted for half in halves)) / model.layers,
        checkpoint=first.checkpoint,
        backward_peak=last.backward_peak,
        first_peak=first.backward_peak,
        last_left=last.checkpoint - last.kept - last.hosted,
        source_kept=first.checkpoint + first.kept * (first.layers - 1.0) * (len(halves) - 1.0),
        first_kept=first.kept,
        forward_more=last.forward_more,
        unkept=np.maximum(first.unkept, last.unkept),
        between=np.where(entered > 0, broadcast(_bytes_of(shapes.graph.embedding, BETWEEN_THE_HALVES)), 0.0),
        entered=entered,
        entering=entered + broadcast(making + inputs.residual_bytes) - np.where(full, broadcast(made), 0.0),
        ends=broadcast(saved_bytes(shapes.graph.head))
        - _run_again(shapes, layouts)
        + np.where(full, entered, embedded),
        before_learning=np.where(full, 0.0, broadcast(_before_learning(kinds[0][1], inputs))),
        loss_kept=(logits * (loss.kept_bytes + capped) + chunked) * (1.0 + model.trained_mtp_layers),
        loss_live=logits * narrowed / broadcast(chunks_of_loss(inputs)) * np.maximum(loss.live_bytes + capped, summed)
        + broadcast(_ungathered_bytes(inputs))
        + (3.0 if loss.words else 2.0) * chunked,  # the sum, and that of a chunk, in float32 where words are cut too
    )


# Memory of an encoder-decoder at the moment between its halves, when the backward has left the decoder.


def encoder_share(model: ModelShape) -> float:
    """Parameters of the encoder's layers over those of all layers [-]; 0 without an encoder before a decoder.

        share = sum over layers of the encoder of their parameters / sum over all layers

    Parameters
    ----------
    model : its layers

    Returns
    -------
    float [-]

    Source: definition.
    """
    sizes = [(kind, count * sum(w.parameters for w in layer_weights(model, kind))) for kind, count in model.layer_kinds]
    return sum(size for kind, size in sizes if kind.source) / sum(size for _, size in sizes)


def gradients_to_come(model: ModelShape, held: ParameterCounts, waits: NDArray[np.bool_]) -> Array:
    """Elements of the layers whose backward has not begun at the last of its moments, shape (stage, layout) [-].

        elements = those of the first layer, or of the encoder's layers where that moment is between the halves

    Parameters
    ----------
    model : its layers
    held : elements of a rank before sharding, shape (stage, layout) [-]
    waits : where most is held between the halves, shape (stage, layout) [-]

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]

    Source: own derivation from the order of the backward; traced.
    """
    layers = (held.mean_layer + held.mean_experts) * model.layers
    return np.where(waits, layers * encoder_share(model), held.whole_layer)


def encoder_waits(
    model: ModelShape, held: ParameterCounts, saved: Activations, gradient_bytes: Array
) -> NDArray[np.bool_]:
    """Whether a rank holds more when the backward reaches the encoder than when it reaches its first layer.

        waits = kept by the encoder - checkpoint > (elements of its layers - those of the first) x gradient bytes

    Parameters
    ----------
    model, held : layers, an encoder's among them, and elements of a rank, shape (stage, layout) [-]
    saved : what the layers keep, shape (layout,) [bytes]
    gradient_bytes : of an element that learns, and that the backward leaves, shape (layout,) [bytes]

    Returns
    -------
    ndarray of bool, shape (stage, layout) [-]

    Source: own derivation from the order of the backward; traced.
    """
    everywhere = np.ones(np.shape(held.linear), dtype=bool)
    later, last = (gradients_to_come(model, held, waits) for waits in (everywhere, ~everywhere))
    return np.asarray(saved.source_kept - saved.checkpoint > (later - last) * gradient_bytes)


# The encoder of a job's images: its part of a step, as a job of its own on the first stage of a pipeline.

OperatorGroups = tuple[tuple["Operator", ...], tuple["Operator", ...], tuple["Operator", ...]]
"""Operators of the layers, of what comes before them, and of what comes behind them."""


def operator_groups(job: Job, shapes: RankShapes) -> OperatorGroups:
    """Operators of a micro-batch: of the layers, the embedding and the head, or of an encoder in their place.

        operators = those of the graph

    Parameters
    ----------
    job : whether it is an encoder's part
    shapes : of the ranks

    Returns
    -------
    three tuples of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: `graph.transformer`, `graph.vision`.
    """
    if job.encodes is None:
        return shapes.graph.layers, shapes.graph.embedding, shapes.graph.head
    projecting = replace(shapes.inputs, learning=job.encodes.projector)
    first, layers, last = vision_groups(job.encodes.tower, shapes.inputs, projecting, shapes.graph.layers)
    return layers, first, last


def runs_backward(job: Job, layouts: Layouts) -> tuple[Array, Array, Array]:
    """Whether the backward passes the layers, the embedding and the head: 1, or 0 in frozen parts of an encoder.

        backward = learns, or something before it does, or recomputed with inputs that are made to need gradients

    Parameters
    ----------
    job, layouts : the job or an encoder's part of it, and layouts of shape (layout,)

    Returns
    -------
    three ndarrays of float, shape (layout,) [-]

    Source: PyTorch's autograd records what needs a gradient; transformers 5 modeling_utils.py,
    enable_input_require_grads, which hooks the embeddings of an encoder too.
    """
    one = np.ones(len(layouts))
    if job.encodes is None:
        return one, one, one
    forced = float(job.encodes.forced) * (layouts.recompute == FULL)
    through = one * float(_learns(job.encodes.encoder)) + forced
    encoder = np.minimum(through, 1.0)
    return encoder, encoder, np.maximum(encoder, float(_learns(job.encodes.projector)))


def _learns(learning: Learning) -> bool:
    return learning.base or bool(learning.adapters)


class EncoderActivations(Immutable):
    """Bytes of the images of one micro-batch on one rank, shape (layout,).

    kept : by the encoder and the projector until their backward; pixels : of the patches, as the data loader hands them
    over; backward_peak : the most that the backward of an encoder's layer holds
    """

    kept: Array
    pixels: Array
    backward_peak: Array


def encoder_activations(
    job: Job, layouts: Layouts, shapes: RankShapes, gradient_bytes: float, keeps_gradients: Array
) -> EncoderActivations:
    """Activations of the encoder of images under each layout.

        kept = layers x kept by a layer + patches + projector, each where the backward passes it
        pixels = patches x colours x frames x patch^2 x 4

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks that encode
    gradient_bytes : size of a weight gradient's element [bytes]
    keeps_gradients : 1 where fresh gradients stay until the optimizer runs, else 0, shape (layout,) [-]

    Returns
    -------
    EncoderActivations, shape (layout,) [bytes]

    Source: `training.activations`; image processors return float32.
    """
    assert job.encodes is not None, "an encoder's part of a job has images that it encodes"
    tower, whole = job.encodes.tower, as_array(layouts.recompute == FULL)
    one = activations(shapes, layouts, gradient_bytes, keeps_gradients, whole)
    in_layers, before, behind = runs_backward(job, layouts)
    _, first, last = operator_groups(job, shapes)
    ends = before * shapes.broadcast(saved_bytes(first)) + behind * shapes.broadcast(saved_bytes(last))
    layers = tower.encoder.layers * one.kept - one.before_learning
    patches = shapes.broadcast(shapes.inputs.rank.tokens * np.ones_like(shapes.inputs.rank.tp))
    return EncoderActivations(
        kept=in_layers * layers + ends,
        pixels=patches * COLOURS * tower.frames * tower.patch**2 * FLOAT32,
        backward_peak=in_layers * one.backward_peak,
    )


# How many of a stage's layers are recomputed as a whole.


def recomputed_layers_share(job: Job, layouts: Layouts, stages: Stages) -> Array:
    """Share of the layers of a stage that run again in the backward from their input alone.

        share = min(recomputed layers / layers of the stage, 1)      full recomputation; all where no number is given
        share = 0                                                    else

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    stages : layers of each pipeline stage [-]

    Returns
    -------
    ndarray of float, shape (layout,) [-]

    Source: Megatron-LM's recompute-num-layers by block, which counts the layers of a pipeline stage
    (megatron/core/transformer/transformer_block.py, _checkpointed_forward); the others keep all they compute.
    """
    full: Array = as_array(layouts.recompute == FULL)
    if job.recompute_layers is None:
        return full
    return np.asarray(full * np.minimum(job.recompute_layers / stages.fullest, 1.0))


# How many of a stage's layers leave what they keep for the backward in host memory.


def offloaded_layers(job: Job, layouts: Layouts, layers: Array) -> Array:
    """Layers of a stage whose activations wait in host memory.

        offloaded = min(n, layers)      where activations are offloaded; all where no number is given
        offloaded = 0                   else

    Parameters
    ----------
    job, layouts : the job, which says n, and layouts of shape (layout,)
    layers : of a stage, shape (layout,) or (stage, layout) [-]

    Returns
    -------
    ndarray of float, shape of `layers` [-]

    Source: Megatron-LM's --cpu-offloading-num-layers (core/transformer/transformer_block.py, get_cpu_offload_context of
    Transformer Engine); OffloadActivations of torchtune and TRL offload all layers.
    """
    most = layers if job.offload_layers is None else np.minimum(layers, float(job.offload_layers))
    return np.where(layouts.hosts_activations, most, 0.0)
