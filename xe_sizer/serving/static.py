"""A static batch: all prompts together, then one token a step for all sequences until the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.step import Work, step_time

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.step import StepTime
    from xe_sizer.serving.traffic import Traffic

# Decode steps are timed at the ends and the middle of the answer (Simpson's rule: exact up to the third power).
PLACES, WEIGHTS = (0.0, 0.5, 1.0), (1.0 / 6.0, 4.0 / 6.0, 1.0 / 6.0)


@frozen
class StaticBatch:
    """Latencies of a batch that starts together; arrays of shape (points,), seconds [s].

    prefill : all prompts; decode : one step, averaged over the answer
    """

    prefill: StepTime
    decode: StepTime
    ttft_s: Array
    tpot_s: Array
    request_s: Array


def prefill_time(
    job: ServingJob, placements: ReplicaLayouts, sequences: ArrayLike, inputs: ArrayLike, past: ArrayLike = 0.0
) -> tuple[StepTime, Array]:
    """One step of a prefill of some prompts, and how many such steps it takes.

        steps = max(ceil(sequences x new tokens / limit), 1)

    Steps take at most `max_step_tokens`; where prompts are not cut, at least one whole prompt.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sequences : prompts [-]
    inputs, past : tokens of a prompt, and of these the cached ones [tokens]

    Returns
    -------
    (StepTime, steps), shape that the sizes and placements broadcast to, seconds [s] and [-]

    Source: chunked prefill (arXiv:2308.16369); the limit stands in the engine's file.
    """
    sequences, inputs, past = np.broadcast_arrays(as_array(sequences), as_array(inputs), as_array(past))
    limit = job.engine.batching.max_step_tokens * job.groups(placements)
    new = np.maximum(inputs - past, 1.0)
    steps = np.maximum(np.ceil(sequences * new / limit), 1.0)
    if not job.engine.batching.chunked_prefill:
        steps = np.minimum(steps, np.maximum(sequences, 1.0))
    share = sequences / steps
    cut = np.minimum(share, 1.0)  # below one prompt a step, a prompt takes several
    work = Work(
        prefills=np.maximum(share, 1.0) * (sequences > 0),
        prefill_tokens=new * cut,
        prefill_past=past + new * (1.0 - cut) / 2.0,
    )
    return step_time(job, placements, work), steps


def decode_time(
    job: ServingJob, placements: ReplicaLayouts, sequences: ArrayLike, inputs: ArrayLike, outputs: ArrayLike,
    tokens_per_step: ArrayLike = 1.0,
) -> StepTime:  # fmt: skip
    """The mean decode step of sequences that grow from their prompt to the end of their answer.

        t = (t(0) + 4 t(1/2) + t(1)) / 6

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sequences : that get a token in every step [-]
    inputs, outputs : tokens of a prompt and of an answer [tokens]
    tokens_per_step : that are computed for a sequence in a step, more than 1 with speculation [tokens]

    Returns
    -------
    StepTime, shape that the sizes and placements broadcast to, seconds [s]

    Source: Simpson's rule over the answer; exact up to the third power of the length.
    """
    arrays = np.broadcast_arrays(as_array(placements.tp), *(as_array(one) for one in (sequences, inputs, outputs)))
    _, sequences, inputs, outputs = arrays
    grown = np.maximum(outputs - 2.0, 0.0)
    rows = np.tile(np.arange(len(grown)) if len(placements) > 1 else np.zeros(len(grown), dtype=int), len(PLACES))
    work = Work(
        decodes=np.tile(sequences, len(PLACES)),
        decode_past=np.concatenate([inputs + place * grown for place in PLACES]),
        decode_tokens=tokens_per_step,
    )
    found = step_time(job, placements[rows], work)
    return found.at(_mean)


def _mean(values: Array) -> Array:
    """The weighted mean over the places."""
    return np.asarray(np.array(WEIGHTS) @ values.reshape(len(PLACES), -1))


def static_batch(
    job: ServingJob, placements: ReplicaLayouts, batch: ArrayLike, inputs: ArrayLike, outputs: ArrayLike,
    capacity: ArrayLike = np.inf, traffic: Traffic | None = None,
) -> StaticBatch:  # fmt: skip
    """Latencies of a batch that starts together.

        ttft = prefill + waves before x request of one wave
        request = (prefill + (outputs - 1) x step) x waves

    A pool of `capacity` sequences takes a larger batch in waves, each starting as the one before ends.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    batch : sequences [-]
    inputs, outputs : tokens of a prompt and of an answer [tokens]
    capacity : sequences that run at once [-]
    traffic : prefix hits and speculation; None: neither

    Returns
    -------
    StaticBatch, shape that the sizes and placements broadcast to, seconds [s]

    Source: own derivation; tokens gained by speculation after arXiv:2211.17192.
    """
    batch, outputs = as_array(batch), as_array(outputs)
    together = np.minimum(batch, np.maximum(as_array(capacity), 1.0))
    waves = batch / together
    gained = traffic.tokens_per_step if traffic else 1.0
    past = traffic.inputs - traffic.new_inputs if traffic else 0.0
    prefill, steps = prefill_time(job, placements, together, inputs, past)
    decode = decode_time(job, placements, together, inputs, outputs, traffic.draft_tokens + 1.0 if traffic else 1.0)
    drafts = 1.0 + traffic.draft_tokens * traffic.draft_cost if traffic else 1.0
    step_s = decode.total_s * drafts / gained
    prefill_s = prefill.total_s * steps + job.request_s
    if job.engine.batching.first_token == "decode":
        prefill_s = prefill_s + step_s
    tpot_s = step_s * (outputs > 1.0)
    wave_s = prefill_s + np.maximum(outputs - 1.0, 0.0) * tpot_s
    ttft_s = prefill_s + _waves_before(waves) * wave_s
    return StaticBatch(prefill, decode, ttft_s, tpot_s, wave_s * waves)


def _waves_before(waves: Array) -> Array:
    """Waves that a request of a batch waits for on average [-]: of w waves floor(w) are full, the last is not."""
    full = np.floor(waves)
    return np.asarray((full * (full - 1.0) / 2.0 + (waves - full) * full) / waves)
