"""How many elements of what kind a rank holds before ZeRO shards them, by pipeline stage.

Arrays have shape (2, layouts): the first pipeline stage and the last; with one stage both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.inputs import AdapterForm, head_adapters, model_adapters
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD, saved_head
from xe_sizer.training.stages import stages_of
from xe_sizer.training.unique_rows import unique_rows

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods import Method
    from xe_sizer.training.stages import Split

Adapters = tuple[tuple[str, AdapterForm], ...]
"""Adapted weights with the form of their adapters."""


@frozen
class Census:
    """Elements on one rank [-].

    linear : linear weights of layers but the experts'; other : norms, embedding, head
    experts : expert weights; adapters : LoRA weights, prompt encoder, and copies of modules that learn beside them, as
    so many elements of adapters as take their place; buffer_bytes : what stands beside weights and does not learn
    [bytes]
    layer, layer_experts : weights of one layer (the largest kind) without and of experts, the unit that ZeRO-3
    gathers; mean_layer, mean_experts : of an average layer; root : embedding and head, which it gathers for the
    whole micro-batch
    largest : the matrix of a layer with the most elements, of experts half of what the layer has
    vectors, tables : norms and biases anywhere, and the matrices of embedding and head
    parts_matrices, parts_others : frozen elements of parts beside the layers, which are on the first stage; matrices
    that a quantiser leaves as they are count as others
    parts_learning : those that learn; parts_adapters : of `adapters`, those on such parts
    embedding, head : of the root, the tables on the first stage, and the weights of the head on the last (with the
    table of a tied one)
    """

    linear: Array
    other: Array
    experts: Array
    adapters: Array
    buffer_bytes: Array
    layer: Array
    layer_experts: Array
    mean_layer: Array
    mean_experts: Array
    root: Array
    largest: Array
    vectors: Array
    tables: Array
    embedding: Array
    head: Array
    parts_matrices: Array
    parts_others: Array
    parts_learning: Array
    parts_adapters: Array

    @property
    def parts(self) -> Array:
        """Elements of parts beside the layers, adapters apart, shape (stage, layout) [-]"""
        return np.asarray(self.parts_matrices + self.parts_others + self.parts_learning)

    @property
    def whole_layer(self) -> Array:
        return self.layer + self.layer_experts

    @property
    def base(self) -> Array:
        return self.linear + self.other + self.experts


@frozen
class _Groups:
    """Ranks that divide the weights, arrays of one shape: tensor-parallel ranks, stages, ranks of an expert group.

    first_layers, last_layers : of these stages; folded : 1 where the first has the head too
    """

    tp: Array
    pp: Array
    experts: Array
    first_layers: Array
    last_layers: Array
    folded: Array

    @classmethod
    def of(cls, sizes: tuple[bytes, ...]) -> _Groups:
        return cls(*(as_array(np.frombuffer(size, dtype=np.int64)) for size in sizes))

    def elements(self, weight: Weight) -> Array:
        """Elements of a weight on one rank [-]; row-parallel biases and replicated weights are whole on each."""
        return weight.on_rank(weight.matrix_elements, weight.bias_elements, self.tp, self.experts)

    def vectors(self, weights: Iterable[Weight]) -> Array:
        """Elements of biases, and of weights that are vectors, on one rank [-]."""
        whole = [(weight, weight.matrix_elements * float(weight.kind == "vector")) for weight in weights]
        held = [weight.on_rank(elements, weight.bias_elements, self.tp, self.experts) for weight, elements in whole]
        return np.asarray(np.sum([np.zeros(self.tp.shape), *held], axis=0))

    def matrices(self, weights: Iterable[Weight]) -> list[Array]:
        """Elements of each dense matrix on one rank [-]."""
        return [self.elements(weight) for weight in weights if weight.kind == "linear" and weight.split != "expert"]

    def total(self, weights: Iterable[Weight]) -> Array:
        return np.asarray(np.sum([np.zeros(self.tp.shape), *map(self.elements, weights)], axis=0))

    def at_ends(self, first: Array, last: Array, copied: float = 0.0) -> Array:
        """On the first and the last stage, which has a copy of that share of the first's. In a V the first has all."""
        several = self.pp > 1
        apart = several & (self.folded == 0)
        again = np.where(several, first * copied, first)
        return np.stack([first + np.where(apart, 0.0, last), np.where(several & ~apart, 0.0, last + again)])


