"""What one GPU holds, part by part: each an array of shape (stage, moment, layout), or one that broadcasts to it.

Stages are the first and the last, moments those of MOMENTS.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.immutable import Immutable
from xe_sizer.laws.parts import part
from xe_sizer.training.activations import (
    activations,
    encoder_activations,
    encoder_waits,
    gradients_to_come,
    offloaded_layers,
    recomputed_layers_share,
)
from xe_sizer.training.adapters.adapter import EMBEDDING, HEAD
from xe_sizer.training.gathering import gathered_beyond
from xe_sizer.training.generator import generation_of
from xe_sizer.training.layout import micro_batches_in_flight, stages_of
from xe_sizer.training.model_states import (
    Shards,
    StateBytes,
    accumulates_whole_gradients,
    census,
    copies_bytes,
    keeps_fresh_gradients,
    learning_elements,
    learning_matrices,
    on_host,
    sharded_elements,
)
from xe_sizer.training.optimizer_step import orthogonalisation_bytes
from xe_sizer.units import FLOAT32, GIB

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.parts import Part
    from xe_sizer.software.optimizer import Temporaries
    from xe_sizer.training.activations import Activations
    from xe_sizer.training.gathering import Gathered
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.model_states import Census

# Moments of a training step at which a GPU may hold the most, and which parts of memory are there at each.

MOMENTS = (
    "end of forward",
    "loss",
    "backward of the last layer",
    "backward of the first layer",
    "end of backward",
    "optimizer step",
)


def _during(*moments: str) -> Array:
    """1 at the named moments, else 0, shape (moment, 1)."""
    return np.array([[float(moment in moments)] for moment in MOMENTS])


FORWARD, LOSS, LAST_LAYER, FIRST_LAYER, BACKWARD_END, OPTIMIZER = (_during(moment) for moment in MOMENTS)
ALL_ACTIVATIONS = FORWARD + LOSS + LAST_LAYER
LAYERS_BACKWARD = LAST_LAYER + FIRST_LAYER
PASSES = ALL_ACTIVATIONS + FIRST_LAYER


def spread(per_stage: Array) -> Array:
    """(stage, layout) to (stage, 1, layout)."""
    return per_stage[:, None, :]


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


# Gradients during a step: when a rank keeps them, and how many bytes of them there are at each moment.


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


def gradients_over_time(
    job: Job, layouts: Layouts, held: Census, gradients: Array, whole: Array, to_come: Array | None = None
) -> Array:
    """Gradients at each moment: fresh ones come with the backward, head first; buffers are always there.

        bytes = 0 until the backward, min(head, all), all - first layer and tables, all, all    fresh
        bytes = all at every moment                                                             buffers
        bytes = whole until the optimizer runs, then the shard                                  reduced once a step
        bytes = table, at the end; the head's go before the layers' come                        updated in the backward

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    held : elements of a rank before sharding
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
    sizes = StateBytes.of(job, layouts)
    size, base, learning = sizes.gradient, float(job.method.learning.base), job.method.learning
    copied = sizes.adapter_gradient * job.method.saved_element_share
    ends = base * job.learning_layers.ends
    of_head, of_table = (ends * size + copied * float(end in learning.saved) for end in (HEAD, EMBEDDING))
    waits, at_once = accumulates_whole_gradients(job, layouts), updates_at_once(job, layouts)
    buffered = job.stack.states.gradients_persist | (layouts.grad_accum > 1)
    tables = held.embedding * float(not job.model.tied_embeddings)
    in_buffers: Array = np.broadcast_to(spread(gradients), (2, len(MOMENTS), len(layouts)))
    special = ~buffered | waits | at_once
    if not np.any(special):
        return in_buffers
    sharded = np.where(layouts.zero >= 2, as_array(layouts.zero_ranks), 1.0)
    first = held.whole_layer if to_come is None else to_come
    beside = held.parts_learning * size + held.parts_adapters * sizes.adapter_gradient
    head = held.head * of_head / sharded
    later = (first * base * size + tables * of_table + beside) / sharded
    # The first layer's own gradients are counted with its backward; those of tables and other parts come after it.
    fresh = over_time(
        (BACKWARD_END + OPTIMIZER, gradients),
        (LAST_LAYER, np.minimum(head, gradients)),
        (FIRST_LAYER, np.maximum(gradients - later, 0.0)),
    )
    accumulated = over_time((1.0 - OPTIMIZER, whole), (OPTIMIZER, gradients))
    passing = over_time((BACKWARD_END, tables * base * size))
    return np.select([at_once, waits, buffered], [passing, accumulated, in_buffers], fresh)


