"""The answer of `serve` in one sentence: what is served on what, how fast, and what a reader must know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.certainty import UNBOUNDED
from xe_sizer.report.format import NOT_A_NUMBER, amount, clean, duration, duration_range, gib, number, percent, plural
from xe_sizer.report.serve_pools import pools_words
from xe_sizer.report.verdict import gpu_memory_missing, missed_text, profile_name
from xe_sizer.result.common import Range
from xe_sizer.result.serving import LatencyAt
from xe_sizer.units import BARE_SERVER

if TYPE_CHECKING:
    from xe_sizer.result.serving import ServeResult, Span

YES = "SERVES"
DEFAULT = "default"  # origin of a value that nobody gave


def subject(result: ServeResult) -> str:
    """What serves what: `20 requests/s of llama-3.1-70b on 12 GPUs: 3 replicas of 4 x h100-sxm-80gb`."""
    return f"{load_words(result)} on {hardware(result)}"


def load_words(result: ServeResult) -> str:
    """The load and the model that it asks."""
    serve, model = result.scenario.get("serve") or {}, profile_name(result, "model") or "the model"
    if serve.get("requests") is not None:
        return f"{test_words(serve)} of {model}"
    if serve.get("request_rate") is not None:
        return f"{number(serve['request_rate'])} requests/s of {model}"
    if serve.get("concurrency") is not None:
        return f"{plural(serve['concurrency'], 'concurrent request')} of {model}"
    if serve.get("users") is not None:
        thinking = f" (think time {number(serve['think_time_s'])} s)" if serve.get("think_time_s") else ""
        return f"{plural(serve['users'], 'user')}{thinking} of {model}"
    if serve.get("batch") is not None:
        each = " per replica" if result.replicas.count > 1 else ""
        return f"a batch of {plural(serve['batch'], 'request')}{each} of {model}"
    return f"{model} at full load"


def test_words(serve: Mapping[str, Any]) -> str:
    """The test that a scenario asks for: `a test of 640 requests, 64 at a time,`."""
    requests = plural(serve["requests"], "request")
    if serve.get("trace") is not None:
        return f"a trace of {requests}"
    if serve.get("concurrency") is not None:
        return f"a test of {requests}, {number(serve['concurrency'])} at a time,"
    if serve.get("request_rate") is not None:
        return f"a test of {requests} at {number(serve['request_rate'])} requests/s"
    return f"a test of {requests} at once"


def hardware(result: ServeResult) -> str:
    """GPUs by replica, and their servers: `12 GPUs: 3 replicas of 4 x h100-sxm-80gb (2 x dell-xe9680-h100)`."""
    each, server = replica_gpus(result), profile_name(result, "server")
    shape = f"{each} x {profile_name(result, 'gpu') or 'GPU'}"
    if result.disaggregation is not None:
        shape = f"{result.gpus.count:,} x {profile_name(result, 'gpu') or 'GPU'}: {replicas_words(result)}"
    elif result.replicas.count > 1:
        shape = f"{result.gpus.count:,} GPUs: {replicas_words(result)} of {shape}"
    return shape if not server or server.startswith(BARE_SERVER) else f"{shape} ({result.gpus.nodes:,} x {server})"


def replicas_words(result: ServeResult) -> str:
    """How many replicas there are, and how many of them serve: `7 replicas (3 serving + 4 spare)`."""
    count, spare = result.replicas.count, result.replicas.spare
    if result.disaggregation is not None:
        return pools_words(result.disaggregation, replica_gpus(result))
    return plural(count, "replica") + (f" ({count - spare:,} serving + {spare:,} spare)" if spare else "")


def replica_gpus(result: ServeResult) -> int:
    layout = result.layout
    return layout.tp * layout.pp * layout.dp


def partly_priced(result: ServeResult) -> str:
    """What of the servers the price is for, where that is not all of them: ` (12 of 16 GPUs priced)`."""
    gpus, billed = result.gpus, result.cost.billed_gpus
    whole = gpus.nodes * gpus.gpus_per_node
    server = profile_name(result, "server")
    named = server and not server.startswith(BARE_SERVER)
    return f" ({billed:,} of {whole:,} GPUs priced)" if named and billed is not None and billed < whole else ""


def shared(result: ServeResult) -> str:
    """What of the requests in flight each of several replicas has: `125 per replica`."""
    each = result.per_replica
    several = result.replicas.count - result.replicas.spare > 1
    return f"{number(each.concurrency)} per replica" if several and each and each.concurrency is not None else ""


def outcome(result: ServeResult) -> str:
    """Latencies and throughput, or why they cannot be."""
    verdict = result.verdict
    if not verdict.fits or result.latency.ttft_s.expected is None:
        return clean(verdict.reasons[0].message) if verdict.reasons else "no placement fits"
    at = judged(result)
    figures = f"{latencies(at)}, {number(round(result.throughput.output_tokens_per_s))} output tokens/s in all"
    price = result.cost.per_million_tokens
    if price is not None:
        figures += f", {amount(price)} {clean(result.cost.currency)} per million tokens in and out"
    missed = missed_text(verdict, result.cost.currency)
    said = f"{missed}: {figures}" if missed else figures
    return "; ".join((said, *objectives(result)))


def objectives(result: ServeResult) -> Iterator[str]:
    """What the service is judged by where the user gives no limit, in words; nothing where no limit is a default."""
    origin = result.scenario.get("origin") or {}
    given = {limit.name: limit.limit for limit in result.verdict.limits}
    default = {name: given[name] for name in given if origin.get(f"limits.{name}") == DEFAULT}
    words = []
    if "max_ttft_s" in default:
        words.append(f"first token within {number(default['max_ttft_s'])} s")
    if "max_tpot_s" in default:
        words.append(f"{number(1.0 / default['max_tpot_s'])} tokens/s for each user")
    if words:
        yield f"default objectives: {', '.join(words)}"


def judged(result: ServeResult) -> LatencyAt:
    """The latencies that limits are compared with: at the percentile asked for, else the means (percentile 0)."""
    percentile = (result.scenario.get("serve") or {}).get("percentile")
    found = next((at for at in result.latency.percentiles if at.percentile == percentile), None)
    spans = (result.latency.ttft_s, result.latency.tpot_s, result.latency.request_s)
    means = LatencyAt(percentile=0, ttft_s=spans[0].expected, tpot_s=spans[1].expected, request_s=spans[2].expected)
    return found or means


def latencies(at: LatencyAt) -> str:
    """Both latencies that limits are compared with, and of which requests they are the most."""
    words = f"{latency(at.ttft_s)} to the first token (TTFT)"
    if at.tpot_s != 0.0:  # an answer of one token has no further ones
        words += f" and {latency(at.tpot_s)} per token (TPOT)"
    if not at.percentile:
        return f"{words} on average"
    most = "" if at.ttft_s is None or at.tpot_s is None else "at most "
    return f"{most}{words} for {number(at.percentile)} % of requests"


def latency(seconds: float | None) -> str:
    return UNBOUNDED if seconds is None else duration(seconds)


def caution(result: ServeResult) -> str:
    """What a yes hides: what a failure stops, little room for the cache, a batch in waves."""
    return "; ".join(filter(None, (*map(clean, result.cautions), _tight(result), _waves(result))))


def _tight(result: ServeResult) -> str:
    """Little room for the cache, in what the engine takes of the memory."""
    if not result.verdict.ok or result.verdict.margin != "tight":
        return ""
    share, usable_bytes = result.memory.error_share, result.memory.usable_bytes
    room = f"{gib(share * usable_bytes)} GiB ({percent(share)} of the memory)"
    taken = (result.scenario.get("serve") or {}).get("gpu_memory_utilization")
    of = f"of the {percent(taken)} of the memory that the engine takes, " if taken else ""
    return f"tight: {of}one request leaves less than {room}"


def _waves(result: ServeResult) -> str:
    """That a batch does not run at once."""
    batch, running = (result.scenario.get("serve") or {}).get("batch"), math.floor(result.replicas.running_requests)
    if batch is None or not result.verdict.fits or running >= batch:
        return ""
    return f"in waves: {running:,} of the {batch:,} requests of the batch run at once"


def pace(result: ServeResult) -> tuple[str, float | None, str]:
    """A token of an answer."""
    tpot_s = result.latency.tpot_s.expected
    return "tpot_s", tpot_s, NOT_A_NUMBER if tpot_s is None else f"{duration(tpot_s)} per token"


def pace_range(result: ServeResult) -> str:
    return span_words(result.latency.tpot_s)


def span_words(span: Span, value: float | None = None) -> str:
    """The range of a latency, empty where nothing bounds it; that of a percentile of it where its value is given.

    Answers of one token have no time per further token, and so no range of it.
    """
    if span.low is None or not span.expected or span.high is None:
        return ""
    times = 1.0 if value is None else value / span.expected
    return duration_range(Range(low=span.low * times, expected=span.expected * times, high=span.high * times))


def missing_memory(result: ServeResult) -> str:
    return gpu_memory_missing(result.memory) or "no layout fits"