@frozen
class _Layers:
    """Elements on a rank of an average layer by kind of weight, of the fullest ones, and of the largest matrix [-]."""

    linear: Array
    other: Array
    experts: Array
    fullest: Array
    fullest_experts: Array
    largest: Array
    vectors: Array


@frozen(eq=True)
class _Beside:
    """What learns beside frozen weights.

    adapters : weights with the forms of their adapters
    saved : embedding or head that learn in a copy; saved_element_share : size of its element over an adapter's [-]
    added_parameters : of a prompt encoder [-]; added_bytes : beside the layers, of what does not learn [bytes]
    """

    adapters: Adapters
    saved: tuple[str, ...]
    saved_element_share: float
    added_parameters: int
    added_bytes: float


def adapter_factors(model: ModelShape, method: Method) -> float:
    """Tensors of all adapters in the model, as A and B of low-rank ones [-]."""
    forms = method.learning.adapters
    of_layers = sum(layers * each.form.tensors for layers, each in model_adapters(model, forms))
    return float(of_layers + sum(each.form.tensors for each in head_adapters(model, forms)))


def census(model: ModelShape, method: Method, layouts: Layouts, split: Split) -> Census:
    """Elements on a rank of the first and the last stage, before ZeRO shards them.

        elements = layers of the stage x average layer + embedding (first stage) or head (last stage, in a V the first)

    A search asks for the same groups many times, so they are counted once.

    Parameters
    ----------
    model, method : the model, and what learns of it
    layouts : tp, pp, ep and how stages are made, shape (layout,) [-]
    split : how layers are spread over stages

    Returns
    -------
    Census, shape (stage, layout) [-]

    Source: parameter counts of the reference implementations (`graph.parameters`); Megatron-LM's sharding
    (arXiv:1909.08053).
    """
    expert_ranks = layouts.ep * layouts.expert_ranks
    stages = stages_of(model.layers, split, layouts)
    first_layers, last_layers = stages.at_ends.astype(np.int64)
    columns = (layouts.tp, layouts.pp, expert_ranks, first_layers, last_layers, stages.head_first.astype(np.int64))
    rows = unique_rows(columns)
    sizes = tuple(size[rows.first].tobytes() for size in columns)
    learning = method.learning
    beside = _Beside(
        adapters=tuple(learning.adapters.items()),
        saved=learning.saved,
        saved_element_share=method.saved_element_share,
        added_parameters=method.added_parameters,
        added_bytes=method.trained.added_bytes,
    )
    counted = _census(model, beside, sizes)
    if method.parts:
        counted = _with_parts(counted, method, _Groups.of(sizes))
    return Census(**{field.name: rows.spread(getattr(counted, field.name)) for field in fields(counted)})


def _with_parts(counted: Census, method: Method, groups: _Groups) -> Census:
    """The census with the parts of the model beside its layers, which are on the first stage.

    Where a quantiser leaves their matrices alone, they count among what else is frozen.
    """
    narrow = float(method.held is None or method.held.quantiser.parts)
    tp = groups.tp
    on_first = np.stack([np.ones(tp.shape), (groups.pp == 1).astype(float)])
    for part in method.parts:
        matrices, others = part.matrices_on_rank(tp) * on_first, part.others_on_rank(tp) * on_first
        adapters, learns = part.adapters_on_rank(tp) * on_first, float(part.learning.base)
        counted = replace(
            counted,
            adapters=counted.adapters + adapters,
            parts_adapters=counted.parts_adapters + adapters,
            parts_matrices=counted.parts_matrices + matrices * narrow * (1.0 - learns),
            parts_others=counted.parts_others + (others + matrices * (1.0 - narrow)) * (1.0 - learns),
            parts_learning=counted.parts_learning + (matrices + others) * learns,
        )
    return counted


