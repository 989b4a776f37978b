"""Which layout the trainer gets, which placement the replicas, and how GPUs are split between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.laws.parts import computed
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.iteration import (
    LEARNING_PARTS,
    RATING_PARTS,
    REWARD_PARTS,
    TRAINING,
    Iteration,
    Training,
    gather_s,
    offloading,
    whole_bytes,
)
from xe_sizer.reinforcement.memory import (
    LEFT_OVER,
    around_bytes,
    asleep_bytes,
    kept_bytes,
    left_share,
    pass_bytes,
    passing_jobs,
    stepping_bytes,
)
from xe_sizer.reinforcement.pools import model_pool
from xe_sizer.reinforcement.rollout import Beside, rollout_on, rollouts_apart
from xe_sizer.serving.memory import request_bytes, serving_memory
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.training.estimate import DOES_NOT_FIT, FITS, Choice, MinimumGpus
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger, possible_of
from xe_sizer.training.search import Candidates, choose, frontier, onward
from xe_sizer.training.search_space import LARGEST_PLAN, layout_chunks, legal_layouts, without_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.reinforcement.pools import ModelPool
    from xe_sizer.reinforcement.resolved import Apart, ResolvedReinforcement
    from xe_sizer.reinforcement.rollout import Rollout
    from xe_sizer.training.memory import Ledger, Possible
    from xe_sizer.training.search_space import Rules

CHUNK = 1 << 14  # layouts evaluated together
FIRST_TRIED = 4  # numbers of GPUs that a search for the fewest looks at first, and twice as many each time after
SAME = 1e-3  # chosen: share of the time below which a larger pool of replicas is no gain


class Trainers(Immutable):
    """The best layout of the trainer on each number of GPUs, ascending."""

    resolved: ResolvedReinforcement
    layouts: Layouts

    @cached_property
    def training(self) -> Training:
        """What is computed of all the layouts at once."""
        return Training(self.resolved, self.layouts)

    def ledgers_on(self, gpus: int) -> tuple[Ledger, Ledger | None]:
        """Memory of the optimizer steps of actor and critic on so many GPUs, on which some layout fits."""
        place, (actor, critic) = self.counts.index(gpus), self.training.ledgers
        return actor.at(place), None if critic is None else critic.at(place)

    @cached_property
    def seconds(self) -> dict[str, Array]:
        """What the parts of the trainer take, shape (layout,) [s]."""
        parts = (*RATING_PARTS, *REWARD_PARTS, *LEARNING_PARTS, offloading)
        return computed(parts, self.training)

    @property
    def trained_s(self) -> Array:
        """Time of all that the trainer does but for copies to the host and the synchronisation, shape (layout,) [s]."""
        return np.asarray(sum(value for name, value in self.seconds.items() if name != offloading.name))

    def seconds_on(self, gpus: int) -> dict[str, float]:
        """The same parts on so many GPUs, on which some layout fits."""
        place = self.counts.index(gpus)
        return {name: float(value[place]) for name, value in self.seconds.items()}

    @cached_property
    def counts(self) -> list[int]:
        found: list[int] = self.layouts.gpus.tolist()
        return found

    def on(self, gpus: int) -> Layouts | None:
        """The layout on so many GPUs; None where none fits."""
        place = self.counts.index(gpus) if gpus in self.counts else None
        return None if place is None else self.layouts[place : place + 1]


@dataclass(eq=False)
class Seen:
    """How many layouts of the trainer a search has looked at, and how many of them fit [-]."""

    considered: int = 0
    feasible: int = 0


class Search(Immutable):
    """Iterations on numbers of GPUs; each part of it is computed once.

    progress : told how many layouts have been considered; every_way : as in `Rules`
    """

    resolved: ResolvedReinforcement
    every_way: bool = False
    progress: Callable[[int], None] | None = None
    known: dict[int, Rollout | None] = field(default_factory=dict)
    pools: dict[tuple[str, int], ModelPool | None] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)

    @property
    def headroom_bytes(self) -> float:
        return self.resolved.trainer.min_headroom_bytes

    @property
    def trainer_room_bytes(self) -> float:
        """What the trainer may take of a card while it steps, with all that is there beside it [bytes]."""
        return self.resolved.actor.server.accelerator.memory_bytes - self.headroom_bytes

    @cached_property
    def _replicas(self) -> tuple[Array, Array, Array]:
        """GPUs of every replica, and what it needs of a card to write one answer, and keeps asleep [bytes]."""
        job, asked, settings = self.resolved.writer, self.resolved.settings.asked, self.resolved.settings
        placements = legal_placements(job, self.resolved.replica_sizes, None)
        memory = serving_memory(job, placements, asked.inputs)
        needed = sum(memory.fixed.values()) + request_bytes(job, placements, asked.read + asked.answers.longest)
        known = settings.share(colocated=True)
        share = known or LEFT_OVER
        if known is not None:
            needed = np.maximum(needed, known * memory.usable_bytes)
        return as_array(placements.gpus), np.asarray(needed), asleep_bytes(job, placements, settings.sleep, share)

    def smallest_replicas(self, gpus: IntArray) -> tuple[Array, Array]:
        """What an engine on so many GPUs needs of a card awake, and keeps asleep, the least [bytes]."""
        if self.resolved.writer.engine.memory.grows:
            return np.zeros(len(gpus)), np.zeros(len(gpus))
        sizes, *parts = self._replicas
        counts, places = np.unique(gpus, return_inverse=True)
        awake, asleep = (
            np.array([np.min(part, where=sizes <= count, initial=np.inf) for count in counts])[places] for part in parts
        )
        return awake, asleep

    def fits(self, layouts: Layouts, colocated: bool, headroom_bytes: float) -> NDArray[np.bool_]:
        """Whether the trainer fits in all phases beside the smallest engine with such a headroom, shape (layout,)."""
        fits = np.zeros(len(layouts), dtype=bool)
        found = self._fitting(layouts, colocated, headroom_bytes)
        if found:
            fits[found.index] = True
        return fits

    def _fitting(self, layouts: Layouts, colocated: bool, headroom_bytes: float) -> Possible | None:
        """The layouts under which it does, with the memory of the actor's step; None where there are none."""
        legal = np.flatnonzero(self._legal_for_critic(layouts))
        found = possible_of(Evaluation(self.resolved.actor, layouts[legal]), headroom_bytes) if legal.size else None
        if found is None:
            return None
        ok = np.flatnonzero(self._holds_trainer(found, colocated, headroom_bytes))
        return replace(found, index=legal[found.index])[ok] if ok.size else None

    def _holds_trainer(self, found: Possible, colocated: bool, headroom_bytes: float) -> NDArray[np.bool_]:
        """Whether a card holds actor and critic in all phases beside the smallest engine, shape (possible,)."""
        resolved, layouts = self.resolved, found.evaluation.layouts
        card = resolved.actor.server.accelerator.memory_bytes
        actor_kept, critic_kept = kept_bytes(resolved, layouts)
        awake, asleep = self.smallest_replicas(layouts.gpus) if colocated else (0.0, 0.0)
        critic = None if resolved.critic is None else memory_ledger(resolved.critic, layouts)
        stepping = stepping_bytes((found.ledger, critic), (actor_kept, critic_kept))
        ok = stepping <= card - headroom_bytes - asleep
        between = actor_kept + critic_kept + around_bytes(resolved.actor, layouts)
        if resolved.settings.log_prob_micro_batch is not None:  # else a pass holds less than a step with a backward
            passing = resolved.settings.passing(layouts)
            for job in passing_jobs(resolved, policy=resolved.settings.defaults.recomputes != "never"):
                most = np.max(sum(pass_bytes(job, passing).values()), axis=0)
                ok = ok & (between + most + asleep <= card - headroom_bytes)
        return np.asarray(ok & (between + awake <= card - headroom_bytes))

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of GPUs that are tried."""
        return self.resolved.trainer.gpu_numbers(max(LARGEST_PLAN, self.resolved.gpus or 0))

    @cached_property
    def fewest(self) -> int | None:
        """The fewest GPUs on which some way to share them fits; None where none of those tried does."""
        size, start = FIRST_TRIED, 0
        while start < len(self.counts):
            found = next(self.best(self.counts[start : start + size]), None)
            if found is not None:
                return found.gpus
            start, size = start + size, 2 * size
        return None

    def trainers(self, counts: Sequence[int], colocated: bool) -> Trainers:
        """The best layout of the trainer on each number of GPUs on which one fits, those likely to fit first."""
        roomy = self._trainers(counts, colocated, self.resolved.trainer.recommended_bytes)
        missing = [count for count in counts if count not in set(roomy.gpus.tolist())]
        tight = self._trainers(missing, colocated, self.headroom_bytes)
        return Trainers(self.resolved, Layouts.joined([roomy, tight]))

    def _trainers(self, counts: Sequence[int], colocated: bool, headroom_bytes: float) -> Layouts:
        """The best layout on each of the numbers of GPUs on which one fits with such a headroom."""
        best = frontier(
            self.resolved.actor,
            layout_chunks(self.rules, counts, CHUNK),
            self.headroom_bytes,
            onward(self.progress, self.seen.considered),
            held=lambda chunk: self._fitting(chunk, colocated, headroom_bytes),
        )
        self.seen.considered += best.considered
        if not best.complete:
            raise KeyboardInterrupt
        self.seen.feasible += best.feasible
        return best.layouts

    @property
    def rules(self) -> Rules:
        return replace(self.resolved.trainer.rules, every_way=self.every_way)

    def _legal_for_critic(self, layouts: Layouts) -> NDArray[np.bool_]:
        """Whether a critic of another shape can be spread so too, shape (layout,)."""
        critic = self.resolved.critic
        if critic is None:
            return np.ones(len(layouts), dtype=bool)
        model = critic.model
        return np.asarray((model.heads % layouts.tp == 0) & (model.layers % (layouts.pp * layouts.vpp) == 0))

    def iteration(
        self, layouts: Layouts, rollout_gpus: int | None, trainers: Trainers | None = None
    ) -> Iteration | None:
        """The iteration in one layout of the trainer; the replicas share its GPUs where they have none of their own.

        trainers : that the layout is one of, where there are several
        """
        colocated = rollout_gpus is None
        gpus = int(layouts.gpus[0])
        seconds = trainers.seconds_on(gpus) if trainers else None
        training = trainers.training if trainers else Training(self.resolved, layouts)
        place = trainers.counts.index(gpus) if trainers else 0
        ledgers = trainers.ledgers_on(gpus) if trainers else training.ledgers
        rollout = self._beside(training, place, ledgers) if rollout_gpus is None else self.apart(rollout_gpus)
        if rollout is None:
            return None
        under = self.resolved.under(layouts)
        return Iteration(under, layouts, rollout, colocated, seconds, ledgers, trainers=training, place=place)

    def best(self, counts: Sequence[int]) -> Iterator[Iteration]:
        """The best iteration on each of the numbers of GPUs, ascending, for each way to share them; those that fit."""
        found = [
            one for way in self.resolved.ways for one in self._best(counts, self._in_turn if way else self._in_pools)
        ]
        yield from sorted(found, key=lambda one: one.gpus)

    def _best(
        self, counts: Sequence[int], of_a_way: Callable[[Sequence[int]], Iterator[Iteration]]
    ) -> Iterator[Iteration]:
        """The best iterations of one way to share the GPUs, with the sizes of other pools that take the least time."""
        if not self.resolved.apart:
            yield from of_a_way(counts)
            return
        left = sorted({gpus - sum(sizes) for gpus in counts for sizes in self.sizes_on(gpus)})
        inner = {one.gpus: one for one in of_a_way(left)} if left else {}
        for gpus in counts:
            tried = (self.with_others(inner.get(gpus - sum(sizes)), sizes) for sizes in self.sizes_on(gpus))
            fitting = [one for one in tried if one is not None]
            if fitting:
                yield min(fitting, key=lambda one: one.seconds)

    def sizes_on(self, gpus: int) -> list[tuple[int, ...]]:
        """GPUs of each model that has some of its own, where so many are those of all pools: as asked, else all tried.

        Open sizes are parts of a node or whole ones, and no pool of them is larger than what is left to train.
        """
        node = self.resolved.actor.server.accelerators
        inside = [count for count in range(1, node) if node % count == 0]
        open_sizes = [one for one in (*inside, *range(node, gpus, node)) if 2 * one <= gpus]
        asked = [[one.gpus] if one.gpus is not None else open_sizes for one in self.resolved.apart]
        return [sizes for sizes in itertools.product(*asked) if self._leaves_whole(gpus, gpus - sum(sizes))]

    def _leaves_whole(self, gpus: int, left: int) -> bool:
        """Whether what pools of their own leave is a part of a node or whole ones, where they are sized here."""
        node = self.resolved.actor.server.accelerators
        asked = all(one.gpus is not None for one in self.resolved.apart)
        return left > 0 and (asked or left % node == 0 or (left < node and (node % left == 0 or gpus <= node)))

    def with_others(self, one: Iteration | None, sizes: Sequence[int], *, fitting: bool = True) -> Iteration | None:
        """An iteration with models on so many GPUs of their own; None where one has no layout, or does not fit."""
        if one is None:
            return None
        pools = [self.pool(asked, count) for asked, count in zip(self.resolved.apart, sizes, strict=True)]
        found = tuple(pool for pool in pools if pool is not None)
        if len(found) < len(pools) or (fitting and not all(self._holds(pool) for pool in found)):
            return None
        return replace(one, others=found)

    def _holds(self, pool: ModelPool) -> bool:
        served = pool.served is None or pool.served.fits
        return served and pool.peak_bytes <= self.trainer_room_bytes

    def pool(self, asked: Apart, gpus: int) -> ModelPool | None:
        """A model on so many GPUs of its own; None where it has no layout there."""
        key = asked.section, gpus
        if key not in self.pools:
            trainer = self.resolved.trainer
            self.pools[key] = model_pool(self.resolved, asked, gpus, self.headroom_bytes, trainer.recommended_bytes)
        return self.pools[key]

    def _in_turn(self, counts: Sequence[int]) -> Iterator[Iteration]:
        """Answers on the GPUs that train."""
        trainers = self.trainers(counts, colocated=True)
        for gpus in trainers.counts:
            layouts = trainers.on(gpus)
            one = None if layouts is None else self.iteration(layouts, None, trainers)
            if one is not None and one.rollout.fits and one.peaks[TRAINING] <= self.trainer_room_bytes:
                yield one

    def _in_pools(self, counts: Sequence[int]) -> Iterator[Iteration]:
        """Answers on GPUs of their own: of each number of GPUs the split that takes the least time."""
        trainers = self.trainers(self._trainer_counts(counts), colocated=False)
        if not trainers.counts:
            return
        train_s = dict(zip(trainers.counts, trainers.trained_s.tolist(), strict=True))
        self._evaluate({gpus - trained for gpus in counts for trained in self._parts_of(gpus, trainers.counts)})
        for gpus in counts:
            split = self._split(gpus, train_s)
            layouts = trainers.on(gpus - split) if split else None
            if layouts is None or split is None:
                continue
            one = self.iteration(layouts, split, trainers)
            if one is not None:
                yield one

    def _trainer_counts(self, counts: Sequence[int]) -> list[int]:
        """Numbers of GPUs that may train where these are the numbers of all: parts of one node, or whole ones."""
        asked, node = self.resolved.settings.gpus, self.resolved.actor.server.accelerators
        if asked is not None:
            return sorted({count - asked for count in counts if count > asked})
        most = max(counts)
        inside = [count for count in range(1, node) if node % count == 0 or count == node - 1]
        return sorted({*(one for one in inside if one < most), *range(node, most, node)})

    def _split(self, gpus: int, train_s: Mapping[int, float]) -> int | None:
        """GPUs of all that only write answers, so that an iteration takes the least time; None: no split fits."""
        best, found = np.inf, None
        asynchronous = self.resolved.settings.staleness > 0
        for trained in self._parts_of(gpus, train_s):
            rollout, seconds = self.apart(gpus - trained), train_s[trained]
            if rollout is None or not rollout.fits:
                continue
            both = max(seconds, rollout.seconds) if asynchronous else seconds + rollout.seconds
            if both < best * (1.0 - SAME):
                best, found = both, gpus - trained
        return found

    def _parts_of(self, gpus: int, trained: Iterable[int]) -> list[int]:
        """Those of the numbers of GPUs that may train where so many are those of both pools: servers are not shared."""
        asked, node = self.resolved.settings.gpus, self.resolved.actor.server.accelerators
        if asked is not None:
            return [one for one in trained if one == gpus - asked]
        return [one for one in trained if one < gpus and (one % node == 0 or gpus <= node)]

    def apart(self, gpus: int) -> Rollout | None:
        """Replicas on GPUs of their own; None where none is possible on so many."""
        if gpus not in self.known:
            self._evaluate({gpus})
        return self.known[gpus]

    def _evaluate(self, counts: set[int]) -> None:
        """Replicas on each of the numbers of GPUs of their own; those of an engine all as one array."""
        resolved = self.resolved
        share = resolved.settings.share(colocated=False) or resolved.writer.engine.memory.utilization
        new = sorted(counts - self.known.keys())
        if resolved.writer.engine.memory.grows:
            self.known.update({gpus: rollout_on(resolved, gpus, share, Beside()) for gpus in new})
        else:
            found = rollouts_apart(resolved, new, share)
            self.known.update({gpus: found.get(gpus) for gpus in new})

    def _beside(self, training: Training, place: int, ledgers: tuple[Ledger, Ledger | None]) -> Rollout | None:
        """The replicas on the cards of the trainer in one of its layouts, whose memory the ledgers say."""
        resolved, here = self.resolved, slice(place, place + 1)
        layouts, (actor, critic) = training.layouts[here], training.kept_bytes
        asleep_room = self.trainer_room_bytes - float(stepping_bytes(ledgers, (actor[here], critic[here]))[0])
        taken = float(training.between_bytes[place])
        gpus, share, found = int(layouts.gpus[0]), left_share(resolved, taken), None
        for gathered, step_s in self._gatherings(layouts):
            one = rollout_on(resolved, gpus, share, Beside(taken, asleep_room, gathered, step_s))
            if one is not None and one.fits:
                return one
            found = found or one
        return found

    def _gatherings(self, layouts: Layouts) -> Iterator[tuple[float, float]]:
        """Bytes of the trainer's weights that are whole on a card, and what each step gathers [s]: the usual way first.

        Whole weights that do not fit come together layer by layer in every step.

        Source: DeepSpeed runtime/hybrid_engine.py (pin_parameters); TRL's ds3_gather_for_generation.
        """
        job, usual = self.resolved.actor, self.resolved.settings.defaults.gathers
        if int(layouts.zero[0]) != 3 and int(layouts.tp[0] * layouts.pp[0]) == 1:
            yield 0.0, 0.0
            return
        if usual == "once":
            yield whole_bytes(job), 0.0
        if usual == "every-step" or self.resolved.writer.engine.memory.grows:
            yield 2.0 * whole_bytes(job) / job.model.layers, float(gather_s(job, layouts)[0])


# The number of GPUs, and the estimate.


def size(resolved: ResolvedReinforcement) -> ReinforcementEstimate:
    """Choose the number of GPUs (where it is open), their split and the layouts.

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    search = Search(resolved)
    if resolved.gpus is not None:
        return _on(search, resolved.gpus)
    smallest = search.fewest
    if smallest is None:
        node = resolved.actor.server.accelerators
        return _on(search, max(count for count in search.counts if count <= node))
    first = None
    for count in search.counts:
        if count < smallest:
            continue
        found = _on(search, count)
        if found.ok:
            return found
        first = first or found
    assert first is not None
    return first


