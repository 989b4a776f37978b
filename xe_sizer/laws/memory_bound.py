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
    """Time of kernels that only move memory.

        t = bytes / (e bandwidth) + launches t0

    Parameters
    ----------
    moved_bytes : what the kernels read and write: a fused kernel moves each tensor once, an unfused chain once per step
        of the chain [bytes]
    launches : kernels [-]
    bandwidth_bytes_per_s : of the accelerator's memory [bytes/s]
    efficiency : e, share of the bandwidth that streaming kernels reach [-]
    floor_s : t0, time of the accelerator's smallest kernel [s]

    Returns
    -------
    ndarray of float, shape that bytes and launches broadcast to, seconds [s]; zero where nothing moves

    Source: streaming kernels reach 0.8 to 0.9 of the bandwidth; e and t0 stand in the accelerator's profile.
    """
    moved = np.asarray(moved_bytes, dtype=np.float64)
    return np.where(moved > 0, moved / (efficiency * bandwidth_bytes_per_s) + np.asarray(launches) * floor_s, 0.0)
