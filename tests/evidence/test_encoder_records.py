"""Published runs of encoders and encoder-decoders that ship: all are predicted, and how far off."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import xe_sizer
from xe_sizer.evidence.predict import validate
from xe_sizer.evidence.records import read_records

RECORDS = Path(xe_sizer.__file__).parent / "evidence" / "data" / "encoders.jsonl"


def test_none_is_left_out_and_the_times_are_near() -> None:
    """74 runs of BERT, BART and ELECTRA from four publications."""
    records = read_records(RECORDS).records
    found = validate(records, ("step_time",))
    assert (len(records), len(found.skipped)) == (74, 0)
    errors = [abs(one.ratio - 1.0) for one in found.records if one.ratio is not None]
    assert np.median(errors) < 0.12
