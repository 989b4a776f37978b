"""Every quantity of one job under some layouts, each computed once: what parts of memory and of time are made of.

Figures of memory have the first and the last stage, those of a micro-batch's time the first, the last and a middle one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.experts import EXPERTS, MODULES, find_loop
from xe_sizer.graph.operators import Attention, Matmul, as_array
from xe_sizer.graph.recompute import recomputed_exchanges
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.immutable import Immutable, cached_unless_self
from xe_sizer.laws.collectives import STOLEN
from xe_sizer.laws.network import exchange_times, inner_ranks
from xe_sizer.laws.operator_time import exposed_launch_time_s, launch_counts, operator_times
from xe_sizer.laws.parts import computed, part
from xe_sizer.training.activations import (
    activations,
    encoder_waits,
    offloaded_layers,
    operator_groups,
    recomputed_layers_share,
    runs_backward,
)
from xe_sizer.training.gathering import gathered_beyond
from xe_sizer.training.layout import (
    FULL,
    HIDES_EXPERTS,
    MIRRORED,
    SCHEDULES,
    SELECTIVE,
    Counted,
    build_stages,
    micro_batches_in_flight,
    stage_layers,
)
from xe_sizer.training.model_states import (
    Shards,
    StateBytes,
    accumulates_whole_gradients,
    bytes_as_copy,
    keeps_fresh_gradients,
    learning_elements,
    on_host,
    parameter_counts,
    updates_at_once,
)
from xe_sizer.training.padding import Sequences
from xe_sizer.training.rank import encoder_part, generator_part, rank_shapes, sequences
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.operators import Array, IntArray, Operator
    from xe_sizer.laws.operator_time import OperatorTime
    from xe_sizer.training.activations import Activations
    from xe_sizer.training.gathering import Gathered
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Stages
    from xe_sizer.training.methods.method import Frozen
    from xe_sizer.training.model_states import ParameterCounts
    from xe_sizer.training.rank import RankShapes

SHORTEST_S = 1e-12  # chosen: so that an exchange of nothing has a share
# Measured: of what a stack hides of experts' exchanges, the part that stays hidden where they leave the node: kernels
# of the exchange forward tokens between both networks on multiprocessors that products need. Overlap took 24.7 s to
# 21.0 of Qwen3-30B on two H100 nodes, where Nsight has 37 % of the exchange beside products and these slower (Megatron
# Bridge, skills/nemo-mbridge-perf-expert-parallel-overlap), and 19.7 s to 17.6 of Qwen3-235B over four (Megatron MoE
# model zoo). Racks of GB200 and GB300, whose exchanges stay on NVLink, hide what the stack says. Steps that it was not
# fitted to: all-to-all of Qwen3-30B (the same skill) -5 %, DeepSeek-V3 on 1,024 H100 +4 %, Qwen3-235B of
# arXiv:2603.07685 +13 %; each alone would say 0.44, 0.55 and 0.71, those of the fit 0.38 and 0.41.
HIDDEN_ACROSS_NODES = 0.45


def _sums(times: Iterable[OperatorTime], shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Forward, backward and weight gradients of the operators together [s]."""
    forward, backward, weights = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for time in times:
        forward, backward, weights = forward + time.forward_s, backward + time.backward_s, weights + time.weight_s
    return forward, backward, weights


def _recomputed(times: Iterable[OperatorTime], layouts: Layouts, shapes: RankShapes, whole: Array) -> Array:
    """Forward seconds of a layer that run again in the backward: of whole layers their share, or what is selected."""
    size = shapes.inputs.rank.tp.shape
    everything, selected = np.zeros(size), np.zeros(size)
    for time in times:
        everything = everything + time.forward_s * (not time.operator.unneeded)
        selected = selected + time.operator.again * time.forward_s
    return np.where(layouts.recompute == SELECTIVE, shapes.broadcast(selected), whole * shapes.broadcast(everything))


def _exposed_share(exchange_s: Array, compute_s: Array) -> Array:
    """Share of an exchange that goes on when the compute beside it is done [-]."""
    left_s = np.maximum(exchange_s - compute_s, 0.0)
    return np.divide(left_s, exchange_s, out=np.zeros(np.shape(left_s)), where=exchange_s > 0)


LESS_BEHIND = [SCHEDULES.index(name) for name in ("1f1b", "1f1b-interleaved")]
"""Orders of passes in which a stage holds less than the one before it."""
HANDED_OVER = frozenset({"sequences", "stages", "held"})


