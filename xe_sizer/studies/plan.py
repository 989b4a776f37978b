"""The best answers out of every layout, number and kind of GPU: the search behind `plan`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import HOST_RESERVE_BYTES, energy_kwh
from xe_sizer.result.common import (
    BOUND,
    DOES_NOT_FIT,
    GIVEN_PRICE,
    LIKELY,
    ON_DEMAND,
    SCHEMA_VERSION,
    SURE,
    LeftOut,
    Reason,
    Verdict,
)
from xe_sizer.result.studies import (
    BY_BATCH,
    BY_LAYOUT,
    BY_NOTHING,
    TOO_FEW,
    TOO_MANY,
    Answers,
    Candidate,
    Kind,
    Numbers,
    PlanResult,
    Skipped,
    Way,
)
from xe_sizer.result.studies import Search as Searched
from xe_sizer.scenario.limits import memory_doubt, missed, verdict_of
from xe_sizer.scenario.options import OPTION_OF
from xe_sizer.scenario.provenance import joining_assumptions
from xe_sizer.scenario.read import changed, command
from xe_sizer.studies.estimate import job_wing
from xe_sizer.studies.hardware import hardware_name, on_each, one_price
from xe_sizer.training.layout import WORDS
from xe_sizer.training.run import start_up_s
from xe_sizer.training.search import GPUS_ERROR, Candidates, complexity, onward
from xe_sizer.training.search_space import removed_by_rules, without_groups
from xe_sizer.training.summary import build_layout, longest_part, scenario_with_origins, slow_start
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Range
    from xe_sizer.result.studies import Rule
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.studies.estimate import JobWing
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining
    from xe_sizer.training.search import Progress

# Which of the candidates of a plan is the best, and what the model cannot tell apart.


def usual_objective(scenario: Scenario) -> str:
    """What the scenario calls the best: where there is a deadline what has to be bought for it, else the cost."""
    return scenario.values.objective or ("cost" if scenario.values.limits.max_hours is None else "servers")


def servers(sized: TrainingEstimate) -> int:
    """Servers to be bought; a bare GPU has none, and counts itself."""
    server = sized.resolved.job.server
    return sized.gpus if server.bare else -(-sized.gpus // server.accelerators)


def sum_to_buy(sized: TrainingEstimate) -> float | None:
    """What the servers cost to buy; None where they are rented, or nobody knows."""
    tariff = sized.resolved.tariff
    return None if tariff.own is None else tariff.own.capex * sized.billed_gpus / tariff.sold_together


def surely(sized: TrainingEstimate) -> bool:
    """Whether every limit is kept at the upper end of its range too."""
    return all(limit.certainty in (SURE, BOUND) for limit in sized.limits)


def likely_fits(sized: TrainingEstimate) -> bool:
    """Whether memory suffices as surely as was asked, else likely; it does not where nobody knows the host's."""
    wanted = LIKELY if sized.confidence is None else sized.confidence
    return sized.fit_probability is not None and sized.fit_probability >= wanted


EXACT = ("servers", "gpus", "capex")  # objectives in which plans differ or do not, whatever the model's error


