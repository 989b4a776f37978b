"""What one GPU holds, part by part: each an array of shape (stage, moment, layout), or one that broadcasts to it.

Stages are the first and the last, moments those of MOMENTS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.laws.parts import part
from xe_sizer.training.encoder_memory import encoder_kept
from xe_sizer.training.frozen_weights import frozen_copies
from xe_sizer.training.generator import generation_of
from xe_sizer.training.gradients import gradients_over_time, keeps_fresh_gradients, tied_gradients
from xe_sizer.training.halves import gradients_to_come
from xe_sizer.training.memory_around import allocator_slack, buckets, cuda_context, library_workspaces, nccl_buffers
from xe_sizer.training.moments import (
    ALL_ACTIVATIONS,
    BACKWARD_END,
    FIRST_LAYER,
    FORWARD,
    LAST_LAYER,
    LAYERS_BACKWARD,
    LOSS,
    OPTIMIZER,
    PASSES,
    over_time,
    spread,
)
from xe_sizer.training.narrow_weights import narrow_copies
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.sharding import sharded_elements
from xe_sizer.training.tensors import Tensors
from xe_sizer.training.update_workspace import update_workspace

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.parts import Part
    from xe_sizer.training.memory_around import Around


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
