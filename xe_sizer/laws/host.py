"""Time that the host needs to launch what the accelerator runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def exposed_launch_time_s(launches: ArrayLike, launch_s: float, device_time_s: ArrayLike) -> NDArray[np.float64]:
    """Time that the accelerator waits for the host: max(0, launches x launch_s - device time) [s].

    Eager frameworks launch a kernel every 4 to 8 us; the queue hides it as long as the kernels take longer.
    CUDA graphs and compilation lower `launch_s` per kernel or the number of launches.
    """
    waiting_s = np.asarray(launches, dtype=np.float64) * launch_s - np.asarray(device_time_s, dtype=np.float64)
    return np.asarray(np.maximum(0.0, waiting_s))
