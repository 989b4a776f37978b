"""Numbers and words as people read them. The only place where SI units turn into text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.result.common import (
    CERTAINTIES,
    DEFAULT_CONFIDENCE,
    DOES_NOT_FIT,
    FITS,
    GIVEN_PRICE,
    ONLY_STAGE,
    SURE,
    TIGHT,
)
from xe_sizer.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, three_digits

if TYPE_CHECKING:
    from xe_sizer.result.common import Basis, CostPart, HourlyPrice, Ledger, Limit, Range, Sized, Verdict
    from xe_sizer.result.training import Layout


def round_noun(scenario: Mapping[str, Any]) -> str:
    """What the run counts: an iteration of reinforcement learning, or an optimizer step."""
    return "iteration" if scenario.get("rollout") else "step"


NOT_A_NUMBER = "-"
BEYOND_WORDS = 1e15  # from here on digits in full tell nobody anything
_COUNT_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
_BYTE_UNITS = ((0.1 * GIB, GIB, "GiB"), (0.1 * MIB, MIB, "MiB"), (0.1 * KIB, KIB, "KiB"))
_FLOP_UNITS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"))
_LIMIT_UNITS = {"kw": "kW", "hours": "h", "gib": "GiB"}
_TIME_UNITS = (
    (3 * DAY_S, DAY_S, "d"),
    (90 * MINUTE_S, HOUR_S, "h"),
    (90.0, MINUTE_S, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
)


def clean(value: object) -> str:
    """One line without control characters: what a user named may hold terminal escapes or line ends."""
    return "".join(char if char.isprintable() else " " for char in str(value))


def number(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.0123, 8.14, 75.2, 1,234."""
    if value is None or not math.isfinite(value):
        return NOT_A_NUMBER
    if abs(value) >= BEYOND_WORDS:
        return f"{value:.2e}"
    if value == 0 or float(value).is_integer():
        return f"{value:,.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


def given(value: float) -> str:
    """A number as somebody wrote it, up to nine digits: 114.5, 12,012."""
    return whole(value) if float(value).is_integer() else f"{value:,.9g}"


def whole(value: float | None) -> str:
    """A count in full: 12,012."""
    return NOT_A_NUMBER if value is None else number(float(round(value)) if math.isfinite(value) else value)


def count(value: float) -> str:
    """A count that may be huge: 12,012 stays, 1.4 M, 3.2 B (billions, as the field says)."""
    for size, name in _COUNT_UNITS:
        if size <= abs(value) < BEYOND_WORDS:
            return f"{value / size:.{1 if abs(value) < 100 * size else 0}f} {name}"
    return number(value) if abs(value) < 100 else whole(value)


def _size(value: float) -> str:
    return three_digits(value) if math.isfinite(value) and abs(value) < BEYOND_WORDS else number(value)


def gib(value_bytes: float) -> str:
    """GiB without the unit, three significant digits."""
    return _size(value_bytes / GIB)


def flops(value: float) -> str:
    """Floating-point operations in the unit that fits them: 1.23 TFLOP, 45.6 GFLOP; a dash for none."""
    for size, name in _FLOP_UNITS:
        if value >= size:
            return f"{_size(value / size)} {name}"
    return f"{whole(value)} FLOP" if value else NOT_A_NUMBER


def byte_size(value_bytes: float) -> str:
    """A size in the unit that fits it: 18.4 GiB, 1.05 GiB, 52.0 MiB."""
    for threshold, unit_bytes, name in _BYTE_UNITS:
        if abs(value_bytes) >= threshold:
            return f"{_size(value_bytes / unit_bytes)} {name}"
    return f"{whole(value_bytes)} B"


