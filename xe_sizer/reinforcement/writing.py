"""How long replicas of an engine take to write all answers of an iteration, which are asked for at once."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.memory import held_tokens, max_sequences
from xe_sizer.serving.static import decode_time, prefill_time
from xe_sizer.serving.step import Work, step_time

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.answers import Answers
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory

PLACES = 32  # chosen: moments of the tail that are timed; twice as many change it by less than a percent


@frozen
class Asked:
    """What is asked of all replicas in an iteration.

    prompts, group : prompts, and answers to each [-]
    inputs : tokens of a prompt; answers : lengths of the answers
    carried : long answers are interrupted and go on in the next iteration
    ahead : batches of prompts whose answers may be in the making at once, where answers are carried [-]
    """

    prompts: float
    group: int
    inputs: float
    answers: Answers
    carried: bool = False
    ahead: int = 1

    @property
    def count(self) -> float:
        return self.prompts * self.group


@frozen
class Writing:
    """Seconds of writing all answers, arrays of shape (placements,) [s].

    prompts_s : reading the prompts; full_s : while every place is taken; tail_s : until the last answer ends
    running : answers that a replica writes at once while every place is taken [-]
    even_s : what it would take if all answers ended together
    """

    prompts_s: Array
    full_s: Array
    tail_s: Array
    running: Array
    even_s: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(self.prompts_s + self.full_s + self.tail_s)

    def __getitem__(self, index: slice) -> Writing:
        return Writing(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def waiting_share(self) -> Array:
        """Share of the time that the replicas lose as the longest answers end last [-]."""
        some = np.isfinite(self.total_s) & (self.total_s > 0)
        even = np.divide(self.even_s, self.total_s, out=np.ones(some.shape), where=some)
        return np.maximum(1.0 - even, 0.0)


def places(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, asked: Asked, replicas: ArrayLike
) -> Array:
    """Answers that a replica writes at once, a fraction below one where its memory holds not even one.

        S = min(answers that the pool holds, limit of the engine x groups)
        pool = S (w most + (1 - w) mean),  w = min(S / n, 1)

    Answers to one prompt share its keys and values. The first wave starts together, so that all of it grows at once:
    at its fullest moment it takes `most` for each answer. Answers that are taken up one after the other have half of
    their length on average, in which long ones weigh more. What does not fit waits, or is set back and waits.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    asked : lengths of prompts and answers
    replicas : of each placement, shape (placements,) [-]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation; automatic prefix caching and preemption of the engines (vLLM, SGLang's RadixAttention,
    arXiv:2312.07104).
    """
    inputs, answers = asked.inputs / asked.group, asked.answers
    limit = job.engine.batching.max_sequences * job.groups(placements)
    spread = max_sequences(job, placements, memory, held_tokens(job, inputs, answers.in_time))
    together = np.minimum(max_sequences(job, placements, memory, answers.most_held(inputs)), spread)
    each = np.full(len(placements), np.inf) if asked.carried else asked.count / as_array(replicas)
    held = _first_wave(together, spread, each)
    whole = max_sequences(job, placements, memory, asked.inputs + answers.longest)
    return np.asarray(np.where(whole >= 1.0, np.minimum(held, limit), np.minimum(whole, 1.0 - 1e-9)))


def _first_wave(together: Array, spread: Array, each: Array) -> Array:
    """S of `places`, from what the pool holds where all start together, and where none does; each : n, answers [-]."""
    one, other = (np.maximum(held, 1e-9) for held in (together, spread))
    more = np.maximum((1.0 / one - 1.0 / other) / each, 1e-15)
    mixed = (np.sqrt(1.0 / other**2 + 4.0 * more) - 1.0 / other) / (2.0 * more)
    return np.asarray(np.where(together >= each, together, mixed))


def _read_s(job: ServingJob, placements: ReplicaLayouts, answers: Array, asked: Asked) -> Array:
    """Time in which a replica reads the prompts of its answers, each prompt once for its group [s]."""
    cached = asked.inputs * (1.0 - 1.0 / asked.group)
    step, steps = prefill_time(job, placements, answers, asked.inputs, cached)
    return np.asarray(step.total_s * steps + job.request_s)


def _decode_s(job: ServingJob, placements: ReplicaLayouts, running: Array, past: Array) -> Array:
    """One token for each of so many sequences that have `past` tokens; shape (moments, placements) [s]."""
    running, past = np.broadcast_arrays(running, past)
    rows = np.tile(np.arange(len(placements)), len(running))
    work = Work(decodes=running.reshape(-1), decode_past=past.reshape(-1))
    return np.asarray(step_time(job, placements[rows], work).total_s).reshape(running.shape)


def written_continuously(
    job: ServingJob, placements: ReplicaLayouts, replicas: ArrayLike, room: Array, asked: Asked
) -> Writing:
    """Writing by engines that take up an answer as another ends.

        n = answers / replicas,  running = min(n, S),  w = running / n        of carried ones min(n ahead, S)
        full steps = (n mean - running E[left]) / running
        tail = integral over j from 0 to J of t(max(running L(j), 1), tokens(j))
        L(j) = w (1 - F(j)) + (1 - w) (1 - Fe(j)),  E[left] = integral of L
        J = E[longest of running x replicas answers with L]

    Once nothing waits, answers only end. Those of a first wave have all of their length to go, 1 - F; those that were
    taken up one after the other what renewal theory says, 1 - Fe. The last replica sets the pace of all. Where answers
    may go on in the next iteration, places are never empty, and there is no tail.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    replicas : of each placement, shape (placements,) [-]
    room : S, answers that a replica writes at once, shape (placements,) [-]
    asked : prompts, groups and lengths

    Returns
    -------
    Writing, shape (placements,), seconds [s]; as if one answer fitted where a replica holds none

    Source: own derivation; residual life of renewal theory; partial rollouts of Kimi k1.5 (arXiv:2501.12599).
    """
    lengths, replicas = asked.answers, np.broadcast_to(as_array(replicas), len(placements))
    each = asked.count / replicas
    running = np.minimum(each * (asked.ahead if asked.carried else 1), np.maximum(room, 1.0))
    first = np.minimum(running / each, 1.0)
    left = first * lengths.mean + (1.0 - first) * lengths.mean_remaining
    steps = np.maximum(each * lengths.mean - (0.0 if asked.carried else running * left), 0.0) / running
    middle = asked.inputs + lengths.in_time / 2.0
    full_step_s = _decode_s(job, placements, running[None], np.asarray(middle)[None, None])[0]
    tail_s = np.zeros(len(placements)) if asked.carried else _tail_s(job, placements, running, first, replicas, asked)
    prompts_s = _read_s(job, placements, each, asked)
    even_s = prompts_s + each * lengths.mean / running * full_step_s
    return Writing(
        prompts_s=prompts_s,
        full_s=steps * full_step_s,
        tail_s=tail_s,
        running=running,
        even_s=even_s,
    )


def _tail_s(
    job: ServingJob, placements: ReplicaLayouts, running: Array, first: Array, replicas: Array, asked: Asked
) -> Array:
    """From when nothing waits any more to the end of the last answer, shape (placements,) [s]."""
    lengths = asked.answers
    if lengths.mean <= 0:
        return np.zeros(len(placements))
    fine = np.linspace(0.0, lengths.longest, 8 * PLACES + 1)[:, None]
    left = first * lengths.alive(fine) + (1.0 - first) * lengths.remaining(fine)
    some = 1.0 - (1.0 - left) ** np.maximum(running * replicas, 1.0)  # any of all replicas still writes
    last = np.sum((some[1:] + some[:-1]) / 2.0, axis=0) * (fine[1, 0] - fine[0, 0])
    last = np.where(first >= 1.0, lengths.expected_longest(running * replicas), last)
    at = last * ((np.arange(PLACES) + 0.5) / PLACES)[:, None]
    left = first * lengths.alive(at) + (1.0 - first) * lengths.remaining(at)
    past = asked.inputs + at + (1.0 - first) * lengths.mean_remaining
    step_s = _decode_s(job, placements, np.maximum(running * left, 1.0), past)
    return np.asarray(step_s.mean(axis=0) * last)


def written_in_batches(
    job: ServingJob, placements: ReplicaLayouts, replicas: ArrayLike, room: Array, asked: Asked,
    step_s: ArrayLike = 0.0, bound: ArrayLike = 1.0,
) -> Writing:  # fmt: skip
    """Writing by engines whose batches start and end together.

        waves = ceil(n / S),  J = E[longest of a wave of all bound replicas]
        t = waves (prompts + J (t(S) + step_s))

    Answers that have ended are padded, so that a step costs the same to the end; ranks that share weights go on until
    all have ended (synced_gpus).

    Parameters
    ----------
    job, placements, replicas, room, asked : as of `written_continuously`
    step_s : what every step takes beyond the kernels, as gathering sharded weights, shape (placements,) [s]
    bound : replicas that go on until all of them have ended, shape (placements,) [-]

    Returns
    -------
    Writing, shape (placements,), seconds [s]; as if one answer fitted where a replica holds none

    Source: transformers generation/utils.py (_sample, synced_gpus); DeepSpeed-Chat rlhf_engine; of engines,
    rollout_micro_batch_size of NeMo-Aligner and micro_rollout_batch_size of OpenRLHF before 0.5.5.
    """
    lengths, replicas = asked.answers, np.broadcast_to(as_array(replicas), len(placements))
    each = asked.count / replicas
    waves = np.ceil(each / np.maximum(room, 1.0) - 1e-9)
    batch = each / waves
    steps = lengths.expected_longest(batch * as_array(bound))
    one = decode_time(job, placements, batch, asked.inputs, np.maximum(steps, 1.0)).total_s + as_array(step_s)
    prefill, pieces = prefill_time(job, placements, batch, asked.inputs)
    prompts_s = waves * (prefill.total_s * pieces + job.request_s)
    mean_s = waves * lengths.mean * one
    return Writing(
        prompts_s=prompts_s,
        full_s=mean_s,
        tail_s=waves * np.maximum(steps - lengths.mean, 0.0) * one,
        running=batch,
        even_s=prompts_s + mean_s,
    )
