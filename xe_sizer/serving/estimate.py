"""What the sizing of a service comes to: the replicas with their memory, their latencies and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError
from xe_sizer.frozen import frozen
from xe_sizer.scenario.limits import chance, judge, memory_doubt, shares
from xe_sizer.serving.cases import fewest_gpus
from xe_sizer.serving.light import fastest
from xe_sizer.serving.memory import (
    BESIDE,
    Card,
    adapters,
    cache,
    cuda_graphs,
    left_free,
    max_sequences,
    request_bytes,
    static_peak,
    weights,
)
from xe_sizer.serving.resolved import LONGEST_S, PATIENCE_S
from xe_sizer.serving.traffic import HIGHEST_LOAD
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE, MEMORY_SPREAD, spread_of
from xe_sizer.units import GIB, HOUR_S, MEGA

if TYPE_CHECKING:
    from xe_sizer.result.common import Limit
    from xe_sizer.scenario.schema import LimitsSection
    from xe_sizer.serving.cases import Choice, Point
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import (
        ServingMemory,
    )
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.software.uncertainty import Spread

WING = "serving"
ROUND_TOKENS = 1024
CACHE, RESERVED = cache.name, left_free.name


@frozen
class ServingEstimate:
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
        return self.choice.fits

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
        """GPUs of all replicas, spare ones and those that only read prompts too."""
        reading = self.choice.prefills.gpus if self.choice.prefills else 0
        return int(self.placement.gpus[0]) * self.replicas + reading

    @property
    def nodes(self) -> int:
        """Servers that the replicas fill: one that fits a server lies inside one."""
        each, node = int(self.placement.gpus[0]), self.resolved.job.server.accelerators
        if self.choice.prefills:  # replicas of two sizes, which share servers
            return math.ceil(self.gpus / node)
        return math.ceil(self.replicas / (node // each)) if each <= node else math.ceil(self.gpus / node)

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
        late = any(limit.name == "max_ttft_s" and not limit.ok for limit in self.limits) or self.waits_too_long
        return self.fits and not self.overloaded and late and self.point.in_flight > self.choice.places

    @property
    def waits_too_long(self) -> bool:
        """Whether the first token comes later than people wait, and only a limit that looks mistaken allows it."""
        allowed = any(name == "max_ttft_s" for name, _ in self.resolved.unlikely_limits())
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
        return spread_of(self.resolved, of)

    @cached_property
    def fit_probability(self) -> float:
        """That a GPU holds what it must: everything beside the pool, and the cache of the least that serves [-]."""
        room = self.headroom_bytes
        if self.fits and not self.grows:
            room = self.pool_bytes - self.request_bytes
        return chance(MEMORY_SPREAD, self.usable_bytes / (self.usable_bytes - room))

    @property
    def judged_by(self) -> LimitsSection:
        """The limits, and the default objectives of what fits."""
        return self.resolved.limits if self.fits else self.resolved.given.values.limits

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        return judge(self.judged_by, WING, self)

    @property
    def least_sure(self) -> float | None:
        """Probability of the limit on a latency that is least sure; None where there is none [-]."""
        known = (limit for limit in self.limits if limit.name in LONGEST_S)
        return min((limit.probability for limit in known if limit.probability is not None), default=None)

    @property
    def keeps_limits(self) -> bool:
        """Whether the service takes its load and keeps every limit, as sure as was asked."""
        kept = all(limit.ok for limit in self.limits) and not any(memory_doubt(self, self.confidence))
        return kept and not self.overloaded and not self.queues and not self.too_long

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
        rate = self.resolved.tariff.per_gpu_hour
        return None if rate is None else self.billed_gpus * rate

    @cached_property
    def prefill_share(self) -> float:
        """Share of a replica's time that prompts take."""
        both_s = self.point.prompt_s + self.point.answer_s
        return self.point.prompt_s / both_s if both_s else 0.0

    @property
    def cost_per_million_input_tokens(self) -> float | None:
        return self._cost_per_million(self.prefill_share, self.resolved.traffic.inputs)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """Price of a million output tokens, by their share of a replica's time; None where no price is known."""
        return self._cost_per_million(1.0 - self.prefill_share, self.resolved.traffic.outputs)

    @property
    def cost_per_million_of_both(self) -> float | None:
        """Price of a million tokens, of prompts and of answers alike; None where no price is known."""
        return self._cost_per_million(1.0, self.resolved.traffic.inputs + self.resolved.traffic.outputs)

    def _cost_per_million(self, share: float, tokens: float) -> float | None:
        requests = self.taken_per_s * HOUR_S
        return None if self.cost is None or not requests else self.cost * share / (requests * tokens) * MEGA

    @property
    def grows(self) -> bool:
        """Whether the engine lets the cache grow with the answers, instead of allocating a pool."""
        return self.resolved.job.engine.memory.grows

    @property
    def usable_bytes(self) -> float:
        return self.memory.usable_bytes

    @cached_property
    def memory_parts(self) -> dict[str, float]:
        """What one GPU holds: the pool as the engine allocates it, or the batch at its peak where the cache grows.

        What does not fit is shown with the cache of one whole request, which is the least that serves, and with what
        the engine is told to leave free [bytes].
        """
        fixed = {name: float(value[0]) for name, value in self.memory.fixed.items()}
        if not self.grows:
            held = {one.name: fixed[one.name] for one in (weights, adapters) if one.name in fixed}
            if self.fits:
                return {**held, CACHE: self.pool_bytes, **fixed}
            return {**held, CACHE: self.request_bytes, **fixed, RESERVED: self._left_free_bytes()}
        job, traffic = self.resolved.job, self.resolved.traffic
        live = static_peak(job, self.placement, self.sequences, traffic.inputs, traffic.outputs)
        beside = {part.name: fixed[part.name] for part in BESIDE}
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
    def margin(self) -> str:
        """How close: over, tight (a few per cent of the memory are free beside one request) or headroom."""
        if not self.fits:
            return "over"
        room = self.headroom_bytes if self.grows else self.pool_bytes - self.request_bytes
        return "tight" if room < MEMORY_ERROR_SHARE * self.usable_bytes else "headroom"

    @property
    def roomy(self) -> bool:
        """Whether it fits, and an error of the model would not turn that."""
        return self.margin == "headroom"

    @property
    def pool_bytes(self) -> float:
        return float(self.memory.pool_bytes[0])

    @property
    def cache_bytes(self) -> float:
        """Room for the cache on one GPU: the pool, or all beside the other parts where it grows [bytes]."""
        if not self.grows:
            return self.pool_bytes
        return max(self.headroom_bytes + self.memory_parts.get(CACHE, 0.0), 0.0)

    @property
    def request_bytes(self) -> float:
        """Cache of one request, or of the longest sequence that it must hold, on one GPU [bytes]."""
        return float(request_bytes(self.resolved.job, self.placement, self.resolved.must_hold)[0])

    @property
    def too_long(self) -> bool:
        """Whether a longer sequence was asked for than the model has positions."""
        job, asked = self.resolved.job, self.resolved.given.values.serve.max_model_len or 0
        refuses = job.engine.memory.beyond_positions == "refuses"
        return refuses and bool(job.model.max_positions) and asked > job.model.max_positions

    def holds_one(self, tokens: int) -> bool:
        """Whether the cache of a replica holds one sequence of this length."""
        return bool(max_sequences(self.resolved.job, self.placement, self.memory, tokens)[0] >= 1.0)

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
        """Requests inside a replica whose cache grows: the batch, or as many as run, of those that fit to their end."""
        if self.resolved.load == "batch":
            return self.resolved.amount
        return max(min(self.point.running, float(int(self.choice.holds))), 1.0)

    def _left_free_bytes(self) -> float:
        """What the engine is told to leave of a GPU [bytes]."""
        fixed = self.memory.fixed
        beside = {name: value for name, value in fixed.items() if name != cuda_graphs.name}
        return float(left_free(Card(self.resolved.job, beside, fixed[cuda_graphs.name]))[0])
