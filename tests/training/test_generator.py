"""ELECTRA: pre-training runs a generator beside the discriminator, fine-tuning does not; against arithmetic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Matmul, MemoryBound
from xe_sizer.graph.transformer import head_operators, logits_per_rank
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.padding import Sequences
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve
from xe_sizer.training.step_time import timeline

BASE = "electra-base-discriminator"
# Of the base generator (12 layers of 256, 1024 in the MLP, rows of 768), by hand: the way in, layers, head.
WAY_IN = 768 * 256 + 256
LAYER = 4 * (256 * 256 + 256) + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
HEAD = 256 * 768 + 768 + 2 * 768 + 30522
OWN = WAY_IN + 12 * LAYER + HEAD


def job(model: str = BASE, **further: Any) -> Job:
    flags = {"model": model, "gpu": "a100-sxm-80gb", "gpus": 1, "train.seq_len": 512, "train.global_batch": 8}
    return resolve(read_scenario(None, {"job": "pretrain"} | flags | further, {}), Registry()).job


def one(**sizes: int) -> Layouts:
    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "recompute": 0}
    return Layouts.of(**dict.fromkeys(Layouts.__struct_fields__, 1) | none | sizes)


def test_pre_training_learns_the_generator_with_the_tables_in_common() -> None:
    """All of the encoder and a binary head on every token, and what the generator does not share with it."""
    made = job()
    encoder = 109_514_298 - (768 * 768 + 768 + 2 * 768 + 30522)
    assert count_parameters(made.model).total == encoder + 768 * 768 + 768 + 768 + 1
    assert made.method.trainable_parameters(made.model) == count_parameters(made.model).total + OWN


@pytest.mark.parametrize("asked", ["sft", "lora", "reward", "embedding"])
def test_fine_tuning_has_the_discriminator_alone(asked: str) -> None:
    made = job(job=asked)
    assert made.method.parts == ()
    assert Evaluation(made, one()).generator is None
    line = timeline(made, one(micro_batch=8))
    assert line.components["generator"][0] == 0.0
    assert "generator activations" not in {k for k, v in memory_ledger(made, one()).components.items() if np.any(v)}


@pytest.mark.parametrize("asked", ["pretrain", "sft"])
def test_bert_has_no_generator(asked: str) -> None:
    made = job("bert-base-uncased", job=asked)
    assert made.method.parts == ()
    assert timeline(made, one(micro_batch=8)).components["generator"][0] == 0.0


@pytest.mark.parametrize(("stack", "predicted"), [("tensorflow", 0.15), ("generic", 1.0), ("nvidia-electra", 1.0)])
def test_the_generator_draws_from_the_logits_of_masked_tokens(stack: str, predicted: float) -> None:
    """15 % of the tokens are masked: loss and draw are theirs, the head's product is as the stack's models have it."""
    part = Evaluation(job(stack=stack), one(micro_batch=8), Sequences.of_length(np.array([512.0]))).generator
    assert part is not None
    inputs = part.shapes.inputs
    head = {op.name: op for op in head_operators(inputs)}
    product, loss, draw = head["head"], head["loss"], head["sampling"]
    assert isinstance(product, Matmul)
    assert (product.m[0], product.n[0], product.k[0]) == (8 * 512 * predicted, 30522, 768)
    assert logits_per_rank(inputs)[0] == 8 * 512 * 0.15 * 30522
    assert isinstance(loss, MemoryBound)
    assert isinstance(draw, MemoryBound)
    assert loss.forward_bytes[0] == inputs.kernels.loss.forward_bytes * 8 * 512 * 0.15 * 30522
    assert draw.forward_bytes[0] > 0
    assert np.all(draw.backward_bytes == 0)


def test_the_discriminator_tells_every_token_apart_by_one_value() -> None:
    made = job()
    inputs = graph_inputs(made, one(micro_batch=8), np.array([512.0]))
    products = {op.name: (op.m[0], op.n[0], op.k[0]) for op in head_operators(inputs) if isinstance(op, Matmul)}
    assert products == {"head transform": (8 * 512, 768, 768), "score": (8 * 512, 1, 768)}


def test_flops_of_a_step_are_those_of_both_models() -> None:
    """6 FLOPs a token and weight, 12 layers x 12 s h for scores and values, the generator's head at 15 %."""
    line = timeline(job(stack="tensorflow", attention="eager"), one(micro_batch=8))
    tokens, layers, score = 8 * 512, 12, 12 * 512
    discriminator = layers * (12 * 768**2 * 6 + score * 768) + 6 * (768**2 + 768)
    generator = layers * (12 * 256**2 * 6 + score * 256) + 0.15 * 6 * (256 * 768 + 768 * 30522)
    assert line.flops[0] == pytest.approx(tokens * (discriminator + generator), rel=0.001)


def test_its_time_is_that_of_a_small_model_of_its_own() -> None:
    """Kernels and launches of the generator's passes are what its job alone has; they sum to the step."""
    made, layouts = job(stack="tensorflow"), one(micro_batch=8)
    part = Evaluation(made, layouts).generator
    assert part is not None
    alone, beside = timeline(part.job, part.layouts).components, timeline(made, layouts)
    own = sum(alone[name][0] for name in ("forward", "backward", "recompute")) + alone["host"][0]
    overhead = made.stack.micro_batch_overhead_s
    assert beside.components["generator"][0] == pytest.approx(own - overhead)
    assert beside.modules["generator"][0][0] > 0
    assert 0.1 < beside.components["generator"][0] / beside.step_s[0] < 0.4


def test_its_states_and_activations_take_memory_to_the_end_of_the_backward() -> None:
    """Weights, gradients and moments of its own elements; what it keeps outlives the discriminator's backward."""
    made, layouts = job(stack="tensorflow"), one(micro_batch=8)
    ledger = memory_ledger(made, layouts)
    plain = memory_ledger(job("bert-base-uncased", stack="tensorflow"), layouts)
    heads = 768 + 1 - 2 * 768 - 30522
    for name, each in (("weights", 4), ("gradients", 4), ("optimizer states", 8)):
        more = ledger.components[name].max() - plain.components[name].max()
        assert more == pytest.approx(each * (OWN + heads))
    kept = ledger.components["generator activations"][0, :, 0]
    assert np.all(kept[:4] == kept[0])
    assert kept[4] > 0
    assert kept[5] == 0.0
    twice = memory_ledger(made, one(micro_batch=16)).components["generator activations"][0, 0, 0]
    assert twice == pytest.approx(2.0 * kept[0])


def test_tensor_parallel_ranks_share_its_weights_and_a_pipeline_has_it_on_the_first_stage() -> None:
    made = job(gpus=2)
    whole, halves = (memory_ledger(made, one(tp=tp)).components["weights"].max() for tp in (1, 2))
    assert halves < 0.55 * whole
    stages = memory_ledger(made, one(pp=2)).components["generator activations"]
    assert stages[0, 0, 0] > 0
    assert stages[1].max() == 0.0


def test_adapters_beside_a_generator_are_refused() -> None:
    with pytest.raises(InputError, match="beside a generator"):
        job(adapter="lora")
