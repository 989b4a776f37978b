"""Optimizer states in unified memory: float32, and fetched in every step where the card cannot hold them."""

from __future__ import annotations

import pytest
from cases import job, layouts

from xe_sizer.training.job import Job
from xe_sizer.training.step_time import timeline

PARAMETERS = 6_738_415_616  # Llama 2 7B


def made(gpu: str, optimizer: str = "paged-adamw", kind: str = "sft") -> Job:
    return job(kind=kind, stack="torchtune", gpu=gpu, optimizer=optimizer, train__seq_len=512, train__padding="packed")


def paging_s(found: Job) -> float:
    return float(timeline(found, layouts(recompute=1)).components["offload"][0])


@pytest.mark.parametrize(("optimizer", "state"), [("paged-adamw", 8.0), ("paged-adamw-8bit", 2.03)])
def test_states_that_the_card_cannot_hold_come_and_go(optimizer: str, state: float) -> None:
    """On 24 GB beside 13.5 GB of weights: there and back at 0.88 of the line rate of PCIe."""
    found = made("rtx-4090", optimizer)
    expected = 2 * PARAMETERS * state / (0.88 * found.server.pcie_bytes_per_s)
    assert paging_s(found) == pytest.approx(expected, rel=0.01)


def test_states_that_fit_stay() -> None:
    assert paging_s(made("a100-sxm-80gb")) == 0
    assert paging_s(made("rtx-4090", "adamw")) == 0
    assert paging_s(made("rtx-4090", kind="lora")) == 0


def test_gradients_count_where_they_wait_for_the_optimizer() -> None:
    """53.9 GB of states beside 27 GB of float32 weights and as many of gradients are more than 80 GiB."""
    loaded_wide = job(stack="hf-trainer@4.40", gpu="a100-sxm-80gb", optimizer="paged-adamw", train__padding="packed")
    assert paging_s(loaded_wide) > 0