class Evaluation(Immutable):
    """One job under layouts of shape (layout,).

    known_sequences : what padding makes of the data, where it is known already or comes from elsewhere
    stage : which stage of its pipeline each layout is evaluated for in place of the first, counted from 0, for memory
    """

    job: Job
    layouts: Layouts
    known_sequences: Sequences | None = None
    stage: Array | None = None

    def __getitem__(self, index: IntArray | slice) -> Evaluation:
        """The same under some of the layouts, in their order and each once, with what is known of them by now."""
        layouts, known, stage = self.layouts[index], self.known_sequences, self.stage
        if len(layouts) == len(self.layouts):
            return self
        known, stage = None if known is None else known[index], None if stage is None else stage[index]
        taken = Evaluation(self.job, layouts, known, stage)
        for name in HANDED_OVER & self.__dict__.keys():
            taken.__dict__[name] = self.__dict__[name][index]
        if "all_shapes" in self.__dict__:
            taken.__dict__["all_shapes"] = tuple(shapes[index] for shapes in self.all_shapes)
        return taken

    # What ranks see of the data.

    @cached_property
    def sequences(self) -> Sequences:
        """What padding makes of the data under each layout."""
        return sequences(self.job, self.layouts) if self.known_sequences is None else self.known_sequences

    @cached_property
    def all_shapes(self) -> tuple[RankShapes, ...]:
        """Shapes of ranks at the longest sequence, on the critical path and at mean lengths: one graph for all."""
        of = self.sequences
        return rank_shapes(self.job, self.layouts, of.longest_tokens, of.critical_tokens, of.mean_tokens)

    @property
    def shapes(self) -> RankShapes:
        """Shapes of ranks at the longest sequence of the run, which memory must hold."""
        return self.all_shapes[0]

    @property
    def critical_shapes(self) -> RankShapes:
        """The same at the lengths of the critical path: ranks wait for the longest sequence among them."""
        return self.all_shapes[1]

    @property
    def mean_shapes(self) -> RankShapes:
        """The same at mean lengths."""
        return self.all_shapes[2]

    # What stands beside the model, or on its first stage, as jobs of their own.

    @cached_property
    def beside(self) -> tuple[tuple[Frozen, Evaluation], ...]:
        """Frozen weights beside the model."""
        frozen = self.job.method.frozen
        of = self.layouts, self.sequences, self.stage
        return tuple((one, Evaluation(self.job.beside(one), *of)) for one in frozen)

    @property
    def passing(self) -> Iterable[tuple[Frozen, Evaluation]]:
        """Those of them that sequences pass in every step."""
        return ((one, evaluation) for one, evaluation in self.beside if one.forwards)

    @cached_property
    def encoder(self) -> Evaluation | None:
        """The encoder of images, which all are of one size; None where there are none."""
        images = self.job.images
        if images is None:
            return None
        patches = np.full(len(self.layouts), float(images.seen.patches))
        return Evaluation(*encoder_part(self.job, images, self.layouts), Sequences.of_length(patches))

    @cached_property
    def generator(self) -> Evaluation | None:
        """The generator of replaced tokens; None where nothing replaces them."""
        part = generator_part(self.job, self.layouts)
        return None if part is None else Evaluation(*part, self.sequences)

    # What a rank holds of weights, gradients and optimizer states, shape (stage, layout) or (layout,).

    @cached_property
    def stages(self) -> Stages:
        """Layers by stage of the pipeline."""
        layers, split, stage = self.job.model.layers, self.job.split, self.stage
        stages = build_stages(layers, split, self.layouts)
        if stage is None:
            return stages
        return stages.counting(stage + Counted.FIRST, stage_layers(layers, split, self.layouts, stage))

    @cached_unless_self
    def at_first_stages(self) -> tuple[Evaluation, ...]:
        """The same for memory, with the first of a pipeline's stages and with the second where that has more layers.

        So also where a mixture begins with layers without experts. Itself alone where no second stage has more. What
        stands beside the layers, as an encoder of images, is on the first.
        """
        job, stages = self.job, self.stages
        open_ones = stages.layers[2] > stages.layers[0]
        if job.model.experts and job.model.experts.first_dense_layers:  # the others hold more experts
            open_ones = open_ones | ((self.layouts.pp > 2) & (stages.layers[2] >= stages.layers[0]))
        if self.stage is not None or not np.any(open_ones) or job.method.parts or job.images or job.model.generator:
            return (self,)
        return tuple(
            self._with_stages(stages.counting(np.where(open_ones, stage, 0.0), np.where(open_ones, own, stages.own)))
            for stage, own in ((Counted.FIRST, stages.layers[0]), (Counted.SECOND, stages.layers[2]))
        )

    @cached_unless_self
    def at_fuller_stage(self) -> Evaluation:
        """The same for memory, with the fuller of a pipeline's first two stages where the second has more layers.

            second, where states(L2) + kept L2 n2 > states(L1, embedding) + kept L1 n1

        L1 and L2 are layers of both, n1 and n2 their micro-batches in flight.

        Source: definition.
        """
        if len(self.at_first_stages) == 1:
            return self
        one, other = self.at_first_stages
        learns = self.sizes.gradient / self.shards.gradients + self.sizes.optimizer / self.shards.optimizer
        each = self.sizes.weight / self.shards.weights + self.base * learns
        states, kept = (other.held.base - one.held.base)[0] * each, other.in_outer_layers - one.in_outer_layers
        second = states + kept * self.saved.kept > 0
        counted, own = (
            np.where(second, getattr(other.stages, name), getattr(one.stages, name)) for name in ("counted", "own")
        )
        return self._with_stages(self.stages.counting(counted, own))

    @cached_property
    def at_each_stage(self) -> Evaluation:
        """One layout for memory once for each stage of its pipeline, in their order, shape (pp,).

        A stage stands in the place of the first; only the last of them has its own. Where micro-batches enter at both
        ends, the ranks of a stage and of the mirrored one hold the same.
        """
        pp = int(self.layouts.pp[0])
        places, stage = np.zeros(pp, dtype=np.int64), np.arange(pp, dtype=float)
        layouts, sequences = self.layouts[places], self.sequences[places]
        stage = np.where(MIRRORED[layouts.schedule], np.minimum(stage, pp - 1.0 - stage), stage)
        return Evaluation(self.job, layouts, sequences, stage)

    @property
    def in_outer_layers(self) -> Array:
        """Layers of the first stage x micro-batches in flight, shape (layout,) [-]."""
        return np.asarray(self.stages.at_ends[0] * self.in_flight[0])

    def _with_stages(self, stages: Stages) -> Evaluation:
        """The same with stages that are counted otherwise."""
        other = Evaluation(self.job, self.layouts, self.sequences)
        other.__dict__["stages"] = stages
        other.__dict__["all_shapes"] = self.all_shapes
        return other

    @cached_property
    def held(self) -> ParameterCounts:
        """Elements on a rank before ZeRO shards them."""
        return parameter_counts(self.job.model, self.job.method, self.layouts, self.stages)

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
    def gathers(self) -> Array:
        """1 where layers are gathered when they run (ZeRO-3), else 0, shape (layout,)."""
        return np.asarray(self.layouts.zero == 3, dtype=float)

    @cached_property
    def gathered(self) -> Gathered:
        """What ZeRO-3 keeps gathered beyond what it does by itself."""
        return gathered_beyond(self.job, self.layouts, self.held, self.stages, self.recomputed)

    @cached_property
    def learning(self) -> tuple[Array, Array]:
        """Learning base elements of a rank before ZeRO, dense and of experts, shape (stage, layout) [-]."""
        return learning_elements(self.job, self.held, self.stages)

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
    def holds_inputs(self) -> NDArray[np.bool_]:
        """Where FSDP keeps what frozen layers read until their backward is through, shape (layout,)."""
        states, layouts = self.job.stack.states, self.layouts
        frozen = states.reentrant and not states.flat_gradients and not self.job.method.learning.base
        return np.asarray((layouts.zero >= 2) & (layouts.recompute == FULL) & frozen)

    @cached_property
    def further_state_bytes(self) -> Array:
        """Moments of vectors and tables beyond what as many elements of matrices have, on a rank [bytes]."""
        held, sizes = self.held, self.sizes
        whole = held.vectors * sizes.vector_more + held.tables * sizes.embedding_more
        return self.base * self.job.learning_layers.share * whole / self.shards.optimizer

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
    def accumulates_whole_gradients(self) -> NDArray[np.bool_]:
        """Whether a rank keeps whole gradients between micro-batches, shape (layout,)."""
        return accumulates_whole_gradients(self.job, self.layouts)

    @cached_property
    def keeps_fresh_gradients(self) -> Array:
        """1 where the backward creates gradients, 0 where it adds them to buffers, shape (layout,)."""
        return keeps_fresh_gradients(self.job, self.layouts, self.accumulates_whole_gradients)

    @cached_property
    def updates_at_once(self) -> NDArray[np.bool_]:
        """Whether the optimizer runs in the backward, weight by weight, shape (layout,)."""
        return updates_at_once(self.job, self.layouts)

    @cached_property
    def tied_gradient_bytes(self) -> Array:
        """A tied table's second gradient and the sum of both, until the sum replaces the first [bytes].

            bytes = 2 x table x gradient

        Not where both are added to one buffer, nor where a pipeline has the table twice.

        Source: own derivation from autograd's input buffers, which add up gradients before they accumulate; traced.
        """
        job, persist = self.job, self.job.stack.states.gradients_persist
        learns = job.model.tied_embeddings and job.method.learning.base and not persist
        second = 2.0 * float(learns) * job.learning_layers.ends * (self.layouts.pp == 1).astype(float)
        return np.asarray(second * self.held.embedding * self.sizes.gradient)

    @cached_property
    def updated(self) -> Array:
        """Learning elements that a rank updates, shape (stage, layout) [-].

        Experts are sharded over the ranks that hold the same ones.
        """
        sharded, (dense, experts) = self.layouts.zero >= 1, self.learning
        dense = (dense + self.held.adapters) / np.where(sharded, self.layouts.zero_ranks, 1)
        return np.asarray(dense + experts / np.where(sharded, self.layouts.expert_zero_ranks, 1))

    @cached_property
    def as_copy_bytes(self) -> Array:
        """All weights on a rank, kept as a copy that learns nothing [bytes]."""
        return bytes_as_copy(self.held, self.sizes, self.shards)

    @cached_property
    def copies_bytes(self) -> Array:
        """All copies beside the model on a rank, wherever they are: the sum of copies x bytes of each [bytes]."""
        held = (one.copies * evaluation.as_copy_bytes for one, evaluation in self.beside if one.copies)
        return np.asarray(sum(held, np.zeros((2, len(self.layouts)))))

    @cached_property
    def copies_on_host(self) -> Array:
        """1 where copies wait in host memory, else 0, shape (layout,)."""
        return on_host(self.job, self.layouts)

    # Activations of a micro-batch.

    @cached_property
    def recomputed(self) -> Array:
        """Share of the layers of a stage that run again in the backward from their input alone, shape (layout,) [-]."""
        return recomputed_layers_share(self.job, self.layouts, self.stages)

    @cached_property
    def saved(self) -> Activations:
        """Activations of one micro-batch at the longest sequence of the run."""
        return activations(self.shapes, self.layouts, *self.fresh_gradients, self.recomputed)

    @cached_property
    def fresh_gradients(self) -> tuple[float, Array]:
        """Size of a fresh weight gradient's element [bytes], and 1 where those of a layer stay together, else 0 [-].

        Where matrices are gathered one by one their gradients are reduced so, in the type of the reduction.
        """
        if not self.gathers_matrices:
            return self.sizes.fresh_gradient, self.keeps_fresh_gradients
        sharded = self.gathers > 0
        return float(np.max(self.sizes.reduce)), np.where(sharded, 0.0, self.keeps_fresh_gradients)

    @property
    def gathers_matrices(self) -> bool:
        """Whether sharded weights come together matrix by matrix."""
        return self.job.stack.states.gathers == "matrices"

    @cached_property
    def encoder_waits(self) -> NDArray[np.bool_]:
        """Where the last moment of the layers' backward is that between an encoder and a decoder."""
        if not self.job.model.encoder_layers:  # so that a search need not know what activations take
            return np.zeros(np.shape(self.held.linear), dtype=bool)
        left = self.sizes.gradient * self.base * self.keeps_fresh_gradients
        return encoder_waits(self.job.model, self.held, self.saved, left)

    @cached_property
    def offloaded_activation_bytes(self) -> Array:
        """What the layers of a rank keep in host memory, shape (stage, layout) [bytes]."""
        named = self.saved.hosted * self.kept_layers
        return np.asarray((self.saved.kept * self.offloaded_layers + named) * self.in_flight)

    @cached_property
    def offloaded_layers(self) -> Array:
        """Layers whose activations wait in host memory, shape (stage, layout) [-]."""
        return offloaded_layers(self.job, self.layouts, self.stages.at_ends)

    @cached_property
    def in_flight(self) -> Array:
        """Micro-batches whose activations the first and the last stage hold, shape (stage, layout) [-].

        In 1f1b every stage has one less than the one before it, and two chunks less of interleaved ones.
        """
        layouts, stages = self.layouts, self.stages
        pp, vpp, micro_batches = (as_array(size) for size in (layouts.pp, layouts.vpp, layouts.grad_accum))
        behind = np.maximum(stages.counted - Counted.FIRST, 0.0) * np.isin(layouts.schedule, LESS_BEHIND)
        less = np.where(vpp > 1, 2.0 / vpp, 1.0) * behind
        more = micro_batches + less  # so that what few micro-batches cut is no less behind the first stage
        held = micro_batches_in_flight(layouts.schedule, pp, vpp, more, stages.in_outermost(vpp))
        return np.asarray(np.minimum(held - np.stack([less, 0.0 * less]), micro_batches))

    @cached_property
    def kept_layers(self) -> Array:
        """Layers whose activations autograd keeps: none below the first that learns, shape (stage, layout) [-]."""
        return np.minimum(self.stages.at_ends, self.job.learning_layers.kept or self.job.model.layers)

    @cached_property
    def any_layer(self) -> Array:
        """1 on stages with layers, shape (stage, layout): the last may have the head alone."""
        return np.minimum(self.stages.at_ends, 1.0)

    @cached_property
    def on_first(self) -> Array:
        """1 on the stage where sequences enter, shape (stage, layout)."""
        entered = (self.stages.counted < Counted.SECOND).astype(float)
        return np.stack([entered, (self.layouts.pp == 1).astype(float)])

    @cached_property
    def has_head(self) -> Array:
        """1 on stages with the output head, shape (stage, layout)."""
        first = self.stages.head_first * (self.stages.counted < Counted.SECOND)
        return np.stack([np.where(self.layouts.pp == 1, 1.0, first), 1.0 - self.stages.head_first])

    @cached_property
    def wide_logits(self) -> Array:
        """The logits' float32 copy of a quantised model whose modules are kept in float32, shape (layout,) [bytes]."""
        job = self.job
        # Autocast runs a float32 head in 16 bit all the same.
        upcast = job.widens_activations and not job.stack.states.autocast
        size = np.where(self.layouts.zero < 3, FLOAT32 * float(upcast), 0.0)
        return size * self.shapes.broadcast(logits_per_rank(self.shapes.inputs))

    # Time of one micro-batch, shape (stage, layout) [s]: operators are timed once for each distinct shape of rank.

    @cached_property
    def stage_shares(self) -> tuple[Array, Array, Array]:
        """How much of layers, embedding and head each stage runs [-]."""
        one, single, stages = np.ones(len(self.layouts)), (self.layouts.pp == 1).astype(float), self.stages
        half = 0.5 * stages.mirrored
        return (
            stages.layers / self.job.model.layers,
            np.stack([one - half, np.maximum(single, half), 0 * one]),
            np.stack([np.maximum(single, stages.head_first) - half, 1.0 - stages.head_first + half, 0 * one]),
        )

    def _on_stages(self, *groups: Array) -> Array:
        """What layers, embedding and head come to on each stage, of figures of each as a whole."""
        layers, embedding, head = (share * group for share, group in zip(self.stage_shares, groups, strict=True))
        return layers + embedding + head

    @cached_property
    def operators(self) -> tuple[tuple[Operator, ...], ...]:
        """Of the layers, the embedding and the head."""
        return operator_groups(self.job, self.critical_shapes)

    @cached_property
    def runs_back(self) -> tuple[Array, Array, Array]:
        """Whether the backward passes the layers, the embedding and the head, shape (layout,)."""
        return runs_backward(self.job, self.layouts)

    @cached_property
    def times(self) -> tuple[tuple[OperatorTime, ...], ...]:
        return tuple(operator_times(operators, self.job.device) for operators in self.operators)

    @cached_property
    def kernels_s(self) -> tuple[Array, Array, Array]:
        """Kernels of the forward, of the backward, and of that those of weight gradients [s]."""
        sums = [_sums(times, self.critical_shapes.inputs.rank.tp.shape) for times in self.times]
        by_layout = [[self.critical_shapes.broadcast(side) for side in group] for group in sums]
        forward = self._on_stages(*(group[0] for group in by_layout))
        learn = self.job.learning_layers
        shares = ((learn.reach, learn.share), (learn.ends, learn.ends), (1.0, learn.ends))
        groups = [
            (runs * (reach * (group[1] - group[2]) + share * group[2]), runs * share * group[2])
            for runs, group, (reach, share) in zip(self.runs_back, by_layout, shares, strict=True)
        ]
        backward, weights = (self._on_stages(*(group[side] for group in groups)) for side in (0, 1))
        return forward, backward, weights

    @cached_property
    def recompute_s(self) -> Array:
        again = _recomputed(self.times[0], self.layouts, self.critical_shapes, self.recomputed)
        again_s = self.stage_shares[0] * self.runs_back[0] * self.job.learning_layers.reach * again
        further = self.times[2][: len(self.critical_shapes.graph.further)]  # which the head's operators begin with
        if not further:
            return again_s
        whole = as_array(self.layouts.recompute == FULL)
        again = _recomputed(further, self.layouts, self.critical_shapes, whole)
        return again_s + self.stage_shares[2] * self.runs_back[2] * again

    @cached_property
    def collectives_s(self) -> tuple[dict[str, tuple[Array, Array]], ...]:
        """Exchanges of the layers, the embedding and the head by group, hidden or not, for each shape of rank [s]."""
        job, rank = self.job, self.critical_shapes.inputs.rank
        factor = job.stack.efficiency.collectives
        return tuple(exchange_times(operators, rank, job.network, factor) for operators in self.operators)

    @cached_property
    def selected_s(self) -> dict[str, tuple[Array, Array]]:
        """Of the layers' exchanges those that selective recomputation runs again, by group and shape of rank [s]."""
        chosen = recomputed_exchanges(self.operators[0])
        if not chosen or not np.any(self.layouts.recompute == SELECTIVE):
            return {}
        factor = self.job.stack.efficiency.collectives
        return exchange_times(chosen, self.critical_shapes.inputs.rank, self.job.network, factor)

    @cached_property
    def exposed(self) -> dict[str, tuple[Array, Array]]:
        """Share of each parallel group's exchanges that nothing hides, forward and backward, shape (layout,) [-].

        The stack says it of most. That of experts hides behind another micro-batch: between the chunks of a pipeline,
        not where whole layers run again, nor with state-space layers, whose forward Megatron-Core does not cut
        (transformer_config.py, overlap_moe_expert_parallel_comm; gpt_model.py, build_schedule_plan); of those that
        leave the node less: exposed = 1 - share HIDDEN_ACROSS_NODES. A schedule of
        both directions may run it, t, behind the layers' kernels, c, which leave it a share of the multiprocessors:
        exposed = (max(t - c, 0) + stolen c) / t, both of both passes (arXiv:2412.19437, 3.5.1: 20 of 132). A ring
        passes keys and values on behind attention to those that are there:
        exposed = max(t - (n - 1) / n attention, 0) / t. Attention waits for sequences that are exchanged for heads.
        """
        overlap, inputs = self.job.stack.overlap, self.critical_shapes.inputs
        hidden = {"tp": overlap.tensor_parallel, "etp": overlap.tensor_parallel, "cp": overlap.context_parallel}
        hidden |= {"ep": overlap.expert_parallel, "heads": 0.0}
        one = np.ones(inputs.rank.tp.shape)
        shares = {group: ((1.0 - share) * one, (1.0 - share) * one) for group, share in hidden.items()}
        if 0.0 < overlap.expert_parallel < 1.0:
            leaves = inner_ranks(inputs.rank)["ep"] * inputs.rank.ep > self.job.network.node_ranks
            exposed_share = 1.0 - overlap.expert_parallel * np.where(leaves, HIDDEN_ACROSS_NODES, 1.0)
            shares["ep"] = (exposed_share, exposed_share)
        if inputs.kernels.context in ("ring", "hybrid"):
            behind = 1.0 - 1.0 / inputs.rank.ring_ranks
            attention = [time for time in self.times[0] if isinstance(time.operator, Attention)]
            forward_s, backward_s = (
                behind * sum((getattr(time, side) for time in attention), np.zeros(1))
                for side in ("forward_s", "backward_s")
            )
            there, back = self.collectives_s[0]["cp"]
            shares["cp"] = (_exposed_share(there, forward_s), _exposed_share(back, backward_s))
        broadcast = self.critical_shapes.broadcast
        exposed = {group: (broadcast(there), broadcast(back)) for group, (there, back) in shares.items()}
        layouts = self.layouts
        alone = np.where(layouts.pp > 1, layouts.vpp == 1, layouts.grad_accum == 1) | (layouts.recompute == FULL)
        alone |= self.job.model.state_space is not None
        if overlap.expert_parallel < 1.0:  # else exchanges are taken to cost nothing
            there, back = (np.where(alone, 1.0, share) for share in exposed["ep"])
            exposed["ep"] = (there, back)
        hides = HIDES_EXPERTS[layouts.schedule] & (layouts.pp > 1)
        if np.any(hides) and "ep" in self.collectives_s[0]:
            kernels_s = sum(_sums(self.times[0], one.shape)[:2])
            exchange_s = sum(self.collectives_s[0]["ep"])
            left_s = np.maximum(exchange_s - kernels_s, 0.0) + STOLEN * kernels_s
            left = broadcast(left_s / np.maximum(exchange_s, SHORTEST_S))
            there, back = (np.where(hides, np.minimum(left, share), share) for share in exposed["ep"])
            exposed["ep"] = (there, back)
        return exposed

    @cached_property
    def exchanged_s(self) -> dict[str, tuple[Array, Array]]:
        """Exchanges that the stack does not hide by parallel group, forward and backward [s].

        Layers exchange once more when they are recomputed, whole or what is selected; embedding and head do not.
        """
        layers, again = self.stage_shares[0], self.recomputed
        selective, exchanged = as_array(self.layouts.recompute == SELECTIVE), {}
        for group, shares in self.exposed.items():
            sides = [
                [share * self.critical_shapes.broadcast(exchanges[group][side]) for exchanges in self.collectives_s]
                for side, share in enumerate(shares)
            ]
            there, back = (self._on_stages(*side) for side in sides)
            once_more = again * sides[0][0]
            if group in self.selected_s:
                selected_s = self.critical_shapes.broadcast(self.selected_s[group][0])
                once_more = once_more + selective * shares[0] * selected_s
            exchanged[group] = (there, self.runs_back[0] * (back + layers * once_more))
        return exchanged

    @cached_property
    def forward_run_s(self) -> Array:
        """Kernels and exchanges of the forward [s]."""
        return self.kernels_s[0] + sum(there for there, _ in self.exchanged_s.values())

    @cached_property
    def backward_run_s(self) -> Array:
        """Kernels and exchanges of the backward, with what it recomputes [s]."""
        return self.kernels_s[1] + self.recompute_s + sum(back for _, back in self.exchanged_s.values())

    @cached_property
    def gaps_s(self) -> tuple[Array, Array]:
        """Exposed launches of forward and backward [s]: the host starts kernels one after the other."""
        stack, counts = self.job.stack, [launch_counts(operators) for operators in self.operators]
        by_layout = [[self._by_layout(side) for side in count] for count in counts]
        forward = self._on_stages(*(count[0] for count in by_layout))
        backward = self._on_stages(*(runs * count[1] for runs, count in zip(self.runs_back, by_layout, strict=True)))
        again = self.runs_back[0] * self.recomputed
        unneeded = self._by_layout(launch_counts(op for op in self.operators[0] if op.unneeded)[0])
        recomputed = again * self.stage_shares[0] * (by_layout[0][0] - unneeded)
        backward_launch_s = backward * stack.backward_launch_s + recomputed * stack.forward_launch_s
        backward_launch_s = backward_launch_s + (self.runs_back[0] + again) * self.module_hooks_s
        launched, run_s = self._behind_counts()
        launch_s = stack.forward_launch_s
        ahead_s = self.forward_run_s - run_s - self.module_hooks_s
        forward_gap_s = exposed_launch_time_s(forward - launched, launch_s, ahead_s)
        forward_gap_s = forward_gap_s + exposed_launch_time_s(launched, launch_s, run_s)
        backward_gap_s = np.maximum(0.0, backward_launch_s - self.backward_run_s)
        return forward_gap_s, backward_gap_s + self._counting_s

    @cached_property
    def module_hooks_s(self) -> Array:
        """Time of the host in one pass over layers that ZeRO-3 gathers module by module [s].

        Every product with weights is a module, and so is each half of an adapter; of experts each one's where they are
        modules that run one after the other, unless their layer is fetched as one.
        """
        job, modules = self.job, np.zeros(1)
        loops = job.model.experts is not None and find_loop(job.kernels, job.model.experts) == MODULES
        for op in self.operators[0]:
            if isinstance(op, Matmul) and not op.computed:
                each = loops and op.module == EXPERTS and not job.stack.host.leaf_experts
                modules = modules + op.layers * (op.copies if each else 1.0)
        return self.gathers * self.stage_shares[0] * self._by_layout(modules) * self.job.stack.gathered_module_s

    def _behind_counts(self) -> tuple[Array, Array]:
        """Launches and kernels [s] of the forward behind counts of tokens that the host reads, in layers with experts.

        A product for each expert needs to know its rows, so the queue runs empty once a layer: what comes after the
        counts does not hide behind what came before: TEGroupedMLP.forward of Megatron-Core (tokens_per_expert.tolist),
        the loops of transformers (nonzero).
        """
        operators = [op for op in self.operators[0] if op.module == EXPERTS]
        if not any(isinstance(op, Matmul) and op.apart for op in operators):
            return np.zeros_like(self.forward_run_s), np.zeros_like(self.forward_run_s)
        kernels = sum((time.forward_s for time in self.times[0] if time.operator.module == EXPERTS), np.zeros(1))
        launched, run_s = self._by_layout(launch_counts(operators)[0]), self._by_layout(kernels)
        return self.stage_shares[0] * launched, self.stage_shares[0] * run_s

    @property
    def _counting_s(self) -> Array:
        """Time that layers with experts wait for counts of tokens, unless another micro-batch runs meanwhile [s].

        Measured for both directions together, it counts with the backward.
        """
        alone = as_array(self.exposed["ep"][0] >= 1.0)
        mixed = sum(layers for kind, layers in self.job.model.layer_kinds if kind.mlp == EXPERTS)
        return self.stage_shares[0] * alone * mixed * self.job.stack.expert_layer_s

    def _by_layout(self, launched: Array) -> Array:
        """Launches of the distinct shapes of ranks, by layout."""
        return self.critical_shapes.broadcast(np.broadcast_to(launched, self.critical_shapes.inputs.rank.tp.shape))

    @cached_property
    def frozen_s(self) -> Array:
        """Passes through frozen weights: kernels, exchanges and launches of the forward alone [s]."""
        total_s = np.zeros_like(self.kernels_s[0])
        for companion, one in self.passing:
            total_s = total_s + companion.forwards * (one.forward_run_s + one.gaps_s[0] + one.encoder_s[0])
        return total_s

    @cached_property
    def encoder_s(self) -> tuple[Array, Array, Array]:
        """Of the image encoder on the first stage: forward, backward, and of that weight gradients [s].

        Kernels, exchanges and launches of each, and what the backward recomputes.
        """
        return self._on_first_stage(self.encoder)

    @cached_property
    def generator_s(self) -> tuple[Array, Array, Array]:
        """Of the generator of replaced tokens on the first stage, as of an encoder [s]."""
        return self._on_first_stage(self.generator)

    def _on_first_stage(self, one: Evaluation | None) -> tuple[Array, Array, Array]:
        """Forward, backward and weight gradients of a part of the job on the first stage [s]."""
        if one is None:
            return (np.zeros_like(self.kernels_s[0]),) * 3
        times = (one.forward_run_s + one.gaps_s[0], one.backward_run_s + one.gaps_s[1], one.kernels_s[2])
        forward, backward, weights = (self.stage_shares[1] * side[0] for side in times)
        return forward, backward, weights

    @cached_property
    def beside_s(self) -> tuple[Array, Array, Array]:
        """Of all that learns beside the model's own layers: forward, backward, and of that weight gradients [s]."""
        forward, backward, weights = (
            encoding + generating for encoding, generating in zip(self.encoder_s, self.generator_s, strict=True)
        )
        return forward, backward, weights

    def exposed_exchange_s(self, group: str) -> Array:
        """Both directions of a parallel group's exchanges, one of those of `exposed` [s]."""
        there, back = self.exchanged_s[group]
        return there + back

    @cached_property
    def parts_s(self) -> dict[str, Array]:
        """Seconds of each of MICRO_BATCH_PARTS."""
        return computed(MICRO_BATCH_PARTS, self)

    @cached_property
    def forward_s(self) -> Array:
        """Kernels, exchanges and gaps of the forward, with what learns beside the layers; exchanges can hide behind it.

        Copy engines run on while the accelerator waits for launches, so the gaps hide exchanges too.
        """
        return self.forward_run_s + self.gaps_s[0] + self.beside_s[0]

    @cached_property
    def backward_s(self) -> Array:
        """The same of the backward."""
        return self.backward_run_s + self.gaps_s[1] + self.beside_s[1]

    @cached_property
    def weight_s(self) -> Array:
        """The part of the backward spent on weight gradients."""
        return self.kernels_s[2] + self.beside_s[2]

    @cached_property
    def stage_s(self) -> Array:
        """What each stage needs."""
        return np.asarray(sum(self.parts_s.values()))

    @cached_property
    def slowest(self) -> IntArray:
        """The stage that decides (0 first, 1 last, 2 middle), shape (layout,) [-]."""
        return np.asarray(np.argmax(self.stage_s, axis=0))


