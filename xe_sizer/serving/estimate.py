"""What the sizing of a service comes to: the replicas with their memory, their latencies and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.errors import InputError
from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import INFERENCE_POWER_SHARE, servers_power_w
from xe_sizer.result.common import LIKELY
from xe_sizer.scenario.limits import chance, judge, memory_doubt, shares
from xe_sizer.serving.job import HIGHEST_LOAD
from xe_sizer.serving.memory import (
    BESIDE,
    READING_PARTS,
    Card,
    adapters,
    cache,
    cuda_graphs,
    drafter,
    left_free,
    max_sequences,
    request_bytes,
    sequences_held,
    serving_memory,
    started_with,
    static_peak,
    weights,
)
from xe_sizer.serving.resolved import LATENCY_LIMITS, PATIENCE_S
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import fastest, texts_of_a_step
from xe_sizer.serving.uncertainty import MEMORY_SPREAD, allowed_latencies, find_spread
from xe_sizer.units import GIB, HOUR_S, MEGA, WATT_PER_KW

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.result.common import Limit
    from xe_sizer.scenario.schema import LimitsSection
    from xe_sizer.serving.disaggregation import Encoders
    from xe_sizer.serving.job import ReplicaLayouts
    from xe_sizer.serving.memory import Alone, ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation import Outcome
    from xe_sizer.serving.step_time import StepTime
    from xe_sizer.software.uncertainty import Spread

# Cases: placements with what they hold, and what is chosen of them.

ALIKE = 1.1  # what is closer than this is as good as equal: placements are not told apart more finely
PERCENTILES = (50.0, 95.0, 99.0)
Flags = NDArray[np.bool_]


class Point(Immutable):
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


class PrefillReplicas(Immutable):
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


class Choice(Immutable):
    """The placement of a replica with its memory, and the replicas at work.

    minimum : fewest GPUs on which a replica fits; None where none of the tried placements does
    holds : requests of this length that a replica's cache holds at once; fits : at least the one, or the batch
    full_rate : requests per second that a replica cannot exceed
    top_rate : the same within the limits on latency, where they can be kept; top_load : that in the unit of the load
    places : requests that a replica runs at once
    curve : the states of the placement, from one request to as many as fit; None for a batch, and beside prefills
    prefills : replicas that only read prompts; the others then only decode
    encoders : GPUs that only encode images, in front of the replicas
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
    encoders: Encoders | None = None
    test: Outcome | None = None


class Cases(Immutable):
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
    return fewest_that_fit(build_cases(resolved, placements)) if len(placements) else None


def fewest_that_fit(cases: Cases) -> int | None:
    """Fewest GPUs of a placement that fits; None where none does."""
    return int(cases.placements.gpus[cases.fitting].min()) if np.any(cases.fitting) else None


def build_cases(resolved: ResolvedService, placements: ReplicaLayouts) -> Cases:
    """Placements with their memory: what a replica holds, and whether that is enough."""
    job, traffic = resolved.job, resolved.traffic
    memory = serving_memory(job, placements, traffic.inputs)
    holds = sequences_held(job, placements, memory, traffic.inputs, traffic.outputs)
    holds = np.broadcast_to(holds, len(placements))
    least = 1.0 if job.answers else np.inf  # without answers, the largest step that the engine may make
    if resolved.load == "batch" and job.grows:
        least = resolved.amount * traffic.documents
    if job.grows:
        live = sum(static_peak(job, placements, least, traffic.inputs, traffic.outputs).values())
        starts: Flags = np.ones(len(placements), dtype=bool)
        need_bytes = memory.beside_tensors + live
    else:
        kept = least_cache_bytes(resolved, placements)
        starts = np.asarray(memory.pool_bytes >= kept)
        need_bytes = sum(memory.fixed.values()) + kept
    fitting = np.asarray((holds >= least) & starts & (memory.experts_bytes <= memory.usable_bytes))
    need_bytes = np.maximum(need_bytes, memory.experts_bytes)
    return Cases(placements, memory, holds, fitting, np.broadcast_to(need_bytes, len(placements)))


