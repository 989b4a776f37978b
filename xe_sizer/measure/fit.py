"""Laws fitted to samples: least squares of the logarithm of measured over predicted times.

    minimise sum of rho(log measured - log law(sizes; parameters)) + ridge,    rho of Huber, beyond 0.2

by the method of Levenberg and Marquardt, with derivatives by finite differences. A parameter is kept between its
bounds by x = low (high / low)^sigmoid(u), and the ridge on u draws what the samples do not determine to where it
starts, which is the catalogue's law or the usual one. The error of a law is that on kernels that a fit had not seen:
each of the sizes is in one of at most FOLDS parts, which are left out one after the other.

Source: Marquardt, J. SIAM 11 (1963) 431-441; Huber, Robust Statistics (1981), chapter 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import (
    FLASH_BACKWARD_FLOPS,
    AttentionLaw,
    DecodeLaw,
    attention_time_s,
    decode_attention_time_s,
)
from xe_sizer.laws.collectives import CollectiveLaw, Network, collective_time_s
from xe_sizer.laws.matmul import MatmulLaw, grouped_law, matmul_time_s
from xe_sizer.laws.operator_time import ATTENTION_BACKWARD_BYTES, memory_bound_time_s
from xe_sizer.measure.grid import work
from xe_sizer.measure.samples import BACKWARD, Point, sizes_of
from xe_sizer.units import GIGA, MICRO

if TYPE_CHECKING:
    from numpy.typing import NDArray

Predict = Callable[[Sequence[Point], Mapping[str, float]], "NDArray[np.float64]"]
"""Seconds of points' kernels, shape (point,), by named parameters."""

HUBER = 0.2  # chosen: beyond, in log, a sample is a stray that draws no harder
RIDGE = 0.01  # chosen: what keeps a parameter at its start where the samples do not determine it
ROUNDS, STEP = 60, 1e-4
FOLDS = 12
LEAST_POINTS = 4  # chosen: of fewer sizes a law stays the catalogue's
TENTHS = 0.9


BEYOND = 1.25  # chosen: how far above the peak a share of it may be sought, so that 1 is no bound; it counts as 1


class Parameter(Immutable):
    """A parameter of a law, where it starts and the bounds that it is kept between; a share counts as 1 at most."""

    name: str
    start: float
    low: float
    high: float


class Fitted(Immutable):
    """Parameters by name, and errors on kernels that a fit had not seen [-].

    errors : |law / measured - 1| of each point by the fit that had not seen it
    """

    parameters: dict[str, float]
    points: int
    errors: tuple[float, ...]

    @property
    def median_error(self) -> float:
        return float(np.median(self.errors))

    @property
    def p90_error(self) -> float:
        return float(np.quantile(self.errors, TENTHS))


def fit(points: Sequence[Point], parameters: Sequence[Parameter], predict: Predict) -> Fitted | None:
    """Fit a law; None of fewer points than LEAST_POINTS."""
    if len(points) < LEAST_POINTS:
        return None
    whole = _minimise(points, parameters, predict)
    errors = np.zeros(len(points))
    folds = np.arange(len(points)) % min(FOLDS, len(points))
    for fold in range(int(folds.max()) + 1):
        seen = [point for place, point in enumerate(points) if folds[place] != fold]
        unseen = [point for place, point in enumerate(points) if folds[place] == fold]
        own = _minimise(seen, parameters, predict)
        errors[folds == fold] = np.abs(predict(unseen, own) / _seconds(unseen) - 1.0)
    return Fitted(whole, len(points), tuple(errors.tolist()))


def _seconds(points: Sequence[Point]) -> NDArray[np.float64]:
    return np.array([point.seconds for point in points])


