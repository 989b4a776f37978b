"""Tools and environments that a policy calls between its turns: how long answers wait, and the CPUs that it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array

DEFAULT_SPREAD = 1.0  # assumed: standard deviation over mean of calls, as of waiting times that are exponential
DEFAULT_CORES = 1.0  # assumed: of a call, one process
SERVER_CORES = 64  # assumed: of a CPU server


class Environment(Immutable):
    """What answers wait for between their turns.

    turns : that an answer is written in [-]; turn_tokens : that each call adds [tokens]
    seconds : of a call [s]; spread : standard deviation of these over their mean [-]
    start_s : of an environment, before the first turn [s]
    cores : of the CPU that a call takes [-]; at_once : calls that are served at once; None: all that are made
    server_cores : of a CPU server [-]
    """

    turns: float
    turn_tokens: float
    seconds: float
    spread: float
    start_s: float
    cores: float
    at_once: int | None
    server_cores: float

    @property
    def calls(self) -> float:
        """Calls of an answer [-]: after each turn but the last."""
        return self.turns - 1.0

    @property
    def wait_s(self) -> float:
        """Time that an answer waits for its environment, on average [s]."""
        return self.start_s + self.calls * self.seconds

    @property
    def added_tokens(self) -> float:
        """Tokens that the calls of an answer add to it."""
        return self.calls * self.turn_tokens

    def slowest_s(self, answers: ArrayLike) -> Array:
        """Expected wait of the answer that waits longest of so many, shape of `answers` [s].

            w = start + c s + spread s sqrt(c) sqrt(2 ln n)         c : calls, s : seconds of one, n : answers

        Source: the central limit theorem for the sum of c calls; expected maximum of n normal variables, its usual
        bound (Cramer 1946, section 28.6).
        """
        deviations = np.sqrt(2.0 * np.log(np.maximum(as_array(answers), 1.0)))
        return np.asarray(self.wait_s + self.spread * self.seconds * math.sqrt(self.calls) * deviations)


def waiting_share(wait_s: ArrayLike, written_s: ArrayLike) -> Array:
    """Share of its time that an answer waits for its environment [-].

        share = w / (w + d)         w : waiting, d : being written [s]

    Parameters
    ----------
    wait_s, written_s : of one answer [s]

    Returns
    -------
    ndarray of float, shape that both broadcast to [-]

    Source: Little's law.
    """
    waiting, writing = as_array(wait_s), as_array(written_s)
    whole = waiting + writing
    return np.divide(waiting, whole, out=np.zeros(np.broadcast(waiting, writing).shape), where=whole > 0)


def least_calling_s(environment: Environment, answers: ArrayLike) -> Array:
    """Least time in which the calls of so many answers are served, shape of `answers` [s].

        t = answers x wait of one / calls at once        0 where there is no limit

    Source: the asymptotic bound of closed queueing networks (Denning and Buzen 1978, operational analysis).
    """
    if environment.at_once is None:
        return np.zeros(np.shape(answers))
    return np.asarray(as_array(answers) * environment.wait_s / environment.at_once)