def tied_gradients(job: Job, layouts: Layouts, held: Census) -> Array:
    """A tied table's second gradient and the sum of both, until the sum replaces the first.

        bytes = 2 x table x gradient

    Not where both are added to one buffer, nor where a pipeline has the table twice.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    held : elements of a rank before sharding

    Returns
    -------
    ndarray of float, shape (stage, layout) [bytes]

    Source: own derivation from autograd's input buffers, which add up gradients before they accumulate; traced.
    """
    learns = job.model.tied_embeddings and job.method.learning.base and not job.stack.states.gradients_persist
    second = 2.0 * float(learns) * job.learning_layers.ends * (layouts.pp == 1).astype(float)
    return np.asarray(second * held.embedding * StateBytes.of(job, layouts).gradient)


# What the parts of a rank's memory are computed from, each of these once.


class Tensors(Immutable):
    """What the parts that PyTorch allocates are computed from, each of these once."""

    job: Job
    layouts: Layouts
    longest_tokens: Array

    @cached_property
    def held(self) -> Census:
        return census(self.job.model, self.job.method, self.layouts, self.job.split)

    @cached_property
    def shards(self) -> Shards:
        return Shards.of(self.layouts)

    @cached_property
    def sizes(self) -> StateBytes:
        return StateBytes.of(self.job, self.layouts)

    @cached_property
    def base(self) -> float:
        """1 where the base weights learn, else 0."""
        return float(self.job.method.learning.base)

    @cached_property
    def offloaded(self) -> NDArray[np.bool_]:
        """Where the optimizer's states live in host memory, shape (layout,)."""
        return self.layouts.hosts_optimizer

    @cached_property
    def gathers(self) -> Array:
        """1 where layers are gathered when they run (ZeRO-3), else 0, shape (layout,)."""
        return np.asarray(self.layouts.zero == 3, dtype=float)

    @cached_property
    def gathered(self) -> Gathered:
        """What ZeRO-3 keeps gathered beyond what it does by itself."""
        return gathered_beyond(self.job, self.layouts, self.held)

    @cached_property
    def learning(self) -> tuple[Array, Array]:
        """Learning base elements of a rank before ZeRO, dense and of experts, shape (stage, layout) [-]."""
        return learning_elements(self.job, self.layouts, self.held)

    @cached_property
    def learned(self) -> Array:
        """All elements that learn on a rank before ZeRO, shape (stage, layout) [-]."""
        return np.asarray(sum(self.learning) + self.held.adapters)

    @cached_property
    def flat_elements(self) -> Array:
        """Frozen elements of the layers that share a flat parameter with what learns, shape (stage, layout) [-]."""
        held, shares = self.held, self.job.stack.states.flat_gradients and bool(np.any(self.held.adapters))
        return (held.linear + held.experts) * (1.0 - self.base) * self.gathers * float(shares)

    @cached_property
    def further_state_bytes(self) -> Array:
        """Moments of vectors and tables beyond what as many elements of matrices have, on a rank [bytes]."""
        held, sizes = self.held, self.sizes
        whole = held.vectors * sizes.vector_more + held.tables * sizes.embedding_more
        return self.base * self.job.learning_layers.share * whole / self.shards.optimizer

    @cached_property
    def shapes(self) -> RankShapes:
        return self.job.rank_shapes(self.layouts, self.longest_tokens)

    @cached_property
    def saved(self) -> Activations:
        """Activations of one micro-batch at the longest sequence of the run."""
        fresh = keeps_fresh_gradients(self.job, self.layouts)
        recomputed = recomputed_layers_share(self.job, self.layouts)
        return activations(self.shapes, self.layouts, self.sizes.fresh_gradient, fresh, recomputed)

    @cached_property
    def encoder_waits(self) -> NDArray[np.bool_]:
        """Where the last moment of the layers' backward is that between an encoder and a decoder."""
        left = self.sizes.gradient * self.base * keeps_fresh_gradients(self.job, self.layouts)
        return encoder_waits(self.job.model, self.held, self.saved, left)

    @cached_property
    def offloaded_activation_bytes(self) -> Array:
        """What the layers of a rank keep in host memory, shape (stage, layout) [bytes]."""
        return np.asarray(self.saved.kept * self.offloaded_layers * self.in_flight)

    @cached_property
    def offloaded_layers(self) -> Array:
        """Layers whose activations wait in host memory, shape (stage, layout) [-]."""
        return offloaded_layers(self.job, self.layouts, self.layers)

    @cached_property
    def in_flight(self) -> Array:
        layouts = self.layouts
        pp, vpp, micro_batches = (as_array(size) for size in (layouts.pp, layouts.vpp, layouts.grad_accum))
        return micro_batches_in_flight(layouts.schedule, pp, vpp, micro_batches, self.stages.end_shares)

    @cached_property
    def layers(self) -> Array:
        return self.stages.at_ends

    @cached_property
    def kept_layers(self) -> Array:
        """Layers whose activations autograd keeps: none below the first that learns, shape (stage, layout) [-]."""
        return np.minimum(self.layers, self.job.learning_layers.kept or self.job.model.layers)

    @cached_property
    def any_layer(self) -> Array:
        """1 on stages with layers, shape (stage, layout): the last may have the head alone."""
        return np.minimum(self.layers, 1.0)

    @cached_property
    def has_head(self) -> Array:
        """1 on stages with the output head, shape (stage, layout)."""
        return np.stack([np.where(self.layouts.pp == 1, 1.0, self.stages.head_first), 1.0 - self.stages.head_first])

    @cached_property
    def stages(self) -> Stages:
        return stages_of(self.job.model.layers, self.job.split, self.layouts)

    @cached_property
    def buffer_bytes(self) -> float:
        """Size of an element of a quantised weight that is expanded for its product [bytes]."""
        return self.job.method.held.buffer_bytes if self.job.method.held else 0.0

    @cached_property
    def kept_expanded_bytes(self) -> float:
        """Size of an element of a quantised weight that autograd keeps expanded [bytes]."""
        held = self.job.method.held
        return self.job.element_bytes if held and held.width.keeps_weight else 0.0

    @cached_property
    def wide_logits(self) -> Array:
        """The logits' float32 copy of a quantised model whose modules are kept in float32, shape (layout,) [bytes]."""
        job = self.job
        # Autocast runs a float32 head in 16 bit all the same.
        upcast = job.widens_activations and not job.stack.states.autocast
        size = np.where(self.layouts.zero < 3, FLOAT32 * float(upcast), 0.0)
        return size * self.shapes.spread(logits_per_rank(self.shapes.inputs))


