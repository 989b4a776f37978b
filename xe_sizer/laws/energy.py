"""Energy of accelerators from their design power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Accelerator

KWH_J = 3.6e6  # defined: joules of a kilowatt-hour
# Share of the thermal design power that an accelerator draws in training, and what the rest of a node adds to it.
# Both are assumed: no measurement of this repository stands behind them.
TRAINING_POWER_SHARE = 0.85
NODE_OVERHEAD = 1.25


def energy_kwh(gpu: Accelerator, gpu_hours: float, power_share: float = TRAINING_POWER_SHARE) -> float | None:
    """Energy of accelerators at a share of their design power, with their share of the nodes.

        E = GPU-hours x design power x share x NODE_OVERHEAD

    Parameters
    ----------
    gpu : the accelerator, with its thermal design power [W]
    gpu_hours : accelerators times hours [h]
    power_share : share of the design power that is drawn [-]

    Returns
    -------
    float [kWh]; None where no design power is known

    Source: own derivation from the design power of the profile; both factors are assumed.
    """
    power_w = None if gpu.tdp_w is None else gpu.tdp_w * power_share * NODE_OVERHEAD
    return None if power_w is None else gpu_hours * HOUR_S * power_w / KWH_J


def energy_words(power_share: float = TRAINING_POWER_SHARE) -> str:
    """What the energy of `energy_kwh` counts, in words.

        E = GPU-hours x design power x share x NODE_OVERHEAD

    Parameters
    ----------
    power_share : share of the design power that is drawn [-]

    Returns
    -------
    str

    Source: the factors of `energy_kwh`.
    """
    drawn, beside = 100.0 * power_share, 100.0 * (NODE_OVERHEAD - 1.0)
    return f"GPUs at {drawn:.0f} % of design power plus {beside:.0f} % for the rest of the server"
