"""Dropout of adapters, and embedding and head that learn beside them: bytes by arithmetic on the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import ask

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Matmul, MemoryBound
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve

TOKENS, HIDDEN, VOCAB, LAYERS, RANK = 512, 4096, 32000, 32, 8
TABLE = VOCAB * HIDDEN
ADAPTERS = LAYERS * 2 * RANK * (HIDDEN + HIDDEN)  # on q and v of llama-2-7b


def job_of(**more: Any) -> Job:
    flags = {"model": "llama-2-7b", "server": "dell-xe9680-h100", "gpus": 1, "job": "lora", "stack": "hf-bf16"}
    flags |= {"lora.rank": RANK, "lora.targets": ["q", "v"]}
    return resolve(read_scenario(None, flags | {key.replace("__", "."): more[key] for key in more}, {}), Registry()).job


def layout() -> Layouts:
    sizes = dict.fromkeys(Layouts.__struct_fields__, 1)
    none = {
        "zero": 0,
        "offload": 0,
        "sequence_parallel": 0,
        "schedule": 0,
        "zero_group": 0,
        "expert_tp": 0,
        "recompute": 0,
    }
    return Layouts.of(**{name: size for name, size in {**sizes, **none}.items() if name in sizes})


def components(job: Job) -> dict[str, float]:
    ledger = memory_ledger(job, layout(), np.array([float(TOKENS)]))
    return {name: float(np.max(value)) for name, value in ledger.components.items()}


def test_dropout_keeps_a_mask_of_one_byte_an_element_of_each_adapter_s_input() -> None:
    """peft's float32 adapters keep a float32 copy of their input in any case."""
    without, dropped = (components(job_of(lora__dropout=rate))["activations"] for rate in (0.0, 0.05))
    assert dropped - without == pytest.approx((LAYERS * 2 - 1) * TOKENS * HIDDEN, rel=0.02)


def test_narrow_adapters_keep_the_dropped_copy_too() -> None:
    """LitGPT's adapters share the frozen weight's input; with dropout each keeps 2 + 1 bytes in its place."""
    saved = []
    for rate in (0.0, 0.05):
        inputs = graph_inputs(job_of(stack="litgpt", lora__dropout=rate), layout(), np.array([float(TOKENS)]))
        ops = [op for op in layer_operators(inputs) if isinstance(op, Matmul) and op.module == "qkv"]
        saved.append(sum(float(np.max(op.saved_bytes)) for op in ops))
    assert saved[1] - saved[0] == (2 * (2 + 1) - 2) * TOKENS * HIDDEN


def test_embedding_and_head_learn_as_copies_of_frozen_ones() -> None:
    """peft's ModulesToSaveWrapper: 2 bytes of weight, 2 of gradient and 2 x 2 of moments, beside the frozen ones."""
    plain, saved = (components(job_of(**more)) for more in ({}, {"lora.modules_to_save": ["embed_tokens", "lm_head"]}))
    assert plain["adapters"] == 4 * ADAPTERS
    assert saved["weights"] == plain["weights"]
    assert saved["adapters"] - plain["adapters"] == 2 * 2 * TABLE
    assert saved["gradients"] - plain["gradients"] == 2 * 2 * TABLE
    assert saved["optimizer states"] - plain["optimizer states"] == 2 * 4 * TABLE


def test_they_count_as_trainable_and_the_backward_reaches_them() -> None:
    job = job_of(lora__modules_to_save=["wte", "lm_head"])
    assert job.method.trainable_parameters(job.model) == ADAPTERS + 2 * TABLE
    inputs = graph_inputs(job, layout(), np.array([float(TOKENS)]))
    head = next(op for op in head_operators(inputs) if isinstance(op, Matmul))
    assert head.weight_gradient
    assert float(np.max(head.saved_bytes)) == 2 * TOKENS * HIDDEN


def test_other_modules_are_refused_with_what_is_known() -> None:
    with pytest.raises(InputError, match="neither the embedding nor the output head"):
        job_of(lora__modules_to_save=["layernorm"])


@pytest.mark.parametrize(("rate", "masks"), [(0.0, 0.0), (0.1, 1.0)])
def test_model_dropout_is_a_switch(rate: float, masks: float) -> None:
    """GPT-2 drops the outputs of attention and MLP: a byte an element of the hidden state each."""
    job = job_of(model="gpt2-xl", job="sft", train__dropout=rate, **{"lora.rank": None, "lora.targets": None})
    inputs = graph_inputs(job, layout(), np.array([float(TOKENS)]))
    residuals = [op for op in layer_operators(inputs) if op.name in ("attention residual", "mlp residual")]
    assert [float(np.max(op.saved_bytes)) for op in residuals] == [masks * TOKENS * job.model.hidden] * 2


def test_dora_adds_a_magnitude_for_each_output_and_the_norm_of_the_whole_weight() -> None:
    """peft's float32 adapters: 8 x 4 + 2 bytes a weight, 8 for the identity, 9 x 4 a token and output; 2 + 4 kept."""
    job = job_of(lora__dora=True)
    assert job.method.trainable_parameters(job.model) == ADAPTERS + LAYERS * 2 * HIDDEN
    assert components(job)["adapters"] == 4 * (ADAPTERS + LAYERS * 2 * HIDDEN)
    inputs = graph_inputs(job, layout(), np.array([float(TOKENS)]))
    op = next(op for op in layer_operators(inputs) if op.name == "q adapter magnitudes")
    assert isinstance(op, MemoryBound)
    assert float(np.max(op.forward_bytes)) == HIDDEN**2 * (8 * 4 + 2 + 2 * 4) + 9 * 4 * TOKENS * HIDDEN
    assert float(np.max(op.saved_bytes)) == TOKENS * HIDDEN * (2 + 4)


def test_recipes_of_xtuner_have_what_their_configurations_say() -> None:
    """configs/internlm: LoraConfig of rank 64 and dropout 0.1 on all linear layers, packed to the maximum."""
    asked = ask({"model": "internlm2-7b", "job": "qlora", "stack": "xtuner"})
    assert (asked.values.lora.rank, asked.values.lora.dropout, asked.values.train.padding) == (64, 0.1, "packed")
    assert asked.job.method.learning.adapter_dropout


@pytest.mark.parametrize(
    ("stack", "adapter", "drops"),
    [
        ("litgpt", "lora", True),
        ("ms-swift", "qlora", True),
        ("trl", "dora", True),
        ("fastchat", "lora", True),
        ("fms-hf-tuning", "lora", True),
        ("hf-trainer", "lora", False),
        ("llama-factory", "lora", False),
        ("unsloth", "lora", False),
        ("ms-swift", "loha", False),  # lora_dropout is LoRA's
    ],
)
def test_trainers_with_a_dropout_of_their_own_drop_unless_told(stack: str, adapter: str, drops: bool) -> None:
    """0.05 in litgpt/finetune/lora.py, tuner_args.py of ms-swift, model_config.py of TRL and their like."""
    asked = ask({"model": "llama-3.1-8b", "job": "sft", "adapter": adapter, "stack": stack, "lora.targets": ["q", "v"]})
    assert asked.job.method.learning.adapter_dropout is drops
    chosen = (0.05, "stack") if drops else (None, None)
    assert (asked.values.lora.dropout, asked.origins.get("lora.dropout")) == chosen
    told = ask({"model": "llama-3.1-8b", "job": "lora", "stack": stack, "lora.dropout": 0.0})
    assert told.job.method.learning.adapter_dropout is False
