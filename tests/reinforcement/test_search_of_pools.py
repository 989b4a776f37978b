"""How GPUs are split between those who train and those who write, and which layouts and placements they get."""

from __future__ import annotations

import numpy as np
import pytest
from cases import layouts
from msgspec.structs import replace
from reinforcement_cases import POOLS, PPO, base, resolved, sized

from xe_sizer.errors import InputError
from xe_sizer.reinforcement import rollout
from xe_sizer.reinforcement.iteration import Training, gather_s, whole_bytes
from xe_sizer.reinforcement.memory import LEFT_OVER, around_bytes, kept_bytes, stepping_bytes, trainer_ledgers
from xe_sizer.reinforcement.rollout import Beside, evaluation_s, rollout_on, rollouts_apart, written_continuously
from xe_sizer.reinforcement.search import Search, candidates, size
from xe_sizer.serving.memory import rank_weight_bytes, request_bytes, serving_memory
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.training.memory import Ledger

GIB = 2.0**30


def search(**flags: object) -> Search:
    return Search(resolved(**flags))


# Numbers of GPUs.


def test_parts_of_a_node_train_or_whole_ones() -> None:
    """1, 2, 4 or all but one of the eight of a node, or several nodes; as many as the other pool leaves."""
    open_ = search(gpus=None)
    assert open_._trainer_counts([8]) == [1, 2, 4, 7]
    assert open_._trainer_counts([4, 24]) == [1, 2, 4, 7, 8, 16]
    assert open_._trainer_counts([3]) == [1, 2]
    fixed = search(**POOLS)
    assert fixed._trainer_counts([8, 12, 16, 32]) == [4, 8, 24]
    trained = [1, 2, 4, 7, 8, 16]
    assert open_._parts_of(8, trained) == [1, 2, 4, 7]
    assert open_._parts_of(24, trained) == [8, 16]
    assert open_._parts_of(16, trained) == [8]
    assert fixed._parts_of(16, trained) == [8]
    assert fixed._parts_of(24, trained) == [16]


def test_the_split_is_that_of_the_soonest_iteration() -> None:
    """In turn the sum of both counts, at once the longer; pools that gain less than a thousandth are not larger."""
    found = sized(gpus=8, rollout__colocated=False)
    one = Search(found.reinforcement)
    trainers = one.trainers(one._trainer_counts([8]), colocated=False)
    train_s = dict(zip(trainers.counts, trainers.trained_s.tolist(), strict=True))
    sums = {8 - count: seconds + one.apart(8 - count).seconds for count, seconds in train_s.items() if count < 8}
    assert found.iteration.rollout.gpus == min(sums, key=lambda gpus: sums[gpus])
    assert found.step_s <= min(sums.values()) + 10
    assert one._split(8, train_s) == found.iteration.rollout.gpus
    assert one._split(8, {7: 1.0, 4: 1.0}) in {1, 4}
    fewest = one._split(8, {4: 0.0, 2: 0.0, 1: 0.0})
    assert fewest == 7  # more GPUs write sooner
    at_once = Search(resolved(gpus=8, rollout__asynchronous=True))
    slow = dict.fromkeys((4, 2, 1), 1e6)
    assert at_once._split(8, slow) == 4  # all take as long as the trainer, so the first of them is kept
    assert one._split(8, {}) is None


def test_trainers_are_kept_by_their_numbers_of_gpus() -> None:
    one = search(**POOLS)
    trainers = one.trainers([4, 8], colocated=False)
    assert trainers.counts == [4, 8]
    assert trainers.on(8) is not None
    assert trainers.on(8).gpus.tolist() == [8]
    assert trainers.on(3) is None
    seconds = trainers.seconds_on(4)
    assert seconds["training of the actor"] == pytest.approx(float(trainers.seconds["training of the actor"][0]))
    without = sum(value for name, value in trainers.seconds.items() if name != "training: states to the host and back")
    assert trainers.trained_s.tolist() == pytest.approx(np.asarray(without).tolist())
    actor, critic = trainers.ledgers_on(8)
    assert critic is None
    assert float(actor.peak_bytes[0]) == pytest.approx(float(trainers.training.ledgers[0].peak_bytes[1]))


OPEN = {"gpus": None, "layout__tp": None, "layout__pp": None, "layout__zero": None, "rollout__tp": None,
        "rollout__pp": None}  # fmt: skip


