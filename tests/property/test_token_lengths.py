"""What holds of the token lengths of any file of samples."""

from __future__ import annotations

import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.datasets.fit import Fine, histogram
from xe_sizer.datasets.profile import Asked, Measured, measure
from xe_sizer.datasets.tokens import read_sample

SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=300)
KEYS = (
    "text", "messages", "role", "content", "prompt", "chosen", "rejected", "output", "input_ids", "instruction",
    "history", "system", "tools", "conversations", "from", "value",
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


def lengths_of(rows: list[Any]) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return measure([file], Asked(), lambda done, total: None)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_a_histogram_keeps_number_mean_and_ends(sizes: list[int]) -> None:
    found = lengths_of([{"input_ids": [1] * size} for size in sizes])
    made = found.histogram
    assert sum(made.counts) == found.sequences == len(sizes)
    assert len(made.lengths) <= 64
    assert list(made.lengths) == sorted(set(made.lengths))
    assert (made.lengths[0], made.lengths[-1]) == (min(sizes), max(sizes))
    mean = sum(sizes) / len(sizes)
    assert found.mean == pytest.approx((mean,) * 3)
    total = sum(length * count for length, count in zip(made.lengths, made.counts, strict=True))
    assert total / len(sizes) == pytest.approx(mean, rel=0.02, abs=0.5)


@settings(max_examples=60, deadline=None)
@given(SIZES)
def test_quantiles_of_any_lengths_rise(sizes: list[int]) -> None:
    fine = Fine()
    fine.add(np.array(sizes, dtype=np.float64))
    quantiles = histogram(fine, float(sum(sizes)), min(sizes), max(sizes)).quantiles
    assert list(quantiles) == sorted(quantiles)
    assert min(sizes) <= quantiles[0]
    assert quantiles[-1] <= max(sizes) * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=200), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(texts: list[str], rng: random.Random) -> None:
    mixed = rng.sample(texts, len(texts))
    first, other = (lengths_of([{"text": text} for text in each]) for each in (texts, mixed))
    assert first.mean == pytest.approx(other.mean)
    assert first.histogram.lengths == other.histogram.lengths
    assert first.histogram.counts == other.histogram.counts
    assert (first.shortest.tokens, first.longest.tokens) == (other.shortest.tokens, other.longest.tokens)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_a_row_is_a_sample_or_is_refused(row: Any) -> None:
    with suppress(ValueError):
        assert 1 <= len(read_sample(row).sequences) <= 2
