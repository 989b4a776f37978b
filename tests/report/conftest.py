"""Saved results that the reports show."""

from pathlib import Path

import msgspec
import pytest

from xe_sizer.result.serving import ServeResult
from xe_sizer.result.training import Result

FIXTURES = Path(__file__).parent / "fixtures"


def saved(name: str) -> Result:
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=Result)


def saved_service(name: str) -> ServeResult:
    return msgspec.json.decode((FIXTURES / f"serve-{name}.json").read_bytes(), type=ServeResult)


@pytest.fixture
def chat() -> ServeResult:
    """20 requests/s of Llama 3.1 70B within limits on latency, one spare replica, priced."""
    return saved_service("chat")


@pytest.fixture
def unservable() -> ServeResult:
    """Llama 3.1 405B in 16 bit on 8 H100: does not fit."""
    return saved_service("too-big")


@pytest.fixture
def overloaded() -> ServeResult:
    """200 requests/s on 4 H100, which take fewer: latencies that nothing bounds."""
    return saved_service("overloaded")


@pytest.fixture
def benchmark() -> ServeResult:
    """A test of 160 requests with an image each, 16 at a time, on 2 replicas of Qwen2.5-VL 7B, within limits."""
    return saved_service("test")


@pytest.fixture
def lora() -> Result:
    """LoRA of Llama 2 70B on 16 H100: fits, calibrated, priced."""
    return saved("lora")


@pytest.fixture
def too_big() -> Result:
    """Full fine-tuning of the same model on 8 H100: does not fit, uncalibrated, no price."""
    return saved("sft-too-big")
