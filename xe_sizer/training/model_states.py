"""Weights, gradients and optimizer states of a rank: what learns, in which formats, and how they are sharded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.graph.drafter import mtp_module
from xe_sizer.graph.inputs import AdapterForm, head_adapters, model_adapters
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import over
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD, saved_head
from xe_sizer.training.layout import Counted, PerLayout
from xe_sizer.training.rank import unique_rows
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.model import LayerKind, ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weights import Weight
    from xe_sizer.laws.parts import Size
    from xe_sizer.software.optimizer import Kept, Optimizer
    from xe_sizer.software.stack import States
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.methods import Method

# How many elements of what kind a rank holds before ZeRO shards them, by pipeline stage.
#
# Arrays have shape (2, layouts): the first pipeline stage and the last; with one stage both are the same.

Adapters = tuple[tuple[str, AdapterForm], ...]
"""Adapted weights with the form of their adapters."""


class ParameterCounts(PerLayout):
    """Elements on one rank [-].

    linear : linear weights of layers but the experts'; other : norms, embedding, head, and matrices of layers that stay
    float32 where the others are held in few bits
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


class _Groups(Immutable):
    """Ranks that divide the weights, arrays of one shape: tensor-parallel ranks, stages, ranks of an expert group.

    first_layers, last_layers : of these stages; first_leading, last_leading : of these the ones without experts that
    the model begins with; folded : 1 where the first has the head too; bare : 1 where a later one stands for it, which
    has neither embedding nor head
    """

    tp: Array
    pp: Array
    experts: Array
    first_layers: Array
    last_layers: Array
    first_leading: Array
    last_leading: Array
    folded: Array
    bare: Array

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
        return np.stack(
            [(first + np.where(apart, 0.0, last)) * (1.0 - self.bare), np.where(several & ~apart, 0.0, last + again)]
        )


class _Layers(Immutable):
    """Elements on a rank of an average layer by kind of weight, of the fullest ones, and of the largest matrix [-].

    needed : of an average layer while it runs, with the whole of what it has in common with others; without experts
    """

    linear: Array
    other: Array
    experts: Array
    needed: Array
    fullest: Array
    fullest_experts: Array
    largest: Array
    vectors: Array


class _Beside(Immutable, eq=True):
    """What learns beside frozen weights.

    adapters : weights with the forms of their adapters
    saved : embedding or head that learn in a copy; saved_element_share : size of its element over an adapter's [-]
    wide : weights of layers that stay float32 where the others are held in few bits
    added_parameters : of a prompt encoder [-]; added_bytes : beside the layers, of what does not learn [bytes]
    """

    adapters: Adapters
    saved: tuple[str, ...]
    saved_element_share: float
    added_parameters: int
    added_bytes: float
    wide: tuple[str, ...] = ()


def parameter_counts(model: ModelShape, method: Method, layouts: Layouts, stages: Stages) -> ParameterCounts:
    """Elements on a rank of the first and the last stage, before ZeRO shards them.

        elements = layers of the stage x average layer + embedding (first stage) or head (last stage, in a V the first)

    Where a mixture begins with layers without experts, the first stages have these, and averages are of either kind.

    A search asks for the same groups many times, so they are counted once.

    Parameters
    ----------
    model, method : the model, and what learns of it
    layouts : tp, pp, ep and how stages are made, shape (layout,) [-]
    stages : layers of each

    Returns
    -------
    ParameterCounts, shape (stage, layout) [-]

    Source: parameter counts of the reference implementations (`graph.weights`); Megatron-LM's sharding
    (arXiv:1909.08053).
    """
    expert_ranks = layouts.ep * layouts.expert_ranks
    first_layers, last_layers = (stages.at_ends * (1.0 + stages.mirrored)).astype(np.int64)  # of both stages of a rank
    ends = (where.astype(np.int64) for where in (stages.head_first, stages.counted >= Counted.SECOND))
    leading = np.minimum(leading_layers(model, layouts, stages), [first_layers, last_layers]).astype(np.int64)
    columns = (layouts.tp, layouts.pp, expert_ranks, first_layers, last_layers, *leading, *ends)
    rows = unique_rows(columns)
    sizes = tuple(size[rows.first].tobytes() for size in columns)
    learning = method.learning
    beside = _Beside(
        adapters=tuple(learning.adapters.items()),
        saved=learning.saved,
        saved_element_share=method.saved_element_share,
        added_parameters=method.added_parameters,
        added_bytes=method.trained.added_bytes,
        wide=model.float32_weights if method.quantised else (),
    )
    counted = _parameter_counts(model, beside, sizes)
    if method.parts:
        counted = _with_parts(counted, method, _Groups.of(sizes))
    return ParameterCounts(**{field: rows.broadcast(getattr(counted, field)) for field in counted.__struct_fields__})


