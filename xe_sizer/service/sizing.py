"""A resolved serving question to its answer: the placement of a replica, how many of them, and how they are loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.operators import Array
from xe_sizer.service.placing import legal_placements
from xe_sizer.service.question import ServeQuestion
from xe_sizer.serving.memory import ServingMemory, max_sequences, serving_memory, static_peak
from xe_sizer.serving.phases import StepTime
from xe_sizer.serving.placement import Placements
from xe_sizer.serving.queueing import Curve, Latencies, capacity, curve, latencies, rate_within
from xe_sizer.serving.static import StaticBatch, static_batch
from xe_sizer.serving.steady import steady
from xe_sizer.units import HOUR_S

PERCENTILES = (50.0, 95.0, 99.0)
Flags = NDArray[np.bool_]
FULL = 0.98  # share of its top rate at which a replica is run where nobody states a load
TARGET_LOAD = (
    0.85  # the same where a request rate comes without a limit on latency, which would say how full is too full
)


@dataclass(frozen=True, eq=False)
class Point:
    """One replica at work; seconds and rates of it.

    percentiles : percentile -> latencies, where requests arrive by chance; else the mean alone stands for all
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


@dataclass(frozen=True, eq=False)
class Served:
    """The chosen placement and its replicas.

    minimum : fewest GPUs on which a replica fits; None where none of the tried placements does
    holds : requests of this length that a replica's cache holds at once; fits : at least the one, or the batch
    top_rate : requests per second of a replica within the limits on latency
    """

    question: ServeQuestion
    placement: Placements
    memory: ServingMemory
    minimum: int | None
    holds: float
    fits: bool
    top_rate: float
    replicas: int
    point: Point
    candidates: int

    @property
    def gpus(self) -> int:
        """GPUs of all replicas, spare ones too."""
        return int(self.placement.gpus[0]) * self.replicas

    @property
    def working_replicas(self) -> int:
        return max(self.replicas - self.question.spare_replicas, 1)

    @property
    def requests_per_s(self) -> float:
        """Of all replicas."""
        return self.point.requests_per_s * self.working_replicas

    @property
    def utilisation(self) -> float:
        """Load over what the working replicas could take within the limits."""
        return self.point.requests_per_s / self.top_rate if self.top_rate else 0.0

    @property
    def billed_gpus(self) -> int:
        node = self.question.job.server.accelerators
        return -(-self.gpus // node) * node if self.question.whole_nodes else self.gpus

    @property
    def cost_per_hour(self) -> float | None:
        rate = self.question.price_per_gpu_hour
        return None if rate is None else self.billed_gpus * rate

    @property
    def cost_per_output_token(self) -> float | None:
        """Price of all GPUs over the tokens that they make; nothing is charged to prompts."""
        tokens_per_s = self.requests_per_s * self.question.traffic.outputs
        hourly = self.cost_per_hour
        return None if hourly is None or not tokens_per_s else hourly / (tokens_per_s * HOUR_S)

    @cached_property
    def prefill_share(self) -> float:
        """Share of a replica's time that prompts take."""
        both_s = self.point.prompt_s + self.point.answer_s
        return self.point.prompt_s / both_s if both_s else 0.0


def size(question: ServeQuestion) -> Served:
    """Choose the placement of a replica and the number of replicas.

    Raises
    ------
    InputError : no placement is legal on the GPUs asked for
    """
    job = question.job
    placements = legal_placements(job, question.fixed, _most_gpus(question))
    if not len(placements):
        raise InputError(_no_placement(question))
    memory = serving_memory(job, placements, question.traffic.inputs)
    holds = _holds(question, placements, memory)
    fitting = holds >= (question.amount if question.load == "batch" and _grows(question) else 1.0)
    minimum = int(placements.gpus[fitting].min()) if np.any(fitting) else None
    if question.load == "batch":
        return _static(question, placements, memory, holds, fitting, minimum)
    return _online(question, placements, memory, holds, fitting, minimum)


def _grows(question: ServeQuestion) -> bool:
    return question.job.engine.memory.pool == "grows"


def _most_gpus(question: ServeQuestion) -> int | None:
    return question.gpus or question.given.values.limits.max_gpus


def _holds(question: ServeQuestion, placements: Placements, memory: ServingMemory) -> Array:
    """Requests at their full length that fit a replica at once: in the pool, or beside the weights where it grows."""
    job, traffic = question.job, question.traffic
    if not _grows(question):
        tokens = traffic.inputs + traffic.outputs
        return max_sequences(job, placements, memory, tokens)
    one, two = (
        sum(static_peak(job, placements, batch, traffic.inputs, traffic.outputs).values()) for batch in (1.0, 2.0)
    )
    beside = sum(memory.fixed[name] for name in ("CUDA context", "communicators", "workspaces"))
    room = memory.usable_bytes - beside - np.asarray(one)
    return np.asarray(np.maximum(1.0 + room / np.maximum(np.asarray(two) - np.asarray(one), 1.0), 0.0))


def _pick(array: Array, index: int) -> float:
    return float(np.broadcast_to(array, max(index + 1, np.size(array)))[index])


def _at(memory: ServingMemory, index: int) -> ServingMemory:
    one = slice(index, index + 1)
    return ServingMemory(
        {name: value[one] for name, value in memory.fixed.items()},
        memory.pool_bytes[one],
        memory.usable_bytes,
        memory.over_bytes[one],
    )


def _replicas_of(question: ServeQuestion, placements: Placements) -> Array:
    """Replicas at work on the GPUs asked for, spare ones set aside; one where the number is open."""
    if question.gpus is None:
        return np.ones(len(placements))
    return np.maximum(question.gpus // placements.gpus - question.spare_replicas, 1).astype(float)


def _static(
    question: ServeQuestion,
    placements: Placements,
    memory: ServingMemory,
    holds: Array,
    fitting: Flags,
    minimum: int | None,
) -> Served:
    """A batch that starts together: the fewest GPUs that hold it and keep the limits, then the fastest."""
    job, traffic, limits = question.job, question.traffic, question.given.values.limits
    most = np.full(len(placements), np.inf) if _grows(question) else capacity(job, placements, memory, traffic)
    found = static_batch(job, placements, question.amount, traffic.inputs, traffic.outputs, most, traffic)
    kept = fitting & _within(limits.max_ttft_s, found.ttft_s) & _within(limits.max_tpot_s, found.tpot_s)
    order = np.lexsort(
        (found.request_s, placements.gpus if question.gpus is None else -placements.gpus, ~kept, ~fitting)
    )
    best = int(order[0])
    replicas = int(_replicas_of(question, placements)[best])
    rate = question.amount / _pick(found.request_s, best)
    values = [_pick(getattr(found, name), best) for name in ("ttft_s", "tpot_s", "request_s")]
    point = Point(
        running=question.amount,
        requests_per_s=rate,
        ttft_s=values[0],
        tpot_s=values[1],
        request_s=values[2],
        percentiles={},
        prefill=_step(found, best, "prefill"),
        decode=_step(found, best, "decode"),
        prompt_s=values[0] / question.amount,
        answer_s=(values[2] - values[0]) / question.amount,
    )
    one = slice(best, best + 1)
    return Served(
        question, placements[one], _at(memory, best), minimum, _pick(holds, best), bool(fitting[best]),
        rate, replicas + question.spare_replicas, point, len(placements),
    )  # fmt: skip


def _within(limit: float | None, values: Array) -> Flags:
    return np.ones(np.shape(values), dtype=bool) if limit is None else np.asarray(values <= limit)


def _step(found: StaticBatch, index: int, name: str) -> StepTime:
    step: StepTime = getattr(found, name)
    return StepTime(
        {part: np.array([_pick(value, index)]) for part, value in step.parts.items()},
        {part: np.array([_pick(value, index)]) for part, value in step.modules.items()},
    )


def _online(
    question: ServeQuestion,
    placements: Placements,
    memory: ServingMemory,
    holds: Array,
    fitting: Flags,
    minimum: int | None,
) -> Served:
    """Requests that come and go: the cheapest placement that takes the load within the limits, then the fastest."""
    limits = question.given.values.limits
    found = curve(question.job, placements, memory, question.traffic)
    inside = rate_within(found, question.traffic, limits.max_ttft_s, limits.max_tpot_s, question.percentile)
    inside = np.where(fitting, inside, 0.0)
    top = np.where(inside > 0, inside, found.top_rate * fitting)
    replicas = _fleet(question, placements, top)
    per_replica = _rate_of_replica(question, placements, found, replicas, top)
    at = latencies(found, question.traffic, per_replica)
    gpus = replicas * placements.gpus
    per_gpu = per_replica / placements.gpus
    cheapest = gpus if question.load == "request_rate" else np.zeros(len(placements))
    keeps = _keeps(question, found, per_replica, inside)
    least = placements.gpus if question.load != "request_rate" and question.gpus is None else 0 * placements.gpus
    order = np.lexsort((at.tpot_s, -per_gpu, least, cheapest, ~keeps, ~fitting))
    best = int(order[0])
    one = slice(best, best + 1)
    point = _point(question, placements[one], _curve_at(found, best), float(per_replica[best]))
    return Served(
        question, placements[one], _at(memory, best), minimum, _pick(holds, best), bool(fitting[best]),
        float(top[best]), int(replicas[best]) + question.spare_replicas, point, len(placements),
    )  # fmt: skip


def _keeps(question: ServeQuestion, found: Curve, rate: Array, inside: Array) -> Flags:
    """Whether each placement serves its share of the load within the limits."""
    return np.asarray((inside > 0) & (rate <= inside * (1.0 + 1e-9)))


def _fleet(question: ServeQuestion, placements: Placements, top: Array) -> Array:
    """Replicas of each placement: those that the GPUs asked for hold, else as many as the request rate needs."""
    if question.gpus is not None or question.load != "request_rate":
        return _replicas_of(question, placements)
    limits = question.given.values.limits
    bounded = limits.max_ttft_s is not None or limits.max_tpot_s is not None
    needed = np.ceil(question.amount / np.maximum(top * (1.0 if bounded else TARGET_LOAD), 1e-12) - 1e-9)
    return np.asarray(np.where(top > 0, np.maximum(needed, 1.0), 1.0))


def _rate_of_replica(
    question: ServeQuestion, placements: Placements, found: Curve, replicas: Array, top: Array
) -> Array:
    """Requests per second that each replica gets: its share of the load, what keeps it so full, or all it can take."""
    if question.load == "request_rate":
        return np.asarray(question.amount / replicas)
    if question.load == "concurrency":
        running = np.minimum(question.amount, np.maximum(found.most, 1.0))
        return found.at_running(running, found.rates)[0]
    return np.asarray(np.minimum(top, FULL * found.top_rate))


def _curve_at(found: Curve, index: int) -> Curve:
    names = ("running", "decoding", "step_s", "tpot_s", "prefill_s", "prompt_s", "requests_per_s")
    one = slice(index, index + 1)
    states = replace(found.states, **{name: getattr(found.states, name)[:, one] for name in names})
    return Curve(states, found.most[one])


def _point(question: ServeQuestion, placement: Placements, found: Curve, rate: float) -> Point:
    """The replica at its rate: latencies in the mean and at the percentiles, and the steps that it runs."""
    traffic = question.traffic
    if question.load == "concurrency":
        running = min(question.amount, max(float(found.most[0]), 1.0))
        queued = max(question.amount - running, 0.0)
    else:
        running = float(found.at_rate(np.array([min(rate, float(found.top_rate[0]))]), found.states.running)[0][0])
        queued = 0.0
    state = steady(question.job, placement, traffic, max(running, 1.0))
    if question.load == "concurrency":
        ttft_s = float(state.step_s[0] / 2.0 + state.prefill_s[0]) + queued / rate
        tpot_s = float(state.tpot_s[0])
        mean = (ttft_s, tpot_s, ttft_s + max(traffic.outputs - 1.0, 0.0) * tpot_s)
        percentiles = {}
    else:
        mean = _values(latencies(found, traffic, np.array([rate])))
        wanted = sorted({*PERCENTILES, question.percentile})
        percentiles = {one: _values(latencies(found, traffic, np.array([rate]), one)) for one in wanted}
    share_s = traffic.outputs / traffic.tokens_per_step * state.step_s / state.decoding
    prompt_s, answer_s = float(state.prompt_s[0]), float((share_s - state.prompt_s)[0])
    return Point(running, rate, *mean, percentiles, state.prefill, state.decode, prompt_s, answer_s)


def _values(found: Latencies) -> tuple[float, float, float]:
    return float(found.ttft_s[0]), float(found.tpot_s[0]), float(found.request_s[0])


def _no_placement(question: ServeQuestion) -> Problem:
    fixed = ", ".join(f"{name} {value}" for name, value in question.fixed.items())
    message = "no placement is possible" + (f" with {fixed}" if fixed else "")
    message += f" on {question.gpus} GPUs" if question.gpus else ""
    hint = "tp divides heads and stays inside a node, pp divides layers, ep divides experts and tp x dp"
    return Problem(message, question.given.locate(("gpus",)), hint)
