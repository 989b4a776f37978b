"""Hugging Face configs as published (without the keys that decide no shape), and broken ones.

The expected counts are those of the published weights, counted in the reference implementation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xe_sizer.errors import InputError
from xe_sizer.graph.parameters import count_parameters
from xe_sizer.profiles.huggingface import model_from_config


def llama_like(kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 32768,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }


DEEPSEEK_V2_LITE = llama_like("deepseek_v2", 27, 2048, 16, 16, 10944, 102400) | {
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = llama_like("deepseek_v3", 61, 7168, 128, 128, 18432, 129280) | {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}
CONFIGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "llama-3.1-8b": (llama_like("llama", 32, 4096, 32, 8, 14336, 128256), 8030261248, 8030261248),
    "mistral-7b-v0.1": (
        llama_like("mistral", 32, 4096, 32, 8, 14336, 32000) | {"sliding_window": 4096},
        7241732096,
        7241732096,
    ),
    "mixtral-8x7b": (
        llama_like("mixtral", 32, 4096, 32, 8, 14336, 32000)
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
        46702792704,
        12879925248,
    ),
    "qwen2.5-7b": (
        llama_like("qwen2", 28, 3584, 28, 4, 18944, 152064) | {"use_sliding_window": False, "sliding_window": 131072},
        7615616512,
        7615616512,
    ),
    "qwen3-8b": (
        llama_like("qwen3", 36, 4096, 32, 8, 12288, 151936) | {"head_dim": 128, "attention_bias": False},
        8190735360,
        8190735360,
    ),
    "qwen3-30b-a3b": (
        llama_like("qwen3_moe", 48, 2048, 32, 4, 6144, 151936)
        | {
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        30532122624,
        3353032704,
    ),
    "qwen1.5-moe-a2.7b": (
        llama_like("qwen2_moe", 24, 2048, 16, 16, 5632, 151936)
        | {
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
        },
        14315784192,
        2689173504,
    ),
    "qwen-7b": (
        {
            "model_type": "qwen",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "intermediate_size": 22016,
            "vocab_size": 151936,
            "seq_length": 8192,
            "no_bias": True,
            "tie_word_embeddings": False,
        },
        7721324544,
        7721324544,
    ),
    "gemma-2b": (
        llama_like("gemma", 18, 2048, 8, 1, 16384, 256000) | {"head_dim": 256, "hidden_act": "gelu"},
        2506172416,
        2506172416,
    ),
    "gemma-2-9b": (
        llama_like("gemma2", 42, 3584, 16, 8, 14336, 256000)
        | {"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096},
        9241705984,
        9241705984,
    ),
    "gemma-3-4b": (
        {
            "model_type": "gemma3",
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        3880263168,
        3880263168,
    ),
    "phi-2": (
        llama_like("phi", 32, 2560, 32, 32, 10240, 51200)
        | {"hidden_act": "gelu_new", "partial_rotary_factor": 0.4, "tie_word_embeddings": False},
        2779683840,
        2779683840,
    ),
    "phi-3-mini-4k": (
        llama_like("phi3", 32, 3072, 32, 32, 8192, 32064) | {"sliding_window": 2047},
        3821079552,
        3821079552,
    ),
    "phi-3.5-moe": (
        llama_like("phimoe", 32, 4096, 32, 8, 6400, 32064)
        | {"num_local_experts": 16, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True},
        41873153344,
        6640999744,
    ),
    "opt-350m": (
        {
            "model_type": "opt",
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
            "activation_function": "relu",
        },
        331196416,
        331196416,
    ),
    "gpt2": (
        {
            "model_type": "gpt2",
            "n_layer": 12,
            "n_embd": 768,
            "n_head": 12,
            "n_inner": None,
            "n_positions": 1024,
            "n_ctx": 1024,
            "vocab_size": 50257,
            "activation_function": "gelu_new",
        },
        124439808,
        124439808,
    ),
    "gpt-j-6b": (
        {
            "model_type": "gptj",
            "n_layer": 28,
            "n_embd": 4096,
            "n_head": 16,
            "rotary_dim": 64,
            "n_positions": 2048,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
        6050882784,
        6050882784,
    ),
    "starcoder": (
        {
            "model_type": "gpt_bigcode",
            "n_layer": 40,
            "n_embd": 6144,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
            "multi_query": True,
        },
        15517456384,
        15517456384,
    ),
    "gpt-neox-20b": (
        llama_like("gpt_neox", 44, 6144, 64, 64, 24576, 50432) | {"hidden_act": "gelu_fast", "rotary_pct": 0.25},
        20554567680,
        20554567680,
    ),
    "starcoder2-7b": (
        llama_like("starcoder2", 32, 4608, 36, 4, 18432, 49152)
        | {"hidden_act": "gelu_pytorch_tanh", "use_bias": True, "sliding_window": 4096},
        7173923840,
        7173923840,
    ),
    "bloom-560m": (
        {
            "model_type": "bloom",
            "n_layer": 24,
            "n_embed": 1024,
            "num_attention_heads": 16,
            "vocab_size": 250880,
        },
        559214592,
        559214592,
    ),
    "falcon-7b": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "bias": False,
        },
        6921720704,
        6921720704,
    ),
    "falcon-40b": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 60,
            "hidden_size": 8192,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "vocab_size": 65024,
            "new_decoder_architecture": True,
        },
        41303293952,
        41303293952,
    ),
    "mpt-7b": (
        {
            "model_type": "mpt",
            "n_layers": 32,
            "d_model": 4096,
            "n_heads": 32,
            "expansion_ratio": 4,
            "max_seq_len": 2048,
            "vocab_size": 50432,
            "no_bias": True,
            "attn_config": {"alibi": True},
        },
        6649286656,
        6649286656,
    ),
    "olmo-7b": (llama_like("olmo", 32, 4096, 32, 32, 11008, 50304), 6888095744, 6888095744),
    "olmo-2-7b": (llama_like("olmo2", 32, 4096, 32, 32, 11008, 100352), 7298617344, 7298617344),
    "olmoe-1b-7b": (
        llama_like("olmoe", 16, 2048, 16, 16, 1024, 50304) | {"num_experts": 64, "num_experts_per_tok": 8},
        6919161856,
        1282017280,
    ),
    "command-r-plus": (
        llama_like("cohere", 64, 12288, 96, 8, 33792, 256000) | {"use_qk_norm": True},
        103810674688,
        103810674688,
    ),
    "granite-3.0-1b-a400m": (
        llama_like("granitemoe", 24, 1024, 16, 8, 512, 49155)
        | {"num_local_experts": 32, "num_experts_per_tok": 8, "tie_word_embeddings": True},
        1334628352,
        428658688,
    ),
    "deepseek-v2-lite": (DEEPSEEK_V2_LITE, 15706484224, 2661150208),
    "deepseek-v3": (DEEPSEEK_V3, 671026404352, 37552282624),
    "deepseek-v3.2": (
        DEEPSEEK_V3 | {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        671877929216,
        38403807488,
    ),
    "glm-4.5-air": (
        llama_like("glm4_moe", 46, 4096, 96, 8, 10944, 151552)
        | {
            "head_dim": 128,
            "attention_bias": True,
            "use_qk_norm": False,
            "n_routed_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 1,
        },
        106852245504,
        13424123904,
    ),
    "gpt-oss-20b": (
        llama_like("gpt_oss", 24, 2880, 64, 8, 2880, 201088)
        | {
            "head_dim": 64,
            "attention_bias": True,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        20914757184,
        4187440704,
    ),
    "llama-4-maverick": (
        {
            "model_type": "llama4",
            "tie_word_embeddings": False,
            "text_config": llama_like("llama4_text", 48, 5120, 40, 8, 8192, 202048)
            | {
                "head_dim": 128,
                "intermediate_size_mlp": 16384,
                "num_local_experts": 128,
                "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 2,
                "attention_chunk_size": 8192,
            },
        },
        400711848960,
        17184691200,
    ),
    "internlm-7b": (
        llama_like("internlm", 32, 4096, 32, 32, 11008, 103168) | {"bias": True},
        7321948160,
        7321948160,
    ),
    "internlm2-7b": (
        llama_like("internlm2", 32, 4096, 32, 8, 14336, 92544) | {"bias": False},
        7737708544,
        7737708544,
    ),
    "baichuan2-13b": (
        {
            "model_type": "baichuan",
            "num_hidden_layers": 40,
            "hidden_size": 5120,
            "num_attention_heads": 40,
            "intermediate_size": 13696,
            "vocab_size": 125696,
            "model_max_length": 4096,
        },
        13896668160,
        13896668160,
    ),
    "chatglm3-6b": (
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 65024,
            "vocab_size": 65024,
            "seq_length": 8192,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "add_qkv_bias": True,
            "add_bias_linear": False,
            "rmsnorm": True,
        },
        6243584000,
        6243584000,
    ),
    "glm-4-9b-0414": (
        llama_like("glm4", 40, 4096, 32, 2, 13696, 151552) | {"head_dim": 128, "attention_bias": True},
        9400279040,
        9400279040,
    ),
    "nemotron-4-15b": (
        llama_like("nemotron", 32, 6144, 48, 8, 24576, 256000) | {"hidden_act": "relu2"},
        15628775424,
        15628775424,
    ),
    "minimax-m2": (
        llama_like("minimax_m2", 62, 3072, 48, 8, 1536, 200064)
        | {"head_dim": 128, "rotary_dim": 64, "num_local_experts": 256, "num_experts_per_tok": 8},
        228689748992,
        11030537216,
    ),
}


def write(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_config_has_the_parameters_of_the_published_weights(name: str, tmp_path: Path) -> None:
    config, total, active = CONFIGS[name]
    shape, _ = model_from_config(write(tmp_path, config))
    count = count_parameters(shape)
    assert (count.total, count.active) == (total, active)


def shape_and_notes(name: str, folder: Path, **changes: object) -> tuple[Any, tuple[str, ...]]:
    return model_from_config(write(folder, CONFIGS[name][0] | changes))


def test_name_in_a_download_cache_is_that_of_the_model(tmp_path: Path) -> None:
    folder = tmp_path / ("0123456789abcdef" * 3)[:40]
    folder.mkdir()
    shape, _ = shape_and_notes("llama-3.1-8b", folder, _name_or_path="meta-llama/Llama-3.1-8B")
    assert shape.name == "Llama-3.1-8B"
    assert shape_and_notes("llama-3.1-8b", folder)[0].name == folder.name
    assert shape_and_notes("llama-3.1-8b", tmp_path, _name_or_path="a/b")[0].name == tmp_path.name


def test_name_is_the_folder_of_the_config(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("llama-3.1-8b", tmp_path)
    assert (shape.name, shape.family, notes) == (tmp_path.name, "llama", ())


@pytest.mark.parametrize(
    ("name", "changes", "window", "layers"),
    [
        ("mistral-7b-v0.1", {}, 4096, 32),
        ("mistral-7b-v0.1", {"sliding_window": None}, None, 0),
        ("gemma-2-9b", {}, 4096, 21),
        ("gpt-oss-20b", {}, 128, 12),
        ("qwen2.5-7b", {}, None, 0),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20},
            4096,
            8,
        ),
        ("llama-3.1-8b", {"sliding_window": 4096}, None, 0),
        ("phi-3-mini-4k", {"sliding_window": 262144}, None, 0),
    ],
)
def test_sliding_window(name: str, changes: dict[str, Any], window: int | None, layers: int, tmp_path: Path) -> None:
    shape, _ = shape_and_notes(name, tmp_path, **changes)
    assert (shape.sliding_window, shape.windowed_layers) == (window, layers)


def test_text_part_of_a_multimodal_model(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("gemma-3-4b", tmp_path)
    assert (shape.sliding_window, shape.windowed_layers, shape.vocab) == (1024, 29, 262208)
    assert any("other towers" in note for note in notes)
    assert any("'vocab_size' is absent; 262208" in note for note in notes)


def test_alternating_experts_of_llama_4(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("llama-4-maverick", tmp_path)
    moe_layers = sum(count for kind, count in shape.layer_kinds if kind.mlp == "experts")
    assert (moe_layers, shape.experts.shared_ffn, shape.windowed_layers) == (24, 8192, 36)
    assert any("chunked attention" in note for note in notes)


def test_size_of_the_prediction_module(tmp_path: Path) -> None:
    """11.6e9 parameters, as published for DeepSeek-V3 (the embedding and head it shares are not counted)."""
    shape, _ = shape_and_notes("deepseek-v3", tmp_path)
    assert (shape.mtp_layers, shape.mtp_parameters) == (1, 11610067968)


@pytest.mark.parametrize(
    ("name", "changes", "fraction"),
    [
        ("phi-2", {}, 0.4),
        ("phi-2", {"partial_rotary_factor": None, "rope_parameters": {"partial_rotary_factor": 0.75}}, 0.75),
        ("gpt-j-6b", {}, 0.25),
        ("gpt-neox-20b", {}, 0.25),
        ("llama-3.1-8b", {}, 1.0),
    ],
)
def test_share_of_a_head_that_is_rotated(name: str, changes: dict[str, Any], fraction: float, tmp_path: Path) -> None:
    shape, _ = shape_and_notes(name, tmp_path, **changes)
    assert shape.rotary_fraction == fraction


def test_unknown_type_with_the_keys_of_a_llama_is_taken_for_one(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("llama-3.1-8b", tmp_path, model_type="newcomer")
    assert count_parameters(shape).total == 8030261248
    assert notes == ("model type 'newcomer' is not known; it is built like a Llama, as its keys suggest",)


def problems(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        model_from_config(path)
    return [str(problem).replace(str(path), "config.json") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mamba2"}, "'mamba2' is not supported yet: its config is not read yet"),
        ({"model_type": "nemotron_h"}, "'nemotron_h' is not supported yet: its config is not read yet"),
        ({"model_type": "odd", "rms_norm_eps": None}, "it lacks 'rms_norm_eps'"),
        ({"model_type": "odd", "num_experts": 8}, "it has experts"),
        ({"model_type": "t5"}, "not a decoder-only"),
        ({"is_encoder_decoder": True}, "not a decoder-only"),
        ({"layer_types": ["linear_attention"] * 32}, "'linear_attention' are not supported yet"),
        ({"num_key_value_heads": 5}, "32 heads are not a multiple of 5 KV heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 3}, "4096 is not a multiple of 33 heads"),
    ],
)
def test_config_that_cannot_be_priced(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    found = problems(write(tmp_path, CONFIGS["llama-3.1-8b"][0] | changes))
    assert len(found) == 1
    assert expected in found[0]


def test_all_problems_are_reported_at_once_with_their_places(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": "32",
        "hidden_size": 4096,
        "num_attention_heads": 0,
        "num_key_value_heads": 8.0,
        "vocab_size": True,
        "max_position_embeddings": 10**30,
        "tie_word_embeddings": "no",
    }
    assert problems(write(tmp_path, config)) == [
        "config.json:5:3: 'num_attention_heads' must be between 1 and 1000000000, not 0",
        f"config.json:8:3: 'max_position_embeddings' must be between 1 and 1000000000, not {10**30}",
        "config.json:3:3: 'num_hidden_layers' must be a whole number, not '32'",
        "config.json:6:3: 'num_key_value_heads' must be a whole number, not 8.0",
        "config.json: missing key 'intermediate_size' (or 'ffn_dim')",
        "config.json:7:3: 'vocab_size' must be a whole number, not true",
        "config.json:9:3: 'tie_word_embeddings' must be true or false, not 'no'",
    ]


def test_experts_that_cannot_be(tmp_path: Path) -> None:
    config = CONFIGS["qwen3-30b-a3b"][0] | {"num_experts_per_tok": 200, "mlp_only_layers": [3, 4]}
    found = problems(write(tmp_path, config))
    assert any("dense layers between layers with experts" in text for text in found)
    assert any("a token cannot visit 200 of 128 experts" in text for text in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"model_type": "llama",\n  "hidden_size": }', "config.json:2:18: not valid JSON: expecting value"),
        ('{"hidden_size": NaN}', "config.json:1:17: not valid JSON: NaN is not a number"),
        ("[1, 2]", "config.json:1:1: a config must be a JSON object, not a list"),
        ("[" * 100_000, "config.json:1:1: nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "config.json:1:1: not valid JSON: Exceeds the limit"),
        ("", "config.json:1:1: not valid JSON: expecting value"),
    ],
)
def test_malformed_json(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    found = problems(path)
    assert len(found) == 1
    assert found[0].startswith(expected)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**40),
    st.floats(),
    st.text(max_size=3),
    st.just([1]),
    st.just({}),
)
EVERY_KEY = sorted({key for config, _, _ in CONFIGS.values() for key in config})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CONFIGS)), st.dictionaries(st.sampled_from(EVERY_KEY), VALUES, max_size=4))
def test_any_value_of_any_key_gives_a_shape_or_problems(tmp_path: Path, name: str, changes: dict[str, object]) -> None:
    path = write(tmp_path, CONFIGS[name][0] | changes)
    try:
        shape, _ = model_from_config(path)
    except InputError:
        assert problems(path)
    else:
        count = count_parameters(shape)
        assert count.total >= count.active > 0
