"""Predictions for measurement records, compared with what was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.flags import RecordRegistry
from xe_sizer.evidence.inference import ServedRecord, rates, serve_record, served_predictions
from xe_sizer.evidence.prediction import reason_of
from xe_sizer.evidence.reinforcement import ReinforcedRecord, iteration_time, reinforce_record, reinforced_predictions
from xe_sizer.evidence.reinforcement_of import reinforces
from xe_sizer.evidence.statistics import summaries
from xe_sizer.evidence.training import PredictedRecord, predict_record, predictions, step_time
from xe_sizer.result.accuracy import QUANTITIES, Accuracy, Skipped

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.result.accuracy import Prediction

Found = PredictedRecord | ServedRecord | ReinforcedRecord
"""A record with its prediction."""


def validate(records: Iterable[Record], quantities: Collection[str] = QUANTITIES, stack: str | None = None) -> Accuracy:
    """Predict the quantities of every record and summarise; what cannot be predicted is listed with its reason.

    stack : name or file of the stack that runs of training are predicted with; None: the one that each names
    """
    found: list[Prediction] = []
    skipped: list[Skipped] = []
    for sized in predict_records(records, stack):
        if isinstance(sized, Skipped):
            skipped.append(sized)
            continue
        of_record = list(predictions_of(sized))
        found += [prediction for prediction in of_record if prediction.quantity in quantities]
        if not of_record:
            skipped.append(Skipped(id=sized.record.id, reason="nothing measured that can be predicted"))
    return Accuracy(records=tuple(found), skipped=tuple(skipped), summary=summaries(found))


def predictions_of(found: Found) -> Iterator[Prediction]:
    """Everything that a record measured, beside what is predicted for it."""
    if isinstance(found, PredictedRecord):
        return predictions(found)
    return served_predictions(found) if isinstance(found, ServedRecord) else reinforced_predictions(found)


def answered(records: Iterable[Record]) -> Iterator[tuple[ServedRecord, Prediction]]:
    """Records of inference that have an answer, with the prediction of each latency and rate."""
    for found in predict_records(records):
        if isinstance(found, ServedRecord):
            yield from ((found, prediction) for prediction in rates(found))


def timed(records: Iterable[Record]) -> Iterator[tuple[PredictedRecord | ReinforcedRecord, Prediction]]:
    """Records that have a prediction and a time of a step or an iteration, with the prediction of that time."""
    for found in predict_records(records):
        if isinstance(found, PredictedRecord):
            yield from ((found, prediction) for prediction in step_time(found))
        elif isinstance(found, ReinforcedRecord):
            yield from ((found, prediction) for prediction in iteration_time(found))


def predict_records(records: Iterable[Record], stack: str | None = None) -> Iterator[Found | Skipped]:
    """Every record with its prediction, or the reason why it has none. stack : as in `validate`"""
    registry = RecordRegistry()
    for record in records:
        try:
            yield _predicted(record, registry, stack)
        except InputError as error:
            yield Skipped(id=record.id, reason=reason_of(error))


def _predicted(record: Record, registry: RecordRegistry, stack: str | None) -> Found:
    """The record with its prediction, by what it does. Raises InputError for one that cannot be sized."""
    if stack is not None and (record.serves or reinforces(record)):
        raise InputError(Problem("no run of training, whose stack --stack is"))
    if record.serves:
        return serve_record(record, registry)
    return reinforce_record(record, registry) if reinforces(record) else predict_record(record, registry, stack)
