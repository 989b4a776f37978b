"""Published steps of MaxText on TPUs: every verdict on memory is right, and so are most times."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict

from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import SHIPPED, read_records

FILE = SHIPPED / "tpu.jsonl"
CLOSE = "maxtext-v5p-deepseek-v3-1x256-batch5"  # passes XLA's check, and cannot reserve its memory when it starts


def test_verdicts_are_right_and_times_within_a_tenth_in_the_median() -> None:
    found = validate(read_records(FILE).records)
    wrong = {one.id for one in found.records if one.quantity == "oom" and one.measured != one.predicted}
    assert wrong <= {CLOSE}
    (close,) = [one for one in found.records if one.id == CLOSE and one.quantity == "oom"]
    assert close.memory == "tight"
    rates = [one.ratio for one in found.records if one.quantity == "throughput"]
    assert len(rates) == 10
    assert all(ratio is not None and 0.7 < ratio < 1.2 for ratio in rates)
    errors = defaultdict(list)
    for one in found.records:
        if one.quantity == "step_time" and one.ratio is not None:
            generation = re.search(r"-(v\d[epx])-", one.id)
            assert generation is not None
            errors[generation.group(1)].append(abs(one.ratio - 1.0))
    assert {name: len(each) for name, each in errors.items()} == {"v5e": 24, "v5p": 25, "v6e": 20, "v7x": 19}
    assert all(statistics.median(each) < 0.1 for each in errors.values())