# Models that stand frozen beside the one that learns: what ranks hold of them, and what it takes to bring them.


@part(
    "frozen copies",
    "copies x elements on the rank x bytes of frozen weights, over the ZeRO-3 group",
    "method; stack states",
    lambda tensors: any(one.copies for one in tensors.job.method.frozen),
)
def frozen_copies(tensors: Tensors) -> Array:
    """Models that learn nothing, spread as the model itself; none where they wait in host memory."""
    job, layouts = tensors.job, tensors.layouts
    return spread(copies_bytes(job, layouts) * (1.0 - on_host(job, layouts)))


# What the update of weights holds beside states and gradients.

SUB_GROUP = 1e9  # published: elements that DeepSpeed's ZeRO-3 updates together (sub_group_size)


class _Workspace(Immutable):
    """Temporaries of an update, each of shape (stage, layout) [bytes].

    together : of a step that updates all weights; head, matrix, table : of one of them alone
    """

    together: Array
    head: Array
    matrix: Array
    table: Array


def update_workspace(tensors: Tensors) -> Array:
    """Temporaries of updates at each moment.

        bytes = learning elements x copies x weight bytes            multi-tensor update
        bytes = learning elements x 4, at most of a sub-group        float32 gradients
        bytes = largest learning tensor x bytes of its temporaries   an optimizer's own eager update
        and in each case at least the products of the largest matrix, or its decomposition

    They are there in the optimizer's step; with one that runs in the backward, when a gradient is. The head then is
    updated in the place of the loss. A tied table has its gradient at the end, when there are two instead of three.

    Parameters
    ----------
    tensors : elements of a rank, shape (stage, layout) [-], and sizes [bytes]

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: torch.optim.adam, _multi_tensor_adamw; DeepSpeed stage_1_and_2.py, single_grad_partition, and stage3.py;
    transformers optimization.py, Adafactor.step; traced.
    """
    own, layouts = _of_tensors(tensors), tensors.layouts
    at_once = updates_at_once(tensors.job, layouts)
    together = over_time((OPTIMIZER, own.together))
    if not np.any(at_once):
        return together
    apart = float(not tensors.job.model.tied_embeddings)
    head = apart * (own.head + tensors.held.head * tensors.base * tensors.sizes.gradient)
    loss = (tensors.saved.loss_live + tensors.wide_logits) * tensors.has_head
    table = np.maximum(own.table - tied_gradients(tensors.job, layouts, tensors.held) / 2.0, 0.0)
    passing = over_time((LOSS, np.maximum(head - loss, 0.0)), (LAYERS_BACKWARD, own.matrix), (BACKWARD_END, table))
    return np.where(at_once, passing, together)


