"""The load of a record of inference: its requests, when they come, and how long they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from xe_sizer.frozen import frozen
from xe_sizer.serving.traffic import even_spread
from xe_sizer.software.engine import load_engine

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import Flags
    from xe_sizer.evidence.records import Record

CHAT_INPUT_TOKENS, CHAT_OUTPUT_TOKENS = 240.0, 230.0
"""Where a source says nothing of lengths: conversations of ShareGPT, whose prompts and answers have such means."""
CHAT_SPREAD = 0.8
"""Standard deviation over mean of lengths that nobody fixed: 0.7 to 1 in ShareGPT and OpenOrca."""
REQUESTS_OF_A_CLIENT = 10
"""As common scripts around the engines' benchmarks set it: assumed where a source does not say."""
FEW_OF_A_CLIENT = 3
"""As few as tests have; the other end is a load that runs on."""
REQUESTS_AT_A_RATE = 1000
"""Default of the engines' own benchmark commands (vLLM's bench serve and SGLang's bench_serving, num-prompts)."""
REQUESTS_ASSUMED = f"{REQUESTS_AT_A_RATE} requests: not stated"
SCRIPT_MEAN = 0.9
"""Of a length of which a script draws 0.8 to 1, evenly: InferenceX's benchmark_serving.py, random-range-ratio."""
DRAWN_MEANS = (SCRIPT_MEAN, 0.5)
"""Of the longest length; half of it where 0 to 1 are drawn: SGLang's bench_serving, whose random-range-ratio is 0."""
DRAWN_MARGIN = 0.02
"""How far the mean of some hundred drawn lengths may lie from that of all of them, over the longest."""
FIXED_SHARE = 0.97
"""Of the longest length, from which on all are as long: cut from text, or with few that fail, they lose some."""
ROUND_TOKENS, LITTLE_LESS = (128, 500), 0.002
"""Lengths that people ask for are multiples of these; tools divide what they counted, which is a little less."""
LEAST_TOKENS = 1e-3
LOADS = ("sequences", "concurrency", "requests", "request_rate")


@frozen(eq=True)
class Lengths:
    """Prompts or answers of a record.

    mean : tokens; spread : standard deviation over mean; longest : of them, infinite where none is known [tokens]
    assumed : in words; None where all is stated
    """

    mean: float
    spread: float = 0.0
    longest: float = math.inf
    assumed: str | None = None


def load_of(record: Record, flags: Flags) -> None:
    """Batch, concurrency or rate as stated, with the requests of the test; else as much as a replica takes.

    The beams of a request are sequences of their own, each with the prompt.
    """
    beams = record.beams or 1
    if beams > 1:
        flags.assumed.append(f"the {beams} beams of a request as {beams} requests, each with the prompt")
        scaled = {key: value * beams for key in LOADS if (value := getattr(record, key)) is not None}
        record = msgspec.structs.replace(record, **scaled)
    flags.put("serve.concurrency", record.concurrency)
    flags.put("serve.request_rate", record.request_rate)
    if record.sequences and load_engine(flags.values["serve.engine"]).batching.batching == "static":
        flags.put("serve.batch", record.sequences)
    else:
        _requests(record, flags)
    flags.put("serve.images", record.images)
    flags.put("serve.image_size", record.image_size if record.images else None)
    for key, lengths in (("input", prompts_of(record)), ("output", answers_of(record))):
        flags.put(f"serve.{key}_tokens", lengths.mean, lengths.assumed)
        flags.put(f"serve.{key}_spread", lengths.spread or None)


def _requests(record: Record, flags: Flags) -> None:
    """Requests of the test; a load that clients measure in a window runs on."""
    stated = record.requests or (None if record.concurrency or record.request_rate else record.sequences)
    if stated or record.window_s:
        flags.put("serve.requests", stated)
    elif record.concurrency:
        requests = REQUESTS_OF_A_CLIENT * record.concurrency
        flags.put("serve.requests", requests, f"{requests} requests, {REQUESTS_OF_A_CLIENT} of each client: not stated")
    elif record.request_rate:
        flags.put("serve.requests", REQUESTS_AT_A_RATE, REQUESTS_ASSUMED)


def other_requests(record: Record) -> tuple[int | None, ...]:
    """How many requests a test with clients may have had too where nobody says it; None: it runs on."""
    if not record.concurrency or record.requests or record.window_s:
        return ()
    return FEW_OF_A_CLIENT * record.concurrency * (record.beams or 1), None


def prompts_of(record: Record) -> Lengths:
    """Tokens of the prompts, without those of images."""
    return _lengths("prompts", record.input_len, record.input_spread, record.max_prompt_len, CHAT_INPUT_TOKENS)


def answers_of(record: Record) -> Lengths:
    """Tokens of the answers."""
    return _lengths("answers", record.output_len, record.output_spread, record.max_output_len, CHAT_OUTPUT_TOKENS)


def _lengths(words: str, mean: float | None, spread: float | None, most: int | None, chat: float) -> Lengths:
    """What is stated of lengths, and what their mean says of the rest.

    A mean next to the longest length, or a whole or nearly round one, is of lengths that are all alike; one of half or
    0.9 of the longest is of an even draw. Other lengths spread as in chats, up to the longest.
    """
    if mean is None:
        text = f"{words} of {chat:.0f} tokens, as in chats: length not stated"
        return Lengths(chat, CHAT_SPREAD if spread is None else spread, _longest(most, chat), text)
    longest = _longest(most, mean)
    capped = math.isfinite(longest)
    if spread is not None:
        return Lengths(mean, spread, longest)
    if mean >= FIXED_SHARE * longest if capped else _is_round(mean):
        return Lengths(mean)
    for share in DRAWN_MEANS if capped else (SCRIPT_MEAN,):
        end = longest if capped else float(round(mean / share))
        if abs(mean - share * end) < (DRAWN_MARGIN * end if capped else share * LEAST_TOKENS):
            text = f"{words} of {max(2 * mean - end, 1):g} to {end:g} tokens, drawn evenly: the mean is {share:g} of "
            return Lengths(mean, even_spread(mean, end), end, text + ("the longest" if capped else "a whole number"))
    text = f"{words} that spread by {CHAT_SPREAD:g} of their mean, as in chats"
    return Lengths(mean, CHAT_SPREAD, longest, text + ("" if capped else ": the mean is no whole number"))


def _longest(most: int | None, mean: float) -> float:
    """The longest length; infinite where none is stated, or one that the mean is above [tokens]."""
    return float(most) if most and most >= mean else math.inf


def _is_round(mean: float) -> bool:
    """Whether a mean is a whole number, or that of lengths that were asked for and came out a little shorter."""
    return mean == round(mean) or any(-mean % each < max(0.5, LITTLE_LESS * mean) for each in ROUND_TOKENS)
