"""Placements of a replica with what they hold, and what is chosen of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.serving.memory import max_sequences, request_bytes, serving_memory, static_peak
from xe_sizer.serving.space import legal_placements
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation_offered import Outcome
    from xe_sizer.serving.step import StepTime

ALIKE = 1.1  # what is closer than this is as good as equal: placements are not told apart more finely
PERCENTILES = (50.0, 95.0, 99.0)
Flags = NDArray[np.bool_]


@frozen
class Point:
    """One replica at work; seconds and rates of it.

    percentiles : percentile -> latencies, where requests arrive by chance; else the mean alone stands for all
    running : requests that it works at, in the mean
    prompt_s, answer_s : of the replica's time what one request takes for its prompt and for its answer
    """

    running: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    request_s: float
    percentiles: dict[float, tuple[float, float, float]]
    prefill: StepTime
    decode: StepTime
    prompt_s: float
    answer_s: float

    @property
    def in_flight(self) -> float:
        """Requests that the replica has, waiting or running: by Little's law rate x time of a request [-]."""
        return self.requests_per_s * self.request_s


@frozen
class PrefillReplicas:
    """The replicas that only read prompts, beside those that answer.

    stages_s : seconds of the mean time to the first token: queue, prefill, transfer, decode
    utilisation, link_utilisation : of the prefill replicas, and of the links that the cache goes over [-]
    transfer_bytes : of a prompt's cache, of all ranks [bytes]; same_node : whether the cache stays inside a node
    """

    placement: ReplicaLayouts
    memory: ServingMemory
    replicas: int
    stages_s: dict[str, float]
    utilisation: float
    link_utilisation: float
    transfer_bytes: float
    same_node: bool

    @property
    def gpus(self) -> int:
        return self.replicas * int(self.placement.gpus[0])


@frozen
class Choice:
    """The placement of a replica with its memory, and the replicas at work.

    minimum : fewest GPUs on which a replica fits; None where none of the tried placements does
    holds : requests of this length that a replica's cache holds at once; fits : at least the one, or the batch
    full_rate : requests per second that a replica cannot exceed
    top_rate : the same within the limits on latency, where they can be kept; top_load : that in the unit of the load
    places : requests that a replica runs at once
    curve : the states of the placement, from one request to as many as fit; None for a batch, and beside prefills
    prefills : replicas that only read prompts; the others then only decode
    test : what the requests of a test see of one replica; None where the service goes on for ever
    """

    placement: ReplicaLayouts
    memory: ServingMemory
    minimum: int | None
    holds: float
    fits: bool
    full_rate: float
    top_rate: float
    top_load: float
    places: float
    replicas: int
    point: Point
    curve: Curve | None = None
    prefills: PrefillReplicas | None = None
    test: Outcome | None = None


@frozen
class Cases:
    """Placements to choose from, with their memory; arrays of shape (placements,).

    holds : requests at their full length that fit at once; fitting : whether that is enough
    need_bytes : of a GPU for everything beside the cache, and for the cache of the least that serves
    """

    placements: ReplicaLayouts
    memory: ServingMemory
    holds: Array
    fitting: Flags
    need_bytes: Array

    def __getitem__(self, index: Flags | slice) -> Cases:
        arrays = (self.holds[index], self.fitting[index], self.need_bytes[index])
        return Cases(self.placements[index], self.memory[index], *arrays)

    def chosen(self, place: int) -> partial[Choice]:
        """The choice of one of them, but for its replicas and their load."""
        one = self[place : place + 1]
        holds, fits = float(one.holds[0]), bool(one.fitting[0])
        return partial(Choice, placement=one.placements, memory=one.memory, holds=holds, fits=fits)

    def order(self, *keys: Array | Flags) -> int:
        """The first by these keys, of those that fit; where none does, the one that misses least."""
        return first(self.fitting, self.need_bytes, *keys)


def first(fitting: Flags, need_bytes: Array, *keys: Array | Flags) -> int:
    """The first by these keys, of those that fit; where none does, the one that needs least [bytes]."""
    return int(np.lexsort((*reversed(keys), np.where(fitting, 0.0, need_bytes), ~fitting))[0])


