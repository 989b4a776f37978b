"""Checkpoints, evaluations and failures of a scenario, with defaults for what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.padding import PACKED
from xe_sizer.training.pauses import Pauses
from xe_sizer.units import GIGA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.workload import Workload

EVALUATED_SHARE = 0.05  # of the data set, chosen: val_set_size of the examples that axolotl ships
MOST_BATCHES = 100  # published: global batches of one evaluation: --eval-iters of Megatron-LM


def pauses_of(provenance: Provenance, work: Workload, *, writes: bool) -> Pauses:
    """What stops the training of a scenario, as it says, or as is usual.

    An evaluation of which nobody says how much it reads is left out, and `unsized_evaluation` says so.
    writes : whether the job writes answers, so that its evaluations have prompts of their own
    """
    values = provenance.given.values
    train, rate = values.train, values.storage.write_gb_per_s
    evaluated = train.evaluate_samples if writes else train.evaluate_samples or _evaluated_samples(work)
    every = train.evaluate_every if evaluated else None
    if every is not None:
        evaluated = provenance.settle("train.evaluate_samples", evaluated)
    return Pauses(
        checkpoint_every=train.checkpoint_every,
        asynchronous=bool(train.async_checkpoint),
        write_bytes_per_s=None if rate is None else rate * GIGA,
        evaluate_every=every,
        evaluated_samples=0.0 if every is None else float(evaluated or 0.0),
        failures_per_gpu_day=train.failures_per_gpu_day or 0.0,
    )


def unsized_evaluation(given: Given, pauses: Pauses) -> Iterator[str]:
    """That evaluations are asked for and left out, as nobody says what they read."""
    every = given.values.train.evaluate_every
    if every is not None and pauses.evaluate_every is None:
        adds = given.caller.setting("train.evaluate_samples", 1000)
        yield f"evaluation every {every:,} steps is left out: its number of samples is not known; {adds} adds it"


def _evaluated_samples(work: Workload) -> int | None:
    """Samples of one evaluation where nobody says: a share of the data set, at most so many global batches.

    None where nobody says how much data there is.
    """
    if work.known_samples is None:
        return None
    per_sequence = work.seq_len / work.lengths.mean if work.padding == PACKED else 1.0
    most = MOST_BATCHES * work.global_batch * per_sequence
    return max(round(min(EVALUATED_SHARE * work.known_samples, most)), 1)
