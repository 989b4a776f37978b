"""The result of an estimate: each of its figures from the phases that it sums up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace
from reinforcement_cases import base, sized

from xe_sizer.reinforcement.answers import constant_answers
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.iteration import Iteration
from xe_sizer.reinforcement.memory import around_bytes
from xe_sizer.reinforcement.summary import memory_components, summarise
from xe_sizer.scenario.limits import chance
from xe_sizer.training.memory import Ledger
from xe_sizer.training.summary import summarise as summarise_training
from xe_sizer.training.uncertainty import memory_suffices

GIB = 2.0**30


def estimate(way: str, **iteration: object) -> ReinforcementEstimate:
    """A base case whose figures are computed anew, its iteration changed."""
    one = base(way)
    return replace(one, iteration=replace(one.iteration, **iteration))


def settled(one: ReinforcementEstimate, **settings: object) -> ReinforcementEstimate:
    asked = replace(one.reinforcement, settings=replace(one.reinforcement.settings, **settings))
    return replace(one, iteration=replace(one.iteration, resolved=asked))


def rolled(way: str, **rollout: object) -> ReinforcementEstimate:
    return estimate(way, rollout=replace(base(way).iteration.rollout, **rollout))


# Figures of the iteration.


@pytest.mark.parametrize("way", ["turns", "critic", "at once"])
def test_figures_of_an_iteration(way: str) -> None:
    one = settled(estimate(way), kept=0.5, updates=3)
    found, phase_s = summarise(one).iteration, one.iteration.phase_s
    assert found is not None
    assert (found.answers, found.trained_answers, found.optimizer_steps) == (512, 256, 3)
    assert found.tokens == pytest.approx(256 * 3 * (256 + 600))
    assert found.output_tokens_per_s == pytest.approx(512 * 600 / phase_s["rollout"])
    assert found.longest_tokens == pytest.approx(float(one.reinforcement.settings.answers.expected_longest(512.0)))
    assert found.seconds.expected == pytest.approx(one.step_s)
    assert found.idle_share == one.iteration.idle_share
    assert found.sleep == ("" if way == "at once" else "weights-dropped")
    assert found.answers_at_once == 64
    silent = settled(one, asked=replace(one.reinforcement.settings.asked, answers=constant_answers(0.0)))
    nothing = summarise(silent).iteration
    assert nothing is not None
    assert nothing.output_tokens_per_s == 0


@pytest.mark.parametrize("way", ["turns", "critic", "pools", "at once"])
def test_the_useful_share_of_all_gpus(way: str) -> None:
    """FLOPs of the optimizer steps on the trainer's GPUs, over what those of both pools could do meanwhile."""
    one = estimate(way)
    time, job = summarise(one).time, one.resolved.job
    useful = one.reinforcement.steps * float(one.timeline.flops[0]) * 8
    assert time.mfu == pytest.approx(useful / (one.step_s * one.gpus * job.device.peak_flops_per_s))
    alone = summarise(replace(one, iteration=one.iteration)).time
    assert alone.hfu >= alone.mfu
    assert time.tokens_per_s_per_gpu == pytest.approx(one.tokens_per_s / one.gpus)
    assert time.samples_per_s == pytest.approx(512 / one.step_s)
    assert sum(part.share for part in time.components) == pytest.approx(1.0)
    assert all(part.seconds > 0 for part in time.components)
    assert time.steps == 100
    assert time.goodput is None


def test_recomputation_is_work_that_is_not_useful() -> None:
    """The hardware does as much more in an iteration as it does in a step of the trainer alone."""
    one = sized(layout__recompute="full")
    time, step = summarise(one).time, summarise_training(one.trainer).time
    assert time.hfu / time.mfu == pytest.approx(step.hfu / step.mfu)
    assert time.hfu > 1.2 * time.mfu


def test_what_takes_most_of_an_iteration_binds_it() -> None:
    assert summarise(estimate("turns")).time.bound == "rollout"
    parts = base("critic").iteration.parts_s
    names = [name for phase in ("log-probabilities", "rewards", "training") for name in parts[phase]]
    slow = estimate("at once", trained_s={name: 1000.0 * ("training" in name) for name in names})
    assert slow.iteration.hidden == {"rollout"}
    assert summarise(slow).time.bound == "training"


