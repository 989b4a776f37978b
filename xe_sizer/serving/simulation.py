"""A test of one replica, step by step: its scheduler takes up requests, cuts prompts, and decodes until all are done.

Steps that are alike follow each other until a request comes, is taken up or ends: these are passed over at once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable
from xe_sizer.serving.job import even_spread
from xe_sizer.serving.memory import request_bytes
from xe_sizer.serving.step_time import (
    Work,
    attention,
    between_steps_s,
    head_and_sampling,
    host,
    launching_s,
    of_the_fullest,
    step_time,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.step_time import StepTime

# The offer: requests, when they come, and what came of each.

EVEN_SPREAD = 0.02  # chosen: share by which a spread may differ from that of an even draw
CLIENT_PAUSE_S = 0.005  # assumed: mean of HTTP, a Python client and tokenising, from an answer to its next request
SEED = 20  # chosen, of the lengths and times that are drawn: the same for every answer


class Offered(Immutable):
    """Requests in the order in which they come; arrays of shape (requests,).

    inputs, outputs : tokens of each prompt and answer [tokens]
    arrivals_s : when each comes; of a closed loop when its clients begin, of which the first `concurrency` count [s]
    concurrency : clients who ask again once they are answered; None: requests come at their times
    pauses_s : of a closed loop, from an answer to the request that follows it [s]
    """

    inputs: Array
    outputs: Array
    arrivals_s: Array
    concurrency: int | None = None
    pauses_s: ArrayLike = 0.0


def offered(
    traffic: Traffic, requests: int, concurrency: int | None = None, arrivals_s: ArrayLike = 0.0, seed: int = SEED
) -> Offered:
    """A test of so many requests whose lengths are drawn.

        length = mean x exp(sigma z - sigma^2 / 2),  sigma^2 = ln(1 + spread^2),  z normal      cut at the longest
        length = mean + (longest - mean) u,  u even from -1 to 1      where that has the spread
        pause exponential of mean CLIENT_PAUSE_S

    Parameters
    ----------
    traffic : mean lengths of prompts and answers, and how they spread
    requests : of the whole test [-]
    concurrency : clients of a closed loop, who pause before they ask again; None: requests come at `arrivals_s` [-]
    arrivals_s : when requests come, ascending; all at once by default [s]
    seed : of the numbers that are drawn

    Returns
    -------
    Offered, shape (requests,), whole tokens and seconds [s]

    Source: own definition of a spread, that of `Traffic`; means of the drawn lengths are those asked for.
    """
    random = np.random.default_rng(seed)
    inputs = _lengths(random, traffic.inputs, traffic.input_spread, traffic.longest_input, requests)
    outputs = _lengths(random, traffic.outputs, traffic.output_spread, traffic.longest_output, requests)
    pauses_s = 0.0 if concurrency is None else random.exponential(CLIENT_PAUSE_S, requests)
    return Offered(inputs, outputs, np.broadcast_to(as_array(arrivals_s), requests), concurrency, pauses_s)


def _lengths(random: np.random.Generator, mean: float, spread: float, longest: float, requests: int) -> Array:
    """Lengths of this mean and spread, at least one token each and none above the longest [tokens]."""
    if not spread or longest <= mean:
        return np.full(requests, max(mean, 1.0))
    if abs(spread - even_spread(mean, longest)) < EVEN_SPREAD * spread:
        drawn = (2.0 * random.random(requests) - 1.0) * (longest - mean)
        return np.asarray(np.clip(np.rint(drawn - drawn.mean() + mean), 1.0, longest))
    sigma = float(np.sqrt(np.log1p(spread**2)))
    drawn = np.exp(sigma * random.standard_normal(requests))
    scale = mean / drawn.mean()
    if longest < drawn.max() * scale:
        scale = _scale_of_cut(drawn, mean, longest)
    return np.asarray(np.clip(np.rint(drawn * scale), 1.0, longest))


def _scale_of_cut(drawn: Array, mean: float, longest: float) -> float:
    """Factor on drawn lengths with which those cut at the longest have this mean.

    mean(min(f x, longest)) = mean, so that f = (n mean - c longest) / sum of the others where the c longest are cut.
    """
    ascending = np.sort(drawn)
    before = np.cumsum(ascending)
    cut = np.arange(len(drawn) - 1, -1, -1.0)  # as many as lie above each
    scales = (len(drawn) * mean - cut * longest) / before
    inside = np.flatnonzero(scales * ascending <= longest)
    return float(scales[inside[-1]])


def poisson_arrivals(rate: float, requests: int, seed: int = SEED) -> Array:
    """Times of requests that come by chance at a rate.

        t_i = sum of i gaps, gaps exponential of mean 1 / rate

    Parameters
    ----------
    rate : requests per second [1/s]
    requests : how many [-]
    seed : of the numbers that are drawn

    Returns
    -------
    ndarray of float, shape (requests,), the first at zero [s]

    Source: a Poisson process.
    """
    gaps = np.random.default_rng(seed + 1).exponential(1.0 / rate, requests)
    return np.asarray(np.cumsum(gaps) - gaps[0])


class Outcome(Immutable):
    """What a test measures; arrays of shape (requests,), seconds since its begin [s].

    arrival_s, start_s, first_s, finish_s : when a request came, was taken up, gave its first token and its last
    inputs, outputs : tokens of it [tokens]
    gap_s, gap_counts : times between tokens of a request, and how many there were of each, shape (gaps,)
    preempted : how often a request lost its cache to others, and began again [-]
    """

    arrival_s: Array
    start_s: Array
    first_s: Array
    finish_s: Array
    inputs: Array
    outputs: Array
    gap_s: Array
    gap_counts: Array
    preempted: int

    @property
    def ttft_s(self) -> Array:
        """Time to the first token of each request [s]."""
        return np.asarray(self.first_s - self.arrival_s)

    @property
    def request_s(self) -> Array:
        """Time of each request from end to end [s]."""
        return np.asarray(self.finish_s - self.arrival_s)

    @property
    def tpot_s(self) -> Array:
        """Time per output token of each request, without the first one; zero for answers of one token [s]."""
        return np.asarray((self.finish_s - self.first_s) / np.maximum(self.outputs - 1.0, 1.0))

    @property
    def duration_s(self) -> float:
        """From the first request to the last answer [s]."""
        return float(self.finish_s.max() - self.arrival_s.min())

    @property
    def requests_per_s(self) -> float:
        """Of the whole test, with its beginning and its end, as benchmark tools print it [1/s]."""
        return len(self.finish_s) / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        return float(self.outputs.sum()) / self.duration_s

    @property
    def total_tokens_per_s(self) -> float:
        return float(self.outputs.sum() + self.inputs.sum()) / self.duration_s

    def gap_at_s(self, percentile: float) -> float:
        """The time between two tokens (ITL) that this share of them keeps [s]; percentile in per cent [-]."""
        if not self.gap_s.size:
            return 0.0
        order = np.argsort(self.gap_s)
        reached = np.cumsum(self.gap_counts[order]) / self.gap_counts.sum()
        place = min(int(np.searchsorted(reached, percentile / 100.0)), order.size - 1)
        return float(self.gap_s[order[place]])

    @property
    def mean_gap_s(self) -> float:
        """Time between two tokens of a request in the mean of all of them [s]."""
        return float((self.gap_s * self.gap_counts).sum() / self.gap_counts.sum()) if self.gap_s.size else 0.0

    def goodput(self, max_ttft_s: float | None = None, max_tpot_s: float | None = None) -> float:
        """Requests per second that keep both limits [1/s]."""
        good = np.ones(len(self.finish_s), dtype=bool)
        if max_ttft_s is not None:
            good &= self.ttft_s <= max_ttft_s
        if max_tpot_s is not None:
            good &= self.tpot_s <= max_tpot_s
        return float(good.sum()) / self.duration_s


# Prices: times of steps as tables, in which a simulation looks thousands up, one after the other.

DECODES, PASTS, TOKENS, PIECES = 32, 12, 96, 14  # chosen: places of the tables, closer together where they are small
LEAST_REACH = 1.5  # chosen, of a table's end over its start: lengths that are all alike still span one


class Table(Immutable):
    """Values between places: linear in one variable, or in two where `across` has places.

    along, across : places, ascending; rows : values of each place along, of all places across [s]
    """

    along: list[float]
    across: list[float]
    rows: list[list[float]]

    def at(self, x: float, y: float = 0.0) -> float:
        """The value at a point, linear between the places and beyond them [s]."""
        along, across = self.along, self.across
        i = bisect_right(along, x, 1, len(along) - 1)
        share = (x - along[i - 1]) / (along[i] - along[i - 1])
        low, high = self.rows[i - 1], self.rows[i]
        if not across:
            return low[0] + share * (high[0] - low[0])
        j = bisect_right(across, y, 1, len(across) - 1)
        other = (y - across[j - 1]) / (across[j] - across[j - 1])
        left = low[j - 1] + other * (low[j] - low[j - 1])
        right = high[j - 1] + other * (high[j] - high[j - 1])
        return left + share * (right - left)


def _line(along: Array, values: Array) -> Table:
    """A table in one variable, of places in any order."""
    places, order = np.unique(along, return_index=True)
    return Table(places.tolist(), [], values[order][:, None].tolist())


def _grid(along: Array, across: Array, values: Array) -> Table:
    """A table in two variables, of values in rows one after the other."""
    return Table(along.tolist(), across.tolist(), values.reshape(along.size, across.size).tolist())


class Reach(Immutable):
    """The most that steps of a simulation will hold, of all groups together.

    decodes : sequences that get a token; tokens : of prompts in a step; shortest, longest : of a sequence [tokens]
    """

    decodes: float
    tokens: float
    shortest: float
    longest: float


class Prompts(Immutable):
    """Steps with prompts, by their tokens: what these take, and the host to start their kernels [s]."""

    flat: Table
    starting: Table


class StepPrices(Immutable):
    """What a step takes, by what it holds; tables of one group's sequences and tokens [s].

    decode : device, by sequences and tokens before each; starting : the host to start its kernels, by sequences
    beside : attention and states of decodes that share a step with prompts, by the same as `decode`
    piece : attention of a piece over its tokens, by these and by what is before them; piece_s : of each further piece;
    start_s : of all pieces of a step, once
    head : by tokens that get logits; mixed, apart : steps with prompts beside decodes, and without any
    groups : of the replica's sequences; each : tokens of a decode; drafting : share of a decode step for proposals
    step_s, sequence_s : of the host between two steps, and for each sequence; overlaps : while the device works
    all_logits : every token of a prompt gets them
    """

    decode: Table
    starting: Table
    beside: Table
    piece: Table
    piece_s: float
    start_s: float
    head: Table
    mixed: Prompts
    apart: Prompts
    groups: float
    each: float
    drafting: float
    step_s: float
    sequence_s: float
    overlaps: bool
    all_logits: bool

    def decode_s(self, decodes: float, past: float) -> float:
        """A step of decodes alone on so many tokens before each in the mean [s]."""
        running = self._fullest(decodes)
        device_s = self.decode.at(running, past)
        return (device_s + self._waiting_s(device_s, self.starting.at(running), running)) * (1.0 + self.drafting)

    def _waiting_s(self, device_s: float, starting_s: float, sequences: float) -> float:
        """As `serving.step_time.waiting_s` [s]."""
        between_s = self.step_s + self.sequence_s * sequences
        if self.overlaps:
            return max(starting_s + between_s - device_s, 0.0)
        return max(starting_s - device_s, 0.0) + between_s

    def prompt_s(self, pieces: float, tokens: float, past: float, decodes: float, decode_past: float) -> float:
        """A step with pieces of prompts, beside decodes where there are any.

            t = flat(tokens) + attention(pieces) + attention(decodes) + head(sampled) + host

        Parameters
        ----------
        pieces, tokens : of prompts, and new tokens of all of them together [-]
        past : tokens before a piece in the mean, weighted with the tokens of the piece [tokens]
        decodes, decode_past : sequences that get a token beside them, and tokens before each [-]

        Returns
        -------
        float, seconds [s]

        Source: `step_time`, whose parts but the host's depend on the tokens of the step, on its decodes, or on its
        pieces, and add up.
        """
        held, running, each = self._fullest(pieces), self._fullest(decodes), tokens / pieces
        new = held * each
        kind = self.mixed if decodes else self.apart
        flat_tokens = new + running * self.each
        step_s = kind.flat.at(flat_tokens) + self.piece_s * (held - 1.0)
        step_s += self.start_s + new * self.piece.at(each, past)
        step_s += self.head.at(running * self.each + (new if self.all_logits else held))
        if decodes:
            step_s += self.beside.at(running, decode_past)
        step_s += self._waiting_s(step_s, max(kind.starting.at(flat_tokens), 0.0), held + running)
        return step_s + (self.drafting * self.decode_s(decodes, decode_past) if self.drafting and decodes else 0.0)

    def _fullest(self, sequences: float) -> float:
        """Sequences of the fullest group, see `serving.step_time.of_the_fullest` [-]."""
        return sequences if self.groups == 1.0 else max(sequences / self.groups, min(sequences, 1.0))


def geometric(low: float, high: float, places: int) -> Array:
    """Places that grow by a factor, whole numbers where they are close together."""
    high = max(high, low * LEAST_REACH + 1.0)
    whole = np.ceil(np.geomspace(low, high, places))
    return np.asarray(np.unique([low, *whole[(whole > low) & (whole < high)], high]))


def _with_ends(places: Array, ends: Sequence[int]) -> Array:
    """Places with both sides of where something ends among them."""
    inside = [end + side for end in ends for side in (0.0, 1.0) if places[0] < end < places[-1] - 1.0]
    return np.unique([*places, *inside])


class _Filling(Immutable):
    """What fills the tables: the job, one placement, and the places, of one group.

    decodes and pasts of them, tokens of a step, pieces of prompts and what is before these
    """

    job: ServingJob
    placement: ReplicaLayouts
    groups: float
    each: float
    decodes: Array
    pasts: Array
    tokens: Array
    pieces: Array
    before: Array

    def step(self, decodes: Array, past: Array, prompts: Array, tokens: Array, before: Array) -> StepTime:
        """Steps of so many decodes and prompts in each group."""
        work = Work(
            decodes=decodes * self.groups,
            decode_past=past,
            decode_tokens=self.each,
            prefills=prompts * self.groups,
            prefill_tokens=tokens,
            prefill_past=before,
        )
        return step_time(self.job, self.placement, work)


def step_prices(job: ServingJob, placement: ReplicaLayouts, traffic: Traffic, reach: Reach) -> StepPrices:
    """Tables of the steps of one placement, of three evaluations of the law of a step.

        t(d, p) = step_time at 32 x 12 places, linear between them
        flat(tokens) = step_time - attention - head - host at 96 places
        attention(q, p) / q = (step_time of two pieces - of one) / q at 14 x 13 places

    Parameters
    ----------
    job, placement : the job, and one placement
    traffic : speculation, whose proposals are tokens of a decode
    reach : the most that steps hold

    Returns
    -------
    StepPrices, seconds [s]

    Source: `step_time`; attention of a prompt over its tokens is linear in these and in what is before them, so that
    few places do.
    """
    groups, each = float(job.groups(placement)[0]), traffic.draft_tokens + 1.0
    most = float(of_the_fullest(as_array(reach.decodes), as_array(groups)))
    filling = _Filling(
        job=job,
        placement=placement,
        groups=groups,
        each=each,
        decodes=_with_ends(geometric(1.0, most, DECODES), job.engine.host.graphs),
        pasts=geometric(max(reach.shortest, 1.0), reach.longest, PASTS),
        tokens=geometric(1.0, reach.tokens + most * each, TOKENS),
        pieces=geometric(1.0, min(reach.tokens, reach.longest), PIECES),
        before=np.concatenate([np.zeros(1), geometric(1.0, reach.longest, PASTS)]),
    )
    return _tables(filling, traffic)


def _tables(filling: _Filling, traffic: Traffic) -> StepPrices:
    job, decodes, pasts, each = filling.job, filling.decodes, filling.pasts, filling.each
    alone, logits = _decoding(filling)
    apart, piece, piece_s, start_s = _pieces(filling)
    running = np.repeat(decodes, pasts.size)
    states_s = _flat(alone) - np.interp(running * each, apart.flat.along, [row[0] for row in apart.flat.rows])
    between_s = 0.0 if job.efficiency.fixed else float(between_steps_s(job, filling.placement, 0.0)[0])
    return StepPrices(
        decode=_grid(decodes, pasts, _device_s(alone)),
        starting=_line(running, _starting_s(alone)),
        beside=_grid(decodes, pasts, alone.parts[attention.name] + states_s - states_s[0]),
        piece=piece,
        piece_s=piece_s,
        start_s=start_s,
        head=_line(filling.tokens * each, logits.parts[head_and_sampling.name]),
        mixed=_mixed(filling),
        apart=apart,
        groups=filling.groups,
        each=each,
        drafting=traffic.draft_tokens * traffic.draft_cost,
        step_s=between_s,
        sequence_s=0.0 if job.efficiency.fixed else job.engine.sequence_s,
        overlaps=job.engine.batching.overlaps,
        all_logits=job.engine.kernels.all_logits,
    )


def _starting_s(steps: StepTime) -> Array:
    """What the host takes to start the kernels of steps; nothing where the accelerator is timed alone [s]."""
    return steps.picked(steps.step.zeros if steps.step.job.efficiency.fixed else launching_s(steps.step))


def _device_s(steps: StepTime) -> Array:
    return np.asarray(steps.total_s - steps.parts[host.name])


def _flat(steps: StepTime) -> Array:
    """What depends on the tokens of a step alone: products, exchanges and memory traffic [s]."""
    return np.asarray(_device_s(steps) - steps.parts[attention.name] - steps.parts[head_and_sampling.name])


def _decoding(filling: _Filling) -> tuple[StepTime, StepTime]:
    """Steps of decodes alone: on the grid of `decode`, and on the line of `head`."""
    decodes, pasts = (one.ravel() for one in np.meshgrid(filling.decodes, filling.pasts, indexing="ij"))
    running = np.concatenate([decodes, filling.tokens])
    before = np.concatenate([pasts, np.full(filling.tokens.size, pasts[0])])
    none = np.zeros(1)
    found = filling.step(running, before, none, none + 1.0, none)
    return found.at(lambda values: values[: decodes.size]), found.at(lambda values: values[decodes.size :])


def _pieces(filling: _Filling) -> tuple[Prompts, Table, float, float]:
    """Steps of prompts alone, attention of a piece over its tokens, of each further piece, and of all of them once."""
    tokens, before = (one.ravel() for one in np.meshgrid(filling.pieces, filling.before, indexing="ij"))
    flat, size = filling.tokens, tokens.size
    new = np.concatenate([flat, tokens, tokens])
    past = np.concatenate([np.zeros(flat.size), before, before])
    count = np.concatenate([np.ones(flat.size + size), np.full(size, 2.0)])
    found = filling.step(np.zeros(1), np.zeros(1), count, new, past)
    alone = found.at(lambda values: values[: flat.size])
    one = found.at(lambda values: values[flat.size : flat.size + size])
    two = found.at(lambda values: values[flat.size + size :])
    table = _prompts(alone, flat)
    again_s = two.parts[attention.name] - one.parts[attention.name]
    start_s = float(np.min(one.parts[attention.name] - again_s))
    fresh = (before == 0.0) & (2.0 * tokens <= flat[-1])
    further = _flat(two)[fresh] - np.interp(2.0 * tokens[fresh], flat, _flat(alone))
    return table, _grid(filling.pieces, filling.before, again_s / tokens), float(np.median(further)), start_s


def _mixed(filling: _Filling) -> Prompts:
    """Steps of one prompt beside one decode."""
    one = np.ones(1)
    found = filling.step(one, one * filling.pasts[0], one, filling.tokens, 0.0 * one)
    return _prompts(found, filling.tokens + filling.each)


def _prompts(steps: StepTime, tokens: Array) -> Prompts:
    """The tables of steps of so many tokens."""
    return Prompts(_line(tokens, _flat(steps)), _line(tokens, _starting_s(steps)))


# The scheduler.

NEVER = math.inf
TICK_S, LEAST_TOKENS = 1e-9, 1e-6  # chosen: what is smaller is nothing


def simulate(
    job: ServingJob, placement: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, load: Offered
) -> Outcome:
    """Simulate what each request of a test sees of one replica.

        now = sum of step_time(what the scheduler puts into the step)
        ttft = now at the end of the prompt - arrival,  tpot = (finish - first) / (outputs - 1)

    In every step the engine's scheduler first gives a token to each sequence that decodes (where prompts share steps)
    and fills what the step has left with prompts, in the order in which they came: of those that are taken up already,
    then of those for which there is a place and cache. Where prompts stop the decodes, such a step holds prompts alone.
    A cache that is given out as it is used may run out: then the request that was taken up last loses its own, and
    begins again with what it has. A static batch is taken up once the one before has ended, and ends together.

    Parameters
    ----------
    job, placement, memory : the job, one placement, and its pool of shape (1,) [bytes]
    traffic : prefix hits and speculation; lengths are those of the requests
    load : requests, their lengths and times

    Returns
    -------
    Outcome, shape (requests,), seconds [s]

    Source: schedulers of the engines in their published source code (vLLM v1/core/sched/scheduler.py; SGLang
    managers/scheduler.py and schedule_policy.py; TensorRT-LLM _torch/pyexecutor/py_executor.py); what differs between
    them stands in the engines' files. Steps take what `step_time` says.
    """
    batching, longest = job.engine.batching, float((load.inputs + load.outputs).max())
    clients = load.concurrency or len(load.inputs)
    most = min(clients, len(load.inputs), batching.max_sequences * float(job.groups(placement)[0]))
    tokens = max(min(batching.max_step_tokens, most * longest), longest)
    reach = Reach(most, tokens, float(load.inputs.min()), longest)
    return _Replica(job, placement, memory, traffic, load, step_prices(job, placement, traffic, reach)).outcome()


class _Replica:
    """A replica at a moment of a test: what waits, what is in its prefill, what decodes, and what its cache holds.

    now, before : seconds since the begin of the test, and at the begin of the last step
    step : decode steps so far; running, tokens : sequences that decode, and tokens before all of them
    used, growing : cache that is taken, and that a further token of all that decode takes [bytes]
    coming, waiting, prefilling : requests that have not reached the scheduler, have not been taken up, have begun
    polled, waited : decode steps since the scheduler looked at arrivals, and since prompts wait for others
    """

    def __init__(
        self,
        job: ServingJob,
        placement: ReplicaLayouts,
        memory: ServingMemory,
        traffic: Traffic,
        load: Offered,
        prices: StepPrices,
    ) -> None:
        batching, groups = job.engine.batching, float(job.groups(placement)[0])
        self.load, self.prices, self.batching, self.groups = load, prices, batching, groups
        self.mixed, self.chunked = batching.mixed_steps, batching.chunked_prefill
        self.static, self.longest = batching.batching == "static", 0.0
        self.behind = batching.first_token == "decode"
        self.most = batching.max_sequences * groups
        self.gained, self.each = traffic.tokens_per_step, traffic.draft_tokens + 1.0
        self.new_share, self.request_s = 1.0 - traffic.prefix_hit_share, job.request_s
        self.now, self.before, self.step, self.running, self.tokens = 0.0, 0.0, 0, 0, 0.0
        self.used = self.growing = 0.0
        self.polled, self.waited, self.done, self.preempted = 0, 0, 0, 0
        self.stalled_s, self.stalled = 0.0, 0  # what decodes have waited for prompts, and how many do
        self.gaps: list[tuple[float, float]] = []
        self._hold(job, placement, memory)
        self._enter(len(load.inputs))

    def _hold(self, job: ServingJob, placement: ReplicaLayouts, memory: ServingMemory) -> None:
        """What each request takes of the cache as it starts, and with every further token of its answer [bytes]."""
        load = self.load
        whole = request_bytes(job, placement, load.inputs + load.outputs)
        prompt = request_bytes(job, placement, load.inputs)
        reserved = job.engine.batching.reserves == "whole"
        self.pool = math.inf if job.grows else float(memory.pool_bytes[0]) * float(placement.dp[0])
        self.held: list[float] = (whole if reserved else prompt).tolist()
        self.growth: list[float] = ((whole - prompt) / load.outputs * (not reserved)).tolist()

    def _enter(self, count: int) -> None:
        """Requests before the test: those of a closed loop's clients come first, each later one as one is answered."""
        load = self.load
        self.prompt: list[float] = load.inputs.tolist()
        self.left: list[float] = load.outputs.tolist()
        self.arrival: list[float] = load.arrivals_s.tolist()
        self.start, self.first, self.finish = [NEVER] * count, [NEVER] * count, [NEVER] * count
        self.todo, self.past = [0.0] * count, [0.0] * count  # tokens of a prompt: to be processed, and cached
        self.begun, self.end = [0] * count, [-1] * count  # steps in which an answer began and ends
        self.asked = count if load.concurrency is None else min(load.concurrency, count)
        self.pauses: list[float] = np.broadcast_to(as_array(load.pauses_s), count).tolist()
        self.coming = [(self.arrival[request], request) for request in range(self.asked)]  # a heap
        self.waiting, self.prefilling = deque[int](), deque[int]()
        self.ends: list[tuple[int, int]] = []  # a heap of the steps in which answers end
        self.order: list[int] = []  # in which they began
        self.unanswered: list[int] = []  # whose first token comes with the next decode step

    def outcome(self) -> Outcome:
        """Run the test to its end."""
        count = len(self.prompt)
        while self.done < count:
            self._receive()
            pieces = self._pieces()
            if pieces:
                self._prompt_steps(pieces)
            elif self.running:
                self._decode_steps()
            else:
                self.now = max(self.now, self.coming[0][0] + self.request_s)
        gaps = np.array(self.gaps).reshape(-1, 2)
        return Outcome(
            arrival_s=np.array(self.arrival),
            start_s=np.array(self.start),
            first_s=np.array(self.first),
            finish_s=np.array(self.finish),
            inputs=self.load.inputs,
            outputs=self.load.outputs,
            gap_s=gaps[:, 0],
            gap_counts=gaps[:, 1],
            preempted=self.preempted,
        )

    def _receive(self) -> None:
        """Requests that have arrived come to the scheduler, where it looks at them."""
        if self.running and self.polled < self.batching.scheduler_recv_interval:
            return
        self.polled = 0
        busy = self.batching.overlaps and (self.running or self.prefilling)
        coming, latest = self.coming, (self.before if busy else self.now) - self.request_s + TICK_S
        while coming and coming[0][0] <= latest:
            self.waiting.append(heappop(coming)[1])

    def _pieces(self) -> list[tuple[int, float]]:
        """Requests with the tokens of their prompts that the next step takes: first of those begun, then new ones."""
        if self.static and not self.running and not self.prefilling:
            self._begin_batch()
        limit = float(self.batching.max_step_tokens)
        decoding = self.running * self.each if self.mixed else 0.0
        room = limit * self.groups - decoding
        cut = limit - decoding / self.groups if self.chunked else NEVER
        taken: list[tuple[int, float]] = []
        for request in self.prefilling:
            if room <= 0.0:
                break
            taken.append((request, min(self.todo[request], room, cut)))
            room -= taken[-1][1]
        while self.waiting and room > 0.0 and self._admits(self.waiting[0], room, bool(taken)):
            request = self._begin_prompt()
            tokens = self.todo[request]
            taken.append((request, min(tokens, room, cut) if self.chunked else tokens))
            room -= taken[-1][1]
        return taken

    def _admits(self, request: int, room: float, beside: bool) -> bool:
        """Whether a request is taken up: there is a place and cache for it, and room for a prompt that is not cut.

        A replica always runs one request, and a step takes one prompt, however long they are.
        """
        if self.static or not self._has_place(request):
            return False
        if not self.running and not self.prefilling:
            return True
        if not self.chunked and beside and self.prompt[request] * self.new_share > room:
            return False
        return not self._holds_back(room)

    def _has_place(self, request: int) -> bool:
        inside = self.running + len(self.prefilling)
        return not inside or (inside < self.most and self.used + self.held[request] <= self.pool)

    def _begin_batch(self) -> None:
        """All that wait and have a place begin together; the longest answer says when they end."""
        begun = []
        while self.waiting and self._has_place(self.waiting[0]):
            begun.append(self._begin_prompt())
        self.longest = max((self.left[request] for request in begun), default=0.0)

    def _holds_back(self, room: float) -> bool:
        """Whether prompts wait until there are more of them, while others decode."""
        if not self.running or self.waited >= self.batching.batch_wait_iters:
            return False
        return sum(self.prompt[request] for request in self.waiting) * self.new_share < room

    def _begin_prompt(self) -> int:
        """The first that waits is taken up, with cache for its prompt."""
        request = self.waiting.popleft()
        if self.start[request] == NEVER:
            self.start[request] = self.now
        new = max(self.prompt[request] * self.new_share, 1.0)
        self.todo[request], self.past[request] = new, self.prompt[request] - new
        self.used += self.held[request]
        self.prefilling.append(request)
        if len(self.waiting) == 0:
            self.waited = 0
        return request

    def _prompt_steps(self, pieces: list[tuple[int, float]]) -> None:
        """A step with prompts, or several alike where one prompt fills them."""
        running, repeats = self.running if self.mixed else 0, self._repeats(pieces)
        further = (repeats - 1) / 2.0
        total = sum(tokens for _, tokens in pieces)
        before = sum(tokens * (self.past[request] + tokens / 2.0) for request, tokens in pieces) / total
        before += further * total - total / len(pieces) / 2.0
        past = self.tokens / running + self.gained * further if running else 0.0
        step_s = self.prices.prompt_s(len(pieces), total, before, running, past)
        self._pass(step_s, repeats)
        self.polled = self.batching.scheduler_recv_interval
        if running:
            self._advance(repeats, step_s)
        elif self.running:
            self.stalled_s, self.stalled = self.stalled_s + step_s * repeats, self.stalled or self.running
        for request, tokens in pieces:
            self.todo[request] -= tokens * repeats
            self.past[request] += tokens * repeats
            if self.todo[request] < LEAST_TOKENS:
                self.prefilling.remove(request)
                self._begin_answer(request)

    def _pass(self, step_s: float, steps: int) -> None:
        """Time passes in steps that are alike."""
        self.now += step_s * steps
        self.before = self.now - step_s

    def _repeats(self, pieces: list[tuple[int, float]]) -> int:
        """Steps in a row that one prompt fills alone, while as many others decode."""
        request, tokens = pieces[0]
        if len(pieces) > 1 or self.groups > 1.0:
            return 1
        steps = max(int(self.todo[request] / tokens), 1)
        return min(steps, self._steps_left()) if self.mixed and self.running else steps

    def _begin_answer(self, request: int) -> None:
        """The prompt of a request is done: its first token is there, or comes with the next decode step."""
        if self.behind:
            self.unanswered.append(request)
        elif self.first[request] == NEVER:
            self.first[request] = self.now
        answer = self.longest if self.static else self.left[request]
        steps = math.ceil((answer - (not self.behind)) / self.gained - LEAST_TOKENS)
        self.running += 1
        self.tokens += self.prompt[request]
        self.growing += self.growth[request]
        self.begun[request], self.end[request] = self.step, self.step + steps
        heappush(self.ends, (self.step + steps, request))
        self.order.append(request)
        self._end_answers()

    def _steps_left(self) -> int:
        """Steps until the next answer ends, or the cache runs out; one where a first token comes with it."""
        steps = self.ends[0][0] - self.step
        if self.growing and math.isfinite(self.pool):
            steps = min(steps, int((self.pool - self.used) / (self.growing * self.gained)))
        return 1 if self.unanswered else max(steps, 1)

    def _decode_steps(self) -> None:
        """Steps of decodes alone, until something else can happen."""
        steps, past, batching = self._steps_left(), self.tokens / self.running, self.batching
        step_s = self.prices.decode_s(self.running, past)
        if self.coming and batching.scheduler_recv_interval > 1:
            steps = min(steps, max(batching.scheduler_recv_interval - self.polled, 1))
        elif self.coming and not (self.waiting and self.running >= self.most):
            until_s = self.coming[0][0] + self.request_s - self.now
            steps = min(steps, max(math.ceil(until_s / step_s) + self.batching.overlaps, 1))
        if self.waiting and self.waited < batching.batch_wait_iters:
            steps = min(steps, batching.batch_wait_iters - self.waited)
            self.waited += steps
        if steps > 1:
            step_s = self.prices.decode_s(self.running, past + self.gained * (steps - 1) / 2.0)
        self._pass(step_s, steps)
        self.polled += steps
        self._advance(steps, step_s)

    def _advance(self, steps: int, step_s: float) -> None:
        """All that decode gain the tokens of some steps; answers end, and the cache may run out."""
        running, stalled = self.running, min(self.stalled, self.running)
        if stalled:
            self.gaps.append((self.stalled_s + step_s, stalled))
        if running * steps > stalled:
            self.gaps.append((step_s, running * steps - stalled))
        self.stalled_s, self.stalled = 0.0, 0
        self.step += steps
        self.tokens += running * steps * self.gained
        self.used += self.growing * steps * self.gained
        for request in self.unanswered:
            self.first[request] = min(self.first[request], self.now)
        self.unanswered.clear()
        self._end_answers()
        while self.used > self.pool and self.running > 1:
            self._preempt()

    def _end_answers(self) -> None:
        """Answers whose last step is over are with their clients, who ask again."""
        ends = self.ends
        while ends and ends[0][0] <= self.step:
            end, request = heappop(ends)
            if self.end[request] != end:
                continue  # of an answer that was cut off and has begun again
            self._release(request)
            self.finish[request] = self.now
            self.done += 1
            if self.asked < len(self.prompt):
                self.arrival[self.asked] = self.now + self.pauses[self.asked]
                heappush(self.coming, (self.arrival[self.asked], self.asked))
                self.asked += 1

    def _release(self, request: int) -> float:
        """A sequence leaves those that decode, with its cache; tokens that it gained in its steps."""
        gained = (self.step - self.begun[request]) * self.gained
        self.end[request] = -1
        self.running -= 1
        self.tokens -= self.prompt[request] + gained
        self.growing -= self.growth[request]
        self.used -= self.held[request] + self.growth[request] * gained
        return gained

    def _preempt(self) -> None:
        """The request that was taken up last loses its cache: it waits first in line, with its answer in its prompt."""
        request = self.order.pop()
        if self.end[request] < 0:
            return
        gained = self._release(request) + (not self.behind)
        self.prompt[request] += gained
        self.left[request] -= gained
        self.held[request] += self.growth[request] * gained
        self.waiting.appendleft(request)
        self.preempted += 1