def leading_layers(model: ModelShape, layouts: Layouts, stages: Stages) -> Array:
    """Layers without experts, with which a mixture begins, on the stage that is counted and on the last.

        leading = clip(d - before, 0, chunk)      before = layers in the first chunks of the stages before

    Where micro-batches enter at both ends, those of both stages of the rank.

    Parameters
    ----------
    model : d, its first layers without experts [-]
    layouts : pp and vpp, shape (layout,) [-]
    stages : layers of each

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]; 0 where no layer stands apart

    Source: Megatron-Core (moe_layer_freq); chunks of a stage are pp apart, so that its first one has its first layers.
    """
    pp, whole = as_array(layouts.pp), float(model.layers)
    dense = float(model.experts.first_dense_layers) if model.experts else 0.0
    if not 0.0 < dense < whole:
        return np.zeros((2, len(layouts)))
    outermost = np.where(pp > 1, stages.end_shares[0] * stages.layers[0], whole)
    further = np.where(pp > 2, stages.layers[2], stages.layers[1]) / layouts.vpp
    counted = np.maximum(stages.counted - Counted.FIRST, 0.0)
    leading = np.zeros((2, len(layouts)))
    for place, there in (([counted, pp - 1.0], 1.0), ([pp - 1.0 - counted, 0.0 * pp], stages.mirrored)):
        stage = np.stack(place)
        before = np.where(stage > 0, outermost + (stage - 1.0) * further, 0.0)
        leading = leading + there * np.round(np.clip(dense - before, 0.0, np.where(stage > 0, further, outermost)))
    return np.asarray(leading)


