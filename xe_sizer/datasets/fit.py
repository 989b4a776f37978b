"""The lengths of samples as a distribution: what is counted, kept within bounds of memory, and fitted."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable

# Bytes of a text by class: what a tokenizer's yield depends on.

CHUNK: Final = 1 << 20
NAMES: Final = (
    "lower", "upper", "digit", "space", "line", "sign",
    "latin", "alphabet", "other", "kana", "han", "hangul", "emoji", "rest",
)  # fmt: skip
"""Letters, digits, blanks, ends of lines and signs in ASCII; then characters by the first byte of their UTF-8."""
CLASSES: Final = len(NAMES)
BYTES_EACH: Final = np.array([1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 0])
"""Bytes of a character of each class; the bytes after the first are counted with it."""
_ASCII: Final = 6  # classes


def _table() -> NDArray[np.float64]:
    """Class of every byte, as rows of zeros and a one."""
    kinds = np.full(256, NAMES.index("rest"))
    kinds[:128] = NAMES.index("sign")
    for name, first, last in (
        ("lower", 0x61, 0x7A), ("upper", 0x41, 0x5A), ("digit", 0x30, 0x39), ("space", 0x20, 0x20),
        ("line", 0x09, 0x0D), ("latin", 0xC2, 0xCB), ("alphabet", 0xCC, 0xDF), ("other", 0xE0, 0xE2),
        ("kana", 0xE3, 0xE3), ("han", 0xE4, 0xE9), ("hangul", 0xEA, 0xEF), ("emoji", 0xF0, 0xF4),
    ):  # fmt: skip
        kinds[first : last + 1] = NAMES.index(name)
    return np.asarray(np.eye(CLASSES)[kinds])


_TABLE: Final = _table()


def class_counts(text: str) -> NDArray[np.float64]:
    """Characters of each class, shape (CLASSES,) [-]."""
    data = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    counts = np.bincount(data[:CHUNK], minlength=256)
    for start in range(CHUNK, data.size, CHUNK):
        counts += np.bincount(data[start : start + CHUNK], minlength=256)
    return np.asarray(counts @ _TABLE)


def size_bytes(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of text with these characters, shape (...,) for counts (..., CLASSES)."""
    return np.asarray(counts @ BYTES_EACH)


def ascii_bytes(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of it that are ASCII."""
    return np.asarray(counts[..., :_ASCII].sum(axis=-1))


# Records: a few numbers of every sequence in a temporary file, so that memory stays bounded.

UNKNOWN: Final = -1
_CHUNK: Final = 1 << 16
RECORD: Final = np.dtype(
    [
        ("file", "<u2"),
        ("part", "u1"),
        ("place", "<u8"),
        ("number", "<u8"),
        ("messages", "<u4"),
        ("tokens", "<i8"),
        ("classes", "<u4", (CLASSES,)),
    ]
)
"""Where a sequence stands (file, row, which of the row), and what is known of it.

tokens : UNKNOWN where they have not been counted; classes : characters of each class
"""
Records = NDArray[np.void]


def keys_of(records: Records) -> NDArray[np.uint64]:
    """A number for each record that no other has."""
    place = records["place"].astype(np.uint64) << np.uint64(1) | records["part"]
    return np.asarray(records["file"].astype(np.uint64) << np.uint64(48) | place)


class Spill:
    """Records of sequences, added one by one and read back in chunks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="xe-sizer-")  # noqa: SIM115  closed with the block
        self._chunk = np.zeros(_CHUNK, RECORD)
        self._filled = 0
        self.count = 0

    def add(self, record: tuple[object, ...]) -> None:
        """Adds a record, its fields in the order of RECORD. Raises InputError: the disk is full."""
        self._chunk[self._filled] = record
        self._filled += 1
        self.count += 1
        if self._filled == _CHUNK:
            self._write()

    def chunks(self) -> Iterator[Records]:
        """All records, in order."""
        self._write()
        self._file.seek(0)
        while data := self._file.read(_CHUNK * RECORD.itemsize):
            yield np.frombuffer(data, RECORD)
        self._file.seek(0, 2)

    def _write(self) -> None:
        try:
            self._file.write(self._chunk[: self._filled].tobytes())
        except OSError as error:
            place = Location(tempfile.gettempdir())
            hint = "set TMPDIR to a folder with room for about 5 % of the files"
            raise InputError(Problem(f"cannot write a temporary file: {error.strerror}", place, hint)) from None
        self._filled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


