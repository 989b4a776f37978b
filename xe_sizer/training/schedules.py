"""Schedules of a pipeline: what stages wait for one another, and the micro-batches whose activations they hold.

One row each. F, B and W are the passes of a micro-batch through all layers of a stage: forward, gradients of its
inputs, gradients of its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray

Held = Callable[["Array", "Array", "Array", "Array"], tuple["Array", "Array"]]
"""Of stages, chunks of each, micro-batches, and of the two ends' layers the shares in their outermost chunks."""


@frozen
class Schedule:
    """One order of a pipeline's passes.

    waits : (f, b, w); every stage but the slowest adds f F + b B + w W to the bubble
    spared : (f, b, w) that reordering the first and last micro-batches takes off the whole bubble again
    repeats : (share, k, r); each micro-batch beyond the first 1 + r (pp - 1) adds share x max(2 max(F, B) - k min(F, B)
        - W, 0): the block that repeats has no room for passes that differ much
    held : micro-batches alive on the first stage and on the last
    least_chunks, most_chunks : of a stage; 0: as many as there are layers
    v_shaped : chunks run down the stages and back up, so that the first stage has the head too
    source : where the row is from
    """

    name: str
    waits: tuple[float, float, float]
    held: Held
    source: str
    spared: tuple[float, float, float] = (0.0, 0.0, 0.0)
    repeats: tuple[float, float, float] = (0.0, 0.0, 0.0)
    least_chunks: int = 1
    most_chunks: int = 1
    v_shaped: bool = False


