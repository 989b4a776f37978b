"""What the sizing of a training job comes to: the chosen layout with its memory, its time and what they cost."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import TRAINING_POWER_SHARE, TRAINING_SHARE_ERROR, power_error, servers_power_w
from xe_sizer.result.common import LIKELY
from xe_sizer.scenario.limits import chance, judge, kept, memory_doubt, shares
from xe_sizer.software.uncertainty import EXACT, around
from xe_sizer.training.device import at_the_speed_of_light
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.memory import counted_at_most, fits, fitting
from xe_sizer.training.run import Run, resume_s, run_time_s, start_up_s
from xe_sizer.training.search_space import LARGEST_SEARCH, layout_chunks, without_groups
from xe_sizer.training.step_time import timeline, timeline_of
from xe_sizer.training.uncertainty import memory_suffices, peak_spread, uncertainty
from xe_sizer.units import GIB, HOUR_S, WATT_PER_KW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.hardware import Server
    from xe_sizer.result.common import Limit
    from xe_sizer.result.training import Pool
    from xe_sizer.software.uncertainty import Spread, Uncertainty
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.padding import Sequences
    from xe_sizer.training.resolved import ResolvedTraining
    from xe_sizer.training.search_space import Rules
    from xe_sizer.training.step_time import Timeline

# Evaluates layouts with the equations of the estimate: memory first, time for what fits.

FITS_WITH_ROOM, FITS, DOES_NOT_FIT = range(3)


class Choice(Immutable):
    """The best of many layouts with its memory; time is computed when it is asked for.

    rank : FITS_WITH_ROOM, FITS (both with the headroom asked for) or DOES_NOT_FIT
    considered, feasible : layouts to choose from, and those of them that fit
    """

    evaluation: Evaluation
    ledger: Ledger
    rank: int
    considered: int
    feasible: int
    known_timeline: Timeline | None = None

    @property
    def job(self) -> Job:
        return self.evaluation.job

    @property
    def layouts(self) -> Layouts:
        return self.evaluation.layouts

    @property
    def fits_with_headroom(self) -> bool:
        return self.rank < DOES_NOT_FIT

    @cached_property
    def timeline(self) -> Timeline:
        return self.known_timeline or timeline_of(self.evaluation)

    @property
    def sequences(self) -> Sequences:
        """What padding makes of the data under the layout."""
        return self.evaluation.sequences


# The fewest GPUs that do, looked for when somebody asks.

# Combinations that a search over ascending numbers of GPUs looks at first, and how much further it goes each time:
# most jobs fit on few, and what is looked at in vain takes time.
FIRST_TO_FIT, GROWTH = 64, 4
SET_FOR_GPUS = ("dp", "zero_group", "grad_accum")


class MinimumGpus(Immutable):
    """Fewest GPUs on which a job fits, among the numbers that a plan tries too."""

    resolved: ResolvedTraining

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that are tried."""
        return self.resolved.gpu_numbers(max(LARGEST_SEARCH, self.resolved.gpus or 0))

    @cached_property
    def that_fit(self) -> int | None:
        """Under any layout that the stack supports, likely to fit: what `plan` calls the fewest.

        Replicas and accumulation that were chosen for the GPUs at hand say nothing about fewer: they are left open.
        """
        smallest = self._smallest(self._every_way, self.counts)
        return self.with_fitted_batch(self._every_way, smallest, MinimumGpus.holds)

    def with_fitted_batch(
        self, rules: Rules, smallest: int | None, does: Callable[[MinimumGpus, int], bool]
    ) -> int | None:
        """The fewest GPUs that do, also among numbers that the assumed batch rules out and a fitted one does not.

        They lie below the fewest found and above what does not; what some GPUs cannot do, fewer cannot either.

        rules : by which the numbers were searched; does : whether so many GPUs do, with the batch fitted to them
        """
        if self.resolved.at_batch is None:
            return smallest
        ruled_out = without_groups(rules, self.counts)
        most = math.inf if smallest is None else smallest
        least = max((count for count in self.counts if count < most and count not in ruled_out), default=0)
        while between := [count for count in ruled_out if least < count < most]:
            count = between[len(between) // 2]
            if does(MinimumGpus(self.resolved.fitted_to(count)), count):
                smallest = most = count
            else:
                least = count
        return smallest

    def holds(self, count: int) -> bool:
        """Whether so many GPUs hold the job under any layout that the stack supports."""
        return self._smallest(self._every_way, (count,)) is not None

    @cached_property
    def offloads(self) -> bool:
        """Whether only layouts that offload fit on so few."""
        if self.that_fit is None or "offload" in self._every_way.fixed:
            return False
        fitted = MinimumGpus(self.resolved.fitted_to(self.that_fit))
        rules = replace(fitted._every_way, fixed={**self._every_way.fixed, "offload": OFFLOAD.index("none")})
        return fitted._smallest(rules, (self.that_fit,)) is None

    @property
    def _every_way(self) -> Rules:
        rules = self.resolved.rules
        open_ = SET_FOR_GPUS if rules.global_batch is not None else SET_FOR_GPUS[:-1]
        fixed = {name: value for name, value in rules.fixed.items() if name not in open_}
        return replace(rules, every_way=True, fixed=fixed)

    @cached_property
    def that_fit_unasked(self) -> int | None:
        """Under what the stack does unasked, likely to fit: what an estimate takes where nobody says."""
        smallest = self._smallest(self.resolved.rules, self.counts)
        return self.with_fitted_batch(self.resolved.rules, smallest, MinimumGpus._hold_unasked)

    def _hold_unasked(self, count: int) -> bool:
        return self._smallest(self.resolved.rules, (count,)) is not None

    def _smallest(self, rules: Rules, counts: Collection[int]) -> int | None:
        chunks = layout_chunks(rules, counts, FIRST_TO_FIT, least_memory=True, growth=GROWTH)
        spare = self.resolved.likely_bytes if rules.every_way else self.resolved.recommended_bytes
        return smallest_count(self.resolved.job, chunks, spare)


def smallest_count(job: Job, chunks: Iterable[Layouts], min_headroom_bytes: float) -> int | None:
    """Find the fewest GPUs at which one of the layouts, ordered by their GPU count, fits with such a headroom."""
    for chunk in chunks:
        ok = fitting(Evaluation(job, chunk), min_headroom_bytes)
        if ok.size:
            return int(chunk.gpus[ok].min())
    return None


WING = "training"
LEAST_HOST_BYTES = 4 * GIB  # that every node which trains has to spare, for what an optimizer pages: chosen


class TrainingEstimate(Immutable):
    """A resolved scenario with its layout chosen.

    minimum_gpus : looks for the fewest GPUs that do, when somebody asks
    Time is computed when it is asked for: a layout that does not fit need not be timed.
    """

    resolved: ResolvedTraining
    gpus: int
    choice: Choice
    minimum_gpus: MinimumGpus

    @property
    def question(self) -> ResolvedTraining:
        """All that was resolved of the scenario, as searches take it."""
        return self.resolved

    @property
    def pools(self) -> tuple[Pool, ...]:
        """GPUs with work of their own beside each other; empty where all train."""
        return ()

    @property
    def colocated(self) -> bool | None:
        """Whether answers are written on the GPUs that train; None where none are written."""
        return None

    @property
    def pool_keys(self) -> dict[str, object]:
        """The scenario keys that ask for the pools."""
        return {}

    @property
    def ledger(self) -> Ledger:
        return self.choice.ledger

    @property
    def timeline(self) -> Timeline:
        return self.choice.timeline

    @property
    def layouts(self) -> Layouts:
        return self.choice.layouts

    @cached_property
    def minimum(self) -> int | None:
        """Fewest GPUs on which some layout fits, offloading included; None where none that was tried has one."""
        smallest = self.minimum_gpus.that_fit
        return min(smallest or self.gpus, self.gpus) if self.choice.fits_with_headroom else smallest

    @property
    def minimum_offloads(self) -> bool:
        """Whether on so few GPUs only layouts that offload fit."""
        here = self.gpus == self.minimum and self.choice.fits_with_headroom
        return self.minimum_gpus.offloads if not here else bool(self.layouts.offload[0])

    @cached_property
    def fits(self) -> bool:
        """Whether the chosen layout fits card and host; headroom asked for is a limit of its own."""
        return bool(fits(self.ledger, self.resolved.job)[0])

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """How far off the times may be."""
        return self.uncertain()

    def uncertain(self, guessed: bool = False) -> Uncertainty:
        """The same where it is known whether lengths or batch are a guess."""
        return uncertainty(self.resolved.job, self.resolved.efficiency, guessed, lambda: self.timeline)

    def spread(self, of: str) -> Spread | None:
        """Factors on a quantity that a limit bounds, or on the peak of memory; a price follows the time."""
        return find_spread(of, self.uncertainty, self.resolved.job.server)

    @cached_property
    def fit_probability(self) -> float | None:
        """That card and host suffice [-]; None where that turns on a host of which nobody knows how much it has."""
        return self.probability_to_fit(self.resolved.job.lengths_assumed)

    def probability_to_fit(self, guessed: bool) -> float | None:
        """The same where it is known whether lengths, batch or micro-batch are a guess."""
        return None if self.host_unknown and self.fits else self.known_chance(guessed)

    def known_chance(self, guessed: bool) -> float:
        """That the card suffices, and a host of which it is known how much memory it has [-].

        The spread of published runs is that of what is estimated: it takes nothing off what is counted.
        """
        if self.counted_too_much:
            return 0.0
        host, needed = self.resolved.job.server.host_usable_bytes, float(self.ledger.host_bytes[0])
        room, suffices = self.usable_bytes / self.peak_bytes, memory_suffices(guessed)
        return chance(suffices, min(room, host / needed) if host and needed else room)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        return judge(self.resolved.scenario.values.limits, WING, self)

    @property
    def confidence(self) -> float | None:
        """With which limits and memory must be kept, where it was asked for [-]."""
        return self.resolved.scenario.values.limits.confidence

    @property
    def keeps_limits(self) -> bool:
        """Whether every limit is kept, and memory suffices, as sure as was asked."""
        return all(limit.ok for limit in self.limits) and not any(memory_doubt(self, self.confidence))

    @property
    def ok(self) -> bool:
        """Whether the job fits and keeps every limit."""
        return self.choice.fits_with_headroom and self.keeps_limits

    @cached_property
    def shortfall(self) -> float:
        """Needed over allowed, of whatever lacks most: memory of the card or the host, or a limit [-]."""
        memory = (self.peak_bytes + self.resolved.min_headroom_bytes) / self.usable_bytes
        return max(memory, self.host_share, *shares(self.resolved.scenario.values.limits, WING, self))

    @property
    def host_share(self) -> float:
        """Needed of the host's memory over what it has to spare [-]; 0 where nobody knows that."""
        needed, usable = float(self.ledger.host_bytes[0]), self.resolved.job.server.host_usable_bytes
        return 0.0 if not needed or usable is None else needed / max(usable, 1.0)

    @cached_property
    def peak_bytes(self) -> float:
        """Worst GPU at its worst moment: exactly the sum of the components that reports list."""
        return sum(self.ledger.at_peak().values())

    @cached_property
    def counted(self) -> dict[str, float]:
        """Bytes of weights, gradients and states at their most: counted, so that no run takes less."""
        return counted_at_most(self.ledger)

    @property
    def counted_too_much(self) -> bool:
        """Whether what is counted alone is more than the card has, so that no luck helps."""
        return sum(self.counted.values()) > self.usable_bytes

    @property
    def usable_bytes(self) -> float:
        return self.resolved.job.server.accelerator.memory_bytes

    @property
    def usable_gib(self) -> float:
        return self.usable_bytes / GIB

    @property
    def headroom_gib(self) -> float:
        return (self.usable_bytes - self.peak_bytes) / GIB

    @property
    def host_unknown(self) -> bool:
        """Whether the job needs more host memory than every node has, and nobody knows how much there is."""
        return (
            self.resolved.job.server.host_memory_bytes is None and float(self.ledger.host_bytes[0]) > LEAST_HOST_BYTES
        )

    @property
    def card_chance(self) -> float:
        """That the card suffices, and a host of which it is known how much memory it has [-]."""
        return self.known_chance(self.resolved.job.lengths_assumed)

    @property
    def roomy(self) -> bool:
        """Whether it likely fits, on the card and on a host of which it is known how much memory it has."""
        return self.fits and self.card_chance >= LIKELY

    @property
    def step_s(self) -> float:
        return float(self.timeline.step_s[0])

    @cached_property
    def total_s(self) -> float:
        return float(run_time_s(self.run)[0])

    @cached_property
    def run(self) -> Run:
        """What the parts of the whole run are computed from."""
        return Run(self.choice.evaluation, self.timeline.step_s)

    @property
    def start_s(self) -> float:
        """Time before the first step, no part of the time of the job."""
        return start_up_s(self.resolved.job)

    @cached_property
    def resume_s(self) -> float:
        """The same where the job was stopped: its last checkpoint is read too."""
        return float(resume_s(self.run)[0])

    @cached_property
    def save_s(self) -> float:
        """Time of the checkpoint with which the job can be stopped."""
        return float(self.run.saved.whole_s[0])

    @property
    def hours(self) -> float:
        return self.total_s / HOUR_S

    @property
    def gpu_hours(self) -> float:
        """Of the GPUs that work, whatever is paid for."""
        return self.hours * self.gpus

    @property
    def tokens_per_sample(self) -> float:
        """Tokens that are processed for a sample, padding included."""
        return self.resolved.job.method.sequences_per_sample * float(self.choice.sequences.mean_tokens[0])

    @property
    def samples_per_s(self) -> float:
        """Samples that all GPUs train on in a second."""
        return self.resolved.job.global_batch / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens that all GPUs process in a second, padding included."""
        return self.samples_per_s * self.tokens_per_sample

    @property
    def component_s(self) -> dict[str, float]:
        """Seconds of each part of a step."""
        return {name: float(value[0]) for name, value in self.timeline.components.items()}

    @cached_property
    def ideal_s(self) -> dict[str, float] | None:
        """Seconds of each part at the speed of light and without offloading, which is a loss whatever the rates.

        None where fixed efficiencies replace the laws.
        """
        if self.resolved.efficiency.fixed:
            return None
        on_card = replace(self.layouts, offload=np.zeros_like(self.layouts.offload))
        line = timeline(at_the_speed_of_light(self.resolved.job), on_card, self.choice.sequences)
        return {name: float(value[0]) for name, value in line.components.items()}

    @property
    def billed_gpus(self) -> int:
        """GPUs that are paid for: those of whole nodes, unless the user gave a price per GPU."""
        return self.resolved.tariff.billed_gpus(self.gpus)

    @property
    def power_w(self) -> float | None:
        """Power of the servers at load, without cooling [W]; None where nobody knows what they draw."""
        power_w = servers_power_w(self.resolved.job.server, self.gpus)
        return None if power_w is None else float(power_w)

    @property
    def power_kw(self) -> float | None:
        """The same in the unit of the limit on it."""
        return None if self.power_w is None else self.power_w / WATT_PER_KW

    @property
    def cost(self) -> float | None:
        """Expected price of the run, None where no price is known."""
        found = self.resolved.run_cost(np.asarray(self.hours), np.asarray(self.gpus))
        return None if found is None else float(found)


def keeps_limits(resolved: ResolvedTraining, layouts: Layouts, step_s: Array) -> NDArray[np.bool_]:
    """Whether steps of such a time under such layouts keep the limits on hours and price, shape (layout,)."""
    hours = _run_hours(resolved, layouts, step_s)
    known: dict[str, Array] = {"hours": hours, "gpus": as_array(layouts.gpus)}
    cost = resolved.run_cost(hours, layouts.gpus)
    if cost is not None:
        known["cost"] = cost
    power_w = servers_power_w(resolved.job.server, as_array(layouts.gpus))
    if power_w is not None:
        known["power_kw"] = np.asarray(power_w / WATT_PER_KW)
    span = uncertainty(resolved.job, resolved.efficiency, line=_fastest(resolved, layouts, step_s))
    spread = partial(find_spread, span=span, server=resolved.job.server)
    return kept(resolved.scenario.values.limits, WING, known, len(step_s), spread)


def _fastest(resolved: ResolvedTraining, layouts: Layouts, step_s: Array) -> Callable[[], Timeline] | None:
    """Times a step under the fastest of some layouts, which stands for all of them where errors of laws are weighed."""
    if not len(layouts):
        return None
    place = int(np.argmin(step_s))
    return partial(timeline, resolved.job, layouts[place : place + 1])


def _run_hours(resolved: ResolvedTraining, layouts: Layouts, step_s: Array) -> Array:
    """Time of a run under each layout, shape (layout,) [h]; the steps depend on a batch that follows the layout."""
    if resolved.at_replicas is None:
        return run_time_s(Run(Evaluation(resolved.job, layouts), step_s)) / HOUR_S
    hours = np.zeros(len(layouts))
    for replicas in np.unique(layouts.dp).tolist():
        here = np.flatnonzero(layouts.dp == replicas)
        one = Evaluation(resolved.at_replicas(replicas).job, layouts[here])
        hours[here] = run_time_s(Run(one, step_s[here])) / HOUR_S
    return hours


def find_spread(of: str, span: Uncertainty, server: Server) -> Spread | None:
    """Find the range of a quantity of a run by its name, or of its peak of memory for what is left of the card."""
    if of == "gpus":
        return EXACT
    if of == "power_kw":
        return around(power_error(server, TRAINING_POWER_SHARE, TRAINING_SHARE_ERROR))
    return peak_spread() if of == "headroom_gib" else span.spread
