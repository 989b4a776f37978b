"""`profiles add` on configurations of repositories of 2026: counts within 0.1 % of those of the published weights.

The configurations, in `hub_2026`, have the keys that decide a shape. Counts are those of the weights that the reference
implementation of transformers 5.24 makes of the same configuration, on PyTorch's meta device, the language model alone.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.hub_cases import CONFIG
from xe_sizer.cli.main import main
from xe_sizer.errors import InputError, Location
from xe_sizer.graph.model import ModelShape, SparseIndexer
from xe_sizer.graph.weights import count_parameters, embedding_weights
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.huggingface import model_from_config
from xe_sizer.profiles.model import InlineModel, inline_model
from xe_sizer.profiles.write import profile_from_config
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import sequence_bytes
from xe_sizer.software.number_formats import format_of
from xe_sizer.units import GIB

CONFIGS = Path(__file__).parent / "hub_2026"
# As packaged with ai-dynamo/aiconfigurator@095f58a, src/aiconfigurator/model_configs
PACKAGED = {
    "MiniMaxAI__MiniMax-M2.5": ("MiniMaxM2ForCausalLM", 228689748992),
    "Qwen__Qwen3.5-122B-A10B": ("Qwen3_5MoeForCausalLM", 122111526912),
    "Qwen__Qwen3.5-27B": ("Qwen3_5ForCausalLM", 26895998464),
    "Qwen__Qwen3.5-397B-A17B": ("Qwen3_5MoeForCausalLM", 396346350336),
    "deepseek-ai__DeepSeek-V4-Flash": ("DeepseekV4ForCausalLM", 284332230231),
    "deepseek-ai__DeepSeek-V4-Pro": ("DeepseekV4ForCausalLM", 1572997179491),
    "google__gemma-4-26B-A4B": ("Gemma4ForCausalLM", 25233141760),
    "moonshotai__Kimi-K2.5": ("DeepseekV3ForCausalLM", 1026408209408),
    "nvidia__MiniMax-M3-NVFP4": ("MiniMaxM3VLForCausalLM", 426174565632),
    "nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8": ("NemotronHForCausalLM", 120668687360),
    "nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": ("NemotronHForCausalLM", 549308968960),
    "nvidia__NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": ("NemotronHForCausalLM", 31577937344),
    "nvidia__Qwen3.6-35B-A3B-NVFP4": ("Qwen3_5MoeForCausalLM", 34660610688),
    "zai-org__GLM-5.2": ("GlmMoeDsaForCausalLM", 743377000704),
}
# Defaults of the configuration class of transformers 5.24, which are those of the repository that it names
DEFAULTS = {
    "IQuestLab__IQuest-Coder-V1-40B-Instruct": ("LlamaForCausalLM", 39794283520),
    "JetBrains__Mellum2-12B-A2.5B-Base": ("MellumForCausalLM", 12149923072),
    "ibm-granite__granite-swash-2b": ("GraniteSWAForCausalLM", 2144463840),
    "inclusionAI__Ling-3.0-Flash": ("BailingHybridForCausalLM", 124414191072),
    "meta-models__Muse-Spark-Open-816B-A42B": ("MuseSparkTextModel", 819990536192),
    "mistralai__Mistral-Large-4-1T-A52B": ("MistralLarge4TextModel", 1050118202912),
    "sarvamai__sarvam-105b": ("DeepseekV3ForCausalLM", 106031763456),
    "sarvamai__sarvam-30b": ("Glm4MoeForCausalLM", 32152648064),
    "skt__A.X-K1": ("AXK1ForCausalLM", 518983052288),
    "tencent__Youtu-LLM-2B": ("YoutuForCausalLM", 1961560064),
    "upstage__Solar-Open-100B": ("SolarOpenForCausalLM", 102651793408),
    "zai-org__GLM-5.3-Flash": ("Glm5NextTextModel", 313326816766),
}
PUBLISHED = PACKAGED | DEFAULTS
# Collected after those above, from the same places; K-EXAONE from a test of TensorRT-LLM, LFM2 from one of an engine
# that states the count too. LongCat has the count of its model card, since its class gives idle experts weights, and
# DeepSeek-V4.1 that of its report, with its tables. MiniCPM5-2B, Spark-X2.5-4B and Granite 4.2 8B have as many as the
# Hub states of their weights, Spark-X2.5-1.7B as many as its own shape has with the gates of its heads.
LATER = {
    "Aleph-Alpha__Kolibri-1": 78103055360,
    "CohereLabs__North-Mini-Code-1.0": 30484303872,
    "IFM__K2-Horizon-7B": 8999178240,
    "LGAI-EXAONE__EXAONE-4.5-33B": 32527504384,
    "LGAI-EXAONE__K-EXAONE-236B-A23B": 236571150336,
    "LiquidAI__LFM2-350M": 354483968,
    "LiquidAI__LFM2.5-1.2B": 1170340608,
    "LiquidAI__LFM2.5-2.6B": 2697198592,
    "LiquidAI__LFM2.5-8B-A1B": 8467856128,
    "LiquidAI__LFM3-1.7B": 1728801536,
    "MiniMaxAI__MiniMax-M2.7": 228689748992,
    "MiniMaxAI__MiniMax-M3": 426174565632,
    "Qwen__Qwen3.5-35B-A3B": 34660610688,
    "Qwen__Qwen3.8-Flash-Next": 176943899520,
    "RecursiveSI__flint": 39785287456,
    "XHToken__Spark-X2.5-1.7B": 1971898368,
    "XHToken__Spark-X2.5-4B": 4112079360,
    "XiaomiMiMo__MiMo-V2-Flash": 308778768832,
    "XiaomiMiMo__MiMo-V2.5": 308778768832,
    "XiaomiMiMo__MiMo-V2.6-Flash": 308778768832,
    "allenai__Olmo-Hybrid-7B": 7430870688,
    "dots-studio__dots3-note-prev": 279551718016,
    "google__gemma-4-12B": 11907350272,
    "ibm-granite__granite-4.0-h-small": 32207337984,
    "ibm-granite__granite-4.2-30b": 29276770304,
    "ibm-granite__granite-4.2-3b": 3402836480,
    "ibm-granite__granite-4.2-8b": 8791592960,
    "inclusionAI__Ling-3.0-Tiny": 7893389856,
    "nvidia__DeepSeek-V4-Pro-NVFP4": 1572997179491,
    "nvidia__GLM-5.2-NVFP4": 743377000704,
    "nvidia__Gemma-4-31B-IT-NVFP4": 30697345280,
    "nvidia__Kimi-K2.6-NVFP4": 1026408209408,
    "nvidia__Kimi-K2.7-Code-NVFP4": 1026408209408,
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31577937344,
    "nvidia__Qwen3.6-27B-NVFP4": 26895998464,
    "openbmb__MiniCPM5-1B": 1080632832,
    "openbmb__MiniCPM5-2B": 2516756480,
    "poolside__Laguna-S-2.1": 117561977600,
    "poolside__Laguna-XS-2.1": 33442617088,
    "skt__A.X-K2-Light": 20314494976,
    "swiss-ai__Apertus-v1.5-8B": 8091086912,
    "tencent__Hy4-preview": 58278193133,
    "thinkingmachines__Inkling": 975340270146,
    "thinkingmachines__Inkling-2-Small-MXFP8": 593718478848,
    "thinkingmachines__Inkling-Small": 263655189034,
    "translated__Lara-4-Mini-Base": 7281684672,
    "zai-org__GLM-5": 743911199232,
}
CARDS = {
    "deepseek-ai__DeepSeek-V4.1-Flash": 552e9 + 196e9,
    "XiaomiMiMo__MiMo-V2.6-Pro": 1.02e12,
    "meituan-longcat__LongCat-Flash-Chat": 560e9,
    "meituan-longcat__LongCat-Flash-Lite-Sparse": 68.5e9,
    "upstage__Solar-Open2-250B": 250e9,
}  # as rounded there


LONGCAT_2 = "meituan-longcat__LongCat-2.0-FP8"


def shape(name: str) -> ModelShape:
    return model_from_config(CONFIGS / f"{name}.json")[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_added_profiles_have_the_published_parameters(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profiles", "add", "--profiles", str(tmp_path), str(CONFIGS / f"{name}.json")]) == 0
    (file,) = tmp_path.glob("*.yaml")
    parameters = yaml.safe_load(file.read_text(encoding="utf-8"))["parameters"]
    assert parameters["total"] == pytest.approx(PUBLISHED[name][1], rel=1e-3)
    assert f"{file}: {parameters['total']:,} parameters" in capsys.readouterr().out
    assert main(["profiles", "validate", "--profiles", str(tmp_path), str(file)]) == 0


@pytest.mark.parametrize("name", [*LATER, *CARDS])
def test_later_configurations_become_profiles_of_as_many_parameters(name: str) -> None:
    profile, _ = profile_from_config(CONFIGS / f"{name}.json", name.replace("__", "/"), None, "2026-11-27")
    published = LATER.get(name) or CARDS[name]
    assert profile["parameters"]["total"] == pytest.approx(published, rel=1e-3 if name in LATER else 2e-3)
    again = inline_model(convert(profile, InlineModel, lambda *_, **__: Location("-")), lambda *_, **__: Location("-"))
    assert count_parameters(again).active == count_parameters(shape(name)).active
    assert again.layer_kinds == shape(name).layer_kinds


def test_every_configuration_is_in_a_list() -> None:
    assert sorted([*PUBLISHED, *LATER, *CARDS, LONGCAT_2]) == sorted(path.stem for path in CONFIGS.glob("*.json"))


def test_longcat_2_has_the_sizes_of_its_model_card() -> None:
    """1.6T, of which 135B are tables of n-grams: README of meituan-longcat/LongCat-2.0, rounded as there."""
    model = shape(LONGCAT_2)
    tables = model.ngram_tables
    assert tables is not None
    assert sum(tables.rows) * tables.width == pytest.approx(135e9, rel=1e-3)
    assert tables.joined == model.hidden
    assert round(count_parameters(model).total / 1e12, 1) == 1.6
    projections = 16 * tables.width * model.hidden  # which nothing gates
    assert [each.parameters for each in embedding_weights(model) if each.name.startswith("ngram_")] == [
        sum(tables.rows) * tables.width,
        projections,
    ]


def test_both_attentions_of_longcat_take_one_choice() -> None:
    model = shape(LONGCAT_2)
    assert model.layer_pattern == "*S" * 38
    own, shared = (model.seen_by(kind).indexer for kind, _ in model.layer_kinds)
    assert (own is not None and own.own, shared is not None and shared.own) == (True, False)


def test_layers_with_a_window_have_more_heads_in_laguna() -> None:
    model = shape("poolside__Laguna-S-2.1")
    wide, near = (model.seen_by(kind) for kind, _ in model.layer_kinds[:2])
    assert (wide.heads, wide.sliding_window, wide.rotary_fraction) == (48, None, 0.5)
    assert (near.heads, near.sliding_window, near.rotary_fraction) == (72, 512, 1.0)


@pytest.mark.parametrize("key", ["num_loops", "total_ut_steps"])
def test_layers_that_a_token_passes_several_times_are_refused(key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, key: 1}), encoding="utf-8")
    model_from_config(path)
    path.write_text(json.dumps({**CONFIG, key: 2}), encoding="utf-8")
    with pytest.raises(InputError, match="a token passes its layers 2 times"):
        model_from_config(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MiniMaxAI__MiniMax-M2.7", "fp8-block"),
        ("XiaomiMiMo__MiMo-V2.5", "fp8-block"),
        ("XiaomiMiMo__MiMo-V2.6-Flash", "mxfp4"),  # the experts; the rest in fp8
        ("moonshotai__Kimi-K2.5", "int4-experts"),
        ("nvidia__GLM-5.2-NVFP4", "nvfp4-experts"),  # attention and shared experts stay as they were
        ("nvidia__DeepSeek-V4-Pro-NVFP4", "nvfp4-experts"),
        ("nvidia__Gemma-4-31B-IT-NVFP4", "nvfp4"),  # no experts
        ("zai-org__GLM-5", None),
    ],
)
def test_the_format_of_published_weights_is_read(name: str, expected: str | None) -> None:
    assert shape(name).checkpoint_format == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"quant_method": "gptq", "bits": 8}, "gptq-int8"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "aqlm"}, None),
    ],
)
def test_methods_say_the_format(stated: dict[str, object], expected: str | None, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "quantization_config": stated}), encoding="utf-8")
    model, notes = model_from_config(path)
    assert model.checkpoint_format == expected
    assert bool(notes) == (expected is None)  # what cannot be read is said


def test_weights_of_kimi_k2_5_take_what_is_published() -> None:
    """555 GB in binary units, by the page of a variant of K2.6 with as many (gratex/Kimi-K2.6-REAM-25 on the Hub)."""
    model = Registry().model("kimi-k2.5")
    counted, form = count_parameters(model), format_of(str(model.checkpoint_format))
    experts = model.experts
    assert experts is not None
    routed = 60 * experts.count * 3 * model.hidden * experts.ffn
    held = routed * form.element_bytes + (counted.total - routed) * 2
    assert held / GIB == pytest.approx(555, rel=0.01)


def test_layers_share_what_an_indexer_picked() -> None:
    """One indexer in four layers is a quarter of the scores and of their cached keys; all layers read as few tokens."""
    shared, own = shape("zai-org__GLM-5.2"), shape("zai-org__GLM-5")
    counts = Counter(shared.layer_pattern)
    assert counts == {"*": 21, "S": 57}
    one = ReplicaLayouts.of(tp=[1])
    tokens = 2**20
    held = {model: float(sequence_bytes(model, format_of("bf16"), tokens, one, 16)[0]) for model in (shared, own)}
    assert held[own] - held[shared] == pytest.approx(57 * tokens * (128 + 4))


def test_minimax_m3_picks_blocks_of_keys() -> None:
    """As MiniMaxM3VLForCausalLM of transformers 5.24 on the meta device, with 224,147,712 of indexers."""
    model = shape("MiniMaxAI__MiniMax-M3")
    assert model.indexer == SparseIndexer(4, 128, 16 * 128, "msa", block_tokens=128)
    assert model.layer_pattern == "DDD" + "*" * 57
    assert count_parameters(model).total == 426174565632 == 425950417920 + 57 * (6144 * 5 * 128 + 2 * 128)
    dense, sparse = (model.seen_by(kind).indexer for kind, _ in model.layer_kinds)
    assert (dense, sparse) == (None, model.indexer)


def test_dots3_has_two_kinds_of_latent_attention() -> None:
    model = shape("dots-studio__dots3-note-prev")
    wide, near = (model.seen_by(kind) for kind, _ in (model.layer_kinds[0], model.layer_kinds[2]))
    assert (wide.heads, wide.sliding_window, wide.qk_head_dim) == (128, None, 192)
    assert (near.heads, near.sliding_window, near.qk_head_dim, near.indexer) == (64, 512, 256, None)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-ai__DeepSeek-V4-Flash", 284e9, 13e9), ("deepseek-ai__DeepSeek-V4-Pro", 1.6e12, 49e9)],
)
def test_deepseek_v4_has_the_sizes_of_its_model_card(name: str, total: float, active: float) -> None:
    """284B, 13B active and 1.6T, 49B active: deepseek-ai/DeepSeek-V4-Pro README.md, rounded as there."""
    counted = count_parameters(shape(name))
    assert counted.total == pytest.approx(total, rel=0.02)
    assert counted.active == pytest.approx(active, rel=0.07)


@pytest.mark.parametrize(
    ("name", "letters", "published_gib"),
    [
        ("deepseek-ai__DeepSeek-V4-Pro", {"C": 30, "H": 31}, 9.62),
        ("deepseek-ai__DeepSeek-V4-Flash", {"C": 21, "H": 20, "*": 2}, 6.72),
    ],
)
def test_a_million_tokens_of_deepseek_v4_take_what_is_published(
    name: str, letters: dict[str, int], published_gib: float
) -> None:
    """https://vllm.ai/blog/deepseek-v4 (24 April 2026), where keys of the indexer are in bfloat16 like the others.

    Layers of letter C keep 512 + 128 elements of every fourth token, those of letter H 512 of every 128th.
    """
    model, tokens = shape(name), 2**20
    assert Counter(model.layer_pattern or "") == letters
    held = float(sequence_bytes(model, format_of("bf16"), tokens, ReplicaLayouts.of(tp=[1]), 16)[0])
    fp8 = 128 + 4
    entries = letters["C"] * tokens / 4 * (512 * 2 + fp8) + letters["H"] * tokens / 128 * 512 * 2
    windows = model.layers * 512 * 2 * (128 + 16)
    assert held == pytest.approx(entries + windows)
    in_bf16 = held + letters["C"] * tokens / 4 * (2 * 128 - fp8)
    assert in_bf16 / GIB == pytest.approx(published_gib, rel=0.01)


def test_a_longer_past_costs_deepseek_v4_little() -> None:
    """Cache grows by entries: between a half and a whole million tokens by half as much, of V3.2 by 10 times that."""
    model = shape("deepseek-ai__DeepSeek-V4-Pro")
    one = ReplicaLayouts.of(tp=[1])
    grown = np.diff([float(sequence_bytes(model, format_of("bf16"), n * 2**19, one, 16)[0]) for n in (1, 2)])[0]
    dense = 61 * 2**19 * 576 * 2  # latent attention of DeepSeek-V3
    assert 0.05 < grown / dense < 0.15  # a tenth, by the model card


def test_glm_5_3_has_delta_attention_in_three_of_four_layers() -> None:
    model = shape("zai-org__GLM-5.3-Flash")
    assert model.layer_pattern == ("MMM*" * 12)[:45]
    assert (model.residual_streams, model.position) == (4, "none")
    assert model.state_space is not None
    assert (model.state_space.decay_rank, model.state_space.gate_rank) == (128, 128)
    ling = shape("inclusionAI__Ling-3.0-Flash").state_space
    assert ling is not None
    assert (ling.decay_rank, ling.gate_rank) == (0, 0)