# Picks: sequences that are tokenised, some at random, others in proportion to their length, from all files.

LONG_SHARE: Final = 0.6  # chosen: of the sample that is drawn in proportion to length, which the mean rests on
PICKS_BUDGET_BYTES: Final = 12 << 20  # chosen: text that is tokenised for it, 10 s on one core
MESSAGE_BYTES: Final = 20.0  # about what a template adds to a message
SMALL_BYTES: Final = 4 << 20  # chosen: what is smaller is tokenised in full, in a few seconds
FEWEST: Final = 40


class Picks(Immutable):
    """Sequences to tokenise.

    weights : how many sequences of the files each stands for [-]; whole : whether these are all that are not known
    """

    records: Records
    weights: NDArray[np.float64]
    whole: bool


def weight_bytes(records: Records) -> NDArray[np.float64]:
    """What a sequence weighs where long ones are drawn more often [bytes]."""
    return size_bytes(records["classes"].astype(np.float64)) + MESSAGE_BYTES * records["messages"] + 1.0


def picked(spill: Spill, wanted: int, seed: int) -> Picks:
    """A sample of the sequences whose tokens are not known.

        expected draws of i = m_1 / n + m_2 w_i / W,  weight of a draw = 1 / that

    Systematic: one draw at random in each of m equal intervals, of the sequences (m_1) and of the bytes (m_2), so that
    every part of every file is drawn from.

    Parameters
    ----------
    wanted : m_1 + m_2, fewer where texts are long [-]

    Source: Hansen and Hurwitz, estimation from samples drawn with unequal probabilities.
    """
    totals = np.zeros(3)
    for chunk in unknown(spill):
        weights = weight_bytes(chunk)
        totals += (weights.size, weights.sum(), (weights**2).sum())
    sequences, total, squares = totals
    if not sequences:
        return Picks(np.zeros(0, RECORD), np.zeros(0), whole=True)
    if total <= SMALL_BYTES or (sequences <= wanted and total <= 3 * PICKS_BUDGET_BYTES):
        records = np.concatenate(list(unknown(spill)))
        return Picks(records, np.ones(records.size), whole=True)
    even = _draws((1 - LONG_SHARE) * wanted, total / sequences)
    long = _draws(LONG_SHARE * wanted, squares / total)
    rng = np.random.default_rng(seed)
    points = [(np.arange(each) + rng.random(each)) / each for each in (even, long)]
    found, done = [], np.zeros(2)
    for chunk in unknown(spill):
        weights = weight_bytes(chunk)
        reached = [(done[0] + np.arange(1, weights.size + 1)) / sequences, (done[1] + np.cumsum(weights)) / total]
        found.append(chunk[np.sort(np.concatenate([_inside(*each) for each in zip(reached, points, strict=True)]))])
        done += (weights.size, weights.sum())
        points = [each[each >= last[-1]] for each, last in zip(points, reached, strict=True)]
    records = np.concatenate(found)
    weights = 1.0 / (even / sequences + long * weight_bytes(records) / total)
    return Picks(records, weights, whole=False)


def _draws(wanted: float, bytes_each: float) -> int:
    """How many draws the budget has room for."""
    return max(round(min(wanted, PICKS_BUDGET_BYTES / 2 / bytes_each)), min(FEWEST, round(wanted)), 1)


def _inside(reached: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.intp]:
    """Places of a chunk in which the points lie that it reaches; the others come later."""
    return np.asarray(np.searchsorted(reached, points[points < reached[-1]], side="right"))


def unknown(spill: Spill) -> Iterator[Records]:
    """Sequences whose tokens are not known yet."""
    for chunk in spill.chunks():
        unknown = chunk[chunk["tokens"] == UNKNOWN]
        if unknown.size:
            yield unknown


# Tokens from bytes: a law fitted to the picks, and how far each was from it.

