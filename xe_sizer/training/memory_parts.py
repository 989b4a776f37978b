"""What one GPU holds, part by part: each an array of shape (stage, moment, layout), or one that broadcasts to it.

Stages are the first and the last, moments those of MOMENTS.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.immutable import Immutable
from xe_sizer.laws.parts import Sum, as_sum, larger, named, over, part, product, smaller, switched, value_of, where
from xe_sizer.training.activations import encoder_activations, gradients_to_come
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD
from xe_sizer.training.model_states import ZERO_RANKS, learning_matrices, sharded_elements
from xe_sizer.training.optimizer_step import orthogonalisation_bytes
from xe_sizer.units import FLOAT32, GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.parts import Part, Products, Size
    from xe_sizer.software.optimizer import Temporaries
    from xe_sizer.training.evaluation import Evaluation
    from xe_sizer.training.job import Job

# Moments of a training step at which a GPU may hold the most, and which parts of memory are there at each.

MOMENTS = (
    "end of forward",
    "loss",
    "backward of the last layer",
    "backward of the first layer",
    "end of backward",
    "optimizer step",
)


FORWARD, LOSS, LAST_LAYER, FIRST_LAYER, BACKWARD_END, OPTIMIZER = np.eye(len(MOMENTS))[:, :, np.newaxis]
"""1 at the moment, else 0, shape (moment, 1)."""
ALL_ACTIVATIONS = FORWARD + LOSS + LAST_LAYER
LAYERS_BACKWARD = LAST_LAYER + FIRST_LAYER
PASSES = ALL_ACTIVATIONS + FIRST_LAYER
ONE = np.ones((1, 1, 1))  # the same on every stage, at every moment


def broadcast(per_stage: Size) -> Size:
    """(stage, layout) to (stage, 1, layout)."""
    return per_stage.reshaped(_at_a_moment) if isinstance(per_stage, Sum) else per_stage[:, None, :]


def _at_a_moment(size: Array) -> Array:
    return broadcast(size) if size.ndim > 1 else size


def over_time(*held: tuple[Array, Array]) -> Array:
    """Bytes at each moment of what is there at some of them.

        bytes(moment) = sum of the sizes that are there at the moment

    Parameters
    ----------
    held : moments as above, and sizes of shape (stage, layout) or (layout,) [bytes]

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: definition.
    """
    total = np.zeros((2, len(MOMENTS), max(np.shape(size)[-1] for _, size in held)))
    for moments, size in held:
        for moment in np.flatnonzero(moments):
            total[:, moment] += size
    return total


def _sum_over_time(*held: tuple[Array, Sum | Array]) -> Sum:
    """The same of sums, which tell what is there at each moment."""
    value = over_time(*((moments, value_of(size)) for moments, size in held))

    def tell() -> Products:
        there = (switched(as_sum(size).reshaped(_at_a_moment), moments) for moments, size in held)
        return tuple(each for products in there for each in products)

    return Sum(value, tell)


# Gradients during a step: when a rank keeps them, and how many bytes of them there are at each moment.


def gradients_over_time(evaluation: Evaluation, gradients: Sum, whole: Sum, to_come: Array | None = None) -> Sum:
    """Gradients at each moment: fresh ones come with the backward, head first; buffers are always there.

        bytes = 0 until the backward, min(head, all), all - first layer and tables, all, all    fresh
        bytes = all at every moment                                                             buffers
        bytes = whole until the optimizer runs, then the shard                                  reduced once a step
        bytes = table, at the end; the head's go before the layers' come                        updated in the backward

    Parameters
    ----------
    evaluation : the job under its layouts
    gradients : of a rank after sharding, shape (stage, layout) [bytes]
    whole : of a rank until the last micro-batch has reduced them, where the stack waits for it, shape (stage, layout)
        [bytes]
    to_come : elements of the layers whose backward has not begun at the last of its moments, shape (stage, layout) [-];
        None: those of the first layer

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: own derivation from the order of the backward; `no_sync` of PyTorch FSDP; traced.
    """
    job, layouts, held, sizes = evaluation.job, evaluation.layouts, evaluation.held, evaluation.sizes
    size, base, learning = sizes.gradient, evaluation.base, job.method.learning
    copied = sizes.adapter_gradient * job.method.saved_element_share
    ends = base * job.learning_layers.ends
    of_head, of_table = (ends * size + copied * float(end in learning.saved) for end in (HEAD, EMBEDDING))
    waits, at_once = evaluation.accumulates_whole_gradients, evaluation.updates_at_once
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    tables = held.embedding * float(not job.model.tied_embeddings)
    in_buffers = broadcast(gradients) * np.ones((len(MOMENTS), 1))
    special = ~buffered | waits | at_once
    if not np.any(special):
        return in_buffers
    sharded = np.where(layouts.zero >= 2, as_array(layouts.zero_ranks), 1.0)
    first = held.whole_layer if to_come is None else to_come
    beside = held.parts_learning * size + held.parts_adapters * sizes.adapter_gradient
    head = held.head * of_head / sharded
    later = (first * base * size + tables * of_table + beside) / sharded
    # The first layer's own gradients are counted with its backward; those of tables and other parts come after it.
    fresh = _sum_over_time(
        (BACKWARD_END + OPTIMIZER, gradients),
        (LAST_LAYER, smaller(gradients, head)),
        (FIRST_LAYER, larger(gradients - later, 0.0)),
    )
    accumulated = _sum_over_time((1.0 - OPTIMIZER, whole), (OPTIMIZER, gradients))
    passing = over_time((BACKWARD_END, tables * base * size))
    return where(at_once, passing, where(waits, accumulated, where(buffered, in_buffers, fresh)))


# Models that stand frozen beside the one that learns: what ranks hold of them, and what it takes to bring them.


@part(
    "frozen copies",
    "copies x elements on the rank x bytes of frozen weights, over the ZeRO-3 group",
    "method; stack states",
    lambda evaluation: any(one.copies for one in evaluation.job.method.frozen),
)
def frozen_copies(evaluation: Evaluation) -> Array:
    """Models that learn nothing, spread as the model itself; none where they wait in host memory."""
    return broadcast(evaluation.copies_bytes * (1.0 - evaluation.copies_on_host))


# What the update of weights holds beside states and gradients.

SUB_GROUP = 1e9  # published: elements that DeepSpeed's ZeRO-3 updates together (sub_group_size)


class _Workspace(Immutable):
    """Temporaries of an update, each of shape (stage, layout) [bytes].

    together : of a step that updates all weights; head, matrix, table : of one of them alone
    """

    together: Sum
    head: Array
    matrix: Array
    table: Array


def update_workspace(evaluation: Evaluation) -> Sum:
    """Temporaries of updates at each moment.

        bytes = learning elements x copies x weight bytes            multi-tensor update
        bytes = learning elements x 4, at most of a sub-group        float32 gradients
        bytes = largest learning tensor x bytes of its temporaries   an optimizer's own eager update
        and in each case at least the products of the largest matrix, or its decomposition

    They are there in the optimizer's step; with one that runs in the backward, when a gradient is. The head then is
    updated in the place of the loss. A tied table has its gradient at the end, when there are two instead of three.

    Parameters
    ----------
    evaluation : elements of a rank, shape (stage, layout) [-], and sizes [bytes]

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: torch.optim.adam, _multi_tensor_adamw; DeepSpeed stage_1_and_2.py, single_grad_partition, and stage3.py;
    transformers optimization.py, Adafactor.step; traced.
    """
    own = _of_tensors(evaluation)
    at_once = evaluation.updates_at_once
    together = _sum_over_time((OPTIMIZER, own.together))
    if not np.any(at_once):
        return together
    apart = float(not evaluation.job.model.tied_embeddings)
    head = apart * (own.head + evaluation.held.head * evaluation.base * evaluation.sizes.gradient)
    loss = (evaluation.saved.loss_live + evaluation.wide_logits) * evaluation.has_head
    table = np.maximum(own.table - evaluation.tied_gradient_bytes / 2.0, 0.0)
    passing = over_time((LOSS, np.maximum(head - loss, 0.0)), (LAYERS_BACKWARD, own.matrix), (BACKWARD_END, table))
    return where(at_once, passing, together)


def _of_tensors(evaluation: Evaluation) -> _Workspace:
    """Temporaries of all weights and of single ones."""
    job, held, layouts, shards = evaluation.job, evaluation.held, evaluation.layouts, evaluation.shards.optimizer
    whole = matrix_workspace_bytes(job)
    on_card = job.optimizer_on_card(layouts)
    temporaries = job.optimizer.temporaries
    weight = float(FLOAT32) if job.master_bytes else evaluation.sizes.weight  # the type of what is updated
    transient = job.optimizer.transient(job.stack.memory.optimizer_transient)
    if temporaries is not None:
        each = temporaries_bytes(temporaries, weight) * on_card * evaluation.base / shards
        head, matrix, table = (held.head * each, held.largest * each, held.embedding * each)
        # What is projected has small temporaries; those of the table last until the first matrix is decomposed.
        of_layers = np.maximum(matrix, whole) if job.optimizer.low_rank is None else whole + 0.0 * matrix
        after_table = table + first_decomposition_bytes(job)
        return _Workspace(named(np.maximum.reduce([head, of_layers, after_table]), None), head, of_layers, table)
    # An optimizer that runs in the backward updates a weight in one kernel too.
    without = job.optimizer.in_one_kernel | evaluation.updates_at_once | (transient != "multi-tensor")
    together = where(without, 0.0, over(_together(evaluation) * named(weight, "B"), shards, ZERO_RANKS))
    if transient == "float32-gradients":
        own = sharded_elements(*_learning(evaluation), shards, evaluation.shards)
        group = where(layouts.gathers_by_layer, smaller(own, named(SUB_GROUP, "elements of a sub-group")), own)
        together = group * named(FLOAT32, "B")
    none = np.zeros_like(together.value)
    return _Workspace(larger(together * on_card, whole), none, none + whole, none)


def _together(evaluation: Evaluation) -> Sum:
    """Elements that a multi-tensor update copies, shape (stage, layout) [-]."""
    held, state = evaluation.held, evaluation.job.optimizer.state
    of_kind = (
        (held.base - held.vectors - held.tables, state.matrix),
        (held.vectors, state.vector),
        (held.tables, state.embedding),
    )
    base = sum(elements * kind.together for elements, kind in of_kind) * evaluation.job.learning_layers.share
    copied = base * evaluation.base + held.adapters * state.matrix.together
    once = all(kind.together == 1.0 for _, kind in of_kind)
    return named(copied, "learning elements" if once else "copied elements")


def temporaries_bytes(temporaries: Temporaries, weight_bytes: Array | float) -> Array:
    """Of an element of the tensor that is updated.

        bytes = copies w + 4 float32 + 4 casts where w < 4

    Parameters
    ----------
    temporaries : what the update holds
    weight_bytes : w, of what the optimizer updates, shape (layout,) or one number [bytes]

    Returns
    -------
    ndarray of float, shape as given [bytes]

    Source: definition.
    """
    wide = temporaries.float32 + temporaries.casts * np.less(weight_bytes, FLOAT32)
    return np.asarray(temporaries.copies * np.asarray(weight_bytes) + FLOAT32 * wide)


def matrix_workspace_bytes(job: Job) -> float:
    """Workspace of the largest matrix of the layers [bytes]: Newton-Schulz products, or a decomposition.

        bytes = max over matrices of those of one

    Parameters
    ----------
    job : its optimizer says what is done, its method what learns

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: `orthogonalisation_bytes`, `decomposition_bytes`.
    """
    low = job.optimizer.low_rank
    if low is None or not low.decomposed:
        return orthogonalisation_bytes(job)
    narrow = job.stack.states.gradient_bytes < FLOAT32
    return max(
        (decomposition_bytes(one.rows, one.columns, low.rank, narrow) for one in learning_matrices(job)), default=0.0
    )


def first_decomposition_bytes(job: Job) -> float:
    """The same of the first matrix of a layer, which is decomposed while temporaries of the table still live.

        bytes = those of its decomposition

    Parameters
    ----------
    job : its optimizer says whether there is one

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: galore_torch adamw.py, AdamW.step, whose variables last until the next weight sets them; traced.
    """
    low, first = job.optimizer.low_rank, next(learning_matrices(job), None)
    if low is None or not low.decomposed or first is None:
        return 0.0
    return decomposition_bytes(first.rows, first.columns, low.rank, job.stack.states.gradient_bytes < FLOAT32)


def decomposition_bytes(rows: int, columns: int, rank: int, narrow: bool) -> float:
    """Workspace of the singular value decomposition of a gradient, in float32 [bytes].

        bytes = 4 (m n where the gradient is narrower + m n + m^2 + n r + r^2),  m <= n

    It returns both factors, of which the singular values scale r columns; copies inside the library come on top.

    Parameters
    ----------
    rows, columns : of the matrix [-]
    rank : r of the projection [-]
    narrow : whether the gradient is in 16 bit, and cast

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: galore_torch galore_projector.py, get_orthogonal_matrix.
    """
    m, n = sorted((rows, columns))
    r = min(rank, m)
    return FLOAT32 * ((1.0 + float(narrow)) * m * n + m**2 + n * r + r**2)


# What a GPU holds of images beside their encoder's weights.


def _table_gradients(evaluation: Evaluation) -> Array:
    """Gradients that the backward of the token table makes, shape (stage, layout) [bytes].

    A tied table's second one, and the sum of both, stand beside the first.
    """
    job, layouts = evaluation.job, evaluation.layouts
    summed = job.model.tied_embeddings and not job.stack.states.gradients_persist
    copies = np.where(summed & (layouts.pp == 1), 2.0, evaluation.keeps_fresh_gradients)
    size = evaluation.base * evaluation.sizes.gradient / evaluation.shards.gradients
    return np.asarray(copies * evaluation.held.embedding * size)


@part(
    "image activations",
    "pixels, and what the encoder's layers and the projector keep until the end of the backward x micro-batches in "
    "flight, less the encoder's own gradients by then",
    "operator graph",
    lambda evaluation: evaluation.job.images is not None,
)
def encoder_kept(evaluation: Evaluation) -> Array:
    """The encoder runs first, so that its backward comes last: all gradients but those of the token table are there.

    Source: autograd runs the latest node first, and models look the tokens up before they encode images; traced.
    """
    encoder, held, sizes = evaluation.encoder, evaluation.held, evaluation.sizes
    if encoder is None:
        return np.zeros((1, 1, 1))
    fresh_bytes, keeps = sizes.fresh_gradient, evaluation.keeps_fresh_gradients
    one = encoder_activations(encoder.job, encoder.layouts, encoder.shapes, fresh_bytes, keeps)
    on_first = evaluation.on_first
    fresh = held.parts_learning * sizes.gradient / evaluation.shards.gradients
    kept, pixels = (one.kept + one.pixels) * evaluation.in_flight * on_first, one.pixels * on_first
    last = np.maximum(kept - fresh + one.backward_peak * on_first - _table_gradients(evaluation), pixels)
    return over_time((PASSES, kept), (BACKWARD_END, last), (OPTIMIZER, pixels))


# What sits on a card beside the tensors: contexts, communicators, workspaces, and what the allocator cannot use.


class Around(Immutable):
    """What sits on the card beside the tensors is computed from these; `level` is one of the stack's.

    tensors : the sum of TENSOR_PARTS; components : each of them
    """

    evaluation: Evaluation
    tensors: Array
    level: str
    components: Mapping[str, Array] = MappingProxyType({})

    def of_runtime(self, each: object) -> float:
        """A size at the level, nothing where the accelerator keeps memory of its own for that [GiB]."""
        apart = self.evaluation.job.server.accelerator.runtime_apart
        return 0.0 if apart else float(getattr(each, self.level))


@part("CUDA context", "per process", "measured 0.47 to 0.92 GiB on A100; typical and cautious values of the stack")
def cuda_context(around: Around) -> Sum:
    return product((around.of_runtime(around.evaluation.job.stack.memory.context_gib), "GiB"), (GIB, "")) * ONE


@part("NCCL buffers", "per communicator that the layout needs", "measured 0.5 to 1.5 GiB a group")
def nccl_buffers(around: Around) -> Sum:
    layouts = around.evaluation.layouts
    groups = (layouts.tp > 1, layouts.pp > 1, layouts.cp > 1, layouts.dp > 1, layouts.ep > 1)
    communicators = sum(np.asarray(group, dtype=float) for group in groups)
    each = around.of_runtime(around.evaluation.job.stack.memory.communicator_gib)
    return product((communicators, "communicators"), (each, "GiB"), (GIB, "")) * ONE


@part("library workspaces", "cuBLAS and cuBLASLt", "PyTorch defaults, 32 MiB on Hopper")
def library_workspaces(around: Around) -> Sum:
    return product((around.of_runtime(around.evaluation.job.stack.memory.workspace_gib), "GiB"), (GIB, "")) * ONE


@part(
    "allocator slack",
    "share of the tensors that is reserved but not live, and blocks of the loss that the first states have split",
    "out-of-memory reports, 3.7 to 5 %; c10/cuda/CUDACachingAllocator.cpp",
)
def allocator_slack(around: Around) -> Sum:
    share = getattr(around.evaluation.job.stack.memory.slack_share, around.level)
    return product((around.tensors, "B of tensors"), (share, "")) + named(split_blocks(around), "B of split blocks")


# Counted: float32 tensors of all logits that an eager loss has at once, 12 bytes a logit: a copy, log-probabilities and
# their gradient. The 16-bit logits are a block of their own, which none of these fits in.
FLOAT32_LOGITS = 3.0
SPLITTING = ("optimizer states", "gradients", "activations")


def split_blocks(around: Around) -> Array:
    """Blocks that an eager loss left in the first step, and cannot have again once optimizer states lie in them.

        bytes = max(0, R + n l32 - P)
        R = max(P_loss - S + l16, P_others)      the first step, whose loss has no states S beside it
        n = min(ceil(max(0, G + S - A - l16) / l32), 3)      0 where a gradient of the token table is as large as l32

    l16 and l32 are the logits in 16 bit and in float32, P the peak of the tensors, at the loss and at other moments, G
    gradients, S states and A activations at the loss. Gradients and states fill the holes of activations and of the
    16-bit logits first; each float32 block that they split is allocated anew in the second step, and stays.

    Parameters
    ----------
    around : tensors of shape (stage, moment, layout) and the parts that they are the sum of [bytes]

    Returns
    -------
    ndarray of float, shape (stage, 1, layout) [bytes]

    Source: PyTorch's c10/cuda/CUDACachingAllocator.cpp (get_free_block takes the smallest that suffices, should_split
    leaves the rest); segments after the first and second step of four runs of xe_sizer/evidence/data/measured.jsonl.
    """
    evaluation = around.evaluation
    if evaluation.job.stack.kernels.loss != "eager" or not around.components:
        return np.zeros((1, 1, 1))
    narrow = evaluation.shapes.broadcast(logits_per_rank(evaluation.shapes.inputs)) * evaluation.has_head * SIXTEEN_BIT
    narrow, wide = broadcast(np.asarray(narrow, dtype=float)), broadcast(np.asarray(narrow * 2.0, dtype=float))
    at_loss, elsewhere = around.tensors[:, 1:2], np.delete(around.tensors, 1, axis=1).max(axis=1, keepdims=True)
    states, gradient, activations = (around.components[name] for name in SPLITTING)
    first = np.maximum(at_loss - states + narrow, elsewhere)
    spilled = gradient.max(axis=1, keepdims=True) + states - activations[:, 1:2] - narrow
    count = np.ceil(np.clip(spilled / np.maximum(wide, 1.0), 0.0, FLOAT32_LOGITS))
    table = broadcast(evaluation.base * evaluation.sizes.gradient * evaluation.held.embedding)
    again = first + np.where(wide > table, count * wide, 0.0)
    return np.asarray(np.maximum(again - around.tensors.max(axis=1, keepdims=True), 0.0))


@part("communication buckets", "bucket of the reduction, at most the gradients; of replicas all of them", "stack")
def buckets(evaluation: Evaluation) -> Sum:
    """From the loss to the end of the backward; those of DistributedDataParallel always, with every gradient.

    Source: torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets, where gradient_as_bucket_view is off.
    """
    sizes, (dense, experts) = evaluation.sizes, _learning(evaluation)
    several, copies = evaluation.layouts.data_ranks > 1, evaluation.job.stack.memory.copied_gradients
    of_adapters = product((evaluation.held.adapters, "elements of adapters"), (sizes.adapter_gradient, "B"))
    copied = (dense + experts) * named(sizes.gradient, "B") + of_adapters
    always = broadcast(copied * (several & (evaluation.layouts.zero == 0) & copies))
    dense, experts = (named(size, f"learning {kind}") for size, kind in zip(evaluation.learning, KINDS, strict=True))
    learning = (dense + experts + named(evaluation.held.adapters, "elements of adapters")) * named(sizes.reduce, "B")
    bucket = smaller(product((evaluation.job.stack.memory.bucket_gib, "GiB"), (GIB, "")), learning)
    passing = _sum_over_time((LOSS + LAYERS_BACKWARD + BACKWARD_END, bucket * several))
    return where(always.value > 0, always, passing)


# Copies of weights in 8 or 4 bit that products use, beside the 16-bit weights that learn.


def _each_bytes(evaluation: Evaluation) -> float:
    """Copies of an element of a linear weight that learns [bytes]."""
    casts, states = evaluation.job.device.casts, evaluation.job.stack.states
    return 0.0 if casts is None or states.narrow_parameters else casts.kept_weight * evaluation.base


@part(
    "narrow copies of weights",
    "linear weights on the rank x bytes of their rows and columns in 8 or 4 bit",
    "Transformer Engine pytorch/module/base.py, get_weight_workspace, kept from the first micro-batch on",
    lambda evaluation: _each_bytes(evaluation) > 0,
)
def narrow_copies(evaluation: Evaluation) -> Array:
    """Zero where layers are gathered, since a layer that is given back takes its copies along."""
    kept = 1.0 - evaluation.gathers
    return broadcast((evaluation.held.linear + evaluation.held.experts) * _each_bytes(evaluation) * kept)


KINDS = ("elements", "elements of experts")


def _learning(evaluation: Evaluation) -> tuple[Sum, Sum]:
    """Learning elements of the base model on a rank before ZeRO, dense and of experts."""
    dense, experts = map(named, evaluation.learning, KINDS)
    return dense, experts


ON_THE_WAY = 2.0  # counted: layers whose offloaded activations are on the card, the one that runs and the one in copy


@part("weights", "elements on the rank x bytes each, over the ZeRO-3 group", "stack states; ZeRO, arXiv:1910.02054")
def weights(evaluation: Evaluation) -> Sum:
    held, sizes, base, shards = evaluation.held, evaluation.sizes, evaluation.base, evaluation.shards
    still = 1.0 - base
    matrices = named(held.linear, "elements of matrices") * still
    matrices = matrices + named(held.parts_matrices, "frozen elements of other parts")
    others = named(held.other, "other elements") * still + named(held.parts_others, "frozen vectors of other parts")
    frozen = matrices * named(sizes.frozen_linear, "B") + others * named(sizes.frozen, "B")
    learning = named(held.linear + held.other, "elements") * base
    learning = learning + named(held.parts_learning, "elements of other parts")
    dense_bytes = learning * named(sizes.weight, "B") + frozen
    of_experts = sizes.weight * base + sizes.frozen_linear * still
    expert_bytes = product((held.experts, "elements of experts"), (of_experts, "B"))
    on_card = (~evaluation.layouts.hosts_params).astype(float)
    return broadcast(sharded_elements(dense_bytes, expert_bytes, shards.weights, shards) * on_card)


@part(
    "cast weights",
    "linear weights x 2 bytes, kept by autograd until their backward; of a quantised model the head alone",
    "PyTorch autocast",
    lambda evaluation: evaluation.job.casts_weights or evaluation.job.widens_activations,
)
def cast_weights(evaluation: Evaluation) -> Array:
    job, held = evaluation.job, evaluation.held
    each = job.element_bytes * (1.0 - evaluation.gathers) * float(job.stack.states.autocast)
    casts = each * float(job.casts_weights)
    kept = 1.0 - evaluation.recomputed  # a recomputed layer casts again
    again = held.whole_layer * casts
    return over_time(
        (ALL_ACTIVATIONS, (held.linear + held.experts) * casts * kept),
        (FIRST_LAYER, again),
        (LAST_LAYER, again * (1.0 - kept)),
        (FORWARD + LOSS, held.head * each),
    )


@part(
    "gathered layers",
    "(root unit + 2 layers) x gather bytes, in the backward the root's gradient too; a pipeline stage whole; more or "
    "less as DeepSpeed is told to gather ahead and to keep; or 2 matrices, and the head for the loss",
    "PyTorch FSDP, DeepSpeed ZeRO-3; torchtitan distributed/fsdp.py (not resharded with pipelines)",
    lambda evaluation: bool(np.any(evaluation.gathers)),
)
def gathered_layers(evaluation: Evaluation) -> Sum:
    held, gathers = evaluation.held, evaluation.gathers
    size = evaluation.job.element_bytes if evaluation.job.method.quantised else evaluation.sizes.gather
    if evaluation.gathers_matrices:
        matrices = product((2.0, "matrices"), (np.minimum(held.largest, held.base), "elements"), (size, "B")) * gathers
        head = product((held.head, "elements of the head"), (size, "B")) * gathers
        return _sum_over_time((FORWARD + LAYERS_BACKWARD, matrices), (LOSS, larger(matrices, head)))
    units = _gathered_units(evaluation) * gathers
    root = product((held.root, "gradients of the root"), (size, "B"))
    root = root * evaluation.base * np.where(evaluation.layouts.gathers_stages, 0.0, gathers)
    # What a pass through other weights gathers is there in the forward alone, beside the root of the model.
    beside = [other for one, other in evaluation.beside if one.copies]
    others = [held.root * size * gathers + _gathered_units(other).value * gathers for other in beside]
    in_forward = np.max(np.stack([units.value, *others]), axis=0) - units.value
    in_forward = named(in_forward, "B of other weights in their pass")
    told = evaluation.gathered
    at_turn, at_first = (_as_told(evaluation, units, more) for more in (told.ahead + told.kept, told.ahead))
    return _sum_over_time(
        (ALL_ACTIVATIONS, at_turn), (FIRST_LAYER, at_first), (LAYERS_BACKWARD, root), (LOSS, in_forward)
    )


def _as_told(evaluation: Evaluation, units: Sum, more: Array) -> Sum:
    """Gathered weights with so many elements more, at most all of them; or less, at least the root and one matrix.

    units : without them, shape (stage, layout) [bytes]; more : shape (stage, layout) [-]
    """
    method, held, whole = evaluation.job.method, evaluation.held, evaluation.gathered.whole
    if not np.any(more) and not np.any(whole):
        return units
    size = evaluation.job.element_bytes if method.quantised else evaluation.sizes.gather
    each = (method.frozen_linear_bytes or 0.0) if method.quantised else size
    least, most = held.root * size + held.largest * each, held.root * size + (held.base - held.root) * each
    changed = units.value + more * each
    changed = np.clip(changed, np.minimum(least, units.value), np.maximum(most, units.value))
    changed = changed * (1.0 - whole / held.base)  # what is whole is no part of them
    told = (evaluation.gathers > 0) & ~evaluation.layouts.gathers_stages
    return where(told, changed, units)


@part(
    "weights kept whole",
    "elements of small tensors that ZeRO-3 is told not to shard, beyond DeepSpeed's own x gather bytes",
    "DeepSpeed, stage3_param_persistence_threshold",
    lambda evaluation: bool(np.any(evaluation.gathered.whole) or np.any(evaluation.gathered.adapters)),
)
def kept_whole(evaluation: Evaluation) -> Array:
    """They are gathered behind the update, which starts with every weight sharded."""
    told, adapter_bytes = evaluation.gathered, evaluation.job.stack.states.adapter_weight_bytes
    gathers = evaluation.gathers * ~evaluation.layouts.gathers_stages
    whole = (told.whole * evaluation.sizes.gather + told.adapters * adapter_bytes) * gathers
    return over_time((1.0 - OPTIMIZER, whole))


def _gathered_units(evaluation: Evaluation) -> Sum:
    """Weights that a pass gathers: the root unit and two layers, or a whole stage, shape (stage, layout) [bytes]."""
    method, held = evaluation.job.method, evaluation.held
    size = evaluation.job.element_bytes if method.quantised else evaluation.sizes.gather
    per_weight = (method.frozen_linear_bytes or 0.0) if method.quantised else size
    most = (held.base - held.root) / 2.0  # all there is, where layers share their weights or are few
    two = product((2.0, "layers"), (np.minimum(held.whole_layer, most), "elements"))
    layers = where(evaluation.layouts.gathers_stages, named(held.base - held.root, "elements of the layers"), two)
    return product((held.root, "elements of the root"), (size, "B")) + layers * named(per_weight, "B")


@part(
    "dequantised layer",
    "the largest quantised matrix of a layer, in 16 bit and in what it is cast from, while its product runs",
    "the quantiser's file; bitsandbytes matmul_4bit",
    lambda evaluation: evaluation.buffer_bytes > 0,
)
def dequantised_layer(evaluation: Evaluation) -> Sum:
    largest = product((evaluation.held.largest, "elements of the largest matrix"), (evaluation.buffer_bytes, "B"))
    return _sum_over_time((LAYERS_BACKWARD, largest))


@part(
    "dequantised weights",
    "quantised weights x 2 bytes, kept by autograd until their backward",
    "the quantiser's file; AutoGPTQ",
    lambda evaluation: evaluation.kept_expanded_bytes > 0,
)
def dequantised_weights(evaluation: Evaluation) -> Array:
    held, size = evaluation.held, evaluation.kept_expanded_bytes
    kept = 1.0 - evaluation.recomputed  # a recomputed layer expands again
    again = held.whole_layer * size
    return over_time(
        (ALL_ACTIVATIONS, (held.linear + held.experts) * size * kept),
        (FIRST_LAYER, again),
        (LAST_LAYER, again * (1.0 - kept)),
    )


@part(
    "adapters",
    "what learns beside frozen weights (r (inputs + outputs) each), the prompt encoder, and what stands beside them",
    "LoRA, arXiv:2106.09685",
)
def adapters(evaluation: Evaluation) -> Sum:
    """Learning elements are sharded as weights are; buffers that do not learn are whole on every rank."""
    learning = product((evaluation.held.adapters, "elements"), (evaluation.job.stack.states.adapter_weight_bytes, "B"))
    buffers = named(evaluation.held.buffer_bytes, "bytes of buffers")
    return broadcast(over(learning, evaluation.shards.weights, ZERO_RANKS) + buffers)


@part(
    "gradients",
    "learning elements x gradient bytes, over the ZeRO-2 group; whole while micro-batches accumulate unreduced; "
    "of frozen weights of the layers too where adapters share FSDP's flat parameters with them",
    "stack states; no_sync and use_orig_params of PyTorch FSDP",
)
def gradients(evaluation: Evaluation) -> Sum:
    held, sizes, shards, layouts = evaluation.held, evaluation.sizes, evaluation.shards, evaluation.layouts
    dense, experts = _learning(evaluation)
    on_card = 1.0 - evaluation.job.gradients_on_host(layouts)
    of_adapters = product((held.adapters, "elements of adapters"), (sizes.adapter_gradient, "B"))
    sharded = sharded_elements(dense, experts, shards.gradients, shards) * named(sizes.gradient, "B")
    sharded = sharded + over(of_adapters, shards.gradients, ZERO_RANKS)
    # FSDP2 adds up what it has not reduced yet in the type in which it will (torch.distributed.fsdp, _fsdp_param.py,
    # to_accumulated_grad_if_needed).
    accumulated = layouts.gathers_stages | evaluation.job.stack.states.gathered_copies
    each = np.where(accumulated, sizes.reduce, sizes.gather)
    whole = (dense + experts) * named(each, "B") + of_adapters
    flat = product((evaluation.flat_elements, "frozen elements beside adapters"), (sizes.gather, "B"))
    sharded, whole = sharded + over(flat, shards.gradients, ZERO_RANKS), whole + flat
    to_come = gradients_to_come(evaluation.job.model, held, evaluation.encoder_waits)
    return gradients_over_time(evaluation, sharded * on_card, whole, to_come)


@part(
    "optimizer states",
    "learning elements x (master + moments), over the ZeRO-1 group; none where offloaded or paged",
    "stack states",
)
def optimizer_states(evaluation: Evaluation) -> Sum:
    sizes, shards = evaluation.sizes, evaluation.shards
    on_card = evaluation.job.optimizer_on_card(evaluation.layouts) * float(not evaluation.job.pages_states)
    states = sharded_elements(*_learning(evaluation), shards.optimizer, shards) * named(sizes.optimizer, "B")
    of_adapters = product((evaluation.held.adapters, "elements of adapters"), (sizes.adapter_optimizer, "B"))
    states = states + over(of_adapters, shards.optimizer, ZERO_RANKS)
    return broadcast((states + named(evaluation.further_state_bytes, "B of vectors and tables")) * on_card)


@part(
    "activations",
    "layers x saved bytes per layer x micro-batches in flight, less the layer in its backward",
    "operator graph; arXiv:2205.05198",
)
def saved_activations(evaluation: Evaluation) -> Sum:
    """Every stage holds the micro-batches in flight; all but the one in its backward stay whole.

    Offloaded ones leave two layers on the card, the one that runs and the one that is copied (OffloadActivations of
    torchtune and TRL, Unsloth's gradient checkpointing, ALST: arXiv:2506.13996).
    """
    one, layouts, in_flight = evaluation.saved, evaluation.layouts, named(evaluation.in_flight, "in flight")
    each, stay = named(one.kept, "B a layer"), named(evaluation.kept_layers - evaluation.offloaded_layers, "layers")
    others = named(np.maximum(evaluation.in_flight - 1.0, 0.0), "other micro-batches")
    # Of what goes to the host, the layer that is copied and the one that runs are on the card.
    passing = named(np.minimum(evaluation.offloaded_layers, ON_THE_WAY), "layers on their way")
    first_stage = evaluation.on_first
    before = named(np.where(layouts.hosts_activations, 0.0, one.before_learning), "B before what learns")
    some = np.minimum(evaluation.in_flight, 1.0)
    copied = named(one.hosted, "B a layer in host memory") * np.minimum(evaluation.kept_layers, ON_THE_WAY)
    kept = each * (stay * in_flight + passing * some) + copied * some - before * in_flight * first_stage
    at_first = named(one.checkpoint, "B of the first layer")
    at_first = where(evaluation.encoder_waits, named(one.source_kept, "B of the encoder"), at_first)
    entered = named(one.entered, "B before the layers") * in_flight * first_stage
    left = named(one.entered - one.between, "B before the layers") * in_flight * first_stage
    first = each * stay * others + at_first * evaluation.any_layer + left
    last = kept + named(one.last_left, "B of the layer in its backward") * evaluation.any_layer + entered
    ends = kept + named(one.ends, "B at the ends") * evaluation.has_head
    # The last layer's own forward holds more than its end where no logits come after it; and masks of long sequences,
    # while they are made, more than all layers keep.
    more = np.maximum(one.forward_more - one.loss_kept, 0.0) * evaluation.has_head * evaluation.any_layer
    # A pass through frozen weights comes behind, while what the loss has made of its own logits waits for theirs.
    logits = evaluation.shapes.broadcast(logits_per_rank(evaluation.shapes.inputs)) * evaluation.has_head
    loss = evaluation.job.kernels.loss
    waiting = np.maximum(logits * (loss.waiting_bytes or loss.frozen_bytes / 2.0) - one.loss_kept, 0.0)
    for _, other in evaluation.passing:
        unkept = other.saved.unkept * evaluation.any_layer
        more = np.maximum(more, unkept + np.where(unkept > 0, waiting, 0.0))
    entering = first_stage * ((each * stay * others).value + one.entered * others.value + one.entering)
    more = np.maximum(more, entering - ends.value - one.loss_kept * evaluation.has_head)
    return _sum_over_time((FORWARD + LOSS, ends), (FORWARD, more), (LAST_LAYER, last), (FIRST_LAYER, first))


@part(
    "inputs held by FSDP",
    "hidden state x 2 (recomputed layers - 1), of inputs and their gradients, at the backward of the first layer; then "
    "x 2 recomputed layers",
    "PyTorch FSDP; reentrant recomputation of frozen layers",
    lambda evaluation: bool(np.any(evaluation.holds_inputs)),
)
def held_inputs(evaluation: Evaluation) -> Sum:
    """A frozen unit is freed by a hook on its inputs, which lives until the whole backward is through.

    Reentrant recomputation makes these inputs anew for each layer, and hook and closure keep them with their gradients.

    Source: torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook
    (register_multi_grad_hook) and _post_backward_final_callback; torch/utils/checkpoint.py,
    CheckpointFunction.backward; traced.
    """
    layers = named(evaluation.kept_layers * evaluation.recomputed * evaluation.holds_inputs, "recomputed frozen layers")
    state = named(2.0 * evaluation.saved.checkpoint, "B of a hidden state and its gradient")
    return _sum_over_time((FIRST_LAYER, larger(layers - 1.0, 0.0) * state), (BACKWARD_END, layers * state))


@part(
    "layer in its backward",
    "its saved tensors not yet freed + fresh gradients + gradients of operator outputs, at their worst",
    "operator graph, walked backwards",
)
def layer_in_backward(evaluation: Evaluation) -> Array:
    tied = evaluation.tied_gradient_bytes
    at_the_end = tied + evaluation.shapes.broadcast(evaluation.shapes.inputs.residual_bytes)
    # A decoder's table is done before the encoder's layers, and in the same way.
    first, tables = evaluation.saved.first_peak, tied + evaluation.saved.first_kept - evaluation.saved.checkpoint
    first = np.where(evaluation.encoder_waits, np.maximum(first, tables), first)
    return over_time(
        (LAST_LAYER, evaluation.saved.backward_peak * evaluation.any_layer),
        (FIRST_LAYER, first * evaluation.any_layer),
        (BACKWARD_END, at_the_end),
    )


@part("logits and loss", "tokens x vocabulary / TP x bytes alive together", "stack's loss kernel")
def logits_and_loss(evaluation: Evaluation) -> Sum:
    one, wide = evaluation.saved, evaluation.wide_logits
    logits = evaluation.shapes.broadcast(logits_per_rank(evaluation.shapes.inputs))
    kept, live = (
        named((loss + wide) * evaluation.has_head, "B").per(logits, "logits", "B alive together")
        for loss in (one.loss_kept, one.loss_live)
    )
    return _sum_over_time((FORWARD, kept), (LOSS, live))


@part(
    "optimizer workspace",
    "temporaries of all weights, or of the largest, or float32 gradients; at least products of the largest matrix",
    "optimizer; torch.optim foreach and Muon; DeepSpeed, single_grad_partition",
)
def optimizer_workspace(evaluation: Evaluation) -> Sum:
    return update_workspace(evaluation)


@part(
    "generator activations",
    "what the generator of replaced tokens keeps until the end of the backward x micro-batches in flight; then its own "
    "backward at its worst, less its gradients by then",
    "arXiv:2003.10555; operator graph",
    lambda evaluation: evaluation.generator is not None,
)
def generator_kept(evaluation: Evaluation) -> Array:
    """The generator runs first, so that its backward comes last: all other gradients are there.

    Source: autograd runs the latest node first.
    """
    own = evaluation.generator
    if own is None:
        return np.zeros((1, 1, 1))
    on_first = evaluation.on_first
    kept = own.saved.kept * own.kept_layers + own.saved.ends + own.saved.loss_kept
    passing = saved_activations(own) + layer_in_backward(own) + logits_and_loss(own)
    late = np.maximum(*(passing * moments for moments in (FIRST_LAYER, BACKWARD_END))).max(axis=1)
    early = (passing * (LOSS + LAST_LAYER)).max(axis=1)
    fresh = evaluation.held.parts_learning * evaluation.sizes.gradient / evaluation.shards.gradients
    fresh = fresh * evaluation.keeps_fresh_gradients
    last = np.maximum(early - fresh, late) * on_first
    return over_time((PASSES, kept * evaluation.in_flight * on_first), (BACKWARD_END, last))


STATE_PARTS = (weights, adapters, gradients, optimizer_states)
"""What a rank holds whatever it computes at the moment."""
COUNTED_PARTS = (*STATE_PARTS, frozen_copies)
"""What is counted and not estimated: elements that the layout puts on the rank, times their bytes."""
WEIGHT_PARTS = (
    weights,
    narrow_copies,
    frozen_copies,
    cast_weights,
    gathered_layers,
    kept_whole,
    dequantised_layer,
    dequantised_weights,
    adapters,
)
ACTIVATION_PARTS = (saved_activations, held_inputs, encoder_kept, generator_kept, layer_in_backward)
PASSING_PARTS = (*ACTIVATION_PARTS, logits_and_loss)
"""What comes and goes with a micro-batch, as long as its longest sequence."""
TENSOR_PARTS = (*WEIGHT_PARTS, gradients, optimizer_states, *PASSING_PARTS, optimizer_workspace)
# Beside the tensors: what varies between runs of the same job.
OVERHEAD_PARTS = (cuda_context, nccl_buffers, library_workspaces, allocator_slack)
MEMORY_PARTS: tuple[Part[Evaluation] | Part[Around], ...] = (*TENSOR_PARTS, buckets, *OVERHEAD_PARTS)
KINDS_OF_PARTS: dict[str, tuple[Part[Evaluation] | Part[Around], ...]] = {
    "weights": WEIGHT_PARTS,
    "gradients": (gradients, buckets),
    "optimizer states": (optimizer_states, optimizer_workspace),
    "activations": ACTIVATION_PARTS,
    "logits and loss": (logits_and_loss,),
    "context, buffers, slack": OVERHEAD_PARTS,
}
"""What memory is spent on, in a few kinds that people compare stages and moments by; every part is of one."""
