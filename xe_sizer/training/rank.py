"""What one rank holds of a job under each layout: its sequences, and the operator graph's inputs for them.

Many layouts share what their ranks compute, so it is computed once for rows that differ, and handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.inputs import GENERATOR, PLAIN, Expansion, GraphInputs
from xe_sizer.graph.operators import RankShape, as_array
from xe_sizer.graph.transformer import embedding_operators, further_operators, head_operators, layer_kinds
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import activation_bytes
from xe_sizer.training import padding
from xe_sizer.training.adapters import ALL_WEIGHTS
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray, Operator
    from xe_sizer.training.job import Images, Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods.method import Compared
    from xe_sizer.training.padding import Sequences

LARGEST_KEY = 2**62  # defined: inside a signed integer of 64 bits


class UniqueRows(Immutable):
    """`first`: an index of each distinct row; `where`: which of them every row is."""

    first: IntArray
    where: IntArray

    def broadcast(self, per_row: Array) -> Array:
        """A figure of the distinct rows (last axis), for all rows."""
        return _taken(per_row, self.where, self.first.size)


def _taken(per_row: Array, where: IntArray, count: int) -> Array:
    """A figure of so many rows (last axis; 1 where it is the same of all), for each that `where` names."""
    if np.shape(per_row)[-1] != count:
        per_row = np.broadcast_to(per_row, (*np.shape(per_row)[:-1], count))
    return per_row.take(where, axis=-1)


def unique_rows(columns: Sequence[ArrayLike]) -> UniqueRows:
    """Find the distinct rows of columns of one length; exact.

        key = ((code_1 n_2 + code_2) n_3 + code_3) ...      one integer for each row

    Whole numbers go in less the least of them, others by their rank.

    Parameters
    ----------
    columns : shape (rows,) each [any unit]

    Returns
    -------
    UniqueRows, shape (distinct rows,) and (rows,) [-]

    Source: own derivation: a mixed radix, renumbered where a key would exceed 2^62.
    """
    if np.size(columns[0]) == 1:
        return UniqueRows(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    coded = [_code(np.asarray(column)) for column in columns]
    coded = [(code, count) for code, count in coded if count > 1] or coded[:1]
    key, size = coded[0]
    for code, count in coded[1:]:
        if size * count > LARGEST_KEY:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max()) + 1
        key, size = key * count + code, size * count
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    return UniqueRows(first, where)


def _code(column: NDArray[np.generic]) -> tuple[IntArray, int]:
    """Non-negative integers below a bound, one for each distinct value of the column."""
    if (column == column[0]).all():
        return np.zeros(column.size, dtype=np.int64), 1
    if not np.issubdtype(column.dtype, np.integer):
        whole = np.abs(column).max() < LARGEST_KEY and np.array_equal(np.trunc(column), column)
        if not whole:
            values, code = np.unique(column, return_inverse=True)
            return code, values.size
        column = column.astype(np.int64)  # sorting takes longer
    code = (column - column.min()).astype(np.int64)
    return code, int(code.max()) + 1


# Sequences, and shapes of ranks.


def synchronised_every_micro_batch(job: Job, layouts: Layouts) -> Array:
    """Whether data-parallel ranks wait for each other in every micro-batch: they do where layers are gathered."""
    return as_array(layouts.gathers_by_layer | ((layouts.zero == 2) & job.stack.defaults.reduces_every_micro_batch))


def sequences(job: Job, layouts: Layouts) -> Sequences:
    """Pad the data under each layout; prompt tokens of the method come on top."""
    return padding.sequences(
        job.lengths,
        job.padding,
        seq_len=job.seq_len,
        micro_batch=layouts.micro_batch * job.method.sequences_per_sample,
        data_parallel=layouts.dp,
        grad_accum=layouts.grad_accum,
        synchronised_every_micro_batch=synchronised_every_micro_batch(job, layouts) > 0,
        samples=job.samples * job.method.sequences_per_sample,
        round_to=job.stack.defaults.pad_to_multiple,
    )


class RankGraph(Immutable):
    """The operators of a rank for the distinct rank shapes.

    inputs : sizes of shape (rank shape,)
    """

    inputs: GraphInputs

    @cached_property
    def kinds(self) -> tuple[tuple[float, tuple[Operator, ...]], ...]:
        """How many layers are of each kind, and their operators."""
        return layer_kinds(self.inputs)

    @property
    def layers(self) -> tuple[Operator, ...]:
        return tuple(operator for _, operators in self.kinds for operator in operators)

    @cached_property
    def embedding(self) -> tuple[Operator, ...]:
        return embedding_operators(self.inputs)

    @cached_property
    def head(self) -> tuple[Operator, ...]:
        return head_operators(self.inputs)

    @cached_property
    def further(self) -> tuple[Operator, ...]:
        """Of the head's, the layers that predict further tokens."""
        return further_operators(self.inputs)


