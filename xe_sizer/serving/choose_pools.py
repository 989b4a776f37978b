"""How many replicas only read prompts, how many only decode, and which placements both have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.graph.operators import as_array
from xe_sizer.serving.cases import PERCENTILES, Point, PrefillReplicas, alike, cases_of, missed, missed_for
from xe_sizer.serving.disaggregation import Kinds, Pools
from xe_sizer.serving.layout import ReplicaLayouts
from xe_sizer.serving.load import LOADS
from xe_sizer.serving.memory import request_bytes
from xe_sizer.serving.pools import decoding_only, prompts_of
from xe_sizer.serving.space import worthwhile
from xe_sizer.serving.states import curve
from xe_sizer.serving.traffic import HIGHEST_LOAD, TARGET_LOAD
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.serving.cases import Cases, Choice
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.traffic import Traffic

AUTO = "auto"
MOST_COUNTS = 48  # numbers of prefill replicas that are tried on GPUs that are given
NEAR = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6, 2.0, 3.0)  # times the replicas that the load needs at a guess
FULL_BATCH = 64  # prefill and decode replicas that a service without a load is looked for with, at most

MOST_TRIED = 64  # numbers of replicas of a kind that a search looks at near the best so far


def decode_curve(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic) -> Curve:
    """The states of replicas that only decode, from one request to as many as their cache holds.

        running_i = c^(i / (GRID - 1)),  i = 0 ... GRID - 1

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers [tokens]

    Returns
    -------
    Curve, shape (GRID, placements), seconds [s]

    Source: `serving.states.curve` over `decoding_only`.
    """
    return curve(job, placements, memory, replace(traffic, input_spread=0.0), decoding_only)


def choose_pools(resolved: ResolvedService, prefill: ReplicaLayouts, decode: ReplicaLayouts) -> Choice | None:
    """The best numbers and placements of replicas that read prompts and that answer; None where no pair fits.

    Without GPUs that are given the fewest that keep the limits, else what serves the load best on these.

    Parameters
    ----------
    resolved : the service
    prefill, decode : legal placements of each kind, shape (placements,)

    Source: own derivation: numbers near those that the rates of both kinds ask for, and then each near the best.
    """
    kinds = _kinds(resolved, prefill, decode)
    tried = None if kinds is None else _tried(resolved, kinds)
    if kinds is None or tried is None or not len(tried.prefills):
        return None
    best = _best(resolved, tried)
    if resolved.gpus is None:
        near = _near(resolved, kinds, tried[best : best + 1])
        tried, best = near, _best(resolved, near)
    return _choice(resolved, tried[best : best + 1])


def _kinds(resolved: ResolvedService, prefill: ReplicaLayouts, decode: ReplicaLayouts) -> Kinds | None:
    """The placements of both kinds that hold their part and that no other beats in what they are for."""
    job, traffic = resolved.job, resolved.traffic
    reads, answers = (_fitting(resolved, placements) for placements in (prefill, decode))
    if not (len(reads.placements) and len(answers.placements)):
        return None
    prompts, gpus = prompts_of(job, reads.placements, traffic), as_array(reads.placements.gpus)
    readers = reads.placements[_front(gpus * prompts.each_s, prompts.alone_s, gpus)]
    prompts = prompts_of(job, readers, traffic)
    found = decode_curve(job, answers.placements, answers.memory, traffic)
    some = found.top_rate > 0.0  # longer answers than any replica ends
    if not np.any(some):
        return None
    answers, found, gpus = answers[some], found[some], as_array(answers.placements.gpus[some])
    kept = _front(gpus / found.top_rate, found.states.tpot_s[0], gpus)
    return Kinds(readers, prompts, answers.placements[kept], found[kept])


def _fitting(resolved: ResolvedService, placements: ReplicaLayouts) -> Cases:
    cases = cases_of(resolved, placements)
    kept = cases.fitting & worthwhile(placements, cases.fitting)
    return cases[kept]


def _front(*costs: Array) -> NDArray[np.bool_]:
    """Whether no other point costs less in one and no more in all; of equal ones the first stays."""
    each = np.stack([np.broadcast_to(one, np.size(costs[-1])) for one in costs])
    no_more = np.all(each[:, :, None] <= each[:, None, :], axis=0)
    same = no_more & no_more.T
    earlier = np.arange(each.shape[1])[:, None] < np.arange(each.shape[1])
    return np.asarray(~np.any((no_more & ~same) | (same & earlier), axis=0))


def _tried(resolved: ResolvedService, kinds: Kinds) -> Pools | None:
    """Services to choose from: every pair of placements, each with numbers of replicas."""
    first, second = (one.reshape(-1) for one in np.indices((len(kinds.prefill), len(kinds.decode))))
    if resolved.gpus is not None:
        return _on_gpus(resolved, kinds, first, second)
    one = Pools(resolved, kinds, first, second, np.ones(first.size), np.ones(first.size))
    if resolved.load is None:
        counts = np.unique(np.geomspace(1, FULL_BATCH, 24).astype(int)).astype(float)
        reads, answers = (each[None, :] for each in np.meshgrid(counts, counts))
        reads, answers = reads.reshape(-1, 1), answers.reshape(-1, 1)
    else:
        reads, answers = _guess(resolved, one)
        share = np.array(NEAR)[:, None]
        reads = np.maximum(np.ceil(np.repeat(share, len(NEAR), axis=0) * reads), 1.0)
        answers = np.maximum(np.ceil(np.tile(share, (len(NEAR), 1)) * answers), 1.0)
    return _services(resolved, kinds, first, second, reads, answers)


def _services(
    resolved: ResolvedService, kinds: Kinds, first: IntArray, second: IntArray, reads: Array, answers: Array
) -> Pools:
    """Pairs of shape (pairs,) by numbers of replicas of shape (numbers, pairs), the numbers as asked where they are."""
    asked = resolved.prefill_replicas
    shape = np.broadcast_shapes(reads.shape, answers.shape, (1, first.size))
    if asked != AUTO:
        reads = np.full(shape, float(asked or 1))
    both = (np.broadcast_to(one, shape).reshape(-1) for one in (first, second, reads, answers))
    table = np.unique(np.stack([np.asarray(one, dtype=float) for one in both]), axis=1)
    found = Pools(resolved, kinds, table[0].astype(int), table[1].astype(int), table[2], table[3])
    most = resolved.limits.max_gpus
    return found if most is None or np.all(found.gpus > most) else found[found.gpus <= most]


def _on_gpus(resolved: ResolvedService, kinds: Kinds, first: IntArray, second: IntArray) -> Pools | None:
    """All ways to give the GPUs that are there to both kinds."""
    whole, reader, answerer = resolved.gpus or 0, kinds.prefill.gpus[first], kinds.decode.gpus[second]
    counts = np.unique(np.geomspace(1, max(whole, 1), MOST_COUNTS).round().astype(int))[:, None]
    if resolved.prefill_replicas != AUTO:
        counts = np.array([[int(resolved.prefill_replicas or 1)]])
    answers = (whole - counts * reader) // answerer
    kept = answers >= 1
    both = (np.broadcast_to(one, answers.shape)[kept] for one in (first, second, counts, answers))
    picked = [np.asarray(one) for one in both]
    return Pools(resolved, kinds, picked[0], picked[1], picked[2].astype(float), picked[3].astype(float))


def _guess(resolved: ResolvedService, one: Pools) -> tuple[Array, Array]:
    """Replicas of both kinds that the load needs, from the rate that it comes to if answers keep their limit."""
    amount, load = resolved.amount, resolved.load
    _, tpot_s = allowed_latencies(resolved)
    pace_s = one.found.states.tpot_s
    allowed = pace_s <= (np.inf if tpot_s is None else tpot_s)
    place = np.maximum(allowed.sum(axis=0) - 1, 0)
    columns = np.arange(one.first.size)
    inside, each = one.found.states.running[place, columns], one.found.rates[place, columns]
    rate = np.full(one.first.size, amount)
    if load != "request_rate":
        rate = amount / (one.alone_s + one.sent_s + inside / each + resolved.think_s)
    return rate * one.each_s, rate / each


def _near(resolved: ResolvedService, kinds: Kinds, best: Pools) -> Pools:
    """The best so far with every number of replicas near its own, or with some of them where there are many."""
    spans = [_numbers_near(float(count)) for count in (best.prefills[0], best.decodes[0])]
    reads, answers = (one.reshape(-1, 1) for one in np.meshgrid(*spans))
    return _services(resolved, kinds, best.first, best.second, reads, answers)


def _numbers_near(count: float) -> Array:
    low, high = max(int(0.6 * count), 1), int(1.1 * count) + 1
    return np.unique(np.linspace(low, high, min(high - low + 1, MOST_TRIED)).round())


def _best(resolved: ResolvedService, tried: Pools) -> int:
    """Which keeps the load and the limits on the fewest GPUs, then takes the most and is fastest."""
    is_open, by_chance = resolved.gpus is None, LOADS[resolved.load].by_chance
    reserve = TARGET_LOAD if is_open and by_chance and resolved.load and not resolved.limits_latency else 1.0
    rate, at = tried.under(resolved.amount / reserve, _percentile(resolved))
    overloaded = ~np.isfinite(at.ttft_s)
    gpus = tried.gpus * is_open
    preferred = np.where(overloaded, tried.top_rate, rate)
    if resolved.load == "request_rate":
        preferred = tried.top_rate if is_open else _most_kept(resolved, tried)
    if resolved.load is None:
        preferred, gpus = preferred / tried.gpus, np.zeros(gpus.shape)
    late = missed_for(missed(resolved, at.ttft_s, at.tpot_s), np.maximum(gpus, 1.0), ~overloaded)
    keys = (late, gpus, -alike(preferred), tried.gpus, at.tpot_s)
    return int(np.lexsort((*reversed(keys), overloaded))[0])


def _most_kept(resolved: ResolvedService, tried: Pools) -> Array:
    """The rate within the limits on latency, where they can be kept; else the highest [1/s]."""
    within = tried.rate_within(_percentile(resolved))
    return np.asarray(np.where(within > 0, within, tried.top_rate))


def _choice(resolved: ResolvedService, one: Pools) -> Choice:
    """The service as a choice: its decode replicas, and beside them those that read prompts."""
    decodes, place = float(one.decodes[0]), one.kinds.decode[one.second]
    within = float(one.rate_within(_percentile(resolved))[0])
    top = within or float(one.top_rate[0])
    return cases_of(resolved, place).chosen(0)(
        minimum=int(place.gpus[0]),
        full_rate=float(one.top_rate[0]) / HIGHEST_LOAD / decodes,
        top_rate=top / decodes,
        top_load=_amount(resolved, one, top) / decodes,
        places=float(one.found.most[0]),
        replicas=int(decodes),
        point=_point(resolved, one),
        prefills=_readers(resolved, one),
    )


def _percentile(resolved: ResolvedService) -> float | None:
    """What limits are compared with; None: the mean."""
    return resolved.percentile if LOADS[resolved.load].by_chance else None


def _amount(resolved: ResolvedService, one: Pools, rate: float) -> float:
    """The load that comes to a rate."""
    if resolved.load in (None, "request_rate"):
        return rate
    return rate * (float(one.latencies(rate).request_s[0]) + resolved.think_s)


def _readers(resolved: ResolvedService, one: Pools) -> PrefillReplicas:
    """The replicas that read prompts, with the means of what a request waits for until its first token."""
    rate, at = one.under(resolved.amount)
    taken, stages = np.minimum(rate, one.top_rate), one.stages_s(rate)
    parts = {name: float(stages[name][0]) for name in ("queue", "prefill", "transfer", "decode")}
    parts["queue"] += float(np.nan_to_num(at.ttft_s - one.latencies(taken).ttft_s, posinf=0.0)[0])
    place, whole = one.kinds.prefill[one.first], ReplicaLayouts.of()
    return PrefillReplicas(
        placement=place,
        memory=cases_of(resolved, place).memory,
        replicas=int(one.prefills[0]),
        stages_s=parts,
        utilisation=float((taken * one.each_s / one.prefills)[0]),
        link_utilisation=float((taken * one.sent_s / one.links)[0]),
        transfer_bytes=float(request_bytes(resolved.job, whole, resolved.traffic.inputs)[0]),
        same_node=bool(one.gpus[0] <= resolved.job.server.accelerators),
    )


def _point(resolved: ResolvedService, one: Pools) -> Point:
    """One decode replica with its share of the load; latencies are those of the service, prompts included."""
    decodes, traffic, placement = float(one.decodes[0]), resolved.traffic, one.kinds.decode[one.second]
    rate, mean = one.under(resolved.amount)
    each = np.minimum(rate, one.top_rate) / decodes
    (inside,) = one.found.at_rate(each, one.found.states.running)
    running = float((inside * np.minimum(each / one.found.rates[0], 1.0))[0])
    percentiles: dict[float, tuple[float, float, float]] = {}
    if LOADS[resolved.load].by_chance:
        wanted = sorted({*PERCENTILES, resolved.percentile})
        percentiles = {at: one.under(resolved.amount, at)[1].one for at in wanted}
    busy_s = 1.0 / float(each[0])
    reading = float(one.prefills[0] * one.kinds.prefill[one.first].gpus[0] / one.gpus[0])
    return Point(
        running,
        float(rate[0]) / decodes,
        *mean.one,
        percentiles,
        one.kinds.prompts.step.at(lambda values: np.broadcast_to(values, len(one.kinds.prefill))[one.first]),
        decoding_only(resolved.job, placement, traffic, max(running, 1.0)).decode,
        prompt_s=reading * busy_s,
        answer_s=(1.0 - reading) * busy_s,
    )