def test_the_fewest_gpus_on_which_all_fits() -> None:
    one = search(**OPEN, model="llama-3.1-8b")
    assert one.fewest is not None
    assert 1 < one.fewest <= 8
    best = list(one.best([one.fewest]))
    assert min(found.gpus for found in best) == one.fewest
    smaller = [count for count in one.counts if count < one.fewest]
    assert list(one.best(smaller)) == []
    found = size(one.resolved)
    assert found.gpus == one.fewest == found.minimum
    assert (found.choice.considered, found.choice.feasible) == (1, 1)
    limited = sized(**OPEN, model="llama-3.1-8b", limits__max_hours=found.hours * 0.6)
    assert limited.ok
    assert limited.gpus > found.gpus
    unmet = sized(**OPEN, model="llama-3.1-8b", limits__max_hours=1e-3, limits__max_gpus=16)
    assert unmet.gpus == found.gpus  # nothing keeps the limit: the fewest that fit are said


def test_what_fits_nowhere_is_the_nearest() -> None:
    large = {"model": "llama-3.1-70b", "gpus": 8, "rollout__tp": 8}
    turns = sized(**large)
    assert not turns.fits
    assert turns.choice.feasible == 0
    assert turns.iteration.colocated
    pools = sized(**{**large, "gpus": 16}, rollout__colocated=False)
    assert (pools.iteration.rollout.gpus, pools.iteration.trainer_gpus) == (8, 8)
    alone = sized(**{**large, "gpus": 9}, rollout__gpus=8)
    assert (alone.iteration.rollout.gpus, alone.iteration.trainer_gpus, alone.fits) == (8, 1, False)
    with pytest.raises(
        InputError, match="no replica that generates responses is possible on 4 GPUs with tp 8, pp 1, dp 1"
    ):
        sized(gpus=4, rollout__tp=8)


def test_every_way_and_number_is_a_candidate_of_a_plan() -> None:
    found = candidates(resolved(gpus=None, limits__max_gpus=16))
    assert found.complete
    ways = {(one.gpus, one.colocated) for one in found.sized}
    assert {(8, True), (8, False)} <= ways
    assert [one.gpus for one in found.sized] == sorted(one.gpus for one in found.sized)
    assert {one.minimum for one in found.sized} == {min(gpus for gpus, _ in ways)}
    assert 0 < found.feasible <= found.considered


# Memory of both on one card.


def test_a_trainer_fits_beside_the_smallest_engine() -> None:
    """Its steps beside the engine asleep; its states, its process and the engine awake; with a headroom."""
    one = Search(base("critic").reinforcement)
    shapes = layouts(dp=8, micro_batch=[1, 2, 4, 8, 16])
    card = one.resolved.actor.server.accelerator.memory_bytes
    kept = kept_bytes(one.resolved, shapes)
    stepping = stepping_bytes(trainer_ledgers(one.resolved, shapes), kept)
    awake, asleep = (float(side[0]) for side in one.smallest_replicas(shapes.gpus))
    between = float(kept[0][0] + kept[1][0] + around_bytes(one.resolved.actor, shapes)[0])
    assert min(awake, asleep) > 0
    for headroom in (0.0, card - between - awake, card - float(stepping[1]) - asleep):
        expected = (stepping <= card - headroom - asleep) & (between + awake <= card - headroom)
        assert one.fits(shapes, True, headroom).tolist() == expected.tolist()
        apart = (stepping <= card - headroom) & (between <= card - headroom)
        assert one.fits(shapes, False, headroom).tolist() == apart.tolist()


def test_a_trainer_leaves_an_engine_the_share_that_somebody_gave_it() -> None:
    """Half of the card awake: beside it there is room for its states up to the other half, less the headroom."""
    one = Search(resolved(**PPO, rollout__gpu_memory_utilization=0.5))
    shapes = layouts(dp=8, micro_batch=1)
    card = one.resolved.actor.server.accelerator.memory_bytes
    kept = kept_bytes(one.resolved, shapes)
    between = float(kept[0][0] + kept[1][0] + around_bytes(one.resolved.actor, shapes)[0])
    room = card - between - float(one.smallest_replicas(shapes.gpus)[0][0])
    assert float(stepping_bytes(trainer_ledgers(one.resolved, shapes), kept)[0]) < card - room - 10 * GIB
    assert [one.fits(shapes, True, room - more).tolist() for more in (1e6, -1e6)] == [[True], [False]]