def _minimise(points: Sequence[Point], parameters: Sequence[Parameter], predict: Predict) -> dict[str, float]:
    low = np.log([one.low for one in parameters])
    span = np.log([one.high for one in parameters]) - low
    share = np.clip((np.log([one.start for one in parameters]) - low) / span, 0.02, 0.98)
    start = np.log(share / (1.0 - share))
    shares = np.array([one.high == BEYOND for one in parameters])
    names, measured = [one.name for one in parameters], np.log(_seconds(points))

    def named(place: NDArray[np.float64]) -> dict[str, float]:
        found = np.exp(low + span / (1.0 + np.exp(-place)))
        return dict(zip(names, np.where(shares, np.minimum(found, 1.0), found).tolist(), strict=True))

    def residuals(place: NDArray[np.float64]) -> NDArray[np.float64]:
        return measured - np.log(np.maximum(predict(points, named(place)), 1e-12))

    def loss(place: NDArray[np.float64]) -> float:
        apart = np.abs(residuals(place))
        rho = np.where(apart <= HUBER, 0.5 * apart**2, HUBER * (apart - 0.5 * HUBER))
        return float(rho.sum() + 0.5 * RIDGE * ((place - start) ** 2).sum())

    place, best, damping = start.copy(), loss(start), 1.0
    for _ in range(ROUNDS):
        apart = residuals(place)
        slopes = np.stack([(residuals(place + STEP * axis) - apart) / STEP for axis in np.eye(len(start))], axis=1)
        trust = np.minimum(1.0, HUBER / np.maximum(np.abs(apart), 1e-12))
        normal = (slopes * trust[:, None]).T @ slopes + RIDGE * np.eye(len(start))
        downhill = (slopes * trust[:, None]).T @ apart + RIDGE * (place - start)
        tried = place - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        reached = loss(tried)
        if reached < best:
            gain, place, best, damping = best - reached, tried, reached, max(damping / 4.0, 1e-6)
            if gain < 1e-9:
                break
        else:
            damping *= 4.0
            if damping > 1e8:
                break
    return named(place)


# The laws: which parameters each has, and how a point is priced by them.


def of_products(
    points: Sequence[Point], start: MatmulLaw, peak: float, bandwidth: float, element_bytes: float
) -> Fitted | None:
    """Fit t0, e_f, e_b and p of single products (`laws.matmul.matmul_time_s`).

    start : the law that is fitted anew; what its format casts stays
    peak, bandwidth : of the device [FLOP/s], [bytes/s]
    """

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        return seconds_of_products(some, matmul_law(named, start), peak, bandwidth, element_bytes)

    return fit(points, product_parameters(start), predict)


def seconds_of_products(
    points: Sequence[Point], law: MatmulLaw, peak: float, bandwidth: float, element_bytes: float
) -> NDArray[np.float64]:
    """Seconds of products by a law, shape (point,)."""
    m, n, k = (sizes_of(points, name) for name in ("m", "n", "k"))
    return matmul_time_s(m, n, k, law, peak, bandwidth, element_bytes)


def product_parameters(start: MatmulLaw) -> tuple[Parameter, ...]:
    """Parameters of the law of products, from where they start."""
    return (
        Parameter("floor_us", max(start.floor_s * 1e6, 0.05), 0.01, 2000.0),
        Parameter("flops_efficiency", min(start.effective_flops_efficiency, 0.98), 0.005, BEYOND),
        Parameter("memory_efficiency", min(start.memory_efficiency, 0.98), 0.01, BEYOND),
        Parameter("sharpness", min(max(start.sharpness, 1.05), 9.0), 1.0, 10.0),
    )


def matmul_law(named: Mapping[str, float], like: MatmulLaw) -> MatmulLaw:
    """The law of these parameters, as they stand in a profile."""
    return MatmulLaw(
        floor_s=named["floor_us"] * 1e-6,
        flops_efficiency=named["flops_efficiency"],
        memory_efficiency=named["memory_efficiency"],
        sharpness=named["sharpness"],
        cast_bytes_per_element=like.cast_bytes_per_element,
    )


def of_experts(points: Sequence[Point], law: MatmulLaw, peak: float, bandwidth: float) -> Fitted | None:
    """Fit the factor on the rate of grouped products that their law derives from that of single ones."""

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        return seconds_of_experts(some, law.scaled(named["factor"]), peak, bandwidth)

    return fit(points, (Parameter("factor", 1.0, 0.05, 4.0),), predict)