def limit_quantity(name: str, value: float | None, currency: str | None = None) -> str:
    """What a limit allows, or what became of it, in the unit that its name says: 24 h, 184 ms, 2.00 GiB, 0.593 USD."""
    if value is None or not math.isfinite(value):
        return "unknown"
    last = name.rpartition("_")[2]
    if last == "s":
        return duration(value)
    if last == "hours" and time_unit(value * HOUR_S)[0] > HOUR_S:  # as the time of the job is said
        return f"{number(value)} h ({duration(value * HOUR_S)})"
    if "cost" in name:
        return f"{number(value)} {clean(currency)}".rstrip() if currency else number(value)
    return " ".join((number(value), *((_LIMIT_UNITS[last],) if last in _LIMIT_UNITS else ())))


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that fits a time: its seconds, and its name."""
    for threshold, unit_s, name in _TIME_UNITS:
        if abs(seconds) >= threshold:
            return unit_s, name
    return 1e-6, "µs"


def _in_unit(value: float) -> str:
    if not math.isfinite(value) or abs(value) >= BEYOND_WORDS:
        return number(value)
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}" if abs(value) >= 0.95 else number(value)


def duration(seconds: float) -> str:
    """A time in the unit that fits it: 350 ms, 12.3 s, 42.0 min, 8.1 h, 5.2 d."""
    if seconds == 0:
        return "0 s"
    unit_s, name = time_unit(seconds)
    return f"{_in_unit(seconds / unit_s)} {name}"


def duration_range(span: Range) -> str:
    """Low to high in the unit of the expected value: 6.9 to 9.9 h."""
    unit_s, name = time_unit(span.expected)
    return f"{_in_unit(span.low / unit_s)} to {_in_unit(span.high / unit_s)} {name}"


def value_range(low: float, high: float, text: Callable[[float], str] = number) -> str:
    return f"{text(low)} to {text(high)}"


def amount(value: float) -> str:
    """Money without the currency: cents below 100."""
    return f"{value:,.2f}" if abs(value) < 100 else whole(value)


def offer_words(price: HourlyPrice) -> str:
    """How a price is meant: `on-demand, us-east-1, 2026-09-24`, or that the user gave it."""
    if price.kind == GIVEN_PRICE:
        return "as given"
    if (own := price.own) is not None:
        words = f"{price.kind}, {money(own.capex, price.currency)} each over {given(own.years)} years"
        words += f" at {percent(own.utilisation)} use"
        words += ", without electricity" if own.kwh_price is None else ""
        return f"{words}, priced {clean(own.date)}" if own.date else words
    return ", ".join(clean(part) for part in (price.kind or "kind unknown", price.region, price.date) if part)


def offer_cells(price: HourlyPrice | None) -> dict[str, str | None]:
    """The same as columns of a CSV file."""
    return {f"price_{name}": getattr(price, name, None) for name in ("kind", "date", "region")}


def hourly_words(price: HourlyPrice) -> str:
    """What an hour costs, and how that is meant: `55.04 USD an hour (on-demand, us-east-1, 2026-09-24)`."""
    return f"{money(price.per_hour, price.currency)} an hour ({offer_words(price)})"


def price_words(price: HourlyPrice | None) -> Iterator[str]:
    """What an hour of the hardware costs, where the user did not give the price."""
    if price is not None and price.kind != GIVEN_PRICE:
        yield f"{clean(price.hardware)} at {hourly_words(price)}"


def part_words(parts: Sequence[CostPart]) -> Iterator[str]:
    """What a cost is made of: `70 % capital, 20 % electricity, 10 % staff`; nothing of one that has no parts."""
    total = sum(part.value for part in parts)
    if len(parts) > 1 and total > 0:
        yield ", ".join(f"{percent(part.value / total)} {clean(part.name)}" for part in parts)


def electricity_words(value: float | None, currency: str | None, parts: Sequence[CostPart], priced: bool) -> str:
    """The cost of electricity where it is no part of the price that is shown; else empty."""
    if value is None or parts:
        return ""
    return f"electricity {money(value, currency)} ({'in the price' if priced else 'hardware not priced'})"


def money(value: float | None, currency: str | None) -> str:
    """An amount with its currency: 1,234 USD; a dash where there is none."""
    return NOT_A_NUMBER if value is None else f"{amount(value)} {clean(currency)}"


def percent(share: float) -> str:
    """A fraction as per cent: 24 %, 3.4 %, 0.02 %, <0.01 %."""
    value = 100 * share
    if not math.isfinite(value):
        return NOT_A_NUMBER
    if 0 < value < 0.005:
        return "<0.01 %"
    decimals = 0 if abs(value) >= 9.95 or value == 0 else 1 if abs(value) >= 0.095 else 2
    return f"{value:.{decimals}f} %"


def ratio(value: float) -> str:
    """A factor: x0.44, x2.00."""
    return f"x{value:.2f}"


def plural(how_many: int, noun: str) -> str:
    return f"{how_many:,} {noun}" if how_many == 1 else f"{how_many:,} {noun}s"


# Certainty in words: ranges and what they rest on, limits and how sure they are met.

RANGE = "80 % range"
NOT_JUDGED = "not judged, as it does not fit"
WHATEVER_FITS = frozenset({"max_gpus", "min_headroom_gib"})  # limits on what is known of a job that does not fit too
UNBOUNDED = "unbounded"


def spanned(span: Range, calibrated: bool = True) -> str:
    """A time with its range: `3.0 h (80 % range 2.8 to 4.6 h)`."""
    words = RANGE if calibrated else "uncalibrated range"
    return f"{duration(span.expected)} ({words} {duration_range(span)})"


def range_words(evidence: str, calibrated: bool, basis: Basis | None = None) -> tuple[str, str]:
    """The name of a column of ranges, and the note that says what they rest on and which way the runs were off."""
    rests_on = clean(evidence).removeprefix("uncalibrated: ")
    name, note = (RANGE, f"{RANGE}: {rests_on}.") if calibrated else (f"{RANGE} *", f"* uncalibrated: {rests_on}.")
    return name, "\n".join(filter(None, (note, bias_words(basis))))


def unseen_words(basis: Basis | None) -> str:
    """Whose runs the range is taken from where none with the software says enough; empty elsewhere."""
    if basis is None or not basis.unseen_software:
        return ""
    others = f"those with {clean(basis.software)}, its nearest relative" if basis.software else "those of all others"
    unseen = clean(basis.unseen_software)
    return f"Too few published runs with {unseen}: the range is that of {others} ({plural(basis.runs, 'run')})."


CONDITIONS = {
    "train.seq_len": "lengths", "train.padding": "padding", "precision": "precision", "attention": "attention kernel",
    "loss": "loss kernel", "optimizer": "optimizer", "serve.input_tokens": "lengths",
    "serve.input_spread": "spread of lengths", "serve.kv_cache": "format of the cache",
    "serve.max_step_tokens": "tokens of a step",
}  # fmt: skip
"""Keys on which times turn, in words."""
SEVERAL = 4  # chosen: of them that a sentence names


def unstated(scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """Conditions on which times turn and that a scenario leaves to its software, in words."""
    origin = scenario.get("origin") or {}
    software = str((scenario.get("serve") or {}).get("engine") or scenario.get("stack") or "")
    left = (words for key, words in CONDITIONS.items() if origin.get(key) in ("stack", "default"))
    return (*(() if "@" in software else ("release",)), *left)


def bias_words(basis: Basis | None, scenario: Mapping[str, Any] | None = None) -> str:
    """How far the runs of the same software were off, in one sentence; empty where they were not.

    scenario : the job, of which it is said what may decide and is not stated; None: not said
    """
    measured = (
        f"Kernels were measured on your machine, {clean(basis.measured_on)}." if basis and basis.measured_on else ""
    )
    if basis is None or basis.bias is None:
        return measured
    bias = basis.bias
    seen = f"{plural(bias.runs, 'run')}, {plural(bias.publications, 'publication')}"
    took = f"took {bias.fastest:.1f} to {bias.slowest:.1f} times the prediction ({seen}); conditions decide"
    if scenario is not None:
        left = unstated(scenario)
        more = f" and {len(left) - SEVERAL} more" if len(left) > SEVERAL else ""
        told = f"this job does not state: {', '.join(left[:SEVERAL])}{more}" if left else ""
        took += f", which {told or 'no job states: host, network, drivers'}"
    return f"{measured} Published runs with the {clean(basis.software)} stack {took}.".lstrip()


def biases_words(bases: Sequence[Basis]) -> str:
    """The same of jobs with several kinds of software."""
    said = []
    for basis in bases:
        if basis.bias is not None:
            seen = f"{plural(basis.bias.runs, 'run')}, {plural(basis.bias.publications, 'publication')}"
            said.append(f"{basis.bias.fastest:.1f} to {basis.bias.slowest:.1f} with {clean(basis.software)} ({seen})")
    return f"Published runs took so many times the prediction: {', '.join(said)}; conditions decide."


def outcome_words(limit: Limit, chance: bool = True) -> str:
    """What became of a limit: met, `met, unsure (68 %, range to 70 h)` where the range's end misses it, or MISSED.

    A limit that the estimate keeps, and not as surely as is required, is `NOT SURE ENOUGH`.

    chance : whether to say the probability here
    """
    if limit.ok and limit.certainty == "bound":
        return "met at best"
    word = "met" if limit.ok else "MISSED"
    if not limit.ok and limit.probability is not None and limit.probability >= DEFAULT_CONFIDENCE:
        word = "NOT SURE ENOUGH"
    doubtful = limit.low is not None and limit.certainty != SURE and (limit.ok or limit.certainty != "unlikely")
    if not doubtful:
        return word
    share = f"{probability_words(limit.probability)}, " if chance and limit.probability is not None else ""
    if (limit.probability or 0.0) >= CERTAINTIES[SURE]:
        share = "not tested by such runs, "
    # The end of the range that misses the limit: the upper one, but for what must be left free.
    low, high = (limit_quantity(limit.name, end) for end in (limit.low, limit.high))
    end = f"range down to {low}" if limit.name.startswith("min_") else f"range to {high}"
    return f"{word}, {clean(limit.certainty)} ({share}{end})"


def probability_words(probability: float) -> str:
    """A probability in per cent, of which nobody is quite sure: 78 %, >99 %, <1 %."""
    if 0.01 <= probability <= 0.99:
        return f"{100 * probability:.0f} %"
    return ">99 %" if probability > 0.5 else "<1 %"


def memory_of(verdict: Verdict) -> str:
    """The word for memory; results of older versions have a margin in its place."""
    if verdict.memory:
        return verdict.memory
    return DOES_NOT_FIT if not verdict.fits else TIGHT if verdict.margin == TIGHT else FITS


def says_nothing(verdict: Verdict, limit: Limit) -> bool:
    """Whether a limit is on the time or the price of what will never run, as it does not fit."""
    return not verdict.fits and limit.name not in WHATEVER_FITS


def limit_words(verdict: Verdict, limit: Limit, currency: str | None = None) -> str:
    """One limit with what became of it: `max_hours 24 h, estimate 16 h: met, probability 98 %`."""
    allowed = limit_quantity(limit.name, limit.limit, currency)
    if says_nothing(verdict, limit):
        return f"{clean(limit.name)} {allowed}: {NOT_JUDGED}"
    text = f"{clean(limit.name)} {allowed}, estimate {estimate_words(limit, currency)}: {outcome_words(limit)}"
    exact = limit.probability is None or limit.low is None or probability_words(limit.probability) in text
    return text if exact else f"{text}, probability {probability_words(limit.probability or 0.0)}"


def estimate_words(limit: Limit, currency: str | None = None) -> str:
    """The value that a limit is compared with; `unbounded` where it is known that nothing bounds it."""
    endless = limit.value is None and limit.probability == 0.0
    return UNBOUNDED if endless else limit_quantity(limit.name, limit.value, currency)


def limit_doubts(verdict: Verdict) -> tuple[str, ...]:
    """Limits that are kept and not for sure, each in a few words."""
    return tuple(
        f"{clean(limit.name)} {outcome_words(limit)}"
        for limit in verdict.limits
        if limit.ok and outcome_words(limit) != "met"
    )


def fit_doubt(verdict: Verdict) -> str:
    """How sure memory suffices, `fits, likely (83 %)` or `tight (62 %)`; nothing where it is sure or nobody can say."""
    chance, memory = verdict.fit_probability, memory_of(verdict)
    if chance is None or verdict.fit_certainty in ("", SURE) or memory == DOES_NOT_FIT:
        return ""
    sure = f", {clean(verdict.fit_certainty)}" if memory == FITS else ""
    return f"{memory}{sure} ({probability_words(chance)})"


# Parts of memory, in words that fit the accelerator.

# The ledger speaks of NVIDIA's software; other vendors have the same parts under other names.
_MONITORS = {"NVIDIA": "nvidia-smi", "AMD": "rocm-smi"}
_WITHOUT_VENDOR = {"CUDA context": "device context", "NCCL buffers": "collective library buffers"}


def component_name(result: Sized, name: str) -> str:
    """A component of the memory ledger; results that do not know the vendor keep the ledger's word."""
    names = result.scenario.get("names") or {}
    return clean(name if names.get("vendor", "NVIDIA") == "NVIDIA" else _WITHOUT_VENDOR.get(name, name))


