"""The load of a service, where a file holds a benchmark of it: lengths, concurrency or rate, number of requests.

Flags: vLLM `vllm bench serve` and benchmark_serving.py, SGLang `bench_serving`, genai-perf and aiperf, and the
functions of InferenceX's benchmark_lib.sh.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service_commands import not_set
from xe_sizer.importers.readers.shell import flags_of, unwrapped
from xe_sizer.importers.values import above_zero, positive, positive_or_open
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.shell import Command, Word

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "serve.input_tokens": (
        "random_input_len", "input_len", "random_input", "isl", "synthetic_input_tokens_mean", "input_tokens",
    ),
    "serve.output_tokens": (
        "random_output_len", "output_len", "random_output", "osl", "output_tokens_mean", "synthetic_output_tokens_mean",
        "output_tokens",
    ),
    "serve.concurrency": ("max_concurrency", "concurrency", "conc"),
    "serve.request_rate": ("request_rate", "req_rate"),
    "serve.requests": ("num_prompts", "num_prompt", "request_count", "num_requests"),
}  # fmt: skip
_BENCHMARKS = re.compile(
    r"run_benchmark_serving|(?:.*/)?benchmark_serving(?:_multi_turn)?\.py|sglang\.bench_serving|(?:.*/)?bench_serving\.py"
    r"|genai-perf|aiperf|vllm\.entrypoints\.cli\.benchmark.*|(?:.*/)?benchmark_throughput\.py|guidellm"
)
_OF_LENGTHS = ("random_range_ratio", "range_ratio")
_DATASETS = ("dataset_name", "dataset_path", "dataset")
_MADE_UP = ("random", "random-ids", "synthetic", "")


def benchmark_keys(commands: Iterable[Command]) -> dict[str, Written]:
    """Arguments of the first benchmark of a service that commands run, each with `benchmark.` in front."""
    for words in _benchmarks(commands):
        found: dict[str, Written] = {}
        for name, flag in flags_of(words).flags.items():
            text = " ".join(value.text for value in flag.values)
            unknown = [each for value in flag.values for each in value.unknown]
            where = flag.values[0].where if flag.values else flag.where
            value: object = not_set(text, unknown) if unknown else text if flag.values else True
            found[f"benchmark.{name}"] = Written(value, where)
        return found
    return {}


def _benchmarks(commands: Iterable[Command]) -> Iterator[Sequence[Word]]:
    for command in commands:
        words = unwrapped(command).command.words
        first = words[0].text
        if _BENCHMARKS.fullmatch(first):
            yield words[1:]
        elif first.rpartition("/")[2] == "vllm" and [word.text for word in words[1:3]] == ["bench", "serve"]:
            yield words[3:]


def state_load(draft: Draft, given: Mapping[str, str]) -> None:
    """State the load that the keys below `benchmark.` say.

    Of a rate and a concurrency the rate is taken where both are given; a list of concurrencies is a sweep, of which
    the first is read, or the one that is passed as `--set concurrency=N`.
    """
    for key, names in _FLAGS.items():
        if key == "serve.concurrency":
            continue
        written = draft.take(*(f"benchmark.{name}" for name in names))
        if written is not None and not _is_all_at_once(written.value):
            read = above_zero if key == "serve.request_rate" else positive_or_open
            draft.state(key, draft.value(written, read), written)
    _concurrency(draft, given)
    _requests(draft)
    lengths = draft.peek(*(f"benchmark.{name}" for name in _OF_LENGTHS))
    if lengths is not None and str(lengths.value) not in ("0", "0.0", "1", "1.0"):
        name = next(name for name in (f"benchmark.{each}" for each in _OF_LENGTHS) if name in draft.keys)
        draft.lose(name, "draws every length from a range below or around the given one")
    data = next((f"benchmark.{name}" for name in _DATASETS if f"benchmark.{name}" in draft.keys), None)
    if (
        data is not None
        and str(draft.keys[data].value).lower() not in _MADE_UP
        and "serve.input_tokens" not in draft.facts
    ):
        draft.lose(data, "has lengths of its own; pass --input-tokens and --output-tokens")
    draft.count("benchmark.*")


def _requests(draft: Draft) -> None:
    """The number of requests as a multiple of those in flight."""
    times, flight = draft.take("benchmark.num_prompts_mult"), draft.facts.get("serve.concurrency")
    factor = draft.value(times, positive) if times is not None else None
    if times is not None and isinstance(factor, int) and flight is not None and isinstance(flight.value, int):
        draft.state("serve.requests", factor * flight.value, times, f"{factor} for each that is in flight")


def _is_all_at_once(value: object) -> bool:
    return str(value).strip().lower() in ("inf", "infinity", "")


def _concurrency(draft: Draft, given: Mapping[str, str]) -> None:
    name = next(
        (each for each in ("benchmark.max_concurrency", "benchmark.concurrency", "benchmark.conc",
                           "benchmark.concurrencies") if each in draft.keys),
        None,
    )  # fmt: skip
    written = draft.take(name) if name else None
    if written is None or name is None:
        return
    if "serve.request_rate" in draft.facts:
        draft.lose(name, "bounds the requests in flight beside the rate")
        return
    sweep = draft.value(written, _numbers)
    if not isinstance(sweep, list) or not sweep:
        draft.lose(name, "not read: no number of requests in flight")
        return
    asked = given.get("concurrency", "")
    value = int(asked) if asked.isdigit() and int(asked) in sweep else sweep[0]
    others = ", ".join(str(each) for each in sweep if each != value)
    note = f"of a sweep; --set concurrency=N takes another of {others}" if others else ""
    draft.state("serve.concurrency", value, written, note)


def _numbers(value: object) -> list[int]:
    """Concurrencies as lists, `4x8x16` and `4 8 16` have them."""
    parts = value if isinstance(value, list | tuple) else re.split(r"[x,\s]+", str(value).strip(" []"))
    return [found for part in parts if (found := positive(part)) is not None]
