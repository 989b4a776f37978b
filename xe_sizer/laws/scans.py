"""Time of chunked scans: state-space mixers and linear attention, forward and backward."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable


class ScanLaw(Immutable, eq=True):
    """How fast the kernels of a chunked scan are, on any accelerator.

    flops_per_s : that their products reach at most, which are small and mixed with exponentials and sums
    chunk_s : that the kernel which walks from chunk to chunk takes for each
    slower : than the formula, of kernels of another library [-]
    backward : over the forward [-]
    """

    flops_per_s: float
    chunk_s: float
    slower: float = 1.0
    backward: float = 6.3


# Kernels in Triton, one after the other. Measured on an H100 (flash-linear-attention 0.6, heads of 128, prompts of
# 512 to 65,536 tokens): 2.1 ns of a token and head for gated delta nets, 4.5 for Kimi delta attention, 1.0 without a
# delta rule, where the formula has 1.16; with 8 heads 1.75 us from chunk to chunk. Timed by aiconfigurator: 1.5 to
# 1.9 ns for gated delta nets on H200, B200 and B300, 3.1 to 3.9 on RTX PRO 6000, 7.6 to 9 on L40S; 0.6 for Mamba-2 on
# B200, whose kernels (mamba-ssm) take 1.45 times what the formula says. Their backward is fitted to training of 1.4B
# (48 layers, 4 x 4,096 tokens) at 102, 239 and 360 TFLOP/s on A100, H200 and GB200 (state-spaces/mamba issue 904):
# 7.0, 6.1 and 6.0 times the forward. That of the others is taken to be so too.
LAWS = {
    "mamba-2": ScanLaw(135e12, 0.0, 1.45),
    "gated-delta-net": ScanLaw(135e12, 1.7e-6),
    "kimi-delta-attention": ScanLaw(135e12, 1.7e-6),
    "lightning-attention": ScanLaw(135e12, 0.0),
}
# One kernel: FlashInfer's of gated delta nets takes 0.42 ns of a token and head on H100 and 0.32 on B200, 2.4 to 3 us
# from chunk to chunk; FlashKDA 1.0 to 1.15 ns on Hopper, 0.8 on B200 (aiconfigurator: vLLM 0.24, and July 2026).
FUSED_LAWS = {"gated-delta-net": ScanLaw(500e12, 2.7e-6), "kimi-delta-attention": ScanLaw(190e12, 3.5e-6)}
SCAN_ERROR = 0.7  # measured: nine in ten of those kernels are closer to their law, of 4,096 tokens and more


def scan_law(kind: str, fused: bool) -> ScanLaw:
    """The law of a kind of mixer, of its kernels in Triton or of the one that takes their place."""
    return (FUSED_LAWS if fused else LAWS)[kind]


def scan_time_s(
    flops: ArrayLike, moved_bytes: ArrayLike, walked: ArrayLike, law: ScanLaw, peak_flops_per_s: float,
    streamed_bytes_per_s: float,
) -> NDArray[np.float64]:  # fmt: skip
    """Time of the forward of a chunked scan, without starting its kernels.

        t = l ((F / min(r, peak))^2 + (bytes / streamed)^2 + (chunks tau)^2)^(1/2)

    Parameters
    ----------
    flops : F, of its products [FLOP]
    moved_bytes : that its kernels read and write [bytes]
    walked : chunks that one kernel walks through one after the other [-]
    law : r [FLOP/s], tau [s] and l [-]
    peak_flops_per_s : dense peak of the products inside scans [FLOP/s]
    streamed_bytes_per_s : rate of kernels that only move memory [bytes/s]

    Returns
    -------
    ndarray of float, shape that the sizes broadcast to, seconds [s]

    Source: fitted to kernels of flash-linear-attention measured on an H100, and of SGLang, vLLM and TensorRT-LLM timed
    by aiconfigurator on seven accelerators, as the comment at the laws says.
    """
    products_s = np.asarray(flops) / min(law.flops_per_s, peak_flops_per_s)
    moving_s = np.asarray(moved_bytes) / streamed_bytes_per_s
    walking_s = np.asarray(walked) * law.chunk_s
    return np.asarray(law.slower * np.sqrt(products_s**2 + moving_s**2 + walking_s**2))
