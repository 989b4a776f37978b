"""Time that the host needs to launch what the accelerator runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def exposed_launch_time_s(launches: ArrayLike, launch_s: float, device_time_s: ArrayLike) -> NDArray[np.float64]:
    """Time that the accelerator waits for the host.

        t = max(0, launches x launch_s - device_time)

    The queue hides launches as long as the kernels take longer. CUDA graphs and compilation lower the time of a launch,
    or the number of launches.

    Parameters
    ----------
    launches : kernels that the host starts [-]
    launch_s : time of one launch [s]
    device_time_s : time that the kernels run [s]

    Returns
    -------
    ndarray of float, shape that launches and device time broadcast to, seconds [s]

    Source: eager frameworks launch a kernel every 4 to 8 us; own derivation from a queue that one thread fills and the
    accelerator empties.
    """
    waiting_s = np.asarray(launches, dtype=np.float64) * launch_s - np.asarray(device_time_s, dtype=np.float64)
    return np.asarray(np.maximum(0.0, waiting_s))