def test_phases_with_their_gpus() -> None:
    one = estimate("at once")
    phases = {phase.name: phase for phase in summarise(one).phases}
    gpus = {"rollout": 8, "log-probabilities": 8, "training": 8, "weight synchronisation": 16}
    assert {name: phase.gpus for name, phase in phases.items()} == gpus
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1.0)
    assert all(phase.share == 0 for phase in phases.values() if phase.hidden)
    assert phases["training"].bound == "training of the actor"
    for phase in phases.values():
        assert sum(part.share for part in phase.components) == pytest.approx(1.0)
        assert phase.peak_bytes == round(one.iteration.peaks[phase.name])
        assert phase.usable_bytes == round(one.usable_bytes)
    split = estimate("pools", rollout=replace(base("pools").iteration.rollout, gpus=4))
    assert {phase.name: phase.gpus for phase in summarise(split).phases}["rollout"] == 4


def test_models_beside_the_actor_pass_once_an_iteration() -> None:
    one = estimate("critic")
    parts = {name: seconds for phase in one.iteration.parts_s.values() for name, seconds in phase.items()}
    beside = {row.name: row for row in summarise(one).beside}
    assert beside["reference model"].seconds == pytest.approx(parts["log-probabilities of the reference"])
    assert beside["reward model"].seconds == pytest.approx(parts["reward model"])
    assert [row.passes for row in beside.values()] == [1, 1]


def test_the_run_reads_prompts() -> None:
    """100 iterations of 64 prompts; half of what is asked for is learnt from with twice as many."""
    data = summarise(settled(estimate("turns"), kept=0.5)).data
    assert (data.samples, data.samples_read, data.epochs) == (3200, 3200, None)
    known = summarise(sized(data__samples=1000)).data
    assert (known.samples, known.samples_read, known.epochs) == (1000, 6400, 6.4)


def test_long_answers_that_are_cut_are_worth_a_word() -> None:
    for share, said in ((0.05, False), (0.2, True)):
        answers = replace(base().reinforcement.settings.answers, cut_share=share)
        asked = replace(base().reinforcement.settings.asked, answers=answers)
        told = summarise(settled(estimate("turns"), asked=asked)).warnings
        warnings = [one for one in told if "are truncated" in one]
        assert warnings == (["20 % of the responses are truncated at 2,048 tokens"] if said else [])
    assumed = [one for one in summarise(sized(rollout__output_tokens=None)).warnings if "are assumed" in one]
    assert len(assumed) == 1
    assert "responses of 1,024 tokens" in assumed[0]


# Memory.


def worst_parts(one: ReinforcementEstimate) -> dict[str, float]:
    return {part.name: part.bytes for part in memory_components(one, one.worst_phase)}


@pytest.mark.parametrize("case", ["turns", "pools", "critic"])
def test_what_every_phase_holds_sums_to_its_peak(case: str) -> None:
    """Who writes has a cache, who trains has activations, and the trainer's states stay between its steps."""
    told = summarise(estimate(case))
    kinds = {phase.name: {one.name for one in phase.holds} for phase in told.phases}
    for phase in told.phases:
        assert sum(one.bytes for one in phase.holds) == phase.peak_bytes
    assert max(phase.peak_bytes for phase in told.phases) == told.memory.peak_bytes
    assert {"engine: weights", "engine: KV cache"} <= kinds["rollout"]
    assert {"weights", "optimizer states", "activations"} <= kinds["training"]
    assert "trainer between its steps" in kinds["log-probabilities"]
    assert ("trainer between its steps" in kinds["rollout"]) == (case != "pools")


def test_the_worst_phase_is_shown_by_its_parts() -> None:
    one = estimate("turns")
    assert one.worst_phase == "rollout"
    parts = worst_parts(one)
    assert sum(parts.values()) == pytest.approx(one.peak_bytes)
    assert parts["trainer between its steps"] == pytest.approx(one.iteration.kept_bytes)
    fixed = one.iteration.rollout.memory.fixed
    assert parts["engine: weights"] == pytest.approx(float(np.max(fixed["weights"])))
    used = one.peak_bytes - one.iteration.kept_bytes - sum(float(np.max(size)) for size in fixed.values())
    assert parts["engine: KV cache"] == pytest.approx(used)
    memory = summarise(one).memory
    assert memory.phase == "rollout"
    assert memory.headroom_bytes == memory.usable_bytes - memory.peak_bytes
    assert memory.gpu == "pipeline stage 1 of 1"
    alone = worst_parts(estimate("pools"))
    assert alone
    assert all(name.startswith("engine") for name in alone)
    assert summarise(estimate("pools")).memory.gpu == "rollout replica"


def test_an_engine_without_room_for_its_parts_is_shown_as_one() -> None:
    """3 GiB are less than its weights with what software takes, on a card that the trainer's states fill."""
    small = rolled("turns", peak_bytes=base().iteration.kept_bytes + 3 * GIB)
    one = replace(small.iteration, held=shrunk(small.iteration.ledgers, 0.01))
    one.__dict__["passing_bytes"] = {"log-probabilities": {}, "rewards": {}}  # nor do passes need more
    parts = worst_parts(replace(small, iteration=one))
    assert parts == pytest.approx({"trainer between its steps": one.kept_bytes, "engine": 3 * GIB})


