"""The answer to one scenario in one word and one sentence, whatever it asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from xe_sizer.report.answers import reporter
from xe_sizer.report.format import (
    clean,
    estimate_words,
    fit_doubt,
    gib,
    limit_doubts,
    limit_quantity,
    memory_of,
    probability_words,
    says_nothing,
)
from xe_sizer.result.common import (
    DEFAULT_CONFIDENCE,
    DOES_NOT_FIT,
    FITS,
    TIGHT,
    UNSURE,
    UNSURE_MEMORY,
    assumed_hardware,
)
from xe_sizer.result.serving import OVERLOADED, QUEUES, REJECTED, TOO_LONG

if TYPE_CHECKING:
    from xe_sizer.result.common import Ledger, Limit, Reason, Sized, Verdict


CROWDED = {OVERLOADED: "OVERLOADED", QUEUES: "QUEUES", TOO_LONG: "DOES NOT START", REJECTED: "REJECTS REQUESTS"}
"""Words for a service that cannot take what is asked of it, by the code of the reason."""
MEMORY_WORDS = {FITS: "FITS", TIGHT: "TIGHT", DOES_NOT_FIT: "DOES NOT FIT"}
TIGHT_AND_OVER = "OVER"
EVEN = 0.5  # chance above which it more likely fits than not
"""Behind `TIGHT` where the cautious peak is more than there is, so that the answer is a no."""
NO_SUCH_LIMIT = "this kind of job has no such limit"


class Judged(Protocol):
    """An answer with a verdict."""

    @property
    def verdict(self) -> Verdict: ...


class Words(Protocol):
    """How the reporter of a kind of answer speaks of one scenario.

    yes : what to say of what fits and meets its limits, behind the word for its memory; empty where that is all
    subject : what was sized, on what
    outcome : its figures, or why not
    caution : what a reader must know although the answer may be yes, else empty
    pace : name and value of the time that people ask for [s], None where there is none, and how it reads
    pace_range : the range of that time, empty where there is none
    missing_memory : what it lacks, in a few words
    """

    def yes(self, answer: Any) -> str: ...
    def subject(self, answer: Any) -> str: ...
    def outcome(self, answer: Any) -> str: ...
    def caution(self, answer: Any) -> str: ...
    def pace(self, answer: Any) -> tuple[str, float | None, str]: ...
    def pace_range(self, answer: Any) -> str: ...
    def missing_memory(self, answer: Any) -> str: ...


def find_words(answer: Sized) -> Words:
    return cast(Words, reporter(answer.question))


def verdict_word(answer: Sized) -> str:
    """The word for memory, and behind it what became of the load and the limits: `FITS, MISSES LIMITS`."""
    crowded = next((CROWDED[reason.code] for reason in answer.verdict.reasons if reason.code in CROWDED), None)
    return words_of(answer, crowded or find_words(answer).yes(answer))


def words_of(answer: Judged, outcome: str = "") -> str:
    """The word for memory, and what else there is to say of what fits; or that limits are missed.

    outcome : what became of the load where all limits are kept
    """
    verdict = answer.verdict
    missed = "MISSES LIMITS" if not verdict.meets_limits and outcome not in CROWDED.values() else outcome
    over = TIGHT_AND_OVER if is_tight(answer) else ""
    return ", ".join(filter(None, (MEMORY_WORDS[memory_of(verdict)], missed if verdict.fits else over)))


def is_tight(answer: Judged) -> bool:
    """Whether nobody can say if memory suffices."""
    return memory_of(answer.verdict) == TIGHT


def may_run(answer: Judged) -> bool:
    """Whether a time is that of something: the job fits, or is tight and fits more likely than not."""
    chance = answer.verdict.fit_probability
    return answer.verdict.fits or (is_tight(answer) and chance is not None and chance > EVEN)


def tight_words(verdict: Verdict) -> str:
    """What tight means here, and what would settle it; empty for what is not tight."""
    chance = verdict.fit_probability
    if memory_of(verdict) != TIGHT or (chance is None and verdict.fit_certainty == UNSURE):
        return ""  # what turns on the host is said with what it needs
    said = "may not suffice" if chance is None else f"suffices with a probability of {probability_words(chance)}"
    return "; ".join((f"tight: memory {said}", *map(clean, verdict.settled_by)))


def unsure_of_host(answer: Judged) -> bool:
    """Whether it fits only if the host has enough memory, and nobody said how much it has."""
    return answer.verdict.fits and answer.verdict.fit_probability is None and answer.verdict.fit_certainty == UNSURE


def caution(answer: Sized) -> str:
    """What a reader must know although the answer may be yes, in one line."""
    return "; ".join(caution_lines(answer))


def caution_lines(answer: Sized) -> tuple[str, ...]:
    """The same, a line each: of a yes, limits that look mistaken; what stops it, memory, and limits that are not sure.

    Empty where all is sure, and all limits are judged.
    """
    verdict = answer.verdict
    memory = tight_words(verdict) or (fit_doubt(verdict) if answer.ok else "")
    unsure = "; ".join(limit_doubts(verdict)) if answer.ok else ""
    mistaken = map(clean, answer.misread if answer.ok else ())
    names = ", ".join(unjudged(answer))
    passed_over = f"not judged: {names} ({NO_SUCH_LIMIT})" if names else ""
    return tuple(filter(None, (*mistaken, find_words(answer).caution(answer), memory, unsure, passed_over)))


def cautions(answer: Sized) -> str:
    """For answers of which no first screen is shown: assumed hardware, the caution, and limits that look mistaken."""
    assumed = ""
    if assumed_hardware(answer.scenario):
        gpus = f"{answer.gpus.count:,} x {profile_name(answer, 'gpu')}"
        assumed = f"hardware assumed, since the file names none: {gpus}"
    mistaken = () if answer.ok else map(clean, answer.misread)
    return "; ".join(filter(None, (assumed, caution(answer), *mistaken)))


def unjudged(answer: Sized) -> tuple[str, ...]:
    """Limits of the scenario that say nothing of this kind of job, as a deadline says nothing of a service."""
    judged = {limit.name for limit in answer.verdict.limits}
    given, origin = answer.scenario.get("limits") or {}, answer.scenario.get("origin") or {}
    asked = [name for name in given if origin.get(f"limits.{name}") != "default" and name != "confidence"]
    return tuple(clean(name) for name in asked if name not in judged)


def subject(answer: Sized) -> str:
    """What was sized: `LoRA of llama-2-70b on 16 x h100-sxm-80gb (2 x dell-xe9680-h100)`."""
    return find_words(answer).subject(answer)


def outcome(answer: Sized) -> str:
    return find_words(answer).outcome(answer)


def headline(answer: Sized) -> str:
    """Subject and outcome in one line; see `subject` and `outcome`."""
    return f"{subject(answer)}: {outcome(answer)}"


def title(answer: Sized) -> str:
    """The headline of a report whose first screen has the figures: the subject, and why the answer is no."""
    why = outcome(answer) if not answer.verdict.fits else missed_text(answer.verdict, answer.currency)
    return f"{subject(answer)}: {why}" if why else subject(answer)


def unsaid(answer: Sized) -> tuple[str, ...]:
    """Reasons of the verdict below the title of a report: without what the title says, and the change it advises."""
    missed = {limit.name for limit in answer.verdict.limits if not limit.ok}
    return reasons_beyond(answer.verdict, title(answer), missed, {advice.change for advice in answer.advice[:1]})


def reasons_beyond(
    verdict: Verdict, said: str, known: Collection[str] = (), advised: Collection[str] = ()
) -> tuple[str, ...]:
    """Reasons of the verdict, each with its fix, without what is said already.

    said : the line that stands above; known : codes of reasons that it says in words of its own
    advised : changes that stand elsewhere
    """
    texts = []
    for reason in verdict.reasons:
        fix = "" if reason.fix in advised else reason.fix
        if reason.code not in known and clean(reason.message) not in said:
            texts.append(reason_text(msgspec.structs.replace(reason, fix=fix)))
        elif fix:
            texts.append(f"Fix: {clean(fix)}")
    return tuple(texts)


def job_words(scenario: Mapping[str, Any]) -> str:
    """The job and its model: `LoRA of llama-2-70b`."""
    names = scenario.get("names") or {}
    job = str(names.get("job") or scenario.get("job", "training"))
    model = clean(names.get("model") or scenario.get("model") or "the model")
    return f"{clean(job)} of {model}"


PROFILES = ("model", "gpu", "server")
"""Kinds of profiles that a line of CSV names."""


def profile_name(answer: Sized, kind: str) -> str:
    """The name of the model, server or gpu, also where the scenario gives a path; empty where there is none."""
    names = answer.scenario.get("names") or {}
    return clean(names.get(kind) or answer.scenario.get(kind) or "")


def gpu_memory_missing(memory: Ledger) -> str:
    """How much a GPU lacks: `80.0 GiB missing`; empty where it lacks nothing."""
    return f"{gib(-memory.headroom_bytes)} GiB missing" if memory.headroom_bytes < 0 else ""


def missed_limit(limit: Limit, verdict: Verdict, currency: str | None = None) -> str:
    """A limit that does not hold, and how sure it had to be: `max_hours (limit 24 h, estimate 31.5 h)`."""
    allowed = limit_quantity(limit.name, limit.limit, currency)
    figures = f"limit {allowed}, estimate {estimate_words(limit, currency)}"
    return f"{clean(limit.name)} ({figures}){required_words(limit, verdict)}"


def missed_text(verdict: Verdict, currency: str | None = None) -> str:
    """The limits that do not hold, in a few words; empty where all do."""
    missed = [missed_limit(limit, verdict, currency) for limit in verdict.limits if not limit.ok]
    unsure = [clean(reason.message) for reason in verdict.reasons if reason.code == UNSURE_MEMORY]
    return "; ".join([*unsure, *([f"misses {'; '.join(missed)}"] if missed else [])])


def required_words(limit: Limit, verdict: Verdict) -> str:
    """Why a limit is missed that the expected value keeps: more confidence is required."""
    if limit.probability is None or limit.probability < DEFAULT_CONFIDENCE:
        return ""
    asked = probability_words(verdict.confidence)
    return f", met with a probability of {probability_words(limit.probability)}, {asked} required"


def why_text(answer: Sized) -> str:
    """The gravest reason of a no, limits with their units, and what mends it; the headline where there is none."""
    verdict = answer.verdict
    if not verdict.reasons:
        return headline(answer)
    first = verdict.reasons[0]
    if not verdict.fits or first.code == OVERLOADED:
        return reason_text(first)
    missed = missed_text(verdict, answer.currency)
    told = first.code in (QUEUES, TOO_LONG, REJECTED)
    message = "; ".join(filter(None, (first.message if told else "", missed))) or first.message
    return reason_text(msgspec.structs.replace(first, message=message))


def told_limits(verdict: Verdict) -> set[str]:
    """The limits that need no reason of their own: those that the headline names, or of what will never run."""
    return {limit.name for limit in verdict.limits if not limit.ok and (verdict.fits or says_nothing(verdict, limit))}


def reason_text(reason: Reason) -> str:
    fix = f" Fix: {clean(reason.fix)}" if reason.fix else ""
    return f"{clean(reason.message)}{'.' if fix and not reason.message.endswith('.') else ''}{fix}"