def _of_tensors(tensors: Tensors) -> _Workspace:
    """Temporaries of all weights and of single ones."""
    job, held, layouts, shards = tensors.job, tensors.held, tensors.layouts, tensors.shards.optimizer
    whole = matrix_workspace_bytes(job)
    on_card = job.optimizer_on_card(layouts)
    temporaries, weight = job.optimizer.temporaries, _kept_wide(job, tensors.sizes.weight)
    transient, own = job.optimizer.transient(job.stack.memory.optimizer_transient), tensors.learned / shards
    if temporaries is not None:
        each = temporaries_bytes(temporaries, weight) * on_card * tensors.base / shards
        head, matrix, table = (held.head * each, held.largest * each, held.embedding * each)
        # What is projected has small temporaries; those of the table last until the first matrix is decomposed.
        of_layers = np.maximum(matrix, whole) if job.optimizer.low_rank is None else whole + 0.0 * matrix
        after_table = table + first_decomposition_bytes(job)
        return _Workspace(np.maximum.reduce([head, of_layers, after_table]), head, of_layers, table)
    # An optimizer that runs in the backward updates a weight in one kernel too.
    without = job.optimizer.in_one_kernel | updates_at_once(job, layouts) | (transient != "multi-tensor")
    together = np.where(without, 0.0, _together(tensors) * weight / shards)
    if transient == "float32-gradients":
        group = np.where(layouts.gathers_by_layer, np.minimum(own, SUB_GROUP), own)
        together = np.where(layouts.zero >= 1, group * FLOAT32, 0.0)
    none = np.zeros_like(together)
    return _Workspace(np.maximum(together * on_card, whole), none, none + whole, none)


def _together(tensors: Tensors) -> Array:
    """Elements that a multi-tensor update copies, shape (stage, layout) [-]."""
    held, state = tensors.held, tensors.job.optimizer.state
    of_kind = (
        (held.base - held.vectors - held.tables, state.matrix),
        (held.vectors, state.vector),
        (held.tables, state.embedding),
    )
    base = sum(elements * kind.together for elements, kind in of_kind) * tensors.job.learning_layers.share
    return np.asarray(base * tensors.base + held.adapters * state.matrix.together)


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
    """What work on the largest matrix of the layers holds: Newton-Schulz products, or a decomposition.

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
    """What a singular value decomposition of a gradient holds, in float32.

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


def _kept_wide(job: Job, weight_bytes: Array | float) -> Array | float:
    """The type of what the optimizer updates: the master copy's where there is one [bytes]."""
    return float(FLOAT32) if job.master_bytes else weight_bytes


# What a GPU holds of images beside their encoder's weights.


def _table_gradients(tensors: Tensors) -> Array:
    """Gradients that the backward of the token table makes, shape (stage, layout) [bytes].

    A tied table's second one, and the sum of both, stand beside the first.
    """
    job, layouts = tensors.job, tensors.layouts
    summed = job.model.tied_embeddings and not job.stack.states.gradients_persist
    copies = np.where(summed & (layouts.pp == 1), 2.0, keeps_fresh_gradients(job, layouts))
    size = tensors.base * tensors.sizes.gradient / tensors.shards.gradients
    return np.asarray(copies * tensors.held.embedding * size)


@part(
    "image activations",
    "pixels, and what the encoder's layers and the projector keep until the end of the backward x micro-batches in "
    "flight, less the encoder's own gradients by then",
    "operator graph",
    lambda tensors: tensors.job.images is not None,
)
def encoder_kept(tensors: Tensors) -> Array:
    """The encoder runs first, so that its backward comes last: all gradients but those of the token table are there.

    Source: autograd runs the latest node first, and models look the tokens up before they encode images; traced.
    """
    job, layouts, held, sizes = tensors.job, tensors.layouts, tensors.held, tensors.sizes
    one = encoder_activations(job, layouts, sizes.fresh_gradient, keeps_fresh_gradients(job, layouts))
    if one is None:
        return np.zeros((1, 1, 1))
    on_first = np.stack([np.ones(len(layouts)), (layouts.pp == 1).astype(float)])
    fresh = held.parts_learning * sizes.gradient / tensors.shards.gradients
    kept, pixels = (one.kept + one.pixels) * tensors.in_flight * on_first, one.pixels * on_first
    last = np.maximum(kept - fresh + one.backward_peak * on_first - _table_gradients(tensors), pixels)
    return over_time((PASSES, kept), (BACKWARD_END, last), (OPTIMIZER, pixels))