class Ranking(Immutable):
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

    @cached_property
    def bought(self) -> Mapping[int, float]:
        """Places of those whose servers are bought, with the sum of each; none where sums are in several currencies."""
        found = {place: sum_to_buy(one) for place, one in enumerate(self.sized)}
        known = {place: amount for place, amount in found.items() if amount is not None}
        return known if len({self.sized[place].resolved.tariff.currency for place in known}) == 1 else {}

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
        if objective == "capex":
            return self.bought.get(place, np.inf)
        if objective == "energy":
            energy = energy_kwh(sized.resolved.job.server, sized.gpu_hours, gpus=sized.gpus)
            return np.inf if energy is None else energy
        if objective == "gpu-hours" or not self.priced:
            return sized.gpu_hours
        return np.inf if sized.cost is None or place not in self.priced else sized.cost

    def _size(self, place: int) -> tuple[int, int, int]:
        """What is smaller comes first: fewer servers, fewer GPUs, a plainer layout."""
        sized = self.sized[place]
        return servers(sized), sized.gpus, int(complexity(sized.layouts)[0])

    def best(self, places: Sequence[int], objective: str) -> int:
        """The lowest value of what likely fits; of values nearer to it than the model's error the surest, the smaller.

        A count is exact, and so is a sum to buy: of equal counts what surely keeps the limits, of these the lowest sum
        where some are bought, then the fastest, the smaller of those as fast.
        """
        places = self.recommended(places)
        if objective in EXACT:
            lowest = min(self.value(place, objective) for place in places)
            places = [place for place in places if self.value(place, objective) == lowest]
            places = [place for place in places if surely(self.sized[place])] or places
            least = min((self.bought[place] for place in places if place in self.bought), default=None)
            return self.best([place for place in places if self.bought.get(place) == least], "time")
        lowest = min(self.value(place, objective) for place in places)
        near = [place for place in places if self.value(place, objective) <= lowest * (1.0 + GPUS_ERROR)]
        return min(near, key=self._doubt_and_size)

    def recommended(self, places: Sequence[int]) -> Sequence[int]:
        """Those that likely fit, as what is bought must; all where none does."""
        return [place for place in places if likely_fits(self.sized[place])] or places

    def best_of_kind(self, places: Sequence[int]) -> int:
        """The best of the places of one kind of hardware by the objective; the nearest where none keeps the limits."""
        chosen = self.answers.chosen
        if chosen is not None and chosen in places:
            return chosen
        met = [place for place in places if self.sized[place].ok]
        if not met:
            return min(places, key=lambda place: self.sized[place].shortfall)
        unpriced = self.objective == "cost" and not any(place in self.priced for place in met)
        return self.best(met, "gpu-hours" if unpriced else self.objective)

    def cheapest_rented(self, places: Sequence[int]) -> int | None:
        """The cheapest of the places of one kind that is rented, within the limits; None where there is none.

        Of what is rented no server is left to be bought: more of them for less time may cost less.
        """
        cost = {place: self.sized[place].cost for place in places if self.sized[place].resolved.tariff.own is None}
        known = {place: price for place, price in cost.items() if price is not None and self.sized[place].ok}
        lowest = min((known[place] for place in self.recommended(list(known))), default=0.0)
        near = [place for place in self.recommended(list(known)) if known[place] <= lowest * (1.0 + GPUS_ERROR)]
        return min(near, key=self._doubt_and_size, default=None)

    def _doubt_and_size(self, place: int) -> tuple[float, ...]:
        """Of plans as good as the model can tell: what keeps the limits more surely, then the smaller."""
        sized = self.sized[place]
        return not surely(sized), *self._size(place), sized.total_s

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
        met = [place for place in places if self.sized[place].ok]
        nearest = None if met else min(places, key=lambda place: self.sized[place].shortfall)
        priced = [place for place in self.priced if place in met] or self.priced
        return Answers(
            smallest=min(
                self.recommended(places), key=lambda place: (self.sized[place].gpus, self.sized[place].total_s)
            ),
            fastest=self.best(places, "time"),
            cheapest=self.best(priced, "cost") if priced else None,
            fewest_gpu_hours=self.best(met or places, "gpu-hours"),
            chosen=self.order[0] if met else nearest,
            nearest=nearest,
        )


def _name(sized: TrainingEstimate) -> str:
    return hardware_name(sized.resolved.job.server)


WORTH_SAYING = 0.05  # chosen: another way to run the job is told from this share of the time on
MOST_NAMED = 3  # kinds of hardware, or numbers of GPUs, that a warning names
DEGREES = ("tp", "cp", "pp", "dp")  # what the number of GPUs is the product of
PLAIN = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero")


def plan(
    scenario: Scenario,
    registry: Registry,
    hardware: Sequence[Mapping[str, object]] = ({},),
    objective: str | None = None,
    explain: bool = False,
    progress: Progress | None = None,
    details: bool = True,
) -> PlanResult:
    """Search every layout on every number of every kind of GPU, and say what is best."""
    return plan_and_estimate(scenario, registry, hardware, objective, explain, progress, details)[0]


