"""One service: what `serve` reports. What an architect shows comes first, then what it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.report.answers.estimate import RANGE_NOTE, memory_picture, step_picture, time_axis
from xe_sizer.report.benchmark import test_points, test_tables
from xe_sizer.report.blocks import (
    change_point,
    evidence_point,
    framed,
    limits_points,
    limits_table,
    memory_point,
    memory_table,
    parts_table,
    remarks,
    scenario_facts,
    scenario_finding,
    words,
)
from xe_sizer.report.document import OPERATORS, Column, Picture, Point, Summary, Table
from xe_sizer.report.explain import formulas, ledger, operator_table, sources
from xe_sizer.report.fleet import fleet_blocks
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    amount,
    byte_size,
    clean,
    count,
    duration,
    duration_range,
    electricity_words,
    hourly_words,
    number,
    offer_cells,
    offer_words,
    part_words,
    percent,
    plural,
    range_words,
)
from xe_sizer.report.picture import Axis, Bar, Bars, Curves, Line, Mark
from xe_sizer.report.service import (
    DEFAULT,
    against,
    day_points,
    day_table,
    encoder_points,
    expert_pools_table,
    fit_points,
    hardware,
    judged,
    latencies,
    latency,
    load_words,
    partly_priced,
    pools_table,
    replica_gpus,
    replicas_words,
    sessions_points,
    sessions_table,
    shared,
    slice_words,
    span_words,
    turns_table,
)
from xe_sizer.report.verdict import PROFILES, gpu_memory_missing, missed_text
from xe_sizer.result.common import ELECTRICITY, Range
from xe_sizer.result.serving import BY_POWER, BY_PRICE, ServeResult
from xe_sizer.units import MEGA, WATT_PER_KW, rounded

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Document, Finding, Options
    from xe_sizer.result.serving import ApiComparison, LatencyAt, LoadPoint, Phase, ServeCost

# The answer in one sentence: what is served on what, how fast, and what a reader must know.

SERVES = "SERVES"


def yes(result: ServeResult) -> str:
    """That it serves its load; without one nothing is judged."""
    return SERVES if result.kept_load is None else ""


def subject(result: ServeResult) -> str:
    """What serves what: `20 requests/s of llama-3.1-70b on 12 GPUs: 3 replicas of 4 x h100-sxm-80gb`."""
    unjudged = "" if result.kept_load is None else " (capacity, not judged)"
    return f"{load_words(result)} on {hardware(result)}{unjudged}"


def outcome(result: ServeResult) -> str:
    """Latencies and throughput, or why they cannot be."""
    verdict = result.verdict
    if not verdict.fits or result.latency.ttft_s.expected is None:
        return clean(verdict.reasons[0].message) if verdict.reasons else "no placement fits"
    at = judged(result)
    made, both = result.throughput, " in and out" * result.writes
    rate = (
        f"{number(round(made.output_tokens_per_s))} output" if result.writes else number(round(made.total_tokens_per_s))
    )
    figures = f"{latencies(at, result.writes)}, {rate} tokens/s in all"
    price = result.cost.per_million_tokens
    if price is not None:
        words = amount(price) if result.writes else _money(price)
        figures += f", {words} {clean(result.cost.currency)} per million tokens{both}"
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
    if "max_request_s" in default:
        words.append(f"requests within {number(default['max_request_s'])} s")
    if words:
        yield f"default objectives: {', '.join(words)}"


def caution(result: ServeResult) -> str:
    """What a yes hides: that no load is judged, what a failure stops, a batch in waves."""
    return "; ".join(filter(None, (_kept(result), *map(clean, result.cautions), _waves(result))))


def _kept(result: ServeResult) -> str:
    """What load would be answered in time, where none is given."""
    kept = result.kept_load
    if kept is None:
        return ""
    prompt = f"the first token within {duration(kept.max_ttft_s)}"
    pace = f"{number(1.0 / kept.max_tpot_s)} tokens/s per user for {number(kept.percentile)} % of requests"
    if not result.writes:
        rate = number(rounded(kept.requests_per_s, down=True))
        most = f"{number(kept.percentile)} % of requests take at most {duration(kept.max_ttft_s)}"
        return f"no load is given: at {rate} requests/s {most} (--request-rate {rate} sizes it)"
    if not kept.requests_per_s:
        return f"no load is given, and none keeps {prompt} and {pace}"
    rate = number(rounded(kept.requests_per_s, down=True))
    return f"no load is given: {rate} requests/s keep {prompt} and {pace} (--request-rate {rate} sizes it)"


def _waves(result: ServeResult) -> str:
    """That a batch does not run at once."""
    batch, running = (result.scenario.get("serve") or {}).get("batch"), math.floor(result.replicas.running_requests)
    if batch is None or not result.verdict.fits or running >= batch:
        return ""
    return f"in waves: {running:,} of the {batch:,} requests of the batch run at once"


def pace(result: ServeResult) -> tuple[str, float | None, str]:
    """A token of an answer, or a request without any."""
    if not result.writes:
        request_s = result.latency.request_s.expected
        return "request_s", request_s, NOT_A_NUMBER if request_s is None else f"{duration(request_s)} a request"
    tpot_s = result.latency.tpot_s.expected
    return "tpot_s", tpot_s, NOT_A_NUMBER if tpot_s is None else f"{duration(tpot_s)} per token"


def pace_range(result: ServeResult) -> str:
    return span_words(result.latency.tpot_s if result.writes else result.latency.request_s)


def missing_memory(result: ServeResult) -> str:
    return gpu_memory_missing(result.memory) or "no layout fits"


# The first screen: latency, throughput and price, then what they take.

CHOSEN = {
    BY_PRICE: "the lowest price per hour within the limits",
    BY_POWER: "the lowest GPU design power within the limits, since not all prices are known",
}
MOST_POSITIONS = 4  # of acceptance that the summary lists
SUPPOSED = {
    "input_tokens": "prompts of {} tokens",
    "output_tokens": "answers of {} tokens",
    "think_time_s": "think time of {} s",
    "turn_tokens": "{} new tokens per turn",
    "tool_seconds": "{} s between turns",
    "image_size": "images of {}",
    "host_memory_gb_per_s": "host memory of {} GB/s",
}


def serve_points(result: ServeResult) -> Iterator[Point]:
    """Latency, throughput and cost where it fits; GPUs, memory, limits, and the one thing to change."""
    if result.verdict.fits:
        yield from fit_points(result)
        yield Point("Latency", latencies(judged(result), result.writes))
        yield from _ranges(result)
        yield from evidence_point(result.latency.basis, result.scenario)
        label = "Output" if result.writes else "Load"
        yield from test_points(result) if result.test else (Point(label, _output(result)),)
        yield from _cost(result)
    yield _gpus(result)
    if result.disaggregation is not None:
        yield Point("Prefill apart", against(result, result.disaggregation))
    yield from encoder_points(result)
    yield from day_points(result)
    yield from _chosen(result)
    yield from _assumed(result)
    yield from _images(result)
    yield from _experts(result)
    yield from _adapters(result)
    yield from _speculation(result)
    yield from sessions_points(result)
    yield memory_point(result.memory, result.verdict, holder=_holder(result))
    yield from limits_points(result.verdict, result.cost.currency)
    if not result.verdict.ok:  # else the line under the verdict says it
        yield from (Point("", clean(words)) for words in result.misread)
    yield from (Point("", words) for words in objectives(result))
    yield from change_point(result.advice)


def _holder(result: ServeResult) -> str:
    """What holds a replica's memory: a GPU, or a part of one."""
    return "GPU" if result.slice is None else "slice" if result.slice.in_hardware else "replica"


