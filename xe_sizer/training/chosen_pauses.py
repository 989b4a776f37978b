"""Checkpoints, evaluations and failures of a scenario, with defaults for what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.training.padding import PACKED
from xe_sizer.training.pauses import Pauses
from xe_sizer.units import GIGA

if TYPE_CHECKING:
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.training.workload import Workload

EVALUATED_SHARE = 0.05  # of the data set, chosen: val_set_size of the examples that axolotl ships
MOST_BATCHES = 100  # published: global batches of one evaluation: --eval-iters of Megatron-LM


def pauses_of(provenance: Provenance, work: Workload) -> Pauses:
    """What stops the training of a scenario, as it says, or as is usual."""
    values = provenance.given.values
    train, rate = values.train, values.storage.write_gb_per_s
    evaluated = 0.0
    if train.evaluate_every is not None:
        evaluated = float(provenance.settle("train.evaluate_samples", _evaluated_samples(work)))
    return Pauses(
        checkpoint_every=train.checkpoint_every,
        asynchronous=bool(train.async_checkpoint),
        write_bytes_per_s=None if rate is None else rate * GIGA,
        evaluate_every=train.evaluate_every,
        evaluated_samples=evaluated,
        failures_per_gpu_day=train.failures_per_gpu_day or 0.0,
    )


def _evaluated_samples(work: Workload) -> int:
    """Samples of one evaluation where nobody says: a share of the data set, at most so many global batches."""
    per_sequence = work.seq_len / work.lengths.mean if work.padding == PACKED else 1.0
    most = MOST_BATCHES * work.global_batch * per_sequence
    known = work.known_samples
    return max(round(most if known is None else min(EVALUATED_SHARE * known, most)), 1)
