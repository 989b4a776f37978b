"""Memory of one GPU as a ledger: what it holds, at which moment, on which pipeline stage.

Every component is an array of shape (stage, moment, layout) or one that broadcasts to it; stages are the first
and the last, moments those of MOMENTS. The verdict takes the worst of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.immutable import Immutable
from xe_sizer.laws.parts import computed, number_at
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import FULL
from xe_sizer.training.memory_parts import (
    COUNTED_PARTS,
    OVERHEAD_PARTS,
    PASSING_PARTS,
    STATE_PARTS,
    TENSOR_PARTS,
    Around,
    allocator_slack,
    buckets,
    cuda_context,
    nccl_buffers,
)
from xe_sizer.training.model_states import sharded_elements
from xe_sizer.training.padding import GROUPED, Sequences
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

# Blocks that PyTorch's allocator keeps from batches of other lengths: monitors show them, no run fails for them.

# Simulated: batches of mean length that blocks stay reserved for beyond the peak: medians by the allocator's rules
# over log-normal lengths. 0.5 to 2.0 where layers keep many small tensors, which serve each other; 2.4 to 4.1 where
# they are recomputed and a few large ones are left (scripts/allocator.py).
KEPT_BATCHES, RECOMPUTED_BATCHES = 1.1, 3.2
# Simulated likewise: of batches in order of their length, the longest of every 50 first (LengthGroupedSampler of
# transformers); 0.04 to 0.3, and 0.15 to 2.9.
GROUPED_KEPT, GROUPED_RECOMPUTED = 0.1, 0.6
ALIKE = 1.01  # chosen: longest over mean sequence up to which lengths count as one


def cached_blocks(evaluation: Evaluation, passing: Array) -> Array:
    """Freed blocks that a process holds because tensors of other lengths did not fit into them.

        bytes = batches x (1 - 1 / n) x mean / longest x max over stages and moments of what comes and goes with a batch
        batches = 1.1, with full recomputation 3.2; grouped by length 0.1 and 0.6; 0 where all sequences have one length
        n = steps after which the cache is emptied

    What comes and goes: activations, the layer in its backward, logits and loss, at the longest sequence.

    With one length every step finds the blocks of the step before. The first of n steps finds none of other lengths.

    Parameters
    ----------
    evaluation : a job, which says how lengths vary, under its layouts
    passing : what comes and goes, of shape (stage, moment, layout) or one that broadcasts to it [bytes]

    Returns
    -------
    ndarray of float, shape (layout,) [bytes]

    Source: simulation of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp: get_free_block, should_split,
    get_allocation_size); for what it is about, PyTorch issue 122781.
    """
    job, layouts, sequences = evaluation.job, evaluation.layouts, evaluation.sequences
    varies = sequences.longest_tokens > ALIKE * sequences.mean_tokens
    if not np.any(varies):
        return np.zeros(len(layouts))
    grouped = job.padding == GROUPED
    kept, recomputed = (GROUPED_KEPT, GROUPED_RECOMPUTED) if grouped else (KEPT_BATCHES, RECOMPUTED_BATCHES)
    of_others = 1.0 if job.empty_cache_steps is None else 1.0 - 1.0 / job.empty_cache_steps
    batches = np.where(layouts.recompute == FULL, recomputed, kept) * of_others
    mean_bytes = passing.max(axis=(0, 1)) * sequences.mean_tokens / sequences.longest_tokens
    return np.asarray(np.where(varies, batches * mean_bytes, 0.0))


# What torch.cuda.memory_reserved() does not see, and what memory_allocated() does not.
NOT_RESERVED = (cuda_context.name, nccl_buffers.name)
NOT_TENSORS = (*NOT_RESERVED, allocator_slack.name)
# Where the layout is open, the search leaves this share of the card free: a layout that fits by a hair is no plan.
# Chosen, not fitted.
SPARE_SHARE = 0.05


class Ledger(Immutable):
    """Memory of one GPU under each layout.

    components : name -> bytes, broadcastable to (stage, moment, layout)
    host_bytes : what offloading puts into one node's memory [bytes], shape (layout,)
    cached_bytes : blocks that the allocator keeps from batches of other lengths, which monitors show and the next
        allocation may have, shape (layout,)
    """

    components: dict[str, Array]
    host_bytes: Array
    cached_bytes: Array = field(default_factory=lambda: np.zeros(1))

    @cached_property
    def total_bytes(self) -> Array:
        return _sum(self.components.values())

    @cached_property
    def peak_bytes(self) -> Array:
        """Worst stage and moment of each layout, shape (layout,)."""
        return np.asarray(self.total_bytes.max(axis=(0, 1)))

    @property
    def tensor_peak_bytes(self) -> Array:
        """Peak of live tensors alone, what PyTorch calls allocated, shape (layout,)."""
        tensors = _sum(value for name, value in self.components.items() if name not in NOT_TENSORS)
        return np.asarray(tensors.max(axis=(0, 1)))

    @property
    def reserved_peak_bytes(self) -> Array:
        """Peak of what the allocator holds: tensors, its slack and cached blocks, shape (layout,)."""
        reserved = _sum(value for name, value in self.components.items() if name not in NOT_RESERVED)
        return np.asarray(reserved.max(axis=(0, 1)) + self.cached_bytes)

    @property
    def monitored_peak_bytes(self) -> Array:
        """Peak of what the card's monitor shows, shape (layout,)."""
        return np.asarray(self.peak_bytes + self.cached_bytes)

    def __getitem__(self, index: IntArray | slice) -> Ledger:
        """The ledger of some of the layouts."""
        picked = {name: _taken(size, index) for name, size in self.components.items()}
        return Ledger(picked, self.host_bytes[index], _taken(self.cached_bytes, index))

    def at(self, index: int) -> Ledger:
        """The ledger of one of the layouts."""
        return self[index : index + 1]

    @property
    def on_last_stage(self) -> Ledger:
        """The ledger of a pipeline's last stage alone."""
        whole = self.total_bytes.shape
        return replace(self, components={name: np.broadcast_to(v, whole)[-1:] for name, v in self.components.items()})

    def worst(self, index: int = 0) -> tuple[int, int]:
        """Stage and moment of the peak of one layout."""
        total = self.total_bytes[:, :, index]
        stage, moment = np.unravel_index(int(np.argmax(total)), total.shape)
        return int(stage), int(moment)

    def at_peak(self, index: int = 0) -> dict[str, float]:
        """Bytes of each component at the peak of one layout, those that are there; they sum to the peak."""
        return self.held(*self.worst(index), index)

    def held(self, stage: int, moment: int, index: int = 0) -> dict[str, float]:
        """Bytes of each component that a stage of one layout holds at a moment, those that are there."""
        place = stage, moment, index
        parts = {name: number_at(size, place) for name, size in self.components.items()}
        return {name: size for name, size in parts.items() if size > 0}


