"""Predictions for measurement records: each record is sized as a user's scenario would be, then compared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from xe_sizer.errors import InputError
from xe_sizer.evidence.inference import ServedRecord, figures, peak, serve_record
from xe_sizer.evidence.measured import (
    Step,
    measured_oom,
    measured_peak_bytes,
    measured_step_s,
)
from xe_sizer.evidence.records import Record
from xe_sizer.evidence.scenario_of import Asked, RecordRegistry, scenario_of
from xe_sizer.evidence.statistics import summaries
from xe_sizer.frozen import frozen
from xe_sizer.result.accuracy import QUANTITIES, Accuracy, Prediction, Skipped
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.uncertainty import span as serving_span
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.layout import WORDS
from xe_sizer.training.memory import Ledger, at_level
from xe_sizer.training.methods import METHODS
from xe_sizer.training.resolve import resolve
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.sizing import size
from xe_sizer.training.uncertainty import uncertainty

# What is given up, in this order, where a record's layout is none that its stack could run.
GIVE_UP = (
    "layout.schedule", "layout.vpp", "layout.sequence_parallel", "layout.offload", "layout.ep", "layout.zero",
    "layout.dp", "train.micro_batch", "layout.cp", "layout.pp", "layout.tp",
)  # fmt: skip
NEVER_GIVEN_UP = ("model", "server", "gpus", "stack", "job", "train.global_batch")
KEY_OF_FLAG = {f"--{option}": key for option, key in OPTIONS.items()}
REPORTED_DEFAULTS = ("precision", "train.padding", "optimizer", "attention", "lora.rank", "lora.targets")


@frozen
class PredictedRecord:
    """A record with its prediction, whether it fits, and what was assumed for it."""

    record: Record
    asked: Asked
    sized: TrainingEstimate
    fits: bool
    assumed: tuple[str, ...]


def validate(records: Iterable[Record], quantities: Collection[str] = QUANTITIES) -> Accuracy:
    """Predict the quantities of every record and summarise; what cannot be predicted is listed with its reason."""
    predictions: list[Prediction] = []
    skipped: list[Skipped] = []
    for sized in predict_records(records):
        if isinstance(sized, Skipped):
            skipped.append(sized)
            continue
        found = list(_predictions(sized) if isinstance(sized, PredictedRecord) else _served(sized))
        predictions += [prediction for prediction in found if prediction.quantity in quantities]
        if not found:
            skipped.append(Skipped(id=sized.record.id, reason="nothing measured that can be predicted"))
    return Accuracy(records=tuple(predictions), skipped=tuple(skipped), summary=summaries(predictions))


def answered(records: Iterable[Record]) -> Iterator[tuple[ServedRecord, Prediction]]:
    """Records of inference that have an answer, with the prediction of each latency and rate."""
    for found in predict_records(records):
        if isinstance(found, ServedRecord):
            yield from ((found, prediction) for prediction in _rates(found))


def timed(records: Iterable[Record]) -> Iterator[tuple[PredictedRecord, Prediction]]:
    """Records that have a prediction and a time, with the prediction of that time."""
    for found in predict_records(records):
        if isinstance(found, PredictedRecord):
            yield from ((found, prediction) for prediction in step_time(found))


def predict_records(records: Iterable[Record]) -> Iterator[PredictedRecord | ServedRecord | Skipped]:
    """Every record with its prediction, or the reason why it has none."""
    registry = RecordRegistry()
    for record in records:
        try:
            yield serve_record(record, registry) if record.serves else predict_record(record, registry)
        except InputError as error:
            yield Skipped(id=record.id, reason=_reason(error))


def predict_record(record: Record, registry: RecordRegistry) -> PredictedRecord:
    """Size a record by the path of a scenario; a layout that cannot be is given up key by key.

    Raises
    ------
    InputError : why it cannot be sized
    """
    asked = scenario_of(record, registry)
    for _ in range(len(asked.flags)):
        try:
            resolved = resolve(read_scenario(None, asked.flags, {}), registry)
            sized = size(resolved)
        except InputError as error:
            asked = _without_the_impossible(asked, error)
            continue
        fits = sized.fits
        if asked.tuned and not fits:
            fits = _fits_recomputed(resolved)
        assumed = (*asked.assumed, *_defaults(resolved), *_chosen(sized))
        return PredictedRecord(record, asked, sized, fits, assumed)
    raise AssertionError("a scenario lost all its keys and still could not be priced")


def _fits_recomputed(resolved: ResolvedTraining) -> bool:
    """Whether a run whose recipe recomputes what it must fits with any recomputation.

    Its time stays that of the usual setting: recipes recompute single modules, which takes little, where the search
    has only whole layers.
    """
    left = replace(resolved, fixed={name: value for name, value in resolved.fixed.items() if name != "recompute"})
    return size(left).fits


def _without_the_impossible(asked: Asked, error: InputError) -> Asked:
    """The scenario without the key that the error points at, or without the next that may be given up.

    Raises the error again where nothing is left to give up.
    """
    named = [KEY_OF_FLAG.get(problem.location.name) if problem.location else None for problem in error.problems]
    keys = [key for key in named if key and key in asked.flags and key not in NEVER_GIVEN_UP]
    key = next(iter(keys), None) or next((key for key in GIVE_UP if key in asked.flags), None)
    if key is None:
        raise error
    left = {name: value for name, value in asked.flags.items() if name != key}
    text = f"{key} {asked.flags[key]} is not possible here and left open: {_reason(error)}"
    return replace(asked, flags=left, assumed=(*asked.assumed, text))


def _reason(error: InputError) -> str:
    return re.sub(r"\s+", " ", "; ".join(problem.message for problem in error.problems)) or "cannot be priced"


def _defaults(resolved: ResolvedTraining) -> Iterator[str]:
    """Settings that nobody stated and that the stack settled."""
    for key in REPORTED_DEFAULTS:
        if resolved.origin.get(key) in ("stack", "default"):
            value: Any = resolved.values[key]
            text = ", ".join(value) if isinstance(value, tuple | list) else value
            yield f"{key} {text}: default of the stack"


def _chosen(sized: TrainingEstimate) -> Iterator[str]:
    """Parts of the layout that the search chose."""
    fixed, layouts = sized.resolved.fixed, sized.layouts
    names = ["micro_batch", "recompute"] if sized.gpus == 1 else ["tp", "pp", "cp", "zero", "micro_batch", "recompute"]
    if sized.resolved.job.model.experts and sized.gpus > 1:
        names.append("ep")
    sizes = []
    for name in names:
        if name not in fixed:
            value = int(getattr(layouts, name)[0])
            sizes.append(f"{name} {WORDS[name][value] if name in WORDS else value}")
    if sizes:
        yield f"chosen by the search: {', '.join(sizes)}"
    if sized.resolved.gpus is None:
        yield f"{sized.gpus} GPUs, the fewest that fit: number not stated"


def _predictions(found: PredictedRecord) -> Iterator[Prediction]:
    yield from step_time(found)
    yield from _peak_memory(found)
    yield from _oom(found)


def _makes_a_model(record: Record) -> bool:
    """Whether the record names a job that starts from no trained model."""
    return record.job in METHODS and not METHODS[record.job].fine_tunes


def step_time(found: PredictedRecord) -> Iterator[Prediction]:
    """The record's time beside the predicted one, where it measured one."""
    record, sized = found.record, found.sized
    job, layouts = sized.resolved.job, sized.layouts
    stated = record.mean_tokens or record.seq_len or (record.max_seq_len if _makes_a_model(record) else None)
    lengths = job.sequences(layouts)
    # Trainers count what they process; with lengths stated, rates are of real tokens.
    per_sequence = lengths.mean_tokens if stated is None else lengths.real_tokens
    tokens = job.method.sequences_per_sample * float(per_sequence[0])
    step = Step(
        samples=job.global_batch,
        micro_batches=int(layouts.grad_accum[0]),
        tokens=float(job.seq_len) if job.padding == "packed" else tokens,
        gpus=sized.gpus,
        lengths_stated=stated is not None,
    )
    measured = measured_step_s(record, step, found.asked.counts_micro_batches)
    if measured is None:
        return
    span = uncertainty(job, sized.resolved.efficiency, found.asked.guessed).around(sized.step_s)
    assumed = (*found.assumed, *([measured.assumed] if measured.assumed else []))
    yield _prediction(record, "step_time", measured.value, sized.step_s, assumed, (span.low, span.high))