ASCII_BYTES_PER_TOKEN: Final = (4.7, 3.9, 2.9)
"""Assumed without a tokenizer, for the low, expected and high number of tokens; see docs/data.md."""
OTHER_BYTES_PER_TOKEN: Final = (4.6, 2.8, 1.4)
"""The same of text beyond ASCII, as Chinese or Russian."""
LEAST_PICKS: Final = 60  # chosen: of one kind of text, from which on it has a law of its own
BANDS: Final = 4  # of length in which residuals are kept apart
_PRIOR: Final = 1e-3  # weight of the assumed law against one sequence that was tokenised
_FOREIGN, _CODE, _PROSE = range(3)
KINDS: Final = 3
_SIGNS = [NAMES.index(name) for name in ("digit", "line", "sign")]


def text_kinds(records: Records) -> NDArray[np.intp]:
    """Classify the text of each sequence: beyond ASCII, full of signs as code is, or prose."""
    classes = records["classes"].astype(np.float64)
    size = np.maximum(size_bytes(classes), 1.0)
    foreign = 1.0 - ascii_bytes(classes) / size
    signs = classes[:, _SIGNS].sum(axis=1) / size
    return np.where(foreign > 0.3, _FOREIGN, np.where(signs > 0.14, _CODE, _PROSE))


def assumed_tokens(records: Records, per_message: float, level: int) -> NDArray[np.float64]:
    """Tokens of each sequence without a tokenizer. level : 0, 1, 2 for the low, expected and high number."""
    classes = records["classes"].astype(np.float64)
    plain = ascii_bytes(classes)
    tokens = plain / ASCII_BYTES_PER_TOKEN[level] + (size_bytes(classes) - plain) / OTHER_BYTES_PER_TOKEN[level]
    return np.maximum(tokens + per_message * records["messages"], 1.0)


def _features(records: Records) -> NDArray[np.float64]:
    """What the law is linear in: characters by class, messages, and one."""
    ones = np.ones((records.size, 1))
    return np.concatenate([records["classes"], records["messages"][:, np.newaxis], ones], axis=1, dtype=np.float64)


class Residuals(Immutable):
    """Logarithms of tokens over predicted tokens of one kind and band of length, with their weights (sum 1)."""

    logs: NDArray[np.float64]
    weights: NDArray[np.float64]


class Law(Immutable):
    """A linear law for each kind of text, and what was left of it where it could be seen.

    coefficients : (KINDS, CLASSES + 2) tokens of a character of each class, of a message, of a sequence
    edges : (KINDS, BANDS - 1) predicted tokens between bands of length
    residuals : by kind, then by band
    highest : (KINDS,) most tokens over predicted tokens among the longer half
    """

    coefficients: NDArray[np.float64]
    edges: NDArray[np.float64]
    residuals: tuple[tuple[Residuals, ...], ...]
    highest: NDArray[np.float64]

    def tokens(self, records: Records) -> NDArray[np.float64]:
        """Predicted tokens of each sequence."""
        return _predicted(self.coefficients, records)

    def remainder(self, picks: Picks, tokens: NDArray[np.float64]) -> tuple[float, float]:
        """What all sequences have beyond the predicted tokens, from the picks; and its standard error [tokens].

            sum over picks of weight (t - predicted)

        Source: generalised regression estimator (Saerndal, Swensson and Wretman).
        """
        beyond = picks.weights * (tokens - self.tokens(picks.records))
        return float(beyond.sum()), float(np.sqrt((beyond**2).sum()))

    def bands(self, kinds: NDArray[np.intp], tokens: NDArray[np.float64]) -> NDArray[np.intp]:
        """The band of length of each."""
        return np.asarray((tokens[:, np.newaxis] >= self.edges[kinds]).sum(axis=1))


def _predicted(coefficients: NDArray[np.float64], records: Records) -> NDArray[np.float64]:
    values = _features(records)
    predicted = np.einsum("ij,ij->i", values, coefficients[text_kinds(records)])
    least = weight_bytes(records) / 40  # where a law fails: no tokenizer packs more into a token
    return np.asarray(np.maximum(np.maximum(predicted, least), 1.0))


