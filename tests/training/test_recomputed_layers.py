"""Full recomputation of some of a stage's layers: between none and all, in memory and in time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import ask, layouts
from xe_sizer.errors import InputError
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import operator_costs, timeline

LAYERS = 32  # Llama 2 7B
PACKED = {"train.seq_len": 4096, "train.padding": "packed", "train.global_batch": 8, "train.steps": 1}


def asked(count: int | None, recompute: str = "full") -> Job:
    given = {"layout.recompute": recompute, "layout.recompute_layers": count}
    stated = {key: value for key, value in given.items() if value is not None}
    return ask({"model": "llama-2-7b", "job": "sft", "stack": "generic", **PACKED, **stated}).job


def kept_bytes(job: Job, recompute: int, pp: int = 1) -> float:
    """Activations at the end of the forward, without those of the head, which no layer keeps."""
    ledger = memory_ledger(job, layouts(recompute=recompute, pp=pp, grad_accum=8))
    return float(ledger.components["activations"][0, 0, 0])


@pytest.mark.parametrize("count", [1, 8, 24])
def test_the_other_layers_keep_everything(count: int) -> None:
    none, whole = kept_bytes(asked(None), 0), kept_bytes(asked(None), 2)
    part = kept_bytes(asked(count), 2)
    assert part == pytest.approx(none - count / LAYERS * (none - whole))


def test_as_many_as_there_are_is_all() -> None:
    assert kept_bytes(asked(40), 2) == kept_bytes(asked(None), 2)


def test_the_number_is_of_one_stage() -> None:
    job = asked(4)
    assert Evaluation(job, layouts(recompute=2, pp=np.array([1, 4]))).recomputed == pytest.approx([4 / 32, 4 / 8])
    assert Evaluation(job, layouts(recompute=np.array([0, 1]))).recomputed == pytest.approx([0.0, 0.0])


def test_only_those_layers_run_again() -> None:
    some, whole = (timeline(asked(count), layouts(recompute=2)) for count in (8, None))
    assert some.components["recompute"][0] == pytest.approx(8 / LAYERS * whole.components["recompute"][0])
    assert some.recompute_flops[0] == pytest.approx(8 / LAYERS * whole.recompute_flops[0])


def test_operators_sum_to_the_step() -> None:
    line = timeline(asked(8), layouts(recompute=2))
    parts = sum(float(line.components[name][0]) for name in ("forward", "backward", "recompute"))
    assert sum(cost.seconds for cost in operator_costs(line)) == pytest.approx(parts, rel=1e-6)


@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_a_number_needs_full_recomputation(recompute: str) -> None:
    with pytest.raises(InputError, match="recompute_layers needs recompute full"):
        asked(4, recompute)