def fewest_gpus(resolved: ResolvedService) -> int | None:
    """Fewest GPUs on which a replica fits in any layout, on any number of GPUs; None where it fits on none."""
    placements = legal_placements(resolved.job, {}, replace(resolved, gpus=None).most_gpus())
    return fewest_that_fit(cases_of(resolved, placements)) if len(placements) else None


def fewest_that_fit(cases: Cases) -> int | None:
    """Fewest GPUs of a placement that fits; None where none does."""
    return int(cases.placements.gpus[cases.fitting].min()) if np.any(cases.fitting) else None


def cases_of(resolved: ResolvedService, placements: ReplicaLayouts) -> Cases:
    """Placements with their memory: what a replica holds, and whether that is enough."""
    job, traffic = resolved.job, resolved.traffic
    memory = serving_memory(job, placements, traffic.inputs)
    starts = job.engine.memory.grows or max_sequences(job, placements, memory, resolved.must_hold) >= 1.0
    holds = np.broadcast_to(_holds(resolved, placements, memory), len(placements))
    least = resolved.amount if resolved.load == "batch" and job.engine.memory.grows else 1.0
    if job.engine.memory.grows:
        live = sum(static_peak(job, placements, least, traffic.inputs, traffic.outputs).values())
        need_bytes = memory.beside_tensors + live
    else:
        need_bytes = sum(memory.fixed.values()) + request_bytes(job, placements, resolved.must_hold)
    fitting = np.asarray((holds >= least) & starts)
    return Cases(placements, memory, holds, fitting, np.broadcast_to(need_bytes, len(placements)))


def _holds(resolved: ResolvedService, placements: ReplicaLayouts, memory: ServingMemory) -> Array:
    """Requests at their full length that fit a replica at once: in the pool, or beside the weights where it grows."""
    job, traffic = resolved.job, resolved.traffic
    if not job.engine.memory.grows:
        tokens = traffic.inputs + traffic.outputs
        return max_sequences(job, placements, memory, tokens)
    one, two = (
        sum(static_peak(job, placements, batch, traffic.inputs, traffic.outputs).values()) for batch in (1.0, 2.0)
    )
    room = memory.usable_bytes - memory.beside_tensors - np.asarray(one)
    return np.asarray(np.maximum(1.0 + room / np.maximum(np.asarray(two) - np.asarray(one), 1.0), 0.0))


def replicas_of(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Replicas at work on the GPUs asked for, spare ones set aside; one where the number is open."""
    if resolved.gpus is None:
        return np.ones(len(placements))
    node, each = resolved.job.server.accelerators, placements.gpus
    packed = -(-resolved.gpus // node) * (node // each)  # a replica that fits a server lies inside one
    found = np.where(each <= node, np.minimum(packed, resolved.gpus // each), resolved.gpus // each)
    return np.asarray(np.maximum(found - resolved.spare_replicas, 1), dtype=float)


def alike(rates: Array) -> Array:
    """Rates in steps of 10 %."""
    return np.asarray(np.round(np.log(np.maximum(rates, 1e-9)) / np.log(ALIKE)))


def missed(resolved: ResolvedService, ttft_s: Array, tpot_s: Array) -> Array:
    """How far the limits on latency are missed: steps of 10 % of the worse one, 0 where both are kept [-]."""
    allowed = zip(allowed_latencies(resolved), (ttft_s, tpot_s), strict=True)
    shares = [np.asarray(values) / limit for limit, values in allowed if limit is not None]
    worst = np.asarray(np.maximum.reduce(shares)) if shares else np.zeros(np.shape(ttft_s))
    return np.asarray(np.where(worst > 1.0, np.ceil(np.log(np.maximum(worst, 1.0)) / np.log(ALIKE)), 0.0))


def missed_for(miss: Array, gpus: Array, possible: Flags) -> Array:
    """How far limits are missed, where none of the possible placements keeps them, with what a smaller miss costs [-].

        miss = log(value / limit) + log(gpus)

    Twice the GPUs must halve the miss: what no number of GPUs mends is not answered with hundreds of them.
    """
    if np.any(possible & (miss <= 0.0)):
        return miss
    return np.asarray(miss + alike(gpus))