def least_cache_bytes(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Cache of one GPU without which an engine that keeps a pool does not serve: a sequence, or all it starts with."""
    job = resolved.job
    if job.allocated is not None:
        return started_with(job, placements)
    return request_bytes(job, placements, resolved.must_hold)


def count_replicas(resolved: ResolvedService, placements: ReplicaLayouts) -> Array:
    """Replicas at work on the GPUs asked for, spare ones set aside; where the number is open those of one placement.

    That is one, or as many as a GPU has slices.
    """
    if resolved.gpus is None:
        return np.full(len(placements), float(resolved.job.server.slices))
    slices, each = resolved.job.server.slices, placements.gpus
    node, gpus = resolved.job.server.accelerators * slices, resolved.gpus * slices
    packed = -(-gpus // node) * (node // each)  # a replica that fits a server lies inside one
    found = np.where(each <= node, np.minimum(packed, gpus // each), gpus // each)
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


# The estimate.

WING = "serving"
ROUND_TOKENS = 1024
CACHE, RESERVED = cache.name, left_free.name


class ServingEstimate(Immutable):
    """A resolved service with the placement of a replica and the number of replicas chosen.

    size : sizes another resolved service in the same way; raises InputError where no placement is legal
    """

    resolved: ResolvedService
    choice: Choice
    size: Callable[[ResolvedService], ServingEstimate]

    @property
    def placement(self) -> ReplicaLayouts:
        return self.choice.placement

    @property
    def memory(self) -> ServingMemory:
        return self.choice.memory

    @property
    def point(self) -> Point:
        return self.choice.point

    @property
    def replicas(self) -> int:
        return self.choice.replicas

    @property
    def fits(self) -> bool:
        return self.choice.fits and self.short is None

    @cached_property
    def minimum(self) -> int | None:
        """Fewest GPUs on which a replica fits in any layout, also where those that were asked for are too few."""
        here, resolved = self.choice.minimum, self.resolved
        if not resolved.fixed and (here is not None or resolved.gpus is None):
            return here
        return min((one for one in (here, fewest_gpus(resolved)) if one is not None), default=None)

    def resized(self, **changes: Any) -> ServingEstimate | None:
        """The same service with some fields of what is resolved changed; None where no placement is legal then."""
        try:
            return self.size(replace(self.resolved, **changes))
        except InputError:  # the sizes that the user fixed leave no placement
            return None

    @property
    def gpus(self) -> int:
        """GPUs of all replicas, spare ones and those that only read prompts or encode images too."""
        reading = self.choice.prefills.gpus if self.choice.prefills else 0
        reading += self.choice.encoders.replicas if self.choice.encoders else 0
        return math.ceil(int(self.placement.gpus[0]) * self.replicas / self.resolved.job.server.slices) + reading

    @cached_property
    def nodes(self) -> int:
        """Servers of the replicas, spread evenly over as few as hold them: one that fits a server lies inside one.

        Spare replicas are for the failure of a server: with them there is one server more than the load needs, if the
        load then survives it and nobody says how many GPUs there are.
        """
        server = self.resolved.job.server
        each, node = int(self.placement.gpus[0]), server.accelerators * server.slices
        if (
            self.choice.prefills or self.choice.encoders or each > node
        ):  # replicas of two sizes, which share servers, or over several
            return math.ceil(self.gpus / node)
        fewest, needed = (math.ceil(count / (node // each)) for count in (self.replicas, self.working_replicas))
        fixed = self.resolved.gpus is not None or self.resolved.load in (None, "batch")
        if not self.resolved.spare_replicas or fixed or self.survives(fewest):
            return fewest
        return needed + 1 if needed == fewest and self.survives(needed + 1) else fewest

    def left_by_failure(self, servers: int) -> int:
        """Replicas that are left as the server fails that has most of them [-]."""
        return self.replicas - math.ceil(self.replicas / servers)

    def survives(self, servers: int) -> bool:
        """Whether the load is still taken then."""
        left = self.left_by_failure(servers)
        return left >= self.working_replicas or left * self.choice.top_load >= self.resolved.amount

    def with_spares(self, spare: int) -> ServingEstimate:
        """The same replicas at work, and so many beside them: a load is sized without looking at those."""
        choice = replace(self.choice, replicas=self.working_replicas + spare)
        return replace(self, resolved=replace(self.resolved, spare_replicas=spare), choice=choice)

    @property
    def working_replicas(self) -> int:
        return max(self.replicas - self.resolved.spare_replicas, 1)

    @property
    def requests_per_s(self) -> float:
        """Of all replicas, as they are asked for."""
        return self.point.requests_per_s * self.working_replicas

    @property
    def taken_per_s(self) -> float:
        """Requests per second that all replicas answer: no more than they can, none where nothing fits."""
        rate = self.requests_per_s if self.fits else 0.0
        if self.overloaded:
            rate = min(rate, HIGHEST_LOAD * self.choice.full_rate * self.working_replicas)
        return rate

    @property
    def most_per_s(self) -> float:
        """Requests per second that all replicas take, within the limits on latency where they can be kept."""
        return self.choice.top_rate * self.working_replicas

    @property
    def utilisation(self) -> float:
        """Load over what the working replicas could take: within the limits, where a rate is to be kept."""
        most = self.choice.full_rate if self.resolved.load == "concurrency" else self.choice.top_rate
        return self.point.requests_per_s / most if most else 0.0

    @property
    def overloaded(self) -> bool:
        """Whether requests come faster than the replicas take them, so that they wait ever longer."""
        return self.fits and not math.isfinite(self.point.ttft_s)

    @property
    def in_flight(self) -> float:
        """Requests of all replicas, waiting or running; infinite where they come faster than they are taken."""
        return self.point.in_flight * self.working_replicas if self.fits else 0.0

    @property
    def queues(self) -> bool:
        """Whether requests wait for a place longer than the limit on the first token allows, or than people wait."""
        first = ("max_ttft_s", "max_request_s")
        late = any(limit.name in first and not limit.ok for limit in self.limits) or self.waits_too_long
        return self.fits and not self.overloaded and late and self.point.in_flight > self.choice.places

    @property
    def waits_too_long(self) -> bool:
        """Whether the first token comes later than people wait, and only a limit that looks mistaken allows it."""
        allowed = any(name != "max_tpot_s" for name, _ in self.resolved.unlikely_limits())
        return allowed and self.ttft_s > PATIENCE_S

    @property
    def judged_s(self) -> tuple[float, float, float]:
        """Time to the first token, per token and of a request that limits are compared with [s].

        At the percentile asked for where requests arrive by chance, else in the mean; infinite where nothing fits.
        """
        point = self.point
        if not self.fits:
            return math.inf, math.inf, math.inf
        return point.percentiles.get(self.resolved.percentile, (point.ttft_s, point.tpot_s, point.request_s))

    @property
    def ttft_s(self) -> float:
        return self.judged_s[0]

    @property
    def tpot_s(self) -> float:
        return self.judged_s[1]

    @property
    def answered_s(self) -> float:
        """Time of a whole request, as limits are compared with it [s]."""
        return self.judged_s[2]

    @cached_property
    def fastest_s(self) -> dict[str, float]:
        """What no software can beat, by quantity: requests that come by chance may find the replica empty [s]."""
        resolved = self.resolved
        together = self.point.running if resolved.load in ("concurrency", "batch") else 1.0
        found = fastest(resolved.job, self.placement, resolved.traffic, max(together, 1.0))
        return dict(zip(("ttft", "tpot", "request"), found, strict=True))

    def no_faster(self, quantity: str, low: float, expected: float) -> float:
        """The low end of a range, no lower than the accelerators allow [s]."""
        return max(low, min(self.fastest_s.get(quantity, 0.0), expected))

    def spread(self, of: str) -> Spread | None:
        """Factors on a quantity that a limit bounds, or on the peak of memory."""
        return find_spread(self.resolved, of)

    @cached_property
    def fit_probability(self) -> float:
        """That a GPU holds what it must: everything beside the pool, and the cache of the least that serves [-]."""
        return chance(MEMORY_SPREAD, self.usable_bytes / (self.usable_bytes - self.spare_bytes))

    @property
    def spare_bytes(self) -> float:
        """Of a GPU beside what it must hold: a pool as large as there is room for may be smaller [bytes]."""
        pooled = self.fits and not self.grows and self.resolved.job.allocated is None
        spare = self.pool_bytes - self.request_bytes if pooled else self.headroom_bytes
        return min(spare, *(self.usable_bytes - sum(parts.values()) for parts in self.apart.values()), math.inf)

    @cached_property
    def apart(self) -> dict[Alone, dict[str, float]]:
        """Memory of a GPU of each kind that holds a part of the model alone, by what it holds [bytes]."""
        experts = {name: float(value[0]) for name, value in self.memory.of_experts.items()}
        images = self.choice.encoders.memory if self.choice.encoders else {}
        found: dict[Alone, dict[str, float]] = {"experts": experts, "images": images}
        return {alone: parts for alone, parts in found.items() if parts}

    @property
    def short(self) -> Alone | None:
        """What GPUs of their own are too small for; None where none is."""
        return next((alone for alone, parts in self.apart.items() if sum(parts.values()) > self.usable_bytes), None)

    @property
    def judged_by(self) -> LimitsSection:
        """The limits, and the default objectives of what fits."""
        return self.resolved.limits if self.fits else self.resolved.scenario.values.limits

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        return judge(self.judged_by, WING, self)

    @property
    def least_sure(self) -> float | None:
        """Probability of the limit on a latency that is least sure; None where there is none [-]."""
        known = (limit for limit in self.limits if limit.name in LATENCY_LIMITS)
        return min((limit.probability for limit in known if limit.probability is not None), default=None)

    @property
    def keeps_limits(self) -> bool:
        """Whether the service takes its load and keeps every limit, as sure as was asked."""
        kept = all(limit.ok for limit in self.limits) and not any(memory_doubt(self, self.confidence))
        return kept and not self.overloaded and not (self.queues or self.too_long or self.rejects)

    @property
    def ok(self) -> bool:
        """Whether the service fits, takes its load and keeps every limit."""
        return self.fits and self.keeps_limits

    @property
    def confidence(self) -> float | None:
        """With which limits and memory must be kept, where it was asked for [-]."""
        return self.resolved.limits.confidence

    @property
    def shortfall(self) -> float:
        """Needed over allowed, of whatever lacks most: memory, places for the load, or a limit [-]."""
        memory = self.peak_bytes / self.usable_bytes
        crowd = self.utilisation if self.overloaded else self.ttft_s / PATIENCE_S if self.queues else 0.0
        return max(memory, crowd, *shares(self.judged_by, WING, self))

    @property
    def billed_gpus(self) -> int:
        """GPUs that are paid for: those asked for, and servers of which a part is used."""
        sold = self.resolved.tariff.sold_together
        return self.resolved.billed_gpus(self.nodes * sold if sold > 1 else self.gpus)

    @property
    def cost(self) -> float | None:
        """Price of an hour, None where no price is known."""
        found = self.resolved.tariff.hour(self.billed_gpus, self.gpus)
        return None if found is None else float(found)

    @property
    def power_w(self) -> float | None:
        """Power of the servers at load, without cooling [W]; None where nobody knows what they draw."""
        power_w = servers_power_w(self.resolved.job.server, self.gpus, INFERENCE_POWER_SHARE, self.nodes)
        return None if power_w is None else float(power_w)

    @property
    def power_kw(self) -> float | None:
        """The same in the unit of the limit on it."""
        return None if self.power_w is None else self.power_w / WATT_PER_KW

    @cached_property
    def prefill_share(self) -> float:
        """Share of a replica's time that prompts take."""
        both_s = self.point.prompt_s + self.point.answer_s
        return self.point.prompt_s / both_s if both_s else 0.0

    @property
    def cost_per_million_input_tokens(self) -> float | None:
        return self._cost_per_million(self.prefill_share, self.resolved.traffic.request_inputs)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """Price of a million output tokens, by their share of a replica's time; None where no price is known.

        Of a million input tokens where there is no output.
        """
        if not self.resolved.job.answers:
            return self.cost_per_million_input_tokens
        return self._cost_per_million(1.0 - self.prefill_share, self.resolved.traffic.outputs)

    @property
    def cost_per_million_of_both(self) -> float | None:
        """Price of a million tokens, of prompts and of answers alike; None where no price is known."""
        return self._cost_per_million(1.0, self.resolved.traffic.request_inputs + self.resolved.traffic.outputs)

    def _cost_per_million(self, share: float, tokens: float) -> float | None:
        requests = self.taken_per_s * HOUR_S
        return None if self.cost is None or not requests else self.cost * share / (requests * tokens) * MEGA

    @property
    def grows(self) -> bool:
        """Whether the engine lets the cache grow with the answers, instead of allocating a pool."""
        return self.resolved.job.grows

    @property
    def usable_bytes(self) -> float:
        return self.memory.usable_bytes

    @cached_property
    def memory_parts(self) -> dict[str, float]:
        """What one GPU holds: the pool as the engine allocates it, or the batch at its peak where the cache grows.

        What does not fit is shown with the cache of one whole request, which is the least that serves, and with what
        the engine is told to leave free; what does not fit on GPUs of its own with what those hold [bytes].
        """
        if self.short:
            return self.apart[self.short]
        fixed = {name: float(value[0]) for name, value in self.memory.fixed.items()}
        if not self.grows:
            held = {one.name: fixed[one.name] for one in (weights, drafter, adapters) if one.name in fixed}
            if self.fits:
                return {**held, CACHE: self.pool_bytes, **fixed}
            return {**held, CACHE: self.request_bytes, **fixed, RESERVED: float(left_free(self.card)[0])}
        job, traffic = self.resolved.job, self.resolved.traffic
        live = static_peak(job, self.placement, self.sequences, traffic.inputs, traffic.outputs)
        beside = {part.name: fixed[part.name] for part in BESIDE}
        if not job.answers:
            live = {part.name: live[part.name] for part in READING_PARTS if part.name in live}
        return {**{name: float(value[0]) for name, value in live.items()}, **beside}

    @property
    def peak_bytes(self) -> float:
        return sum(self.memory_parts.values())

    @property
    def headroom_bytes(self) -> float:
        room = self.usable_bytes - self.peak_bytes
        return room if abs(room) >= 1.0 else 0.0

    @property
    def usable_gib(self) -> float:
        return self.usable_bytes / GIB

    @property
    def headroom_gib(self) -> float:
        return self.headroom_bytes / GIB

    @property
    def roomy(self) -> bool:
        """Whether it likely fits."""
        return self.fits and self.fit_probability >= LIKELY

    @property
    def pool_bytes(self) -> float:
        return float(self.memory.pool_bytes[0])

    @property
    def cache_bytes(self) -> float:
        """Room for the cache on one GPU: the pool, or all beside the other parts where it grows [bytes]."""
        if not self.grows:
            return self.pool_bytes
        return max(self.headroom_bytes + self.memory_parts.get(CACHE, 0.0), 0.0) * self.resolved.job.answers

    @property
    def request_bytes(self) -> float:
        """Cache of one request, or of what the engine must hold to start, on one GPU [bytes]."""
        return float(least_cache_bytes(self.resolved, self.placement)[0])

    @property
    def too_long(self) -> bool:
        """Whether a longer sequence was asked for than the model has positions."""
        job, asked = self.resolved.job, self.resolved.scenario.values.serve.max_model_len or 0
        refuses = job.engine.memory.beyond_positions == "refuses"
        return refuses and bool(job.model.max_positions) and asked > job.model.max_positions

    @property
    def rejects(self) -> bool:
        """Whether the mean request has more tokens than the engine takes, which are no more than the positions.

        Lengths that nobody gave are no reason.

        Source: max_model_len of vLLM, and context_length of SGLang.
        """
        job, serve = self.resolved.job, self.resolved.scenario.values.serve
        given = serve.input_tokens is not None or serve.output_tokens is not None
        refuses = given and job.engine.memory.beyond_positions == "refuses" and bool(job.model.max_positions)
        return refuses and self.resolved.request_tokens > job.model.max_positions

    def holds_one(self, tokens: int) -> bool:
        """Whether the cache of a replica holds one sequence of this length, or as many as it is started with."""
        job = self.resolved.job
        least = 1 if job.allocated is None else job.allocated.sequences
        return bool(max_sequences(job, self.placement, self.memory, tokens)[0] >= least)

    @property
    def starts_with(self) -> int | None:
        """The longest sequence that the engine starts with, where it refuses to for the model's maximum [tokens]."""
        longest = self.resolved.values.serve.max_model_len
        if longest is None or not self.resolved.job.engine.memory.length_flag or not self.fits:
            return None
        return None if self.too_long or self.holds_one(longest) else self.longest_held(longest)

    def longest_held(self, too_long: int) -> int:
        """The longest sequence below `too_long` that the cache of a replica holds; 0 where it holds none [tokens].

        A round number where that leaves room for requests, and no more than the model's positions.
        """
        low, high = 0, too_long
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds_one(middle) else (low, middle)
        low = min(low, self.resolved.job.model.max_positions or low)
        traffic, tidy = self.resolved.traffic, low // ROUND_TOKENS * ROUND_TOKENS
        return tidy if tidy >= traffic.inputs + traffic.outputs else low

    @property
    def sequences(self) -> float:
        """Sequences inside a replica whose cache grows: the batch, or as many as run, of those that fit to their end.

        Of texts without answers, as many as a step takes.
        """
        if self.resolved.load == "batch":
            return self.resolved.amount * self.resolved.traffic.documents
        if not self.resolved.job.answers:
            return float(texts_of_a_step(self.resolved.job, self.placement, self.resolved.traffic)[0])
        return max(min(self.point.running, float(int(self.choice.holds))), 1.0)

    @property
    def card(self) -> Card:
        """A GPU, and what the engine has on it beside the pool."""
        fixed = dict(self.memory.fixed)
        graphs = fixed.pop(cuda_graphs.name)
        return Card(self.resolved.job, self.placement, fixed, graphs)
