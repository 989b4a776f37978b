"""Phases of an iteration, each from what it is made of: seconds of its parts, and what stands on a card meanwhile."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import layouts
from msgspec.structs import replace
from reinforcement_cases import base, resolved

from xe_sizer.graph.weights import count_parameters
from xe_sizer.laws.collectives import ALL_GATHER, POINT_TO_POINT, collective_time_s, copy_time_s
from xe_sizer.reinforcement.answers import constant_answers
from xe_sizer.reinforcement.iteration import (
    Iteration,
    Training,
    actor_steps,
    broadcast_s,
    critic_pass,
    critic_steps,
    gather_s,
    hand_over_s,
    loading_s,
    offloading,
    policy_pass,
    reference_pass,
    reward_pass,
    verifier,
    waking_s,
    whole_bytes,
)
from xe_sizer.reinforcement.memory import (
    LEAST_SHARE,
    LEFT_OVER,
    around_bytes,
    asleep_bytes,
    kept_bytes,
    left_share,
    moved_bytes,
    states_bytes,
    stepping_bytes,
    trainer_ledgers,
)
from xe_sizer.reinforcement.resolved import ResolvedReinforcement
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import rank_weight_bytes, serving_memory
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.step_time import forward_pass_s

PARAMETERS = 1_235_814_400  # Llama 3.2 1B
EIGHT = layouts(dp=[8, 4], micro_batch=[1, 2])


def training(way: str = "turns", **settings: object) -> Training:
    """The trainer's phases on eight GPUs and on four, with settings changed."""
    one = base(way).reinforcement
    return Training(replace(one, settings=replace(one.settings, **settings)), EIGHT)


def with_defaults(one: Training, **changes: object) -> Training:
    settings = one.resolved.settings
    defaults = msgspec.structs.replace(settings.defaults, **changes)
    return replace(one, resolved=replace(one.resolved, settings=replace(settings, defaults=defaults)))


# Parts of the trainer's phases.


def test_optimizer_steps_of_an_iteration_are_its_answers_over_the_batch() -> None:
    """512 answers: one step of all on 8 or 4 replicas; batches of 64 are 8 steps, twice over with two updates."""
    one = training()
    assert one.steps.tolist() == [512 / 8, 512 / 8]  # a micro-batch on each replica, accumulated nowhere
    settings = one.resolved.settings
    assert settings.steps(64).tolist() == 8
    assert settings.steps([64, 100, 1024]).tolist() == [8, 6, 1]
    assert replace(settings, updates=2).steps(64) == 16
    assert (settings.trained, replace(settings, kept=0.5).trained) == (512, 256)
    assert actor_steps(one).tolist() == pytest.approx((one.steps * one.actor.step_s).tolist())
    critic = training("critic")
    assert critic.critic is not None
    assert critic_steps(critic).tolist() == pytest.approx((critic.steps * critic.critic.step_s).tolist())
    assert critic_steps(one).tolist() == [0, 0]


def test_forwards_pass_every_answer_once() -> None:
    """Policy, reference and critic what is trained on, the reward model all that is written."""
    one = training("critic", kept=0.5)
    assert policy_pass(one).tolist() == pytest.approx(forward_pass_s(one.actor.evaluation, 256.0).tolist())
    assert one.critic is not None
    assert critic_pass(one).tolist() == pytest.approx(forward_pass_s(one.critic.evaluation, 256.0).tolist())
    for made, companion, answers in (
        (reference_pass(one), one.resolved.reference, 256.0),
        (reward_pass(one), one.resolved.reward, 512.0),
    ):
        assert companion is not None
        evaluation = Evaluation(one.resolved.actor.beside(companion), EIGHT)
        assert made.tolist() == pytest.approx(forward_pass_s(evaluation, answers).tolist())
    plain = training()
    assert critic_pass(plain).tolist() == reward_pass(plain).tolist() == [0, 0]


