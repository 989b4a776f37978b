"""Kinds of adapters: what learns, against counts that peft published and arithmetic by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Attention, Matmul
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.adapters.bottleneck import Bottleneck
from xe_sizer.training.adapters.low_rank import FromWeight, Kronecker, Shards, Subspace, factors, narrower_targets
from xe_sizer.training.job import Job
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve

LLAMA = "llama-3.2-3b"  # 28 layers of 3072, keys and values of 1024, MLP of 8192
Q_AND_V = {"lora.targets": ["q_proj", "v_proj"]}


def job_of(adapter: str, model: str = LLAMA, **keys: Any) -> Job:
    flags = {"model": model, "server": "dell-xe9680-h100", "gpus": 1, "adapter": adapter, "stack": "hf-bf16"}
    return resolve(read_scenario(None, flags | keys, {}), Registry()).job


def learns(adapter: str, model: str = LLAMA, **keys: Any) -> int:
    job = job_of(adapter, model, **keys)
    return job.method.trainable_parameters(job.model)


@pytest.mark.parametrize(
    ("adapter", "keys", "published"),
    [
        ("fourierft", Q_AND_V, 56_000),
        ("fourierft", Q_AND_V | {"lora.frequencies": 5000}, 280_000),
        ("ia3", {}, 286_720),
        ("ln-tuning", {}, 175_104),
        ("lora", Q_AND_V | {"lora.rank": 32}, 9_175_040),
        ("lora-fa", Q_AND_V | {"lora.rank": 32}, 3_670_016),
        ("p-tuning", {"p_tuning.virtual_tokens": 20}, 28_382_208),
        ("prefix-tuning", {"p_tuning.virtual_tokens": 200}, 11_468_800),
        ("prefix-tuning", {"p_tuning.virtual_tokens": 50}, 2_867_200),
        ("prompt-tuning", {"p_tuning.virtual_tokens": 200}, 614_400),
        ("randlora", Q_AND_V | {"lora.rank": 32}, 9_289_728),
        ("shira", Q_AND_V | {"lora.rank": 32}, 9_175_040),
        ("trainable-tokens", {"p_tuning.virtual_tokens": 2}, 6_144),
    ],
)
def test_as_many_learn_as_peft_published(adapter: str, keys: dict[str, Any], published: int) -> None:
    """method_comparison of peft, MetaMathQA, Llama 3.2 3B: num_trainable_params of each result."""
    assert learns(adapter, **keys) == published


@pytest.mark.parametrize(
    ("adapter", "model", "published"),
    [
        ("llama-adapter", "llama-2-7b", 1_229_760),
        ("llama-adapter-v2", "llama-2-7b", 4_279_744),
    ],
)
def test_as_many_learn_as_litgpt_published(adapter: str, model: str, published: int) -> None:
    """Resource tables of LitGPT: ten prompts in all but two layers, a gate a head; version 2 adds shifts and norms."""
    assert learns(adapter, model) == published


def test_prompts_that_learn() -> None:
    """64 virtual tokens of 3072; keys and values of 28 layers are 2048 wide; one position of a cartridge stays."""
    keys = {"p_tuning.virtual_tokens": 64}
    assert learns("multitask-prompt-tuning", **keys) == 64 * 3072 + 64 + 3072
    assert learns("context-prompt-tuning", **keys) == 64 * 3072
    assert learns("cartridge", **keys) == 63 * 28 * 2048
    encoder = keys | {"p_tuning.encoder_hidden": 512}
    assert learns("prefix-tuning", **encoder) == 64 * 3072 + 3073 * 512 + 513 * 28 * 2048


def test_a_prefix_is_attended_to_by_every_query() -> None:
    """512 queries and 64 keys before them: 512 x 64 pairs more than the causal ones, in every layer."""
    pairs = []
    for tokens in (None, 64):
        keys = {"p_tuning.virtual_tokens": tokens} if tokens else {"p_tuning.virtual_tokens": 1}
        job = job_of("prefix-tuning" if tokens else "prompt-tuning", **keys)
        length = 512.0 if tokens else 511.0
        operators = layer_operators(graph_inputs(job, _layout(), np.array([length])))
        pairs.append(sum(float(op.layers * op.pairs[0]) for op in operators if isinstance(op, Attention)))
    assert pairs[1] - pairs[0] == 28 * 512 * 64


def test_bottlenecks_stand_behind_attention_and_mlp() -> None:
    assert learns("houlsby") == 28 * 2 * (2 * 64 * 3072 + 64 + 3072)
    assert learns("pfeiffer") == 28 * (2 * 64 * 3072 + 64 + 3072)


def test_every_expert_has_adapters_of_its_own() -> None:
    """Mixtral: 32 layers of 8 experts with 4096 inputs and 14336 outputs; two experts see each of 512 tokens."""
    keys = {"lora.targets": ["experts"], "lora.rank": 8}
    job = job_of("lora", "mixtral-8x7b", **keys)
    assert job.method.trainable_parameters(job.model) == 32 * 8 * 3 * 8 * (4096 + 14336)
    operators = layer_operators(graph_inputs(job, _layout(), np.array([512.0])))
    own = [op for op in operators if isinstance(op, Matmul) and op.adapter]
    assert {op.name for op in own} == {f"expert_{w} adapter {f}" for w in ("gate", "up", "down") for f in "AB"}
    assert all(op.copies[0] == pytest.approx(8) and op.grouped for op in own)
    assert sum(float(op.forward_flops[0]) for op in own) == pytest.approx(
        2 * 2 * 512 * 3 * 8 * (4096 + 14336), rel=1e-6
    )
    with pytest.raises(InputError, match="not a projection"):
        job_of("lora", **keys)


def test_a_skill_is_a_low_rank_adapter() -> None:
    assert learns("poly", **{"lora.targets": ["q"]}) == 28 * (4 * 8 * (Q + K) + 4)


Q, K = 3072, 3072  # outputs and inputs of the query projection; values have 1024 outputs
BY_HAND = {
    "adalora": {8: 12 * (Q + K + 1)},
    "adamss": {100: 5 * 100 + Q},
    "beft": {0: Q},
    "boft": {0: 4 * K + Q},
    "c3a": {0: Q * K // 256},
    "deft": {8: 8 * (Q + K)},
    "delora": {8: 8 * (Q + K) + 1},
    "frod": {0: K + K * K // 100},
    "glora": {8: 2 * 8 * (Q + K)},
    "gralora": {8: 8 * (Q + K)},
    "hira": {8: 8 * (Q + K)},
    "hra": {8: 8 * K},
    "loha": {8: 2 * 8 * (Q + K)},
    "lokr": {8: 48 * 48 + 8 * (64 + 64)},  # 3072 = 48 x 64
    "miss": {8: 8 * Q},
    "oft": {0: K * 31 // 2},
    "osf": {0: 1536 * (Q + K + 1)},
    "peanut": {8: 2 * 8 * Q},
    "psoft": {8: 28 + 16},
    "pvera": {8: Q + 16},
    "road": {0: Q},
    "supertuning": {0: Q * K // 100},
    "tinylora": {8: 64},
    "vera": {8: Q + 8},
    "waveft": {0: 2592},
}


@pytest.mark.parametrize("adapter", BY_HAND)
def test_as_many_learn_as_counted_by_hand(adapter: str) -> None:
    ((rank, each),) = BY_HAND[adapter].items()
    keys = {"lora.rank": rank} if rank else {}
    assert learns(adapter, **{"lora.targets": ["q"]}, **keys) == 28 * each


def test_what_all_layers_share_counts_once() -> None:
    """VB-LoRA: 256 vectors of 256; Uni-LoRA: 256 numbers; Lily: two matrices B of 8 x 3072 beside A and a router."""
    keys = {"lora.targets": ["q"], "lora.rank": 8}
    assert learns("vblora", **keys) == 28 * 8 * (Q + K) + 256 * 256
    assert learns("unilora", **keys) == 256
    assert learns("lily", **keys) == 28 * 8 * (K + 2) + 2 * 8 * Q


def test_bitfit_trains_the_biases_that_there_are() -> None:
    """Qwen2 7B has biases on queries, keys and values alone: 3584 + 2 x 512 a layer."""
    assert learns("bitfit", "qwen2-7b") == 28 * (3584 + 2 * 512)
    with pytest.raises(InputError, match="no biases"):
        learns("bitfit")


def test_ia3_scales_the_inputs_behind_an_activation() -> None:
    assert learns("ia3", **{"lora.targets": ["down"]}) == 28 * 8192
    assert learns("ia3", **{"lora.targets": ["up"]}) == 28 * 8192
    assert learns("ia3", **{"lora.targets": ["o"]}) == 28 * 3072


@pytest.mark.parametrize("adapter", [name for name, kind in ADAPTERS.items() if "lora" in kind.settings])
def test_a_kind_on_projections_computes_beside_them(adapter: str) -> None:
    """Every kind yields operators in each layer that say they are an adapter's, with finite sizes."""
    job = job_of(adapter, **Q_AND_V)
    operators = layer_operators(graph_inputs(job, _layout(), np.array([512.0])))
    own = [op for op in operators if " adapter " in op.name]
    assert {op.name.split()[0] for op in own} <= {"q", "v"}
    assert own
    assert all(np.all(np.isfinite(op.saved_bytes)) and np.all(op.saved_bytes >= 0) for op in own)