def candidates(
    resolved: ResolvedReinforcement, progress: Callable[[int], None] | None = None, every_way: bool = True
) -> Candidates:
    """The best split of every number of GPUs, for each way to share them; `every_way` as in `Rules`."""
    search, counts = Search(resolved, every_way, progress), resolved.trainer.planned_gpus
    found: list[Iteration] = []
    try:
        found += search.best(counts)
        complete = True
    except KeyboardInterrupt:
        complete = False
    fewest = min((one.gpus for one in found), default=None) if complete else None
    sized = tuple(_estimate(search, one, FITS, lambda: fewest) for one in found)
    # Numbers of GPUs that the trainer's batch rules out may do in two pools.
    split = without_groups(search.rules, counts)
    tried = tuple(count for count in counts if count not in split or any(one.gpus == count for one in found))
    trainer = replace(resolved.trainer, at_batch=None)  # its batch is that of the prompts
    return Candidates(trainer, sized, search.seen.considered, search.seen.feasible, complete, tried)


def _on(search: Search, gpus: int) -> ReinforcementEstimate:
    """The best on so many GPUs; where nothing fits, what misses by least."""
    found = list(search.best([gpus]))
    best = min(found, key=lambda one: one.seconds) if found else _nearest(search, gpus)
    return _estimate(search, best, FITS if found else DOES_NOT_FIT, lambda: search.fewest)