def plan_and_estimate(
    scenario: Scenario,
    registry: Registry,
    hardware: Sequence[Mapping[str, object]] = ({},),
    objective: str | None = None,
    explain: bool = False,
    progress: Progress | None = None,
    details: bool = True,
) -> tuple[PlanResult, Callable[[], Result] | None]:
    """The same, and what makes the estimate of the plan that is chosen; None where there is none.

    hardware : keys (`gpu` or `server`) that name each kind, {} for the scenario's own
    objective : one of OBJECTIVES, which orders the candidates; the scenario's, else the usual one where none is named
    explain : count what each rule of the space removed
    details : search other ways to run the job too, which advice proposes

    Raises
    ------
    InputError : what the user can mend; hardware that the job cannot run on is left out, unless all of it is
    """
    started = time.perf_counter()
    objective = objective or usual_objective(scenario)
    found, left_out = _searched(scenario, registry, hardware, progress)
    if objective == "capex" and all(one.resolved.tariff.own is None for one in found):
        place = Location(scenario.caller.place("objective"))
        hint = f"give {scenario.caller.setting('cost.capex_per_server', 'PRICE')}, or choose another objective"
        raise InputError(Problem("nobody says what the servers cost to buy", place, hint))
    rules = _rules(found) if explain else ()
    search = Searched(
        layouts_considered=sum(one.considered for one in found),
        layouts_feasible=sum(one.feasible for one in found),
        seconds=time.perf_counter() - started,
        complete=all(one.complete for one in found),
        rules=rules,
        numbers=tuple(map(_numbers, found)),
    )
    ranked = _ranked(found, objective)
    ways = tuple(_ways(ranked, registry)) if details and search.complete else ()
    return _results(found, ranked, ways, search, left_out, registry)


def _searched(
    scenario: Scenario, registry: Registry, hardware: Sequence[Mapping[str, object]], progress: Progress | None
) -> tuple[list[Candidates], tuple[LeftOut, ...]]:
    """What was found on each kind of hardware until an interrupt, and which of them has nothing. Raises InputError."""
    wing, found = job_wing(scenario), list[Candidates]()
    left_out: list[LeftOut] = []
    for name, asked in on_each(scenario, hardware, lambda asked: wing.resolve(asked, registry), left_out):
        searched = wing.candidates(asked, onward(progress, sum(one.considered for one in found)))
        resolved = searched.resolved
        if not searched.sized and searched.complete:
            reason = _none_words(resolved.planned_gpus, searched.considered)
            left_out.append(LeftOut(name=name or resolved.job.server.name, reason=reason))
        found.append(searched)
        if not searched.complete:
            break
    if all(one.complete and not one.considered for one in found):
        raise InputError(found[0].resolved.no_layout(found[0].resolved.planned_gpus))
    return found, tuple(left_out)


def _none_words(counts: Sequence[int], considered: int) -> str:
    """Why there is no plan on a kind of hardware."""
    most = f"{counts[-1]:,}" if len(counts) == 1 else f"up to {counts[-1]:,}"
    gpus = f"{most} GPU{'s' * (counts[-1] > 1)}"
    return f"no layout fits on {gpus}" if considered else f"no legal layout on {gpus}"


def _rules(found: Sequence[Candidates]) -> tuple[Rule, ...]:
    """What the rules removed, over all kinds of hardware."""
    kinds = [removed_by_rules(replace(one.resolved.rules, every_way=True), one.resolved.planned_gpus) for one in found]
    return tuple(replace(same[0], removed=sum(rule.removed for rule in same)) for same in zip(*kinds, strict=True))


def _ranked(found: Sequence[Candidates], objective: str) -> Ranking:
    """All candidates, the best first."""
    ranking = Ranking(tuple(one for kind in found for one in kind.sized), objective)
    return Ranking(tuple(ranking.sized[place] for place in ranking.order), objective)


def _ways(ranking: Ranking, registry: Registry) -> Iterator[Way]:
    """Other ways to run the job on the hardware of the chosen plan, the fastest first.

    They take less time on as many GPUs, or let fewer servers do.
    """
    place = ranking.answers.chosen
    if place is None:
        return
    chosen = ranking.sized[place]
    scenario, found = chosen.resolved.scenario, list[Way]()
    for change in job_wing(scenario).ways(chosen, registry):
        try:
            asked = changed(scenario, change.values)
            wing = job_wing(asked)
            searched = wing.candidates(wing.resolve(asked, registry))
            same = [one for one in searched.sized if one.gpus == chosen.gpus]
            if searched.complete and not same:  # so many were not searched, as fewer do
                same = [wing.size(wing.resolve(changed(asked, {"gpus": chosen.gpus}), registry))]
        except InputError:  # what the user gave rules the change out
            continue
        if not searched.complete:
            break
        ratio = min((one.total_s / chosen.total_s for one in same if one.fits), default=math.inf)
        if not searched.sized or ratio == math.inf:
            continue
        under = _ranked([searched], ranking.objective)
        best = under.sized[under.answers.chosen or 0]
        fewer = chosen.ok and best.ok and servers(best) < servers(chosen)
        if ratio > 1.0 - WORTH_SAYING and not fewer:
            continue
        call = command(scenario, change.values, registry.user_folders, "plan")
        found.append(Way(change.words, _candidate(best, False, registry), ratio, call))
    yield from sorted(found, key=lambda way: way.time_ratio)