def shrunk(ledgers: tuple[Ledger, Ledger | None], actor: float, critic: float = 1.0) -> tuple[Ledger, Ledger | None]:
    """Ledgers of actor and critic, everything in them multiplied."""
    made = [
        one and replace(one, components={name: size * factor for name, size in one.components.items()})
        for one, factor in zip(ledgers, (actor, critic), strict=True)
    ]
    return made[0] or ledgers[0], made[1]


def test_trainers_on_cards_of_their_own_have_no_engine_beside_them() -> None:
    one = rolled("pools", peak_bytes=GIB)
    held = replace(one, iteration=replace(one.iteration, held=shrunk(one.iteration.ledgers, 0.01)))
    assert held.worst_phase == "log-probabilities"
    passing = {name: size for name, size in held.iteration.passing_bytes[held.worst_phase].items() if size}
    assert worst_parts(held) == pytest.approx({"trainer between its steps": held.iteration.kept_bytes, **passing})


def test_training_is_shown_with_what_waits_beside_it() -> None:
    """The larger step of both; states of the other, and the engine asleep."""
    one = rolled("critic", peak_bytes=1 * GIB)
    assert one.worst_phase == "training"
    (actor, critic), (at_actor, at_critic) = one.iteration.ledgers, one.iteration.beside_bytes
    assert critic is not None
    peaks = (float(actor.peak_bytes[0]) + at_actor, float(critic.peak_bytes[0]) + at_critic)
    parts = worst_parts(one)
    assert sum(parts.values()) == pytest.approx(max(peaks))
    asleep = one.iteration.asleep_bytes
    assert parts["engine asleep"] == pytest.approx(asleep)
    other = "states of the actor" if peaks[1] > peaks[0] else "states of the critic"
    assert parts[other] == pytest.approx((at_critic if peaks[1] > peaks[0] else at_actor) - asleep)
    alike = float(actor.peak_bytes[0] / critic.peak_bytes[0])  # as large a step, beside the actor's larger states
    assert at_actor < at_critic
    for factors, of in (((1.0, 3.0), "actor"), ((3.0, 1.0), "critic"), ((1.0, alike), "actor")):
        larger = f"states of the {of}"
        held = replace(one, iteration=replace(one.iteration, held=shrunk((actor, critic), *factors)))
        shown = worst_parts(held)
        assert larger in shown
        assert sum(shown.values()) == pytest.approx(held.iteration.peaks["training"])


@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_instruments_show_the_trainer_with_what_is_beside_it(factor: float) -> None:
    """All of them rise by the same, until the card is full and the allocator gives back what it cached."""
    one = rolled("critic", peak_bytes=GIB)
    cached = replace(shrunk((one.choice.ledger, None), factor)[0], cached_bytes=np.array([4 * GIB]))
    held = (cached, one.iteration.ledgers[1])
    one = replace(one, iteration=replace(one.iteration, held=held), choice=replace(one.choice, ledger=cached))
    shown, step = summarise(one).memory, summarise_training(one.trainer).memory
    more = shown.peak_bytes - step.peak_bytes
    given = min(max(step.device_bytes + more - step.usable_bytes, 0.0), step.cached_bytes)
    assert more > 0
    assert (given > 0) is (factor > 1)
    assert shown.phase == f"training, {step.phase}"
    assert shown.allocated_bytes - step.allocated_bytes == pytest.approx(more)
    assert shown.reserved_bytes - step.reserved_bytes == pytest.approx(more - given)
    assert shown.device_bytes - step.device_bytes == pytest.approx(more - given)
    assert step.cached_bytes - shown.cached_bytes == pytest.approx(given)


def test_instruments_show_an_engine_with_its_whole_share() -> None:
    for way in ("turns", "pools"):
        one = estimate(way)
        memory = summarise(one).memory
        software = float(np.max(one.iteration.rollout.memory.beside_tensors))
        if way == "turns":
            software += float(around_bytes(one.resolved.job, one.layouts)[0])
        assert memory.device_bytes == memory.peak_bytes
        assert memory.allocated_bytes == memory.reserved_bytes == pytest.approx(memory.peak_bytes - software, abs=2)
        assert memory.cached_bytes == 0


# Whether it fits.


