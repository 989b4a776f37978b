"""Predictions for records of reinforcement learning: iterations, their phases, memory, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.evidence.attempts import first_possible
from xe_sizer.evidence.measured import UNSTATED, measured_oom, measured_peak_bytes
from xe_sizer.evidence.prediction import oom_prediction, prediction_of
from xe_sizer.evidence.scenario_of import scenario_of
from xe_sizer.evidence.training import chosen_of, defaults_of, predicted_peak_bytes
from xe_sizer.frozen import frozen
from xe_sizer.reinforcement.iteration import RATING, REWARD, ROLLOUT, SYNCHRONISATION, TRAINING
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.sizing import size
from xe_sizer.training.memory import at_level
from xe_sizer.training.uncertainty import uncertainty

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import RecordRegistry
    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.scenario_of import Asked
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.scenario.read import Given

PHASES = {
    "rollout_s": ROLLOUT, "logprob_s": RATING, "reward_s": REWARD, "train_s": TRAINING, "sync_s": SYNCHRONISATION,
}  # fmt: skip
"""Phases by the keys of records."""


@frozen
class ReinforcedRecord:
    """A record with its prediction, and what was assumed for it."""

    record: Record
    asked: Asked
    sized: ReinforcementEstimate
    assumed: tuple[str, ...]

    @property
    def guessed(self) -> bool:
        """Whether lengths, batch or the number of GPUs are not in the record, on which its figures turn."""
        return self.asked.guessed or self.record.gpus is None


def reinforce_record(record: Record, registry: RecordRegistry) -> ReinforcedRecord:
    """Size a record by the path of a scenario; a layout that cannot be is given up key by key.

    Raises
    ------
    InputError : why it cannot be sized
    """

    def sized_as(given: Given) -> ReinforcementEstimate:
        return size(resolve(given, registry))

    asked, sized = first_possible(scenario_of(record, registry), sized_as)
    assumed = (*asked.assumed, *defaults_of(sized.resolved), *chosen_of(sized.trainer), *_replicas(sized))
    return ReinforcedRecord(record, asked, sized, assumed)


def _replicas(sized: ReinforcementEstimate) -> Iterator[str]:
    """What the search chose of those that write answers."""
    rollout, given = sized.iteration.rollout, sized.reinforcement.given.values.rollout
    if given.tp is None:
        yield f"answers by {rollout.replicas} replicas of tp {int(rollout.placement.tp[0])}: chosen by the search"
    if given.engine is None:
        yield f"answers by {sized.reinforcement.settings.engine}: default of the stack"


def reinforced_predictions(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Its iteration, its phases, its peak and whether it fits, each where the record measured it."""
    yield from iteration_time(found)
    yield from _phase_times(found)
    yield from _peak_memory(found)
    measured = measured_oom(found.record.measured)
    if measured is not None and found.record.gpus is not None:
        yield oom_prediction(found.record, measured, found.sized.fits, found.assumed, found.guessed)


def iteration_time(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Seconds from one batch of prompts to the next."""
    record, sized = found.record, found.sized
    measured, assumed = record.measured.iteration_s, found.assumed
    if measured is None and record.measured.samples_per_s:
        measured = sized.reinforcement.settings.trained / record.measured.samples_per_s
        assumed = (*assumed, "compared by answers per second")
    if measured is None:
        return
    span = uncertainty(sized.resolved.job, sized.resolved.efficiency, found.guessed).around(sized.step_s)
    range_s = (span.low, span.high)
    yield prediction_of(record, "step_time", measured, sized.step_s, assumed, range_s, guessed=found.guessed)


def _phase_times(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Seconds of each phase that was measured, whether another one hid it or not."""
    predicted = found.sized.iteration.phase_s
    for key, phase in PHASES.items():
        measured = getattr(found.record.measured, key)
        if measured is not None and predicted[phase] > 0:
            groups = (f"phase:{phase}",)
            yield prediction_of(
                found.record, "phase_time", measured, predicted[phase], found.assumed, None, groups, found.guessed
            )


def _peak_memory(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Of the process that trains where PyTorch's allocator says so, of the whole card where a monitor does."""
    measured = measured_peak_bytes(found.record.measured)
    if measured is None:
        return
    conversion, metric = measured
    sized = found.sized
    predicted = sized.peak_bytes
    if metric in ("allocated", "reserved"):
        ledger = at_level(sized.ledger, sized.resolved.job, sized.layouts, "typical")
        predicted = predicted_peak_bytes(ledger, metric) + sized.iteration.beside_bytes[0]
        if sized.iteration.colocated:  # the engine's weights and cache are tensors of the same process
            predicted = max(predicted, sized.iteration.peaks[ROLLOUT])
    assumed = (*found.assumed, *([conversion.assumed] if conversion.assumed else []))
    groups = (f"metric:{found.record.measured.memory_metric or UNSTATED}",)
    yield prediction_of(found.record, "peak_memory", conversion.value, predicted, assumed, None, groups, found.guessed)
