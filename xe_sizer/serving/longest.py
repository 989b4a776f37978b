"""How long sequences may be, and how many fit, on replicas of given placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.serving.memory import max_sequences, serving_memory, static_peak

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts

LONGEST = 2**27  # tokens that are looked for where a model names no positions


def sessions_held(job: ServingJob, placements: ReplicaLayouts, inputs: float, outputs: float) -> Array:
    """Whole sequences that a replica holds at once, to their last token.

        sessions = dp floor(pool / request_bytes)                    the engine keeps a pool
        sessions = floor(1 + (card - peak(1)) / (peak(2) - peak(1)))      the cache grows with the sequences

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    inputs, outputs : of one sequence [tokens]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: `memory.max_sequences` and `memory.static_peak`; each attention rank has a pool of its own.
    """
    memory = serving_memory(job, placements, inputs)
    if not job.engine.memory.grows:
        found = max_sequences(job, placements, memory, inputs + outputs)
        each = np.where(found < 1.0, 0.0, found / placements.dp)
        return np.asarray(np.floor(each) * placements.dp)
    one, two = (np.asarray(sum(static_peak(job, placements, n, inputs, outputs).values())) for n in (1.0, 2.0))
    room = memory.usable_bytes - memory.beside_tensors - one
    return np.asarray(np.maximum(np.floor(1.0 + room / np.maximum(two - one, 1.0)), 0.0))


def longest_context(
    job: ServingJob, placements: ReplicaLayouts, sessions: ArrayLike, outputs: float, most: int | None
) -> Array:
    """The longest prompt and answer of which a replica holds so many at once.

        longest = max of T with sessions_held(T - outputs, outputs) >= sessions

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sessions : that a replica has to hold, shape (placements,) [-]
    outputs : of the T tokens, the answer [tokens]
    most : tokens that are looked for at most; None: no bound is known [tokens]

    Returns
    -------
    ndarray of float, shape (placements,); 0 where not even a prompt of one token fits [tokens]

    Source: own derivation: halving, as fewer sequences fit the longer they are.
    """
    asked = np.broadcast_to(as_array(sessions), len(placements))
    found = np.zeros(len(placements))
    for place in range(len(placements)):
        one = placements[place : place + 1]
        low, high = int(outputs), (most or LONGEST) + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = sessions_held(job, one, middle - outputs, outputs)[0] >= asked[place]
            low, high = (middle, high) if fits else (low, middle)
        found[place] = low if low > outputs else 0.0
    return found
