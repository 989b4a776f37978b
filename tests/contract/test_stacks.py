"""The same suite for every stack that ships."""

from __future__ import annotations

import numpy as np
import pytest
from cases import job, layouts

from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import BUILT_IN, KINDS, releases
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.software.release import Release, is_month
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.padding import POLICIES
from xe_sizer.training.search_space import Rules, legal_layouts
from xe_sizer.training.step_time import timeline

ROWS = [(name, row) for name in BUILT_IN.names("stack") for row in releases(load_yaml(BUILT_IN.path("stack", name)))]
RELEASED = sorted({f"{name}@{row.month}" for name, row in ROWS} | {f"{name}@2018" for name, _ in ROWS})


def test_the_shipped_files_are_the_known_names() -> None:
    files = {path.stem for path in KINDS["stack"].shipped.glob("*.yaml")}
    assert set(BUILT_IN.names("stack")) == files >= {"generic", "hf-trainer", "deepspeed", "megatron-lm", "nemo"}


@pytest.mark.parametrize("name", BUILT_IN.names("stack"))
def test_a_stack_says_what_it_is_and_where_from(name: str) -> None:
    stack = load_stack(name)
    assert stack.name == name
    assert len(stack.describes) > 20
    assert len(stack.source) > 10


@pytest.mark.parametrize("name", BUILT_IN.names("stack"))
def test_parents_lead_to_the_root(name: str) -> None:
    seen = [name]
    while parent := load_stack(seen[-1]).parent:
        assert parent not in seen
        seen.append(parent)
    assert seen[-1] == "generic"


@pytest.mark.parametrize("name", BUILT_IN.names("stack"))
def test_defaults_are_among_what_it_supports(name: str) -> None:
    stack = load_stack(name)
    assert set(stack.defaults.zero) <= set(stack.supports.zero)
    assert stack.defaults.optimizer in stack.supports.optimizers
    assert stack.defaults.padding in POLICIES
    assert "none" in stack.supports.offload
    assert stack.defaults.sequence_parallel <= stack.supports.tensor_parallel
    wide = stack.states.trained_weight_bytes + stack.states.master_bytes >= 4
    pure = stack.states.trained_weight_bytes == stack.states.gradient_bytes == stack.states.moment_bytes
    assert wide or pure, "neither a float32 copy of the weights nor everything in 16 bit"


@pytest.mark.parametrize("kind", ["pretrain", "sft", "lora", "qlora", "p-tuning"])
@pytest.mark.parametrize("name", BUILT_IN.names("stack"))
def test_a_stack_prices_every_job(name: str, kind: str) -> None:
    """With its own defaults, on every legal layout of eight GPUs."""
    made = job("llama-2-7b", kind, name, train__seq_len=1024, lora__targets=None)
    asked = Rules(made.model, made.stack, 8, made.global_batch, made.seq_len, True, {"micro_batch": 2})
    found = legal_layouts(asked, (8,))
    assert len(found) > 0
    assert set(found.zero.tolist()) <= set(made.stack.supports.zero)
    ledger, line = memory_ledger(made, found), timeline(made, found)
    assert np.all(np.isfinite(ledger.peak_bytes) & (ledger.peak_bytes > 0))
    assert np.all(np.isfinite(line.step_s) & (line.step_s > 0))


@pytest.mark.parametrize("name", BUILT_IN.names("stack"))
def test_no_stack_beats_the_peak(name: str) -> None:
    line = timeline(job("llama-2-7b", "pretrain", name), layouts(dp=8, grad_accum=16))
    assert 0.05 < line.flops[0] / line.step_s[0] / 989e12 < 0.8


@pytest.mark.parametrize(("name", "row"), ROWS, ids=lambda value: getattr(value, "before", value))
def test_a_release_is_known_by_its_month_too_and_has_a_source(name: str, row: Release) -> None:
    assert is_month(row.month)
    assert row.differs
    assert len(row.source) > 10
    newer, older = load_stack(f"{name}@{row.month}"), load_stack(f"{name}@2018")
    assert newer.release == row.month
    assert newer.name == older.name == name


@pytest.mark.parametrize("kind", ["pretrain", "lora"])
@pytest.mark.parametrize("name", RELEASED)
def test_every_release_sizes_a_job(name: str, kind: str) -> None:
    test_defaults_are_among_what_it_supports(name)
    test_a_stack_prices_every_job(name, kind)


def test_what_a_release_did_otherwise() -> None:
    """A few, by what their sources say: default dtype, loss, attention, what FSDP holds."""
    dtypes = [load_stack(name).defaults.weights_dtype for name in ("hf-trainer", "hf-trainer@4.57", "trl", "axolotl")]
    assert dtypes == ["bf16", "fp32", "fp32", "bf16"]
    losses = [load_stack(f"torchtitan@{release}").kernels.loss for release in ("2024.12", "0.2", "2026.08")]
    assert losses == ["eager", "vocab-parallel", "fused"]
    assert [load_stack(f"trl@{release}").kernels.loss for release in ("1.6", "1.9")] == ["eager", "fused"]
    attention = [load_stack(f"hf-trainer@{release}").kernels.attention for release in ("4.35.2", "4.36", "2023.11")]
    assert attention == ["eager", "sdpa", "eager"]
    assert load_stack("litgpt@0.5").states.flat_gradients > load_stack("litgpt@0.5.11").states.flat_gradients