def _results(
    found: Sequence[Candidates],
    ranked: Ranking,
    ways: tuple[Way, ...],
    search: Searched,
    left_out: tuple[LeftOut, ...],
    registry: Registry,
) -> tuple[PlanResult, Callable[[], Result] | None]:
    sized, objective = ranked.sized, ranked.objective
    listed = tuple(_candidate(one, best, registry) for one, best in zip(sized, ranked.pareto, strict=True))
    answers = ranked.answers
    chosen = None if answers.chosen is None else sized[answers.chosen]
    resolved = found[0].resolved if chosen is None else chosen.resolved
    wing = job_wing(resolved.scenario)
    result = PlanResult(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        scenario=scenario_with_origins(resolved),
        objective=objective,
        verdict=_verdict(wing, registry, sized, answers, search.complete),
        search=search,
        candidates=listed,
        answers=answers,
        command=command(resolved.scenario, {}, registry.user_folders),
        left_out=left_out,
        kinds=_kinds(found, ranked, left_out),
        ways=ways,
        warnings=(
            *_untried(found),
            *_prices(found, ranked),
            *resolved.warnings,
            *joining_assumptions(resolved.job.server, max((one.gpus for one in sized), default=1)),
            *_start(sized, answers),
            *(_following(found) or _undivided(sized, search, answers)),
            *_batches(resolved, sized),
        ),
        basis=None if chosen is None else chosen.uncertainty.basis,
    )
    return result, None if chosen is None else lambda: wing.conclude(chosen, registry, details=False)


def _kinds(found: Sequence[Candidates], ranking: Ranking, left_out: Sequence[LeftOut]) -> tuple[Kind, ...]:
    """The best plan on every kind of hardware, the chosen one first; then the kinds without a plan.

    ranking : of all candidates, in the order of the result
    """
    kinds: list[tuple[tuple[bool, bool, float, float, float], Kind]] = []
    for kind in found:
        own = {id(one) for one in kind.sized}
        places = [place for place, one in enumerate(ranking.sized) if id(one) in own]
        if not places:
            continue
        place = ranking.best_of_kind(places)
        one, first = ranking.sized[place], place == ranking.answers.chosen
        cheapest = ranking.cheapest_rented(places)
        reasons = () if one.ok else (*memory_doubt(one, one.confidence), *_missed(one))
        row = Kind(
            hardware=_name(one),
            candidate=place,
            meets_limits=one.ok,
            recommended=first and one.ok,
            limits_probability=min(
                (each.probability for each in one.limits if each.probability is not None), default=None
            ),
            reason="; ".join(reason.message for reason in reasons),
            cheapest=None if cheapest == place else cheapest,
        )
        price = math.inf if one.cost is None else one.cost
        kinds.append(((not first, not one.ok, ranking.value(place, ranking.objective), price, one.total_s), row))
    ordered = _against_own([row for _, row in sorted(kinds, key=lambda kind: kind[0])], ranking)
    return (*ordered, *(Kind(hardware=one.name, reason=one.reason) for one in left_out))


def _against_own(kinds: Sequence[Kind], ranking: Ranking) -> Iterator[Kind]:
    """The kinds, those that are rented with the use from which the first of those that are bought costs less."""
    met = [kind.candidate for kind in kinds if kind.candidate is not None and kind.meets_limits]
    own = next((place for place in met if place in ranking.bought), None)
    for kind in kinds:
        place = kind.candidate if kind.cheapest is None else kind.cheapest
        if own is None or place is None or not kind.meets_limits or place in ranking.bought:
            yield kind
            continue
        rented, bought = ranking.sized[place], ranking.sized[own]
        use = bought.resolved.tariff.break_even_utilisation(bought.hours, bought.billed_gpus, bought.gpus, rented.cost)
        same = rented.resolved.tariff.currency == bought.resolved.tariff.currency
        known = same and use is not None
        yield replace(kind, own=own, own_from_utilisation=use if use != math.inf else None) if known else kind


def _missed(sized: TrainingEstimate) -> Iterator[Reason]:
    """The limits that the nearest plan misses."""
    return missed(sized.limits, sized.resolved.scenario.caller, "the nearest plan takes", sized.confidence)


