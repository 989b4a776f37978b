"""Predictions for records of training: each is sized as a user's scenario would be, then compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.evidence.attempts import first_possible
from xe_sizer.evidence.fixed_efficiency import seconds_at_peak
from xe_sizer.evidence.measured import UNSTATED, Step, measured_oom, measured_peak_bytes, measured_step_s
from xe_sizer.evidence.prediction import oom_prediction, prediction_of
from xe_sizer.evidence.scenario_of import scenario_of
from xe_sizer.frozen import frozen
from xe_sizer.training.layout import WORDS
from xe_sizer.training.memory import at_level
from xe_sizer.training.methods import METHODS
from xe_sizer.training.padding import PACKED
from xe_sizer.training.resolve import resolve
from xe_sizer.training.sizing import size
from xe_sizer.training.uncertainty import uncertainty

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import RecordRegistry
    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.scenario_of import Asked
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.resolved import ResolvedTraining

REPORTED_DEFAULTS = (
    "precision", "train.padding", "optimizer", "attention", "lora.rank", "lora.targets", "rollout.partial",
)  # fmt: skip


@frozen
class PredictedRecord:
    """A record with its prediction and what was assumed for it.

    judged : what the verdict on its memory is of: the prediction, or that with the recomputation that takes least
    """

    record: Record
    asked: Asked
    sized: TrainingEstimate
    judged: TrainingEstimate
    assumed: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.judged.fits

    @property
    def guessed(self) -> bool:
        """Whether lengths, batch or the number of GPUs are not in the record, on which its figures turn."""
        return self.asked.guessed or self.sized.resolved.gpus is None

    @property
    def memory_guessed(self) -> bool:
        """The same of its memory, which turns on the micro-batch too."""
        return self.guessed or "micro_batch" not in self.sized.resolved.fixed


def predict_record(record: Record, registry: RecordRegistry, stack: str | None = None) -> PredictedRecord:
    """Size a record by the path of a scenario; a layout that cannot be is given up key by key.

    stack : name or file of the stack that it is sized with; None: the one that it names

    Raises
    ------
    InputError : why it cannot be sized
    """

    def sized_as(given: Given) -> TrainingEstimate:
        return size(resolve(given, registry))

    asked = scenario_of(record, registry)
    if stack is not None:
        asked = replace(asked, flags={**asked.flags, "stack": stack})
    asked, sized = first_possible(asked, sized_as)
    judged = _recomputed(sized.resolved) if asked.tuned and not sized.fits else sized
    assumed = (*asked.assumed, *defaults_of(sized.resolved), *chosen_of(sized))
    return PredictedRecord(record, asked, sized, judged, assumed)


def _recomputed(resolved: ResolvedTraining) -> TrainingEstimate:
    """A run whose recipe recomputes what it must, with whatever recomputation it fits with.

    Its time stays that of the usual setting: recipes recompute single modules, which takes little, where the search
    has only whole layers.
    """
    return size(replace(resolved, fixed={name: value for name, value in resolved.fixed.items() if name != "recompute"}))


def defaults_of(resolved: ResolvedTraining) -> Iterator[str]:
    """Settings that nobody stated and that the stack settled."""
    for key in REPORTED_DEFAULTS:
        if resolved.origin.get(key) in ("stack", "default"):
            value: Any = resolved.values[key]
            text = ", ".join(value) if isinstance(value, tuple | list) else value
            if isinstance(value, bool):
                text = "on" if value else "off"
            yield f"{key} {text}: default of the stack"


def chosen_of(sized: TrainingEstimate) -> Iterator[str]:
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


def predictions(found: PredictedRecord) -> Iterator[Prediction]:
    """Its time, its peak and whether it fits, each where the record measured it."""
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
    tokens, packed = job.method.sequences_per_sample * float(per_sequence[0]), job.padding == PACKED
    step = Step(
        samples=job.global_batch,
        micro_batches=int(layouts.grad_accum[0]),
        tokens=float(job.seq_len) if packed else tokens,
        gpus=sized.gpus,
        lengths_stated=stated is not None,
    )
    measured = measured_step_s(record, step, found.asked.counts_micro_batches)
    if measured is None:
        return
    span = uncertainty(job, sized.resolved.efficiency, found.guessed).around(sized.step_s)
    assumed = (*found.assumed, *([measured.assumed] if measured.assumed else []))
    processed = job.seq_len if packed else job.method.sequences_per_sample * float(lengths.mean_tokens[0])
    yield prediction_of(
        record,
        "step_time",
        measured.value,
        sized.step_s,
        assumed,
        (span.low, span.high),
        guessed=found.guessed,
        at_peak_s=seconds_at_peak(job, sized.gpus, processed),
    )


def _peak_memory(found: PredictedRecord) -> Iterator[Prediction]:
    measured = measured_peak_bytes(found.record.measured)
    if measured is None:
        return
    conversion, metric = measured
    assumed = (*found.assumed, *([conversion.assumed] if conversion.assumed else []))
    # The verdict is cautious; what a run shows is what such runs typically use.
    ledger = at_level(found.sized.ledger, found.sized.resolved.job, found.sized.layouts, "typical")
    predicted = predicted_peak_bytes(ledger, metric)
    stated = found.record.measured.memory_metric or UNSTATED
    groups, guessed = (f"metric:{stated}",), found.memory_guessed
    yield prediction_of(found.record, "peak_memory", conversion.value, predicted, assumed, None, groups, guessed)


def predicted_peak_bytes(ledger: Ledger, metric: str) -> float:
    """Peak of the ledger's first layout in a metric [bytes].

    allocated: live tensors; reserved: what the caching allocator holds, without context and NCCL; nvidia-smi: all;
    unstated: the whole card without the blocks that are cached, which lies between the others.
    """
    if metric == "allocated":
        return float(ledger.tensor_peak_bytes[0])
    if metric == "reserved":
        return float(ledger.reserved_peak_bytes[0])
    if metric == UNSTATED:
        return float(ledger.peak_bytes[0])
    return float(ledger.monitored_peak_bytes[0])


def _oom(found: PredictedRecord) -> Iterator[Prediction]:
    measured = measured_oom(found.record.measured)
    if measured is None or found.sized.resolved.gpus is None:
        return
    one = oom_prediction(found.record, measured, found.fits, found.assumed, found.memory_guessed)
    yield msgspec.structs.replace(one, fit_probability=found.judged.probability_to_fit(found.memory_guessed))
