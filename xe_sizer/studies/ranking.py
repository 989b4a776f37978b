"""Which of the candidates of a plan is the best, and what the model cannot tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.laws.energy import energy_kwh
from xe_sizer.result.common import CERTAINTIES, GIVEN_PRICE, ON_DEMAND
from xe_sizer.result.studies import Answers
from xe_sizer.studies.hardware import hardware_name
from xe_sizer.training.ties import GPUS_ERROR, complexity

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.estimate import TrainingEstimate

SURE = max(CERTAINTIES.values())  # probability from which the upper end of a range is inside a limit
LIKELY = CERTAINTIES["likely"]  # probability from which memory is taken to suffice, of plans alike


def objective_of(given: Given) -> str:
    """What the scenario calls the best: where there is a deadline what has to be bought for it, else the cost."""
    return given.values.objective or ("cost" if given.values.limits.max_hours is None else "servers")


def servers(sized: TrainingEstimate) -> int:
    """Servers to be bought; a bare GPU has none, and counts itself."""
    server = sized.resolved.job.server
    return sized.gpus if server.bare else -(-sized.gpus // server.accelerators)


def surely(sized: TrainingEstimate) -> bool:
    """Whether every limit is kept at the upper end of its range too."""
    return all(limit.probability is None or limit.probability >= SURE for limit in sized.limits)


def likely_fits(sized: TrainingEstimate) -> bool:
    """Whether memory is likely to suffice; it is not where that turns on a host that nobody knows."""
    return sized.fit_probability is not None and sized.fit_probability >= LIKELY


@frozen
class Ranking:
    """Candidates, each the best layout on its number and kind of GPUs, under an objective."""

    sized: tuple[TrainingEstimate, ...]
    objective: str

    @cached_property
    def currency(self) -> str | None:
        """The currency in which prices are compared; None where no price is known, or they are in several."""
        known = {one.resolved.tariff.currency for one in self.sized if one.cost is not None}
        return known.pop() if len(known) == 1 else None

    @cached_property
    def _kinds(self) -> list[str | None]:
        """The kind of contract that each price is for."""
        offers = [one.resolved.tariff.offer for one in self.sized]
        return [GIVEN_PRICE if offer is None else offer.kind for offer in offers]

    @cached_property
    def kind(self) -> str | None:
        """The kind whose prices compare: on demand, which asks for no contract, else that of most plans."""
        priced = zip(self.sized, self._kinds, strict=True)
        kinds = [kind for one, kind in priced if one.cost is not None and kind != GIVEN_PRICE]
        return ON_DEMAND if ON_DEMAND in kinds else max(kinds, key=kinds.count, default=None)

    @cached_property
    def priced(self) -> list[int]:
        """Places of those whose prices compare; one that the user gave compares with any."""
        known = [place for place, one in enumerate(self.sized) if self.currency and one.cost is not None]
        return [place for place in known if self._kinds[place] in (GIVEN_PRICE, self.kind)]

    def unpriced(self) -> Iterator[str]:
        """What to say where prices are missing, or do not compare."""
        without = dict.fromkeys(_name(one) for one in self.sized if one.cost is None)
        known = [place for place, one in enumerate(self.sized) if self.priced and one.cost is not None]
        others = {_name(self.sized[place]): self._kinds[place] for place in known if place not in self.priced}
        if others:
            of = ", ".join(f"{name} ({kind or 'kind unknown'})" for name, kind in others.items())
            yield f"prices of different kinds do not compare: only {self.kind} ones are ranked, not that of {of}"
        if self.priced and without:
            yield f"no price for {', '.join(without)}: only plans with a price are compared by price"
        elif not self.priced and len(without) < len({_name(one) for one in self.sized}):
            yield "prices are in several currencies: GPU-hours are compared instead"

    def value(self, place: int, objective: str) -> float:
        """What an objective makes as small as it can be; infinite where it is not known."""
        sized = self.sized[place]
        if objective == "time":
            return sized.total_s
        if objective == "servers":
            return float(servers(sized))
        if objective == "gpus":
            return float(sized.gpus)
        if objective == "energy":
            energy = energy_kwh(sized.resolved.job.server, sized.gpu_hours)
            return np.inf if energy is None else energy
        if objective == "gpu-hours" or not self.priced:
            return sized.gpu_hours
        return np.inf if sized.cost is None or place not in self.priced else sized.cost

    def _size(self, place: int) -> tuple[int, int, int]:
        """What is smaller comes first: fewer servers, fewer GPUs, a plainer layout."""
        sized = self.sized[place]
        return servers(sized), sized.gpus, int(complexity(sized.layouts)[0])

    def best(self, places: Sequence[int], objective: str) -> int:
        """The lowest value; of values nearer to it than the model's error what likely fits, the surest, the smaller.

        A count is exact: of equal ones what likely fits, of that what surely keeps the limits, then the fastest, the
        smaller of those as fast.
        """
        if objective in ("servers", "gpus"):
            lowest = min(self.value(place, objective) for place in places)
            places = [place for place in places if self.value(place, objective) == lowest]
            likely = [place for place in places if likely_fits(self.sized[place])] or places
            sure = [place for place in likely if surely(self.sized[place])]
            return self.best(sure or likely, "time")
        lowest = min(self.value(place, objective) for place in places)
        near = [place for place in places if self.value(place, objective) <= lowest * (1.0 + GPUS_ERROR)]
        return min(near, key=self._doubt_and_size)

    def _doubt_and_size(self, place: int) -> tuple[float, ...]:
        """Of plans as good as the model can tell: what fits and keeps the limits more surely, then the smaller."""
        sized = self.sized[place]
        return not likely_fits(sized), not surely(sized), *self._size(place), sized.total_s

    @cached_property
    def order(self) -> list[int]:
        """Places, the plan first, then what keeps the limits by the objective, then by time."""
        met = [place for place, one in enumerate(self.sized) if one.ok]
        first = self.best(met, self.objective) if met else None

        def rank(place: int) -> tuple[bool, bool, float, float]:
            one = self.sized[place]
            return place != first, not one.ok, self.value(place, self.objective), one.total_s

        return sorted(range(len(self.sized)), key=rank)

    @cached_property
    def pareto(self) -> list[bool]:
        """Whether no other needs as few GPUs and as little time, price and energy, and less of one of them.

        What a smaller plan, no less plain, matches within the model's error is none either.
        """
        prices = ("cost",) if len(self.priced) == len(self.sized) else ()
        places, objectives = range(len(self.sized)), ("gpus", "time", "energy", *prices)
        values = np.array([[self.value(place, name) for name in objectives] for place in places])
        beaten = (np.all(values <= row, axis=1) & np.any(values < row, axis=1) for row in values)
        front = [place for place, by in zip(places, beaten, strict=True) if not np.any(by)]
        kept: list[int] = []
        for place in sorted(front, key=self._size):
            smaller = values[[other for other in kept if self._plainer(other, place)], 1:]
            if not np.any(np.all(smaller <= values[place, 1:] * (1.0 + GPUS_ERROR), axis=1)):
                kept.append(place)
        return [place in kept for place in places]

    def _plainer(self, other: int, place: int) -> bool:
        """Whether one plan is smaller than another and no less plain."""
        mine, its = self._size(place), self._size(other)
        return its < mine and its[2] <= mine[2]

    @cached_property
    def answers(self) -> Answers:
        """Places of the plan and of what people ask for beside it."""
        places = range(len(self.sized))
        if not places:
            return Answers()
        met = any(one.ok for one in self.sized)
        nearest = None if met else min(places, key=lambda place: self.sized[place].shortfall)
        return Answers(
            smallest=min(places, key=lambda place: (self.sized[place].gpus, self.sized[place].total_s)),
            fastest=self.best(places, "time"),
            cheapest=self.best(self.priced, "cost") if self.priced else None,
            fewest_gpu_hours=self.best(places, "gpu-hours"),
            chosen=self.order[0] if met else nearest,
            nearest=nearest,
        )


def _name(sized: TrainingEstimate) -> str:
    return hardware_name(sized.resolved.job.server)