# What sits on a card beside the tensors: contexts, communicators, workspaces, and what the allocator cannot use.


class Around(Immutable):
    """What sits on the card beside the tensors is computed from these; `level` is one of the stack's."""

    job: Job
    layouts: Layouts
    tensors: Array
    level: str


@part("CUDA context", "per process", "measured 0.47 to 0.92 GiB on A100; typical and cautious values of the stack")
def cuda_context(around: Around) -> Array:
    return as_array(getattr(around.job.stack.memory.context_gib, around.level) * GIB).reshape(1, 1, 1)


@part("NCCL buffers", "per communicator that the layout needs", "measured 0.5 to 1.5 GiB a group")
def nccl_buffers(around: Around) -> Array:
    layouts = around.layouts
    groups = (layouts.tp > 1, layouts.pp > 1, layouts.cp > 1, layouts.dp > 1, layouts.ep > 1)
    communicators = sum(np.asarray(group, dtype=float) for group in groups)
    each = getattr(around.job.stack.memory.communicator_gib, around.level)
    return np.asarray(communicators * each * GIB * np.ones((1, 1, 1)))


@part("library workspaces", "cuBLAS and cuBLASLt", "PyTorch defaults, 32 MiB on Hopper")
def library_workspaces(around: Around) -> Array:
    return as_array(getattr(around.job.stack.memory.workspace_gib, around.level) * GIB).reshape(1, 1, 1)


@part(
    "allocator slack",
    "share of the tensors that is reserved but not live",
    "out-of-memory reports, 3.7 to 5 %",
)
def allocator_slack(around: Around) -> Array:
    return np.asarray(around.tensors * getattr(around.job.stack.memory.slack_share, around.level))


@part("communication buckets", "bucket of the reduction, at most the gradients; of replicas all of them", "stack")
def buckets(tensors: Tensors) -> Array:
    """From the loss to the end of the backward; those of DistributedDataParallel always, with every gradient.

    Source: torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets, where gradient_as_bucket_view is off.
    """
    sizes, (dense, experts) = tensors.sizes, tensors.learning
    several, copies = tensors.layouts.data_ranks > 1, tensors.job.stack.memory.copied_gradients
    copied = (dense + experts) * sizes.gradient + tensors.held.adapters * sizes.adapter_gradient
    always = copied * (several & (tensors.layouts.zero == 0) & copies)
    learning = tensors.learned
    bucket = np.minimum(tensors.job.stack.memory.bucket_gib * GIB, learning * tensors.sizes.reduce)
    passing = over_time((LOSS + LAYERS_BACKWARD + BACKWARD_END, bucket * several))
    return np.where(spread(always) > 0, spread(always), passing)


# Copies of weights in 8 or 4 bit that products use, beside the 16-bit weights that learn.


def _each_bytes(tensors: Tensors) -> float:
    """Copies of an element of a linear weight that learns [bytes]."""
    casts, states = tensors.job.device.casts, tensors.job.stack.states
    return 0.0 if casts is None or states.narrow_parameters else casts.kept_weight * tensors.base


@part(
    "narrow copies of weights",
    "linear weights on the rank x bytes of their rows and columns in 8 or 4 bit",
    "Transformer Engine pytorch/module/base.py, get_weight_workspace, kept from the first micro-batch on",
    lambda tensors: _each_bytes(tensors) > 0,
)
def narrow_copies(tensors: Tensors) -> Array:
    """Zero where layers are gathered, since a layer that is given back takes its copies along."""
    kept = 1.0 - tensors.gathers
    return spread((tensors.held.linear + tensors.held.experts) * _each_bytes(tensors) * kept)


ON_THE_WAY = 2.0  # counted: layers whose offloaded activations are on the card, the one that runs and the one in copy


@part("weights", "elements on the rank x bytes each, over the ZeRO-3 group", "stack states; ZeRO, arXiv:1910.02054")
def weights(tensors: Tensors) -> Array:
    held, sizes, base, shards = tensors.held, tensors.sizes, tensors.base, tensors.shards
    still = 1.0 - base
    frozen = (held.linear * still + held.parts_matrices) * sizes.frozen_linear
    frozen = frozen + (held.other * still + held.parts_others) * sizes.frozen
    dense_bytes = ((held.linear + held.other) * base + held.parts_learning) * sizes.weight + frozen
    expert_bytes = held.experts * (sizes.weight * base + sizes.frozen_linear * still)
    on_card = (~tensors.layouts.hosts_params).astype(float)
    return spread(sharded_elements(dense_bytes, expert_bytes, shards.weights, shards) * on_card)


