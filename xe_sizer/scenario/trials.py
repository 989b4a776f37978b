"""Changes of a scenario tried: each is estimated again, once, and kept only where it mends the answer.

The one engine behind the advice of both wings, which say what to try and what counts as mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

from xe_sizer.errors import InputError
from xe_sizer.immutable import Immutable
from xe_sizer.result.common import Advice, OperatorCost
from xe_sizer.scenario.limits import Estimate
from xe_sizer.scenario.read import changed, command, together

if TYPE_CHECKING:
    from xe_sizer.laws import operator_time
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.read import Change
    from xe_sizer.scenario.scenario import Scenario

# The operators of a step as an answer shows them, alike for training and for serving.


def operator_rows(costs: Iterable[operator_time.OperatorCost], step_s: float) -> tuple[OperatorCost, ...]:
    """Each operator with its share of the step, in the order in which they run. step_s : of the whole step [s]"""
    return tuple(
        OperatorCost(
            name=cost.operator.name,
            module=cost.operator.module,
            sizes=cost.sizes,
            times=cost.times,
            flops=cost.flops,
            bytes=cost.moved_bytes,
            seconds=cost.seconds,
            share=cost.seconds / step_s if step_s else 0.0,
            bound=cost.bound,
            parts=cost.parts,
        )
        for cost in costs
    )


E = TypeVar("E", bound=Estimate)
MOST_ADVICE = 5
MOST_TRIALS = 60  # estimates spent on one piece of advice: a bound on the time to answer


class Option(Immutable, Generic[E]):
    """A change that was estimated, with what it comes to."""

    change: Change
    after: E


class Remedy(Immutable, Generic[E], eq=True):
    """Changes of one kind, the mildest first; none of them asks less effort of the user than `effort` says."""

    effort: int
    changes: Callable[[E, Registry], Iterable[Change]]


@dataclass(eq=False)
class Trials(Generic[E]):
    """Estimates of changes to one scenario; the same values are estimated once.

    size : estimates a changed scenario; raises InputError where it is not legal
    mends : whether an estimate answers what the one before does not
    keeping : a change with what it must carry, so that all else of the question stays as it is
    hopeless : whether a change cannot mend, for a reason that is cheaper to see than its estimate
    together : estimates of those changes that can be estimated as one array, by `key_of`
    """

    before: E
    scenario: Scenario
    registry: Registry
    size: Callable[[Scenario], E]
    mends: Callable[[E], bool]
    keeping: Callable[[Change], Change] = lambda change: change
    hopeless: Callable[[Change], bool] = lambda _: False
    together: Callable[[Sequence[Change]], Mapping[str, E | None]] = lambda _: {}
    estimates: dict[str, E | None] = field(default_factory=dict)

    def estimate(self, change: Change) -> E | None:
        """The estimate after a change; None where the change is not legal, or enough has been tried."""
        key = key_of(change)
        if key not in self.estimates:
            if len(self.estimates) >= MOST_TRIALS:
                return None
            try:
                self.estimates[key] = self.size(changed(self.scenario, change.values))
            except InputError:
                self.estimates[key] = None
        return self.estimates[key]

    def kept(self, changes: Iterable[Change], keeps: Callable[[E], bool] | None = None) -> Iterator[Option[E]]:
        """Those changes after which the estimate mends, or is as asked; estimated as they are taken."""
        wanted = map(self.keeping, changes)
        tried = [change for change in wanted if keeps is not None or not self.hopeless(change)]
        self.estimates |= self.together([change for change in tried if key_of(change) not in self.estimates])
        for change in tried:
            after = self.estimate(change)
            if after is not None and (keeps or self.mends)(after):
                yield Option(change, after)

    def try_each(self, remedies: Sequence[Remedy[E]], most: int, found: list[Option[E]]) -> list[Option[E]]:
        """The found options and more, up to MOST_ADVICE: of each remedy the mildest change that mends.

        most : pieces of advice that are wanted; for one alone, remedies that ask more than what mends are not tried
        """
        for remedy in remedies:
            if len(found) >= MOST_ADVICE or (most == 1 and settled(found, remedy.effort)):
                break
            found = [*found, *mildest(self.kept(remedy.changes(self.before, self.registry)))]
        return found

    def strongest(self, remedies: Iterable[Remedy[E]]) -> list[Change]:
        """The strongest change of each remedy, to be combined; of two that set the same keys the later."""
        found: dict[frozenset[str], Change] = {}
        for remedy in remedies:
            for change in list(remedy.changes(self.before, self.registry))[-1:]:
                found[frozenset(change.values)] = change
        return list(found.values())

    def combination(self, changes: Iterable[Change]) -> list[Option[E]]:
        """The changes taken one after the other, those that help, until they mend; then without those not needed."""
        taken: list[Change] = []
        shortfall = self.before.shortfall
        for change in changes:
            if any(change.contradicts(other) for other in taken):
                continue
            after = self.estimate(self.together_keeping([*taken, change]))
            if after is None or after.shortfall >= shortfall:
                continue
            taken, shortfall = [*taken, change], after.shortfall
            if self.mends(after):
                return self._needed(taken)
        return []

    def _needed(self, taken: list[Change]) -> list[Option[E]]:
        """The heaviest changes are dropped first, where the others mend without them."""
        for change in reversed(taken):
            rest = [other for other in taken if other is not change]
            after = self.estimate(self.together_keeping(rest)) if rest else None
            if after is not None and self.mends(after):
                taken = rest
        whole = self.together_keeping(taken)
        after = self.estimate(whole)
        return [Option(whole, after)] if after is not None else []

    def together_keeping(self, changes: list[Change]) -> Change:
        """All of the changes as one, with what it must carry."""
        return self.keeping(together(changes))

    def pairs(self, remedies: Iterable[Remedy[E]]) -> list[Option[E]]:
        """Two changes of different remedies that mend together: the pair that asks least, roomy before tight.

        Of each remedy the strongest is taken, and only what helps alone.
        """
        helping = []
        for change in self.strongest(remedies):
            after = self.estimate(self.keeping(change))
            if after is not None and after.shortfall < self.before.shortfall:
                helping.append(change)
        two = (pair for pair in combinations(helping, 2) if not pair[0].contradicts(pair[1]))
        ordered = sorted(two, key=lambda pair: sum(change.effort for change in pair))
        return mildest(self.kept([together(list(pair)) for pair in ordered]))


def key_of(change: Change) -> str:
    """Tells changes apart by what they set."""
    return repr(sorted(change.values.items()))


def mildest(options: Iterable[Option[E]]) -> list[Option[E]]:
    """The first with headroom, else the one that lacks it least; no more are estimated than that takes."""
    tight: list[Option[E]] = []
    for option in options:
        if option.after.roomy:
            return [option]
        tight.append(option)
    return sorted(tight, key=lambda option: option.after.shortfall)[:1]


def wanted(estimate: Estimate, details: bool) -> int:
    """Pieces of advice that are shown: all, or, beside a verdict alone, the one that mends a no."""
    return MOST_ADVICE if details else int(not estimate.ok)


def settled(found: Iterable[Option[E]], effort: int) -> bool:
    """Whether one of the options mends with headroom and asks less than `effort`: nothing beyond it comes first."""
    return any(option.after.roomy and option.change.effort < effort for option in found)


def advice_of(
    trials: Trials[E], options: Iterable[Option[E]], name: str, effect: Callable[[Option[E]], str]
) -> tuple[Advice, ...]:
    """Options as pieces of advice: what to change, what it comes to, and the command `name` that asks for it."""
    return tuple(
        Advice(
            change=option.change.words,
            effect=effect(option),
            command=command(trials.scenario, option.change.values, trials.registry.user_folders, name),
        )
        for option in options
    )