def _with_parts(counted: ParameterCounts, method: Method, groups: _Groups) -> ParameterCounts:
    """The counts with the parts of the model beside its layers, which are on the first stage.

    Where a quantiser leaves their matrices alone, they count among what else is frozen.
    """
    narrow = float(method.held is None or method.held.quantiser.parts)
    tp = groups.tp
    on_first = np.stack([1.0 - groups.bare, (groups.pp == 1).astype(float)])
    for trained_part in method.parts:
        matrices, others = trained_part.matrices_on_rank(tp) * on_first, trained_part.others_on_rank(tp) * on_first
        adapters, learns = trained_part.adapters_on_rank(tp) * on_first, float(trained_part.learning.base)
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
def _parameter_counts(model: ModelShape, beside: _Beside, sizes: tuple[bytes, ...]) -> ParameterCounts:
    groups = _Groups.of(sizes)
    layers = _layers(model, groups, beside.wide, model.layer_kinds)
    stage_layers, several = np.stack([groups.first_layers, groups.last_layers]), groups.pp > 1
    leading = np.stack([groups.first_leading, groups.last_leading])
    dense = model.experts.first_dense_layers if model.experts else 0
    apart = [model.layer_sequence[:dense], model.layer_sequence[dense:]]
    each = [_layers(model, groups, beside.wide, tuple(Counter(kinds).items())) for kinds in apart if kinds]

    def on_stages(name: str) -> Array:
        """Elements in the layers of both stages."""
        if len(each) < 2:
            return np.asarray(getattr(layers, name) * stage_layers)
        first, others = (getattr(kind, name) for kind in each)
        return np.asarray(first * leading + others * (stage_layers - leading))

    embedding, head = groups.total(embedding_weights(model)), groups.total(head_weights(model))
    tied = float(model.tied_embeddings)
    ends = groups.at_ends(embedding, head, tied)
    ends_vectors = groups.at_ends(groups.vectors(embedding_weights(model)), groups.vectors(head_weights(model)), tied)
    further = _further(model, groups, embedding)
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
    return ParameterCounts(
        linear=on_stages("linear") + further.linear,
        other=on_stages("other") + ends + further.other,
        experts=on_stages("experts") + further.experts,
        adapters=adapted * stage_layers / model.layers + beside.added_parameters + at_ends,
        buffer_bytes=buffers * stage_layers / model.layers + beside.added_bytes,
        layer=np.stack([layers.fullest] * 2),
        layer_experts=np.stack([layers.fullest_experts] * 2),
        mean_layer=np.stack([layers.needed] * 2),
        mean_experts=np.stack([layers.experts] * 2),
        root=ends,
        largest=np.stack([layers.largest] * 2),
        vectors=on_stages("vectors") + ends_vectors,
        tables=ends - ends_vectors,
        embedding=np.stack([embedding * (1.0 - groups.bare), np.where(several, 0.0, embedding)]),
        head=(head + embedding * tied)
        * np.stack([np.where(several, groups.folded * (1.0 - groups.bare), 1.0), 1.0 - groups.folded]),
        parts_matrices=np.zeros_like(ends),
        parts_others=np.zeros_like(ends),
        parts_learning=np.zeros_like(ends),
        parts_adapters=np.zeros_like(ends),
    )


def _layers(
    model: ModelShape, groups: _Groups, wide: tuple[str, ...], kinds: tuple[tuple[LayerKind, int], ...]
) -> _Layers:
    """Of an average layer of these kinds. wide : matrices that count among what is not quantised"""
    linear = other = experts = needed = fullest = fullest_experts = largest = vectors = np.zeros(groups.tp.shape)
    every = sum(layers for _, layers in kinds)
    for kind, layers in kinds:
        share, weights = layers / every, layer_weights(model, kind)
        matrices = [w for w in weights if w.kind == "linear" and w.name not in wide]
        parts = [
            groups.total(w for w in matrices if w.split != "expert"),
            groups.total(w for w in weights if w.kind != "linear" or w.name in wide),
            groups.total(w for w in weights if w.split == "expert"),
        ]
        linear, other, experts = (a + share * b for a, b in zip((linear, other, experts), parts, strict=True))
        vectors = vectors + share * groups.vectors(weights)
        whole = [replace(weight, sharing=1.0) for weight in weights]
        largest = np.max([largest, parts[2] / 2.0, *groups.matrices(whole)], axis=0)
        dense = groups.total(weight for weight in whole if weight.split != "expert")
        needed = needed + share * dense
        fullest, fullest_experts = np.maximum(fullest, dense), np.maximum(fullest_experts, parts[2])
    return _Layers(linear, other, experts, needed, fullest, fullest_experts, largest, vectors)


class _Further(Immutable):
    """Elements of the layers that predict further tokens, shape (stage, layout) [-]."""

    linear: Array
    other: Array
    experts: Array


def _further(model: ModelShape, groups: _Groups, embedding: Array) -> _Further:
    """Of the layers that predict further tokens, on the stage with the head.

    The embedding that they read is there once more where the pipeline has several stages.

    Source: MultiTokenPredictionBlock of Megatron-Core, built on the last stage with the head.
    """
    nothing, count = np.zeros(groups.tp.shape), model.trained_mtp_layers
    if not count:
        none = groups.at_ends(nothing, nothing)
        return _Further(none, none, none)
    module = mtp_module(model)
    layers = _layers(module, groups, (), module.layer_kinds)
    ends = (*embedding_weights(module), *head_weights(module))
    own = groups.total(weight for weight in ends if weight.split != "vocabulary")
    copied = np.where((groups.pp > 1) & (groups.folded == 0) & (not model.tied_embeddings), embedding, 0.0)
    sizes = (layers.linear, layers.other + own / module.layers, layers.experts)
    linear, other, experts = (count * module.layers * size for size in sizes)
    return _Further(*(groups.at_ends(nothing, size) for size in (linear, other + copied, experts)))


