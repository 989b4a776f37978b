"""What the model cannot tell apart, and which of it is taken: the plainer layout, then the one with more headroom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.training.layout import FULL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.layout import Layouts

# Errors of the ratio of two predictions, for published runs of one job that differ in their layout alone, or in the
# number of GPUs: the median of 18 and of 16 publications (scripts/pair_error.py).
LAYOUT_ERROR = 0.108
GPUS_ERROR = 0.080
TIE = 0.02  # chosen: layouts equally plain and so near in time are told apart by their headroom


def complexity(layouts: Layouts) -> IntArray:
    """How far a layout is from the plainest, data parallelism alone, shape (layout,) [-].

        kinds of parallelism (tp, pp, ep, ZeRO 3) + ceil(log2 chunks a stage) + full recompute + groups of ZeRO
        + 2 x context parallelism + 2 x offload

    Every kind is one more thing to set up and to go wrong; context parallelism is for long sequences, many chunks a
    stage are rarer than few, and host memory brings its own limits. Selective recompute is what recipes do anyway.

    Parameters
    ----------
    layouts : of shape (layout,)

    Returns
    -------
    ndarray of int, shape (layout,) [-]

    Source: chosen.
    """
    kinds = sum((getattr(layouts, name) > 1).astype(np.int64) for name in ("tp", "pp", "ep"))
    kinds = kinds + (layouts.zero == 3) + (layouts.zero_group > 0) + 2 * (layouts.cp > 1)
    chunks = np.ceil(np.log2(layouts.vpp)).astype(np.int64)
    return np.asarray(kinds + chunks + (layouts.recompute == FULL) + 2 * (layouts.offload > 0))


def drawbacks(layouts: Layouts, doubtful: NDArray[np.bool_]) -> IntArray:
    """What tells layouts apart that are as fast as the model can tell, the lowest first, shape (layout,) [-].

        complexity + 2 x doubtful

    doubtful : whether memory is not likely to suffice, shape (layout,); as much of a risk as host memory is

    Source: chosen.
    """
    return np.asarray(complexity(layouts) + 2 * doubtful)


def preferred(layouts: Layouts, step_s: Array, peak_bytes: Array, doubtful: NDArray[np.bool_]) -> int:
    """Which of some layouts on the same GPUs is taken: of those as fast as the model can tell the one to run.

    The one with the fewest drawbacks; of several the fastest, and within TIE of it that with the lowest peak, of
    equal peaks the faster.

    layouts, step_s, peak_bytes, doubtful : of shape (layout,), at least one
    """
    near = np.flatnonzero(step_s <= step_s.min() * (1.0 + LAYOUT_ERROR))
    first = drawbacks(layouts[near], doubtful[near])
    near = near[first == first.min()]
    near = near[step_s[near] <= step_s[near].min() * (1.0 + TIE)]
    return int(near[np.lexsort((step_s[near], peak_bytes[near]))[0]])