def _peak_memory(found: PredictedRecord) -> Iterator[Prediction]:
    measured = measured_peak_bytes(found.record.measured)
    if measured is None:
        return
    conversion, metric = measured
    assumed = (*found.assumed, *([conversion.assumed] if conversion.assumed else []))
    # The verdict is cautious; what a run shows is what such runs typically use.
    ledger = at_level(found.sized.ledger, found.sized.resolved.job, found.sized.layouts, "typical")
    predicted = predicted_peak_bytes(ledger, metric)
    stated = found.record.measured.memory_metric or "unstated"
    yield _prediction(found.record, "peak_memory", conversion.value, predicted, assumed, None, (f"metric:{stated}",))


def predicted_peak_bytes(ledger: Ledger, metric: str) -> float:
    """Peak of the ledger's first layout in a metric [bytes].

    allocated: live tensors; reserved: what the caching allocator holds, without context and NCCL; nvidia-smi: all.
    """
    if metric == "allocated":
        return float(ledger.tensor_peak_bytes[0])
    if metric == "reserved":
        return float(ledger.reserved_peak_bytes[0])
    return float(ledger.peak_bytes[0])


def _oom(found: PredictedRecord) -> Iterator[Prediction]:
    measured = measured_oom(found.record.measured)
    if measured is None or found.sized.resolved.gpus is None:
        return
    yield Prediction(
        id=found.record.id,
        quantity="oom",
        measured=measured,
        predicted=not found.fits,
        assumed=found.assumed,
        groups=_groups(found.record),
    )


