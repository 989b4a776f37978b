"""One set of equations: a batch of layouts gives the same figures as each layout alone, in any order."""

from __future__ import annotations

import numpy as np
import pytest
from cases import figures_of, job, layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline

LONG_TAIL = {"data__mean_tokens": 115, "data__max_tokens": 8588, "data__samples": 12012}
JOBS = {
    "dense": job("llama-2-7b", "sft", train__seq_len=1024),
    "grouped": job("llama-2-70b", "lora", stack="nemo", **LONG_TAIL),
    "eager": job("gpt2", "pretrain", stack="hf-trainer", attention="eager"),
    "experts": job("mixtral-8x7b", "qlora", stack="deepspeed", train__seq_len=2048),
    "latent": job("deepseek-v2-lite", "pretrain", train__seq_len=1024),
    "windowed": job("gemma-2-9b", "p-tuning", stack="hf-trainer"),
    "pairs": job("llama-2-7b", "dpo", stack="hf-trainer", **LONG_TAIL),
    "taught": job("llama-2-7b", "distill", train__teacher_model="mixtral-8x7b", train__seq_len=1024),
    "cut": job("llama-2-7b", "sft", train__padding="longest-in-micro-batch", **LONG_TAIL),
}  # fmt: skip
POWER = st.sampled_from([1, 2, 4, 8])
LAYOUT = st.fixed_dictionaries({
    "tp": POWER, "pp": POWER, "vpp": st.sampled_from([1, 2]), "cp": st.sampled_from([1, 2]), "ep": st.integers(1, 2),
    "dp": st.sampled_from([1, 2, 8, 24]), "zero": st.sampled_from([0, 1, 2, 3]), "micro_batch": st.integers(1, 5),
    "grad_accum": st.integers(1, 33), "recompute": st.sampled_from([0, 1, 2]), "offload": st.sampled_from([0, 1, 2]),
    "sequence_parallel": st.sampled_from([0, 1]),
})  # fmt: skip
BATCH = st.lists(LAYOUT, min_size=2, max_size=6)


def columns(rows: list[dict[str, int]]) -> Layouts:
    return layouts(**{name: [row[name] for row in rows] for name in rows[0]})


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=3, deadline=None)
@given(rows=BATCH)
def test_a_batch_gives_the_figures_of_each_layout_alone(name: str, rows: list[dict[str, int]]) -> None:
    """Of any job, `test_company` has it."""
    together = figures_of(JOBS[name], columns(rows))
    for index, row in enumerate(rows):
        alone = figures_of(JOBS[name], layouts(**row))
        for figure, value in together.items():
            assert value[..., index] == pytest.approx(alone[figure][..., 0], rel=1e-12), figure


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=8, deadline=None)
@given(rows=BATCH)
def test_figures_are_finite_whatever_the_order_and_sum_to_their_totals(name: str, rows: list[dict[str, int]]) -> None:
    chosen = columns(rows)
    there, back = figures_of(JOBS[name], chosen), figures_of(JOBS[name], chosen[::-1])
    for figure, value in there.items():
        assert np.array_equal(value, back[figure][..., ::-1]), figure
        assert np.all(np.isfinite(value)), figure
        assert np.all(value >= 0), figure
    ledger, line = memory_ledger(JOBS[name], chosen), timeline(JOBS[name], chosen)
    assert sum(line.components.values()) == pytest.approx(line.step_s, rel=1e-12)
    for index in range(len(chosen)):
        assert sum(ledger.at_peak(index).values()) == pytest.approx(ledger.peak_bytes[index], rel=1e-12)
