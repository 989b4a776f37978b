"""The rank that an optimizer projects to, and the share of it that is offloaded: by hand, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline

PARAMETERS = 6_738_415_616  # Llama 2 7B
TABLES, VECTORS = 2 * 32_000 * 4096, 65 * 4096
GIB = 2**30


def states(**flags: object) -> float:
    ledger = memory_ledger(job(stack="hf-bf16", **flags), layouts())
    return float(np.max(ledger.components["optimizer states"]))


@pytest.mark.parametrize("rank", [16, 1024, 5000])
def test_the_rank_is_that_of_the_scenario_up_to_the_shorter_side(rank: int) -> None:
    """r x n of two moments and m x r of a projection, in 16 bit, for each m x n of 32 layers."""
    r = min(rank, 4096)
    projected = 32 * r * (2 * (4 * 4096 + 3 * 11008) + 7 * 4096)
    found = states(optimizer="galore-adamw", train__optimizer_rank=rank)
    assert found == pytest.approx(2 * projected + 4 * (TABLES + VECTORS), rel=1e-12)


def test_a_rank_of_an_optimizer_without_one_is_an_error() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "stack": "hf-bf16", "optimizer": "adamw", "train.optimizer_rank": 16})
    assert "AdamW projects no gradients to a rank" in str(raised.value)


def test_a_share_of_the_optimizer_waits_on_the_host() -> None:
    """DeepSpeed: 8 bytes of moments and 4 of a master copy, a quarter of them stays on the card."""
    sizes = {"dp": 4, "zero": 3, "offload": 1}
    made = job(stack="deepspeed", layout__offload="optimizer", layout__zero=3, layout__offload_fraction=0.75)
    whole = job(stack="deepspeed", layout__offload="optimizer", layout__zero=3)
    some, all_, none = (
        memory_ledger(each, layouts(**chosen))
        for each, chosen in ((made, sizes), (whole, sizes), (whole, sizes | {"offload": 0}))
    )
    kept, held = (float(np.max(one.components["optimizer states"])) for one in (some, none))
    assert kept == pytest.approx(held / 4, rel=1e-12)
    assert np.max(all_.components["optimizer states"]) == 0
    assert some.host_bytes[0] == pytest.approx(0.75 * all_.host_bytes[0], rel=1e-12)


def test_the_host_updates_its_share_and_the_card_the_rest() -> None:
    sizes = {"dp": 4, "zero": 3, "offload": 1}
    flags = {"layout__offload": "optimizer", "layout__zero": 3}
    half = timeline(job(stack="deepspeed", layout__offload_fraction=0.5, **flags), layouts(**sizes)).components
    whole = timeline(job(stack="deepspeed", **flags), layouts(**sizes)).components
    none = timeline(job(stack="deepspeed", **flags), layouts(**(sizes | {"offload": 0}))).components
    assert half["offload"][0] == pytest.approx(whole["offload"][0] / 2, rel=1e-12)
    assert half["optimizer"][0] == pytest.approx(none["optimizer"][0] / 2, rel=1e-12)
    assert whole["optimizer"][0] == 0


def test_a_share_of_what_is_not_offloaded_is_an_error() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "stack": "deepspeed", "layout.offload_fraction": 0.5})
    assert "it is a share of an offloaded optimizer, and none is offloaded" in str(raised.value)
