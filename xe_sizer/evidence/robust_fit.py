"""Regression that few runs cannot mislead: a prior, noise with strays, and what it says of runs that it has not seen.

    log measured = log predicted(factors) + noise,   log factor ~ N(0, PRIOR_SPREAD^2),   noise ~ Student-t

Source: Gelman et al., Bayesian Data Analysis, chapters 3, 14 and 17 (normal model with unknown variance, regression
with an informative prior, robust inference).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

PRIOR_SPREAD = 0.35  # assumed: a factor is within 0.7 to 1.4 of the parent's in two cases of three
NOISE = 0.08  # assumed, relative: what two runs of the same job differ by with other nodes and versions
FREEDOM = 4.0  # assumed, degrees of freedom of the noise: one record in ten may be off by far
REWEIGHTS = 30  # chosen: rounds after which the weights no longer move
PARENT_RUNS = 1.0  # chosen: how many runs the parent's published range counts as beside one's own
STRAYS = 0.1  # assumed: share of the runs that may be off by any amount
FARTHEST = 3.0  # chosen: standard deviations, by the median, beyond which a run is such a stray
TAIL = 1.2815515655446004  # counted: 90 % quantile of the normal distribution; a tenth lies on each side of a range
NORMAL_SPREADS = 1.4826  # counted: standard deviations of a normal distribution in its median absolute deviation


def robust(slopes: Vector, linear: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """Posterior mode and precision of the log factors under Student-t noise, by reweighting.

    Parameters
    ----------
    slopes : -d log(measured / predicted) / d log factor, shape (run, factor) [-]
    linear : log(measured / predicted) that the factors must explain, shape (run,) [-]
    weights : of the runs, shape (run,) [-]

    Returns
    -------
    log factors, shape (factor,) [-]; their precision, shape (factor, factor) [-]
    """
    prior = np.eye(slopes.shape[1]) / PRIOR_SPREAD**2
    log_factors: Vector = np.zeros(slopes.shape[1])
    precision: Vector = prior
    for _ in range(REWEIGHTS):
        residual = linear - slopes @ log_factors
        trust = weights / NOISE**2 / (1.0 + (residual / NOISE) ** 2 / FREEDOM)
        precision = (slopes * trust[:, None]).T @ slopes + prior
        log_factors = np.asarray(np.linalg.solve(precision, (slopes * trust[:, None]).T @ linear))
    return log_factors, precision


def left_out_residuals(slopes: Vector, linear: Vector, weights: Vector, parts: Sequence[str]) -> Vector:
    """Log residuals of runs by fits that have not seen their part, shape (run,) [-].

    parts : which runs are left out together, by a name for each, shape (run,)

    A part that is all there is meets the parent's own factors.
    """
    names, found = np.array(parts), np.zeros(len(parts))
    for part in dict.fromkeys(parts):
        own = names == part
        log_factors, _ = robust(slopes[~own], linear[~own], weights[~own])
        found[own] = linear[own] - slopes[own] @ log_factors
    return found


def error_of_new_runs(residuals: Vector, parts: Sequence[str], parent_spread: float) -> float:
    """Log error that four in five new runs should stay below.

        error = t(0.9, n) s,   s^2 = (PARENT_RUNS sigma^2 + sum of r^2) / n,   n = PARENT_RUNS + parts

    with a part's mean square r^2 of the residuals of fits that had not seen it, and the parent's published spread
    sigma: with few runs that rules, and t(0.9, n) is wide; with many both lose their weight. At most a tenth of the
    parts counts as strays: those beyond three standard deviations are taken to lie there. Never below NOISE.

    Parameters
    ----------
    residuals : of runs that were left out, shape (run,) [-]
    parts : which of them were left out together, shape (run,)
    parent_spread : standard deviation of log(measured / predicted) of the parent's published runs [-]

    Returns
    -------
    float [-]

    Source: posterior predictive distribution of a normal model with a scaled inverse chi-square prior (Bayesian Data
    Analysis, section 3.2). Simulated runs lie inside as often as it says or more often (tests/evidence).
    """
    names, squares = np.array(parts), residuals**2
    sizes = np.sort([math.sqrt(squares[names == part].mean()) for part in dict.fromkeys(parts)])
    usual = float(sizes[math.ceil((1.0 - STRAYS) * len(sizes)) - 1])
    kept = np.minimum(sizes, max(usual, FARTHEST * NORMAL_SPREADS * float(np.median(sizes))))
    runs = PARENT_RUNS + len(sizes)
    spread = math.sqrt((PARENT_RUNS * parent_spread**2 + float(kept @ kept)) / runs)
    return max(student_tail(runs) * spread, math.log1p(NOISE))


def student_tail(freedom: float) -> float:
    """90 % quantile of Student's t distribution.

        t = z + (z^3 + z) / (4 n) + (5 z^5 + 16 z^3 + 3 z) / (96 n^2) + (3 z^7 + 19 z^5 + 17 z^3 - 15 z) / (384 n^3)

    Within 0.3 % from two degrees of freedom on.

    freedom : degrees of freedom n, 2 or more [-]

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = TAIL
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