def counted_at_most(ledger: Ledger) -> dict[str, float]:
    """Bytes of COUNTED_PARTS where and when a GPU of the first layout holds most of them, the largest first.

        least a run can need = max over stages and moments of the sum of COUNTED_PARTS

    No run of the job as it is described peaks below their sum, whatever its activations and its allocator do.

    Parameters
    ----------
    ledger : the parts of memory, shape (stage, moment, layout) [bytes]

    Returns
    -------
    dict of float, by the name of the part [bytes]

    Source: definition; what is offloaded or paged is not on the card, and no part of them.
    """
    parts = {part.name: ledger.components[part.name] for part in COUNTED_PARTS if part.name in ledger.components}
    counted = Ledger(parts, ledger.host_bytes)
    held = counted.at_peak() if parts else {}
    return dict(sorted(held.items(), key=lambda each: -each[1]))


def _taken(size: Array, index: IntArray | slice) -> Array:
    """Some of the layouts of an array that broadcasts to (..., layout)."""
    return size if size.shape[-1] == 1 else size[..., index]


def _sum(parts: Iterable[Array]) -> Array:
    """The sum of arrays that broadcast to (stage, moment, layout); small ones are added up first."""
    total: Array = np.zeros((1, 1, 1))
    for part in sorted(parts, key=np.size):
        inside = np.broadcast(total, part).shape == total.shape
        total = np.add(total, part, out=total) if inside else total + part
    return total


