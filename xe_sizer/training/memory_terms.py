"""The parts of a GPU's memory with their numbers put in: sums of products of the quantities that they come from.

A part may come about in several ways; the one that holds at the peak is that whose value is the part's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.transformer import logits_per_rank
from xe_sizer.laws.parts import Factor, product_of
from xe_sizer.training import memory_around as beside
from xe_sizer.training import memory_parts as parts
from xe_sizer.training.tensors import Tensors
from xe_sizer.units import FLOAT32, GIB

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.laws.parts import Terms
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.memory_around import Around

NEAR = 1e-9  # chosen: share by which a sum in another order may differ [-]
BYTES, ZERO_RANKS = "B", "ZeRO ranks"


@frozen
class Peak:
    """One layout at its worst stage and moment, and what its memory is computed from."""

    tensors: Tensors
    around: Around
    stage: int
    moment: int

    def one(self, value: ArrayLike) -> float:
        """A figure of shape (stage, layout), or one that broadcasts to it, on the worst stage."""
        return float(np.broadcast_to(value, (2, 1))[self.stage, 0])

    def product(self, *factors: tuple[ArrayLike, str]) -> tuple[Factor, ...]:
        return tuple(Factor(self.one(value), name) for value, name in factors)

    def over(self, ranks: ArrayLike, name: str = ZERO_RANKS) -> tuple[Factor, ...]:
        """Division among ranks; nothing where there is one."""
        count = self.one(ranks)
        return (Factor(count, name, divides=True),) if count > 1 else ()


def peak_of(job: Job, layouts: Layouts, ledger: Ledger) -> Peak:
    """The one layout of a cautious ledger at its worst stage and moment."""
    stage, moment = ledger.worst()
    longest_tokens = as_array(job.sequences(layouts).longest_tokens)
    shape = ledger.total_bytes.shape
    live = np.asarray(sum(np.broadcast_to(ledger.components[part.name], shape) for part in parts.TENSOR_PARTS))
    around = beside.Around(job, layouts, live, "cautious")
    return Peak(Tensors(job, layouts, longest_tokens), around, stage, moment)


def terms_at(peak: Peak, name: str, size_bytes: float) -> Terms:
    """The part of that name as a sum of products; empty where it is no such sum.

        bytes = sum of products of factors

    Parameters
    ----------
    peak : one layout at its worst stage and moment
    name : of a part of MEMORY_PARTS
    size_bytes : what the part comes to there [bytes]

    Returns
    -------
    tuple of terms, each a tuple of factors; their products sum to `size_bytes`

    Source: the functions of `training.memory_parts`, whose quantities these are.
    """
    for terms in _WAYS[name](peak) if name in _WAYS else ():
        held = tuple(term for term in terms if product_of(term))
        if abs(sum(map(product_of, held)) - size_bytes) <= NEAR * size_bytes:
            return held
    return ()


def _weights(peak: Peak) -> Iterator[Terms]:
    tensors, sizes = peak.tensors, peak.tensors.sizes
    held, shards = tensors.held, tensors.shards
    dense, expert = peak.over(shards.weights), peak.over(np.where(shards.weights > 1, shards.experts, 1.0))
    parts = (
        peak.product((held.parts_learning, "elements of other parts"), (sizes.weight, BYTES)) + dense,
        peak.product((held.parts_matrices, "frozen elements of other parts"), (sizes.frozen_linear, BYTES)) + dense,
        peak.product((held.parts_others, "frozen vectors of other parts"), (sizes.frozen, BYTES)) + dense,
    )
    if tensors.base:
        learning = peak.product((held.linear + held.other, "elements"), (sizes.weight, BYTES)) + dense
        yield learning, peak.product((held.experts, "elements of experts"), (sizes.weight, BYTES)) + expert, *parts
    yield (
        *parts,
        peak.product((held.linear, "elements of matrices"), (sizes.frozen_linear, BYTES)) + dense,
        peak.product((held.other, "other elements"), (sizes.frozen, BYTES)) + dense,
        peak.product((held.experts, "elements of experts"), (sizes.frozen_linear, BYTES)) + expert,
    )


def _adapters(peak: Peak) -> Iterator[Terms]:
    tensors = peak.tensors
    each = tensors.job.stack.states.adapter_weight_bytes
    product = peak.product((tensors.held.adapters, "elements"), (each, BYTES))
    learning = product + peak.over(tensors.shards.weights)
    buffers = peak.product((tensors.held.buffer_bytes, "bytes of buffers"))
    yield (learning, buffers) if peak.one(tensors.held.buffer_bytes) else (learning,)


def _learning(peak: Peak, each_bytes: ArrayLike, adapter_bytes: ArrayLike, group: ArrayLike) -> Terms:
    """A state of the learning elements: dense ones, experts, adapters."""
    tensors = peak.tensors
    dense, experts = tensors.learning
    shared = np.asarray(group) > 1
    return (
        peak.product((dense, "elements"), (each_bytes, BYTES)) + peak.over(group),
        peak.product((experts, "elements of experts"), (each_bytes, BYTES))
        + peak.over(np.where(shared, tensors.shards.experts, 1.0)),
        peak.product((tensors.held.adapters, "elements of adapters"), (adapter_bytes, BYTES)) + peak.over(group),
    )


def _gradients(peak: Peak) -> Iterator[Terms]:
    sizes, shards = peak.tensors.sizes, peak.tensors.shards
    for each, group in ((sizes.gradient, shards.gradients), (sizes.gather, 1.0), (sizes.reduce, 1.0)):
        flat = peak.product((peak.tensors.flat_elements, "frozen elements beside adapters"), (sizes.gather, BYTES))
        yield (*_learning(peak, each, sizes.adapter_gradient, group), flat + peak.over(group))


def _optimizer_states(peak: Peak) -> Iterator[Terms]:
    tensors, sizes = peak.tensors, peak.tensors.sizes
    states = _learning(peak, sizes.optimizer, sizes.adapter_optimizer, tensors.shards.optimizer)
    yield (*states, peak.product((tensors.further_state_bytes, "B of vectors and tables")))


def _activations(peak: Peak) -> Iterator[Terms]:
    tensors, one = peak.tensors, peak.tensors.saved
    kept, layers, flight = (one.kept, "B a layer"), (tensors.kept_layers, "layers"), (tensors.in_flight, "in flight")
    first = np.stack([np.ones(1), (tensors.layouts.pp == 1).astype(float)])
    not_kept = peak.product((-one.before_learning * first, "B before what learns"), flight)
    entered = peak.product((one.entered * first, "B before the layers"), flight)
    everything = (peak.product(kept, layers, flight), not_kept)
    yield (*everything, peak.product((one.ends * tensors.has_head, "B at the ends")))
    yield (
        *everything,
        entered,
        peak.product((one.last_left * tensors.any_layer, "B of the layer in its backward")),
    )
    others = peak.product(kept, layers, (np.maximum(tensors.in_flight - 1.0, 0.0), "other micro-batches"))
    yield others, entered, peak.product((one.checkpoint * tensors.any_layer, "B of the first layer"))
    yield others, entered, peak.product((one.source_kept * tensors.any_layer, "B of the encoder"))


def _gathered(peak: Peak) -> Iterator[Terms]:
    tensors, held, method = peak.tensors, peak.tensors.held, peak.tensors.job.method
    size = tensors.job.element_bytes if method.quantised else tensors.sizes.gather
    each = (method.frozen_linear_bytes or 0.0) if method.quantised else size
    layer = np.minimum(held.whole_layer, held.base)
    yield (
        peak.product((held.root, "elements of the root"), (size, BYTES)),
        peak.product((held.base - held.root, "elements of the layers"), (each, BYTES)),
    )
    units = (
        peak.product((held.root, "elements of the root"), (size, BYTES)),
        peak.product((2.0, "layers"), (layer, "elements"), (each, BYTES)),
    )
    yield units
    yield (*units, peak.product((held.root, "gradients of the root"), (size, BYTES)))


def _dequantised(peak: Peak) -> Iterator[Terms]:
    tensors = peak.tensors
    yield (peak.product((tensors.held.largest, "elements of the largest matrix"), (tensors.buffer_bytes, BYTES)),)


def _logits(peak: Peak) -> Iterator[Terms]:
    """What is alive together for each logit of the micro-batch."""
    tensors, one = peak.tensors, peak.tensors.saved
    logits = tensors.shapes.spread(logits_per_rank(tensors.shapes.inputs))
    for loss in (one.loss_kept, one.loss_live):
        each = (loss + tensors.wide_logits) * tensors.has_head / logits
        yield (peak.product((logits, "logits"), (each, "B alive together")),)


def _context(peak: Peak) -> Iterator[Terms]:
    yield _everywhere(peak, "context_gib")


def _libraries(peak: Peak) -> Iterator[Terms]:
    yield _everywhere(peak, "workspace_gib")


def _everywhere(peak: Peak, name: str) -> Terms:
    size = getattr(getattr(peak.around.job.stack.memory, name), peak.around.level)
    return (peak.product((size, "GiB"), (GIB, "")),)


def _workspace(peak: Peak) -> Iterator[Terms]:
    tensors = peak.tensors
    learning = tensors.learned
    for each in (tensors.sizes.weight, FLOAT32):
        yield (peak.product((learning, "learning elements"), (each, BYTES)) + peak.over(tensors.shards.optimizer),)


def _buckets(peak: Peak) -> Iterator[Terms]:
    tensors = peak.tensors
    yield _learning(peak, tensors.sizes.gradient, tensors.sizes.adapter_gradient, 1.0)
    yield (peak.product((tensors.job.stack.memory.bucket_gib, "GiB"), (GIB, "")),)
    learning = tensors.learned
    yield (peak.product((learning, "learning elements"), (tensors.sizes.reduce, BYTES)),)


def _nccl(peak: Peak) -> Iterator[Terms]:
    layouts = peak.around.layouts
    groups = sum(float(getattr(layouts, name)[0] > 1) for name in ("tp", "pp", "cp", "dp", "ep"))
    each = getattr(peak.around.job.stack.memory.communicator_gib, peak.around.level)
    yield (peak.product((groups, "communicators"), (each, "GiB"), (GIB, "")),)


def _slack(peak: Peak) -> Iterator[Terms]:
    around = peak.around
    live = float(around.tensors[peak.stage, peak.moment, 0])
    yield (peak.product((live, "B of tensors"), (getattr(around.job.stack.memory.slack_share, around.level), "")),)


_WAYS: dict[str, Callable[[Peak], Iterator[Terms]]] = {
    parts.weights.name: _weights,
    parts.adapters.name: _adapters,
    parts.gradients.name: _gradients,
    parts.optimizer_states.name: _optimizer_states,
    parts.saved_activations.name: _activations,
    parts.gathered_layers.name: _gathered,
    parts.dequantised_layer.name: _dequantised,
    parts.logits_and_loss.name: _logits,
    parts.optimizer_workspace.name: _workspace,
    beside.cuda_context.name: _context,
    beside.library_workspaces.name: _libraries,
    beside.buckets.name: _buckets,
    beside.nccl_buffers.name: _nccl,
    beside.allocator_slack.name: _slack,
}