@pytest.mark.parametrize(("adapter", "beside"), [("hra", 0), ("shira", 0), ("lora", 1), ("osf", 1)])
def test_what_takes_the_weight_s_place_leaves_out_its_product(adapter: str, beside: int) -> None:
    job = job_of(adapter, **{"lora.targets": ["o"]})
    operators = layer_operators(graph_inputs(job, _layout(), np.array([512.0])))
    assert sum(op.name == "output projection" for op in operators if isinstance(op, Matmul)) == beside


def _layout() -> Any:

    from xe_sizer.training.layout import Layouts

    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0, "recompute": 0}
    return Layouts.of(**{field: none.get(field, 1) for field in Layouts.__struct_fields__})


def test_adapters_on_the_names_of_mixtral() -> None:
    """r (inputs + outputs) of 32 layers: a router of 4,096 to 8, and eight experts of 3 x (4,096 + 14,336)."""
    router, experts = ({"lora.rank": 16, "lora.targets": words} for words in (["gate"], ["w1", "w2", "w3"]))
    assert learns("lora", "mixtral-8x7b", **router) == 16 * 32 * (4096 + 8)
    assert learns("lora", "mixtral-8x7b", **experts) == 16 * 32 * 8 * 3 * (4096 + 14_336)


def test_kronecker_factors_are_as_even_as_a_size_divides() -> None:
    """3072 = 48 x 64, 28 = 4 x 7, 13 and 1 as they are; a factor of half the rank is kept whole."""
    assert [factors(size) for size in (3072, 28, 36, 13, 1)] == [(48, 64), (4, 7), (6, 6), (1, 13), (1, 1)]
    small = 48 * 48
    for rank, others in ((8, 8 * (64 + 64)), (31, 31 * (64 + 64)), (32, 64 * 64), (40, 64 * 64)):
        assert np.asarray(Kronecker(rank).elements(3072, 3072)).item() == small + others


