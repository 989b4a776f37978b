"""A resolved reinforcement-learning scenario to its estimate: how many GPUs, split how, in which layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.search import Search
from xe_sizer.training.choose import DOES_NOT_FIT, FITS, Choice, choose
from xe_sizer.training.fewest import Fewest
from xe_sizer.training.space import LARGEST_PLAN, legal_layouts

if TYPE_CHECKING:
    from xe_sizer.reinforcement.iteration import Iteration
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement

FIRST_TRIED = 4  # numbers of GPUs that a search for the fewest looks at first, and twice as many each time after


def size(resolved: ResolvedReinforcement, fewest: bool = True) -> ReinforcementEstimate:
    """Choose the number of GPUs (where it is open), their split and the layouts.

    fewest : look for the fewest GPUs that fit, also where their number is given

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    search = Search(resolved)
    gpus = resolved.trainer.gpus
    smallest = _fewest(search) if fewest or gpus is None else None
    if gpus is not None:
        return _on(search, gpus, smallest)
    if smallest is None:
        node = resolved.actor.server.accelerators
        return _on(search, max(count for count in _counts(resolved) if count <= node), None)
    first = None
    for count in _counts(resolved):
        if count < smallest:
            continue
        found = _on(search, count, smallest)
        if found.ok:
            return found
        first = first or found
    assert first is not None
    return first


def estimates(search: Search, counts: Sequence[int], fewest: int | None = None) -> Iterator[ReinforcementEstimate]:
    """The best iteration on each number of GPUs and each way to share them, estimated."""
    for one in search.best(counts):
        yield _estimate(search, one, FITS, fewest)


def _counts(resolved: ResolvedReinforcement) -> tuple[int, ...]:
    """Numbers of GPUs that are tried."""
    return resolved.trainer.gpu_numbers(max(LARGEST_PLAN, resolved.trainer.gpus or 0))


def _fewest(search: Search) -> int | None:
    """The fewest GPUs on which some way to share them fits; None where none of those tried does."""
    counts = list(_counts(search.resolved))
    size, start = FIRST_TRIED, 0
    while start < len(counts):
        found = next(search.best(counts[start : start + size]), None)
        if found is not None:
            return found.gpus
        start, size = start + size, 2 * size
    return None


def _on(search: Search, gpus: int, fewest: int | None) -> ReinforcementEstimate:
    """The best on so many GPUs; where nothing fits, what misses by least."""
    found = list(search.best([gpus]))
    if found:
        best = min(found, key=lambda one: one.seconds)
        return _estimate(search, best, FITS, fewest)
    return _estimate(search, _nearest(search, gpus), DOES_NOT_FIT, fewest)


def _nearest(search: Search, gpus: int) -> Iteration:
    """An iteration on so many GPUs that does not fit: the trainer and the replicas that need least.

    Raises InputError where no layout is legal.
    """
    resolved = search.resolved
    trainer, apart = resolved.trainer, not resolved.ways[0]
    rollout_gpus = (resolved.settings.gpus or max(gpus // 2, 1)) if apart else None
    trained = gpus - (rollout_gpus or 0)
    if trained < 1:
        message = f"'gpus' of the rollout ({rollout_gpus}) leave none of the {gpus} to train"
        hint = "'gpus' and 'nodes' count the GPUs of both; give fewer that only write answers"
        raise InputError(Problem(message, resolved.given.locate(("rollout", "gpus")), hint))
    layouts = legal_layouts(trainer.rules, (trained,))
    if not len(layouts):
        raise InputError(trainer.no_layout((trained,)))
    one = choose(trainer.job, layouts, trainer.min_headroom_bytes).layouts
    found = search.iteration(one, rollout_gpus)
    if found is None:
        raise InputError(_no_replica(resolved, rollout_gpus or gpus))
    return found


def _no_replica(resolved: ResolvedReinforcement, gpus: int) -> Problem:
    sizes = ", ".join(f"{name} {value}" for name, value in resolved.service.fixed.items())
    message = f"no replica that writes answers is possible on {gpus} GPUs" + (f" with {sizes}" if sizes else "")
    hint = "tp divides heads and stays inside a node, and a replica has no more GPUs than there are"
    return Problem(message, resolved.given.locate(("rollout", "tp")), hint)


def _estimate(search: Search, one: Iteration, rank: int, fewest: int | None) -> ReinforcementEstimate:
    resolved = search.resolved.trainer
    if not one.colocated and search.resolved.settings.asked_share is None:  # the stack's is of engines that share cards
        shown = {key: value for key, value in resolved.values.items() if key != "rollout.gpu_memory_utilization"}
        resolved = replace(resolved, values=shown)
    choice = Choice(
        job=resolved.job,
        layouts=one.layouts,
        ledger=one.ledgers[0],
        rank=rank,
        considered=1,
        feasible=int(rank < DOES_NOT_FIT),
    )
    return ReinforcementEstimate(resolved, one.gpus, choice, Fewest(resolved), one, fewest)
