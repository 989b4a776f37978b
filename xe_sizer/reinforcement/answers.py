"""Lengths of the answers of an iteration: a long tail that is cut, whose last answers decide."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable
from xe_sizer.training.token_lengths import TokenLengths

if TYPE_CHECKING:
    from xe_sizer.reinforcement.environment import Environment

Array = NDArray[np.float64]
SUPPORT_POINTS = 256  # chosen: lengths by which a distribution is described
WIDEST = 6.0  # chosen: deviations of the log-normal that are looked at beyond its middle


class Answers(Immutable):
    """Distribution of the tokens of an answer, as it is after the cut.

        F(x) = share of the answers of at most x tokens

    lengths : ascending, shape (k,) [tokens]
    probabilities : of each, shape (k,); they sum to 1 [-]
    cut_share : share of the answers that reached the limit [-]
    """

    lengths: Array
    probabilities: Array
    cut_share: float

    @property
    def mean(self) -> float:
        """Mean tokens of an answer."""
        return float(self.lengths @ self.probabilities)

    @property
    def longest(self) -> float:
        return float(self.lengths[-1])

    @property
    def in_time(self) -> float:
        """Mean length of the answers that are being written at a moment, in which long ones weigh more [tokens]."""
        return float(self.lengths**2 @ self.probabilities) / self.mean if self.mean > 0 else 0.0

    def most_held(self, inputs: float) -> float:
        """Tokens that an answer takes up at the fullest moment, where all start together, with those that have ended.

            most = max over x of (1 - F(x)) (inputs + x), with x about to end

        inputs : tokens of the prompt that count for each answer [tokens]

        Source: own derivation; at a moment all that still write have as many tokens.
        """
        writing = 1.0 - np.concatenate([[0.0], np.cumsum(self.probabilities)[:-1]])
        return float(np.max(writing * (inputs + self.lengths)))

    def expected_longest(self, draws: ArrayLike) -> Array:
        """Expected longest of so many answers, shape of `draws` [tokens]: `TokenLengths.expected_maximum`."""
        return self._tokens.expected_maximum(draws)

    @cached_property
    def _tokens(self) -> TokenLengths:
        return TokenLengths(self.lengths, self.probabilities, "answers as they are cut")

    @cached_property
    def _unfinished(self) -> tuple[Array, Array]:
        """Integral of 1 - F from a length to the longest, and of the same again, at 0 and at each length."""
        places = np.concatenate([[0.0], self.lengths])
        alive = 1.0 - np.concatenate([[0.0], np.cumsum(self.probabilities)])
        gaps = np.diff(places)
        rest = np.concatenate([np.cumsum((alive[:-1] * gaps)[::-1])[::-1], [0.0]])
        return places, rest

    def alive(self, tokens: ArrayLike) -> Array:
        """Share of the answers that are longer than so many tokens, 1 - F [-]."""
        below = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        found = np.searchsorted(self.lengths, np.asarray(tokens, dtype=np.float64), side="right")
        return np.asarray(np.clip(1.0 - below[found], 0.0, 1.0))

    def remaining(self, tokens: ArrayLike) -> Array:
        """Share of the answers met at a moment of steady writing that still have more than so many tokens to go [-].

            1 - Fe(x) = (integral of 1 - F from x on) / mean

        Source: the residual life of renewal theory.
        """
        places, rest = self._unfinished
        return np.asarray(np.interp(np.asarray(tokens, dtype=np.float64), places, rest) / max(self.mean, 1e-12))

    @property
    def mean_remaining(self) -> float:
        """Tokens that an answer met at a moment of steady writing still has to go: E[x^2] / (2 E[x])."""
        return self.in_time / 2.0


def constant_answers(tokens: float) -> Answers:
    """Answers that are all alike; P(x = tokens) = 1."""
    return Answers(np.array([float(tokens)]), np.ones(1), 0.0)


def logged_answers(lengths: ArrayLike, most: float) -> Answers:
    """Answers as long as those of a log, cut at a limit: F(x) = share of the log's min(length, most) up to x.

    Parameters
    ----------
    lengths : of the log, shape (rows,) [tokens]
    most : tokens at which answers are cut [tokens]

    Source: the empirical distribution.
    """
    given = np.asarray(lengths, dtype=np.float64)
    found, counts = np.unique(np.minimum(given, most), return_counts=True)
    cut = given.max() > most or counts[-1] > 1  # one that is the longest ended by itself
    return Answers(found, counts / given.size, float(counts[-1] / given.size) if cut else 0.0)


def cut_answers(mean: float, spread: float, most: float) -> Answers:
    """A log-normal that is cut at a limit, with a stated mean after the cut.

        x = min(exp(mu + sigma z), most),  sigma^2 = ln(1 + spread^2),  E[x] = mean

    Writing stops at the limit, so that longer answers count as so long. mu is found by bisection.

    Parameters
    ----------
    mean : tokens of an answer as it is used, after the cut [tokens]
    spread : standard deviation over mean before the cut [-]
    most : tokens at which answers are cut [tokens]

    Returns
    -------
    Answers, shape (SUPPORT_POINTS,), or (1,) where all are alike [tokens]

    Source: own definition, that of `serve.output_spread`; the cut is max_tokens of every engine.
    """
    if spread <= 0 or mean >= most or mean <= 0:
        return constant_answers(min(mean, most))
    sigma = math.sqrt(math.log1p(spread**2))
    # Evenly in the normal's own scale: both tails are seen, each point with the probability of its stretch.
    edges = np.linspace(-WIDEST, WIDEST, SUPPORT_POINTS + 1)
    weights = np.diff([0.5 * math.erfc(-edge / math.sqrt(2.0)) for edge in edges])
    weights = weights / weights.sum()
    points = np.exp(sigma * (edges[:-1] + edges[1:]) / 2.0)
    low, high = math.log(mean) - 2.0 * sigma**2 - 1.0, math.log(most) + WIDEST * sigma
    for _ in range(60):
        middle = (low + high) / 2.0
        if float(np.minimum(points * math.exp(middle), most) @ weights) < mean:
            low = middle
        else:
            high = middle
    support, where = np.unique(np.minimum(points * math.exp(high), most), return_inverse=True)
    joined = np.zeros(support.size)
    np.add.at(joined, where.ravel(), weights)
    return Answers(support, joined, float(joined[-1]) if support[-1] >= most else 0.0)


class Asked(Immutable):
    """What is asked of all replicas in an iteration.

    prompts, group : prompts, and answers to each [-]
    inputs : tokens of a prompt; answers : lengths of the answers
    reread : what carried answers have is read again under new weights
    environment : that answers wait for between their turns; None: they are written in one
    carried : long answers are interrupted and go on in the next iteration
    ahead : batches of prompts whose answers may be in the making at once, where answers are carried [-]
    """

    prompts: float
    group: int
    inputs: float
    answers: Answers
    carried: bool = False
    ahead: int = 1
    environment: Environment | None = None
    reread: bool = False

    @property
    def count(self) -> float:
        return self.prompts * self.group

    @property
    def added(self) -> float:
        """Tokens that tools add to an answer, which are read and not written."""
        return self.environment.added_tokens if self.environment else 0.0

    @property
    def read(self) -> float:
        """Tokens of a sequence beside those that are written."""
        return self.inputs + self.added

    @property
    def wait_s(self) -> float:
        """Time that an answer waits for its environment [s]."""
        return self.environment.wait_s if self.environment else 0.0
