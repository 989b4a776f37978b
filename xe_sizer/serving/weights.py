"""Bytes of the weights of a served model, whole or on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array, layers_per_stage
from xe_sizer.graph.vision import VISION, vision_weights
from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights
from xe_sizer.serving.job import wide_modules
from xe_sizer.serving.layout import ReplicaLayouts
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.software.number_formats import Scheme


def weight_bytes(model: ModelShape, scheme: Scheme) -> float:
    """Weights of the whole model as a checkpoint of the format has them.

        bytes = elements of matrices x bytes of the format, with its scales + all other elements x 2

    Matrices of the layers are in the format; embedding, head, router, norms, biases and the encoder of images stay in
    16 bit, but for formats that embedding and head are stored in too.

    Parameters
    ----------
    model : its weights [-]
    scheme : formats of weights, activations and cache

    Returns
    -------
    float [bytes]

    Source: checkpoints of GPTQ, AWQ, compressed-tensors, ModelOpt and gpt-oss.
    """
    one = ReplicaLayouts.of()
    layers = [count * _total(weights, one, scheme) for count, weights in _layers(model)]
    ends = (_total(part, one, scheme) for part in _ends(model))
    return float(np.sum([*layers, *ends, _vision(model, one, scheme)]))


def rank_weight_bytes(model: ModelShape, scheme: Scheme, placements: ReplicaLayouts) -> Array:
    """Weights on the fullest rank of each placement.

        bytes = heaviest ceil(L / pp) layers in a row + max(embedding + vision, head)
        bytes = layers + embedding + vision + head                                       one stage

    The encoder of images stays in 16 bit, and is sharded like the layers, on the first stage.

    Parameters
    ----------
    model : its weights [-]
    scheme : formats of weights, activations and cache
    placements : shape (placements,)

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: `weight_bytes`; column-, row- and expert-parallel shards as in Megatron-LM (arXiv:1909.08053) and the
    engines.
    """
    pp = as_array(placements.pp)
    layers = _fullest_stage(model, scheme, placements)
    embedding, head = (_total(part, placements, scheme) for part in _ends(model))
    first = embedding + _vision(model, placements, scheme)
    if model.tied_embeddings:  # the last stage has a copy of the table
        table = tuple(weight for weight in embedding_weights(model) if weight.name == "embedding")
        head_alone = head + _total(table, placements, scheme)
    else:
        head_alone = head
    return np.asarray(layers + np.where(pp > 1, np.maximum(first, head_alone), first + head))


def _fullest_stage(model: ModelShape, scheme: Scheme, placements: ReplicaLayouts) -> Array:
    """The heaviest run of ceil(layers / pp) layers that a rank may hold [bytes]."""
    share = layers_per_stage(model.layers, placements.pp) / model.layers
    each = [(count, _total(weights, placements, scheme)) for count, weights in _layers(model)]
    if len(each) == 1 or model.kv_layers is not None:
        return np.asarray(share * sum(count * size for count, size in each))
    sizes = np.stack([size for _, size in each])  # shape (kinds, placements)
    found = np.zeros(len(placements))
    for stages in np.unique(placements.pp):
        of_stages = placements.pp == stages
        runs = _runs(model, int(layers_per_stage(model.layers, stages)))
        found[of_stages] = (runs @ sizes[:, of_stages]).max(axis=0)
    return found


def _runs(model: ModelShape, length: int) -> Array:
    """Layers of each kind in every run of `length` neighbours, shape (runs, kinds), each kind of run once."""
    kinds = [kind for kind, _ in model.layer_kinds]
    ones = np.array([[kind == known for known in kinds] for kind in model.layer_sequence], dtype=float)
    sums = np.vstack([np.zeros(len(kinds)), np.cumsum(ones, axis=0)])
    return np.unique(sums[length:] - sums[:-length], axis=0)


def _layers(model: ModelShape) -> Iterator[tuple[float, tuple[Weight, ...]]]:
    """Weights of each kind of layer and how many layers have them; borrowed keys and values are not stored."""
    lent = 0.0 if model.kv_layers is None else 1.0 - model.kv_layers / model.layers
    for kind, count in model.layer_kinds:
        weights = layer_weights(model, kind)
        yield float(count), tuple(weight for weight in weights if not (lent and weight.name in ("k", "v")))
        if lent:
            yield count * (1.0 - lent), tuple(weight for weight in weights if weight.name in ("k", "v"))


def _ends(model: ModelShape) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    return embedding_weights(model), head_weights(model)


def _vision(model: ModelShape, placements: ReplicaLayouts, scheme: Scheme) -> Array:
    """The encoder of images and its projectors on one rank; zero where the model has none [bytes]."""
    groups = vision_weights(model.vision) if model.vision else ()
    found = [count * _total(tuple(map(_wide, weights)), placements, scheme) for count, weights in groups]
    return np.asarray(np.sum([np.zeros(len(placements)), *found], axis=0))


def _wide(weight: Weight) -> Weight:
    """The weight as one of the encoder of images, which formats of few bits leave alone."""
    return replace(weight, module=VISION)


def _total(weights: tuple[Weight, ...], placements: ReplicaLayouts, scheme: Scheme) -> Array:
    zero = np.zeros(len(placements))
    return np.asarray(np.sum([zero, *(_bytes(weight, placements, scheme) for weight in weights)], axis=0))


def _bytes(weight: Weight, placements: ReplicaLayouts, scheme: Scheme) -> Array:
    """One weight on one rank: its matrix in the format or in 16 bit, its bias in 16 bit."""
    tp = as_array(placements.tp)
    wide = max(SIXTEEN_BIT, scheme.weights.element_bytes)
    stored = weight.kind == "linear" or (scheme.weights.everywhere and weight.module in ("embedding", "head"))
    narrow = stored and weight.module not in wide_modules(scheme)
    size = scheme.weights.element_bytes if narrow else wide
    expert_ranks = as_array(placements.ep) * placements.expert_tp
    return weight.on_rank(weight.matrix_elements * size, weight.bias_elements * wide, tp, expert_ranks)
