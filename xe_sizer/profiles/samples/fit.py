"""Tokens from bytes: a law fitted to the sequences that were tokenised, and how far each was from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.profiles.samples.classes import NAMES, ascii_bytes, size_bytes
from xe_sizer.profiles.samples.picks import weight_bytes

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.picks import Picks
    from xe_sizer.profiles.samples.spill import Records

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


def kind_of(records: Records) -> NDArray[np.intp]:
    """Which kind of text each sequence is: beyond ASCII, full of signs as code is, or prose."""
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


@frozen
class Residuals:
    """Logarithms of tokens over predicted tokens of one kind and band of length, with their weights (sum 1)."""

    logs: NDArray[np.float64]
    weights: NDArray[np.float64]


@frozen
class Law:
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
    predicted = np.einsum("ij,ij->i", values, coefficients[kind_of(records)])
    least = weight_bytes(records) / 40  # where a law fails: no tokenizer packs more into a token
    return np.asarray(np.maximum(np.maximum(predicted, least), 1.0))


def fitted(picks: Picks, tokens: NDArray[np.float64], per_message: float) -> Law:
    """The law of the sequences that were tokenised.

        minimise the sum over i of ((x_i b - t_i) / w_i)^2 + ridge (b - b0)^2

    Relative errors count alike, b0 is the law that is assumed without a tokenizer, and kinds with few sequences share
    the law of all.

    Parameters
    ----------
    tokens : t, counted in each pick [tokens]

    Source: ridge regression.
    """
    kinds = kind_of(picks.records)
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
