"""The same suite for every registered training method."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, job, layouts

from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import load_quantiser
from xe_sizer.profiles.finder import default_name
from xe_sizer.scenario.schema import INFERENCE, job_names
from xe_sizer.training.adapters import ADAPTERS, ALL_WEIGHTS, AdapterOptions, Quantised
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.methods import METHODS, MethodOptions
from xe_sizer.training.step_time import timeline
from xe_sizer.units import SIXTEEN_BIT

FAMILIES = ("llama-2-7b", "llama-2-70b", "mixtral-8x7b", "gpt2", "gemma-2-9b", "falcon-7b")


def test_every_job_of_a_scenario_that_trains_is_a_method() -> None:
    assert {*METHODS, INFERENCE} == set(job_names())
    assert len(job_names()) == len(METHODS) + 1


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_knows_its_name_and_what_learns(name: str, model: str) -> None:
    shape = REGISTRY.model(model)
    usual = load_quantiser(default_name("quantiser"))
    adapter = METHODS[name].usual_adapter
    held = Quantised(usual, usual.width(), SIXTEEN_BIT) if METHODS[name].quantises else None
    trained = adapter.applied_to(shape, AdapterOptions(quantised=held)) if adapter else ALL_WEIGHTS
    method = METHODS[name].applied_to(shape, MethodOptions(trained=trained, teacher=shape))
    total = count_parameters(shape).total
    trainable = method.trainable_parameters(shape)
    assert method.name == name
    assert trainable == total if method.learning.base else 0 < trainable < 0.1 * total
    assert method.quantised is METHODS[name].quantises


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_estimated(name: str) -> None:
    teacher = {"train.teacher_model": "llama-2-13b"} if "train.teacher_model" in METHODS[name].reads else {}
    made = job(kind=name, train__seq_len=1024, **teacher)
    chosen = layouts(dp=[1, 8], zero=[0, 1], grad_accum=4)
    ledger, line = memory_ledger(made, chosen), timeline(made, chosen)
    assert np.all(np.isfinite(ledger.total_bytes))
    assert np.all(ledger.components["gradients"].max(axis=(0, 1)) > 0)
    assert np.all(np.isfinite(line.step_s) & (line.step_s > 0))
    assert np.all(line.components["optimizer"] > 0)


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.settings])
def test_a_method_with_frozen_weights_saves_memory_and_time(name: str) -> None:
    full, frozen = (job(kind=kind, train__seq_len=2048) for kind in ("sft", name))
    chosen = layouts(grad_accum=4)
    assert memory_ledger(frozen, chosen).peak_bytes[0] < 0.5 * memory_ledger(full, chosen).peak_bytes[0]
    assert timeline(frozen, chosen).step_s[0] < timeline(full, chosen).step_s[0]


def test_quantised_weights_trade_time_for_memory() -> None:
    lora, qlora = (job(kind=kind, train__seq_len=2048) for kind in ("lora", "qlora"))
    chosen = layouts(grad_accum=4)
    assert memory_ledger(qlora, chosen).peak_bytes[0] < memory_ledger(lora, chosen).peak_bytes[0]
    assert timeline(qlora, chosen).step_s[0] > timeline(lora, chosen).step_s[0]


BIASED = "qwen2-7b"  # where biases alone learn, the model must have some
SLOWER = {"boft", "hra"}  # turn every weight by matrices as wide as its inputs, in every micro-batch


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_kind_of_adapter_learns_beside_frozen_weights_of_any_job(name: str) -> None:
    """It is estimated under a job that says nothing of what learns, and needs less than all weights would."""
    model = {"model": BIASED} if name == "bitfit" else {}
    full, adapted = job(train__seq_len=1024, **model), job(adapter=name, train__seq_len=1024, **model)
    assert adapted.method.adapter is ADAPTERS[name]
    assert adapted.method.quantised is ADAPTERS[name].quantises
    chosen = layouts(dp=[1, 8], zero=[0, 1], grad_accum=4)
    assert np.all(memory_ledger(adapted, chosen).peak_bytes < memory_ledger(full, chosen).peak_bytes)
    assert name in SLOWER or np.all(timeline(adapted, chosen).step_s < timeline(full, chosen).step_s)


def test_a_job_that_means_adapters_is_fine_tuning_with_them() -> None:
    chosen = layouts(dp=[1, 8], zero=[0, 1], grad_accum=4)
    for meant in (kind for kind in METHODS.values() if kind.adapter):
        targets = {"lora__targets": ["attention"]} if "lora" in meant.settings else {}
        one, other = job(kind=meant.name, **targets), job(adapter=meant.adapter, **targets)
        assert memory_ledger(one, chosen).peak_bytes.tolist() == memory_ledger(other, chosen).peak_bytes.tolist()
        assert timeline(one, chosen).step_s.tolist() == timeline(other, chosen).step_s.tolist()


def test_any_adapter_takes_a_quantised_base() -> None:
    narrow, meant = job(adapter="lora", train__bits=4, lora__targets=["q"]), job(kind="qlora", lora__targets=["q"])
    assert narrow.method.trained.held == meant.method.trained.held
    assert narrow.method.label == "SFT (LoRA, 4 bit)"
    assert meant.method.label == "QLoRA"
