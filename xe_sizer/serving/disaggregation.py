"""Prefill, decode and encoders of images on replicas of their own: the rate that they take and how long users wait.

A request waits for its prompt to be read, its cache goes to the replica that answers, and nothing stops its decodes.
"""

from __future__ import annotations

from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.serving.job import FULL, HIGHEST_LOAD, ReplicaLayouts
from xe_sizer.serving.memory import IMAGES, Holding, held_alone, request_bytes
from xe_sizer.serving.queueing import TO_THE_END, Latencies, Steady, evenly, highest, latencies, mean_past
from xe_sizer.serving.step_time import Work, prefill_time, step_time, vision_encoder
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.serving.job import ServingJob, Traffic
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.step_time import StepTime

# The KV cache on its way between replicas, and waiting for what is served one after the other.


def waiting_s(
    rate: ArrayLike, alone_s: ArrayLike, each_s: ArrayLike, spread: float = 0.0, percentile: float | None = None
) -> Array:
    """Waiting for what is served one after the other: prompts of a replica, caches on a link.

        wait = min(rate alone, 1) x alone (1 + v^2) / 2 / (1 - rho),  rho = rate each

    At a percentile the tail beyond the chance to wait is exponential, with the mean of those who wait.

    Parameters
    ----------
    rate : that come [1/s]
    alone_s, each_s : one alone, and what one takes of the time where many come together [s]
    spread : v, standard deviation of the times over their mean [-]
    percentile : of requests, 50 to 99.9; None: the mean [-]

    Returns
    -------
    ndarray of float, shape that rates and times broadcast to [s]

    Source: Pollaczek-Khinchine; with each = alone and v = 0 the M/D/1 queue of DistServe (arXiv:2401.09670, eq. 1).
    """
    rate, alone_s = as_array(rate), as_array(alone_s)
    load = np.minimum(rate * as_array(each_s), HIGHEST_LOAD)
    busy = np.minimum(rate * alone_s, 1.0)
    mean_s = alone_s * (1.0 + spread**2) / 2.0 / (1.0 - load)
    if percentile is None:
        return np.asarray(busy * mean_s)
    return np.asarray(mean_s * np.log(np.maximum(busy / (1.0 - percentile / 100.0), 1.0)))


def transfer_s(
    job: ServingJob, prefill: ReplicaLayouts, decode: ReplicaLayouts, tokens: float, same_node: ArrayLike
) -> Array:
    """Time of one prompt's cache from the replica that read it to the one that answers, behind the prefill.

        t = alpha + bytes / B,  bytes = max(request_bytes(prefill), request_bytes(decode))

    All ranks of a pair of replicas send at once, each over its own link: inside a node the accelerator's, between
    nodes its share of the NICs. The side with fewer ranks, which hold more each, sets the pace.

    Parameters
    ----------
    job : model, format of the cache, and the network
    prefill, decode : placements of the same shape (pairs,)
    tokens : of a prompt [tokens]
    same_node : whether both replicas stand in one node [-]

    Returns
    -------
    ndarray of float, shape (pairs,) [s]

    Source: `laws.collectives.collective_time_s`; NIXL and Mooncake send rank by rank (vLLM
    distributed/kv_transfer/kv_connector/v1/nixl_connector.py, SGLang disaggregation/mooncake/conn.py).
    """
    message = np.maximum(request_bytes(job, prefill, tokens), request_bytes(job, decode, tokens))
    return collective_time_s(POINT_TO_POINT, message, 2.0, np.where(same_node, 2.0, 1.0), job.network)


# Images that GPUs of their own encode.


class Encoders(Immutable):
    """GPUs that only encode images, in front of the replicas that are sent the embeddings.

    replicas : of one GPU each; utilisation : of them, above 1 where more images come than they encode [-]
    top_rate : requests per second whose images they encode [1/s]
    queue_s, encode_s, sent_s : mean wait of a request for an encoder, its images alone, its embeddings on their way
    embedding_bytes : of a request [bytes]; same_node : whether they stay inside a node
    held : of one of the GPUs, what `serving.memory.ALONE_PARTS` are computed from
    """

    replicas: int
    utilisation: float
    top_rate: float
    queue_s: float
    encode_s: float
    sent_s: float
    embedding_bytes: float
    same_node: bool
    held: Holding

    @cached_property
    def memory(self) -> dict[str, float]:
        """Of one of the GPUs, by component [bytes]."""
        return {name: float(value[0]) for name, value in held_alone(self.held, IMAGES).items()}

    @property
    def total_s(self) -> float:
        """From the arrival of a request to its embeddings, in the mean [s]."""
        return self.queue_s + self.encode_s + self.sent_s