def _numbers(found: Candidates) -> Numbers:
    """The numbers of GPUs of one kind of hardware that were searched, and why others were not."""
    resolved, tried = found.resolved, tuple(sorted(found.tried))
    why: dict[tuple[str, str], list[int]] = {}
    for count in resolved.planned_gpus:
        if count not in tried:
            why.setdefault(_why_skipped(found, count), []).append(count)
    skipped = tuple(Skipped(code=code, reason=reason, gpus=tuple(counts)) for (code, reason), counts in why.items())
    return Numbers(hardware=hardware_name(resolved.job.server), tried=tried, skipped=skipped)


def _why_skipped(found: Candidates, count: int) -> tuple[str, str]:
    """Why so many GPUs were not searched, as a code and in words."""
    resolved = found.resolved
    batch = f"the global batch of {resolved.job.global_batch:,}"
    degrees = [f"{name} {resolved.fixed[name]}" for name in DEGREES if name in resolved.fixed]
    if degrees:
        return BY_LAYOUT, f"{', '.join(degrees)} and {batch} do not go with them"
    if resolved.at_batch is None:
        return BY_BATCH, f"{batch} cannot be split over them"
    if without_groups(replace(resolved.fitted_to(count).rules, every_way=True), (count,)):
        return BY_NOTHING, "no layout can be spread over them"
    enough = min((one.gpus for one in found.sized if one.ok), default=math.inf)
    if count > enough:
        return TOO_MANY, "more than the fewest that do"
    more = min((tried for tried in found.tried if count < tried < enough), default=None)
    return TOO_FEW, "fewer than the fewest that do" if more is None else f"fewer than {more:,}, which are not enough"


def _undivided(sized: Sequence[TrainingEstimate], search: Searched, answers: Answers) -> Iterator[str]:
    """Smaller numbers of GPUs than the chosen that only the batch or the layout that was given rules out."""
    if answers.chosen is None:
        return
    most = sized[answers.chosen].gpus
    for skipped in (one for kind in search.numbers for one in kind.skipped if one.code in (BY_BATCH, BY_LAYOUT)):
        fewer = [f"{count:,}" for count in skipped.gpus if count < most]
        if fewer:
            *first, last = fewer[:MOST_NAMED]
            if len(fewer) > MOST_NAMED:
                first, last = [*first, last], f"{len(fewer) - MOST_NAMED} more"
            named = f"{', '.join(first)} and {last}" if first else last
            yield f"not tried on {named} GPUs: {skipped.reason}; there may be a smaller plan among them"


def _batches(resolved: ResolvedTraining, sized: Sequence[TrainingEstimate]) -> Iterator[str]:
    """That plans read different amounts of data where their assumed batches differ and the steps do not."""
    batches = sorted({one.resolved.job.global_batch for one in sized})
    if resolved.at_batch is not None and len(batches) > 1 and resolved.fixed_steps:
        setting = resolved.scenario.caller.setting("train.global_batch", "N")
        several = f"{batches[0]:,} to {batches[-1]:,}, as it splits over the GPUs"
        yield f"the assumed global batch is {several}, and plans read as much data in their steps; {setting} sets one"


def _following(found: Sequence[Candidates]) -> tuple[str, ...]:
    """That plans read different amounts of data where their global batch follows the replicas and the steps do not."""
    resolved = found[0].resolved
    if resolved.at_replicas is None:
        return ()
    setting = resolved.scenario.caller.setting("train.global_batch", "N")
    told = f"the global batch of a plan is {resolved.job.global_batch:,} x dp"
    more = ", and so is the data that its steps read" if resolved.fixed_steps else ""
    return (f"{told}{more}; {setting} sets one for all",)


def _start(sized: Sequence[TrainingEstimate], answers: Answers) -> Iterator[str]:
    """What to say where the plan ends so soon that its start counts."""
    return iter(()) if answers.chosen is None else slow_start(sized[answers.chosen])


def _prices(found: Sequence[Candidates], ranking: Ranking) -> Iterator[str]:
    """What a reader must know of the prices to read the candidates right."""
    yield from ranking.unpriced()
    if len(found) > 1:
        yield from one_price(found[0].resolved.scenario)
    if any(one.billed_gpus > one.gpus for one in ranking.sized):
        yield "whole servers are paid for: part of a server costs as much as all of it"


