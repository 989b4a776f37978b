"""Predictions for records of inference: latencies, throughput, memory and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np

from xe_sizer.evidence.inference_of import inference_of, stands_in
from xe_sizer.evidence.load_of import REQUESTS_ASSUMED, answers_of, other_requests, prompts_of
from xe_sizer.evidence.measured import measured_oom, measured_peak_bytes
from xe_sizer.evidence.names import plain
from xe_sizer.evidence.prediction import oom_prediction, prediction_of
from xe_sizer.frozen import frozen
from xe_sizer.profiles.inherited import of_release
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.memory import static_peak
from xe_sizer.serving.resolve import BENCHMARK
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.serving.sizing import size
from xe_sizer.serving.traffic import HIGHEST_LOAD
from xe_sizer.serving.uncertainty import span
from xe_sizer.units import MILLI

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import RecordRegistry
    from xe_sizer.evidence.records import Record
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.resolved import ResolvedService

MEDIANS, MIDDLE = ("median", "p50"), 50.0
STAND_IN = 2.0
"""Assumed: so much wider, at both ends, is the range of an engine that nothing here describes."""


@frozen
class ServedRecord:
    """A record with the answer for it and what was assumed; `guessed`: lengths that the record leaves out."""

    record: Record
    served: ServingEstimate
    assumed: tuple[str, ...]
    guessed: bool

    @cached_property
    def others(self) -> tuple[ServedRecord, ...]:
        """The same with other numbers of requests that its test may have had too."""
        resolved = self.served.resolved
        sizes = (size(replace(resolved, requests=requests)) for requests in other_requests(self.record))
        return tuple(replace(self, served=served) for served in sizes)


@frozen(eq=True)
class Figure:
    """One quantity of a record: measured and predicted in the same unit."""

    quantity: Literal["ttft", "tpot", "throughput"]
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
    flags = inference_of(record, registry)
    flags.values["serve.engine"] = engines.get(
        of_release(flags.values["serve.engine"])[0], flags.values["serve.engine"]
    )
    resolved = _within_lengths(resolve_serving(read_scenario(None, flags.values, {}), registry, BENCHMARK), record)
    lengthless = any(text.endswith("not stated") and "tokens" in text for text in flags.assumed)
    guessed = lengthless or _load_is_missing(record)
    served, assumed = size(resolved), [*flags.assumed, *_defaults(resolved)]
    if record.request_rate and not record.requests and _comes_too_fast(served):
        served = size(replace(resolved, requests=None))
        assumed.remove(REQUESTS_ASSUMED)
        assumed.append("more requests come than are answered, and how many is not stated: rate of a full replica")
    return ServedRecord(record, served, tuple(assumed), guessed)


def _within_lengths(resolved: ResolvedService, record: Record) -> ResolvedService:
    """The service with the longest prompts and answers of the record, with the tokens of its images."""
    prompts, answers = prompts_of(record), answers_of(record)
    longest = prompts.longest + resolved.traffic.inputs - prompts.mean
    return replace(resolved, traffic=replace(resolved.traffic, longest_input=longest, longest_output=answers.longest))


def _comes_too_fast(served: ServingEstimate) -> bool:
    """Whether requests come at a rate that the replicas cannot answer, so that waits last as long as the test does."""
    return (
        served.resolved.requests is not None
        and served.resolved.amount >= HIGHEST_LOAD * served.choice.full_rate * served.working_replicas
    )


def _load_is_missing(record: Record) -> bool:
    """Whether latencies were measured under a load that is not stated; rates alone are of a full replica."""
    stated = (record.sequences, record.concurrency, record.request_rate, record.requests)
    return bool(record.measured.ttft_ms or record.measured.tpot_ms) and not any(stated)


def _defaults(resolved: ResolvedService) -> Iterator[str]:
    if resolved.load is None:
        yield "as many requests as a replica takes: no load stated"
    if resolved.origin.get("serve.kv_cache") == "default":
        yield f"KV cache {resolved.job.scheme.cache.name}: not stated"


def figures(found: ServedRecord) -> Iterator[Figure]:
    """Every latency and rate that the record measured beside the predicted one; times in seconds, tokens per second.

    Latencies that have no end, of requests that come faster than they are answered, are left out.
    """
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


@frozen(eq=True)
class Peak:
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
        yield prediction_of(
            found.record, "peak_memory", seen.measured, seen.predicted, assumed, None, groups, found.guessed
        )
    measured = measured_oom(found.record.measured)
    if measured is not None:
        yield oom_prediction(found.record, measured, found.served.fits, found.assumed, found.guessed)


def rates(found: ServedRecord) -> Iterator[Prediction]:
    """Its latencies and rates, each where the record measured it; the range holds what other tests would have given."""
    others = [figure for other in found.others for figure in figures(other)]
    for figure in figures(found):
        factors = span(found.served.resolved, figure.quantity, found.guessed)
        predicted = [figure.predicted, *(one.predicted for one in others if one.quantity == figure.quantity)]
        wider = STAND_IN if stands_in(found.record) else 1.0
        low = found.served.no_faster(figure.quantity, min(predicted) * factors.low / wider, figure.predicted)
        ends = (low, max(predicted) * factors.high * wider)
        assumed = (*found.assumed, *([figure.note] if figure.note else []))
        yield prediction_of(
            found.record, figure.quantity, figure.measured, figure.predicted, assumed, ends, guessed=found.guessed
        )
