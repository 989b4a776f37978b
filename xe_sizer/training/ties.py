"""What the model cannot tell apart, and which of it is taken: the plainer layout, then the one with more headroom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.training.layout import FULL

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.layout import Layouts

# Errors of the ratio of two predictions, for published runs of one job that differ in their layout alone, or in the
# number of GPUs: the median of 18 and of 16 publications (scripts/pair_error.py).
LAYOUT_ERROR = 0.108
GPUS_ERROR = 0.080
TIE = 0.02  # chosen: layouts equally plain and so near in time are told apart by their headroom


def complexity(layouts: Layouts) -> IntArray:
    """How far a layout is from the plainest, data parallelism alone, shape (layout,) [-].

        kinds of parallelism (tp, cp, pp, ep, ZeRO 3) + ceil(log2 chunks a stage) + full recompute + groups of ZeRO
        + 2 x offload

    Every kind is one more thing to set up and to go wrong; many chunks a stage are rarer than few, and host memory
    brings its own limits. Selective recompute is what recipes do anyway.

    Parameters
    ----------
    layouts : of shape (layout,)

    Returns
    -------
    ndarray of int, shape (layout,) [-]

    Source: chosen.
    """
    kinds = sum((getattr(layouts, name) > 1).astype(np.int64) for name in ("tp", "cp", "pp", "ep"))
    kinds = kinds + (layouts.zero == 3) + (layouts.zero_group > 0)
    chunks = np.ceil(np.log2(layouts.vpp)).astype(np.int64)
    return np.asarray(kinds + chunks + (layouts.recompute == FULL) + 2 * (layouts.offload > 0))


def preferred(layouts: Layouts, step_s: Array, peak_bytes: Array) -> int:
    """Which of some layouts on the same GPUs is taken: the plainest of those as fast as the model can tell.

    Of layouts equally plain the fastest, and within TIE of it the one with the lowest peak.

    layouts, step_s, peak_bytes : of shape (layout,), at least one
    """
    near = np.flatnonzero(step_s <= step_s.min() * (1.0 + LAYOUT_ERROR))
    plain = complexity(layouts[near])
    near = near[plain == plain.min()]
    near = near[step_s[near] <= step_s[near].min() * (1.0 + TIE)]
    return int(near[np.argmin(peak_bytes[near])])
