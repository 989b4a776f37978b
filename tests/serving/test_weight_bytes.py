"""Bytes of served weights against counts of their tensors, published checkpoints, and the sum over ranks."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace
from serving_cases import BF16, asked

from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import NGRAM_TABLE, Weight, count_parameters, embedding_weights, head_weights, layer_weights
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import NARROW_TABLE_BYTES, rank_weight_bytes, weight_bytes
from xe_sizer.software.number_formats import FORMATS, Scheme

NAMES = BUILT_IN.names("model")
GIB = 2**30
FP8 = Scheme(FORMATS["fp8"], FORMATS["fp8"], FORMATS["bf16"], "fp8")
MXFP4 = Scheme(FORMATS["mxfp4"], FORMATS["bf16"], FORMATS["bf16"], "bf16")


def tensors(model: ModelShape) -> list[tuple[float, Weight]]:
    """Every tensor of the model and how often it is stored."""
    ends = [(1.0, weight) for weight in (*embedding_weights(model), *head_weights(model))]
    layers = [
        (count / weight.sharing, weight) for kind, count in model.layer_kinds for weight in layer_weights(model, kind)
    ]
    if model.kv_layers is not None:
        own = model.kv_layers / model.layers
        layers = [(count * (own if weight.name in ("k", "v") else 1.0), weight) for count, weight in layers]
    return ends + layers


def rank_bytes(name: str, **sizes: int) -> float:
    return float(rank_weight_bytes(REGISTRY.model(name), BF16, ReplicaLayouts.of(**sizes))[0])


def test_layers_that_borrow_keys_and_values_store_none() -> None:
    """Half of the 32 layers of Llama 3.1 8B without k and v of 4,096 x 1,024 each, in either format."""
    model = replace(REGISTRY.model("llama-3.1-8b"), kv_layers=16)
    lent = 16 * 2 * 4096 * 1024
    whole = weight_bytes(REGISTRY.model("llama-3.1-8b"), BF16)
    assert weight_bytes(model, BF16) == whole - 2 * lent == 2 * count_parameters(model).total
    ranks = ReplicaLayouts.of(tp=[1, 2], pp=[1, 2])
    both = rank_weight_bytes(model, BF16, ranks)
    own = rank_weight_bytes(REGISTRY.model("llama-3.1-8b"), BF16, ranks)
    assert (own - both).tolist() == pytest.approx([2 * lent, 2 * lent / 4])


@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bit_weights_are_two_bytes_a_parameter(name: str) -> None:
    """Modules that predict further tokens are not served, and not counted; a tied table is stored once."""
    model = REGISTRY.model(name)
    seeing = vision_parameters(model.vision) if model.vision else 0
    assert weight_bytes(model, BF16) == pytest.approx(2 * (count_parameters(model).total + seeing), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_fp8_weights_are_one_byte_in_the_products_of_the_layers(name: str) -> None:
    """Embeddings, head, router, norms, biases and encoders of images stay in 16 bit, tables of n-grams have scales."""
    model, size = REGISTRY.model(name), 0.0
    size += 2.0 * vision_parameters(model.vision) if model.vision else 0.0
    for layers, weight in tensors(model):
        matrix = weight.copies * weight.inputs * weight.outputs
        kept = weight.kind != "linear" or weight.module in ("head", "embedding", "norm", "router")
        each = NARROW_TABLE_BYTES if weight.name == NGRAM_TABLE else 2 if kept else 1
        size += layers * (matrix * each + 2 * weight.copies * weight.bias)
    assert weight_bytes(model, FP8) == pytest.approx(size, rel=1e-9)
    assert weight_bytes(model, FP8) < weight_bytes(model, BF16)


def test_llama_2_7b_in_every_format_by_hand() -> None:
    model = REGISTRY.model("llama-2-7b")
    products = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    beside = 2 * (2 * 32000 * 4096 + (2 * 32 + 1) * 4096)
    per_weight = {
        "fp32": 4,
        "bf16": 2,
        "fp8": 1,
        "int8": 1,
        "int4-plain": 0.5,
        "nvfp4": 0.5 + 1 / 16,
        "nf4-single": 9 / 16,
    }
    for name, size in per_weight.items():
        scheme = Scheme(FORMATS[name], FORMATS["bf16"], FORMATS["bf16"], "bf16")
        rest = beside * (2 if name == "fp32" else 1)
        assert weight_bytes(model, scheme) == pytest.approx(products * size + rest, rel=1e-12), name


@pytest.mark.parametrize(("name", "published_gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_gpt_oss_as_published(name: str, published_gib: float) -> None:
    """Checkpoint sizes of the model card (arXiv:2508.10925, table 1): only the experts are in MXFP4."""
    assert weight_bytes(REGISTRY.model(name), MXFP4) / GIB == pytest.approx(published_gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "published_bytes"), [("llama-3.1-8b", 16_060_522_496), ("mixtral-8x7b", 93_405_585_408)]
)
def test_checkpoints_in_sixteen_bit(name: str, published_bytes: int) -> None:
    """`total_size` of their model.safetensors.index.json."""
    assert weight_bytes(REGISTRY.model(name), BF16) == published_bytes


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("llama-3.2-1b", 128256 * 2048),
        ("qwen2.5-0.5b", 151936 * 896),
        ("gemma-2-2b", 256000 * 2304),
        ("gemma-3-1b", 262144 * 1152),
    ],
)
def test_a_tied_table_is_stored_once(name: str, table: int) -> None:
    """With a head of its own the model would be a table larger, a fifth to a third of these."""
    model = REGISTRY.model(name)
    apart = replace(model, tied_embeddings=False)
    assert weight_bytes(apart, BF16) - weight_bytes(model, BF16) == 2 * table
    assert rank_weight_bytes(model, BF16, ReplicaLayouts.of())[0] == pytest.approx(weight_bytes(model, BF16), rel=1e-12)


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-r1"])
def test_deepseek_as_published(name: str) -> None:
    """688,586,727,753 bytes of published files (README_WEIGHTS.md).

    671 B weights, most of them in blocks of fp8, and a module of 14 B that predicts further tokens, with a table and a
    head of its own; 11.6e9 of them are the module's layer, projection and norms.
    """
    scheme = Scheme(FORMATS["fp8-block"], FORMATS["fp8-block"], FORMATS["bf16"], "fp8")
    found = weight_bytes(REGISTRY.model(name), scheme)
    mtp = 11_610_067_968 + 2 * 2 * 129280 * 7168
    assert found + mtp == pytest.approx(688_586_727_753, rel=0.005)


@pytest.mark.parametrize(
    "name",
    ["llama-2-7b", "llama-3.1-70b", "mixtral-8x7b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v2-lite", "jamba-v0.1"],
)
def test_ranks_hold_the_model_together(name: str) -> None:
    """The fullest rank times the ranks is the model at least, and no more than what each rank holds of its own."""
    model = REGISTRY.model(name)
    whole = weight_bytes(model, BF16)
    assert rank_bytes(name) == pytest.approx(whole, rel=1e-12)
    placements = ReplicaLayouts.of(tp=[2, 4, 8, 2, 4, 1], pp=[1, 1, 1, 2, 2, 3])
    together = rank_weight_bytes(model, BF16, placements) * placements.gpus
    assert np.all(together >= whole * (1 - 1e-12))
    assert np.all(together[:2] <= 1.06 * whole)


def test_what_every_rank_holds_is_the_only_excess() -> None:
    """Norms, once a rank more; keys and values too where there are more ranks than heads of theirs."""
    norms = 2 * (2 * 32 + 1) * 4096
    whole = weight_bytes(REGISTRY.model("llama-2-7b"), BF16)
    for tp in (2, 4, 8, 32):
        assert tp * rank_bytes("llama-2-7b", tp=tp) == pytest.approx(whole + (tp - 1) * norms, rel=1e-12)
    grouped = weight_bytes(REGISTRY.model("llama-3.1-8b"), BF16)
    keys_and_values = 2 * 32 * 2 * 4096 * 8 * 128
    for tp, copies in ((8, 1), (16, 2), (32, 4)):
        excess = (tp - 1) * norms + (copies - 1) * keys_and_values
        assert tp * rank_bytes("llama-3.1-8b", tp=tp) == pytest.approx(grouped + excess, rel=1e-12)


def test_expert_parallel_ranks_share_the_experts() -> None:
    """Split over tensor ranks or given out whole, a rank holds the same bytes of experts.

    Attention ranks of their own hold all else.
    """
    split, whole, apart = (
        rank_bytes("mixtral-8x7b", **sizes) for sizes in ({"tp": 8}, {"tp": 8, "ep": 8}, {"dp": 8, "ep": 8})
    )
    assert whole == pytest.approx(split, rel=1e-12)
    experts = 2 * 32 * 8 * 3 * 4096 * 14336
    total = weight_bytes(REGISTRY.model("mixtral-8x7b"), BF16)
    assert apart == pytest.approx(experts / 8 + total - experts, rel=1e-12)


def test_the_fullest_stage_has_the_larger_end() -> None:
    """A tied table stands on the first stage and on the last, which needs it for the logits."""
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096)
    assert rank_bytes("llama-2-7b", pp=2) == pytest.approx(2 * (layers / 2 + 32000 * 4096 + 4096), rel=1e-12)
    assert rank_bytes("llama-2-7b", pp=3) == pytest.approx(2 * (layers * 11 / 32 + 32000 * 4096 + 4096), rel=1e-12)
    tied = REGISTRY.model("gemma-2-2b")
    table = 2 * 256000 * 2304
    in_layers = weight_bytes(tied, BF16) - table - 2 * 2304
    assert rank_bytes("gemma-2-2b", pp=2) == pytest.approx(in_layers / 2 + table + 2 * 2304, rel=1e-12)


@pytest.mark.parametrize(("stages", "layers"), [(4, 16), (16, 4)])
def test_a_stage_of_large_layers_is_the_fullest(stages: int, layers: int) -> None:
    """The first three of 61 layers of DeepSeek-V3 are dense and small.

    A stage behind them has experts in all of its layers. vLLM gives what the division leaves over to the stages before
    the last (get_pp_indices).
    """
    count = count_parameters(REGISTRY.model("deepseek-v3"))
    assert rank_bytes("deepseek-v3", pp=stages) >= 2 * layers * count.layer_moe


def test_the_weights_of_a_question_are_those_of_its_format() -> None:
    made = asked("llama-2-7b", serve__weights="int4").job
    assert made.scheme.weights.name == "int4"
    assert weight_bytes(made.model, made.scheme) < 0.3 * weight_bytes(made.model, BF16)