@part(
    "cast weights",
    "linear weights x 2 bytes, kept by autograd until their backward; of a quantised model the head alone",
    "PyTorch autocast",
    lambda tensors: tensors.job.casts_weights or tensors.job.widens_activations,
)
def cast_weights(tensors: Tensors) -> Array:
    job, held = tensors.job, tensors.held
    each = job.element_bytes * (1.0 - tensors.gathers) * float(job.stack.states.autocast)
    casts = each * float(job.casts_weights)
    kept = 1.0 - recomputed_layers_share(job, tensors.layouts)  # a recomputed layer casts again
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
    "less as DeepSpeed is told to gather ahead and to keep",
    "PyTorch FSDP, DeepSpeed ZeRO-3; torchtitan distributed/fsdp.py (not resharded with pipelines)",
    lambda tensors: bool(np.any(tensors.gathers)),
)
def gathered_layers(tensors: Tensors) -> Array:
    held, gathers = tensors.held, tensors.gathers
    size = tensors.job.element_bytes if tensors.job.method.quantised else tensors.sizes.gather
    units = _gathered_units(tensors) * gathers
    root = held.root * size * tensors.base * np.where(tensors.layouts.gathers_stages, 0.0, gathers)
    # What a pass through other weights gathers is there in the forward alone, beside the root of the model.
    jobs = [tensors.job.beside(one) for one in tensors.job.method.frozen if one.copies]
    beside = [Tensors(job, tensors.layouts, tensors.longest_tokens) for job in jobs]
    others = [held.root * size * gathers + _gathered_units(other) * gathers for other in beside]
    in_forward = np.max(np.stack([units, *others]), axis=0) - units
    told = tensors.gathered
    at_turn, at_first = (_as_told(tensors, units, more) for more in (told.ahead + told.kept, told.ahead))
    return over_time((ALL_ACTIVATIONS, at_turn), (FIRST_LAYER, at_first), (LAYERS_BACKWARD, root), (LOSS, in_forward))


def _as_told(tensors: Tensors, units: Array, more: Array) -> Array:
    """Gathered weights with so many elements more, at most all of them; or less, at least the root and one matrix.

    units : without them, shape (stage, layout) [bytes]; more : shape (stage, layout) [-]
    """
    method, held, whole = tensors.job.method, tensors.held, tensors.gathered.whole
    if not np.any(more) and not np.any(whole):
        return units
    size = tensors.job.element_bytes if method.quantised else tensors.sizes.gather
    each = (method.frozen_linear_bytes or 0.0) if method.quantised else size
    least, most = held.root * size + held.largest * each, held.root * size + (held.base - held.root) * each
    changed = np.clip(units + more * each, np.minimum(least, units), np.maximum(most, units))
    changed = changed * (1.0 - whole / held.base)  # what is whole is no part of them
    told = (tensors.gathers > 0) & ~tensors.layouts.gathers_stages
    return np.where(told, changed, units)


@part(
    "weights kept whole",
    "elements of small tensors that ZeRO-3 is told not to shard, beyond DeepSpeed's own x gather bytes",
    "DeepSpeed, stage3_param_persistence_threshold",
    lambda tensors: bool(np.any(tensors.gathered.whole) or np.any(tensors.gathered.adapters)),
)
def kept_whole(tensors: Tensors) -> Array:
    """They are gathered behind the update, which starts with every weight sharded."""
    told, adapter_bytes = tensors.gathered, tensors.job.stack.states.adapter_weight_bytes
    gathers = tensors.gathers * ~tensors.layouts.gathers_stages
    whole = (told.whole * tensors.sizes.gather + told.adapters * adapter_bytes) * gathers
    return over_time((1.0 - OPTIMIZER, whole))


def _gathered_units(tensors: Tensors) -> Array:
    """Weights that a pass gathers: the root unit and two layers, or a whole stage, shape (stage, layout) [bytes]."""
    method, held = tensors.job.method, tensors.held
    size = tensors.job.element_bytes if method.quantised else tensors.sizes.gather
    per_weight = (method.frozen_linear_bytes or 0.0) if method.quantised else size
    layers = np.where(
        tensors.layouts.gathers_stages, held.base - held.root, 2.0 * np.minimum(held.whole_layer, held.base)
    )
    return np.asarray(held.root * size + layers * per_weight)


@part(
    "dequantised layer",
    "the largest quantised matrix of a layer, in 16 bit and in what it is cast from, while its product runs",
    "the quantiser's file; bitsandbytes matmul_4bit",
    lambda tensors: tensors.buffer_bytes > 0,
)
def dequantised_layer(tensors: Tensors) -> Array:
    return over_time((LAYERS_BACKWARD, tensors.held.largest * tensors.buffer_bytes))