def _chosen(result: ServeResult) -> Iterator[Point]:
    """By what this kind of hardware was chosen from those that were compared."""
    if len(result.fleet) > 1:
        why = CHOSEN.get(result.fleet_order, "") if result.verdict.ok else "none of them meets the limits"
        yield Point("Chosen", f"of {len(result.fleet)} kinds of hardware{why and ': '}{why}")


def _ranges(result: ServeResult) -> Iterator[Point]:
    """The ranges of the latencies that stand above."""
    found, at = result.latency, judged(result)
    pairs = [(found.ttft_s, at.ttft_s, " (TTFT)"), (found.tpot_s, at.tpot_s, " (TPOT)")]
    if not result.writes:
        pairs = [(found.request_s, at.request_s, "")]
    spans = [f"{words}{name}" for span, value, name in pairs if (words := span_words(span, value))]
    if spans:
        yield Point("", f"{RANGE if found.calibrated else 'uncalibrated range'}: {', '.join(spans)}")


def _gpus(result: ServeResult) -> Point:
    """How many GPUs in how many nodes, as which replicas, and how few of them hold the model."""
    gpus, layout, each = result.gpus, result.layout, replica_gpus(result)
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    nodes = f" in {plural(gpus.nodes, 'node')}" if gpus.count > 1 else ""
    split = f" ({', '.join(sizes)})" if sizes else ""
    if result.disaggregation is not None:
        return Point("GPUs", f"{gpus.count:,}{nodes}: {replicas_words(result)}{split}")
    if result.slice is not None:
        return Point("GPUs", f"{gpus.count:,}{nodes}: {replicas_words(result)} {slice_words(result.slice)}")
    return Point("GPUs", f"{gpus.count:,}{nodes}: {replicas_words(result)} of {each}{split}{_fewest(result)}")


def _fewest(result: ServeResult) -> str:
    """On how few GPUs a replica would fit, where its own are more; that says nothing of the load."""
    least = result.gpus.minimum_that_fits
    if least is None or least == replica_gpus(result):
        return ""
    return f"; {plural(least, 'GPU')} would hold the model"


