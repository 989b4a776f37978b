from pathlib import Path

import msgspec
import pytest

from xe_sizer.result import Result

FIXTURES = Path(__file__).parent / "fixtures"


def saved(name: str) -> Result:
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=Result)


@pytest.fixture
def lora() -> Result:
    """LoRA of Llama 2 70B on 16 H100: fits, calibrated, priced."""
    return saved("lora")


@pytest.fixture
def too_big() -> Result:
    """Full fine-tuning of the same model on 8 H100: does not fit, uncalibrated, no price."""
    return saved("sft-too-big")
