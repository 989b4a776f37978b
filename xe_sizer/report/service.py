"""A service in words and tables: its load and hardware, latencies, prefill apart, sessions, and a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    UNBOUNDED,
    amount,
    byte_size,
    clean,
    count,
    duration,
    duration_range,
    gib,
    number,
    percent,
    plural,
)
from xe_sizer.report.verdict import profile_name
from xe_sizer.result.common import Range
from xe_sizer.result.serving import AGGREGATED, DISAGGREGATED, LatencyAt
from xe_sizer.units import BARE_SERVER, rounded

if TYPE_CHECKING:
    from xe_sizer.result.serving import (
        Aggregated,
        Day,
        Disaggregation,
        Fit,
        GpuSlice,
        ServeResult,
        SessionTurns,
        Span,
    )

# Load and hardware in words.

DEFAULT = "default"  # origin of a value that nobody gave


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
    if result.encoders is not None and result.disaggregation is None:
        shape = f"{result.gpus.count:,} x {profile_name(result, 'gpu') or 'GPU'}: {replicas_words(result)} of {each}"
    elif result.slice is not None:
        whole = f"{result.gpus.count:,} x {profile_name(result, 'gpu') or 'GPU'}"
        shape = f"{whole}: {replicas_words(result)} {slice_words(result.slice)}"
    elif result.disaggregation is not None:
        shape = f"{result.gpus.count:,} x {profile_name(result, 'gpu') or 'GPU'}: {replicas_words(result)}"
    elif result.replicas.count > 1:
        shape = f"{result.gpus.count:,} GPUs: {replicas_words(result)} of {shape}"
    return shape if not server or server.startswith(BARE_SERVER) else f"{shape} ({result.gpus.nodes:,} x {server})"


SHARING = {"mps": "MPS"}  # ways to share a GPU that are written otherwise than their name


def slice_words(part: GpuSlice) -> str:
    """What of a GPU a replica has: `on slices of 1g.10gb, 7 to a GPU`, `by time-slicing, 4 to a GPU`."""
    name = clean(part.name)
    way = name.rpartition("-")[0]
    kind = f"on slices of {name}" if part.in_hardware else f"by {SHARING.get(way, way)}"
    return f"{kind}, {part.per_gpu} to a GPU"


def replicas_words(result: ServeResult) -> str:
    """How many replicas there are, and how many of them serve: `7 replicas (3 serving + 4 spare)`.

    Of both kinds where there are two: `4 prefill replicas of 2 + 1 decode replica of 4`.
    """
    count, spare = result.replicas.count, result.replicas.spare
    if result.disaggregation is not None:
        found = result.disaggregation
        prefill = f"{plural(found.prefill_replicas, 'prefill replica')} of {found.prefill_gpus:,}"
        prefill = f"{prefill} + {plural(found.decode_replicas, 'decode replica')} of {replica_gpus(result):,}"
        return f"{_encoders(result)}{prefill}"
    spares = f" ({count - spare:,} serving + {spare:,} spare)" if spare else ""
    return f"{_encoders(result)}{plural(count, 'replica')}{spares}"


def _encoders(result: ServeResult) -> str:
    return "" if result.encoders is None else f"{plural(result.encoders.replicas, 'image encoder')} + "


def replica_gpus(result: ServeResult) -> int:
    """GPUs of a replica, those that hold experts alone too."""
    layout = result.layout
    apart = result.experts.apart if result.experts else None
    return layout.tp * layout.pp * layout.dp + (apart.gpus if apart else 0)


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


def judged(result: ServeResult) -> LatencyAt:
    """The latencies that limits are compared with: at the percentile asked for, else the means (percentile 0)."""
    percentile = (result.scenario.get("serve") or {}).get("percentile")
    found = next((at for at in result.latency.percentiles if at.percentile == percentile), None)
    spans = (result.latency.ttft_s, result.latency.tpot_s, result.latency.request_s)
    means = LatencyAt(percentile=0, ttft_s=spans[0].expected, tpot_s=spans[1].expected, request_s=spans[2].expected)
    return found or means


def latencies(at: LatencyAt, writes: bool = True) -> str:
    """Both latencies that limits are compared with, and of which requests they are the most.

    writes : answers have tokens; else there is one latency, that of the whole request
    """
    words = f"{latency(at.ttft_s)} to the first token (TTFT)" if writes else f"{latency(at.request_s)} a request"
    if writes and at.tpot_s != 0.0:  # an answer of one token has no further ones
        words += f" and {latency(at.tpot_s)} per token (TPOT)"
    if not at.percentile:
        return f"{words} on average"
    most = "" if at.ttft_s is None or at.tpot_s is None else "at most "
    return f"{most}{words} for {number(at.percentile)} % of requests"


def latency(seconds: float | None) -> str:
    return UNBOUNDED if seconds is None else duration(seconds)


def span_words(span: Span, value: float | None = None) -> str:
    """The range of a latency, empty where nothing bounds it; that of a percentile of it where its value is given.

    Answers of one token have no time per further token, and so no range of it.
    """
    if span.low is None or not span.expected or span.high is None:
        return ""
    times = 1.0 if value is None else value / span.expected
    return duration_range(Range(low=span.low * times, expected=span.expected * times, high=span.high * times))


# Pools for prefill and decode.

WAY = {"node": "inside the node", "network": "over the network"}
STAGES = (
    ("queue_s", "wait for other prompts"),
    ("prefill_s", "prefill"),
    ("transfer_s", "transfer of the KV cache"),
    ("decode_s", "wait for a place, and first decode step"),
)


def against(result: ServeResult, found: Disaggregation) -> str:
    """The answer beside that with everything on all replicas."""
    other = found.aggregated
    if other is None:
        return "without it no placement is possible"
    if found.by == "gpus":
        words = f"{result.gpus.count:,} GPUs against {other.gpus:,} with prompts on all replicas"
    else:
        mine, theirs = (number(float(f"{value:.3g}")) for value in _rates(result, other))
        words = f"up to {mine} requests/s per GPU against {theirs} with prompts on all replicas"
    if not other.meets_limits and result.verdict.ok:
        return f"{words}, which miss a limit"
    if other.meets_limits and not result.verdict.ok:
        return f"{words}, which meet the limits"
    ending = {DISAGGREGATED: "it is better", AGGREGATED: "it is worse"}
    return f"{words}: {ending.get(found.better, 'no difference above 5 %')}"


def _rates(result: ServeResult, other: Aggregated) -> tuple[float, float]:
    return result.replicas.max_requests_per_s / result.gpus.count, other.max_requests_per_s / other.gpus


def pools_table(result: ServeResult) -> Iterator[Table]:
    """What the first token waits for, and both answers."""
    found = result.disaggregation
    if found is None:
        return
    sent = f"{byte_size(found.transfer_bytes)} {WAY.get(found.path, found.path)}"
    notes = {"queue_s": f"prefill replicas are busy {percent(found.utilisation)} of the time",
             "transfer_s": f"{sent}, links in use {percent(found.link_utilisation)} of the time"}  # fmt: skip
    rows = [(name, _seconds(getattr(found, key)), notes.get(key, "")) for key, name in STAGES]
    ttft_s = result.latency.ttft_s.expected
    rows.append(("first token (TTFT)", _seconds(ttft_s), ""))
    columns = (Column("time to the first token, mean"), Column("value", True), Column("note"))
    yield Table("Prefill and decode on replicas of their own", columns, tuple(rows), note=_both(result, found))


def expert_pools_table(result: ServeResult) -> Iterator[Table]:
    """GPUs that attend and GPUs that hold experts alone: how many, what they hold, and how long each waits."""
    found = result.experts.apart if result.experts else None
    if found is None:
        return
    whole_s = found.attention_s + found.attention_wait_s
    pairs = (
        ("GPUs of a replica", number(found.attention_gpus), number(found.gpus)),
        ("memory of a GPU", *(f"{gib(one.peak_bytes)} GiB" for one in (result.memory, found.memory))),
        ("computes in a decode step", duration(found.attention_s), duration(found.experts_s)),
        ("waits in a decode step", duration(found.attention_wait_s), duration(found.experts_wait_s)),
        ("share of a decode step", percent(found.attention_s / whole_s), percent(found.experts_s / whole_s)),
        ("tokens leave for the other", duration(found.dispatch_s), duration(found.combine_s)),
    )
    batches = f"micro-batches that go back and forth: {number(found.micro_batches)}"
    note = f"{batches}. A decode step takes {duration(whole_s)}; tokens are on their way while others are computed"
    columns = (Column("quantity"), Column("attention", True), Column("experts", True))
    yield Table("Attention and experts on GPUs of their own", columns, pairs, note=note)


def _both(result: ServeResult, found: Disaggregation) -> str:
    other = found.aggregated
    if other is None:
        return ""
    figures = f"{_seconds(other.ttft_s)} TTFT, {_seconds(other.tpot_s)} TPOT"
    return f"{against(result, found)}. All on all replicas: {plural(other.replicas, 'replica')}, {figures}"


def _seconds(value: float | None) -> str:
    return NOT_A_NUMBER if value is None else duration(value)


# Images that GPUs of their own encode.


def encoder_points(result: ServeResult) -> Iterator[Point]:
    """How many GPUs encode images, what a request waits for there, and the service without them."""
    found = result.encoders
    if found is None:
        return
    full = found.queue_s is None
    busy = "which take no more" if full else f"busy {percent(found.utilisation)}"
    queue = "" if found.queue_s is None else f", {duration(found.queue_s)} in the queue"
    parts = f"{duration(found.encode_s)} to encode{queue}"
    sent = f"{byte_size(found.embedding_bytes)} sent {WAY.get(found.path, found.path)} in {duration(found.transfer_s)}"
    holds = f"{byte_size(found.memory.peak_bytes)} each"
    yield Point("Encoders", f"{plural(found.replicas, 'GPU')} for images, {holds}, {busy}: {parts}, {sent}")
    if found.otherwise_gpus is not None and found.otherwise_ttft_s is not None:
        other = f"{plural(found.otherwise_gpus, 'GPU')}, {duration(found.otherwise_ttft_s)} to the first token"
        yield Point("", f"with the encoder in every replica: {other}")


# Sessions that come back to their cache.

BOUND = {
    "memory": "more does not fit the KV cache",
    "positions": "the model has no more positions",
    "max_model_len": "as long as max_model_len",
    "max_sequences": "the engine runs no more at once",
}


def fit_points(result: ServeResult) -> Iterator[Point]:
    """The longest context or the most sessions."""
    found = result.fit
    if found is None:
        return
    parts = f"a prompt of {found.input_tokens:,} and an answer of {found.output_tokens:,}"
    each = f", {found.sessions_per_replica:,} per replica" if found.sessions_per_replica < found.sessions else ""
    sessions = f"{plural(found.sessions, 'session')} at once{each}"
    bound = BOUND.get(found.bound, found.bound)
    if found.question == "context":
        yield Point("Longest", f"{found.tokens:,} tokens ({parts}) in {sessions}: {bound}")
    else:
        yield Point("Most", f"{sessions} of {found.tokens:,} tokens ({parts}): {bound}")


def fit_words(found: Fit | None) -> str:
    """What fits in a cell of a table."""
    if found is None:
        return NOT_A_NUMBER
    return f"{found.tokens:,} tokens" if found.question == "context" else plural(found.sessions, "session")


HERE = "on the GPU"


def sessions_points(result: ServeResult) -> Iterator[Point]:
    """How many returning users find their cache, and what the others wait longer."""
    found = result.session_cache
    yield from _turns_point(result)
    if found is None:
        return
    host = f", of {percent(found.hit_host)} in host memory" if found.host_gib or not result.session_turns else ""
    where = f"the history of {percent(found.hit_gpu)} is on the GPU{host}"
    who, label = ("later turns", "") if result.session_turns else ("users who come back", "Sessions")
    again = f"{percent(found.missed)} compute it again ({duration(found.ttft_missed_s)} to the first token)"
    yield Point(label, f"{who}: {where}, {again}")


def _turns_point(result: ServeResult) -> Iterator[Point]:
    """What of the prompts of growing sessions is found, and how soon their first and last turn begin."""
    found = result.session_turns
    if found is not None:
        share = f"{percent(found.found_share)} of prompt tokens in the prefix cache"
        most = f" (at most {percent(found.history_share)})" if found.history_share - found.found_share >= 0.005 else ""
        cache = f"{share}{most}" if found.cached else "no prefix cache"
        first, last = (duration(turn.ttft_s) for turn in (found.by_turn[0], found.by_turn[-1]))
        times = f"mean time to the first token: {first} in the first turn, {last} in the last"
        yield Point("Sessions", f"{plural(found.turns, 'turn')}, {cache}; {times}")
        if words := _otherwise(result, found):
            yield Point("", words)


def _otherwise(result: ServeResult, found: SessionTurns) -> str:
    """What the service would take without a prefix cache, or with one; empty where that is not known."""
    gpus, rate = found.otherwise_gpus, found.otherwise_requests_per_s
    if gpus is None or rate is None:
        return ""
    beside = "without prefix caching" if found.cached else "with prefix caching"
    if not found.otherwise_meets_limits and result.verdict.ok:
        return f"{beside}, the load or a limit is missed"
    if gpus != result.gpus.count:
        return f"{beside}: {plural(gpus, 'GPU')} instead of {result.gpus.count:,}"
    here, there = (number(rounded(each, down=True)) for each in (result.replicas.max_requests_per_s, rate))
    return f"{beside}: up to {there} requests/s instead of {here}"


def turns_table(result: ServeResult) -> Iterator[Table]:
    """The first, the median and the last turn of a session."""
    found = result.session_turns
    if found is None:
        return
    rows = tuple(
        (
            f"turn {turn.turn}", count(round(turn.prompt_tokens)), count(round(turn.history_tokens)),
            duration(turn.ttft_s), duration(turn.request_s),
        )
        for turn in found.by_turn
    )  # fmt: skip
    columns = (
        Column("of a session"), Column("prompt tokens", True), Column("of them history", True),
        Column("first token, mean", True), Column("whole request, mean", True),
    )  # fmt: skip
    begin = f"{number(found.sessions)} sessions in progress, {number(found.sessions_per_s)} begin per second"
    kept = f"the GPU keeps what nobody uses for {duration(found.kept_s)}"
    note = f"{begin}; {kept}, and a turn follows after {duration(found.gap_s)} in the mean"
    yield Table("Sessions by turn", columns, rows, note=note)


def sessions_table(result: ServeResult) -> Iterator[Table]:
    """Where sessions stay while their users think, and how soon an answer begins then."""
    found = result.session_cache
    if found is None:
        return
    fetched = f"fetched in {duration(found.fetch_s)}, which {duration(found.recompute_s)} would compute"
    size = f"{number(found.host_gib)} GiB a replica: {fetched}"
    kinds = (
        (HERE, found.on_gpu, found.hit_gpu, found.ttft_gpu_s, "beside the requests that run"),
        ("in host memory", found.in_host, found.hit_host, found.ttft_host_s, size),
        ("gone", None, found.missed, found.ttft_missed_s, "computed again"),
    )
    rows = tuple(
        (place, "" if room is None else count(int(room)), percent(share), duration(ttft_s), note)
        for place, room, share, ttft_s, note in kinds
        if room is None or place == HERE or found.host_gib or not result.session_turns
    )
    columns = (Column("their cache is"), Column("room for", True), Column("of those that come back", True),
               Column("first token, mean", True), Column("note"))  # fmt: skip
    waits = "wait for their next turn" if result.session_turns else "wait for their users"
    note = f"{number(found.sessions)} sessions of a replica {waits}"
    yield Table("Sessions that come back", columns, rows, note=note)


# A day: a line of the first screen, and a table of its hours.


def day_points(result: ServeResult) -> Iterator[Point]:
    """What the day takes against the replicas of its peak all day."""
    if result.day is not None:
        yield Point("Day", _words(result.day))
        yield Point(
            "", f"a replica answers {duration(result.day.replica_start_s)} after its start: start it that early"
        )


def _words(day: Day) -> str:
    fewest, most = (pick(hour.replicas for hour in day.hours) for pick in (min, max))
    replicas = f"{fewest:,} to {most:,} replicas" if fewest < most else f"{most:,} replicas at every hour"
    hours = f"{count(round(day.gpu_hours))} instead of {count(round(day.peak_gpu_hours))} GPU hours"
    saved = f" ({percent(1.0 - day.gpu_hours / day.peak_gpu_hours)} less)" if day.gpu_hours < day.peak_gpu_hours else ""
    missed = sum(not hour.meets_limits for hour in day.hours)
    limits = f"; {missed} of {len(day.hours)} hours miss the limits" if missed else ""
    return f"{replicas}, {hours}{saved}{_money(day)}{limits}"


def _money(day: Day) -> str:
    if day.cost is None or day.peak_cost is None:
        return ""
    return f", {amount(day.cost)} instead of {amount(day.peak_cost)} {clean(day.currency)}"


def day_table(result: ServeResult) -> Iterator[Table]:
    """The hours with their load, replicas and latencies."""
    day = result.day
    if day is None:
        return
    times: tuple[Column, ...] = (Column("TTFT", True, spare=1), Column("TPOT", True, spare=1))
    if not result.writes:
        times = (Column("request", True, spare=1),)
    columns = (
        Column("hour"), Column("load", True), Column("requests/s", True, spare=2), Column("replicas", True),
        Column("GPUs", True), *times, Column("limits", spare=3),
    )  # fmt: skip
    rows = tuple(
        (
            f"{hour.hour:02d}:00", number(hour.load), number(hour.requests_per_s), count(hour.replicas),
            count(hour.gpus), *(latency(value) for value in (hour.ttft_s, hour.tpot_s)[: len(times)]),
            "met" if hour.meets_limits else "MISSED",
        )
        for hour in day.hours
    )  # fmt: skip
    most = max(hour.gpus for hour in day.hours)
    shares = tuple(hour.gpus / most for hour in day.hours)
    note = f"{count(round(day.requests))} requests; GPU hours count the start of replicas"
    yield Table("A day", columns, rows, shares, note=note)
