"""Published training on a DGX Spark: a GPT of 354M parameters over batches, lengths and formats."""

from __future__ import annotations

import statistics

from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import SHIPPED, read_records


def test_peaks_and_steps_of_the_sweep() -> None:
    found = validate(read_records(SHIPPED / "gb10.jsonl").records)
    peaks = [abs(one.ratio - 1.0) for one in found.records if one.quantity == "peak_memory" and one.ratio is not None]
    assert len(peaks) == 17
    assert max(peaks) < 0.16
    assert statistics.median(peaks) < 0.08
    steps = [one.ratio for one in found.records if one.quantity == "step_time" and one.ratio is not None]
    assert len(steps) == 17
    assert all(0.65 < ratio < 1.2 for ratio in steps)
