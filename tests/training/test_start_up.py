"""What passes before the first step."""

import pytest
from cases import job

from xe_sizer.training.run import FIXED_S, start_up_s


def test_weights_are_read_by_every_node() -> None:
    """By hand: 6.74e9 parameters of Llama 2 7B in 16 bit at 2 GB/s are 6.7 s."""
    assert start_up_s(job("llama-2-7b", "sft")) == pytest.approx(FIXED_S + 6.738e9 * 2 / 2e9, rel=1e-3)


def test_a_model_made_from_the_start_is_not_read() -> None:
    assert start_up_s(job("llama-2-7b", "pretrain")) == FIXED_S
