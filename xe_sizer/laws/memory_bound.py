"""Time of operators that only move memory: norms, activations, rotary, residuals, casts, loss, optimizer."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def memory_bound_time_s(
    moved_bytes: ArrayLike,
    launches: ArrayLike,
    bandwidth_bytes_per_s: float,
    efficiency: float,
    floor_s: float,
) -> NDArray[np.float64]:
    """t = bytes / (e bandwidth) + launches t0 [s].

    `moved_bytes` counts what the stack's kernels read and write: a fused kernel moves each tensor once, an
    unfused chain once per step of the chain. Source: streaming kernels reach 0.8 to 0.9 of the bandwidth;
    t0 is the accelerator's smallest kernel, in its profile.
    """
    moved = np.asarray(moved_bytes, dtype=np.float64)
    return np.where(moved > 0, moved / (efficiency * bandwidth_bytes_per_s) + np.asarray(launches) * floor_s, 0.0)