def _served(found: ServedRecord) -> Iterator[Prediction]:
    """Latencies, rates, the peak of a batch whose cache grows, and whether it fits."""
    yield from _rates(found)
    seen = peak(found)
    if seen is not None:
        stated = found.record.measured.memory_metric or "unstated"
        assumed = (*found.assumed, *([seen.note] if seen.note else []))
        groups = (f"metric:{stated}",)
        yield _prediction(found.record, "peak_memory", seen.measured, seen.predicted, assumed, None, groups)
    measured = measured_oom(found.record.measured)
    if measured is not None:
        yield Prediction(
            id=found.record.id,
            quantity="oom",
            measured=measured,
            predicted=not found.served.fits,
            assumed=found.assumed,
            groups=_groups(found.record),
        )


def _rates(found: ServedRecord) -> Iterator[Prediction]:
    for figure in figures(found):
        span = serving_span(found.served.resolved, figure.quantity, found.guessed)
        ends = (figure.predicted * span.low, figure.predicted * span.high)
        assumed = (*found.assumed, *([figure.note] if figure.note else []))
        yield _prediction(found.record, figure.quantity, figure.measured, figure.predicted, assumed, ends)


def _prediction(
    record: Record, quantity: str, measured: float, predicted: float, assumed: tuple[str, ...],
    span: tuple[float, float] | None, groups: tuple[str, ...] = (),
) -> Prediction:  # fmt: skip
    low, high = span or (None, None)
    return Prediction(
        id=record.id,
        quantity=quantity,
        measured=measured,
        predicted=predicted,
        ratio=predicted / measured,
        low=low,
        high=high,
        assumed=assumed,
        groups=(*_groups(record), *groups),
    )


def _groups(record: Record) -> tuple[str, ...]:
    return (
        f"stack:{record.stack or 'unstated'}",
        f"job:{record.job}",
        f"gpu:{record.gpu or 'unstated'}",
        f"source:{record.title}",
    )
