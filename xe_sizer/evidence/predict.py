"""Predictions of measured runs: each record priced as a user would ask for it, beside what was measured."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.names import RecordRegistry, plain
from xe_sizer.evidence.records import UNSTATED, Step, measured_oom, measured_peak_bytes, measured_step_s
from xe_sizer.evidence.serving_scenario import (
    REQUESTS_ASSUMED,
    build_inference,
    other_requests,
    stands_in,
)
from xe_sizer.evidence.statistics import summaries
from xe_sizer.evidence.training_scenario import build_scenario, counted_in_devices, reinforces
from xe_sizer.graph.weights import count_parameters
from xe_sizer.immutable import Immutable
from xe_sizer.reinforcement.iteration import RATING, REWARD, ROLLOUT, SYNCHRONISATION, TRAINING
from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
from xe_sizer.reinforcement.search import size as size_reinforcement
from xe_sizer.result.accuracy import QUANTITIES, Accuracy, Prediction, Skipped
from xe_sizer.result.common import memory_word
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.job import HIGHEST_LOAD
from xe_sizer.serving.memory import static_peak
from xe_sizer.serving.resolve import BENCHMARK
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.serving.search import size
from xe_sizer.serving.uncertainty import Tested, span
from xe_sizer.serving.uncertainty import conditions as of_service
from xe_sizer.software.release import split_release
from xe_sizer.training.layout import WORDS
from xe_sizer.training.memory import at_level
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import TASK
from xe_sizer.training.padding import PACKED
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.search import size as size_training
from xe_sizer.training.uncertainty import conditions as of_training
from xe_sizer.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.training_scenario import Asked
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.job import Job
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.resolved import ResolvedTraining

# The yardstick, without a model of software: FLOPs at the peak of the GPUs, for a fixed share of it.

# Counted: two FLOPs a weight and token for forward, input gradient and weight gradient; a frozen base lacks the last.
PASSES, FROZEN_PASSES = 6, 4


def seconds_at_peak(job: Job, gpus: int, tokens_per_sequence: float) -> float:
    """Time of a step if every GPU computed at its peak and nothing but the weights' products.

        t = 6 N T / (peak GPUs)    4 N T where the base is frozen

    Parameters
    ----------
    job : a resolved job; N are its active parameters, T the tokens of its global batch
    gpus : number of GPUs [-]
    tokens_per_sequence : processed tokens of an average sequence [-]

    Returns
    -------
    float [s]

    Source: Kaplan et al. (arXiv:2001.08361, section 2.1); without the gradient of weights that are frozen.
    """
    passes = PASSES if job.method.learning.base else FROZEN_PASSES
    tokens = job.global_batch * tokens_per_sequence
    return passes * count_parameters(job.model).active * tokens / (job.device.peak_flops_per_s * gpus)


# One prediction beside what was measured, as validation reports it.


def build_prediction(
    record: Record, quantity: str, measured: float, predicted: float, assumed: tuple[str, ...],
    span: tuple[float, float] | None, groups: tuple[str, ...] = (), guessed: bool = False,
    at_peak_s: float | None = None,
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
        groups=(*groups_of(record), *groups),
        guessed=guessed,
        at_peak_s=at_peak_s,
    )


def groups_of(record: Record) -> tuple[str, ...]:
    return (
        f"stack:{record.stack or 'unstated'}",
        f"job:{record.job}",
        f"gpu:{record.gpu or 'unstated'}",
        f"source:{record.title}",
    )


def stratum_of(conditions: tuple[str, ...]) -> tuple[str]:
    """The group of predictions whose ranges rest on the same runs."""
    return (f"stratum:{', '.join(conditions)}",)


def oom_prediction(
    record: Record, measured: bool, fits: bool, probability: float | None, assumed: tuple[str, ...], guessed: bool
) -> Prediction:
    """Whether a run goes out of memory, and how likely that is, beside whether it did."""
    return Prediction(
        id=record.id,
        quantity="oom",
        measured=measured,
        predicted=not fits,
        assumed=assumed,
        groups=groups_of(record),
        guessed=guessed,
        fit_probability=probability,
        memory=memory_word(probability, fits),
    )


def reason_of(error: InputError) -> str:
    return re.sub(r"\s+", " ", "; ".join(problem.message for problem in error.problems)) or "cannot be predicted"


# Attempts: the scenario as it is, and where it cannot be, with less and less of its layout.

T = TypeVar("T")
# What is given up, in this order, where a record's layout is none that its stack could run.
GIVE_UP = (
    "layout.schedule", "layout.vpp", "layout.sequence_parallel", "layout.offload", "layout.ep", "layout.zero",
    "layout.dp", "train.micro_batch", "rollout.tp", "rollout.engine", "rollout.asynchronous", "layout.cp", "layout.pp",
    "layout.tp",
)  # fmt: skip
GUESSED_WITHOUT = ("optimizer", "lora.targets", TASK)
"""Keys whose place another value takes where they are given up, so that the run counts as a guess."""
NEVER_GIVEN_UP = ("model", "server", "gpus", "stack", "job", "train.global_batch")
KEY_OF_FLAG = {f"--{option}": key for option, key in OPTIONS.items()}


def first_possible(asked: Asked, attempt: Callable[[Scenario], T]) -> tuple[Asked, T]:
    """What an attempt makes of the scenario; keys that it refuses are given up one after the other.

    Raises
    ------
    InputError : why it cannot be, with nothing left to give up
    """
    for _ in range(len(asked.flags)):
        try:
            return asked, attempt(read_scenario(None, asked.flags, {}))
        except InputError as error:
            asked = _without_the_impossible(asked, error)
    raise AssertionError("a scenario lost all its keys and still could not be predicted")


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
    text = f"{key} {asked.flags[key]} is not possible here and left open: {reason_of(error)}"
    return replace(asked, flags=left, assumed=(*asked.assumed, text), guessed=asked.guessed or key in GUESSED_WITHOUT)


# Inference: latencies, throughput, memory and verdicts.

MEDIANS, MIDDLE = ("median", "p50"), 50.0
REQUESTS_GUESSED = re.compile(r"\brequests\b.*not stated$|^more requests come")
STAND_IN = 2.0
"""Assumed: so much wider, at both ends, is the range of an engine that nothing here describes."""


class ServedRecord(Immutable):
    """A record with the answer for it and what was assumed; `guessed`: lengths that the record leaves out."""

    record: Record
    served: ServingEstimate
    assumed: tuple[str, ...]
    guessed: bool

    @property
    def tested(self) -> Tested:
        """What is known of its test."""
        point = self.served.point
        return Tested(
            lengths=not self.guessed,
            requests=not any(REQUESTS_GUESSED.search(text) for text in self.assumed),
            release=not any("no release stated" in text for text in self.assumed),
            saturated=self.served.overloaded or point.in_flight > self.served.choice.places,
            forwards=self.record.measured.forward_ms is not None,
        )

    def predicted(self, quantity: str, expected: float) -> tuple[float, float]:
        """The least and the most that the tests which it may have been are predicted to show."""
        others = [figure.predicted for other in self.others for figure in figures(other) if figure.quantity == quantity]
        return min([expected, *others]), max([expected, *others])

    @cached_property
    def others(self) -> tuple[ServedRecord, ...]:
        """The same with other numbers of requests that its test may have had too."""
        resolved = self.served.resolved
        sizes = (size(replace(resolved, requests=requests)) for requests in other_requests(self.record))
        return tuple(replace(self, served=served) for served in sizes)


class Figure(Immutable, eq=True):
    """One quantity of a record: measured and predicted in the same unit."""

    quantity: Literal["ttft", "tpot", "encoding", "throughput"]
    measured: float
    predicted: float
    note: str | None = None


def serve_record(
    record: Record, registry: RecordRegistry, engines: Mapping[str, str] = MappingProxyType({})
) -> ServedRecord:
    """Answer a record by the path of a scenario.

    engines : engine -> name or path of the one that is to take its place

    Raises
    ------
    InputError : why it cannot be answered
    """
    flags = build_inference(record, registry)
    flags.values["serve.engine"] = engines.get(
        split_release(flags.values["serve.engine"])[0], flags.values["serve.engine"]
    )
    resolved = resolve_serving(read_scenario(None, flags.values, {}), registry, BENCHMARK)
    alone = _forward_alone if record.measured.forward_ms else _replaying
    resolved = replace(resolved, job=alone(resolved.job))
    lengthless = any(text.endswith("not stated") and "tokens" in text for text in flags.assumed)
    # Latencies are measured under a load; rates alone are of a full replica.
    load_stated = record.sequences or record.concurrency or record.request_rate or record.requests
    drafts_open = bool(record.draft_tokens) and record.acceptance_rate is None
    guessed = lengthless or drafts_open
    guessed = guessed or (bool(record.measured.ttft_ms or record.measured.tpot_ms) and not load_stated)
    served, assumed = size(resolved), [*flags.assumed, *_defaults(resolved)]
    if record.request_rate and not record.requests and _comes_too_fast(served):
        served = size(replace(resolved, requests=None))
        assumed.remove(REQUESTS_ASSUMED)
        assumed.append("more requests come than are answered, and how many is not stated: rate of a full replica")
    return ServedRecord(record, served, tuple(assumed), guessed)


ALL_SEQUENCES = 1 << 20


def _replaying(job: ServingJob) -> ServingJob:
    """The engine with graphs for as many sequences as run, where it has any: benchmarks are launched so.

    Source: InferenceMAX (--cuda-graph-max-bs $CONC), NVIDIA's aiconfigurator (cuda_graph_batch_sizes in
    generator/rule_plugin/benchmark), trtllm-bench (cuda_graph_config).
    """
    host = job.engine.host
    host = replace(host, graphs=(ALL_SEQUENCES,) if host.graphs else ())
    return replace(job, engine=replace(job.engine, host=host))


def _forward_alone(job: ServingJob) -> ServingJob:
    """The engine as a script calls it: one batch of any size, which nothing tokenises or sends."""
    host = replace(job.engine.host, step_ms=0.0, sequence_us=0.0, request_ms=0.0)
    batching = replace(job.engine.batching, max_sequences=ALL_SEQUENCES, max_step_tokens=ALL_SEQUENCES)
    return replace(job, engine=replace(job.engine, host=host, batching=batching))


def _comes_too_fast(served: ServingEstimate) -> bool:
    """Whether requests come at a rate that the replicas cannot answer, so that waits last as long as the test does."""
    return (
        served.resolved.requests is not None
        and served.resolved.amount >= HIGHEST_LOAD * served.choice.full_rate * served.working_replicas
    )


def _defaults(resolved: ResolvedService) -> Iterator[str]:
    if resolved.load is None:
        yield "as many requests as a replica takes: no load stated"
    if resolved.job.answers and resolved.origins.get("serve.kv_cache") == "default":
        yield f"KV cache {resolved.job.scheme.cache.name}: not stated"


def figures(found: ServedRecord) -> Iterator[Figure]:
    """Every latency and rate that the record measured beside the predicted one; times in seconds, tokens per second.

    Latencies that have no end, of requests that come faster than they are answered, are left out.
    """
    if found.record.encodes:
        yield from _encoding(found)
        return
    measured, served = found.record.measured, found.served
    first_ms = measured.ttft_ms or measured.prefill_ms
    step_ms = measured.tpot_ms or measured.tpot_ms_p50
    # Latencies of a full replica depend on how many requests wait.
    bounded = served.resolved.load is not None or served.resolved.requests is not None
    if bounded:
        ttft_s, tpot_s = _latencies_s(found)
        if first_ms and math.isfinite(ttft_s):
            yield Figure("ttft", first_ms * MILLI, ttft_s)
        if step_ms and math.isfinite(tpot_s):
            yield Figure("tpot", step_ms * MILLI, tpot_s)
    first = next((one for one in _throughputs(found) if one.measured > 0), None)
    if first:
        yield first


def _encoding(found: ServedRecord) -> Iterator[Figure]:
    """What a request without answers takes: itself, or the time to the next one under the load measured [s]."""
    measured, point, traffic = found.record.measured, found.served.point, found.served.resolved.traffic
    alone_s = measured.forward_ms * MILLI if measured.forward_ms else measured.request_latency_s
    if alone_s and math.isfinite(point.request_s):
        yield Figure("encoding", alone_s, point.request_s)
    rate = measured.requests_per_s or (measured.total_tokens_per_s or 0.0) / traffic.request_inputs
    if rate and not alone_s:
        yield Figure("encoding", 1.0 / rate, 1.0 / found.served.taken_per_s, "time to the next request: a rate")


def _latencies_s(found: ServedRecord) -> tuple[float, float]:
    """Time to the first token and per token, in the statistic that the record says; else means [s].

    A script that gives an engine a batch gets it back when all are done: then its first token is that of the last. One
    that prints percentiles watches every request.
    """
    record, point, test = found.record, found.served.point, found.served.choice.test
    measured, statistic = record.measured, plain(record.statistic or "")
    if test is None:
        middle = point.percentiles.get(MIDDLE, (point.ttft_s, point.tpot_s))
        return (middle[0], middle[1]) if statistic in MEDIANS else (point.ttft_s, point.tpot_s)
    answers_s = test.tpot_s[test.outputs > 1.0] if np.any(test.outputs > 1.0) else test.tpot_s
    if statistic in MEDIANS:
        return float(np.median(test.ttft_s)), float(np.median(answers_s))
    if measured.tpot_ms_p50 and not measured.tpot_ms:
        return point.ttft_s, float(np.median(answers_s))
    together = record.sequences and not (record.concurrency or record.request_rate or statistic)
    return float(test.ttft_s.max()) if together else point.ttft_s, point.tpot_s


def _throughputs(found: ServedRecord) -> Iterator[Figure]:
    """What the record may count, the most telling first, zero where it does not; per second of all replicas."""
    record, measured, served = found.record, found.record.measured, found.served
    traffic, sequences = served.resolved.traffic, record.sequences or 0
    # What comes faster than it is taken is measured as it is taken; what a prediction lacks memory for did run.
    rate = (served.taken_per_s if served.fits else served.requests_per_s) / (record.beams or 1)
    both = traffic.inputs + traffic.outputs
    output = measured.output_tokens_per_s or (measured.output_tokens_per_s_per_gpu or 0.0) * served.gpus
    if record.output_len is None and sequences:
        decoded = sequences / served.point.tpot_s * served.working_replicas
        yield Figure("throughput", output, decoded, "rate of decoding: lengths not stated")
    yield Figure("throughput", output, rate * traffic.outputs)
    yield Figure("throughput", measured.total_tokens_per_s or 0.0, rate * both)
    yield Figure("throughput", (measured.requests_per_s or 0.0) * both, rate * both)
    if measured.request_latency_s and not measured.ttft_ms:
        tokens, note = sequences * traffic.outputs, "tokens of the batch over its latency"
        yield Figure("throughput", tokens / measured.request_latency_s, tokens / served.point.request_s, note)


class Peak(Immutable, eq=True):
    """Peak memory of one GPU, measured and predicted in the same metric [bytes]."""

    measured: float
    predicted: float
    note: str | None = None


def peak(found: ServedRecord) -> Peak | None:
    """Peak memory of a batch whose cache grows, in the metric of the record [bytes]."""
    measured = measured_peak_bytes(found.record.measured)
    served, resolved = found.served, found.served.resolved
    if measured is None or resolved.load != "batch" or not resolved.job.engine.memory.grows:
        return None
    conversion, metric = measured
    traffic = resolved.traffic
    parts = static_peak(resolved.job, served.placement, resolved.amount, traffic.inputs, traffic.outputs)
    live = float(sum(value[0] for value in parts.values()))
    beside = float(served.memory.beside_tensors[0])
    return Peak(conversion.value, live if metric == "allocated" else live + beside, conversion.assumed)


def served_predictions(found: ServedRecord) -> Iterator[Prediction]:
    """Latencies, rates, the peak of a batch whose cache grows, and whether it fits."""
    yield from rates(found)
    seen = peak(found)
    if seen is not None:
        stated = found.record.measured.memory_metric or "unstated"
        assumed = (*found.assumed, *([seen.note] if seen.note else []))
        groups = (f"metric:{stated}",)
        yield build_prediction(
            found.record, "peak_memory", seen.measured, seen.predicted, assumed, None, groups, found.guessed
        )
    measured = measured_oom(found.record.measured)
    if measured is not None:
        served = found.served
        yield oom_prediction(found.record, measured, served.fits, served.fit_probability, found.assumed, found.guessed)


def rates(found: ServedRecord) -> Iterator[Prediction]:
    """Its latencies and rates, each where the record measured it; the range holds what other tests would have given."""
    resolved, tested = found.served.resolved, found.tested
    stratum = stratum_of(of_service(resolved, tested))
    for figure in figures(found):
        factors = span(resolved, figure.quantity, tested)
        least, most = found.predicted(figure.quantity, figure.predicted)
        wider = STAND_IN if stands_in(found.record) else 1.0
        low = found.served.no_faster(figure.quantity, least * factors.low / wider, figure.predicted)
        ends = (low, most * factors.high * wider)
        assumed = (*found.assumed, *([figure.note] if figure.note else []))
        yield build_prediction(
            found.record, figure.quantity, figure.measured, figure.predicted, assumed, ends, stratum, found.guessed
        )


# Training: each record is sized as a user's scenario would be.

REPORTED_DEFAULTS = (
    "precision", "train.padding", "optimizer", "attention", "lora.rank", "lora.targets", "rollout.partial",
)  # fmt: skip


class PredictedRecord(Immutable):
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

    def where_measured(self, ledger: Ledger) -> Ledger:
        """A ledger of its layout on the stage that its memory was read on."""
        return ledger.on_last_stage if self.record.measured.memory_stage == "last" else ledger


def predict_record(record: Record, registry: RecordRegistry, stack: str | None = None) -> PredictedRecord:
    """Size a record by the path of a scenario; a layout that cannot be is given up key by key.

    stack : name or file of the stack that it is sized with; None: the one that it names

    Raises
    ------
    InputError : why it cannot be sized
    """

    def sized_as(scenario: Scenario) -> TrainingEstimate:
        return size_training(resolve_training(scenario, registry))

    asked = build_scenario(record, registry)
    if stack is not None:
        asked = replace(asked, flags={**asked.flags, "stack": stack})
    asked, sized = first_possible(asked, sized_as)
    judged = _recomputed(sized.resolved) if asked.tuned and not sized.fits else sized
    assumed = (*asked.assumed, *assumed_defaults(sized.resolved), *chosen_settings(sized))
    return PredictedRecord(record, asked, sized, judged, assumed)


def _recomputed(resolved: ResolvedTraining) -> TrainingEstimate:
    """A run whose recipe recomputes what it must, with whatever recomputation it fits with.

    Its time stays that of the usual setting: recipes recompute single modules, which takes little, where the search
    has only whole layers.
    """
    return size_training(
        replace(resolved, fixed={name: value for name, value in resolved.fixed.items() if name != "recompute"})
    )


def assumed_defaults(resolved: ResolvedTraining) -> Iterator[str]:
    """Settings that nobody stated and that the stack settled."""
    for key in REPORTED_DEFAULTS:
        if resolved.origins.get(key) in ("stack", "default"):
            value = attrgetter(key)(resolved.values)
            text = ", ".join(value) if isinstance(value, tuple | list) else value
            if isinstance(value, bool):
                text = "on" if value else "off"
            yield f"{key} {text}: default of the stack"


def chosen_settings(sized: TrainingEstimate) -> Iterator[str]:
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


def step_time(found: PredictedRecord) -> Iterator[Prediction]:
    """The record's time beside the predicted one, where it measured one."""
    record, sized = found.record, found.sized
    job, layouts = sized.resolved.job, sized.layouts
    pre_trains = record.job in METHODS and not METHODS[record.job].fine_tunes
    stated = record.mean_tokens or record.seq_len or (record.max_seq_len if pre_trains else None)
    lengths = sized.choice.sequences
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
    span = sized.uncertain(found.guessed).around(sized.step_s)
    stratum = stratum_of(of_training(job, found.guessed))
    assumed = (*found.assumed, *([measured.assumed] if measured.assumed else []))
    processed = job.seq_len if packed else job.method.sequences_per_sample * float(lengths.mean_tokens[0])
    yield build_prediction(
        record,
        "step_time",
        measured.value,
        sized.step_s,
        assumed,
        (span.low, span.high),
        stratum,
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
    ledger = found.where_measured(at_level(found.sized.ledger, found.sized.choice.evaluation, "typical"))
    predicted = predicted_peak_bytes(ledger, metric)
    stated = found.record.measured.memory_metric or UNSTATED
    groups, guessed = (f"metric:{stated}",), found.memory_guessed
    yield build_prediction(found.record, "peak_memory", conversion.value, predicted, assumed, None, groups, guessed)


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
    guessed = found.memory_guessed
    probability = found.judged.probability_to_fit(guessed)
    yield oom_prediction(found.record, measured, found.fits, probability, found.assumed, guessed)


# Reinforcement learning: iterations, their phases, memory and verdicts.

PHASES = {
    "rollout_s": ROLLOUT, "logprob_s": RATING, "reward_s": REWARD, "train_s": TRAINING, "sync_s": SYNCHRONISATION,
}  # fmt: skip
"""Phases by the keys of records."""


class ReinforcedRecord(Immutable):
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

    def sized_as(scenario: Scenario) -> ReinforcementEstimate:
        return size_reinforcement(resolve_reinforcement(scenario, registry))

    asked, sized = first_possible(build_scenario(record, registry), sized_as)
    assumed = (*asked.assumed, *assumed_defaults(sized.resolved), *chosen_settings(sized.trainer), *_replicas(sized))
    return ReinforcedRecord(record, asked, sized, assumed)


def _replicas(sized: ReinforcementEstimate) -> Iterator[str]:
    """What the search chose of those that write answers."""
    rollout, asked = sized.iteration.rollout, sized.reinforcement.scenario.values.rollout
    if asked.tp is None:
        yield f"answers by {rollout.replicas} replicas of tp {int(rollout.placement.tp[0])}: chosen by the search"
    if asked.engine is None:
        yield f"answers by {sized.reinforcement.settings.engine}: default of the stack"


def reinforced_predictions(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Its iteration, its phases, its peak and whether it fits, each where the record measured it."""
    yield from iteration_time(found)
    yield from _phase_times(found)
    yield from _iteration_peak_memory(found)
    measured = measured_oom(found.record.measured)
    if measured is not None and found.record.gpus is not None:
        sized = found.sized
        yield oom_prediction(
            found.record, measured, sized.fits, sized.probability_to_fit(found.guessed), found.assumed, found.guessed
        )


def iteration_time(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Seconds from one batch of prompts to the next."""
    record, sized = found.record, found.sized
    measured, assumed = record.measured.iteration_s, found.assumed
    if measured is None and record.measured.samples_per_s:
        measured = sized.reinforcement.settings.trained / record.measured.samples_per_s
        assumed = (*assumed, "compared by answers per second")
    if measured is None:
        return
    span = sized.uncertain(found.guessed).around(sized.step_s)
    range_s, stratum = (span.low, span.high), stratum_of(of_training(sized.resolved.job, found.guessed))
    yield build_prediction(record, "step_time", measured, sized.step_s, assumed, range_s, stratum, found.guessed)


def _phase_times(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Seconds of each phase that was measured, whether another one hid it or not."""
    predicted = found.sized.iteration.phase_s
    for key, phase in PHASES.items():
        measured = getattr(found.record.measured, key)
        if measured is not None and predicted[phase] > 0:
            groups = (f"phase:{phase}",)
            yield build_prediction(
                found.record, "phase_time", measured, predicted[phase], found.assumed, None, groups, found.guessed
            )


def _iteration_peak_memory(found: ReinforcedRecord) -> Iterator[Prediction]:
    """Of the process that trains where PyTorch's allocator says so, of the whole card where a monitor does."""
    measured = measured_peak_bytes(found.record.measured)
    if measured is None:
        return
    conversion, metric = measured
    sized = found.sized
    predicted = sized.peak_bytes
    if metric in ("allocated", "reserved"):
        ledger = at_level(sized.ledger, sized.choice.evaluation, "typical")
        predicted = predicted_peak_bytes(ledger, metric) + sized.iteration.beside_bytes[0]
        if sized.iteration.colocated:  # the engine's weights and cache are tensors of the same process
            predicted = max(predicted, sized.iteration.peaks[ROLLOUT])
    assumed = (*found.assumed, *([conversion.assumed] if conversion.assumed else []))
    groups = (f"metric:{found.record.measured.memory_metric or UNSTATED}",)
    yield build_prediction(
        found.record, "peak_memory", conversion.value, predicted, assumed, None, groups, found.guessed
    )


# All records.

Found = PredictedRecord | ServedRecord | ReinforcedRecord
"""A record with its prediction."""


def validate(
    records: Iterable[Record],
    quantities: Collection[str] = QUANTITIES,
    stack: str | None = None,
    profiles: Sequence[Path] = (),
) -> Accuracy:
    """Predict the quantities of every record and summarise; what cannot be predicted is listed with its reason.

    stack : name or file of the stack that runs of training are predicted with; None: the one that each names
    profiles : folders of the user's own, before the catalogue
    """
    found: list[Prediction] = []
    skipped: list[Skipped] = []
    for sized in predict_records(records, stack, profiles):
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


def predict_records(
    records: Iterable[Record], stack: str | None = None, profiles: Sequence[Path] = ()
) -> Iterator[Found | Skipped]:
    """Every record with its prediction, or the reason why it has none. stack, profiles : as in `validate`"""
    registry = RecordRegistry(profiles)
    for record in records:
        try:
            yield _predicted(record, registry, stack)
        except InputError as error:
            yield Skipped(id=record.id, reason=reason_of(error))


def _predicted(record: Record, registry: RecordRegistry, stack: str | None) -> Found:
    """The record with its prediction, by what it does. Raises InputError for one that cannot be sized."""
    record = counted_in_devices(record, registry)
    if stack is not None and (record.serves or reinforces(record)):
        raise InputError(Problem("no run of training, whose stack --stack is"))
    if record.serves:
        return serve_record(record, registry)
    return reinforce_record(record, registry) if reinforces(record) else predict_record(record, registry, stack)