def _interleaved(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    """Stage i runs 2 (pp - i - 1) + (vpp - 1) pp + 1 chunks forward before its first backward ends; one chunk: pp - i.

    The first stage holds pp micro-batches of each chunk and pp - 1 more of its first; the last one pp of each but its
    last, and the chunk that runs.

    Megatron-LM core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
    """
    others = 1.0 - outermost[1]
    running = np.maximum(outermost[1], others / np.maximum(vpp - 1.0, 1.0))
    return pp + (pp - 1.0) * outermost[0], pp * others + running


def _all(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return micro_batches, micro_batches


def _pipeline_full(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return pp, pp


def _two_pipelines_full(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    return 2.0 * pp - 1.0, 2.0 * pp - 1.0


def _half(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    held = (pp + 2.0) // 2.0
    return held, held


def _third(pp: Array, vpp: Array, micro_batches: Array, outermost: Array) -> tuple[Array, Array]:
    held = (pp + 4.0) // 3.0
    return held, held


_ZERO_BUBBLE = "zero bubble (arXiv:2401.10241), table 1"
_CONTROLLED = "controllable memory (arXiv:2405.15362) and its scheduler, sail-sg zerobubble/scheduler/zbv_greedy.py"

ROWS = (
    Schedule("1f1b", (1, 1, 1), _interleaved, "Narayanan et al. 2021 (arXiv:2104.04473)", most_chunks=0),
    Schedule("1f1b-interleaved", (1, 1, 1), _interleaved, "arXiv:2104.04473", least_chunks=2, most_chunks=0),
    Schedule("gpipe", (1, 1, 1), _all, "GPipe (arXiv:1811.06965)"),
    Schedule("zb-h1", (1, 1, -1), _pipeline_full, _ZERO_BUBBLE),
    Schedule("zb-h2", (1, 1, -2), _two_pipelines_full, _ZERO_BUBBLE),
    Schedule(
        "zb-v", (0, 1, -1), _pipeline_full, "arXiv:2401.10241 and its scheduler, zerobubble/scheduler/zbv.py",
        least_chunks=2, most_chunks=2, v_shaped=True,
    ),
    Schedule(
        "v-half", (0.5, 1.5, -0.5), _half, _CONTROLLED, spared=(1, 0, 1), repeats=(0.5, 2, 1),
        least_chunks=2, most_chunks=2, v_shaped=True,
    ),
    Schedule(
        "v-min", (1, 1, 0), _third, _CONTROLLED, repeats=(1, 1, 0), least_chunks=2, most_chunks=2, v_shaped=True,
    ),
)  # fmt: skip
SCHEDULES = tuple(row.name for row in ROWS)
# Chunks of stages by SCHEDULES, as ROWS have them; open ones share the bubble, the two of a V are what makes it one.
OPEN_CHUNKS = np.array([row.most_chunks == 0 for row in ROWS])
LEAST_CHUNKS = np.array([row.least_chunks for row in ROWS])
# Whether chunks run down the stages and back up, so that the first stage has the head too.
V_SHAPED = np.array([row.v_shaped for row in ROWS])
# Whether a stage has other passes to do while a tensor is under way: those of other chunks, or deferred W.
HAS_OTHER_WORK = np.array([row.least_chunks > 1 or row.waits[2] < 1 for row in ROWS])
# Any number where they are open.
MOST_CHUNKS = np.array([row.most_chunks or np.iinfo(np.int64).max for row in ROWS])
_WAITS, _SPARED, _REPEATS = (
    np.array([getattr(row, name) for row in ROWS], dtype=float) for name in ("waits", "spared", "repeats")
)


@frozen
class Passes:
    """Seconds of the passes of one micro-batch through a stage, F, B and W, shape (stage, layout)."""

    forward_s: Array
    backward_s: Array
    weight_s: Array

    @property
    def total_s(self) -> Array:
        return self.forward_s + self.backward_s + self.weight_s


def bubble_time_s(
    schedule: IntArray, pp: Array, vpp: Array, micro_batches: Array, passes: Passes, middles: Array
) -> Array:
    """What the slowest stage of a pipeline waits in one optimizer step.

        bubble = sum over the other stages of max(f F + b B + w W, 0) / vpp - spared + repeats
        spared = f' F + b' B + w' W,  repeats = (m - 1 - r (pp - 1)) share max(2 max(F, B) - k min(F, B) - W, 0)

    vpp shares it where the schedule interleaves; pp - 1 stages are the others, of which the first, the last and the
    middle ones may differ. It is never negative.

    Parameters
    ----------
    schedule : index into SCHEDULES, shape (layout,) [-]
    pp, vpp, micro_batches : stages, chunks of each, m of a step, shape (layout,) [-]
    passes : on the first, the last and the fullest middle stage, shape (3, layout) [s]
    middles : middle stages, counted in full ones, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [s]

    Source: the rows of ROWS; checked against simulations of the schedules.
    """
    times = np.stack([passes.forward_s, passes.backward_s, passes.weight_s])
    slowest, columns = np.argmax(passes.total_s, axis=0), np.arange(len(schedule))
    waits = np.maximum(np.einsum("lk,ksl->sl", _WAITS[schedule], times), 0.0)
    whole = waits[0] + waits[1] + middles * waits[2] - waits[slowest, columns]
    whole = whole / np.where(OPEN_CHUNKS[schedule], vpp, 1.0)
    on_slowest = times[:, slowest, columns]
    spared = np.einsum("lk,kl->l", _SPARED[schedule], on_slowest)
    longer, shorter = np.maximum(*on_slowest[:2]), np.minimum(*on_slowest[:2])
    share, times_shorter, rounds = _REPEATS[schedule].T
    repeated = share * np.maximum(2.0 * longer - times_shorter * shorter - on_slowest[2], 0.0)
    further = np.maximum(micro_batches - 1.0 - rounds * (pp - 1.0), 0.0)
    bubble_s = np.maximum(whole - spared, 0.0) + further * repeated
    return np.where(pp > 1, bubble_s, 0.0)


def micro_batches_in_flight(
    schedule: IntArray, pp: Array, vpp: Array, micro_batches: Array, end_shares: Array | None = None
) -> Array:
    """Micro-batches whose activations a stage holds, in the mean over its layers; never more than there are.

        first = pp, last = 1                                              1f1b
        first = pp + (pp - 1) s                                           1f1b-interleaved, s = 1 / vpp in even chunks
        last = pp (1 - s) + max(s, (1 - s) / (vpp - 1))
        first = last = m                                                  gpipe
        first = last = pp                                                 zb-h1, zb-v
        first = last = 2 pp - 1                                           zb-h2
        first = last = floor((pp + 2) / 2)                                v-half
        first = last = floor((pp + 4) / 3)                                v-min

    Activations that wait for a deferred W count whole: nearly all that a layer keeps is what its W needs.

    Parameters
    ----------
    schedule : index into SCHEDULES, shape (layout,) [-]
    pp, vpp, micro_batches : stages, chunks of each, m of a step, shape (layout,) [-]
    end_shares : s, of the layers of the first stage those in its first chunk, of the last stage's those in its last, of
        shape (stage, layout) [-]; None: chunks have as many layers

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]; stages are the first and the last

    Source: the rows of ROWS.
    """
    held, even = np.zeros((2, len(schedule))), 1.0 / as_array(vpp)
    shares = np.stack([even, even]) if end_shares is None else end_shares
    # With a single chunk the first stage holds no more of it than its place in the pipeline asks for.
    shares = np.stack([np.where(as_array(vpp) > 1, shares[0], 0.0), np.where(as_array(vpp) > 1, shares[1], 1.0)])
    for code in np.flatnonzero(np.bincount(schedule)):
        mine = schedule == code
        stages, chunks, passing = (as_array(size)[mine] for size in (pp, vpp, micro_batches))
        held[:, mine] = ROWS[code].held(stages, chunks, passing, shares[:, mine])
    return np.asarray(np.minimum(np.where(pp > 1, held, 1.0), micro_batches))