def test_every_phase_and_the_host_must_fit() -> None:
    one = estimate("turns")
    assert one.fits
    assert not rolled("turns", peak_bytes=base().usable_bytes * 1.01).fits
    assert not rolled("turns", room=0.9).fits
    assert rolled("turns", room=1.0).fits
    assert rolled("turns", peak_bytes=one.iteration.rollout.memory.usable_bytes).iteration.rollout.fits
    job = one.resolved.job
    server = job.server.with_host_memory(512.0)
    usable = server.host_usable_bytes
    assert usable is not None
    one = replace(one, resolved=replace(one.resolved, job=replace(job, server=server)))
    assert one.roomy
    for held, fits in ((usable, True), (usable + 1, False)):
        ledger = replace(one.ledger, host_bytes=np.array([held]))
        assert replace(one, choice=replace(one.choice, ledger=ledger)).fits is fits
    nearly = replace(one, choice=replace(one.choice, ledger=replace(one.ledger, host_bytes=np.array([0.999 * usable]))))
    assert nearly.fit_probability == chance(memory_suffices(False), 1.0 / 0.999)


def test_an_engine_that_takes_what_is_left_needs_room_for_one_answer() -> None:
    one = estimate("turns")
    iteration = one.iteration
    rating, writing = iteration.peaks["log-probabilities"], iteration.needed_bytes
    assert one.needed_bytes == pytest.approx(max(rating, writing, iteration.peaks["training"]))
    apart = estimate("pools")
    peaks = apart.iteration.peaks
    assert apart.needed_bytes == pytest.approx(max(peaks["training"], peaks["rewards"], apart.iteration.needed_bytes))
    suffices = memory_suffices(False)
    assert one.fit_probability == chance(suffices, one.usable_bytes / one.needed_bytes)
    assert rolled("turns", room=0.5).fit_probability == 0.0
    assert rolled("turns", room=1.0).fit_probability == one.fit_probability


def test_an_engine_that_holds_no_answer_says_so() -> None:
    def said(one: ReinforcementEstimate) -> list[str]:
        reasons = summarise(one).verdict.reasons
        return [reason.message for reason in reasons if reason.code == "rollout-out-of-memory"]

    (message,) = said(rolled("turns", room=0.4, share=0.25))
    assert message == (
        "the engine may use 25 % of a GPU for responses: too little for its weights and one response of 2,304 tokens"
    )
    assert said(estimate("turns")) == []
    assert said(rolled("turns", room=0.4, peak_bytes=base().usable_bytes + 1)) == []  # memory itself is said then


# Pools.


def test_pools_with_what_each_holds_and_how_long_it_waits() -> None:
    one = estimate("at once")
    trains, writes = one.pools
    idle = one.iteration.idle_shares
    assert (trains.idle_share, writes.idle_share) == idle
    peaks = one.iteration.peaks
    assert trains.peak_bytes == round(max(size for name, size in peaks.items() if name != "rollout"))
    assert writes.peak_bytes == round(peaks["rollout"])
    assert (trains.nodes, writes.nodes) == (1, 1)
    larger = replace(one.iteration.rollout, gpus=17)
    assert estimate("at once", rollout=larger).pools[1].nodes == 3
    (both,) = estimate("turns").pools
    assert both.peak_bytes == round(max(base().iteration.peaks.values()))
    assert one.pool_keys == {"rollout.tp": 1, "rollout.pp": 1, "rollout.ep": 1, "rollout.gpus": 8}
    assert estimate("turns").pool_keys == {"rollout.tp": 1, "rollout.pp": 1, "rollout.ep": 1, "rollout.colocated": True}
    result = summarise(estimate("at once", rollout=larger))
    assert (result.gpus.count, result.gpus.nodes, result.gpus.gpus_per_node) == (16, math.ceil(16 / 8), 8)


def test_iterations_are_the_steps_of_the_run() -> None:
    one = estimate("turns")
    assert one.total_s == pytest.approx(100 * one.step_s)
    assert isinstance(one.iteration, Iteration)
    assert one.samples_per_s == pytest.approx(512 / one.step_s)


# Parts of memory with their numbers.


@pytest.mark.parametrize("phase", ["rollout", "training"])
def test_parts_of_memory_come_with_numbers_that_make_their_bytes(phase: str) -> None:
    """Sums of products as the report shows them; what is the rest of something else, or a maximum, has none."""
    parts = memory_components(base("critic"), phase)
    told = {part.name: part for part in parts if part.terms}
    assert {"rollout": {"engine: weights", "engine: KV cache"}, "training": {"weights", "gradients"}}[phase] <= set(
        told
    )
    for part in told.values():
        total = sum(math.prod(one.value ** (-1 if one.divides else 1) for one in term) for term in part.terms)
        assert total == pytest.approx(part.bytes, rel=1e-6), part.name