def seconds_of_experts(points: Sequence[Point], law: MatmulLaw, peak: float, bandwidth: float) -> NDArray[np.float64]:
    """Seconds of grouped products of an accelerator whose single products follow a law, shape (point,)."""
    m, n, k, copies = (sizes_of(points, name) for name in ("m", "n", "k", "copies"))
    one = matmul_time_s(m, n, k, grouped_law(law), peak, bandwidth) - law.floor_s
    return np.asarray(law.floor_s + copies * one)


def of_attention(
    points: Sequence[Point], start: AttentionLaw, peak: float, bandwidth: float, element_bytes: float
) -> Fitted | None:
    """Fit t0, e, e of the backward, e_b and s0 of one family of kernels (`laws.attention.attention_time_s`).

    start : of which d0 stays, as few sizes of heads are timed
    """
    parameters = (
        Parameter("floor_us", max(start.floor_s * 1e6, 0.05), 0.01, 2000.0),
        Parameter("flops_efficiency", min(start.flops_efficiency, 0.98), 0.003, BEYOND),
        Parameter("backward_flops_efficiency", min(start.backward_flops_efficiency, 0.98), 0.003, BEYOND),
        Parameter("memory_efficiency", min(start.memory_efficiency, 0.98), 0.01, BEYOND),
        Parameter("half_length", max(start.half_length, 2.0), 1.0, 4096.0),
    )

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        return seconds_of_attention(some, attention_law(named, start), peak, bandwidth, element_bytes)

    return fit(points, parameters, predict)


def attention_law(named: Mapping[str, float], like: AttentionLaw) -> AttentionLaw:
    """The law of these parameters, as they stand in a profile."""
    return AttentionLaw(
        floor_s=named["floor_us"] * 1e-6,
        flops_efficiency=named["flops_efficiency"],
        backward_flops_efficiency=named["backward_flops_efficiency"],
        memory_efficiency=named["memory_efficiency"],
        half_length=named["half_length"],
        half_head_dim=like.half_head_dim,
    )


def seconds_of_attention(
    points: Sequence[Point], law: AttentionLaw, peak: float, bandwidth: float, element_bytes: float
) -> NDArray[np.float64]:
    """Seconds of causal attention by a law, forward or backward as each point is, shape (point,)."""
    batch, heads, length, size = (sizes_of(points, name) for name in ("batch", "heads", "length", "head_dim"))
    flops = 2.0 * batch * heads * size * length * (length + 1.0)
    moved = 4.0 * batch * heads * size * length * element_bytes
    forward = attention_time_s(flops, moved, length, law, peak, bandwidth, False, size)
    further = FLASH_BACKWARD_FLOPS * flops, ATTENTION_BACKWARD_BYTES * moved
    backward = attention_time_s(*further, length, law, peak, bandwidth, True, size)
    return np.where([point.kernel.form == BACKWARD for point in points], backward, forward)


def of_decoding(points: Sequence[Point], start: DecodeLaw, bandwidth: float, element_bytes: float) -> Fitted | None:
    """Fit t0, e and c of attention over a cache (`laws.attention.decode_attention_time_s`), which moves."""
    parameters = (
        Parameter("floor_us", max(start.floor_s * 1e6, 0.05), 0.01, 2000.0),
        Parameter("memory_efficiency", min(start.memory_efficiency, 0.98), 0.01, BEYOND),
        Parameter("root_us_per_sqrt_mb", max(start.root_s_per_sqrt_byte * 1e9, 0.01), 1e-3, 1000.0),
    )

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        law = DecodeLaw(named["floor_us"] * 1e-6, named["memory_efficiency"], named["root_us_per_sqrt_mb"] * 1e-9)
        return seconds_of_decoding(some, law, bandwidth, element_bytes)

    return fit(points, parameters, predict)


def seconds_of_decoding(
    points: Sequence[Point], law: DecodeLaw, bandwidth: float, element_bytes: float
) -> NDArray[np.float64]:
    """Seconds of one query over a cache by a law, shape (point,)."""
    counted = np.array([work(point.kernel, element_bytes) for point in points])
    return decode_attention_time_s(counted[:, 0], counted[:, 1], law, np.inf, bandwidth)


