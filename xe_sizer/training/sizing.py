"""A resolved question to a priced layout: how many GPUs, which layout, what it needs and how long it takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.operators import Array, IntArray
from xe_sizer.training.choose import Choice, choose, smallest_count
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import Ledger, fits
from xe_sizer.training.resolve import ResolvedTraining
from xe_sizer.training.space import gpu_counts, legal_layouts
from xe_sizer.training.step import Timeline
from xe_sizer.units import HOUR_S

LARGEST_SEARCH = 4096  # GPUs up to which a smallest count is looked for


@dataclass(frozen=True, eq=False)
class TrainingEstimate:
    """A question with its layout chosen and priced."""

    resolved: ResolvedTraining
    gpus: int
    minimum: int | None
    choice: Choice

    @property
    def ledger(self) -> Ledger:
        return self.choice.ledger

    @property
    def timeline(self) -> Timeline:
        return self.choice.timeline

    @property
    def layouts(self) -> Layouts:
        return self.choice.layouts

    @property
    def fits(self) -> bool:
        """Whether the chosen layout fits card and host; headroom asked for is a limit of its own."""
        return bool(fits(self.ledger, self.resolved.job)[0])

    @cached_property
    def peak_bytes(self) -> float:
        """Worst GPU at its worst moment: exactly the sum of the components that reports list."""
        return sum(self.ledger.at_peak().values())

    @property
    def usable_bytes(self) -> float:
        return self.resolved.job.server.accelerator.memory_bytes

    @property
    def host_unknown(self) -> bool:
        """Whether the job needs host memory of which nobody knows how much there is."""
        return self.resolved.job.server.host_memory_bytes is None and float(self.ledger.host_bytes[0]) > 0

    @property
    def margin(self) -> str:
        """How close the verdict is: over, tight where an error of the model could turn it, or headroom."""
        if not self.fits:
            return "over"
        error_bytes = self.resolved.job.stack.memory.error_share * self.peak_bytes
        return "tight" if self.usable_bytes - self.peak_bytes < error_bytes else "headroom"

    @property
    def step_s(self) -> float:
        return float(self.timeline.step_s[0])

    @property
    def total_s(self) -> float:
        return self.step_s * self.resolved.job.steps

    @property
    def gpu_hours(self) -> float:
        """Of the GPUs that work, whatever is paid for."""
        return self.total_s / HOUR_S * self.gpus

    @property
    def component_s(self) -> dict[str, float]:
        """Seconds of each part of a step."""
        return {name: float(value[0]) for name, value in self.timeline.components.items()}

    @property
    def billed_gpus(self) -> int:
        """GPUs that are paid for: those of whole nodes, unless the user gave a price per GPU."""
        return int(billed_gpus(self.resolved, np.asarray(self.gpus)))

    @property
    def cost(self) -> float | None:
        """Expected price of the run, None where no price is known."""
        rate = self.resolved.price_per_gpu_hour
        return None if rate is None else self.total_s / HOUR_S * self.billed_gpus * rate


def _minimum(resolved: ResolvedTraining, counts: Collection[int]) -> int | None:
    """The first of the ascending counts at which some layout fits."""
    layouts = legal_layouts(resolved.rules, counts, least_memory=True)
    return smallest_count(resolved.job, layouts, resolved.min_headroom_bytes) if len(layouts) else None


def meets_limits(sized: TrainingEstimate) -> bool:
    """Whether the job fits, with the headroom asked for, and meets every limit."""
    limits = sized.resolved.given.values.limits
    in_time = limits.max_hours is None or sized.total_s / HOUR_S <= limits.max_hours
    in_budget = limits.max_cost is None or (sized.cost is not None and sized.cost <= limits.max_cost)
    in_number = limits.max_gpus is None or sized.gpus <= limits.max_gpus
    return sized.choice.fits and in_time and in_budget and in_number


def longest_step_s(resolved: ResolvedTraining, gpus: IntArray) -> Array:
    """The longest step that meets the limits of time and cost on each number of GPUs [s]; infinite without any."""
    limits, steps = resolved.given.values.limits, resolved.job.steps
    longest = np.full(np.shape(gpus), np.inf)
    if limits.max_hours is not None:
        longest = np.minimum(longest, limits.max_hours * HOUR_S / steps)
    if limits.max_cost is not None and resolved.price_per_gpu_hour:
        rate_per_s = billed_gpus(resolved, gpus) * resolved.price_per_gpu_hour / HOUR_S
        longest = np.minimum(longest, limits.max_cost / rate_per_s / steps)
    return longest


def billed_gpus(resolved: ResolvedTraining, gpus: IntArray) -> IntArray:
    """GPUs that are paid for: those of whole nodes, unless the user gave a price per GPU."""
    node = resolved.job.server.accelerators
    return -(-gpus // node) * node if resolved.whole_nodes else gpus


def _sized(resolved: ResolvedTraining, gpus: int, minimum: int | None) -> TrainingEstimate:
    """The question on so many GPUs. Raises InputError where no layout is legal."""
    layouts = legal_layouts(resolved.rules, (gpus,))
    if not len(layouts):
        raise InputError(no_layout(resolved, (gpus,)))
    return TrainingEstimate(resolved, gpus, minimum, choose(resolved.job, layouts, resolved.min_headroom_bytes))


def _smallest_that_meets(resolved: ResolvedTraining, counts: tuple[int, ...]) -> TrainingEstimate:
    """The fewest GPUs that fit and meet every limit; where none do, the fewest that fit, or one node."""
    minimum = _minimum(resolved, counts)
    node = resolved.job.server.accelerators
    first = _sized(resolved, minimum or max((count for count in counts if count <= node), default=1), minimum)
    if minimum is None or meets_limits(first):
        return first
    for count in counts:
        if count > minimum and len(legal_layouts(resolved.rules, (count,), least_memory=True)):
            more = _sized(resolved, count, minimum)
            if meets_limits(more):
                return more
    return first


def size(resolved: ResolvedTraining, look_for_minimum: bool = True) -> TrainingEstimate:
    """Choose the GPU count (where it is open) and the layout, and price it.

    look_for_minimum : whether to search the smallest count also where the count is given

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    most = resolved.given.values.limits.max_gpus or max(LARGEST_SEARCH, resolved.gpus or 0)
    counts = gpu_counts(resolved.job.server.accelerators, most)
    if resolved.gpus is None:
        return _smallest_that_meets(resolved, counts)
    asked = _sized(resolved, resolved.gpus, None)
    if not look_for_minimum:
        return asked
    smallest = _minimum(resolved, counts)
    return replace(asked, minimum=min(smallest or asked.gpus, asked.gpus) if asked.choice.fits else smallest)


def no_layout(resolved: ResolvedTraining, counts: Sequence[int]) -> Problem:
    """What to say where none of the numbers of GPUs has a legal layout."""
    job = resolved.job
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in resolved.fixed.items())
    numbers = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
    message = f"no legal layout on {numbers} GPUs for a global batch of {job.global_batch:,}"
    message += f" with {fixed}" if fixed else ""
    hint = "tp divides heads, pp divides layers, and the global batch is a multiple of micro-batch x dp"
    asked = "nodes" if "nodes" in resolved.given.origin else "gpus"
    return Problem(message, resolved.given.locate((asked,)), hint)