def test_what_the_smallest_engine_needs() -> None:
    """Weights, what a step and software take, and one answer of the longest; or the share that somebody gives it."""
    one = search(rollout__tp=None, rollout__pp=None)
    job, asked = one.resolved.writer, one.resolved.settings.asked
    placements = legal_placements(job, {}, None)
    memory = serving_memory(job, placements, asked.inputs)
    whole = request_bytes(job, placements, asked.inputs + asked.answers.longest)
    needed = np.asarray(sum(memory.fixed.values()) + whole)
    sizes = np.asarray(placements.gpus)
    awake, asleep = one.smallest_replicas(np.array([8, 1, 2]))
    assert awake.tolist() == pytest.approx([float(needed[sizes <= count].min()) for count in (8, 1, 2)])
    assert asleep[0] <= asleep[1]
    given = search(rollout__tp=None, rollout__pp=None, rollout__gpu_memory_utilization=0.5)
    assert given.smallest_replicas(np.array([8]))[0].tolist() == [pytest.approx(0.5 * memory.usable_bytes)]
    own = search(stack="trl")
    assert [side.tolist() for side in own.smallest_replicas(np.array([8, 1]))] == [[0, 0], [0, 0]]
    assert LEFT_OVER > 0


def test_a_critic_of_another_shape_must_be_spread_as_well() -> None:
    """28 layers and 24 heads of Llama 3.2 3B are not divided as the actor's 16 and 32 are."""
    one = search(**PPO, train__critic_model="llama-3.2-3b")
    shapes = layouts(tp=[1, 16, 8, 1, 1, 1], pp=[1, 1, 1, 4, 8, 4], vpp=[1, 1, 1, 1, 1, 4], dp=1)
    assert one._legal_for_critic(shapes).tolist() == [True, False, True, True, False, False]
    assert search()._legal_for_critic(shapes).tolist() == [True] * 6


def test_weights_of_the_trainer_come_together_for_writing() -> None:
    """Whole, where nothing is sharded; once; or layer by layer, two at a time, in every step."""
    whole, sharded = layouts(dp=8), layouts(dp=8, zero=3)
    own, engine = search(stack="trl"), search()
    bytes_ = whole_bytes(own.resolved.actor)
    layer = (2 * bytes_ / 16, float(gather_s(own.resolved.actor, sharded)[0]))
    assert list(own._gatherings(whole)) == [(0, 0)]
    usual = own.resolved.settings.defaults.gathers
    assert list(own._gatherings(sharded)) == ([(bytes_, 0), layer] if usual == "once" else [layer])
    assert list(engine._gatherings(sharded)) == [(bytes_, 0)]
    assert len(list(engine._gatherings(layouts(tp=2, dp=4)))) == 1
    assert list(engine._gatherings(layouts(dp=8, zero=2))) == [(0, 0)]


# Placements of the replicas.


def test_the_best_placement_holds_an_answer_is_soonest_and_smallest() -> None:
    room, seconds = np.array([0.5, 3.0, 8.0, 9.0]), np.array([1.0, 5.0, 4.0, 4.0])
    gpus = np.array([1.0, 1.0, 4.0, 2.0])
    assert rollout._best(room, seconds, gpus) == 3
    assert rollout._best(room, seconds, gpus, np.array([True, True, False, False])) == 1
    assert rollout._best(room, seconds, gpus, np.zeros(4, dtype=bool)) == 3
    assert rollout._best(np.array([0.5, 0.9, 0.2]), seconds[:3], gpus[:3]) == 1
    assert rollout._best(np.array([1.0, 0.9]), np.array([9.0, 1.0]), gpus[:2]) == 0


def test_replicas_on_numbers_of_gpus_are_each_as_alone() -> None:
    one = resolved(rollout__tp=None, rollout__pp=None)
    found = rollouts_apart(one, [2, 4, 8], 0.9)
    assert list(found) == [2, 4, 8]
    for gpus, many in found.items():
        alone = rollout_on(one, gpus, 0.9, Beside())
        assert alone is not None
        assert many.seconds == pytest.approx(alone.seconds)
        assert many.replicas * int(many.placement.gpus[0]) == gpus
        assert (many.room, many.gpus, many.share) == (pytest.approx(alone.room), gpus, 0.9)
        assert many.peak_bytes == pytest.approx(0.9 * many.memory.usable_bytes)
        assert [size.tolist() for size in (many.placement.tp, many.placement.pp)] == [
            size.tolist() for size in (alone.placement.tp, alone.placement.pp)
        ]
    assert rollouts_apart(resolved(rollout__tp=4), [2], 0.9) == {}
    assert rollout_on(resolved(rollout__tp=4), 2, 0.9, Beside()) is None


def test_what_an_engine_cannot_do_without() -> None:
    """Its parts and one answer of the longest; of its share all, where somebody gave it that."""
    one = resolved()
    found = rollout_on(one, 8, 0.5, Beside(taken_bytes=7 * GIB))
    assert found is not None
    asked = one.settings.asked
    whole = request_bytes(found.job, found.placement, asked.inputs + asked.answers.longest)
    fixed = sum(float(np.max(size)) for size in found.memory.fixed.values())
    assert found.least_bytes == pytest.approx(fixed + float(whole.max()))
    assert found.peak_bytes == pytest.approx(7 * GIB + 0.5 * found.memory.usable_bytes)
    given = rollout_on(resolved(rollout__gpu_memory_utilization=0.5), 8, 0.5, Beside())
    assert given is not None
    assert given.least_bytes == given.peak_bytes == pytest.approx(0.5 * given.memory.usable_bytes)
    none = rollout_on(one, 8, 0.02, Beside())
    assert none is not None
    assert none.room < 1
    assert none.peak_bytes == pytest.approx(none.least_bytes)


