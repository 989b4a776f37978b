"""Products in 8-bit integers: where they are known, and what they take."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.laws.operator_time import operator_times
from xe_sizer.training.evaluation import Evaluation

SIZES = {"dp": 64, "zero": 3}


def products_s(precision: str) -> float:
    """All products of a step of Llama 2 7B on v5p, forward and backward."""
    made = job(stack="maxtext", kind="pretrain", gpu="tpu-v5p", gpus=64, precision=precision, train__seq_len=4096)
    evaluation = Evaluation(made, layouts(**SIZES))
    timed = operator_times(evaluation.operators[0], made.device)
    wanted = ("qkv", "output projection", "mlp")
    chosen = [one for one in timed if one.operator.module in wanted and hasattr(one.operator, "m")]
    return float(sum(np.sum(one.forward_s + one.backward_s) for one in chosen))


def test_all_three_products_run_at_twice_the_rate() -> None:
    assert products_s("bf16") / products_s("int8") == pytest.approx(2.0, rel=0.05)


def test_stacks_without_them_say_so() -> None:
    with pytest.raises(InputError, match="torchtitan multiplies in no int8"):
        ask({"model": "llama-2-7b", "job": "pretrain", "stack": "torchtitan", "precision": "int8"})
