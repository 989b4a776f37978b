"""What differs from the table of cards is told, and a card of the table becomes a profile like one of its kind."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from xe_sizer.profiles.gpu import load_gpu_profile
from xe_sizer.profiles.write import write

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
refreshing = importlib.import_module("refresh_cards")


def card(**changes: object) -> SimpleNamespace:
    """The GeForce RTX 5070 as TechPowerUp's database lists it."""
    listed = {
        "name": "GeForce RTX 5070", "memory_size_gb": 12.0, "memory_bandwidth_gb_s": 672.0,
        "streaming_multiprocessors": 48,
        "thermal_design_power_w": 250, "single_float_performance_gflop_s": 30870.0, "bus_interface": "PCIe 5.0 x16",
        "tpu_url": "https://www.techpowerup.com/gpu-specs/geforce-rtx-5070.c4218",
    }  # fmt: skip
    return SimpleNamespace(**(listed | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"thermal_design_power_w": 220}, ["rtx-5070: tdp_w: 250, the table has 220"]),
        ({"memory_size_gb": 16.0}, ["rtx-5070: memory_gib: 11.82, the card is sold with 16"]),
        ({"streaming_multiprocessors": 0}, []),  # of other makers the table has none
    ],
)
def test_profiles_are_compared_with_the_table(changes: dict[str, object], told: list[str]) -> None:
    assert list(refreshing.compare(refreshing.GPUS, [card(**changes)])) == [*told, "1 cards compared"]


def test_a_card_of_the_table_becomes_a_profile(tmp_path: Path) -> None:
    """Its peaks have the ratios to that of fp32 which the other card's have."""
    like = {
        "title": "Y", "vendor": "NVIDIA", "generation": "blackwell-rtx", "segment": "desktop",
        "peak_tflops": {"fp32": 100, "bf16": 200, "fp8": 800},
        "pcie": {"gen": 5, "lanes": 16, "peer_to_peer": False},
    }  # fmt: skip
    write(tmp_path, refreshing.draft(card(), like, "2026-11-27"))
    profile = load_gpu_profile(tmp_path / "rtx-5070.yaml")
    assert (profile.memory_gib, profile.tdp_w, profile.streaming_multiprocessors) == (11.82, 250, 48)
    assert profile.peak_tflops["bf16"] == pytest.approx(2 * 30.87, abs=0.05)
    assert profile.peak_tflops["fp8"] == pytest.approx(8 * 30.87, abs=0.05)
    assert profile.pcie is not None
    assert not profile.pcie.peer_to_peer