class RankShapes(Immutable):
    """The graph for the distinct rank shapes, and which of them each layout has.

    where : index of a shape, shape (layout,) [-]; the graph may have more of them, of other layouts and lengths
    """

    graph: RankGraph
    where: IntArray

    @property
    def inputs(self) -> GraphInputs:
        return self.graph.inputs

    def broadcast(self, per_shape: Array) -> Array:
        return _taken(per_shape, self.where, self.inputs.rank.tp.size)

    def __getitem__(self, index: IntArray | slice) -> RankShapes:
        """Those of some of the layouts; the graph is the same."""
        return RankShapes(self.graph, self.where[index])


def rank_shapes(job: Job, layouts: Layouts, *lengths: Array) -> tuple[RankShapes, ...]:
    """Find the distinct shapes that ranks see under the layouts, at each of some lengths [tokens]; one graph for all.

    Layouts, and lengths, share a shape where all is equal that the graph is given of them.

    lengths : tokens per sequence, shape (layout,) each [tokens]
    """
    distinct: list[Array] = []
    places = []
    for length in lengths:
        same = (place for place, other in enumerate(distinct) if other is length or np.array_equal(other, length))
        places.append(next(same, len(distinct)))
        if places[-1] == len(distinct):
            distinct.append(np.broadcast_to(length, len(layouts)))
    repeats = np.tile(np.arange(len(layouts)), len(distinct)) if len(distinct) > 1 else slice(None)
    tokens, repeated = np.concatenate(distinct), layouts[repeats]
    inputs = graph_inputs(job, repeated, tokens)
    rows = unique_rows(inputs.columns)
    if not np.array_equal(rows.first, np.arange(tokens.size)):
        inputs = graph_inputs(job, repeated[rows.first], tokens[rows.first])
    graph = RankGraph(inputs)
    shapes = [RankShapes(graph, where) for where in rows.where.reshape(len(distinct), len(layouts))]
    return tuple(shapes[place] for place in places)


def graph_inputs(job: Job, layouts: Layouts, tokens_per_sequence: ArrayLike) -> GraphInputs:
    """Build the operator graph's inputs for sequences of the given length [tokens] under each layout."""
    shape = np.shape(layouts.tp)
    rank = RankShape(
        batch=as_array(layouts.micro_batch) * job.sequences_each,
        sequence=np.broadcast_to(as_array(tokens_per_sequence) + job.method.added_tokens, shape),
        tp=as_array(layouts.tp),
        cp=as_array(layouts.cp),
        ep=as_array(layouts.ep),
        expert_tp=as_array(layouts.expert_ranks),
        sequence_parallel=as_array(layouts.sequence_parallel),
        head_ranks=as_array(_head_ranks(job, layouts)),
        past=float(job.method.learning.prefix),
    )
    forward, backward = _weight_traffic(job, layouts)
    return GraphInputs(
        model=job.model,
        rank=rank,
        kernels=job.kernels,
        learning=job.method.learning,
        element_bytes=job.element_bytes,
        weight_forward_bytes=forward,
        weight_backward_bytes=backward,
        accumulated_bytes=_accumulated_bytes(job) * float(job.kernels.accumulation == "fused"),
        residual_element_bytes=_residual_element_bytes(job, layouts),
        returned_element_bytes=_residual_element_bytes(job, layouts) if job.widens_activations else None,
        autocast=job.autocasts,
        expansion=_expansion(job),
        padded=_padded(job, rank.batch),
        casts=job.device.casts,
        target_share=job.target_share,
        compared=queries_and_candidates(job.method.compared, layouts) if job.method.compared else None,
    )


