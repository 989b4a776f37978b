"""Time of the attention core: softmax(Q K^T) V, forward and backward."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable
from xe_sizer.laws.matmul import smooth_maximum


class AttentionLaw(Immutable, eq=True):
    """Law of one attention kernel family on one accelerator.

    `half_length` is the sequence at which the kernel reaches half of `flops_efficiency` (tiles and the causal
    diagonal waste more of a short sequence), `half_head_dim` the width of a head at which exponentials and sums of
    scores take as long as its products. Efficiencies are those of heads of 128. `sharpness` of the knee between
    computing and moving: measured kernels add.
    """

    floor_s: float
    flops_efficiency: float
    half_length: float
    memory_efficiency: float
    backward_flops_efficiency: float
    median_error: float | None = None
    p90_error: float | None = None
    source: str = ""
    sharpness: float = 1.0
    half_head_dim: float = 0.0


class DecodeLaw(Immutable, eq=True):
    """Law of attention of a few queries over a long cache on one accelerator, split over the keys."""

    floor_s: float
    memory_efficiency: float
    root_s_per_sqrt_byte: float = 0.0
    median_error: float | None = None
    p90_error: float | None = None
    source: str = ""


MEASURED_HEAD_DIM = 128.0  # of the heads that efficiencies were measured at; wider ones are taken to reach the same
# Counted: FlashAttention recomputes the scores in its backward: 5 matrix products against 2 (Dao 2022, algorithm 4).
FLASH_BACKWARD_FLOPS = 2.5
# Counted: with the probabilities kept, the backward needs 4 products: dV, dP, dQ, dK.
EAGER_BACKWARD_FLOPS = 2.0
# Counted: passes over the s x s scores of an unfused attention, forward: the product writes them; scale, mask, softmax
# and dropout each read and write; the second product reads. Backward the same in reverse, with two inputs.
EAGER_FORWARD_PASSES = 8.0
EAGER_BACKWARD_PASSES = 10.0
# Counted: one kernel for scale, mask and softmax reads and writes them once. Backward: products read the probabilities,
# write their gradients and read those of the scores twice; the softmax reads two tensors and writes one.
FUSED_FORWARD_PASSES = 4.0
FUSED_BACKWARD_PASSES = 7.0
DROPOUT_PASSES = 2.5  # counted, beside a fused softmax: reads, writes, and a mask of a byte, forward and backward alike


def attention_time_s(
    flops: ArrayLike,
    moved_bytes: ArrayLike,
    sequence: ArrayLike,
    law: AttentionLaw,
    peak_flops_per_s: float,
    bandwidth_bytes_per_s: float,
    backward: bool = False,
    head_dim: ArrayLike = MEASURED_HEAD_DIM,
) -> NDArray[np.float64]:
    """Time of one fused attention kernel, softmax(Q K^T) V.

        t = t0 + F g (1 + s0 / s) / (e peak) + bytes / (e_b bandwidth)
        t = t0 + ((F g (1 + s0 / s) / (e peak))^p + (bytes / (e_b bandwidth))^p)^(1/p)      where p is given
        g = (1 + d0 / d) / (1 + d0 / 128)      d = head_dim, at most 128

    Parameters
    ----------
    flops : F, what the mask leaves; of a backward times FLASH_BACKWARD_FLOPS or EAGER_BACKWARD_FLOPS [FLOP]
    moved_bytes : Q, K, V and output (and their gradients), read or written once [bytes]
    sequence : s, keys that the last query sees, of a window its width [-]
    law : t0 [s], s0, d0, e, e_b and p [-] of one family of kernels
    peak_flops_per_s : dense peak of the precision [FLOP/s]
    bandwidth_bytes_per_s : of the accelerator's memory [bytes/s]
    backward : whether the kernel is a backward, which has an e of its own
    head_dim : of queries and values on average: each score is one exponential, of however few FLOPs [-]

    Returns
    -------
    ndarray of float, shape that flops, bytes and sequence broadcast to, seconds [s]; zero where there are no FLOPs

    Source: fitted to kernels timed by aiconfigurator, or to published kernels of one family; the accelerator's profile
    names data and error of the fit. d0: forward of heads of 64 and 128 on an H100 (arXiv:2407.08608, figure 5).
    """
    flops = np.asarray(flops, dtype=np.float64)
    efficiency = law.backward_flops_efficiency if backward else law.flops_efficiency
    length_penalty = 1.0 + law.half_length / np.maximum(np.asarray(sequence, dtype=np.float64), 1.0)
    width = np.minimum(np.asarray(head_dim, dtype=np.float64), MEASURED_HEAD_DIM)
    width_penalty = (1.0 + law.half_head_dim / width) / (1.0 + law.half_head_dim / MEASURED_HEAD_DIM)
    compute_s = flops * length_penalty * width_penalty / (efficiency * peak_flops_per_s)
    memory_s = np.asarray(moved_bytes) / (law.memory_efficiency * bandwidth_bytes_per_s)
    both_s = compute_s + memory_s if law.sharpness == 1.0 else smooth_maximum(compute_s, memory_s, law.sharpness)
    return np.where(flops > 0, law.floor_s + both_s, 0.0)


def eager_attention_bytes(
    batch: ArrayLike, heads: ArrayLike, query: ArrayLike, key: ArrayLike, element_bytes: float, backward: bool,
    softmax: str = "unfused",
) -> NDArray[np.float64]:  # fmt: skip
    """Bytes that an attention which writes its scores moves for all of them, masked ones too.

        bytes = passes x b a q k x element_bytes

    Parameters
    ----------
    batch, heads, query, key : b sequences, a heads, q queries and k keys of each [-]
    element_bytes : size of a score [bytes]
    backward : whether the passes are those of the backward
    softmax : unfused, fused (with scale and mask), or fused-with-dropout behind it

    Returns
    -------
    ndarray of float, shape that the sizes broadcast to [bytes]

    Source: operators of the eager implementations in Hugging Face transformers, where scale, mask, softmax and dropout
    are kernels of their own; Megatron-LM's fused_kernels/scaled_masked_softmax.h and core/fusions/fused_softmax.py.
    """
    if softmax == "unfused":
        passes = EAGER_BACKWARD_PASSES if backward else EAGER_FORWARD_PASSES
    else:
        passes = FUSED_BACKWARD_PASSES if backward else FUSED_FORWARD_PASSES
        passes += DROPOUT_PASSES if softmax == "fused-with-dropout" else 0.0
    sizes = [np.asarray(size, dtype=np.float64) for size in (batch, heads, query, key)]
    return np.asarray(passes * element_bytes * np.prod(np.broadcast_arrays(*sizes), axis=0))


def decode_attention_time_s(
    flops: ArrayLike,
    moved_bytes: ArrayLike,
    law: DecodeLaw,
    flops_per_s: float,
    bandwidth_bytes_per_s: float,
) -> NDArray[np.float64]:
    """Time of one attention kernel that reads a cache for a few queries, split over the keys.

        t = t0 + max(bytes / (e bandwidth), F / flops_per_s) + c sqrt(bytes)

    Parameters
    ----------
    flops : F, over the cached keys; they bound latent attention with many heads [FLOP]
    moved_bytes : queries, output, and the keys and values that are read [bytes]
    law : t0 [s], e [-] and c [s / sqrt(byte)]
    flops_per_s : what the kernels reach of the peak [FLOP/s]
    bandwidth_bytes_per_s : of the accelerator's memory [bytes/s]

    Returns
    -------
    ndarray of float, shape that flops and bytes broadcast to, seconds [s]; zero where there are no FLOPs

    Source: fitted to decode kernels of vLLM, SGLang and TensorRT-LLM timed by aiconfigurator (profiles); the root
    stands for splits that leave processors idle while the cache is short.
    """
    flops, moved = np.asarray(flops, dtype=np.float64), np.asarray(moved_bytes, dtype=np.float64)
    streamed_s = np.maximum(moved / (law.memory_efficiency * bandwidth_bytes_per_s), flops / flops_per_s)
    return np.where(flops > 0, law.floor_s + streamed_s + law.root_s_per_sqrt_byte * np.sqrt(moved), 0.0)