def test_models_that_wait_in_host_memory_come_over_the_bus_for_their_pass() -> None:
    one = training("critic")
    waiting = with_defaults(one, frozen_offload=True)
    assert one.resolved.reference is not None
    job = one.resolved.actor.beside(one.resolved.reference)
    copied = copy_time_s(states_bytes(job, EIGHT), job.server.pcie_bytes_per_s)
    assert np.all(copied > 0)
    assert (reference_pass(waiting) - reference_pass(one)).tolist() == pytest.approx(copied.tolist())
    off = replace(one.resolved, reference=replace(one.resolved.reference, copies=0))
    shared = [with_defaults(replace(one, resolved=off), frozen_offload=way) for way in (True, False)]
    assert reference_pass(shared[0]).tolist() == reference_pass(shared[1]).tolist()
    assert replace(one.resolved.settings, offloads=("params",)).frozen_offload


@pytest.mark.parametrize(
    ("way", "steps", "own", "again"),
    [
        ("always", 1, False, 1), ("always", 8, True, 1), ("never", 8, False, 0), ("as-needed", 1, True, 0),
        ("as-needed", 8, True, 1), ("as-needed", 1, False, 1),
    ],
)  # fmt: skip
def test_the_trainer_computes_log_probabilities_again(way: str, steps: int, own: bool, again: int) -> None:
    """As the stack does; as needed: where an engine of its own wrote them, or several steps learn from them."""
    one = with_defaults(training("itself" if own else "turns"), recomputes=way)
    batch = 512 // steps
    made = replace(one, layouts=layouts(dp=8, micro_batch=1, grad_accum=batch // 8))
    assert made.steps.tolist() == [steps]
    assert made.recomputed.tolist() == [again]
    silent = replace(made.resolved.settings.asked, answers=constant_answers(0.0))
    none = replace(made.resolved, settings=replace(made.resolved.settings, asked=silent))
    assert replace(made, resolved=none).recomputed.tolist() == [0]


@pytest.mark.parametrize(("workers", "rounds"), [(None, [8, 16]), (100, [6, 6]), (512, [1, 1]), (511, [2, 2])])
def test_processors_rate_answers_in_rounds(workers: int | None, rounds: list[int]) -> None:
    """512 answers; eight processes beside each GPU where nobody says how many."""
    assert verifier(training(verifier_s=1.5, workers=workers)).tolist() == [1.5 * count for count in rounds]


def test_states_go_to_the_host_and_come_back() -> None:
    one = training("critic", offloads=("optimizer", "params"))
    critic = one.resolved.critic
    assert critic is not None
    moved = sum(moved_bytes(job, EIGHT, ("optimizer", "params")) for job in (one.resolved.actor, critic))
    bus = one.resolved.actor.server.pcie_bytes_per_s
    assert offloading(one).tolist() == pytest.approx((2 * copy_time_s(moved, bus)).tolist())
    assert offloading(training("critic", offloads=())).tolist() == [0, 0]
    adam = moved_bytes(one.resolved.actor, EIGHT, ("optimizer",))
    both = moved_bytes(one.resolved.actor, EIGHT, ("optimizer", "params"))
    assert np.all((adam > 0) & (adam < both))
    # Reference and reward model stay in 16 bit, the latter with a row for its value.
    copies = 2 * PARAMETERS + 2 * (PARAMETERS + 2048)
    assert (states_bytes(one.resolved.actor, EIGHT) - both).tolist() == pytest.approx([copies] * 2)


# Weight synchronisation.


def test_weights_come_together_from_all_ranks_that_share_them() -> None:
    """All-gather of 2 bytes a parameter over tp x pp, and over the ranks of ZeRO-3."""
    job = base().reinforcement.actor
    assert whole_bytes(job) == 2 * PARAMETERS == 2 * count_parameters(job.model).total
    assert whole_bytes(job, 4.0) == 4 * PARAMETERS
    shapes = layouts(tp=[1, 2, 2, 1, 1], pp=[1, 1, 2, 1, 1], dp=[8, 4, 2, 8, 16], zero=[0, 0, 0, 3, 3])
    spread = np.array([1, 2, 4, 8, 16])
    expected = collective_time_s(ALL_GATHER, 2.0 * PARAMETERS, spread, np.minimum(spread, 8), job.network)
    assert gather_s(job, shapes).tolist() == pytest.approx(np.asarray(expected).tolist())
    assert gather_s(job, shapes)[0] == 0 < gather_s(job, shapes)[1]


def test_weights_go_to_the_other_pool_over_one_link() -> None:
    """Inside a node where both pools share it, else out of it."""
    job = base().reinforcement.actor
    for gpus, per_node in ((4, 2), (8, 1)):
        expected = collective_time_s(POINT_TO_POINT, 2.0 * PARAMETERS, 2, per_node, job.network)
        assert broadcast_s(job, layouts(dp=4), gpus).tolist() == pytest.approx([float(np.asarray(expected))])


def test_an_engine_loads_and_wakes() -> None:
    """One read and one write of a rank's weights on the card; twice over the bus where they waited in the host."""
    rollout = base().iteration.rollout
    job, two = rollout.job, ReplicaLayouts.of(tp=[1, 2])
    held = rank_weight_bytes(job.model, job.scheme, two)
    assert loading_s(job, two).tolist() == pytest.approx((2 * held / job.device.bandwidth_bytes_per_s).tolist())
    woken = copy_time_s(2 * held, job.server.pcie_bytes_per_s)
    assert waking_s(job, two, "weights-to-host").tolist() == pytest.approx(np.asarray(woken).tolist())
    assert waking_s(job, two, "weights-dropped").tolist() == [0, 0]


def iteration(way: str, **changes: object) -> Iteration:
    """An iteration of a base case that computes all anew."""
    return replace(base(way).iteration, **changes)


def settled(one: Iteration, **settings: object) -> Iteration:
    return replace(one, resolved=replace(one.resolved, settings=replace(one.resolved.settings, **settings)))


def test_new_weights_are_handed_on_while_they_come_together() -> None:
    turns, pools = iteration("turns"), iteration("pools")
    for one in (turns, pools):
        job = one.resolved.actor
        loaded = float(loading_s(one.rollout.job, one.rollout.placement)[0])
        sent = float(gather_s(job, one.layouts)[0])
        if not one.colocated:
            sent += float(broadcast_s(job, one.layouts, one.rollout.gpus)[0])
        assert one.synchronisation_s == pytest.approx(max(sent, hand_over_s(job)) + loaded)
    woken = settled(turns, sleep="weights-to-host")
    more = waking_s(turns.rollout.job, turns.rollout.placement, "weights-to-host")
    assert woken.synchronisation_s - turns.synchronisation_s == pytest.approx(float(more[0]))
    own = iteration("itself", layouts=layouts(dp=8, zero=3))
    assert own.synchronisation_s == pytest.approx(float(gather_s(own.resolved.actor, own.layouts)[0]))
    assert replace(own, rollout=replace(own.rollout, step_gather_s=0.1)).synchronisation_s == 0


# What the phases of both pools come to.

SECONDS = {"log-probabilities of the policy": 2.0, "log-probabilities of the reference": 3.0,
           "log-probabilities: values of the critic": 0.0, "reward model": 5.0, "reward: verifier": 7.0,
           "training of the actor": 11.0, "training of the critic": 13.0,
           "training: states to the host and back": 17.0}  # fmt: skip


def timed(way: str, rollout_s: float, waiting: float = 0.0) -> Iteration:
    """An iteration whose trainer takes 41 s but for copies to the host, and its replicas so many."""
    one = iteration(way, trained_s=SECONDS)
    sides = {"prompts_s": 0.0, "full_s": rollout_s - 1, "tail_s": 1.0, "running": 1.0, "even_s": rollout_s - waiting}
    writing = replace(one.rollout.writing, **{name: np.array([size]) for name, size in sides.items()})
    return replace(one, rollout=replace(one.rollout, writing=writing))


def test_phases_are_the_sums_of_their_parts() -> None:
    """States go to the host and back only where one card does both."""
    one, overhead = timed("turns", 20.0), base().reinforcement.settings.defaults.iteration_overhead_s
    assert {name: one.phase_s[name] for name in ("rollout", "log-probabilities", "rewards", "training")} == {
        "rollout": 20, "log-probabilities": 5, "rewards": 12, "training": 41 + overhead,
    }  # fmt: skip
    assert one.seconds == pytest.approx(20 + 5 + 12 + 41 + overhead + one.synchronisation_s)
    assert one.hidden == frozenset()
    apart = timed("pools", 20.0)
    assert apart.phase_s["training"] == 24 + overhead
    assert apart.seconds == pytest.approx(20 + 5 + 12 + 24 + overhead + apart.synchronisation_s)


@pytest.mark.parametrize("rollout_s", [20.0, 38.0, 40.0, 80.0])
def test_the_shorter_of_both_pools_is_hidden_at_once_and_waits(rollout_s: float) -> None:
    one, overhead = timed("at once", rollout_s), base().reinforcement.settings.defaults.iteration_overhead_s
    trained = 5 + 12 + 24 + overhead
    whole = max(rollout_s, trained) + one.synchronisation_s
    assert one.asynchronous
    assert one.seconds == pytest.approx(whole)
    assert one.hidden == ({"rollout"} if rollout_s < trained else {"log-probabilities", "rewards", "training"})
    trainer, writer = max(rollout_s - trained, 0) / whole, max(trained - rollout_s, 0) / whole
    assert one.idle_shares == pytest.approx((trainer, writer), abs=1e-12)
    assert one.idle_share == pytest.approx((trainer * 8 + writer * 8) / 16)


def test_pools_that_take_turns_wait_for_each_other() -> None:
    """And replicas for the longest answers: 4 s of 20 on half of the GPUs."""
    one, overhead = timed("pools", 20.0, waiting=4.0), base().reinforcement.settings.defaults.iteration_overhead_s
    trained, whole = 5 + 12 + 24 + overhead, one.seconds
    assert one.idle_shares == pytest.approx((20 / whole, trained / whole))
    assert one.idle_share == pytest.approx((20 * 8 + trained * 8 + 4 * 8) / whole / 16)
    assert (one.gpus, one.trainer_gpus) == (16, 8)
    both = timed("turns", 20.0, waiting=4.0)
    assert both.idle_shares == (0, 0)
    assert both.idle_share == pytest.approx(4 / both.seconds)
    assert both.gpus == both.trainer_gpus == 8
    assert not timed("at once", 20.0).colocated
    assert not settled(timed("at once", 20.0), staleness=0).asynchronous


# Memory of the phases.


def test_what_stands_on_a_card_in_each_phase() -> None:
    one = iteration("critic")
    assert one.resolved.critic is not None
    actor, critic = (float(side[0]) for side in kept_bytes(one.resolved, one.layouts))
    around = float(around_bytes(one.resolved.actor, one.layouts)[0])
    asleep = float(
        asleep_bytes(one.rollout.job, one.rollout.placement, one.resolved.settings.sleep, one.rollout.share)[0]
    )
    assert min(actor, critic, around, asleep) > 0
    assert one.kept_bytes == pytest.approx(actor + critic + around)
    assert one.asleep_bytes == pytest.approx(asleep)
    assert one.beside_bytes == pytest.approx((critic + asleep, actor + asleep))
    ledgers = trainer_ledgers(one.resolved, one.layouts)
    assert ledgers[1] is not None
    stepping = max(float(ledgers[0].peak_bytes[0]) + critic, float(ledgers[1].peak_bytes[0]) + actor)
    peaks = one.peaks
    assert peaks["training"] == pytest.approx(stepping + asleep)
    passing = one.passing_bytes
    for phase in ("log-probabilities", "rewards"):
        assert peaks[phase] == pytest.approx(actor + critic + around + asleep + sum(passing[phase].values()))
    assert passing["log-probabilities"]["logits and loss"] > 0
    assert peaks["rollout"] == one.rollout.peak_bytes
    assert peaks["weight synchronisation"] == max(actor + critic + around + asleep, peaks["rollout"])
    least = actor + critic + around + one.rollout.least_bytes
    assert one.needed_bytes == pytest.approx(min(least, peaks["rollout"]))
    assert replace(one, rollout=replace(one.rollout, peak_bytes=1.0)).needed_bytes == 1.0


def test_the_fullest_stage_of_a_pipeline_decides_what_is_kept() -> None:
    """The first of three stages has the tables, the last the head, of Llama 3.2 1B the same: more than the middle."""
    job = base().reinforcement.actor
    staged = layouts(pp=4, dp=2)
    ledger = trainer_ledgers(base().reinforcement, staged)[0]
    states = states_bytes(job, staged)
    even = states_bytes(job, layouts(dp=2)) / 4
    assert states[0] > even[0]
    around = sum(ledger.components[name] for name in ("CUDA context", "NCCL buffers", "library workspaces"))
    assert around_bytes(job, staged).tolist() == pytest.approx(np.asarray(around).max(axis=(0, 1)).tolist())


def test_on_cards_of_its_own_an_engine_leaves_the_trainer_alone() -> None:
    one = iteration("pools")
    assert one.asleep_bytes == 0
    assert one.peaks["weight synchronisation"] == one.peaks["rewards"] == pytest.approx(one.kept_bytes)
    assert one.needed_bytes == min(one.rollout.least_bytes, one.rollout.peak_bytes)
    assert iteration("itself").asleep_bytes == 0  # there is no engine


def test_the_larger_of_both_steps_decides() -> None:
    """The step of the actor beside the critic's states, or the critic's beside the actor's."""
    one = iteration("critic")
    actor, critic = trainer_ledgers(one.resolved, EIGHT)
    assert critic is not None
    gib = np.full(2, 2.0**30)
    for kept in ((gib, 90 * gib), (90 * gib, gib)):
        expected = np.maximum(actor.peak_bytes + kept[1], critic.peak_bytes + kept[0])
        assert stepping_bytes((actor, critic), kept).tolist() == expected.tolist()
    assert stepping_bytes((actor, None), (gib, 0 * gib)).tolist() == actor.peak_bytes.tolist()


def test_an_engine_asleep_keeps_what_it_does_not_give_back() -> None:
    rollout = base().iteration.rollout
    job, two = rollout.job, ReplicaLayouts.of(tp=[1, 2])
    memory = serving_memory(job, two)
    dropped, cache, awake = (asleep_bytes(job, two, how, 0.4) for how in ("weights-dropped", "cache", "none"))
    assert (cache - dropped).tolist() == pytest.approx((memory.fixed["weights"] * np.ones(2)).tolist())
    assert awake.tolist() == pytest.approx([0.4 * memory.usable_bytes] * 2)
    assert dropped.tolist() == pytest.approx((memory.beside_tensors + memory.fixed["CUDA graphs"]).tolist())
    assert np.all(dropped > memory.beside_tensors)


def asked_share(one: ResolvedReinforcement, share: float | None) -> ResolvedReinforcement:
    return replace(one, settings=replace(one.settings, asked_share=share))


def test_an_engine_takes_what_the_trainer_leaves() -> None:
    """All but 4 % of the card, no more than on a card of its own; as asked where somebody does."""
    one = base().reinforcement
    card = one.writer.server.accelerator.memory_bytes
    assert left_share(one, 0.3 * card) == pytest.approx(1 - 0.3 - LEFT_OVER)
    assert left_share(one, 0.01 * card) == one.writer.engine.memory.utilization
    assert left_share(one, 0.99 * card) == LEAST_SHARE
    assert left_share(asked_share(one, 0.25), 0.99 * card) == 0.25
    assert resolved(stack="verl").settings.share(colocated=True) == 0.5
    assert resolved(stack="verl").settings.share(colocated=False) is None