def test_an_engine_is_split_so_far_that_the_trainer_can_step_beside_it_asleep() -> None:
    one = resolved(rollout__tp=None, rollout__pp=None, rollout__sleep="cache")
    free = rollout_on(one, 8, 0.5, Beside())
    assert free is not None
    asleep = [rollout.asleep_bytes(one.writer, legal_placements(one.writer, {}, 8)[place : place + 1], "cache", 0.5)
              for place in range(len(legal_placements(one.writer, {}, 8)))]  # fmt: skip
    least = min(float(size[0]) for size in asleep)
    tight = rollout_on(one, 8, 0.5, Beside(asleep_room_bytes=least))
    assert tight is not None
    assert float(rollout.asleep_bytes(tight.job, tight.placement, "cache", 0.5)[0]) == pytest.approx(least)


def test_what_the_trainer_steps_with_leaves_an_engine_asleep_its_room() -> None:
    """A peak that leaves room for the smallest of all engines asleep alone, and one that leaves room for any."""
    one = Search(resolved(rollout__tp=None, rollout__pp=None, rollout__sleep="cache"))
    every, shape = legal_placements(one.resolved.writer, {}, 8), layouts(dp=8)
    sizes = sorted({round(float(size)) for size in rollout.asleep_bytes(one.resolved.writer, every, "cache", 0.5)})
    assert len(sizes) > 1

    def asleep(room: float) -> float:
        peak = np.full((1, 1, 1), one.trainer_room_bytes - room)
        found = one._beside(Training(one.resolved, shape), 0, (Ledger({"all": peak}, np.zeros(1)), None))
        assert found is not None
        return float(rollout.asleep_bytes(found.job, found.placement, "cache", 0.5)[0])

    assert asleep((sizes[0] + sizes[1]) / 2) == pytest.approx(sizes[0], abs=1)
    assert asleep(sizes[-1] + GIB) > sizes[0] + 1


def test_the_trainer_itself_writes_in_the_room_beside_its_states() -> None:
    """Room for one answer more with each of its caches; whole weights, no more than there are, stand beside."""
    one = resolved(stack="trl")
    plain, taken = (rollout_on(one, 8, 0.3, Beside(taken_bytes=size)) for size in (0.0, 10 * GIB))
    assert plain is not None
    assert taken is not None
    each = 10 * GIB / (plain.room - taken.room)
    own = float(rank_weight_bytes(plain.job.model, plain.job.scheme, plain.placement)[0])
    gathered = rollout_on(one, 8, 0.3, Beside(gathered_bytes=own / 2, step_s=0.25))
    more = rollout_on(one, 8, 0.3, Beside(gathered_bytes=9 * own))
    assert gathered is not None
    assert more is not None
    assert plain.room - gathered.room == pytest.approx(own / 2 / each)
    assert plain.room - more.room == pytest.approx(own / each)
    assert gathered.step_gather_s == 0.25
    assert gathered.seconds > plain.seconds
    assert gathered.least_bytes - plain.least_bytes == pytest.approx(own / 2)
    assert plain.peak_bytes == pytest.approx(plain.least_bytes + (64 - 1) * each)
    assert taken.peak_bytes - plain.peak_bytes == pytest.approx(10 * GIB)
    limit = resolved(stack="trl", rollout__max_sequences=5)
    found = rollout_on(limit, 8, 0.3, Beside())
    assert found is not None
    assert found.room == 5
    none = rollout_on(one, 8, 0.3, Beside(taken_bytes=90 * GIB))
    assert none is not None
    assert none.room == 0


def test_an_evaluation_is_a_rollout_of_its_samples() -> None:
    """One answer to each of 700 samples, though answers of the training go on in the next iteration."""
    one = resolved(train__evaluate_every=10, train__evaluate_samples=700, rollout__partial=True)
    found = rollout_on(one, 8, 0.5, Beside())
    assert found is not None
    asked = replace(one.settings.asked, prompts=700, group=1, carried=False)
    alone = written_continuously(found.job, found.placement, found.replicas, np.array([found.room]), asked)
    assert evaluation_s(one, found) == pytest.approx(float(alone.total_s[0]))
    assert evaluation_s(resolved(), found) == 0