def _assumed(result: ServeResult) -> Iterator[Point]:
    """What the answer supposes of the load because nobody gave it."""
    origin, serve = result.scenario.get("origin") or {}, result.scenario.get("serve") or {}
    words = [
        text.format(serve[key] if isinstance(serve[key], str) else number(serve[key]))
        for key, text in SUPPOSED.items()
        if origin.get(f"serve.{key}") == DEFAULT and serve.get(key)
    ]
    if not result.writes:
        words = [one.replace("prompts", "texts") for one in words]
    if words:
        yield Point("Assumed", ", ".join(words))
    if result.read_from_name:
        yield Point("Weights", clean(result.read_from_name).removeprefix("weights "))


def _images(result: ServeResult) -> Iterator[Point]:
    """Images in each prompt: their tokens, and how long the encoder takes."""
    images = result.images
    if images:
        each = f"{plural(images.per_request, 'image')} of {clean(images.size)} in each prompt"
        yield Point("Images", f"{each}: {images.tokens:,} tokens, {duration(images.encoder_s)} in the vision encoder")


def _experts(result: ServeResult) -> Iterator[Point]:
    """Experts on several GPUs: how uneven they are, and how long a decode step waits for tokens on their way."""
    found = result.experts
    if found and result.verdict.fits:
        copies = "" if found.redundant is None else f", {found.redundant} copies a layer, placed by load"
        busy = f"the busiest GPU gets {found.busiest_load:.2f} of the mean"
        if found.apart:
            apart = found.apart
            pools = f"on {plural(apart.gpus, 'GPU')} of their own, {number(found.per_gpu)} each{copies}"
            attending = f"{plural(apart.attention_gpus, 'GPU')} with attention"
            waits = f"in a decode step attention waits {duration(apart.attention_wait_s)}, "
            waits += f"experts {duration(apart.experts_wait_s)}"
            yield Point("Experts", f"{pools}, beside {attending}; {busy}; {waits}")
            return
        way = f"{clean(found.dispatcher)} takes {duration(found.exchange_s)} of a decode step"
        hidden_s = found.exchange_s - found.waited_s
        share = "all" if not found.waited_s else duration(hidden_s)
        hidden = f", {share} of it hidden" if hidden_s > 0 else ""
        yield Point("Experts", f"{number(found.per_gpu)} per GPU{copies}; {busy}; {way}{hidden}")


def _adapters(result: ServeResult) -> Iterator[Point]:
    """LoRA adapters: how many, what they take of the memory and of a step."""
    found = result.adapters
    if found is not None:
        held = "" if found.held == found.count else f", {found.held:,} of them on the GPU"
        words = f"{plural(found.count, 'LoRA adapter')} of rank {found.rank}{held}: {byte_size(found.bytes)} per GPU"
        yield Point("Adapters", f"{words}, {percent(found.share)} of a decode step")


def _speculation(result: ServeResult) -> Iterator[Point]:
    """Drafts: what proposes them, what they gain and take, and the same service without."""
    found = result.speculation
    if found is None:
        return
    by = f" by {clean(found.label)}" if found.label else ""
    kept = ", ".join(number(one) for one in found.acceptance[:MOST_POSITIONS])
    more = ", ..." if len(found.acceptance) > MOST_POSITIONS else ""
    assumed = " (assumed)" if found.assumed else ""
    words = f"{plural(found.draft_tokens, 'token')} a step{by}, acceptance {kept}{more}{assumed}: "
    yield Point("Drafts", words + f"{number(found.tokens_per_step)} tokens gained a step")
    takes = [f"{byte_size(found.bytes)} per GPU"] if found.bytes else []
    takes += [f"{percent(found.share)} of a decode step"] if found.share else []
    without = [] if found.without_tpot_s is None else [f"without: {duration(found.without_tpot_s)} per token"]
    if takes or without:
        yield Point("", "; ".join([*([", ".join(takes)] if takes else []), *without]))


def _output(result: ServeResult) -> str:
    made = result.throughput
    if not result.writes:
        rate = f"{number(made.requests_per_s)} requests/s{_documents(result)}{_flying(result)}"
        return f"{rate}, {number(float(round(made.total_tokens_per_s)))} tokens/s in all"
    user = f", {number(made.tokens_per_s_per_user)} per user" if made.tokens_per_s_per_user else ""
    tokens = f"{number(float(round(made.output_tokens_per_s)))} output tokens/s in all{user}"
    return f"{number(made.requests_per_s)} requests/s{_flying(result)}, {tokens}"


def _documents(result: ServeResult) -> str:
    """The texts of the requests, where these have several."""
    each = (result.scenario.get("serve") or {}).get("documents") or 1
    return f" of {each:,} documents" if each > 1 else ""


def _flying(result: ServeResult) -> str:
    """The requests in flight, and what of them each of several replicas has."""
    flying, each = result.throughput.requests_in_flight, shared(result)
    if flying is None:
        return ""
    return f", {number(flying)} in flight" + (f" ({each})" if each else "")