@part("forward", "sum of the operators' laws over the stage's layers x micro-batches", "accelerator profile")
def forward(evaluation: Evaluation) -> Array:
    return evaluation.kernels_s[0]


@part("backward", "input and weight gradients by the same laws x micro-batches", "accelerator profile")
def backward(evaluation: Evaluation) -> Array:
    return evaluation.kernels_s[1]


@part("frozen forward", "forward of frozen weights beside the training, with its exchanges", "method; operator laws")
def frozen_forward(evaluation: Evaluation) -> Array:
    return evaluation.frozen_s


@part(
    "image encoder",
    "forward of the encoder and the projector of images, backward of what learns or passes gradients on, by the same "
    "laws x micro-batches",
    "operator laws",
)
def image_encoder(evaluation: Evaluation) -> Array:
    there, back, _ = evaluation.encoder_s
    return there + back


@part(
    "generator",
    "forward and backward of the generator that replaces tokens, its head on the masked ones, by the same laws x "
    "micro-batches",
    "arXiv:2003.10555; operator laws",
)
def generator(evaluation: Evaluation) -> Array:
    there, back, _ = evaluation.generator_s
    return there + back


@part("recompute", "forward of the dropped part once more", "arXiv:2205.05198")
def recompute(evaluation: Evaluation) -> Array:
    return evaluation.recompute_s