def fitted(picks: Picks, tokens: NDArray[np.float64], per_message: float) -> Law:
    """Fit the law of the sequences that were tokenised.

        minimise the sum over i of ((x_i b - t_i) / w_i)^2 + ridge (b - b0)^2

    Relative errors count alike, b0 is the law that is assumed without a tokenizer, and kinds with few sequences share
    the law of all.

    Parameters
    ----------
    tokens : t, counted in each pick [tokens]

    Source: ridge regression.
    """
    kinds = text_kinds(picks.records)
    everything = _solved(picks.records, tokens, _assumed_law(per_message))
    coefficients = np.stack(
        [
            _solved(picks.records[kinds == kind], tokens[kinds == kind], everything)
            if (kinds == kind).sum() >= LEAST_PICKS
            else everything
            for kind in range(KINDS)
        ]
    )
    predicted = _predicted(coefficients, picks.records)
    logs = np.log(np.maximum(tokens, 1.0) / predicted)
    edges = np.stack([_edges(predicted[kinds == kind], predicted) for kind in range(KINDS)])
    bands = (predicted[:, np.newaxis] >= edges[kinds]).sum(axis=1)
    residuals = tuple(
        tuple(
            _residuals(logs, picks.weights, [(kinds == kind) & (bands == band), kinds == kind]) for band in range(BANDS)
        )
        for kind in range(KINDS)
    )
    highest = np.array(
        [math.exp(max(float(logs[_longer(kinds == kind, predicted)].max()), 0.0)) for kind in range(KINDS)]
    )
    return Law(coefficients, edges, residuals, highest)


def _assumed_law(per_message: float) -> NDArray[np.float64]:
    plain, other = 1 / ASCII_BYTES_PER_TOKEN[1], 1 / OTHER_BYTES_PER_TOKEN[1]
    each = [plain if size == 1 else size * other for size in (1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 0)]
    return np.array([*each, per_message, 0.0])