def _cost(result: ServeResult) -> Iterator[Point]:
    cost, currency = result.cost, clean(result.cost.currency)
    power = electricity_words(cost.electricity_per_hour, currency, cost.parts, cost.per_hour is not None)
    power = power.replace(" (", " an hour (", 1)
    if cost.per_hour is None:
        yield Point("Cost", f"{power}; " * bool(power) + "unknown: give --price-per-gpu-hour")
    else:
        priced = f"{amount(cost.per_hour)} {currency} an hour{partly_priced(result)}{_million(cost, currency)}"
        made = "".join(f"; {words}" for words in (*part_words(cost.parts), *filter(None, (power,))))
        hourly = cost.hourly_price
        terms = "" if hourly is None else f"; {clean(hourly.hardware)} at {hourly_words(hourly)}"
        yield Point("Cost", f"{priced}{made}{terms}")
    if cost.api is not None:
        yield Point("API", _against_api(result, cost.api))


def _against_api(result: ServeResult, api: ApiComparison) -> str:
    """Which is cheaper over a day of the load, and from how many tokens a day the service is."""
    currency = clean(result.cost.currency)
    theirs = f"{number(api.per_million_tokens)} {currency} per million tokens"
    if api.break_even_utilisation is None or api.break_even_tokens_per_day is None:
        return f"{theirs}: give a price of the service too, to compare"
    per_token = api.service_per_day / api.tokens_per_day if api.service_per_day and api.tokens_per_day else None
    ours = NOT_A_NUMBER if per_token is None else number(per_token * MEGA)
    word, load = "cheaper" if api.cheaper else "dearer", count(api.tokens_per_day)
    over = "over this day" if (result.scenario.get("serve") or {}).get("hourly_load") else "at this load"
    enough = f"{count(api.break_even_tokens_per_day)} tokens a day ({over.split(' ', 1)[1]}: {load})"
    share = percent(api.break_even_utilisation)
    told = f"the service is {word} than the API {over}, {ours} against {theirs}"
    if api.break_even_utilisation > 1.0:
        return f"{told}; the service never is cheaper: that takes {enough}, {share} of what it sustains"
    return f"{told}; it is cheaper from {enough}, {share} of what it sustains"


def _million(cost: ServeCost, currency: str) -> str:
    """Prices of a million tokens: `; per million tokens 0.191 in, 0.890 out, 0.353 USD over both`."""
    parts = {"in": cost.per_million_input_tokens, "out": cost.per_million_output_tokens}
    if cost.per_million_output_tokens is None and cost.per_million_tokens is not None:
        return f"; {number(cost.per_million_tokens)} {currency} per million tokens"
    told = [f"{number(value)} {name}" for name, value in parts.items() if value is not None]
    if cost.per_million_tokens is not None:
        told.append(f"{number(cost.per_million_tokens)} {currency} over both")
    return f"; per million tokens {', '.join(told)}" if told else ""


# Picture: latency against load, up to where requests wait.

LATENCY_CURVES = (
    ("ttft_s", "Time to the first token against load", "max_ttft_s"),
    ("tpot_s", "Time per output token against load", "max_tpot_s"),
)
REQUEST_CURVES = (("request_s", "Time of a request against load", "max_request_s"),)  # without output tokens
# By the key that says the load: the axis, and what is asked.
UNITS = {
    "request_rate": ("Requests per second", "asked: {} requests/s"),
    "concurrency": ("Requests in flight", "asked: {} in flight"),
    "users": ("Users", "asked: {} users"),
}
FULL = ("Requests per second", "as sized: {} requests/s")
LEAST_POINTS = 3
WIDE = 10.0  # highest over lowest from which on an axis is logarithmic
NOTE = "The same GPUs under other loads."


