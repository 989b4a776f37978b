"""Memory and time of selective recomputation by module."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import SELECTIVE
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step_time import timeline


def micro_batch(*modules: str, **sizes: int) -> Evaluation:
    chosen = {"layout__recompute_modules": modules} if modules else {}
    made = job("deepseek-v2-lite", stack="megatron-lm", **chosen)
    layout = layouts(**{"recompute": SELECTIVE, "ep": 8, "dp": 8, **sizes})
    return Evaluation(made, layout, Sequences.of_length(np.full(len(layout), 4096.0)))


def test_experts_that_run_again_exchange_their_tokens_again() -> None:
    """Of four exchanges of a layer, two in each direction, two once more in the backward."""
    usual, again = micro_batch(), micro_batch("moe")
    there, back = (side[0, 0] for side in usual.exchanged_s["ep"])
    assert again.exchanged_s["ep"][0][0, 0] == pytest.approx(there)
    assert again.exchanged_s["ep"][1][0, 0] == pytest.approx(back + there)
    plain = micro_batch("moe", recompute=0)
    assert plain.exchanged_s["ep"][1][0, 0] == pytest.approx(back)


def test_what_runs_again_is_the_forward_of_the_module() -> None:
    found = micro_batch("moe_act")
    (activation,) = {time.forward_s[0] for time in found.times[0] if time.operator.name == "expert activation"}
    assert found.recompute_s[0, 0] == pytest.approx(activation)


def test_more_modules_take_more_time_and_the_stack_has_a_set_of_its_own() -> None:
    sets = [(), ("core_attn",), ("core_attn", "layernorm"), ("core_attn", "layernorm", "moe")]
    steps = []
    for modules in sets:
        found = micro_batch(*modules)
        steps.append(float(timeline(found.job, found.layouts).components["recompute"][0]))
    assert steps[0] == steps[1]
    assert np.all(np.diff(steps[1:]) > 0)