BUSY = 0.7  # chosen: share of their time that encoders work at most where their number is open
BUSIEST = 0.95  # chosen: the same up to which their queue is computed; what more images wait follows from the load


def images_s(job: ServingJob, requests: float) -> float:
    """Time in which one accelerator encodes the images of so many requests together.

        t = t(vision encoder) + step of the host

    Parameters
    ----------
    job : with the images of a request, and the encoder in its model
    requests : whose images are encoded together [-]

    Returns
    -------
    float [s]

    Source: `serving.step_time.vision_encoder`.
    """
    assert job.images is not None
    work = Work(prefills=requests, prefill_tokens=job.images.prompt_tokens)
    step = step_time(job, ReplicaLayouts.of(), work)
    return float(step.parts[vision_encoder.name][0]) + job.engine.step_s


def encoders(job: ServingJob, rate: float, asked: int | None, same_node: bool) -> Encoders:
    """GPUs that encode the images of so many requests per second.

        n = ceil(rate each / 0.7),  each = t(b requests) / b
        b = max(floor(max_step_tokens / tokens of the images of a request), 1)
        bytes = tokens of the images x hidden x element

    Parameters
    ----------
    job : with the images of a request, and the encoder in its model
    rate : of the service [1/s]
    asked : how many there are; None: as many as the rate needs
    same_node : whether embeddings stay inside a node

    Returns
    -------
    Encoders, seconds [s], bytes [bytes] and requests per second [1/s]

    Source: `waiting_s`; vLLM's encoder cache and its connectors (distributed/ec_transfer), whose budget is that of a
    step; SGLang --encoder-only.
    """
    assert job.images is not None
    tokens = job.images.each * job.images.seen.tokens
    together = max(job.engine.batching.max_step_tokens // tokens, 1.0)
    held = Holding(job, ReplicaLayouts.of(), max(float(job.engine.batching.max_step_tokens), tokens), 0.0)
    alone_s, each_s = images_s(job, 1.0), images_s(job, together) / together
    count = asked or max(int(np.ceil(rate * each_s / BUSY)), 1)
    load = rate * each_s / count
    sent_bytes = tokens * job.model.hidden * job.element_bytes
    near = 2.0 if same_node else 1.0
    return Encoders(
        replicas=count,
        utilisation=load,
        top_rate=HIGHEST_LOAD * count / each_s,
        queue_s=float(waiting_s(min(rate / count, BUSIEST / each_s), alone_s, each_s)),
        encode_s=alone_s,
        sent_s=float(np.max(collective_time_s(POINT_TO_POINT, sent_bytes, 2.0, near, job.network))),
        embedding_bytes=sent_bytes,
        same_node=same_node,
        held=held,
    )


# The two pools: a queue of prompts, and steps of decodes alone.


class Prompts(Immutable):
    """Replicas that only read prompts; arrays of shape (placements,), seconds [s].

    step, steps : a step of one prompt alone, and how many it takes
    alone_s : such a prompt; each_s : of the replica's time what a prompt takes in full steps
    """

    step: StepTime
    steps: Array
    alone_s: Array
    each_s: Array


def prompts_of(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic) -> Prompts:
    """Time that a replica which only reads prompts takes for one, alone and among others.

        alone = steps x t(one prompt)
        each = steps x t(n prompts) / n,  n = groups x max(floor(limit / new tokens), 1)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    traffic : lengths of prompts, and the share of them that is cached

    Returns
    -------
    Prompts, shape (placements,), seconds [s]

    Source: `serving.step_time.prefill_time`; n prompts fill a step of `max_step_tokens` in every group of the replica.
    """
    new, cached = traffic.new_inputs, traffic.inputs - traffic.new_inputs
    together = job.groups(placements) * max(job.engine.batching.max_step_tokens // new, 1.0)
    step, steps = prefill_time(job, placements, 1.0, traffic.inputs, cached)
    full, times = prefill_time(job, placements, together, traffic.inputs, cached)
    steps = np.broadcast_to(steps, len(placements))
    return Prompts(step, steps, np.asarray(step.total_s * steps), np.asarray(full.total_s * times / together))


def decoding_only(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic, running: ArrayLike) -> Steady:
    """A replica that always has the same number of requests inside, whose prompts others have read.

        t = t(decodes),  rate = running / (t outputs / tokens per step)

    The first token comes out of its first step, as the last position of a prompt is computed where the answer is
    made. Nothing stops the decodes.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,) or (points,)
    traffic : lengths of prompts and answers
    running : requests inside, shape (points,) [-]

    Returns
    -------
    Steady, shape (points,), seconds [s] and requests per second [1/s]

    Source: vLLM's and SGLang's decode instances, which get every prompt's cache but for its last token.
    """
    running = np.broadcast_to(as_array(running), np.broadcast_shapes(np.shape(running), placements.tp.shape))
    work = Work(decodes=running, decode_past=mean_past(traffic), decode_tokens=traffic.draft_tokens + 1.0)
    decode = step_time(job, placements, work)
    step_s = decode.total_s * (1.0 + traffic.draft_tokens * traffic.draft_cost)
    return Steady(
        running=running,
        decoding=running,
        decode=decode,
        prefill=decode,
        step_s=step_s,
        tpot_s=step_s / traffic.tokens_per_step * (traffic.outputs > 1.0),
        prefill_s=step_s + job.request_s,
        prompt_s=np.zeros(running.shape),
        requests_per_s=running / (step_s * traffic.outputs / traffic.tokens_per_step),
        room_s=np.zeros(running.shape),
    )


# Latencies, and the rate that the pools take.

NEXT_TO = 1.0 - 1e-9  # chosen: the top rate, so that rounding does not lead beyond it


class Kinds(Immutable):
    """Placements of replicas of both kinds that a service may be made of.

    prompts : of the prefill placements; found : the states of the decode placements
    """

    prefill: ReplicaLayouts
    prompts: Prompts
    decode: ReplicaLayouts
    found: Curve


class Pools(Immutable):
    """Services of so many prefill and so many decode replicas; arrays of shape (services,).

    first, second : which of the placements of each kind; prefills, decodes : replicas of each kind
    """

    resolved: ResolvedService
    kinds: Kinds
    first: IntArray
    second: IntArray
    prefills: Array
    decodes: Array

    def __getitem__(self, index: NDArray[np.bool_] | IntArray | slice) -> Pools:
        places, counts = (self.first[index], self.second[index]), (self.prefills[index], self.decodes[index])
        return Pools(self.resolved, self.kinds, *places, *counts)

    @property
    def traffic(self) -> Traffic:
        return self.resolved.traffic

    @cached_property
    def gpus(self) -> Array:
        """GPUs of both kinds of replicas [-]."""
        prefill, decode = self.kinds.prefill.gpus[self.first], self.kinds.decode.gpus[self.second]
        return np.asarray(self.prefills * prefill + self.decodes * decode)

    @cached_property
    def found(self) -> Curve:
        return self.kinds.found[self.second]

    @cached_property
    def alone_s(self) -> Array:
        """A prompt on an idle replica [s]."""
        return self.kinds.prompts.alone_s[self.first]

    @cached_property
    def each_s(self) -> Array:
        """Time of a prefill replica that a prompt takes under load [s]."""
        return self.kinds.prompts.each_s[self.first]

    @cached_property
    def sent_s(self) -> Array:
        """A prompt's cache on its way [s]."""
        job, node = self.resolved.job, self.resolved.job.server.accelerators
        prefill, decode = self.kinds.prefill[self.first], self.kinds.decode[self.second]
        return transfer_s(job, prefill, decode, self.traffic.inputs, self.gpus <= node)

    @cached_property
    def links(self) -> Array:
        """Caches that can be on their way at once: a rank of a group of sequences sends one at a time [-]."""
        prefill, decode = self.kinds.prefill.dp[self.first], self.kinds.decode.dp[self.second]
        return np.minimum(self.prefills * prefill, self.decodes * decode)

    @cached_property
    def top_rate(self) -> Array:
        """Requests per second that the slowest of reading, sending and answering takes [1/s]."""
        parts = (self.prefills / self.each_s, self.links / self.sent_s, self.decodes * self.found.top_rate)
        return np.asarray(HIGHEST_LOAD * np.minimum.reduce(parts))

    def stages_s(self, rate: ArrayLike, percentile: float | None = None) -> dict[str, Array]:
        """The parts of the time to the first token: wait and read, sent, answered [s]."""
        traffic, rate = self.traffic, np.minimum(as_array(rate), NEXT_TO * self.top_rate)
        longer = 1.0
        if percentile is not None:
            deviations = NormalDist().inv_cdf(percentile / 100.0)
            longer = traffic.inputs_at(deviations) / traffic.inputs
        wait_s = waiting_s(rate / self.prefills, self.alone_s, self.each_s, traffic.input_spread, percentile)
        link_s = waiting_s(rate / self.links, self.sent_s, self.sent_s, traffic.input_spread, percentile)
        answered = latencies(self.found, replace(traffic, input_spread=0.0), rate / self.decodes, percentile)
        return {
            "queue": wait_s,
            "prefill": self.alone_s * longer + self.resolved.job.request_s,
            "transfer": self.sent_s * longer + link_s,
            "decode": answered.ttft_s,
            "tpot": answered.tpot_s,
            "rest": answered.request_s - answered.ttft_s,
        }

    def latencies(self, rate: ArrayLike, percentile: float | None = None) -> Latencies:
        """Latencies of a service at a rate of arrivals.

            ttft = wait for others' prompts + prefill + transfer + wait for a place and the first decode
            request = ttft + (outputs - 1) tpot

        Parameters
        ----------
        rate : requests per second of the service; above the top rate nothing is bounded, shape (..., services) [1/s]
        percentile : of requests, 50 to 99.9; None: the mean [-]

        Returns
        -------
        Latencies, shape of the rates, seconds [s]

        Source: DistServe (arXiv:2401.09670, section 3) for the stages; `waiting_s`, `serving.queueing.latencies`.
        """
        found = self.stages_s(rate, percentile)
        unbounded = np.where(as_array(rate) <= self.top_rate, 0.0, np.inf)
        ttft_s = sum((found[name] for name in ("queue", "prefill", "transfer", "decode")), unbounded)
        return Latencies(ttft_s, found["tpot"], ttft_s + found["rest"])

    def rate_of(self, amount: float) -> tuple[Array, Array]:
        """Requests per second under an amount of the load, and what requests wait beside at the top rate [s].

        amount = rate                                requests per second
        amount = rate x (request(rate) + think)      requests in flight (nobody thinks), users

        Solved by search: the right side rises with the rate. Source: the response time law of interactive systems.
        """
        load, think_s = self.resolved.load, self.resolved.think_s
        if load is None:
            within = self.rate_within(self.resolved.percentile)
            full = FULL * self.top_rate
            return np.where(within > 0, np.minimum(within, full), full), np.zeros(full.shape)
        if load == "request_rate":
            return np.full(self.top_rate.shape, amount), np.zeros(self.top_rate.shape)

        def keeps(rates: Array) -> Array:
            return np.asarray(rates * (self.latencies(rates).request_s + think_s) <= amount)

        low = highest(np.zeros(self.top_rate.shape), self.top_rate, evenly, keeps, TO_THE_END)
        left_s = amount / low - think_s - self.latencies(low).request_s
        return low, np.where(low > (1.0 - 2.0**-30) * self.top_rate, np.maximum(left_s, 0.0), 0.0)

    def under(self, amount: float, percentile: float | None = None) -> tuple[Array, Latencies]:
        """Requests per second of the service and its latencies under an amount of the load."""
        rate, wait_s = self.rate_of(amount)
        found = self.latencies(rate, percentile)
        return rate, Latencies(found.ttft_s + wait_s, found.tpot_s, found.request_s + wait_s)

    def rate_within(self, percentile: float | None) -> Array:
        """The highest rate with which both limits on latency are kept; 0: none is [1/s]."""
        allowed = allowed_latencies(self.resolved)
        if allowed == (None, None):
            return self.top_rate
        ttft_s, tpot_s = (np.inf if limit is None else limit for limit in allowed)

        def keeps(rates: Array) -> Array:
            at = self.latencies(rates, percentile)
            return np.asarray((at.ttft_s <= ttft_s) & (at.tpot_s <= tpot_s))

        none = np.zeros(self.top_rate.shape)
        return highest(none, self.top_rate, evenly, keeps)