def _picture(result: ServeResult, key: str, title: str, limit: str) -> Picture:
    points = result.load_curve
    lines = [Line("mean", tuple((point.load, getattr(point, key)) for point in points))]
    judged = tuple(_judged(points, key))
    if len(judged) >= LEAST_POINTS and points[0].judged:
        lines.append(Line(f"{number(points[0].judged.percentile)} % of requests", judged))
    seconds = [y for line in lines for _, y in line.points]
    limits = [each.limit for each in result.verdict.limits if each.name == limit]
    marks = tuple(Mark(each, f"limit {duration(each)}") for each in limits)
    wide = max(seconds) > WIDE * min(seconds)
    label, asked = _asked(result)
    middle = sorted(seconds)[len(seconds) // 2]
    drawing = Curves(
        Axis(label), time_axis("Time", middle if wide else max(seconds), wide), tuple(lines), marks, (asked,)
    )
    first, last = (f"{duration(getattr(each, key))} at {number(each.load)}" for each in (points[0], points[-1]))
    says = f"on average {first}, {last} {label.lower()}; {asked.text}"
    return Picture(title, says, drawing, f"{NOTE} The axis of times is logarithmic." if wide else NOTE)


def _judged(points: tuple[LoadPoint, ...], key: str) -> Iterator[tuple[float, float]]:
    for point in points:
        value = getattr(point.judged, key) if point.judged else None
        if value is not None:
            yield point.load, value


def _asked(result: ServeResult) -> tuple[str, Mark]:
    """The label of the loads, and the load of the answer."""
    serve = result.scenario.get("serve") or {}
    for key, (label, text) in UNITS.items():
        if serve.get(key) is not None:
            return label, Mark(float(serve[key]), text.format(number(serve[key])))
    rate = result.throughput.requests_per_s
    return FULL[0], Mark(rate, FULL[1].format(number(rate)))


# Other pictures: latencies against their limits, memory, and what a step is made of.

LATENCY_BARS = (
    ("ttft_s", "Time to the first token", "max_ttft_s"),
    ("tpot_s", "Time per output token", "max_tpot_s"),
)
REQUEST_BARS = (("request_s", "Time of a request", "max_request_s"),)
UNBOUNDED = "unbounded: the load exceeds the capacity"


def pictures(result: ServeResult) -> Iterator[Picture]:
    if result.verdict.fits:
        curves = LATENCY_CURVES if result.writes else REQUEST_CURVES
        for key, title, limit in LATENCY_BARS if result.writes else REQUEST_BARS:
            yield _latency(result, key, title, limit)
        for key, title, limit in curves if len(result.load_curve) >= LEAST_POINTS else ():
            yield _picture(result, key, title, limit)
    yield memory_picture(result)
    if result.verdict.fits:
        for name, step in _steps(result):
            yield step_picture(f"Time of {name}", step.components, step.seconds)


def _steps(result: ServeResult) -> tuple[tuple[str, Phase], ...]:
    """The kinds of step that a replica makes: decodes and prefills, or one kind where nothing is decoded."""
    phases = result.phases
    if not result.writes:
        return (("a step", phases.prefill),)
    return ("a decode step", phases.decode), ("a step with prefill", phases.prefill)


def _latency(result: ServeResult, key: str, title: str, limit: str) -> Picture:
    """The mean with its range, and percentiles where requests arrive by chance."""
    span = getattr(result.latency, key)
    bars = [_mean(span.low, span.expected, span.high)]
    bars += [_percentile(at, key) for at in result.latency.percentiles]
    found = [each.limit for each in result.verdict.limits if each.name == limit]
    marks = tuple(Mark(seconds, f"limit {duration(seconds)}") for seconds in found)
    longest = max((end for bar in bars for end in (bar.value, bar.high) if end is not None), default=1.0)
    says = "; ".join([*(f"{bar.name} {bar.text}" for bar in bars), *(mark.text for mark in marks)])
    return Picture(title, says, Bars(time_axis("Time", longest), tuple(bars), marks), RANGE_NOTE)


def _mean(low: float | None, expected: float | None, high: float | None) -> Bar:
    if low is None or expected is None or high is None:
        return Bar("mean", None, UNBOUNDED)
    text = f"{duration(expected)}, {duration_range(Range(low=low, expected=expected, high=high))}"
    return Bar("mean", expected, text, low, high)


def _percentile(at: LatencyAt, key: str) -> Bar:
    value = getattr(at, key)
    return Bar(f"{number(at.percentile)} % of requests", value, UNBOUNDED if value is None else duration(value))


# The report.

ANSWER = ServeResult
ALL_LAYERS = "all layers of the fullest pipeline stage"
ALL_EXPERTS = "all layers with experts, on the busiest GPU that holds experts alone"
Row = tuple[str, str, str]
ASKED = (
    "engine", "weights", "activations", "kv_cache", "request_rate", "concurrency", "users", "think_time_s",
    "batch", "requests", "input_tokens", "output_tokens", "percentile",
)  # fmt: skip
MEMORY = ("peak_bytes", "usable_bytes", "headroom_bytes")
FIGURES = ("ttft_s", "tpot_s", "request_s")
LATENCIES = (("first token (TTFT)", "ttft_s"), ("per token (TPOT)", "tpot_s"), ("whole request", "request_s"))
TRAFFIC = {
    "input_tokens": "mean tokens per prompt, without images",
    "output_tokens": "mean tokens per answer",
    "documents": "texts in a request, each of so many tokens",
    "images": "images in each prompt",
    "input_spread": "standard deviation of prompt lengths over their mean",
    "output_spread": "standard deviation of answer lengths over their mean",
    "longest_input_tokens": "tokens that no prompt is above",
    "longest_output_tokens": "tokens at which answers are cut",
    "turns": "turns of a session, each with the whole history as its prompt",
    "turn_tokens": "tokens that a user or a tool adds per turn",
    "tool_seconds": "seconds between an answer and the session's next turn",
    "prefix_hit_share": "share of prompt tokens found in the cache",
    "speculative": "method of speculative decoding",
    "draft_model": "model that drafts",
    "draft_tp": "GPUs that share what drafts",
    "draft_tokens": "tokens proposed per step by speculative decoding",
    "draft_width": "branches of the tree of drafts",
    "draft_depth": "positions of the tree of drafts",
    "acceptance_rate": "probability that a proposed token is kept, by position",
    "request_rate": "requests per second, all replicas together",
    "concurrency": "requests in flight, all replicas together",
    "users": "people who ask, read the answer and ask again",
    "think_time_s": "seconds between an answer and the user's next request",
    "batch": "requests that each replica starts together",
    "requests": "requests of the test",
    "percentile": "percentage of requests that must meet the latency limits",
}


def document(result: ServeResult, options: Options) -> Document:
    """The whole report on `result`; `options.explain` adds sections."""
    return framed(result, _blocks(result, options))


def _blocks(result: ServeResult, options: Options) -> Iterator[Block]:
    yield Summary(tuple(serve_points(result)))
    yield from pictures(result)
    if result.verdict.fits:
        yield from test_tables(result)
        yield service_table(result)
        if not result.test:
            yield latency_table(result)
        yield from pools_table(result)
        yield from expert_pools_table(result)
        yield from turns_table(result)
        yield from sessions_table(result)
    if result.verdict.limits:
        yield limits_table(result)
    yield from day_table(result)
    yield from fleet_blocks(result, options.width)
    yield scenario_facts(result)
    yield memory_table(result)
    if result.experts and result.experts.apart and result.verdict.fits:
        yield memory_table(result, memory=result.experts.apart.memory)
    if result.verdict.fits:
        yield from phase_tables(result)
    yield from explanations(result, options.explain)
    yield from remarks(result)


def service_table(result: ServeResult) -> Table:
    """What it takes, what it delivers and what that costs."""
    cache = result.kv_cache
    each = cache.bytes_per_token if cache.gpu_bytes_per_token is None else cache.gpu_bytes_per_token
    tokens = f"{count(round(cache.pool_tokens))} tokens at {byte_size(each)}"
    if each < cache.bytes_per_token:
        tokens += f" on the GPU, {byte_size(cache.bytes_per_token)} with the layers on the CPU"
    held = ("KV cache per replica", byte_size(cache.pool_bytes), tokens)
    kept = (held, *_states(result)) if result.writes else ()
    rows = (*_size_rows(result), *_rate_rows(result), *kept, *_cost_rows(result))
    return Table("Service", (Column("quantity"), Column("value", True), Column("note")), rows)


def _states(result: ServeResult) -> Iterator[Row]:
    """What a request holds beside the cache of its tokens."""
    size, kept = result.kv_cache.state_bytes_per_sequence, result.scenario["serve"].get("state_dtype")
    if size:
        yield "recurrent states of a request", byte_size(size), f"in {kept}" if kept else "of convolutions"


def _size_rows(result: ServeResult) -> Iterator[Row]:
    replicas, layout = result.replicas, result.layout
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    shape = plural(replica_gpus(result), "GPU") + (f" each ({', '.join(sizes)})" if sizes else " each")
    if result.slice is not None:
        part = result.slice
        shares = f"{percent(part.compute_share)} of its compute, {percent(part.memory_share)} of its memory each"
        shape = f"{slice_words(part)}: {shares}"
    spare = f": {replicas.count - replicas.spare:,} serving + {replicas.spare:,} spare" if replicas.spare else ""
    if result.disaggregation is not None:
        apart = result.disaggregation
        yield "prefill replicas", number(apart.prefill_replicas), plural(apart.prefill_gpus, "GPU") + " each"
    yield "decode replicas" if result.disaggregation else "replicas", number(replicas.count), f"{shape}{spare}"
    minimum = result.gpus.minimum_that_fits
    least = "" if minimum is None else f"{plural(minimum, 'GPU')} would hold the model"
    yield "GPUs", number(result.gpus.count), least
    flying = result.throughput.requests_in_flight
    if flying is not None:
        yield "requests in flight", number(flying), shared(result)
    if not result.writes:
        return
    most = f"max concurrency at full length: {number(float(int(result.kv_cache.max_concurrency)))}"
    yield "concurrent requests per replica", number(replicas.running_requests), most


def _rate_rows(result: ServeResult) -> Iterator[Row]:
    made = result.throughput
    yield from _users(result)
    yield "requests", f"{number(made.requests_per_s)} /s", _taken(result)
    if not result.writes:
        documents = (result.scenario.get("serve") or {}).get("documents") or 1
        if documents > 1:
            yield "documents", f"{_rate(made.requests_per_s * documents)} /s", f"{documents:,} in a request"
        yield (
            "tokens",
            f"{_rate(made.total_tokens_per_s)} /s",
            f"{_rate(made.total_tokens_per_s / result.gpus.count)} per GPU",
        )
        return
    yield "output tokens", f"{_rate(made.output_tokens_per_s)} /s", f"{_rate(made.output_tokens_per_s_per_gpu)} per GPU"
    yield "prompt and output tokens", f"{_rate(made.total_tokens_per_s)} /s", ""
    if made.tokens_per_s_per_user:
        yield "tokens per user", f"{number(made.tokens_per_s_per_user)} /s", ""


def _users(result: ServeResult) -> Iterator[Row]:
    """The users, and how many the working replicas sustain."""
    users, most = (result.scenario.get("serve") or {}).get("users"), result.replicas.max_load
    if users is None:
        return
    sustained = "" if most is None else f"about {number(rounded(most, down=True))}"
    if most is None or users > most:
        yield "users", number(users), sustained and f"these GPUs sustain {sustained}"
    else:
        share = f"{percent(users / most)} of what these GPUs sustain{_within(result)}"
        yield "users", number(users), f"{share}: {sustained} users"


def _within(result: ServeResult) -> str:
    """Whether what is sustained keeps the limits on latency."""
    limits = {limit.name for limit in result.verdict.limits} & {"max_ttft_s", "max_tpot_s", "max_request_s"}
    return " within the limits" if limits and result.verdict.meets_limits else ""


def _taken(result: ServeResult) -> str:
    replicas, asked = result.replicas, (result.scenario.get("serve") or {}).get("request_rate")
    if asked is None or not replicas.max_requests_per_s:
        return ""
    if result.latency.ttft_s.expected is None:
        return f"of {number(asked)} /s: more than it can sustain"
    most = number(rounded(replicas.max_requests_per_s, down=True))
    return f"{percent(replicas.utilisation)} of the {most} /s it sustains{_within(result)}"


def _rate(value: float) -> str:
    return number(float(round(value)) if value >= 100 else value)


def _cost_rows(result: ServeResult) -> Iterator[Row]:
    cost = result.cost
    currency = clean(cost.currency)
    if cost.per_hour is not None:
        yield "price per hour", f"{amount(cost.per_hour)} {currency}", partly_priced(result).strip(" ()")
    if cost.hourly_price is not None:
        hourly = cost.hourly_price
        yield f"hour of {clean(hourly.hardware)}", f"{amount(hourly.per_hour)} {currency}", offer_words(hourly)
    if cost.per_million_input_tokens is not None and cost.per_million_output_tokens is not None:
        yield "price per million input tokens", f"{_money(cost.per_million_input_tokens)} {currency}", ""
    if cost.per_million_output_tokens is not None:
        yield "price per million output tokens", f"{_money(cost.per_million_output_tokens)} {currency}", ""
    if cost.per_million_tokens is not None:
        alike = "" if cost.per_million_output_tokens is None else "prompts and answers alike"
        yield "price per million tokens", f"{_money(cost.per_million_tokens)} {currency}", alike
    energy = cost.energy_kwh_per_million_tokens
    if energy is not None:
        yield "energy per million tokens", f"{number(energy)} kWh", clean(cost.energy_formula) or "prompts and answers"
    yield from _power_rows(cost)
    if cost.api is not None:
        yield from _api_rows(cost.api, currency)


def _power_rows(cost: ServeCost) -> Iterator[Row]:
    """What the servers draw, and what the cost of own ones is made of."""
    currency = clean(cost.currency)
    if cost.power_w is not None:
        yield "power at load", f"{number(cost.power_w / WATT_PER_KW)} kW", "of whole servers, without cooling"
    for part in cost.parts:
        yield f"{clean(part.name)} per hour", f"{_money(part.value)} {currency}", "of the price"
    if cost.electricity_per_hour is not None and not cost.parts:
        of = "the hardware has no price" if cost.per_hour is None else "a rent includes it"
        yield f"{ELECTRICITY} per hour", f"{_money(cost.electricity_per_hour)} {currency}", of


def _api_rows(api: ApiComparison, currency: str) -> Iterator[Row]:
    """The same requests at the price of an API."""
    yield "API per million tokens", f"{_money(api.per_million_tokens)} {currency}", "in the mix of this load"
    yield "API per hour", f"{_money(api.per_hour)} {currency}", "for this load"
    if api.break_even_tokens_per_day is not None and api.break_even_utilisation is not None:
        at = f"{percent(api.break_even_utilisation)} of what the service sustains"
        yield "cheaper than the API from", f"{count(api.break_even_tokens_per_day)} tokens a day", at


def _money(value: float) -> str:
    return amount(value) if value >= 1 else number(value)


def latency_table(result: ServeResult) -> Table:
    """Means with their ranges, and percentiles where requests arrive by chance."""
    found = result.latency
    span, note = range_words(found.evidence, found.calibrated, found.basis)
    percentiles = tuple(Column(f"{number(at.percentile)} %", True, spare=1) for at in found.percentiles)
    rows = tuple(
        (name, latency(getattr(found, key).expected), span_words(getattr(found, key)), *_row(found.percentiles, key))
        for name, key in (LATENCIES if result.writes else LATENCIES[-1:])
    )
    columns = (Column("latency"), Column("mean", True), Column(span), *percentiles)
    return Table("Latency", columns, rows, note=note)


def _row(percentiles: tuple[LatencyAt, ...], key: str) -> tuple[str, ...]:
    return tuple(latency(getattr(at, key)) for at in percentiles)


def phase_tables(result: ServeResult) -> Iterator[Table]:
    """A decode step and a step with prefill by part, and both by module."""
    phases = result.phases
    for name, step in _steps(result):
        yield parts_table(f"Time of {name}", step.components, step.seconds)
    if not result.writes:
        modules = tuple((words(one.name), duration(one.seconds)) for one in phases.prefill.modules)
        yield Table("Time of a step by module", (Column("module"), Column("time", True)), modules, detail=True)
        return
    prompts = {module.name: module.seconds for module in phases.prefill.modules}
    rows = tuple(
        (words(module.name), duration(module.seconds), duration(prompts.get(module.name, 0.0)))
        for module in phases.decode.modules
    )
    columns = (Column("module"), Column("decode", True), Column("with prefill", True))
    yield Table("Time of a step by module", columns, rows, detail=True)


def explanations(result: ServeResult, topics: tuple[str, ...]) -> Iterator[Block]:
    """Sections that show where numbers come from, each once, in the order of the report."""
    if "memory" in topics:
        yield ledger(result)
        if result.experts and result.experts.apart and result.verdict.fits:
            yield ledger(result, result.experts.apart.memory, "How the memory of a GPU of experts adds up")
    if "time" in topics:
        for name, step in _steps(result):
            yield formulas(f"How {name} adds up", step.components, step.seconds)
    if OPERATORS in topics:
        yield from _operators(result)
    if "data" in topics:
        yield _load(result)
    if "sources" in topics:
        yield from sources(result)


def _operators(result: ServeResult) -> Iterator[Block]:
    """Both kinds of step, on both kinds of GPU where experts have some of their own."""
    for name, step in _steps(result):
        yield operator_table(f"Operators of {name}", step.operators, ALL_LAYERS)
        if step.expert_operators:
            yield operator_table(f"Operators of {name} on a GPU of experts", step.expert_operators, ALL_EXPERTS)


def _load(result: ServeResult) -> Table:
    serve = result.scenario.get("serve") or {}
    rows = [(words(key), number(serve[key]), meaning) for key, meaning in TRAFFIC.items() if serve.get(key) is not None]
    rows.append(("per replica", number(result.replicas.running_requests), "concurrent requests, on average"))
    columns = (Column("quantity"), Column("value", True), Column("meaning"))
    return Table(f"How the load adds up: {load_words(result)}", columns, tuple(rows))


def rows(result: ServeResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line of figures under their names."""
    figures = cells(result)
    yield tuple(figures)
    yield tuple(figures.values())


def cells(result: ServeResult) -> dict[str, Any]:
    """The figures of a line of CSV by their names."""
    return dict(_cells(result))


def _cells(result: ServeResult) -> Iterator[tuple[str, Any]]:
    scenario, serve = result.scenario, result.scenario.get("serve") or {}
    names = scenario.get("names") or {}
    yield from ((name, names.get(name) or scenario.get(name)) for name in PROFILES)
    yield from ((name, serve.get(name)) for name in ASKED)
    yield from (("fits", result.verdict.fits), ("meets_limits", result.verdict.meets_limits))
    yield from (("gpus", result.gpus.count), ("nodes", result.gpus.nodes))
    yield from msgspec.structs.asdict(result.layout).items()
    yield from ((name, getattr(result.memory, name)) for name in MEMORY)
    yield from _latency_cells(result)
    yield from _test_cells(result)
    yield from msgspec.structs.asdict(result.throughput).items()
    yield from ((f"kv_{name}", value) for name, value in msgspec.structs.asdict(result.kv_cache).items())
    replicas = msgspec.structs.asdict(result.replicas)
    yield "replicas", replicas["count"]
    yield from ((name, replicas[name]) for name in ("spare", "utilisation", "max_requests_per_s", "running_requests"))
    cost = msgspec.structs.asdict(result.cost)
    apart = ("energy_formula", "hourly_price", "parts", "api")
    yield from ((name, value) for name, value in cost.items() if name not in apart)
    yield from offer_cells(result.cost.hourly_price).items()


def _latency_cells(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Means with their ranges, then each percentile."""
    for name in FIGURES:
        span = getattr(result.latency, name)
        stem = name.removesuffix("_s")
        yield from ((f"{stem}_low_s", span.low), (name, span.expected), (f"{stem}_high_s", span.high))
    for at in result.latency.percentiles:
        for name in FIGURES:
            yield f"{name.removesuffix('_s')}_p{at.percentile:g}_s", getattr(at, name)


def _test_cells(result: ServeResult) -> Iterator[tuple[str, float | None]]:
    """Of a test: its duration, and the latencies that a steady state has no percentiles of."""
    test = result.test
    if test is None:
        return
    yield "duration_s", test.duration_s.expected
    yield "goodput_per_s", test.goodput_per_s
    for name, found in (("itl", test.itl_s), ("e2e_latency", test.e2e_latency_s)):
        yield f"{name}_s", found.mean.expected
        yield f"{name}_p99_s", found.p99


def findings(result: ServeResult, options: Options) -> Iterator[Finding]:
    yield scenario_finding(result, options.file, options.file)