def memory_place(memory: Ledger, moment: str) -> str:
    """Which GPU is the fullest and at which moment; without a pipeline it is any of them."""
    return clean(moment if memory.gpu == ONLY_STAGE else f"{memory.gpu}, {moment}")


def monitor_name(result: Sized) -> str:
    """What shows the memory of the whole card."""
    names = result.scenario.get("names") or {}
    return _MONITORS.get(str(names.get("vendor", "NVIDIA")), "the vendor's monitor")


# Layouts.


def _zero_words(layout: Layout) -> str:
    """The ZeRO stage, which somebody asked for where one rank has nothing to share and offloads nothing."""
    if layout.dp * layout.cp == 1:
        return f"ZeRO {layout.zero} without effect (dp 1)"
    return f"ZeRO {layout.zero}" + (f" over {layout.zero_group}" if layout.zero_group else "")


def layout_words(layout: Layout) -> str:
    """A layout in a few words: sizes that are more than one, and what is not usual."""
    alone = layout.dp * layout.cp == 1  # with nothing to share: then the stage says what of the states is offloaded
    pipeline = f"pp {layout.pp}" + (f" x {layout.vpp} chunks" if layout.vpp > 1 else "")
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "cp", "ep") if getattr(layout, name) > 1]
    sizes += [pipeline] if layout.pp > 1 else []
    sizes += [f"dp {layout.dp}"] if layout.dp > 1 else []
    sizes += [_zero_words(layout)] if layout.zero and not (alone and layout.offload != "none") else []
    sizes += [f"micro-batch {layout.micro_batch}"]
    sizes += [f"{layout.recompute} recompute"] if layout.recompute != "none" else []
    offloads = f"{layout.offload} offloaded" + (f" as in ZeRO {layout.zero}" if alone and layout.zero else "")
    sizes += [offloads] if layout.offload != "none" else []
    sizes += [layout.schedule] if layout.schedule != "1f1b" else []
    return ", ".join(sizes)


# Signs that an encoding cannot hold.

_TO_ASCII = str.maketrans(
    {
        "└": "+", "█": "#", "▌": "+", "░": ".", "│": "|", "─": "-", "━": "=", "×": "x", "·": "*", "●": "*", "–": "-",
        "—": "-", "…": "...", "≤": "<=", "≥": ">=", "²": "^2", "√": "sqrt", "µ": "u", "μ": "u", "‘": "'", "’": "'",
        "“": '"', "”": '"', "✅": "[yes]", "⚠": "[caution]", "\ufe0f": "", "❌": "[no]", "\u200b": "",
    }
)  # fmt: skip


def encodable(text: str, encoding: str) -> str:
    """`text` as it is where `encoding` can hold it, else with the nearest ASCII signs."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
    return text