@part(
    "dequantised weights",
    "quantised weights x 2 bytes, kept by autograd until their backward",
    "the quantiser's file; AutoGPTQ",
    lambda tensors: tensors.kept_expanded_bytes > 0,
)
def dequantised_weights(tensors: Tensors) -> Array:
    held, size = tensors.held, tensors.kept_expanded_bytes
    kept = 1.0 - recomputed_layers_share(tensors.job, tensors.layouts)  # a recomputed layer expands again
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
def adapters(tensors: Tensors) -> Array:
    """Learning elements are sharded as weights are; buffers that do not learn are whole on every rank."""
    learning = tensors.held.adapters * tensors.job.stack.states.adapter_weight_bytes / tensors.shards.weights
    return spread(learning + tensors.held.buffer_bytes)


@part(
    "gradients",
    "learning elements x gradient bytes, over the ZeRO-2 group; whole while micro-batches accumulate unreduced; "
    "of frozen weights of the layers too where adapters share FSDP's flat parameters with them",
    "stack states; no_sync and use_orig_params of PyTorch FSDP",
)
def gradients(tensors: Tensors) -> Array:
    held, sizes, shards, layouts = tensors.held, tensors.sizes, tensors.shards, tensors.layouts
    dense, experts = tensors.learning
    on_card = np.where(layouts.zero >= 2, tensors.job.optimizer_on_card(layouts), 1.0)
    sharded = sharded_elements(dense, experts, shards.gradients, shards) * sizes.gradient
    sharded = sharded + held.adapters * sizes.adapter_gradient / shards.gradients
    # FSDP2 adds up what it has not reduced yet in the type in which it will.
    each = np.where(layouts.gathers_stages, sizes.reduce, sizes.gather)
    whole = (dense + experts) * each + held.adapters * sizes.adapter_gradient
    flat = tensors.flat_elements * sizes.gather
    sharded, whole = sharded + flat / shards.gradients, whole + flat
    to_come = gradients_to_come(tensors.job.model, held, tensors.encoder_waits)
    return gradients_over_time(tensors.job, layouts, held, sharded * on_card, whole, to_come)


@part(
    "optimizer states",
    "learning elements x (master + moments), over the ZeRO-1 group; none where offloaded or paged",
    "stack states",
)
def optimizer_states(tensors: Tensors) -> Array:
    sizes, shards = tensors.sizes, tensors.shards
    on_card = tensors.job.optimizer_on_card(tensors.layouts) * float(not tensors.job.optimizer.paged)
    states = sharded_elements(*tensors.learning, shards.optimizer, shards) * sizes.optimizer
    states = states + tensors.held.adapters * sizes.adapter_optimizer / shards.optimizer
    return spread((states + tensors.further_state_bytes) * on_card)


@part(
    "activations",
    "layers x saved bytes per layer x micro-batches in flight, less the layer in its backward",
    "operator graph; arXiv:2205.05198",
)
def saved_activations(tensors: Tensors) -> Array:
    """Every stage holds the micro-batches in flight; all but the one in its backward stay whole.

    Offloaded ones leave two layers on the card, the one that runs and the one that is copied (OffloadActivations of
    torchtune and TRL, Unsloth's gradient checkpointing, ALST: arXiv:2506.13996).
    """
    one, layouts, in_flight = tensors.saved, tensors.layouts, tensors.in_flight
    stay, others = tensors.kept_layers - tensors.offloaded_layers, np.maximum(in_flight - 1.0, 0.0)
    # Of what goes to the host, the layer that is copied and the one that runs are on the card.
    passing = np.minimum(tensors.offloaded_layers, ON_THE_WAY)
    first_stage = np.stack([np.ones(len(layouts)), (layouts.pp == 1).astype(float)])
    before = np.where(layouts.hosts_activations, 0.0, one.before_learning)
    kept = one.kept * (stay * in_flight + passing * np.minimum(in_flight, 1.0)) - before * in_flight * first_stage
    at_first = np.where(tensors.encoder_waits, one.source_kept, one.checkpoint)
    entered = one.entered * in_flight * first_stage
    first = one.kept * stay * others + at_first * tensors.any_layer + entered
    last = kept + one.last_left * tensors.any_layer + entered
    ends = kept + one.ends * tensors.has_head
    # The last layer's own forward holds more than its end where no logits come after it; and masks of long sequences,
    # while they are made, more than all layers keep.
    more = np.maximum(one.forward_more - one.loss_kept, 0.0) * tensors.has_head * tensors.any_layer
    entering = first_stage * (one.kept * stay * others + one.entered * others + one.entering)
    more = np.maximum(more, entering - ends - one.loss_kept * tensors.has_head)
    return over_time((FORWARD + LOSS, ends), (FORWARD, more), (LAST_LAYER, last), (FIRST_LAYER, first))


