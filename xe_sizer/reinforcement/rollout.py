"""The replicas that write the answers of an iteration: which placement they get on so many GPUs, and what they hold."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.reinforcement.environment import least_calling_s, waiting_share
from xe_sizer.reinforcement.memory import asleep_bytes
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import (
    held_tokens,
    max_sequences,
    rank_weight_bytes,
    request_bytes,
    serving_memory,
    static_peak,
)
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import Work, decode_time, prefill_time, step_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.answers import Asked
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.memory import ServingMemory

# Writing: how long replicas take to write all answers of an iteration, which are asked for at once.

ROUNDS = 4  # chosen: in which answers that wait for tools and the pace of the others agree to a percent
PLACES = 32  # chosen: moments of the tail that are timed; twice as many change it by less than a percent


class Writing(Immutable):
    """Seconds of writing all answers, arrays of shape (placements,) [s].

    prompts_s : reading the prompts; full_s : while every place is taken; tail_s : until the last answer ends
    reread_s : reading again what answers have that go on under new weights
    tools_s : beyond these, in which answers wait for their tools and nothing else is written
    running : answers that a replica writes at once while every place is taken [-]
    started : of a replica at that time, with those that wait for their tools [-]
    even_s : what it would take if all answers ended together
    """

    prompts_s: Array
    full_s: Array
    tail_s: Array
    reread_s: Array
    tools_s: Array
    running: Array
    started: Array
    even_s: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(self.prompts_s + self.full_s + self.tail_s + self.reread_s + self.tools_s)

    def __getitem__(self, index: slice) -> Writing:
        return Writing(*(getattr(self, field)[index] for field in self.__struct_fields__))

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
    inputs, answers = asked.inputs / asked.group + asked.added, asked.answers
    limit = job.engine.batching.max_sequences * job.groups(placements)
    spread = max_sequences(job, placements, memory, held_tokens(job, inputs, answers.in_time))
    together = np.minimum(max_sequences(job, placements, memory, answers.most_held(inputs)), spread)
    each = np.full(len(placements), np.inf) if asked.carried else asked.count / as_array(replicas)
    held = _first_wave(together, spread, each)
    whole = max_sequences(job, placements, memory, asked.read + answers.longest)
    return np.asarray(np.where(whole >= 1.0, np.minimum(held, limit), np.minimum(whole, 1.0 - 1e-9)))


def _first_wave(together: Array, spread: Array, each: Array) -> Array:
    """S of `places`, from what the pool holds where all start together, and where none does; each : n, answers [-]."""
    one, other = (np.maximum(held, 1e-9) for held in (together, spread))
    more = np.maximum((1.0 / one - 1.0 / other) / each, 1e-15)
    mixed = (np.sqrt(1.0 / other**2 + 4.0 * more) - 1.0 / other) / (2.0 * more)
    return np.asarray(np.where(together >= each, together, mixed))


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
        started = min(n, S / b),  running = b started,  w = started / n       where tools are called
        b = share of its time in which an answer is written
        full steps = (n mean - started E[left]) / running
        tail = integral over j from 0 to J of t(max(running L(j), 1), tokens(j))
        L(j) = w (1 - F(j)) + (1 - w) (1 - Fe(j)),  E[left] = integral of L
        J = E[longest of started x replicas answers with L]

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
    most, middle = each * (asked.ahead if asked.carried else 1), asked.read + lengths.in_time / 2.0
    running = started = np.minimum(most, np.maximum(room, 1.0))
    full, even_step_s = running, np.zeros(0)
    for _ in range(ROUNDS if asked.wait_s else 1):
        full_step_s = _decode_s(job, placements, running[None], np.asarray(middle)[None, None])[0]
        even_step_s = even_step_s if even_step_s.size else full_step_s
        busy = 1.0 - waiting_share(asked.wait_s, lengths.mean * full_step_s)
        started = np.minimum(most, np.maximum(room, 1.0) / busy) if asked.wait_s else running
        running = started * busy
    first = np.minimum(started / each, 1.0)
    left = first * lengths.mean + (1.0 - first) * lengths.mean_remaining
    steps = np.maximum(each * lengths.mean - (0.0 if asked.carried else started * left), 0.0) / running
    ended = np.zeros(len(placements))
    tail_s = ended if asked.carried else _tail_s(job, placements, running, started, first, replicas, asked)
    cached = asked.inputs * (1.0 - 1.0 / asked.group)  # each prompt is read once for its group
    prefill, pieces = prefill_time(job, placements, each, asked.inputs, cached)
    prompts_s = np.asarray(prefill.total_s * pieces + job.request_s)
    if asked.environment is not None and asked.added:  # what tools say, behind all that went before
        calls, new = asked.environment.calls, asked.environment.turn_tokens
        past = asked.inputs + (lengths.mean + asked.added) / 2.0
        told, pieces = prefill_time(job, placements, each * calls, past + new, past)
        prompts_s = prompts_s + told.total_s * pieces
    reread_s = np.zeros(len(placements))
    if asked.reread:  # once an iteration, of all that are under way: a prompt and what they have of their answer
        again, pieces = prefill_time(job, placements, started, asked.read + lengths.mean_remaining)
        reread_s = again.total_s * pieces
    even_s = prompts_s + each * lengths.mean / full * even_step_s
    full_s = steps * full_step_s
    tools_s = _waited_s(asked, replicas, first, started, prompts_s, full_s, tail_s)
    if asked.carried:  # nothing is waited for, but fewer answers are written at once
        slower_s = np.maximum(full_s - (even_s - prompts_s), 0.0)
        full_s, tools_s = full_s - slower_s, tools_s + slower_s
    return Writing(
        prompts_s=prompts_s,
        full_s=full_s,
        tail_s=tail_s,
        reread_s=reread_s,
        tools_s=tools_s,
        running=running,
        started=started,
        even_s=even_s,
    )


def _waited_s(
    asked: Asked, replicas: Array, first: Array, started: Array, prompts_s: Array, full_s: Array, tail_s: Array
) -> Array:
    """Time in which answers wait for their tools and nothing else hides it, shape (placements,) [s].

        t = max(longest answer and its wait, slowest wait and a mean answer, least time of all calls) - writing
        wait of the last = w (first + (1 - first) / 2)        of those under way when nothing waits to be begun

    Answers that are carried to the next iteration are not waited for: others are written meanwhile.
    """
    environment, lengths = asked.environment, asked.answers
    if environment is None:
        return np.zeros(len(first))
    written_s = prompts_s + full_s + tail_s
    under_way = first + (1.0 - first) / 2.0
    late_s = np.zeros(len(first))
    if not asked.carried:
        slowest_s = environment.slowest_s(started * replicas) * under_way
        share = lengths.mean / np.maximum(lengths.expected_longest(started * replicas), 1e-9)
        late_s = np.maximum(environment.wait_s * under_way, slowest_s - tail_s * np.maximum(1.0 - share, 0.0))
    called_s = least_calling_s(environment, asked.count)
    return np.asarray(np.maximum(late_s, called_s - written_s))


def _tail_s(
    job: ServingJob, placements: ReplicaLayouts, running: Array, started: Array, first: Array, replicas: Array,
    asked: Asked,
) -> Array:  # fmt: skip
    """From when nothing waits any more to the end of the last answer, shape (placements,) [s]."""
    lengths = asked.answers
    if lengths.mean <= 0:
        return np.zeros(len(placements))
    fine = np.linspace(0.0, lengths.longest, 8 * PLACES + 1)[:, None]
    left = first * lengths.alive(fine) + (1.0 - first) * lengths.remaining(fine)
    none_left = np.maximum(1.0 - left, 0.0)  # sums of shares may exceed 1 in the last digit
    some = 1.0 - none_left ** np.maximum(started * replicas, 1.0)  # any of all replicas still writes
    last = np.sum((some[1:] + some[:-1]) / 2.0, axis=0) * (fine[1, 0] - fine[0, 0])
    last = np.where(first >= 1.0, lengths.expected_longest(started * replicas), last)
    at = last * ((np.arange(PLACES) + 0.5) / PLACES)[:, None]
    left = first * lengths.alive(at) + (1.0 - first) * lengths.remaining(at)
    past = asked.read + at + (1.0 - first) * lengths.mean_remaining
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
    waited_s = 0.0 if asked.environment is None else asked.environment.slowest_s(batch * as_array(bound))
    return Writing(
        prompts_s=prompts_s,
        full_s=mean_s,
        tail_s=waves * np.maximum(steps - lengths.mean, 0.0) * one,
        reread_s=np.zeros(len(placements)),
        tools_s=waves * waited_s,
        running=batch,
        started=batch,
        even_s=prompts_s + mean_s,
    )


# The replicas.

SIZES = ReplicaLayouts.__struct_fields__  # of a placement


class Beside(Immutable):
    """What is on a card where answers are written, and what each step gathers of the trainer's own weights.

    taken_bytes : of the trainer, states and context [bytes]
    asleep_room_bytes : that the trainer's steps leave to an engine that sleeps [bytes]
    gathered_bytes : of weights that are whole while they are used [bytes]; step_s : a step's gathering of them [s]
    """

    taken_bytes: float = 0.0
    asleep_room_bytes: float = np.inf
    gathered_bytes: float = 0.0
    step_s: float = 0.0


class Rollout(Immutable):
    """Replicas at work; the placement has one entry.

    job : the engine with its share of the card; gpus : of all replicas
    room : answers that a replica writes at once, below one where not even one fits [-]
    peak_bytes : of the fullest GPU, with what the trainer keeps there [bytes]
    least_bytes : that the engine cannot do without: of its share where that was asked for, else for one answer [bytes]
    step_gather_s : in which the trainer's weights come together in every step, instead of once [s]
    """

    job: ServingJob
    placement: ReplicaLayouts
    replicas: int
    gpus: int
    share: float
    room: float
    memory: ServingMemory
    writing: Writing
    peak_bytes: float
    least_bytes: float
    step_gather_s: float = 0.0

    @property
    def fits(self) -> bool:
        return self.room >= 1.0 and self.peak_bytes <= self.memory.usable_bytes

    @property
    def seconds(self) -> float:
        return float(self.writing.total_s[0])


def rollout_on(resolved: ResolvedReinforcement, gpus: int, share: float, beside: Beside) -> Rollout | None:
    """The placement that writes all answers soonest on so many GPUs; None where none is legal.

    share : of the card that the engine may use [-]
    """
    placements = legal_placements(resolved.writer, resolved.replica_sizes, gpus)
    if not len(placements):
        return None
    replicas = as_array(gpus // placements.gpus)
    if resolved.writer.engine.memory.grows:
        return _in_own_weights(resolved, placements, replicas, gpus, share, beside)
    known = resolved.settings.share(colocated=True) is not None
    options = _options(resolved, placements, replicas, share)
    return _picked(resolved, options, slice(0, len(placements)), gpus, share, beside, known)


def _best(room: Array, seconds: Array, gpus: Array, lets_train: NDArray[np.bool_] | bool = True) -> int:
    """The soonest of those that hold an answer, the smallest of those as soon; else what lacks least.

    lets_train : whether it leaves the trainer room to step, which counts where one that holds an answer does
    """
    held = room >= 1.0
    if not np.any(held):
        return int(np.argmax(room))
    held = held & lets_train if np.any(held & lets_train) else held
    return int(np.lexsort((gpus, np.where(held, seconds, np.inf)))[0])


class _Options(Immutable):
    """Placements of replicas on numbers of GPUs, each written with; arrays of shape (placements,)."""

    job: ServingJob
    placements: ReplicaLayouts
    replicas: Array
    room: Array
    memory: ServingMemory
    writing: Writing


def _options(resolved: ResolvedReinforcement, placements: ReplicaLayouts, replicas: Array, share: float) -> _Options:
    """What the placements hold and how long they write, with such a share of the card."""
    job, asked = resolved.writer, resolved.settings.asked
    of_the_card = msgspec.structs.replace(job.engine.memory, utilization=share, utilization_of="total")
    job = replace(job, engine=msgspec.structs.replace(job.engine, memory=of_the_card))
    memory = serving_memory(job, placements, asked.inputs)
    room = np.broadcast_to(places(job, placements, memory, asked, replicas), len(placements))
    write = written_in_batches if _batch_by_batch(resolved) else written_continuously
    return _Options(job, placements, replicas, room, memory, write(job, placements, replicas, room, asked))


def _batch_by_batch(resolved: ResolvedReinforcement) -> bool:
    """Whether an engine gets the next answers when the last of a batch has ended."""
    settings = resolved.settings
    asked_so = settings.defaults.calls == "batch-by-batch" and settings.max_sequences is not None
    return asked_so or resolved.writer.engine.batching.batching == "static"


def _picked(
    resolved: ResolvedReinforcement, options: _Options, among: slice, gpus: int, share: float, beside: Beside,
    asked_for: bool,
) -> Rollout:  # fmt: skip
    """The best of some of the placements, all on so many GPUs. asked_for : somebody, or the stack, says the share."""
    job, asked, room, memory = options.job, resolved.settings.asked, options.room, options.memory
    sizes = as_array(options.placements.gpus)
    asleep = asleep_bytes(job, options.placements[among], resolved.settings.sleep, share)
    lets_train = asleep <= beside.asleep_room_bytes
    best = among.start + _best(room[among], options.writing.total_s[among], sizes[among], lets_train)
    one = slice(best, best + 1)
    whole = request_bytes(job, options.placements[one], asked.read + asked.answers.longest)
    least = float(sum(part[one].max() for part in memory.fixed.values()) + whole.max())
    used = max(share * memory.usable_bytes, least if room[best] < 1.0 and not asked_for else 0.0)
    return Rollout(
        job=job,
        placement=options.placements[one],
        replicas=int(options.replicas[best]),
        gpus=gpus,
        share=share,
        room=float(room[best]),
        memory=memory[one],
        writing=options.writing[one],
        peak_bytes=beside.taken_bytes + used,
        least_bytes=used if asked_for else least,
    )


def evaluation_s(resolved: ResolvedReinforcement, rollout: Rollout) -> float:
    """Time in which the replicas write one answer to each sample of an evaluation [s]; 0 without one.

    Source: the equations of a rollout, with the lengths of the training's prompts and answers (verl val_kwargs.n 1).
    """
    samples = resolved.trainer.job.pauses.evaluated_samples
    if not samples:
        return 0.0
    job, own = rollout.job, rollout.job.engine.memory.grows
    asked = replace(resolved.settings.asked, prompts=samples, group=1, carried=False)
    replicas, room = as_array([rollout.replicas]), as_array([rollout.room])
    if own or _batch_by_batch(resolved):
        bound = replicas if own else 1.0
        step_s = rollout.step_gather_s
        return float(written_in_batches(job, rollout.placement, replicas, room, asked, step_s, bound).total_s[0])
    return float(written_continuously(job, rollout.placement, replicas, room, asked).total_s[0])


def rollouts_apart(resolved: ResolvedReinforcement, counts: Sequence[int], share: float) -> dict[int, Rollout]:
    """Replicas on each of the numbers of GPUs of their own, evaluated as one array; without those that hold none."""
    sets = {count: legal_placements(resolved.writer, resolved.replica_sizes, count) for count in counts}
    sets = {count: found for count, found in sets.items() if len(found)}
    if not sets:
        return {}
    columns = {size: np.concatenate([getattr(one, size) for one in sets.values()]) for size in SIZES}
    placements = ReplicaLayouts(**columns)
    every = np.repeat(list(sets), [len(one) for one in sets.values()])
    options = _options(resolved, placements, as_array(every // placements.gpus), share)
    known = resolved.settings.share(colocated=False) is not None
    found, start = {}, 0
    for count, one in sets.items():
        among = slice(start, start + len(one))
        found[count] = _picked(resolved, options, among, count, share, Beside(), known)
        start = among.stop
    return found


def _in_own_weights(
    resolved: ResolvedReinforcement, placements: ReplicaLayouts, replicas: Array, gpus: int, share: float,
    beside: Beside,
) -> Rollout:  # fmt: skip
    """The trainer's own weights, in batches that start and end together; a rank has its answers to itself.

    room = (card - trainer - whole weights - software) / (cache and tensors of one answer)
    """
    job, asked = resolved.writer, resolved.settings.asked
    memory = serving_memory(job, placements, asked.inputs)
    peak = partial(static_peak, job, placements, inputs=asked.inputs, outputs=asked.answers.longest)
    own = rank_weight_bytes(job.model, job.scheme, placements)
    one, two = (np.asarray(sum(peak(batch=size).values())) - own for size in (1.0, 2.0))
    taken = beside.taken_bytes + np.minimum(beside.gathered_bytes, own)
    room = 1.0 + (memory.usable_bytes - taken - one) / np.maximum(two - one, 1.0)
    limit = resolved.settings.max_sequences
    room = np.minimum(np.maximum(room, 0.0), np.inf if limit is None else float(limit))
    step_s = np.full(len(placements), beside.step_s)
    writing = written_in_batches(job, placements, replicas, room, asked, step_s, bound=replicas)
    best = _best(room, writing.total_s, as_array(placements.gpus))
    at = slice(best, best + 1)
    return Rollout(
        job=job,
        placement=placements[at],
        replicas=int(replicas[best]),
        gpus=gpus,
        share=share,
        room=float(room[best]),
        memory=memory[at],
        writing=writing[at],
        peak_bytes=float(taken[best] + one[best] + (writing.running[best] - 1.0) * (two[best] - one[best])),
        least_bytes=float(np.minimum(beside.gathered_bytes, own)[best] + one[best]),
        step_gather_s=beside.step_s,
    )
