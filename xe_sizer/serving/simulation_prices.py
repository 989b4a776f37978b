"""Times of the steps of one placement as tables: a simulation looks thousands of them up, one after the other."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.step import Work, attention, head_and_sampling, host, step_time
from xe_sizer.serving.step_inputs import of_the_fullest

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.step import StepTime
    from xe_sizer.serving.traffic import Traffic

DECODES, PASTS, TOKENS, PIECES = 32, 12, 96, 14  # places of the tables, closer together where they are small
LEAST_REACH = 1.5  # of a table's end over its start: lengths that are all alike still span one


@frozen
class Table:
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


@frozen
class Reach:
    """The most that steps of a simulation will hold, of all groups together.

    decodes : sequences that get a token; tokens : of prompts in a step; shortest, longest : of a sequence [tokens]
    """

    decodes: float
    tokens: float
    shortest: float
    longest: float


@frozen
class _Prompts:
    """Steps with prompts: what their tokens take by their number, and what the host adds to the device's time [s]."""

    flat: Table
    host: Table


@frozen
class StepPrices:
    """What a step takes, by what it holds; tables of one group's sequences and tokens [s].

    decode : device, by sequences and tokens before each; decode_host : by the time of the device
    beside : attention and states of decodes that share a step with prompts, by the same as `decode`
    piece : attention of a piece over its tokens, by these and by what is before them; piece_s : of each further piece;
    start_s : of all pieces of a step, once
    head : by tokens that get logits; mixed, apart : steps with prompts beside decodes, and without any
    groups : of the replica's sequences; each : tokens of a decode; drafting : share of a decode step for proposals
    sequence_s : of the host for each sequence; all_logits : every token of a prompt gets them
    """

    decode: Table
    decode_host: Table | None
    beside: Table
    piece: Table
    piece_s: float
    start_s: float
    head: Table
    mixed: _Prompts
    apart: _Prompts
    groups: float
    each: float
    drafting: float
    sequence_s: float
    all_logits: bool

    def decode_s(self, decodes: float, past: float) -> float:
        """A step of decodes alone on so many tokens before each in the mean [s]."""
        running = self._fullest(decodes)
        step_s = self.decode.at(running, past)
        if self.decode_host:
            step_s += self.decode_host.at(step_s) + self.sequence_s * running
        return step_s * (1.0 + self.drafting)

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
        step_s = kind.flat.at(new + running * self.each) + self.piece_s * (held - 1.0)
        step_s += self.start_s + new * self.piece.at(each, past)
        step_s += self.head.at(running * self.each + (new if self.all_logits else held))
        if decodes:
            step_s += self.beside.at(running, decode_past)
        step_s += max(kind.host.at(step_s), 0.0) + self.sequence_s * (held + running)
        return step_s + (self.drafting * self.decode_s(decodes, decode_past) if self.drafting and decodes else 0.0)

    def _fullest(self, sequences: float) -> float:
        """Sequences of the fullest group, see `serving.step.of_the_fullest` [-]."""
        return sequences if self.groups == 1.0 else max(sequences / self.groups, min(sequences, 1.0))


def _geometric(low: float, high: float, places: int) -> Array:
    """Places that grow by a factor, whole numbers where they are close together."""
    high = max(high, low * LEAST_REACH + 1.0)
    whole = np.ceil(np.geomspace(low, high, places))
    return np.asarray(np.unique([low, *whole[(whole > low) & (whole < high)], high]))


@frozen
class _Filling:
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
        decodes=_geometric(1.0, most, DECODES),
        pasts=_geometric(max(reach.shortest, 1.0), reach.longest, PASTS),
        tokens=_geometric(1.0, reach.tokens + most * each, TOKENS),
        pieces=_geometric(1.0, min(reach.tokens, reach.longest), PIECES),
        before=np.concatenate([np.zeros(1), _geometric(1.0, reach.longest, PASTS)]),
    )
    return _tables(filling, traffic)


def _tables(filling: _Filling, traffic: Traffic) -> StepPrices:
    job, decodes, pasts, each = filling.job, filling.decodes, filling.pasts, filling.each
    sequence_s = 0.0 if job.efficiency.fixed else job.engine.sequence_s
    alone, logits = _decoding(filling)
    apart, piece, piece_s, start_s = _pieces(filling, sequence_s)
    graphs = job.engine.host.graphs
    running = np.repeat(decodes, pasts.size)
    device_s = _device_s(alone)
    waits_s = alone.parts[host.name] - sequence_s * running
    states_s = _flat(alone) - np.interp(running * each, apart.flat.along, [row[0] for row in apart.flat.rows])
    return StepPrices(
        decode=_grid(decodes, pasts, alone.total_s if graphs else device_s),
        decode_host=None if graphs else _line(device_s, waits_s),
        beside=_grid(decodes, pasts, alone.parts[attention.name] + states_s - states_s[0]),
        piece=piece,
        piece_s=piece_s,
        start_s=start_s,
        head=_line(filling.tokens * each, logits.parts[head_and_sampling.name]),
        mixed=_mixed(filling, sequence_s),
        apart=apart,
        groups=filling.groups,
        each=each,
        drafting=traffic.draft_tokens * traffic.draft_cost,
        sequence_s=sequence_s,
        all_logits=job.engine.kernels.all_logits,
    )


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


def _pieces(filling: _Filling, sequence_s: float) -> tuple[_Prompts, Table, float, float]:
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
    table = _prompts(alone, flat, sequence_s)
    again_s = two.parts[attention.name] - one.parts[attention.name]
    start_s = float(np.min(one.parts[attention.name] - again_s))
    fresh = (before == 0.0) & (2.0 * tokens <= flat[-1])
    further = _flat(two)[fresh] - np.interp(2.0 * tokens[fresh], flat, _flat(alone))
    return table, _grid(filling.pieces, filling.before, again_s / tokens), float(np.median(further)), start_s


def _mixed(filling: _Filling, sequence_s: float) -> _Prompts:
    """Steps of one prompt beside one decode."""
    one = np.ones(1)
    found = filling.step(one, one * filling.pasts[0], one, filling.tokens, 0.0 * one)
    return _prompts(found, filling.tokens + filling.each, 2.0 * sequence_s)


def _prompts(steps: StepTime, tokens: Array, sequences_s: float) -> _Prompts:
    """The tables of steps of so many tokens; sequences_s : of the host for the sequences in them [s]."""
    return _Prompts(_line(tokens, _flat(steps)), _line(_device_s(steps), steps.parts[host.name] - sequences_s))
