"""Memory of every pipeline stage: the equations that price the fullest, stage by stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import SCHEDULES
from xe_sizer.training.memory import Ledger, ledger_of, memory_ledger
from xe_sizer.training.memory_parts import KINDS_OF_PARTS, MEMORY_PARTS

MODEL = "llama-2-70b"
SIZES: dict[str, Any] = {"tp": 8, "pp": 4, "grad_accum": 16, "sequence_parallel": 1}


def by_stage(made: Any, **sizes: Any) -> tuple[Ledger, np.ndarray]:
    """The ledger of all stages, and the peak of each [bytes]."""
    every = Evaluation(made, layouts(**sizes)).at_each_stage
    found = ledger_of(every)
    peaks = found.total_bytes.max(axis=1)
    mirrored = every.stages.mirrored[0]
    return found, np.array([*peaks[0, :-1], peaks[0 if mirrored else 1, -1]])


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"vpp": 2}, {"vpp": 4, "grad_accum": 4}, {"pp": 8, "grad_accum": 4}, {"pp": 2}, {"zero": 1, "dp": 4},
        {"recompute": 2}, {"pp": 16, "tp": 4}, *({"schedule": SCHEDULES.index(name)} for name in ("gpipe", "zb-h1")),
        *({"schedule": SCHEDULES.index(name), "vpp": 2} for name in ("zb-v", "v-half", "dualpipe-v")),
        {"schedule": SCHEDULES.index("dualpipe")},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("model", [MODEL, "mixtral-8x7b"])
def test_the_fullest_of_all_stages_is_the_worst_gpu(model: str, changes: dict[str, Any]) -> None:
    made, sizes = job(model, kind="pretrain", stack="megatron-lm", train__seq_len=4096), SIZES | changes
    whole = memory_ledger(made, layouts(**sizes))
    _, peaks = by_stage(made, **sizes)
    assert peaks.max() == pytest.approx(whole.peak_bytes[0], rel=1e-12)
    assert peaks[0] == pytest.approx(whole.total_bytes[0].max(), rel=1e-12)
    assert len(peaks) == sizes["pp"]


def test_stages_that_spread_layers_unevenly_find_the_fullest_too() -> None:
    """126 layers on 8 stages with a place for each end: 15 on the first, 16 on the second, which is the fuller."""
    made = job("llama-3.1-405b", kind="pretrain", stack="megatron-lm", train__seq_len=4096)
    sizes = SIZES | {"pp": 8, "dp": 8, "zero": 1, "recompute": 2}
    every = Evaluation(made, layouts(**sizes)).at_each_stage
    assert every.stages.own.tolist() == [15, 16, 16, 16, 16, 16, 16, 15]
    _, peaks = by_stage(made, **sizes)
    assert int(np.argmax(peaks)) == 1
    assert peaks.max() == pytest.approx(memory_ledger(made, layouts(**sizes)).peak_bytes[0], rel=1e-12)


def test_a_stage_holds_one_micro_batch_less_than_the_one_before_it() -> None:
    """A layer of Llama-2-70B has 2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 elements and two norms of 8192.

    Table and head have 32000 x 8192, the norm behind the layers 8192; 20 of 80 layers on each stage, over 8 ranks.
    """
    made = job(MODEL, kind="pretrain", stack="megatron-lm", train__seq_len=4096)
    found, _ = by_stage(made, **SIZES)
    kept = found.components["activations"][0, 0]
    steps = kept[:-1] - kept[1:]
    assert steps[:2] == pytest.approx([steps[0]] * 2, rel=1e-12)
    assert steps[0] > 0
    matrices = (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672) / 8
    middle = 2 * 20 * (matrices + 2 * 8192)
    assert found.components["weights"][0, 0, 1:3] == pytest.approx([middle] * 2, rel=1e-9)
    assert found.components["weights"][0, 0, 0] == pytest.approx(middle + 2 * 32000 * 8192 / 8, rel=1e-9)
    assert found.components["weights"][1, 0, 3] == pytest.approx(middle + 2 * (32000 * 8192 / 8 + 8192), rel=1e-9)


def test_a_copy_beside_the_model_is_spread_over_the_stages_as_the_model_is() -> None:
    """The reference of DPO: middle stages have no table, nor head."""
    made = job(MODEL, kind="dpo", stack="megatron-lm", train__seq_len=4096)
    found, _ = by_stage(made, **SIZES)
    copies = found.components["frozen copies"][0, 0]
    assert copies[0] - copies[1] == pytest.approx(2 * 32000 * 8192 / 8, rel=1e-9)
    assert copies[1] == copies[2]


def test_every_part_of_the_memory_is_of_one_kind() -> None:
    named = [part.name for parts in KINDS_OF_PARTS.values() for part in parts]
    assert sorted(named) == sorted(part.name for part in MEMORY_PARTS)
