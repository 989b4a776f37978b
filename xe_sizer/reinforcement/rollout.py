"""The replicas that write the answers of an iteration: which placement they get on so many GPUs, and what they hold."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.reinforcement.memory import asleep_bytes, with_share
from xe_sizer.reinforcement.writing import places, written_continuously, written_in_batches
from xe_sizer.serving.layout import ReplicaLayouts
from xe_sizer.serving.memory import request_bytes, serving_memory, static_peak
from xe_sizer.serving.space import legal_placements
from xe_sizer.serving.weights import rank_weight_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.reinforcement.writing import Writing
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.software.stack import RolloutDefaults


SIZES = fields(ReplicaLayouts)  # of a placement
EAGER_LAUNCH_US = 19.1  # of a kernel that Python starts; fitted: Hugging Face generate, vLLM before 0.3


@frozen
class Beside:
    """What is on a card where answers are written, and what each step gathers of the trainer's own weights.

    taken_bytes : of the trainer, states and context [bytes]
    asleep_room_bytes : that the trainer's steps leave to an engine that sleeps [bytes]
    gathered_bytes : of weights that are whole while they are used [bytes]; step_s : a step's gathering of them [s]
    """

    taken_bytes: float = 0.0
    asleep_room_bytes: float = np.inf
    gathered_bytes: float = 0.0
    step_s: float = 0.0


@frozen
class Rollout:
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


def beside_a_trainer(job: ServingJob, defaults: RolloutDefaults) -> ServingJob:
    """The engine as a library of a trainer, whose host does more in each step than that of a service.

        step = step of a service + step_ms + sequence_us x running answers

    Decode steps that no graph replays start each kernel from Python. The trainer's own weights are
    written with as they are.

    Source: vLLM in the process of its caller (VLLM_ENABLE_V1_MULTIPROCESSING=0): tokens become words, and
    log-probabilities Python objects, between the steps; ranks of one replica are called through Ray (NeMo RL
    vllm_worker.py, verl).
    """
    if job.engine.memory.grows:
        return job
    host, memory = job.engine.host, job.engine.memory
    host = msgspec.structs.replace(
        host, step_ms=host.step_ms + defaults.step_ms, sequence_us=host.sequence_us + defaults.sequence_us
    )
    if host.graphs and not defaults.graphs:
        host = msgspec.structs.replace(host, graphs=False, launch_us=max(host.launch_us, EAGER_LAUNCH_US))
        memory = msgspec.structs.replace(memory, graphs_gib=0.0)
    return replace(job, engine=msgspec.structs.replace(job.engine, host=host, memory=memory))


def rollout_on(resolved: ResolvedReinforcement, gpus: int, share: float, beside: Beside) -> Rollout | None:
    """The placement that writes all answers soonest on so many GPUs; None where none is legal.

    share : of the card that the engine may use [-]
    """
    service = resolved.service
    placements = legal_placements(service.job, service.fixed, gpus)
    if not len(placements):
        return None
    replicas = as_array(gpus // placements.gpus)
    make = _in_own_weights if service.job.engine.memory.grows else _in_an_engine
    return make(resolved, placements, replicas, gpus, share, beside)


def _best(room: Array, seconds: Array, gpus: Array, lets_train: NDArray[np.bool_] | bool = True) -> int:
    """The soonest of those that hold an answer, the smallest of those as soon; else what lacks least.

    lets_train : whether it leaves the trainer room to step, which counts where one that holds an answer does
    """
    held = room >= 1.0
    if not np.any(held):
        return int(np.argmax(room))
    held = held & lets_train if np.any(held & lets_train) else held
    return int(np.lexsort((gpus, np.where(held, seconds, np.inf)))[0])


@frozen
class _Options:
    """Placements of replicas on numbers of GPUs, each written with; arrays of shape (placements,)."""

    job: ServingJob
    placements: ReplicaLayouts
    replicas: Array
    room: Array
    memory: ServingMemory
    writing: Writing


def _in_an_engine(
    resolved: ResolvedReinforcement, placements: ReplicaLayouts, replicas: Array, gpus: int, share: float,
    beside: Beside,
) -> Rollout:  # fmt: skip
    """Replicas with weights and a pool of their own."""
    options = _options(resolved, placements, replicas, share)
    known = resolved.settings.share(colocated=True) is not None
    return _picked(resolved, options, slice(0, len(placements)), gpus, share, beside, known)


def _options(resolved: ResolvedReinforcement, placements: ReplicaLayouts, replicas: Array, share: float) -> _Options:
    """What the placements hold and how long they write, with such a share of the card."""
    job, asked = with_share(resolved.service.job, share), resolved.settings.asked
    memory = serving_memory(job, placements, asked.inputs)
    room = np.broadcast_to(places(job, placements, memory, asked, replicas), len(placements))
    write = written_in_batches if _batch_by_batch(resolved) else written_continuously
    return _Options(job, placements, replicas, room, memory, write(job, placements, replicas, room, asked))


def _batch_by_batch(resolved: ResolvedReinforcement) -> bool:
    """Whether an engine gets the next answers when the last of a batch has ended."""
    settings = resolved.settings
    asked_so = settings.defaults.calls == "batch-by-batch" and settings.max_sequences is not None
    return asked_so or resolved.service.job.engine.batching.batching == "static"


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
    whole = request_bytes(job, options.placements[one], asked.inputs + asked.answers.longest)
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
    service = resolved.service
    sets = {count: legal_placements(service.job, service.fixed, count) for count in counts}
    sets = {count: found for count, found in sets.items() if len(found)}
    if not sets:
        return {}
    columns = {each.name: np.concatenate([getattr(one, each.name) for one in sets.values()]) for each in SIZES}
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
    job, asked = resolved.service.job, resolved.settings.asked
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
