"""The law of attention of a few queries over a cache, term by term."""

from __future__ import annotations

import numpy as np
import pytest

from xe_sizer.laws.attention import DecodeLaw, decode_attention_time_s

PEAK, BANDWIDTH = 400e12, 2e12
LAW = DecodeLaw(floor_s=10e-6, memory_efficiency=0.8, root_s_per_sqrt_byte=1e-9)


def seconds(flops: float, moved: float, law: DecodeLaw = LAW) -> float:
    return float(decode_attention_time_s(flops, moved, law, PEAK, BANDWIDTH))


def test_a_long_cache_by_hand() -> None:
    """1.6 GB at 0.8 of 2 TB/s take 1 ms; 10 us to start, and 1 ns x sqrt(1.6e9) = 40 us for idle splits."""
    assert seconds(1e9, 1.6e9) == pytest.approx(1e-3 + 10e-6 + 40e-6, rel=1e-12)


def test_many_heads_on_one_latent_are_bound_by_compute() -> None:
    flops, moved = 800e9, 1.6e9
    assert seconds(flops, moved) == pytest.approx(flops / PEAK + 10e-6 + 40e-6, rel=1e-12)
    assert seconds(flops, moved) > seconds(0.25 * flops, moved) == seconds(1.0, moved)


def test_nothing_to_attend_to_takes_no_time() -> None:
    assert seconds(0.0, 1e6) == 0
    assert seconds(0.0, 0.0) == 0


def test_the_plain_roofline_has_neither_floor_nor_root() -> None:
    assert seconds(1.0, 2e9, DecodeLaw(0.0, 1.0)) == pytest.approx(1e-3, rel=1e-12)


def test_longer_caches_take_longer_and_arrays_equal_scalars() -> None:
    moved = np.geomspace(1e3, 1e11, 50)
    found = decode_attention_time_s(moved, moved, LAW, PEAK, BANDWIDTH)
    assert np.all(np.diff(found) > 0)
    assert found.tolist() == [seconds(size, size) for size in moved]
    assert found[0] == pytest.approx(LAW.floor_s, rel=0.01)