def _host_bytes(evaluation: Evaluation) -> Array:
    """Offloaded and paged states of all ranks of a node, or of one of its hosts, shape (layout,) [bytes].

    Gradients go with the optimizer.
    """
    job, layouts, held, shards = evaluation.job, evaluation.layouts, evaluation.held, evaluation.shards
    dense, experts = evaluation.learning
    learning = sharded_elements(dense + held.adapters, experts, shards.optimizer, shards)
    moments, master_bytes = evaluation.sizes.moments, job.master_bytes
    optimizer = learning * (master_bytes + moments + FLOAT32) + evaluation.further_state_bytes
    paged = (learning * moments + evaluation.further_state_bytes) * float(job.pages_states)
    dense_elements = held.linear + held.other + held.parts
    weights = sharded_elements(dense_elements, held.experts, shards.weights, shards) * evaluation.sizes.gather
    hosted = job.offload_fraction * optimizer
    per_rank = np.where(layouts.hosts_optimizer, hosted, paged) + weights * layouts.hosts_params
    per_rank = per_rank + evaluation.copies_bytes * evaluation.copies_on_host
    per_rank = per_rank + evaluation.offloaded_activation_bytes
    ranks = np.minimum(layouts.gpus, job.server.host_accelerators or job.server.accelerators)
    return np.asarray(per_rank.max(axis=0) * ranks)


def memory_ledger(job: Job, layouts: Layouts, longest_tokens: Array | None = None) -> Ledger:
    """Memory of one GPU under each layout, as a verdict has it.

    longest_tokens : longest sequence that the run meets, shape (layout,); from the job's data when None [tokens]
    """
    return ledger_of(Evaluation(job, layouts, None if longest_tokens is None else Sequences.of_length(longest_tokens)))


def ledger_of(evaluation: Evaluation, known: Mapping[str, Array] | None = None) -> Ledger:
    """Memory of one GPU under each layout: the parts of MEMORY_PARTS, which are cautious where runs vary.

        peak = max over stages and moments of the sum of the parts, those that are tensors times `tensor_scale`

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    known : parts that are known already, by their name, before they are scaled [bytes]

    Returns
    -------
    Ledger, parts broadcast to shape (stage, moment, layout) [bytes]

    Source: states after ZeRO (arXiv:1910.02054); activations after the operator graph; each part names its own.
    """
    known, evaluation = known or {}, evaluation.at_fuller_stage
    rest = computed((part for part in TENSOR_PARTS if part.name not in known), evaluation)
    scale = evaluation.job.stack.memory.tensor_scale
    components = {
        part.name: scale * (known[part.name] if part.name in known else rest[part.name]) for part in TENSOR_PARTS
    }
    around = Around(evaluation, _sum(components.values()), "cautious", dict(components))
    components |= computed((buckets,), evaluation)
    return Ledger(components | computed(OVERHEAD_PARTS, around), _host_bytes(evaluation))


class Possible(Immutable):
    """Those of some layouts that may fit, with their memory; all of shape (possible,).

    index : their places among the layouts that were looked at [-]
    """

    index: IntArray
    evaluation: Evaluation
    ledger: Ledger

    def __getitem__(self, index: IntArray) -> Possible:
        """Some of them, in their order."""
        return Possible(self.index[index], self.evaluation[index], self.ledger[index])


