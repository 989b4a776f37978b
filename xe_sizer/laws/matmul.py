"""Time of matrix multiplications."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable

# Fitted to runs of BigScience's GPT models: states of 14,400 over 8 ranks (sides of 1,800, 5,400 and 7,200) take 1.27
# to 1.39 times as long for a FLOP as those of 13,824 (1,728, 5,184, 6,912), at 1 to 8 sequences a micro-batch. Rows of
# 64 elements of 16 bit start at the 128-byte lines that feed tensor cores; others straddle them (NVIDIA, Matrix
# Multiplication Background User's Guide, requirements to use tensor cores).
MISALIGNED = 1.8
# Published: 128 and 16 bytes, for A100 and for tensor cores at all (the same guide).
ALIGNED_ELEMENTS, LEAST_ELEMENTS = 64, 8

# Measured: grouped kernels over experts against single products: share of their FLOP rate, and a knee that nearly adds.
# 12,852 balanced MoE layers on H100 timed by aiconfigurator (TensorRT-LLM 1.3, bf16) fit at 0.499 of the peak and 1.2,
# 11,178 in fp8 at 0.511 and 1.01, 5,400 with vLLM 0.24 at 0.504 and 1.17; single products there reach 0.79.
# By themselves, 57 grouped products on an H100 fit at 0.86 of single ones and a knee of 2 with a median error of 6 %
# (benchmarks/measured/nvidia-h100/experts.jsonl): what stands around them is in the time of the layers, and so here.
GROUPED_EFFICIENCY, GROUPED_SHARPNESS = 0.65, 1.1


class MatmulLaw(Immutable, eq=True):
    """Smooth roofline of one accelerator and precision.

    `flops_efficiency` holds for short bursts at full clock; `sustained_flops_efficiency` for minutes of
    training under the power limit, and is what `matmul_time_s` uses. `grouped`: of kernels over experts, which reach
    `grouped_share` of it, at least `grouped_efficiency`, times `grouped_factor` where they were measured; `masked`: how
    much longer those take that mask the rest of a side, as `masks` says. `misaligned`: how much longer products of
    rows of 8 elements take, `unaligned` those of an odd number, as `misalignment` says; None: as of 8. `few_rows`:
    products of fewer rows run in kernels that reach `few_rows_share` of the rate. `tile`: sides of a result that
    kernels compute at least. `p90_error`: what nine in ten kernels are closer than to the law, of grouped ones
    `grouped_error`; None where no one fit has made it.
    """

    floor_s: float
    flops_efficiency: float
    memory_efficiency: float
    sharpness: float
    sustained_flops_efficiency: float | None = None
    cast_bytes_per_element: float = 0.0
    grouped: bool = False
    grouped_efficiency: float = GROUPED_EFFICIENCY
    grouped_factor: float = 1.0
    masked: float = 1.0
    misaligned: float = MISALIGNED
    unaligned: float | None = None
    few_rows: float = 0.0
    few_rows_share: float = 1.0
    tile: float = 1.0
    median_error: float | None = None
    p90_error: float | None = None
    grouped_error: float | None = None
    source: str = ""

    @property
    def effective_flops_efficiency(self) -> float:
        return self.sustained_flops_efficiency or self.flops_efficiency

    def scaled(self, factor: float) -> MatmulLaw:
        """The law at a multiple of its FLOP rate."""
        sustained = self.sustained_flops_efficiency
        return replace(
            self,
            flops_efficiency=self.flops_efficiency * factor,
            sustained_flops_efficiency=None if sustained is None else sustained * factor,
        )


# Those layers have experts 768 to 2,048 wide. Where the smallest side of each product has 8,192, its tiles fill the
# accelerator as those of a single product do; between the two the share rises with the logarithm, which is assumed.
GROUPED_SIDES = (1024.0, 8192.0)


def grouped_share(m: ArrayLike, n: ArrayLike, k: ArrayLike, least: float = GROUPED_EFFICIENCY) -> NDArray[np.float64]:
    """Share of a single product's FLOP rate that a grouped kernel reaches.

        s = least + (1 - least) clip(ln(min(m, n, k) / 1024) / ln 8, 0, 1)

    Parameters
    ----------
    m, n, k : array_like, sizes of one expert's product [-], broadcast together
    least : of small products [-]

    Returns
    -------
    ndarray of float, shape that m, n and k broadcast to [-]

    Source: lower end: balanced mixture-of-experts layers timed by aiconfigurator; upper end: a product of that size
    is one of many that keep all multiprocessors busy alone; the rise between is assumed.
    """
    small, large = GROUPED_SIDES
    side = np.maximum(np.minimum(np.minimum(m, n), k), small)
    risen = np.minimum(np.log(side / small) / np.log(large / small), 1.0)
    return np.asarray(least + (1.0 - least) * risen)


def grouped_law(law: MatmulLaw) -> MatmulLaw:
    """Derive the law of a grouped product on an accelerator whose single products follow `law`.

        e_f = grouped_share x grouped_factor x e_f of single products, p = GROUPED_SHARPNESS

    Parameters
    ----------
    law : of single products

    Returns
    -------
    MatmulLaw

    Source: fitted to balanced mixture-of-experts layers timed by aiconfigurator; the comment at the constants names
    them.
    """
    share, error = law.scaled(law.grouped_factor), law.grouped_error
    return replace(share, grouped=True, grouped_factor=1.0, sharpness=GROUPED_SHARPNESS, p90_error=error)


def misalignment(
    rows: ArrayLike, columns: ArrayLike, slowdown: float, unaligned: float | None = None
) -> NDArray[np.float64]:
    """Slowdown of products of a weight whose sides do not fill the lines that tensor cores are fed with [-].

        f = 1 + (slowdown - 1) (64 / a - 1) / 7                    a = the largest power of 2 in both sides, at most 64
        f = slowdown (unaligned / slowdown)^(log2(8 / a) / 3)      where a is below 8

    Parameters
    ----------
    rows, columns : array_like, sides of the weight [-], broadcast together; what is no whole number is padded
    slowdown : of sides that are multiples of 8 alone [-]
    unaligned : of odd sides; None: as of multiples of 8 [-]

    Returns
    -------
    ndarray of float, shape that rows and columns broadcast to [-]

    Source: the comment at MISALIGNED; that it falls with the number of lines that rows straddle is assumed. Odd sides:
    benchmarks/measured; that it falls evenly in between is assumed (in tf32, of half the bytes that a copy of a tile
    takes, it was 2.4).
    """
    sides = (np.asarray(side, dtype=np.float64) for side in (rows, columns))
    whole, other = (np.where(side % 1.0 == 0.0, side, 0.0).astype(np.int64) for side in sides)
    power = (whole | other) & -(whole | other)  # the lowest bit that is set in either
    aligned = np.where(power > 0, np.clip(power, LEAST_ELEMENTS, ALIGNED_ELEMENTS), ALIGNED_ELEMENTS)
    straddled = (ALIGNED_ELEMENTS / aligned - 1.0) / (ALIGNED_ELEMENTS / LEAST_ELEMENTS - 1.0)
    slower = 1.0 + (slowdown - 1.0) * straddled
    lacking = np.log2(LEAST_ELEMENTS / np.clip(power, 1, LEAST_ELEMENTS)) / np.log2(LEAST_ELEMENTS)
    further = (max(unaligned or slowdown, slowdown) / slowdown) ** np.where(power > 0, lacking, 0.0)
    return np.asarray(slower * further)


# Published: tiles are multiples of 128, the lanes of a vector register, or a whole side (tokamax ops/ragged_dot), which
# one of up to 1,024 is (MaxText configs/base.yml, *_embed_dim and *_mlp_dim).
LANES, WHOLE_SIDE = 128, 1024


def masks(rows: ArrayLike, columns: ArrayLike) -> NDArray[np.bool_]:
    """Whether no tile divides a side of an expert's weight, so that grouped kernels of TPUs mask the last tile [-].

        mask = (n > 1024 and n mod 128 > 0) or the same of k

    Parameters
    ----------
    rows, columns : array_like, sides n and k of the weight [-], broadcast together

    Returns
    -------
    ndarray of bool, shape that rows and columns broadcast to [-]

    Source: MaxText kernels/megablox/backend.py and tokamax ops/ragged_dot/pallas_mosaic_tpu_kernel.py (k_rem).
    """
    sides = (np.asarray(side, dtype=np.float64) for side in (rows, columns))
    longer, other = ((side > WHOLE_SIDE) & (side % LANES != 0.0) for side in sides)
    return np.asarray(longer | other)


def smooth_maximum(a: ArrayLike, b: ArrayLike, sharpness: float) -> NDArray[np.float64]:
    """Roofline with a rounded knee: p = 1 is the sum of both, p = inf their maximum.

        s = (a^p + b^p)^(1/p) = max (1 + (min / max)^p)^(1/p)

    The second form neither overflows nor loses the small operand.

    Parameters
    ----------
    a, b : array_like, not negative [any unit]
    sharpness : p, at least 1 [-]

    Returns
    -------
    ndarray of float, shape that a and b broadcast to [unit of a and b]

    Source: own derivation: the p-norm of both bounds, which lies between the roofline and the sum of its parts.
    """
    high = np.maximum(a, b)
    low = np.minimum(a, b)
    ratio = np.divide(low, high, out=np.zeros(np.broadcast(low, high).shape), where=high > 0)
    if np.isinf(sharpness):
        return np.asarray(high, dtype=np.float64)
    return np.asarray(high * (1.0 + ratio**sharpness) ** (1.0 / sharpness), dtype=np.float64)


# Counted: the smaller side of a tile of cuBLAS's kernels for float32 without tensor cores, by their names in measured
# steps (sm80_xmma_gemm_f32f32_..._tilesize128x32x8 for adapters of rank 8 and 16).
FLOAT32_TILE = 32.0


def tile_padding(m: ArrayLike, n: ArrayLike, tile: float) -> NDArray[np.float64]:
    """FLOPs that kernels of whole tiles compute over those of a result's sizes [-].

        f = max(m, tile) max(n, tile) / (m n)

    Parameters
    ----------
    m, n : array_like, sizes of the result [-], broadcast together; an empty result has no padding
    tile : least side of a tile [-]

    Returns
    -------
    ndarray of float, shape that m and n broadcast to [-]

    Source: names of cuBLAS's kernels in measured steps.
    """
    m, n = (np.asarray(side, dtype=np.float64) for side in (m, n))
    empty = m * n <= 0
    return np.where(empty, 1.0, np.maximum(m, tile) * np.maximum(n, tile) / np.where(empty, 1.0, m * n))


def matmul_time_s(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    law: MatmulLaw,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    element_bytes: ArrayLike = 2.0,
    weight_element_bytes: ArrayLike | None = None,
    slowdown: ArrayLike = 1.0,
    accumulated_bytes: ArrayLike = 0.0,
    cast_rows: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Time of C[m,n] = A[m,k] @ B[k,n] on one accelerator.

        t = t0 + (a^p + b^p)^(1/p)
        a = 2 m n k f / (e_f peak)        e_f x grouped_share for grouped products
        b = ((m k + m n) element_bytes + k n weight_element_bytes + c r k + g m n) / (e_b bandwidth)

    Parameters
    ----------
    m, n, k : array_like, matrix sizes [-], broadcast together; a zero size takes no time
    law : t0 [s], e_f, e_b, p and c, the bytes that an fp8 cast of the activation moves per element
    peak_flops_per_s : dense peak of the precision [FLOP/s]
    bandwidth_bytes_per_s : memory bandwidth [bytes/s]
    element_bytes, weight_element_bytes : size of an element of A and C, and of B [bytes]
    slowdown : f, of weights whose sides are not aligned [-]
    accumulated_bytes : g, where C is added to what is there, beside its own element [bytes]
    cast_rows : r, of A that are cast; None: m [-]

    Returns
    -------
    ndarray of float, shape that m, n and k broadcast to, seconds [s]

    Source: smooth roofline fitted to measured GEMMs; data and error stand in the accelerator's profile.
    """
    m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    size = np.asarray(element_bytes, dtype=np.float64)
    weight_size = size if weight_element_bytes is None else np.asarray(weight_element_bytes, dtype=np.float64)
    share = grouped_share(m, n, k, law.grouped_efficiency) if law.grouped else 1.0
    efficiency = law.effective_flops_efficiency * share
    flops_s = 2.0 * m * n * k * np.asarray(slowdown) / (efficiency * peak_flops_per_s)
    cast = m if cast_rows is None else np.asarray(cast_rows, dtype=np.float64)
    moved = (m * k + m * n) * size + k * n * weight_size + law.cast_bytes_per_element * cast * k
    moved = moved + np.asarray(accumulated_bytes) * m * n
    memory_s = moved / (law.memory_efficiency * bandwidth_bytes_per_s)
    seconds = law.floor_s + smooth_maximum(flops_s, memory_s, law.sharpness)
    return np.where(flops_s > 0, seconds, 0.0)