def of_moving(
    points: Sequence[Point], efficiency: float, floor_s: float, bandwidth: float, element_bytes: float
) -> Fitted | None:
    """Fit e and t0 of kernels that only move memory (`laws.operator_time.memory_bound_time_s`)."""
    parameters = (
        Parameter("efficiency", min(efficiency, 0.98), 0.01, BEYOND),
        Parameter("floor_us", max(floor_s * 1e6, 0.05), 0.01, 2000.0),
    )

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        return seconds_of_moving(some, named["efficiency"], named["floor_us"] * 1e-6, bandwidth, element_bytes)

    return fit(points, parameters, predict)


def seconds_of_moving(
    points: Sequence[Point], efficiency: float, floor_s: float, bandwidth: float, element_bytes: float
) -> NDArray[np.float64]:
    """Seconds of one kernel each that only moves memory, shape (point,)."""
    moved = np.array([work(point.kernel, element_bytes)[1] for point in points])
    return memory_bound_time_s(moved, 1.0, bandwidth, efficiency, floor_s)


def of_collective(points: Sequence[Point], start: tuple[float, float, float]) -> Fitted | None:
    """Fit alpha, B and c of one operation over one number of ranks (`laws.collectives.collective_time_s`).

    start : alpha [us], B [GB/s] and c [us / sqrt(MB)]
    """
    operation, ranks = points[0].kernel.name, int(points[0].kernel.sizes["ranks"])
    alpha, bus, root = start
    parameters = (
        Parameter("alpha_us", max(alpha, 0.5), 0.1, 1e5),
        Parameter("bus_gb_per_s", min(max(bus, 0.02), 4000.0), 0.01, 5000.0),
        Parameter("root_us_per_sqrt_mb", max(root, 0.1), 0.01, 1e5),
    )

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        law = CollectiveLaw(
            (ranks,),
            (named["alpha_us"] * 1e-6,),
            (named["bus_gb_per_s"] * 1e9,),
            (named["root_us_per_sqrt_mb"] * 1e-9,),
        )
        network = Network(ranks, {operation: law}, 1.0, 0.0)
        return collective_time_s(operation, sizes_of(some, "bytes"), ranks, ranks, network)

    return fit(points, parameters, predict)


def of_network(
    points: Sequence[Point], inside: Mapping[str, CollectiveLaw], start: tuple[float, float]
) -> Fitted | None:
    """Fit B_out and alpha_out between nodes, one for all operations (`laws.collectives.collective_time_s`).

    points : across nodes, each with all ranks of its nodes, or one of two nodes each
    inside : laws inside a node by operation; start : B_out of one rank [GB/s] and alpha_out [us]
    """
    rate, latency = start
    parameters = (
        Parameter("gb_per_s", min(max(rate, 0.002), 900.0), 0.001, 1000.0),
        Parameter("latency_us", max(latency, 0.5), 0.1, 1e5),
    )

    def predict(some: Sequence[Point], named: Mapping[str, float]) -> NDArray[np.float64]:
        return seconds_across(some, inside, named["gb_per_s"] * GIGA, named["latency_us"] * MICRO)

    return fit(points, parameters, predict)


def seconds_across(
    points: Sequence[Point], inside: Mapping[str, CollectiveLaw], bytes_per_s: float, alpha_s: float
) -> NDArray[np.float64]:
    """Seconds of collectives across nodes, shape (point,). bytes_per_s, alpha_s : B_out of one rank, and alpha_out"""
    seconds = np.zeros(len(points))
    ranks, nodes, message = (sizes_of(points, name) for name in ("ranks", "nodes", "bytes"))
    operations = np.array([point.kernel.name for point in points])
    for operation in dict.fromkeys(operations.tolist()):
        here = operations == operation
        law = inside.get(operation, AT_ONCE)
        network = Network(int(ranks.max()), {operation: law}, bytes_per_s, alpha_s)
        sizes = message[here], ranks[here], ranks[here] / nodes[here]
        seconds[here] = collective_time_s(operation, *sizes, network)
    return seconds


# Inside a node where nothing was measured there, or there is one rank a node: what passes counts as the network's.
AT_ONCE = CollectiveLaw((2,), (0.0,), (np.inf,), (0.0,))