def possible_of(evaluation: Evaluation, min_headroom_bytes: float) -> Possible | None:
    """The layouts whose states alone leave room on the card, with their memory; None where no layout is possible.

        possible = tensor_scale x max over stages and moments of the sum of STATE_PARTS + headroom <= card

    Where either of a pipeline's first two stages may be the fuller one, the sum is the lesser of both.
    What else a GPU holds can only add to its states: a search need not look at it where they do not fit.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    min_headroom_bytes : left free on the card [bytes]

    Returns
    -------
    Possible, parts of its ledger broadcast to shape (stage, moment, possible) [bytes]

    Source: states after ZeRO (arXiv:1910.02054).
    """
    # Which of the first two stages is fuller depends on activations, so that states count where they are less.
    of_stages = [computed(STATE_PARTS, each) for each in evaluation.at_first_stages]
    least_bytes = np.min([_sum(states.values()).max(axis=(0, 1)) for states in of_stages], axis=0)
    held_bytes = np.broadcast_to(least_bytes, len(evaluation.layouts)) * evaluation.job.stack.memory.tensor_scale
    usable_bytes = evaluation.job.server.accelerator.memory_bytes
    possible = np.flatnonzero(held_bytes + min_headroom_bytes <= usable_bytes)
    if not possible.size:
        return None
    of_possible, known = evaluation[possible], None
    if len(of_stages) == 1:
        known = {name: _taken(size, possible) for name, size in of_stages[0].items()}
    return Possible(possible, of_possible, ledger_of(of_possible, known))


def at_level(ledger: Ledger, evaluation: Evaluation, level: str) -> Ledger:
    """Return the same tensors with what varies between runs at another level.

        overheads = OVERHEAD_PARTS at the level
        cached = min(cached blocks, card - peak)

    Parameters
    ----------
    ledger, evaluation : a ledger, and what it was computed for, shape (layout,)
    level : "typical" or "cautious"

    Returns
    -------
    Ledger, parts broadcast to shape (stage, moment, layout) [bytes]

    Source: typical and cautious values of the stack; PyTorch's allocator gives cached blocks back before a card is
    full.
    """
    tensors = _sum(ledger.components[part.name] for part in TENSOR_PARTS)
    overheads = computed(OVERHEAD_PARTS, Around(evaluation, tensors, level, ledger.components))
    around = Ledger(ledger.components | overheads, ledger.host_bytes)
    left = np.maximum(evaluation.job.server.accelerator.memory_bytes - around.peak_bytes, 0.0)
    passing = _sum(ledger.components[part.name] for part in PASSING_PARTS)
    return replace(around, cached_bytes=np.minimum(cached_blocks(evaluation, passing), left))


def fits(ledger: Ledger, job: Job, min_headroom_bytes: float = 0.0) -> NDArray[np.bool_]:
    """Whether each layout fits the card, and the host's memory where its size is known.

        fits = peak + headroom <= card and offloaded <= host - reserve

    What stays on the card needs nothing of the host, whatever it has.

    Parameters
    ----------
    ledger : of shape (layout,)
    job : its server says the sizes of card and host
    min_headroom_bytes : that must stay free [bytes]

    Returns
    -------
    ndarray of bool, shape (layout,) [-]

    Source: definition; the card's size is what the driver reports; the reserve of the host is assumed.
    """
    on_card = ledger.peak_bytes + min_headroom_bytes <= job.server.accelerator.memory_bytes
    host = job.server.host_usable_bytes
    return on_card if host is None else on_card & (ledger.host_bytes <= host)


def fitting(evaluation: Evaluation, min_headroom_bytes: float) -> IntArray:
    """Indices of the layouts that fit; what a GPU holds is computed only where its states alone do.

        fits = peak + headroom <= card and offloaded <= host - reserve

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    min_headroom_bytes : that must stay free [bytes]

    Returns
    -------
    ndarray of int, shape (fitting,) [-]

    Source: `fits` and `possible_of`.
    """
    found = possible_of(evaluation, min_headroom_bytes)
    if found is None:
        return np.zeros(0, dtype=np.int64)
    return found.index[fits(found.ledger, evaluation.job, min_headroom_bytes)]


def spare_bytes(job: Job, min_headroom_bytes: float) -> float:
    """Headroom that the search asks of a layout: what the user asks, at least SPARE_SHARE of the card [bytes]."""
    return max(min_headroom_bytes, SPARE_SHARE * job.server.accelerator.memory_bytes)