ZERO_RANKS = "ZeRO ranks"


class Shards(Immutable):
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


def sharded_elements(dense: Size, experts: Size, group: Array, shards: Shards) -> Size:
    """Elements that a rank holds of states which data-parallel ranks share.

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
    return over(dense, group, ZERO_RANKS) + over(experts, np.where(group > 1, shards.experts, 1.0), ZERO_RANKS)


# Jobs in which only some of a model's layers learn, the last ones or a few at a time: what learns, what runs back.


def learning_elements(job: Job, held: ParameterCounts, stages: Stages) -> tuple[Array, Array]:
    """Learning base elements of a rank before ZeRO, dense and of experts.

        dense, experts = those of all layers and ends, or of as many of the fullest layers as learn on the stage

    Parameters
    ----------
    job : what learns
    held : elements of a rank before sharding, shape (stage, layout) [-]
    stages : layers of each pipeline stage [-]

    Returns
    -------
    (dense, experts), each of shape (stage, layout) [-]

    Source: definition.
    """
    base, count = float(job.method.learning.base), job.learning_layers.count
    if count is None:
        return (held.linear + held.other) * base + held.parts_learning, held.experts * base
    here = base * np.minimum(count, stages.at_ends * (1.0 + stages.mirrored))
    return held.layer * here + held.parts_learning, held.layer_experts * here


# The matrices of a model's layers that learn, and what an optimizer keeps of matrices by their shape.


class Matrices(Immutable):
    """Matrices of one size that learn: rows and columns [-], and how many the layers of the model have.

    experts, split : whether they are of experts, and whether tensor-parallel ranks hold parts of them
    """

    rows: int
    columns: int
    count: float
    experts: bool = False
    split: bool = False

    @property
    def elements(self) -> float:
        """Elements of all of them [-]."""
        return self.count * self.rows * self.columns

    def tensor_ranks(self, layouts: Layouts) -> Array:
        """Tensor-parallel ranks that hold parts of a matrix, shape (layout,) [-]."""
        ranks = as_array(layouts.expert_ranks if self.experts else layouts.tp)
        return ranks if self.split else np.ones(len(layouts))


def base_matrices(job: Job) -> Iterator[Matrices]:
    """Every kind of matrix in the layers of the base model; embedding and head are not among them."""
    for kind, layers in job.model.layer_kinds:
        weights = layer_weights(job.model, kind)
        yield from (weight_matrices(weight, layers) for weight in weights if weight.kind == "linear")


def adapter_matrices(job: Job) -> Iterator[Matrices]:
    """Both factors of every kind of adapter."""
    for count, adapter in model_adapters(job.model, job.method.learning.adapters):
        yield from (Matrices(rows, columns, count) for rows, columns in adapter.matrices)
    for adapter in head_adapters(job.model, job.method.learning.adapters):
        yield from (Matrices(rows, columns, 1.0) for rows, columns in adapter.matrices)


def learning_matrices(job: Job) -> Iterator[Matrices]:
    """Every kind of matrix in the layers that learns."""
    if job.method.learning.base:
        yield from base_matrices(job)
    yield from adapter_matrices(job)


def state_elements_bytes(optimizer: Optimizer, kept: Kept, rows: int, columns: int, moment_bytes: float) -> float:
    """Bytes that an optimizer keeps of one matrix of m rows and n columns, m <= n after sorting.

        bytes = e m n + l (m + n) + k b sum of the squares of the preconditioned sides
        bytes = e r n + projection + l (m + n),  r = min(rank, m)                  where gradients are projected

    Parameters
    ----------
    optimizer : k squares of each side [-]; its rank, and what it projects with
    kept : e bytes of an element, and l of a row or column [bytes]
    rows, columns : of the matrix [-]
    moment_bytes : b, size of an element of a moment [bytes]

    Returns
    -------
    float, state of the matrix [bytes]

    Source: galore_torch adamw.py and galore_projector.py; SOAP (arXiv:2409.11321); Adafactor (arXiv:1804.04235).
    """
    m, n = sorted((rows, columns))
    lines = kept.line_bytes * (m + n)
    low, squares = optimizer.low_rank, optimizer.squares
    if low is not None:
        return kept.bytes(moment_bytes) * min(low.rank, m) * n + low.basis_bytes(m, moment_bytes) + lines
    held = squares.kept * squares.elements(m, n) if squares is not None else 0.0
    return kept.bytes(moment_bytes) * m * n + held * moment_bytes + lines


def mean_state_bytes(optimizer: Optimizer, matrices: Iterable[Matrices], moment_bytes: float) -> float:
    """State of an average element of matrices, moments without a master copy.

        bytes = sum of count x state of one / sum of count x m n

    Parameters
    ----------
    optimizer : what it keeps of a matrix
    matrices : all that learn alike; asked for only where their shape matters
    moment_bytes : size of an element of a moment [bytes]

    Returns
    -------
    float, of an element [bytes]

    Source: definition.
    """
    kept = optimizer.state.matrix
    if optimizer.low_rank is None and optimizer.squares is None and not kept.line_bytes:
        return kept.bytes(moment_bytes)
    held = elements = 0.0
    for each in matrices:
        one = state_elements_bytes(optimizer, kept, each.rows, each.columns, moment_bytes)
        held, elements = held + each.count * one, elements + each.elements
    return held / elements if elements else kept.bytes(moment_bytes)


def table_state_bytes(optimizer: Optimizer, rows: int, columns: int, moment_bytes: float) -> float:
    """State of an element of the embedding or the head, which are never projected.

        bytes = e + l (m + n) / m n + k b sum of the squares of the preconditioned sides / m n

    Parameters
    ----------
    optimizer : as of `state_elements_bytes`, e and l of an embedding
    rows, columns : vocabulary and hidden size [-]
    moment_bytes : b, size of an element of a moment [bytes]

    Returns
    -------
    float, of an element [bytes]

    Source: as of `state_elements_bytes`; SOAP and Shampoo precondition every matrix.
    """
    kept, squares = optimizer.state.embedding, optimizer.squares
    held = squares.kept * squares.elements(rows, columns) if squares is not None else 0.0
    more = kept.line_bytes * (rows + columns) + held * moment_bytes
    return kept.bytes(moment_bytes) + more / (rows * columns)


def weight_matrices(weight: Weight, layers: int) -> Matrices:
    count = layers * weight.copies / weight.sharing
    return Matrices(weight.inputs, weight.outputs, count, weight.split == "expert", weight.split != "replicated")


# Storage per element of weights, gradients and optimizer states, at a job's precision and under its stack.

FULLY_SHARDED = 3  # defined: ZeRO stage


class StateBytes(Immutable):
    """Storage per element at the job's precision, one figure or one a layout [bytes].

    fresh_gradient : as the backward makes it, before it is added up or sharded
    moments, optimizer : of a matrix, without and with the master copy
    vector_more, embedding_more : how much more moments of these take than those of a matrix
    gather, reduce : what data parallelism sends
    """

    weight: float | Array
    gradient: float | Array
    fresh_gradient: float
    moments: float | Array
    optimizer: float | Array
    vector_more: float | Array
    embedding_more: float | Array
    frozen: float
    frozen_linear: float
    adapter_gradient: float | Array
    adapter_optimizer: float | Array
    gather: float
    reduce: float

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> StateBytes:
        """Storage under each layout, where the stack keeps shards wider than what is loaded.

            bytes = float32 throughout where ZeRO = 3 and the stack upcasts shards, else as loaded

        Parameters
        ----------
        job, layouts : the job, and layouts of shape (layout,)

        Returns
        -------
        StateBytes, figures or arrays of shape (layout,) [bytes]

        Source: accelerate 0.30, Accelerator.prepare_model ("Upcasted low precision parameters", FSDP), and
        fsdp2_prepare_model: what learns is float32 under mixed precision.
        """
        states = job.stack.states
        loaded = cls._as_kept(job, states)
        if not states.sharded_upcast or states.trained_weight_bytes >= FLOAT32:
            return loaded
        wide = dict.fromkeys(("trained_weight_bytes", "gradient_bytes", "moment_bytes"), float(FLOAT32))
        upcast = cls._as_kept(job, msgspec.structs.replace(states, **wide))
        sharded = np.asarray(layouts.zero == FULLY_SHARDED)
        same = ("fresh_gradient", "frozen", "frozen_linear", "gather", "reduce")
        names = [field for field in cls.__struct_fields__ if field not in same]
        either = {name: np.where(sharded, getattr(upcast, name), getattr(loaded, name)) for name in names}
        return cls(**either, **{name: getattr(loaded, name) for name in same})

    @classmethod
    def _as_kept(cls, job: Job, states: States) -> StateBytes:
        """Storage where every layout keeps the same."""
        optimizer, model, size = job.optimizer, job.model, states.moment_bytes
        moments = mean_state_bytes(optimizer, base_matrices(job), size)
        embedding = table_state_bytes(optimizer, model.vocab, model.hidden, size)
        vector = optimizer.state.vector.bytes(size)
        wide = job.element_bytes == FLOAT32
        frozen = FLOAT32 if wide or job.upcasts else states.frozen_bytes
        linear = frozen if job.method.frozen_linear_bytes is None else job.method.frozen_linear_bytes
        common = {
            "moments": moments,
            "frozen": frozen,
            "frozen_linear": linear,
            "vector_more": vector - moments,
            "embedding_more": embedding - moments,
        }
        if wide:
            names = ("weight", "gradient", "fresh_gradient", "adapter_gradient", "gather", "reduce")
            in_float32 = dict.fromkeys(names, float(FLOAT32))
            of_adapters = mean_state_bytes(optimizer, adapter_matrices(job), size)
            return cls(optimizer=moments, adapter_optimizer=of_adapters, **in_float32, **common)
        # Moments have the type of what they belong to, but float32 where there are master copies.
        adapter, weight = states.adapter_weight_bytes, states.trained_weight_bytes
        adapter_size = size if job.master_bytes else size * adapter / weight
        adapter_moments = mean_state_bytes(optimizer, adapter_matrices(job), adapter_size)
        adapter_master = job.master_bytes if adapter < FLOAT32 else 0.0
        return cls(
            weight=weight,
            gradient=states.gradient_bytes,
            fresh_gradient=states.fresh_gradient_bytes or states.gradient_bytes,
            optimizer=job.master_bytes + moments,
            adapter_gradient=max(adapter, states.gradient_bytes),
            adapter_optimizer=adapter_master + adapter_moments,
            gather=states.gather_bytes,
            reduce=states.reduce_bytes,
            **common,
        )


# Models that stand frozen beside the one that learns: what ranks hold of them, and what it takes to bring them.

# Counted: the model's weights go to the host, the copy comes to the card, and the model's come back (NeMo-Aligner
# utils/utils.py, cpu_weight_swap; NeMo RL dtensor_policy_worker.py, use_reference_model).
COPIES_OF_A_SWAP = 3.0


def bytes_as_copy(held: ParameterCounts, sizes: StateBytes, shards: Shards) -> Array:
    """All weights of a job's model on a rank, kept as a copy that learns nothing.

        bytes = (matrices x bytes of frozen matrices + others x bytes of frozen others) / ZeRO-3 group

    Parameters
    ----------
    held : elements of a rank before sharding, shape (stage, layout) [-]
    sizes : storage of an element [bytes]
    shards : sizes of the groups that share states, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (stage, layout) [bytes]

    Source: stack states; ZeRO (arXiv:1910.02054).
    """
    dense_bytes = (held.linear + held.parts_matrices) * sizes.frozen_linear
    dense_bytes = dense_bytes + (held.other + held.parts_others) * sizes.frozen
    return sharded_elements(dense_bytes, held.experts * sizes.frozen_linear, shards.weights, shards)


def on_host(job: Job, layouts: Layouts) -> Array:
    """Whether copies wait in host memory, with the model's weights or by themselves.

        on host = max(weights offloaded, copies on the host)    where the host has memory of its own

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), 1 or 0 [-]

    Source: the layout; states of the stack.
    """
    copies = job.stack.states.copies_on_host and job.server.host_apart
    return np.asarray(np.maximum(layouts.hosts_params.astype(float), float(copies)))


def swap_s(job: Job, copies_bytes: Array) -> Array:
    """Copies that wait in host memory take the place of the model for their passes, once a step.

        t = COPIES_OF_A_SWAP x bytes of the copies / PCIe rate

    Parameters
    ----------
    job : what its stack does with copies, and the PCIe rate of its server
    copies_bytes : of all copies on a rank, shape (stage, layout) [bytes]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: NeMo-Aligner and NeMo RL, which pass all micro-batches of a step through the reference before they train.
    """
    if not (job.stack.states.copies_on_host and job.server.host_apart):
        return np.zeros(copies_bytes.shape[-1])
    return copy_time_s(COPIES_OF_A_SWAP * copies_bytes.max(axis=0), job.server.pcie_bytes_per_s)


# Gradients during a step: when a rank keeps them, and how many bytes of them there are at each moment.


def accumulates_whole_gradients(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether a rank keeps whole gradients between micro-batches, because it reduces them after the last one only.

        keeps = (reduces once a step or pp > 1) and ZeRO >= 2 and grad_accum > 1 and data-parallel ranks > 1

    Parameters
    ----------
    job, layouts : what the stack does, and layouts of shape (layout,)

    Returns
    -------
    ndarray of bool, shape (layout,) [-]

    Source: `no_sync` of PyTorch FSDP, which accelerate and Lightning enter while they accumulate; PyTorch's pipelines
    (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
    """
    once_a_step = (layouts.pp > 1) | (not job.stack.defaults.reduces_every_micro_batch)
    return np.asarray(once_a_step & (layouts.zero >= 2) & (layouts.grad_accum > 1) & (layouts.data_ranks > 1))


