"""A resolved question to a priced layout: how many GPUs, which layout, what it needs and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xe_sizer.errors import InputError, Problem
from xe_sizer.question import Question
from xe_sizer.search.price import Choice, choose, smallest_count
from xe_sizer.search.space import gpu_counts, legal_layouts
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import Ledger, fits
from xe_sizer.training.step import Timeline

LARGEST_SEARCH = 4096  # GPUs up to which a smallest count is looked for


@dataclass(frozen=True, eq=False)
class Priced:
    """A question with its layout chosen and priced."""

    question: Question
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
        return bool(fits(self.ledger, self.question.job)[0])

    @property
    def peak_bytes(self) -> float:
        return float(self.ledger.peak_bytes[0])

    @property
    def usable_bytes(self) -> float:
        return self.question.job.server.accelerator.memory_bytes

    @property
    def margin(self) -> str:
        """How close the verdict is: over, tight where an error of the model could turn it, or headroom."""
        if not self.fits:
            return "over"
        error_bytes = self.question.job.stack.memory.error_share * self.peak_bytes
        return "tight" if self.usable_bytes - self.peak_bytes < error_bytes else "headroom"

    @property
    def step_s(self) -> float:
        return float(self.timeline.step_s[0])

    @property
    def total_s(self) -> float:
        return self.step_s * self.question.job.steps


def _minimum(question: Question, counts: Iterable[int]) -> int | None:
    """The first of the ascending counts at which some layout fits."""
    layouts = legal_layouts(question.rules, counts, thrifty=True)
    return smallest_count(question.job, layouts, question.min_headroom_bytes) if len(layouts) else None


def price(question: Question, look_for_minimum: bool = True) -> Priced:
    """Choose the GPU count (where it is open) and the layout, and price it.

    look_for_minimum : whether to search the smallest count also where the count is given

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    limit = question.given.values.limits.max_gpus or LARGEST_SEARCH
    counts = gpu_counts(question.job.server.accelerators, limit)
    gpus, minimum = question.gpus, None
    if gpus is None:
        minimum = _minimum(question, counts)
        node = question.job.server.accelerators
        gpus = minimum or max((count for count in counts if count <= node), default=1)
    layouts = legal_layouts(question.rules, (gpus,))
    if not len(layouts):
        raise InputError(_no_layout(question, gpus))
    choice = choose(question.job, layouts, question.min_headroom_bytes)
    if look_for_minimum and question.gpus is not None:
        if choice.fits:
            minimum = _minimum(question, (count for count in counts if count < gpus)) or gpus
        else:
            minimum = _minimum(question, (count for count in counts if count > gpus))
    return Priced(question, gpus, minimum, choice)


def _no_layout(question: Question, gpus: int) -> Problem:
    job = question.job
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in question.fixed.items())
    message = f"no legal layout on {gpus:,} GPUs for a global batch of {job.global_batch:,}"
    message += f" with {fixed}" if fixed else ""
    hint = "tp divides heads, pp divides layers, and the global batch is a multiple of micro-batch x dp"
    asked = "nodes" if "nodes" in question.given.origin else "gpus"
    return Problem(message, question.given.locate((asked,)), hint)
