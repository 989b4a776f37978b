"""Who stands on the servers of a cluster over time, and how a job is run between those before it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from xe_sizer.immutable import Immutable
from xe_sizer.result.calendar import Session

# What stands on the servers of a cluster over time.

Spans = Sequence[tuple[float, float]]
Blocks = tuple[int, ...]
"""GPUs that stand together in one server, the larger first."""


def blocks_of(gpus: int, node: int) -> Blocks:
    """GPUs as servers that they fill, and what is left."""
    whole, rest = divmod(gpus, node)
    return (node,) * whole + ((rest,) if rest else ())


@lru_cache(maxsize=100_000)
def holds(blocks: Blocks, bins: Blocks) -> bool:
    """Whether servers of so many GPUs hold the blocks, each inside one: the largest first, where it fits best."""
    if sum(blocks) > sum(bins):
        return False
    free = sorted(bins)
    for block in blocks:
        place = bisect_left(free, block)
        if place == len(free):
            return False
        left = free.pop(place) - block
        free.insert(bisect_left(free, left), left)
    return True


class Occupancy:
    """Which blocks stand on the servers at any time up to an end [s]."""

    def __init__(self, bins: Blocks, end_s: float) -> None:
        self.bins = bins
        self.end_s = end_s
        self.edges = [0.0]  # where a segment begins
        self.blocks: list[Blocks] = [()]  # in each segment, the larger first

    def _cut(self, at_s: float) -> int:
        """The segment that begins at a time, which is cut there."""
        place = bisect_left(self.edges, at_s)
        if place == len(self.edges) or self.edges[place] != at_s:
            self.edges.insert(place, at_s)
            self.blocks.insert(place, self.blocks[place - 1])
        return place

    def _change(self, start_s: float, end_s: float, make: Callable[[Blocks], Blocks]) -> None:
        if end_s <= start_s:
            return
        first = self._cut(start_s)
        last = self._cut(end_s) if end_s < self.end_s else len(self.edges)
        for place in range(first, last):
            self.blocks[place] = make(self.blocks[place])

    def put(self, start_s: float, end_s: float, blocks: Blocks) -> None:
        self._change(start_s, end_s, lambda held: together(held, blocks))

    def take(self, start_s: float, end_s: float, blocks: Blocks) -> None:
        self._change(start_s, end_s, lambda held: _without(held, blocks))

    def takes(self, standing: Blocks, more: Blocks) -> bool:
        """Whether the servers have room for more blocks beside those that stand there."""
        return holds(together(standing, more), self.bins)

    def segments(self, start_s: float, end_s: float) -> Iterator[tuple[float, float, Blocks]]:
        """Parts of a span in which the same stands on the servers."""
        place = bisect_right(self.edges, start_s) - 1
        while place < len(self.edges) and self.edges[place] < end_s:
            until = self.edges[place + 1] if place + 1 < len(self.edges) else self.end_s
            yield max(self.edges[place], start_s), min(until, end_s), self.blocks[place]
            place += 1


@lru_cache(maxsize=100_000)
def together(held: Blocks, more: Blocks) -> Blocks:
    return tuple(sorted((*held, *more), reverse=True))


def _without(held: Blocks, less: Blocks) -> Blocks:
    left = list(held)
    for block in less:
        left.remove(block)
    return tuple(left)


# A job between those before it.


class Way(Immutable):
    """A job on a number of GPUs, all its work at once [s]. batch : its global batch, the same in all its sessions"""

    gpus: int
    batch: int
    blocks: Blocks
    total_s: float
    start_s: float
    resume_s: float
    save_s: float


class Played(Immutable):
    """The sessions of a job, and when it is done; None where it is not."""

    sessions: tuple[Session, ...]
    finish_s: float | None

    @property
    def key(self) -> float:
        return math.inf if self.finish_s is None else self.finish_s


class _Past(Immutable):
    """Sessions of a job so far, the last one first."""

    before: _Past | None
    session: Session


class _State(Immutable):
    """How far a job can be by now in one way: `work` is its share of the whole, less what was lost [-].

    past : its sessions before; since_s, lost_s : of the session that it is in, None where it is in none [s]
    """

    work: float
    past: _Past | None = None
    since_s: float | None = None
    lost_s: float = 0.0


_UNTOUCHED = _State(0.0)


class _Progress:
    """How far a job can be by now.

    running : on each number of GPUs; stopped : the same, bound to the number until the window closes
    free : ran in an earlier window, and may go on with any number; factor : on the job's times
    """

    def __init__(self, ways: Sequence[Way], factor: float) -> None:
        self.ways = ways
        self.factor = factor
        self.running: list[_State | None] = [None] * len(ways)
        self.stopped: list[_State | None] = [None] * len(ways)
        self.free: _State | None = None

    def close(self, at_s: float) -> None:
        """A window closes: whatever runs may stop there, and take another number in the next one."""
        halted = (self._halted(place, at_s) for place in range(len(self.ways)))
        self.free = _furthest(self.free, *halted, *self.stopped)
        self.stopped = [None] * len(self.ways)

    def leave(self) -> None:
        """Nothing runs until the next window opens."""
        self.running = [None] * len(self.ways)

    def step(self, start_s: float, until_s: float, fits: Callable[[Way], bool]) -> Played | None:
        """Go on through a time in which the same GPUs are free; the whole run where it is done in it."""
        done: tuple[float, int, _State] | None = None
        for place, way in enumerate(self.ways):
            if not fits(way):
                self.stopped[place] = _furthest(self.stopped[place], self._halted(place, start_s))
                self.running[place] = None
                continue
            ahead_s, state = self._soonest(place, start_s)
            if start_s + ahead_s <= until_s and (done is None or start_s + ahead_s < done[0]):
                done = start_s + ahead_s, place, state
            work = 1.0 - (ahead_s - (until_s - start_s)) / (way.total_s * self.factor)
            self.running[place] = _State(work, state.past, state.since_s, state.lost_s)
        if done is None:
            return None
        finish_s, place, state = done
        return Played(_sessions(self._ended(place, state, finish_s, 0.0)), finish_s)

    def _soonest(self, place: int, start_s: float) -> tuple[float, _State]:
        """Time until the job would be done on a number of GPUs, and from which state [s]."""
        way = self.ways[place]
        ways_there = (
            (self.running[place], 0.0), (self.stopped[place], way.resume_s), (self.free, way.resume_s),
            (_UNTOUCHED, way.start_s),
        )  # fmt: skip
        ahead_s, state, lost_s = min(
            (((lost_s + (1.0 - state.work) * way.total_s) * self.factor, state, lost_s * self.factor)
             for state, lost_s in ways_there if state is not None),
            key=lambda one: one[0],
        )  # fmt: skip
        return ahead_s, state if state.since_s is not None else _State(state.work, state.past, start_s, lost_s)

    def _halted(self, place: int, at_s: float) -> _State | None:
        """What runs on a number of GPUs, stopped with a checkpoint that is saved by then."""
        state, way = self.running[place], self.ways[place]
        if state is None:
            return None
        work = state.work - way.save_s / way.total_s
        return _State(work, self._ended(place, state, at_s, way.save_s * self.factor))

    def _ended(self, place: int, state: _State, at_s: float, save_s: float) -> _Past:
        assert state.since_s is not None
        way, lost_s, length_s = self.ways[place], state.lost_s + save_s, at_s - state.since_s
        share = (length_s - lost_s) / (way.total_s * self.factor)
        session = Session(start_s=state.since_s, end_s=at_s, gpus=way.gpus, lost_s=lost_s, share=share)
        return _Past(state.past, session)


def _furthest(*states: _State | None) -> _State | None:
    """The state of most work that is more than none; of equal ones the first."""
    known = [state for state in states if state is not None and state.work > 0.0]
    return max(known, key=lambda state: state.work, default=None)


def _sessions(past: _Past | None) -> tuple[Session, ...]:
    found = []
    while past is not None:
        found.append(past.session)
        past = past.before
    return tuple(reversed(found))


def play(ways: Sequence[Way], spans: Spans, factor: float, held: Occupancy) -> Played:
    """Run a job in its windows so that it is done first; where it never is, so that it is furthest at the end.

        work(n, t) = max over states before t of work - lost / (factor total(n)), growing by dt / (factor total(n))
        done at the first t at which work(n, t) = 1 for any n

    Every number of GPUs n is looked at in every segment of time, so that nothing ends the job earlier that keeps n
    within a window. Of two ways to be as far, the one found with fewer GPUs stands.

    Parameters
    ----------
    ways : numbers of GPUs, ascending, with times in seconds [s]
    spans : when it may run, ascending; it may change its GPUs between two of them [s]
    factor : on the job's times [-]
    held : what stands on the servers before it

    Returns
    -------
    Played

    Source: own derivation, a dynamic programme over time.
    """
    progress, closed_s = _Progress(ways, factor), -1.0
    for begin_s, end_s in spans:
        progress.close(closed_s)
        if begin_s != closed_s:
            progress.leave()
        for start_s, until_s, blocks in held.segments(begin_s, end_s):
            done = progress.step(start_s, until_s, lambda way, blocks=blocks: held.takes(blocks, way.blocks))  # type: ignore[misc]
            if done is not None:
                return done
        closed_s = end_s
    progress.close(closed_s)
    return Played(() if progress.free is None else _sessions(progress.free.past), None)
