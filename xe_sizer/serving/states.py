"""The states of a replica from one request inside to as many as fit, between which its latencies are interpolated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xe_sizer.serving.memory import held_tokens, max_sequences
from xe_sizer.serving.queueing import OF_A_STATE, Curve
from xe_sizer.serving.steady import Steady, steady

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.traffic import Traffic

State = Callable[["ServingJob", "ReplicaLayouts", "Traffic", "Array"], Steady]
GRID = 20  # states that are evaluated between one request and as many as fit


def capacity(job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic) -> Array:
    """Requests that a replica holds at once.

        c = min(max_sequences of the pool, limit of the engine x groups)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation; the limit stands in the engine's file.
    """
    tokens = held_tokens(job, traffic.inputs, traffic.outputs_in_time)
    limit = job.engine.batching.max_sequences * job.groups(placements)
    return np.asarray(np.minimum(max_sequences(job, placements, memory, tokens), limit))


def curve(
    job: ServingJob, placements: ReplicaLayouts, memory: ServingMemory, traffic: Traffic, state: State = steady
) -> Curve:
    """The states of a replica between one request and its capacity.

        running_i = c^(i / (GRID - 1)),  i = 0 ... GRID - 1

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    memory : pool of shape (placements,) [bytes]
    traffic : lengths of prompts and answers
    state : a replica with so many requests inside

    Returns
    -------
    Curve, shape (GRID, placements), seconds [s]

    Source: own derivation: evenly spaced in their logarithm, as times grow with the share of running requests.
    """
    most = capacity(job, placements, memory, traffic)
    steps = np.linspace(0.0, 1.0, GRID)[:, None]
    running = np.maximum(most, 1.0) ** steps
    flat = np.tile(np.arange(len(placements)), GRID)
    found = state(job, placements[flat], traffic, running.reshape(-1))
    return Curve(_reshaped(found, (GRID, len(placements))), most)


def _reshaped(found: Steady, shape: tuple[int, int]) -> Steady:
    """The same with states and placements apart; the parts of the steps stay flat."""
    flat = shape[0] * shape[1]
    values: dict[str, Any] = {n: np.broadcast_to(getattr(found, n), flat).reshape(shape) for n in OF_A_STATE}
    return replace(found, **values)
