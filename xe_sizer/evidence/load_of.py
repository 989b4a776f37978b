"""The load of a record of inference: its requests, when they come, and how long they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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
REQUESTS_AT_A_RATE = 1000
"""Default of the engines' own benchmark commands (vLLM's bench serve and SGLang's bench_serving, num-prompts)."""
SCRIPT_MEAN = 0.9
"""Of a length of which a script draws 0.8 to 1, evenly: InferenceX's benchmark_serving.py, random-range-ratio."""
SCRIPT_SPREAD = 0.2 / 12**0.5 / SCRIPT_MEAN
LEAST_TOKENS = 1e-3
LOADS = ("sequences", "concurrency", "requests", "request_rate")


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
    _lengths("input", "prompts", record.input_len, CHAT_INPUT_TOKENS, flags)
    _lengths("output", "answers", record.output_len, CHAT_OUTPUT_TOKENS, flags)


def _requests(record: Record, flags: Flags) -> None:
    stated = record.requests or (None if record.concurrency or record.request_rate else record.sequences)
    if stated:
        flags.put("serve.requests", stated)
    elif record.concurrency:
        requests = REQUESTS_OF_A_CLIENT * record.concurrency
        flags.put("serve.requests", requests, f"{requests} requests, {REQUESTS_OF_A_CLIENT} of each client: not stated")
    elif record.request_rate:
        flags.put("serve.requests", REQUESTS_AT_A_RATE, f"{REQUESTS_AT_A_RATE} requests: not stated")


def _lengths(key: str, words: str, mean: float | None, chat: float, flags: Flags) -> None:
    """Mean and spread of prompts or answers: a mean that is no whole number is of lengths that differ."""
    if mean is None:
        flags.put(f"serve.{key}_tokens", chat, f"{words} of {chat:.0f} tokens, as in chats: length not stated")
        flags.put(f"serve.{key}_spread", CHAT_SPREAD)
        return
    flags.put(f"serve.{key}_tokens", mean)
    named = mean / SCRIPT_MEAN
    if mean == round(mean):
        return
    if abs(named - round(named)) < LEAST_TOKENS:
        text = f"{words} of {0.8 * named:g} to {named:g} tokens, drawn evenly: the mean is 0.9 of a whole number"
        flags.put(f"serve.{key}_spread", SCRIPT_SPREAD, text)
    else:
        text = f"{words} that spread by {CHAT_SPREAD:g} of their mean, as in chats: the mean is no whole number"
        flags.put(f"serve.{key}_spread", CHAT_SPREAD, text)