def test_matrices_that_learn_are_those_of_each_form() -> None:
    """What an optimizer of whole matrices works on: rows and columns, of n = 96 outputs and k = 64 inputs."""
    assert Shards(8).matrices(96, 64) == ((96, 8),)
    assert Shards(8).elements(96, 64) == 96 * 8
    assert FromWeight(8).matrices(96, 64) == ((8, 96), (96, 8))
    assert Bottleneck(8).matrices(96, 64) == ((8, 96), (96, 8))
    assert Bottleneck(8).elements(96, 64) == 2 * 8 * 96 + 8 + 96
    assert Subspace().elements(96, 65) == 33 * (96 + 65 + 1)  # half of 65 directions, rounded up
    assert np.asarray(Subspace().buffer_bytes(96, 64)).item() == 4 * 32 * (96 + 64 + 1 + 96)
    assert np.asarray(Subspace().buffer_bytes(64, 64)).item() == 4 * 32 * (64 + 64 + 1)


def test_an_adapter_on_the_head_learns_beside_those_of_the_layers() -> None:
    """Rank 8 on q of 28 layers of 3,072 and on the matrix of 128,256 words; tied or not."""
    both = learns("lora", **{"lora.targets": ["q_proj", "lm_head"], "lora.rank": 8})
    assert both == 28 * 8 * (3072 + 3072) + 8 * (3072 + 128_256)


def test_narrower_sets_of_projections_lie_inside_the_wider() -> None:
    model = Registry().model(LLAMA)
    assert list(narrower_targets(model, ["all-linear"])) == [
        ("attention", ("attention",)), ("q and v", ("q", "v")),
    ]  # fmt: skip
    assert list(narrower_targets(model, ["attention"])) == [("q and v", ("q", "v"))]
    assert list(narrower_targets(model, ["q", "v"])) == []
    assert list(narrower_targets(model, ["gate", "up"])) == []


@pytest.mark.parametrize(
    ("kind", "adapter", "label"),
    [
        ("dpo", "qlora", "DPO (QLoRA, 4 bit)"),
        ("dpo", "lora", "DPO (LoRA)"),
        ("dpo", None, "DPO"),
        ("lora", None, "LoRA"),
    ],
)
def test_a_job_is_named_with_the_adapters_that_it_does_not_mean_by_itself(
    kind: str, adapter: str | None, label: str
) -> None:
    flags = {"model": LLAMA, "server": "dell-xe9680-h100", "job": kind, "stack": "hf-bf16"}
    asked = flags if adapter is None else {**flags, "adapter": adapter}
    assert resolve(read_scenario(None, asked, {}), Registry()).job.method.label == label