@lru_cache(maxsize=256)
def _census(model: ModelShape, beside: _Beside, sizes: tuple[bytes, ...]) -> Census:
    groups = _Groups.of(sizes)
    layers = _layers(model, groups)
    stage_layers, several = np.stack([groups.first_layers, groups.last_layers]), groups.pp > 1
    embedding, head = groups.total(embedding_weights(model)), groups.total(head_weights(model))
    tied = float(model.tied_embeddings)
    ends = groups.at_ends(embedding, head, tied)
    ends_vectors = groups.at_ends(groups.vectors(embedding_weights(model)), groups.vectors(head_weights(model)), tied)
    adapters = tuple(model_adapters(model, dict(beside.adapters)))
    adapted = sum(count * adapter.on_rank(groups.tp, groups.experts) for count, adapter in adapters)
    buffers = np.zeros(groups.tp.shape) + sum(
        count * adapter.buffer_bytes(groups.tp, groups.experts) for count, adapter in adapters
    )
    on_head = np.zeros(groups.tp.shape) + sum(
        one.on_rank(groups.tp) for one in head_adapters(model, dict(beside.adapters))
    )
    copied = {EMBEDDING: embedding, HEAD: groups.total(saved_head(model))}
    first, last = (copied[end] * float(end in beside.saved) * beside.saved_element_share for end in (EMBEDDING, HEAD))
    at_ends = groups.at_ends(first, last + on_head)
    return Census(
        linear=layers.linear * stage_layers,
        other=layers.other * stage_layers + ends,
        experts=layers.experts * stage_layers,
        adapters=adapted * stage_layers / model.layers + beside.added_parameters + at_ends,
        buffer_bytes=buffers * stage_layers / model.layers + beside.added_bytes,
        layer=np.stack([layers.fullest] * 2),
        layer_experts=np.stack([layers.fullest_experts] * 2),
        mean_layer=np.stack([layers.linear + layers.other] * 2),
        mean_experts=np.stack([layers.experts] * 2),
        root=ends,
        largest=np.stack([layers.largest] * 2),
        vectors=layers.vectors * stage_layers + ends_vectors,
        tables=ends - ends_vectors,
        embedding=np.stack([embedding, np.where(several, 0.0, embedding)]),
        head=(head + embedding * tied) * np.stack([np.where(several, groups.folded, 1.0), 1.0 - groups.folded]),
        parts_matrices=np.zeros_like(ends),
        parts_others=np.zeros_like(ends),
        parts_learning=np.zeros_like(ends),
        parts_adapters=np.zeros_like(ends),
    )


def _layers(model: ModelShape, groups: _Groups) -> _Layers:
    linear = other = experts = fullest = fullest_experts = largest = vectors = np.zeros(groups.tp.shape)
    for kind, layers in model.layer_kinds:
        share, weights = layers / model.layers, layer_weights(model, kind)
        parts = [
            groups.total(w for w in weights if w.kind == "linear" and w.split != "expert"),
            groups.total(w for w in weights if w.kind != "linear"),
            groups.total(w for w in weights if w.split == "expert"),
        ]
        linear, other, experts = (a + share * b for a, b in zip((linear, other, experts), parts, strict=True))
        vectors = vectors + share * groups.vectors(weights)
        largest = np.max([largest, parts[2] / 2.0, *groups.matrices(weights)], axis=0)
        fullest, fullest_experts = np.maximum(fullest, parts[0] + parts[1]), np.maximum(fullest_experts, parts[2])
    return _Layers(linear, other, experts, fullest, fullest_experts, largest, vectors)


@frozen
class Shards:
    """Sizes of the groups that shard states, shape (layout,): 1 where the ZeRO stage leaves the state whole.

    experts : the group that shards states of the same experts, where the stage shards them
    """

    optimizer: Array
    gradients: Array
    weights: Array
    experts: Array

    @classmethod
    def of(cls, layouts: Layouts) -> Shards:
        group = as_array(layouts.zero_ranks)
        zero = layouts.zero
        return cls(
            np.where(zero >= 1, group, 1.0),
            np.where(zero >= 2, group, 1.0),
            np.where(zero >= 3, group, 1.0),
            as_array(layouts.expert_zero_ranks),
        )


def sharded_elements(dense: Array, experts: Array, group: Array, shards: Shards) -> Array:
    """What a rank holds of states that data-parallel ranks share.

        elements = dense / group + experts / expert group

    Parameters
    ----------
    dense, experts : elements of a rank before sharding, shape (stage, layout) [-]
    group : ranks that share the dense ones, 1 where they do not, shape (layout,) [-]
    shards : the smaller group that holds the same experts, where anything is shared

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]

    Source: ZeRO (arXiv:1910.02054); experts are replicated over expert_dp ranks alone (Megatron-LM).
    """
    return dense / group + experts / np.where(group > 1, shards.experts, 1.0)