def _head_ranks(job: Job, layouts: Layouts) -> IntArray:
    """Context ranks that hold whole sequences of a part of the heads, shape (layout,) [-].

        ranks = cp                                       ulysses
        ranks = gcd(cp, heads of keys and values / tp)   hybrid
        ranks = 1                                        else

    Source: USP (arXiv:2405.07719, section 3): heads of keys and values limit Ulysses, a ring takes the rest.
    """
    kind = job.stack.kernels.context
    if kind == "hybrid":
        return np.asarray(np.gcd(layouts.cp, np.maximum(job.model.kv_heads // layouts.tp, 1)))
    return layouts.cp if kind == "ulysses" else np.ones_like(layouts.cp)


def _padded(job: Job, sequences: Array) -> Array:
    """Share of the micro-batches whose attention is given a mask that hides padding, shape (layout,) [-].

        share = 1 - c^b     c of the samples are cut to the full length, and b of them need no mask

    A single sequence that is padded to itself needs none, and neither do several of one length.
    """
    given, cut = job.stack.kernels.attention_mask, job.lengths.truncated(job.seq_len)
    if given != "padded" or job.padding not in (*padding.TO_EACH_OTHER, padding.TO_SEQ_LEN):
        return np.full(np.shape(sequences), float(given == "always"))
    whole = job.padding == padding.TO_SEQ_LEN
    full = cut.longest >= job.seq_len or (not whole and len(cut.lengths) == 1)
    share = 1.0 - float(full) * cut.probabilities[-1] ** sequences
    return np.where(whole | (sequences > 1), share, 0.0)


def _expansion(job: Job) -> Expansion:
    """Kernels and activations of frozen weights in few bits; backward, none or those of the forward."""
    held = job.method.held
    if held is None:
        return PLAIN
    width, cast = held.width, float(held.cast_bytes > 0)
    forward, backward = (float(width.launches) + cast, float(width.backward_bytes > 0) * (width.launches + cast))
    wide = float(job.method.wide_activations(job.stack.states.autocast))
    around = wide * (FLOAT32 + activation_bytes(job.precision))
    return Expansion((forward, backward), width.input_bytes, width.output_bytes, width.keeps_input, around)


def _residual_element_bytes(job: Job, layouts: Layouts) -> float | Array:
    """Size of an element of the hidden state between blocks under each layout [bytes].

    Autocast leaves the embedding's float32 weights as they are, so the hidden state is float32; so it does those of
    a quantised model that became float32. FSDP gathers them in 16 bit, and so does ZeRO-3. Layer norms return
    float32 under autocast, so that the hidden state is float32 wherever it has passed one: behind a norm of the
    embedding, and where norms stand behind the sums.

    Source: torch.distributed.fsdp MixedPrecision.param_dtype, which accelerate sets from mixed_precision
    (FullyShardedDataParallelPlugin.set_mixed_precision).
    """
    model = job.model
    normed = (model.post_norm or model.embedding_norm) and not (model.norm.startswith("rms") or model.wide_norm)
    if normed and job.stack.states.autocast:
        return float(FLOAT32)
    if not (job.casts_weights or job.widens_activations):
        return job.element_bytes
    return np.where(as_array(layouts.zero) == 3, job.element_bytes, float(FLOAT32))


def _accumulated_bytes(job: Job) -> float:
    """A learning weight's accumulated gradient, read and written [bytes an element]."""
    return float(job.method.learning.base) * 2.0 * job.stack.states.gradient_bytes


def _weight_traffic(job: Job, layouts: Layouts) -> tuple[Array, Array]:
    """Bytes per linear weight element and micro-batch that the products themselves do not move.

    Autocast reads float32 and writes 16 bit; under ZeRO-3 only the rank's shard is cast. Quantised weights move
    what their library moves to expand them, and a cast of it where they are expanded wider than the product's
    type. A learning weight's gradient is added to the accumulated one, unless the product itself does so.
    """
    size = job.element_bytes
    whole = np.where(layouts.zero == 3, 1.0 / layouts.zero_ranks, 1.0)
    forward = float(job.casts_weights) * (FLOAT32 + size) * whole
    backward = _accumulated_bytes(job) * float(job.kernels.accumulation == "apart") * np.ones_like(whole)
    if (held := job.method.held) is not None:
        moved = (held.width.forward_bytes, held.width.backward_bytes)
        expanded = [each + held.cast_bytes * float(each > 0) for each in moved]
        forward, backward = forward + expanded[0], backward + expanded[1]
    return forward, backward


# The parts of a job that are jobs of their own, on the first stage of a pipeline.


def encoder_part(job: Job, images: Images, layouts: Layouts) -> tuple[Job, Layouts]:
    """Build the image encoder's part of a job under each layout.

        sequences = micro-batch x images x pieces,  each of so many patches

    Every rank of the first stage encodes the images of its micro-batch, whole unless the stack splits the encoder over
    tensor-parallel ranks.

    Parameters
    ----------
    job, images, layouts : the job, the images of its samples, and layouts of shape (layout,)

    Returns
    -------
    (Job, Layouts), of shape (layout,) [-]

    Source: vision models of Hugging Face transformers; `splits_encoder` of the stack's file.
    """
    whole = job.method.trained
    held = whole.held if whole.held is not None and whole.held.quantiser.parts else None
    trained = replace(whole, learning=images.encoder, added_tokens=0, added_parameters=0, parts=(), held=held)
    method = replace(job.method, trained=trained, sequences_per_sample=1, frozen=(), before=())
    each = replace(images, each=images.each * job.method.sequences_per_sample)
    part = replace(
        job, model=images.tower.encoder, method=method, padding=padding.PACKED, images=None, encodes=each,
        recompute_layers=None, first_stage_layers=None, last_stage_layers=None, stage_layers=(),
    )  # fmt: skip
    one = np.ones_like(layouts.tp)
    tp = layouts.tp if job.stack.defaults.splits_encoder else one
    return part, replace(layouts, tp=tp, pp=one, vpp=one, cp=one, ep=one, sequence_parallel=0 * one)


def generator_part(job: Job, layouts: Layouts) -> tuple[Job, Layouts] | None:
    """Build the part of a generator of replaced tokens under each layout (ELECTRA); None where nothing replaces tokens.

        sequences = those of the model,  pp = 1

    It runs on the first stage of a pipeline, and learns whole.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    (Job, Layouts) or None, of shape (layout,) [-]

    Source: arXiv:2003.10555, section 3; google-research/electra run_pretraining.py, PretrainingModel.
    """
    model = job.model.generator_model
    if model is None or not any(part.name == GENERATOR for part in job.method.parts):
        return None
    alone = replace(
        job, model=model, method=replace(job.method, trained=ALL_WEIGHTS), trainable_layers=None,
        recompute_layers=None, first_stage_layers=None, last_stage_layers=None, stage_layers=(),
    )  # fmt: skip
    one = np.ones_like(layouts.tp)
    return alone, replace(layouts, pp=one, vpp=one)


# Jobs that compare the states of sequences with each other: how many, and what ranks exchange for it.


def queries_and_candidates(compared: Compared, layouts: Layouts) -> tuple[Array, Array]:
    """Queries of a micro-batch of a rank, and the passages that each is compared with, shape (layout,) [-].

        queries = micro-batch
        candidates = micro-batch (1 + hard negatives) x (accumulation, where gradients are cached) x (dp, across GPUs)

    Parameters
    ----------
    compared : what is compared with what
    layouts : micro-batch, accumulation and dp, shape (layout,) [-]

    Returns
    -------
    (queries, candidates), shape (layout,) [-]

    Source: MultipleNegativesRankingLoss (gather_across_devices) and its cached form in sentence-transformers.
    """
    queries = as_array(layouts.micro_batch)
    of_step = as_array(layouts.grad_accum) if compared.cached else 1.0
    everywhere = as_array(layouts.dp) if compared.across_gpus else 1.0
    return queries, queries * (1.0 + compared.hard_negatives) * of_step * everywhere