def _solved(records: Records, tokens: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients of the ridge regression, drawn to `prior` where the sequences say nothing."""
    scale = 1.0 / weight_bytes(records)
    values = _features(records) * scale[:, np.newaxis]
    spread = np.maximum(np.sqrt((values**2).mean(axis=0)), 1e-9)
    rows = np.concatenate([values, np.diag(spread) * math.sqrt(_PRIOR * len(tokens))])
    targets = np.concatenate([tokens * scale, prior * spread * math.sqrt(_PRIOR * len(tokens))])
    return np.asarray(np.linalg.lstsq(rows, targets, rcond=None)[0])


def _edges(own: NDArray[np.float64], every: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predicted tokens that part the picks of a kind into bands with equally many."""
    return np.quantile(own if own.size >= LEAST_PICKS else every, np.arange(1, BANDS) / BANDS)


def _residuals(
    logs: NDArray[np.float64], weights: NDArray[np.float64], among: Sequence[NDArray[np.bool_]]
) -> Residuals:
    """Those of the first group with enough picks; of all where none has."""
    group = next((each for each in among if each.sum() >= LEAST_PICKS / 2), np.ones(logs.size, dtype=np.bool_))
    return Residuals(logs[group], weights[group] / weights[group].sum())


def _longer(group: NDArray[np.bool_], predicted: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The longer half of a group; of all where the group has few."""
    group = group if group.sum() >= LEAST_PICKS / 2 else np.ones(group.size, dtype=np.bool_)
    return group & (predicted >= np.median(predicted[group]))


# Extremes: sequences that may be the longest or shortest are tokenised until no other can beat them.

MOST: Final = 512  # chosen: candidates that are tokenised
EXTREMES_BUDGET_BYTES: Final = 16 << 20  # chosen: of their text
_AT_ONCE: Final = 8
_LARGEST: Final = 4  # by bytes are tokenised whatever the law says of them
_SHORTEST: Final = 16
Tokens = Callable[[Records], NDArray[np.float64]]


class Extreme(Immutable):
    """Tokens of the longest or shortest sequence, whether they are exact, and the file and number of its row."""

    tokens: float
    exact: bool
    file: int
    number: int


class Extremes:
    """Candidates for both ends, from records that come in chunks."""

    def __init__(self) -> None:
        self._known = [_none(), _none()]
        self._long = (_none(), np.zeros(0))
        self._large = (_none(), np.zeros(0))
        self._short = (_none(), np.zeros(0))

    def add_known(self, records: Records) -> None:
        """Sequences whose tokens are known."""
        for end, choose in enumerate((np.argmin, np.argmax)):
            both = np.concatenate([self._known[end], records])
            self._known[end] = both[[int(choose(both["tokens"]))]] if both.size else both

    def add(self, records: Records, expected: NDArray[np.float64], most: NDArray[np.float64]) -> None:
        """Sequences of which a law says how many tokens to expect, and how many there can be."""
        self._long = _best(*self._long, records, -most, MOST + 1)
        self._large = _best(*self._large, records, -weight_bytes(records), _LARGEST)
        self._short = _best(*self._short, records, expected, _SHORTEST)

    def shortest(self, tokens: Tokens | None) -> Extreme:
        """The shortest of those that should be. tokens : counts those of records; None: the law decides."""
        records, expected = self._short
        counted = tokens(records) if tokens and records.size else expected
        return _extreme(self._known[0], records, counted, np.argmin, exact=tokens is not None)

    def longest(self, tokens: Tokens | None) -> Extreme:
        """The longest; exact unless more sequences could be longer than may be tokenised."""
        long, most = self._long[0], -self._long[1]
        if tokens is None or not long.size:
            return _extreme(self._known[1], long, most, np.argmax, exact=tokens is not None)
        tried, counted = self._large[0], tokens(self._large[0])
        best = max(float(counted.max()), *self._known[1]["tokens"].tolist(), 0.0)
        spent = float(weight_bytes(tried).sum())
        start = 0
        while start < min(long.size, MOST) and most[start] > best and spent < EXTREMES_BUDGET_BYTES:
            batch = long[start : start + _AT_ONCE]
            found = tokens(batch)
            tried, counted = np.concatenate([tried, batch]), np.concatenate([counted, found])
            best, spent = max(best, float(found.max())), spent + float(weight_bytes(batch).sum())
            start += _AT_ONCE
        beaten = start >= long.size or most[start] <= best
        return _extreme(self._known[1], tried, counted, np.argmax, exact=bool(beaten))


def _none() -> Records:
    return np.zeros(0, RECORD)


def _best(
    records: Records, scores: NDArray[np.float64], more: Records, their: NDArray[np.float64], most: int
) -> tuple[Records, NDArray[np.float64]]:
    """Those with the lowest scores of both, in order."""
    if their.size > most:
        nearest = np.argpartition(their, most)[:most]
        more, their = more[nearest], their[nearest]
    every, scored = np.concatenate([records, more]), np.concatenate([scores, their])
    order = np.argsort(scored, kind="stable")[:most]
    return every[order], scored[order]


def _extreme(
    known: Records, records: Records, tokens: NDArray[np.float64], choose: Callable[..., np.intp], *, exact: bool
) -> Extreme:
    """The first or last of what is known and what was counted."""
    every = np.concatenate([known, records])
    counted = np.concatenate([known["tokens"].astype(np.float64), tokens])
    place = int(choose(counted))
    one = every[place]
    return Extreme(max(float(counted[place]), 1.0), exact or not records.size, int(one["file"]), int(one["number"]))


def bound(predicted: NDArray[np.float64], highest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens that sequences can have at most, from the most over predicted tokens of a sample [tokens].

        predicted x (1 + 2 (highest - 1) + 0.05)

    Chosen: twice as far as the farthest of a sample.
    """
    return np.asarray(predicted * (1.05 + 2.0 * (highest - 1.0)))


# The distribution of millions of lengths: finely binned, then in at most 64 bins.

STEP: Final = 0.0025  # of a bin, in the logarithm: whole lengths below 400 have one each
MOST_BINS: Final = 64
_BINS: Final = math.ceil(math.log(1 << 33) / STEP)
QUANTILES: Final = (0.05, 0.5, 0.9, 0.95, 0.99)


class Fine:
    """Counts and sums of tokens by length, in bins that are `STEP` apart."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS)
        self.sums = np.zeros(_BINS)

    def add(self, tokens: NDArray[np.float64]) -> None:
        """Sequences of so many tokens."""
        places = find_bins(tokens)
        self.counts += np.bincount(places, minlength=_BINS)
        self.sums += np.bincount(places, tokens, minlength=_BINS)

    def add_spread(self, counts: NDArray[np.float64], logs: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        """Predicted lengths, each spread as tokens over predicted tokens were: a convolution in the logarithm.

        counts : sequences in each bin by predicted length; logs, weights : of the spread, weights sum to 1
        """
        shifts = np.rint(logs / STEP).astype(int)
        low, high = int(shifts.min()), int(shifts.max())
        kernel = np.bincount(shifts - low, weights, minlength=high - low + 1)
        occupied = np.flatnonzero(counts)
        if not occupied.size:
            return
        first, last = int(occupied[0]), int(occupied[-1])
        spread = np.convolve(counts[first : last + 1], kernel)
        places = np.clip(np.arange(first + low, first + low + spread.size), 0, _BINS - 1)
        np.add.at(self.counts, places, spread)
        np.add.at(self.sums, places, spread * np.exp(places * STEP))


def find_bins(tokens: NDArray[np.float64]) -> NDArray[np.intp]:
    """Find the bin of each length."""
    return np.clip(np.rint(np.log(np.maximum(tokens, 1.0)) / STEP), 0, _BINS - 1).astype(np.intp)


class Histogram(Immutable):
    """Lengths (ascending) and how many sequences have each; at most MOST_BINS. quantiles : tokens by share."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    quantiles: tuple[float, ...]


def histogram(fine: Fine, total: float, shortest: float, longest: float) -> Histogram:
    """The lengths in few bins that keep the sum of all tokens, the shortest and the longest.

    total : tokens of all sequences, to which lengths between shortest and longest are scaled
    """
    occupied = fine.counts > 0
    counts = fine.counts[occupied]
    lengths = np.clip(fine.sums[occupied] / counts, shortest, longest)
    lengths = np.clip(lengths * total / float(lengths @ counts), shortest, longest)
    reached = (np.cumsum(counts) - counts / 2) / counts.sum()
    quantiles = tuple(float(np.interp(share, reached, lengths)) for share in QUANTILES)
    counts, lengths = _with_end(counts, lengths, longest, last=True)
    counts, lengths = _with_end(counts, lengths, shortest, last=False)
    groups = _groups(lengths, counts)
    joined = np.asarray(np.bincount(groups, counts), dtype=np.float64)
    means = np.asarray(np.bincount(groups, counts * lengths) / joined)
    return _whole(means, joined, quantiles)


def _with_end(
    counts: NDArray[np.float64], lengths: NDArray[np.float64], end: float, *, last: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same with one sequence at least as long, or as short, as the one at the end, taken from the nearest bins."""
    counts, order = counts.copy(), range(len(counts) - 1, -1, -1) if last else range(len(counts))
    missing = 1.0
    for place in order:
        taken = min(counts[place], missing)
        counts[place] -= taken
        missing -= taken
        if missing <= 0:
            break
    kept = counts > 1e-12
    own = np.array([1.0 - max(missing, 0.0)])
    parts = [(counts[kept], lengths[kept]), (own, np.array([end]))]
    both = parts if last else parts[::-1]
    return np.concatenate([each for each, _ in both]), np.concatenate([each for _, each in both])


def _groups(lengths: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.intp]:
    """Which bin each length goes to: the ends have their own, the others as many as are left.

    Bins are equally wide in the mean of two scales: the logarithm of the length, and the normal score of its rank. So
    neither the many lengths in the middle nor the few long ones, which padding follows, share a bin with far others.
    """
    if len(lengths) <= MOST_BINS:
        return np.arange(len(lengths))
    inner = slice(1, -1)
    rank = (np.cumsum(counts) - counts / 2) / counts.sum()
    score = np.array([NormalDist().inv_cdf(min(max(float(each), 1e-9), 1 - 1e-9)) for each in rank[inner]])
    logs = np.log(lengths[inner])
    scale = (_unit(score) + _unit(logs)) / 2
    middle = np.minimum((scale * (MOST_BINS - 2)).astype(int), MOST_BINS - 3)
    groups = np.concatenate([[0], 1 + middle, [MOST_BINS - 1]])
    return np.asarray(np.unique(groups, return_inverse=True)[1]).ravel()


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same from 0 to 1."""
    span = float(values[-1] - values[0])
    return (values - values[0]) / span if span > 0 else np.zeros(values.size)


def _whole(lengths: NDArray[np.float64], counts: NDArray[np.float64], quantiles: tuple[float, ...]) -> Histogram:
    """Whole lengths and counts; what a count is short of a whole goes on to the next, so that the sum stays."""
    tokens = np.maximum(np.rint(lengths), 1).astype(int)
    whole = np.diff(np.rint(np.cumsum(counts)), prepend=0.0)
    support, where = np.unique(tokens, return_inverse=True)
    joined = np.bincount(where.ravel(), whole)
    kept = joined > 0
    return Histogram(tuple(support[kept].tolist()), tuple(joined[kept].astype(int).tolist()), quantiles)