def keeps_fresh_gradients(job: Job, layouts: Layouts, accumulates_whole: NDArray[np.bool_]) -> Array:
    """1 where the backward creates gradients, 0 where it adds them to buffers that exist already.

        fresh = not (buffers or grad_accum > 1) or ZeRO = 3, and not where whole gradients accumulate

    Parameters
    ----------
    job, layouts : what the stack does, and layouts of shape (layout,)
    accumulates_whole : whether whole gradients accumulate, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [-]

    Source: PyTorch's autograd, which adds to a gradient that exists; gradient buffers of Megatron-LM, as the stack's
    file says.
    """
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    return np.where(buffered & (layouts.zero < 3) | accumulates_whole, 0.0, 1.0)


def updates_at_once(job: Job, layouts: Layouts) -> NDArray[np.bool_]:
    """Whether the optimizer runs in the backward, weight by weight.

        at once = the optimizer does so, or the stack does and GPUs = 1 and grad_accum = 1

    With such an optimizer every micro-batch is an update of its own.

    Parameters
    ----------
    job, layouts : what optimizer and stack do, and layouts of shape (layout,)

    Returns
    -------
    ndarray of bool, shape (layout,) [-]

    Source: optimizer-in-backward of torchtune, as the stack's file says; LOMO (arXiv:2306.09782), also with ZeRO-3.
    """
    of_stack = job.stack.states.updates_in_backward & (layouts.gpus == 1) & (layouts.grad_accum == 1)
    return np.asarray(of_stack | job.optimizer.in_backward)