def _untried(found: Sequence[Candidates]) -> Iterator[str]:
    """Where nobody knows how much memory a host has, offloading is tried only on request: more servers may be named."""
    resolved = (kind.resolved for kind in found)
    unknown = (one for one in resolved if one.rules.host_apart and not one.rules.host_known)
    open_ = (one for one in unknown if one.rules.stack.supports.offload and "offload" not in one.fixed)
    names = list(dict.fromkeys(hardware_name(one.job.server) for one in open_))
    if names:
        told = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} kinds of hardware"
        setting = found[0].resolved.scenario.caller.setting("host_memory_gib")
        yield f"host memory of {told} unknown: plans that offload are left out; give {setting}"


def _candidate(sized: TrainingEstimate, pareto: bool, registry: Registry) -> Candidate:
    resolved, job, layouts = sized.resolved, sized.resolved.job, sized.layouts
    span: Range = sized.uncertainty.around(sized.total_s)
    node, tariff = job.server.accelerators, resolved.tariff
    per_hour = tariff.electricity_of_hour(sized.gpus)
    electricity = None if per_hour is None else sized.hours * per_hour
    return Candidate(
        gpu=job.server.accelerator.name,
        server=job.server.name,
        gpus=sized.gpus,
        nodes=-(-sized.gpus // node),
        layout=build_layout(layouts),
        step_s=sized.step_s,
        total_s=span,
        gpu_hours=sized.gpu_hours,
        peak_bytes=float(round(sized.peak_bytes)),
        headroom_bytes=float(round(sized.usable_bytes) - round(sized.peak_bytes)),
        bound=longest_part(sized.component_s),
        pools=sized.pools,
        colocated=sized.colocated,
        pareto=pareto,
        meets_limits=sized.ok,
        price=sized.cost,
        currency=None if sized.cost is None and electricity is None else resolved.tariff.currency,
        cost_parts=resolved.tariff.cost_parts(sized.hours, sized.billed_gpus, sized.gpus),
        electricity=electricity,
        power_w=sized.power_w,
        energy_kwh=energy_kwh(job.server, sized.gpu_hours, gpus=sized.gpus),
        tokens_per_s=sized.tokens_per_s,
        command=command(resolved.scenario, layout_flags(sized), registry.user_folders),
        start_up_s=start_up_s(job),
        fit_probability=sized.fit_probability,
        host_bytes=float(round(sized.ledger.host_bytes[0])),
        host_available_bytes=job.server.host_memory_bytes,
        host_most_bytes=job.server.host_most_bytes,
        host_reserve_bytes=HOST_RESERVE_BYTES,
        hourly_price=resolved.tariff.hourly(job.server),
        capex=sum_to_buy(sized),
        liquid_cooled=job.server.liquid_cooled,
    )


def layout_flags(sized: TrainingEstimate) -> dict[str, object]:
    """The scenario keys that ask for the number of GPUs and the layout of an estimate."""
    layouts = sized.layouts
    flags: dict[str, object] = {"gpus": sized.gpus}
    if "train.global_batch" not in sized.resolved.scenario.origin:
        flags["train.global_batch"] = sized.resolved.job.global_batch  # what is usual depends on the GPUs
    flags |= {f"layout.{name}": int(getattr(layouts, name)[0]) for name in PLAIN}
    flags |= {f"layout.{name}": words[int(getattr(layouts, name)[0])] for name, words in WORDS.items()}
    flags["train.micro_batch"] = int(layouts.micro_batch[0])
    groups = {name: int(getattr(layouts, name)[0]) for name in ("zero_group", "expert_tp")}
    flags |= {f"layout.{name}": ranks for name, ranks in groups.items() if ranks}
    if int(layouts.tp[0]) > 1:
        flags["layout.sequence_parallel"] = bool(layouts.sequence_parallel[0])
    return {key: value for key, value in (flags | sized.pool_keys).items() if key in OPTION_OF}


def _verdict(
    wing: JobWing, registry: Registry, sized: Sequence[TrainingEstimate], answers: Answers, complete: bool
) -> Verdict:
    if answers.chosen is None and not complete:
        message = "interrupted before a layout that fits was found"
        return Verdict(fits=False, meets_limits=False, reasons=(Reason(code="interrupted", message=message),))
    if answers.chosen is None:
        message = "no layout fits on any of the GPUs searched"
        reason = Reason(code="out-of-memory", message=message)
        return Verdict(fits=False, meets_limits=False, reasons=(reason,), memory=DOES_NOT_FIT)
    chosen = sized[answers.chosen]
    confidence = chosen.confidence
    reasons = (*memory_doubt(chosen, confidence), *_missed(chosen))
    return wing.settled(verdict_of(chosen, confidence, not reasons, reasons), chosen, registry)