@part("host", "max(0, launches x launch time - kernel time), and per micro-batch overhead", "stack")
def host(evaluation: Evaluation) -> Array:
    forward_gap_s, backward_gap_s = evaluation.gaps_s
    return forward_gap_s + backward_gap_s + evaluation.job.stack.micro_batch_overhead_s


@part(
    "tensor-parallel communication",
    "alpha + c sqrt(bytes) + bytes / bandwidth, less what the stack hides",
    "collective laws",
)
def tensor_parallel(evaluation: Evaluation) -> Array:
    return evaluation.exposed_exchange_s("tp") + evaluation.exposed_exchange_s("etp")


@part(
    "context-parallel communication",
    "keys, values and their gradients gathered or passed on, or sequences for heads, less what is hidden",
    "collective laws",
)
def context_parallel(evaluation: Evaluation) -> Array:
    return evaluation.exposed_exchange_s("cp") + evaluation.exposed_exchange_s("heads")


@part("expert-parallel communication", "all-to-all of routed tokens, there and back", "collective laws")
def expert_parallel(evaluation: Evaluation) -> Array:
    return evaluation.exposed_exchange_s("ep")


COMPUTE_PARTS = (forward, backward, frozen_forward, image_encoder, generator, recompute)
EXCHANGE_PARTS = {
    "tp": tensor_parallel,
    "etp": tensor_parallel,
    "cp": context_parallel,
    "heads": context_parallel,
    "ep": expert_parallel,
}
MICRO_BATCH_PARTS = (*COMPUTE_PARTS, host, *dict.fromkeys(EXCHANGE_PARTS.values()))