@part(
    "layer in its backward",
    "its saved tensors not yet freed + fresh gradients + gradients of operator outputs, at their worst",
    "operator graph, walked backwards",
)
def layer_in_backward(tensors: Tensors) -> Array:
    tied = tied_gradients(tensors.job, tensors.layouts, tensors.held)
    at_the_end = tied + tensors.shapes.spread(tensors.shapes.inputs.residual_bytes)
    # A decoder's table is done before the encoder's layers, and in the same way.
    first, tables = tensors.saved.first_peak, tied + tensors.saved.first_kept - tensors.saved.checkpoint
    first = np.where(tensors.encoder_waits, np.maximum(first, tables), first)
    return over_time(
        (LAST_LAYER, tensors.saved.backward_peak * tensors.any_layer),
        (FIRST_LAYER, first * tensors.any_layer),
        (BACKWARD_END, at_the_end),
    )


@part("logits and loss", "tokens x vocabulary / TP x bytes alive together", "stack's loss kernel")
def logits_and_loss(tensors: Tensors) -> Array:
    one, wide = tensors.saved, tensors.wide_logits
    kept, live = ((loss + wide) * tensors.has_head for loss in (one.loss_kept, one.loss_live))
    return over_time((FORWARD, kept), (LOSS, live))


@part(
    "optimizer workspace",
    "temporaries of all weights, or of the largest, or float32 gradients; at least products of the largest matrix",
    "optimizer; torch.optim foreach and Muon; DeepSpeed, single_grad_partition",
)
def optimizer_workspace(tensors: Tensors) -> Array:
    return update_workspace(tensors)


@part(
    "generator activations",
    "what the generator of replaced tokens keeps until the end of the backward x micro-batches in flight; then its own "
    "backward at its worst, less its gradients by then",
    "arXiv:2003.10555; operator graph",
    lambda tensors: generation_of(tensors.job, tensors.layouts) is not None,
)
def generator_kept(tensors: Tensors) -> Array:
    """The generator runs first, so that its backward comes last: all other gradients are there.

    Source: autograd runs the latest node first.
    """
    part = generation_of(tensors.job, tensors.layouts)
    if part is None:
        return np.zeros((1, 1, 1))
    own = Tensors(part.job, part.layouts, tensors.longest_tokens)
    on_first = np.stack([np.ones(len(tensors.layouts)), (tensors.layouts.pp == 1).astype(float)])
    kept = own.saved.kept * own.kept_layers + own.saved.ends + own.saved.loss_kept
    passing = saved_activations(own) + layer_in_backward(own) + logits_and_loss(own)
    late = np.maximum(*(passing * moments for moments in (FIRST_LAYER, BACKWARD_END))).max(axis=1)
    early = (passing * (LOSS + LAST_LAYER)).max(axis=1)
    fresh = tensors.held.parts_learning * tensors.sizes.gradient / tensors.shards.gradients
    fresh = fresh * keeps_fresh_gradients(tensors.job, tensors.layouts)
    last = np.maximum(early - fresh, late) * on_first
    return over_time((PASSES, kept * tensors.in_flight * on_first), (BACKWARD_END, last))


STATE_PARTS = (weights, adapters, gradients, optimizer_states)
"""What a rank holds whatever it computes at the moment."""
PASSING_PARTS = (saved_activations, encoder_kept, generator_kept, layer_in_backward, logits_and_loss)
"""What comes and goes with a micro-batch, as long as its longest sequence."""
TENSOR_PARTS = (
    weights,
    narrow_copies,
    frozen_copies,
    cast_weights,
    gathered_layers,
    kept_whole,
    dequantised_layer,
    dequantised_weights,
    adapters,
    gradients,
    optimizer_states,
    saved_activations,
    encoder_kept,
    generator_kept,
    layer_in_backward,
    logits_and_loss,
    optimizer_workspace,
)
# Beside the tensors: what varies between runs of the same job.
OVERHEAD_PARTS = (cuda_context, nccl_buffers, library_workspaces, allocator_slack)
MEMORY_PARTS: tuple[Part[Tensors] | Part[Around], ...] = (*TENSOR_PARTS, buckets, *OVERHEAD_PARTS)