def _nearest(search: Search, gpus: int) -> Iteration:
    """An iteration on so many GPUs that does not fit: the trainer and the replicas that need least.

    Raises InputError where no layout is legal.
    """
    resolved = search.resolved
    trainer, apart = resolved.trainer, not resolved.ways[0]
    sizes = [one.gpus or max(gpus // (2 * len(resolved.apart) + 2), 1) for one in resolved.apart]
    left = gpus - sum(sizes)
    rollout_gpus = (resolved.settings.gpus or max(left // 2, 1)) if apart else None
    trained = left - (rollout_gpus or 0)
    if trained < 1:
        own = gpus - trained
        message = f"pools of their own take {own} GPUs and leave none of the {gpus} to train"
        if not sizes:
            message = f"'gpus' of the rollout ({rollout_gpus}) leave none of the {gpus} to train"
        hint = "'gpus' and 'nodes' count the GPUs of all pools; give fewer to those that do not train"
        section = resolved.apart[0].section if sizes else "rollout"
        raise InputError(Problem(message, resolved.scenario.locate((section, "gpus")), hint))
    layouts = legal_layouts(trainer.rules, (trained,))
    if not len(layouts):
        raise InputError(trainer.no_layout((trained,)))
    one = choose(trainer.job, layouts, trainer.min_headroom_bytes).layouts
    found = search.iteration(one, rollout_gpus)
    if found is None:
        raise InputError(_no_replica(resolved, rollout_gpus or left))
    whole = search.with_others(found, sizes, fitting=False)
    if whole is None:
        raise InputError(_no_pool(search, sizes))
    return whole


def _no_pool(search: Search, sizes: Sequence[int]) -> Problem:
    """What to say where a model has no layout on the GPUs of its own."""
    pairs = zip(search.resolved.apart, sizes, strict=True)
    asked, gpus = next((one, count) for one, count in pairs if search.pool(one, count) is None)
    given = {name: search.resolved.scenario.origin.get(f"{asked.section}.{name}") for name in ("tp", "pp", "gpus")}
    key = next((name for name, said in given.items() if said), "gpus")
    message = f"the {asked.name} has no legal layout on {gpus} GPUs of its own"
    hint = "tp divides heads, pp divides layers, and the GPUs are a multiple of tp x pp"
    return Problem(message, search.resolved.scenario.locate((asked.section, key)), hint)


def _no_replica(resolved: ResolvedReinforcement, gpus: int) -> Problem:
    sizes = ", ".join(f"{name} {value}" for name, value in resolved.replica_sizes.items())
    message = f"no replica that generates responses is possible on {gpus} GPUs" + (f" with {sizes}" if sizes else "")
    hint = "tp divides heads and stays inside a node, and a replica has no more GPUs than there are"
    return Problem(message, resolved.scenario.locate(("rollout", "tp")), hint)


def _estimate(search: Search, one: Iteration, rank: int, fewest: Callable[[], int | None]) -> ReinforcementEstimate:
    resolved = one.resolved.trainer
    if not one.colocated and one.resolved.settings.asked_share is None:  # the stack's is of engines that share cards
        shown = {key: how for key, how in resolved.origins.items() if key != "rollout.gpu_memory_utilization"}
        resolved = replace(resolved, origins=shown)
    choice = Choice(
        evaluation=Evaluation(resolved.job, one.layouts),
        ledger=one.ledgers[0],
        rank=rank,
        considered=1,
        feasible=int(rank < DOES_NOT_FIT),
    )
    return ReinforcementEstimate(resolved, one.gpus, choice, MinimumGpus(resolved), one, fewest)
