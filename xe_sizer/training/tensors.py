"""What the parts of a rank's memory are computed from, each of these once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.training.activations import activations
from xe_sizer.training.gathering import gathered_beyond
from xe_sizer.training.gradients import keeps_fresh_gradients
from xe_sizer.training.halves import encoder_waits
from xe_sizer.training.learning_layers import learning_elements
from xe_sizer.training.offloading import offloaded_layers
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.schedules import micro_batches_in_flight
from xe_sizer.training.sharding import Shards, census
from xe_sizer.training.stages import stages_of
from xe_sizer.training.state_bytes import StateBytes
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.activations import Activations
    from xe_sizer.training.gathering import Gathered
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.sharding import Census
    from xe_sizer.training.stages import Stages


@frozen
class Tensors:
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
