"""How sure an answer is, in words: ranges and what they rest on, limits and how sure they are met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.report.format import clean, duration, duration_range, limit_quantity, plural
from xe_sizer.result.common import DEFAULT_CONFIDENCE, SETS_RANGE, SURE

if TYPE_CHECKING:
    from xe_sizer.result.common import Basis, Limit, Range, Verdict

RANGE = "80 % range"
NOT_JUDGED = "not judged, as it does not fit"
WHATEVER_FITS = frozenset({"max_gpus", "min_headroom_gib"})  # limits on what is known of a job that does not fit too
UNBOUNDED = "unbounded"
CLOSE = 0.25
"""Probability to fit from which a no is a close one: chosen."""
CLOSE_WORDS = "close: inside the error of the memory model; a smaller change may do"


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
    return f"No published run with {unseen} says enough: the range is that of {others} ({plural(basis.runs, 'run')})."


def bias_words(basis: Basis | None) -> str:
    """Which way the runs of the same software were off, in one sentence; empty where they were not."""
    if basis is None or basis.bias is None:
        return ""
    bias = basis.bias
    far = f", and one in ten {bias.slowest:.1f} times or more" if bias.slowest > bias.median else ""
    few = ": too few to set the range" if bias.publications < SETS_RANGE else "; conditions differ"
    seen = f"{plural(bias.runs, 'run')}, {plural(bias.publications, 'publication')}{few}"
    longer = f"{bias.median:.1f} times as long as predicted in the median{far}"
    return f"Published runs with the {clean(basis.software)} stack took {longer} ({seen})."


def middle_word(basis: Basis | None) -> str:
    """What the value between the ends of a range is called: `predicted` where a sentence says how far runs were off."""
    return "expected" if basis is None or basis.bias is None else "predicted"


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
    return f"{word}, {clean(limit.certainty)} ({share}{_far_end(limit)})"


def probability_words(probability: float) -> str:
    """A probability in per cent, of which nobody is quite sure: 78 %, >99 %, <1 %."""
    if 0.01 <= probability <= 0.99:
        return f"{100 * probability:.0f} %"
    return ">99 %" if probability > 0.5 else "<1 %"


def is_close(verdict: Verdict) -> bool:
    """Whether the answer is a no that the error of the memory model could turn."""
    return not verdict.fits and (verdict.fit_probability or 0.0) >= CLOSE


def close_words(verdict: Verdict) -> str:
    """How sure a close no is, in a few words; empty for any other answer."""
    return f"close: fits with {probability_words(verdict.fit_probability or 0.0)}" if is_close(verdict) else ""


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


def doubts(verdict: Verdict) -> tuple[str, ...]:
    """What is a yes and not sure, each in a few words: memory and limits below the same probability."""
    limits = (
        f"{clean(limit.name)} {outcome_words(limit)}"
        for limit in verdict.limits
        if limit.ok and outcome_words(limit) != "met"
    )
    return (*fit_doubt(verdict), *limits)


def fit_doubt(verdict: Verdict) -> tuple[str, ...]:
    """That memory fits and how sure, `fits, unsure (67 %)`; nothing where it is sure or nobody can say."""
    chance = verdict.fit_probability
    if not verdict.fits or chance is None or verdict.fit_certainty in ("", SURE):
        return ()
    return (f"fits, {clean(verdict.fit_certainty)} ({probability_words(chance)})",)


def _far_end(limit: Limit) -> str:
    """The end of the range that misses the limit: the upper one, but for what must be left free."""
    low, high = (limit_quantity(limit.name, end) for end in (limit.low, limit.high))
    return f"range down to {low}" if limit.name.startswith("min_") else f"range to {high}"
