"""Elements on a rank against counts of published models and sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY, job, layouts

from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.weights import Weight, count_parameters
from xe_sizer.training.layout import Split, build_stages
from xe_sizer.training.methods import METHODS, Method, MethodOptions
from xe_sizer.training.model_states import ParameterCounts, parameter_counts

FULL = METHODS["sft"].applied_to(REGISTRY.model("llama-2-7b"), MethodOptions())


def elements(model: ModelShape, method: Method = FULL, **sizes: object) -> ParameterCounts:
    chosen = layouts(**sizes)
    return parameter_counts(model, method, chosen, build_stages(model.layers, Split(), chosen))


@pytest.mark.parametrize("name", REGISTRY.names("model"))
def test_one_gpu_holds_every_parameter(name: str) -> None:
    """Nothing of a model is lost or counted twice, but for keys and values that layers borrow."""
    model = REGISTRY.model(name)
    held = elements(model)
    borrowed = 0
    if model.kv_layers is not None:
        borrowed = (model.layers - model.kv_layers) * 2 * model.hidden * model.kv_heads * model.head_dim
    assert held.base[0, 0] == pytest.approx(count_parameters(model).total + borrowed, rel=1e-12)
    assert np.array_equal(held.base[0], held.base[1])


def test_shards_of_a_weight() -> None:
    """Column-parallel biases are split, those of row-parallel weights are whole on every rank."""
    tp, expert_ranks = np.array([8.0]), np.array([4.0 * 8.0])

    def on_rank(weight: Weight) -> float:
        return float(weight.on_rank(weight.matrix_elements, weight.bias_elements, tp, expert_ranks)[0])

    column = Weight("up", "mlp", "linear", 512, 2048, 2048, split="column")
    row = Weight("down", "mlp", "linear", 2048, 512, 512, split="row")
    expert = Weight("expert_up", "experts", "linear", 512, 2048, copies=16, split="expert")
    norm = Weight("input_norm", "norm", "vector", 1, 512)
    assert on_rank(column) == (512 * 2048 + 2048) / 8
    assert on_rank(row) == 512 * 2048 / 8 + 512
    assert on_rank(expert) == 16 * 512 * 2048 / (4 * 8)
    assert on_rank(norm) == 512


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_ranks_of_llama_split_all_but_the_norms(tp: int) -> None:
    held = elements(REGISTRY.model("llama-2-7b"), tp=tp)
    norms = (2 * 32 + 1) * 4096
    assert held.base[0, 0] == (6_738_415_616 - norms) / tp + norms


def test_pipeline_stages_share_the_layers() -> None:
    """Llama-2-7B over 4 stages: 8 layers each, the embedding on the first, norm and head on the last."""
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    held = elements(REGISTRY.model("llama-2-7b"), pp=4)
    assert held.base[:, 0].tolist() == [8 * layer + 32000 * 4096, 8 * layer + 32000 * 4096 + 4096]


def test_tied_embeddings_are_copied_to_the_last_stage() -> None:
    model = REGISTRY.model("gpt2")
    alone, split = elements(model), elements(model, pp=2)
    assert alone.base[0, 0] == count_parameters(model).total == 124_439_808
    assert split.base[:, 0].sum() == pytest.approx(124_439_808 + 50257 * 768 + 1024 * 768)


def test_a_layer_and_the_root_are_what_fsdp_gathers() -> None:
    held = elements(REGISTRY.model("llama-2-7b"), dp=8, zero=3)
    assert held.layer[0, 0] == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert held.root[0, 0] == 2 * 32000 * 4096 + 4096


# Published by the authors of the adapters: LoRA on Llama-2-7B with r = 8 on q and v (peft's examples), and QLoRA
# style r = 16 on all linear layers.
@pytest.mark.parametrize(
    ("targets", "rank", "published"),
    [
        (["q_proj", "v_proj"], 8, 4_194_304),
        (["all-linear"], 16, 39_976_960),
        (["q_proj", "k_proj", "v_proj", "o_proj"], 8, 8_388_608),
        (["qkv"], 32, 32 * 32 * (4096 + 3 * 4096)),
    ],
)
def test_adapters_of_llama_2_7b(targets: list[str], rank: int, published: int) -> None:
    made = job(kind="lora", lora__rank=rank, lora__targets=targets)
    assert made.method.trained.adapter_parameters(made.model) == published
    assert made.method.trainable_parameters(made.model) == published
    assert elements(made.model, made.method).adapters[0, 0] == published


# Sizes of the modules that peft wraps: Phi-3 stores q, k, v and gate, up as one matrix each, GPT-2 q, k, v.
@pytest.mark.parametrize(
    ("model", "targets", "names", "sizes"),
    [
        ("phi-3-mini-4k", ["all-linear"], ("qkv", "o", "gate_up", "down"), 4 * 3072 + 2 * 3072 + 19456 + 11264),
        ("phi-3-mini-4k", ["down_proj", "gate_up_proj"], ("gate_up", "down"), 19456 + 11264),
        ("phi-3-mini-4k", ["v", "q"], ("q", "v"), 4 * 3072),
        ("gpt2", ["all-linear"], ("qkv", "o", "up", "down"), 4 * 768 + 2 * 768 + 2 * 5 * 768),
        ("llama-2-7b", ["linear_fc1"], ("gate_up",), 4096 + 2 * 11008),
        ("gpt2", ["linear_fc1"], ("up",), 5 * 768),
    ],
)
def test_one_adapter_for_a_fused_matrix(model: str, targets: list[str], names: tuple[str, ...], sizes: int) -> None:
    made = job(model=model, kind="lora", lora__rank=4, lora__targets=targets)
    assert tuple(made.method.learning.adapters) == names
    assert made.method.trained.adapter_parameters(made.model) == 4 * made.model.layers * sizes
    assert elements(made.model, made.method).adapters[0, 0] == 4 * made.model.layers * sizes


def test_adapters_split_on_the_side_that_the_weight_is_split() -> None:
    """Column weights split B (r x outputs), row weights split A (r x inputs)."""
    column = job(kind="lora", lora__rank=8, lora__targets=["q"])
    row = job(kind="lora", lora__rank=8, lora__targets=["down"])
    assert elements(column.model, column.method, tp=4).adapters[0, 0] == 32 * 8 * (4096 + 4096 / 4)
    assert elements(row.model, row.method, tp=4).adapters[0, 0] == 32 * 8 * (11008 / 4 + 4096)
    assert elements(column.model, column.method, pp=4).adapters[0, 0] == 8 * 8 * (4096 + 4096)


def test_prompt_encoder_of_p_tuning() -> None:
    """10 virtual tokens of 1024 and a perceptron 1024 -> 1024 -> 4096 with biases, as NeMo configures it."""
    made = job(kind="p-tuning")
    assert made.method.trainable_parameters(made.model) == 10_240 + 1_049_600 + 4_198_400
    assert elements(made.model, made.method).adapters[0, 0] == 5_258_240
    assert made.method.added_tokens == 10


def test_expert_parallelism_splits_experts_alone() -> None:
    model = REGISTRY.model("mixtral-8x7b")
    whole, split = elements(model), elements(model, dp=8, ep=8)
    assert whole.experts[0, 0] == 32 * 8 * 3 * 4096 * 14336
    assert split.experts[0, 0] * 8 == whole.experts[0, 0]
    assert split.linear[0, 0] == whole.linear[0, 0]
