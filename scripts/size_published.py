"""Size published replicas for a multiple of their load: python scripts/size_published.py FILE...

Each is asked for as a user would: engine, card, placement and lengths as published, a multiple of the clients, and its
latencies as limits, with a tenth of headroom. As many replicas as the load is times its own are exact. They are chosen
without a look at what was measured: of every engine, card and model with several loads the middle one, evenly of all.
Publications that are held out stay out.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from held_out import record_held_out

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import Record, read_records
from xe_sizer.evidence.serving_scenario import build_inference
from xe_sizer.result.common import SURE
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.search import size
from xe_sizer.serving.summary import summarise
from xe_sizer.units import MILLI

MEDIAN = 50
SEVERAL = 4  # loads of a kind
HEADROOM = 1.1  # chosen: a limit at the very latency would be kept by chance


def replicas(records: Iterable[Record], count: int) -> list[Record]:
    """Published replicas with clients and both latencies: the middle load of each kind, evenly of all kinds."""
    kinds: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for one in records:
        if one.concurrency and one.input_len and one.output_len and one.measured.ttft_ms and one.measured.tpot_ms:
            kinds[one.stack, one.gpu, one.model].append(one)
    middle = [
        sorted(kind, key=lambda one: (one.concurrency or 0, one.input_len or 0, one.output_len or 0, one.id))[
            len(kind) // 2
        ]
        for _, kind in sorted(kinds.items(), key=str)
        if len(kind) >= SEVERAL
    ]
    step = max(len(middle) / count, 1.0)
    return [middle[int(step * place)] for place in range(min(count, len(middle)))]


def sized(record: Record, times: int, registry: RecordRegistry) -> tuple[float, bool, str]:
    """Replicas that a multiple of the load takes, whether it is sure that they keep the limits, and both in words.

    Raises
    ------
    InputError : why the record cannot be answered
    """
    measured = record.measured
    assert record.concurrency
    assert measured.ttft_ms
    assert measured.tpot_ms
    asked = build_inference(record, registry).values
    gpus, requests = asked.pop("gpus", 1), asked.pop("serve.requests", None)
    asked |= {
        "serve.concurrency": times * record.concurrency,
        "serve.requests": times * requests if requests else None,
        "serve.percentile": MEDIAN,
        "limits.max_ttft_s": HEADROOM * measured.ttft_ms * MILLI,
        "limits.max_tpot_s": HEADROOM * measured.tpot_ms * MILLI,
    }
    found = size(resolve(read_scenario(None, {key: value for key, value in asked.items() if value}, {}), registry))
    limits = summarise(found).verdict.limits
    said = ", ".join(f"{one.name} {(one.value or 0.0) / one.limit:.2f} {one.certainty}" for one in limits)
    text = f"{found.gpus / gpus:4.1f} replicas of {gpus} GPUs  {record.stack} {record.gpu} {record.id}: {said}"
    return found.gpus / gpus, all(one.certainty == SURE for one in limits), text


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--count", type=int, default=9)
    given = parser.parse_args(arguments)
    records = [one for file in given.files for one in read_records(file).records if one.serves]
    chosen = replicas([one for one in records if not record_held_out(one)], given.count)
    answers = [sized(one, given.times, RecordRegistry()) for one in chosen]
    print(*(text for _, _, text in answers), sep="\n")
    exact = sum(number == given.times for number, _, _ in answers)
    sure = sum(is_sure and number < given.times for number, is_sure, _ in answers)
    print(f"{exact} of {len(answers)} exact, {sure} called sure below the published number")


if __name__ == "__main__":
    main()
