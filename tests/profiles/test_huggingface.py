"""Hugging Face configs as published (without the keys that decide no shape), and broken ones.

The expected counts are those of the published weights, counted in the reference implementation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from encoder_configs import ENCODERS
from hybrid_configs import HYBRIDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_like_configs import LLAMA_LIKE
from msgspec.structs import replace
from own_key_configs import OWN_KEYS
from recent_configs import RECENT

from xe_sizer.errors import InputError
from xe_sizer.graph.model import SparseIndexer
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.huggingface import model_from_config

CONFIGS = {**LLAMA_LIKE, **OWN_KEYS, **RECENT, **ENCODERS, **HYBRIDS}


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
    assert shape_and_notes("llama-3.1-8b", tmp_path, _name_or_path="/home/me/models")[0].name == tmp_path.name
    assert shape_and_notes("llama-3.1-8b", tmp_path, _name_or_path="meta-llama/Llama-3.1-8B")[0].name == "Llama-3.1-8B"


@pytest.mark.parametrize(("hidden", "heads", "width"), [(256, 4, 64), (768, 12, 256), (1024, 16, 256)])
def test_a_discriminator_has_a_generator_of_a_part_of_its_width(
    hidden: int, heads: int, width: int, tmp_path: Path
) -> None:
    """A quarter, of the base model a third (arXiv:2003.10555, table 6); the generator itself has none beside it."""
    config = CONFIGS["electra-small-discriminator"][0] | {"hidden_size": hidden, "num_attention_heads": heads}
    generator = model_from_config(write(tmp_path, config))[0].generator
    assert generator is not None
    assert (generator.layers, generator.hidden, generator.ffn) == (12, width, 4 * width)
    assert generator.hidden == 64 * generator.heads
    alone = model_from_config(write(tmp_path, config | {"architectures": ["ElectraForMaskedLM"]}))[0]
    assert alone.generator is None


def test_profiles_of_electra_have_the_generators_of_their_configurations(tmp_path: Path) -> None:
    shape, _ = shape_and_notes("electra-small-discriminator", tmp_path)
    assert Registry().model("electra-small-discriminator").generator == shape.generator


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


def test_dense_layers_between_layers_with_experts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dense layers between layers with experts"):
        shape_and_notes("hy3-295b-a21b", tmp_path, mlp_layer_types=["sparse", "dense"] * 40)


def test_minimax_m3_without_a_word_on_sparse_layers_attends_to_all_tokens(tmp_path: Path) -> None:
    """As its configuration class does, which then makes no indexer."""
    shape, _ = shape_and_notes("minimax-m3", tmp_path)
    assert (shape.ffn, shape.experts.first_dense_layers, shape.rotary_fraction) == (12288, 3, 0.5)
    assert shape.indexer is None


def test_keys_and_values_of_different_sizes_are_cached_as_they_are_in_all(tmp_path: Path) -> None:
    shape, _ = shape_and_notes("mimo-v2-flash", tmp_path)
    cached = [2 * shape.seen_by(kind).kv_heads * shape.seen_by(kind).head_dim for kind, _ in shape.layer_kinds]
    assert sorted(set(cached)) == [4 * (192 + 128), 8 * (192 + 128)]


def test_text_part_of_a_multimodal_model(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("gemma-3-4b", tmp_path)
    assert (shape.sliding_window, shape.windowed_layers, shape.vocab) == (1024, 29, 262208)
    assert shape.vision is not None
    assert not any("other towers" in note for note in notes)
    assert any("'vocab_size' is absent; 262208" in note for note in notes)


def test_alternating_experts_of_llama_4(tmp_path: Path) -> None:
    shape, notes = shape_and_notes("llama-4-maverick", tmp_path)
    moe_layers = sum(count for kind, count in shape.layer_kinds if kind.mlp == "experts")
    assert (moe_layers, shape.experts.shared_ffn, shape.windowed_layers) == (24, 8192, 36)
    assert any("chunked attention" in note for note in notes)


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


LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("changes", "base", "scaling"),
    [
        ({"rope_theta": 500_000.0, "rope_scaling": LLAMA_3}, 500_000, 8),
        ({"rope_theta": None, "rope_scaling": None, "rope_parameters": LLAMA_3 | {"rope_theta": 500_000}}, 500_000, 8),
        ({"rope_theta": 1_000_000, "rope_scaling": None}, 1_000_000, None),
        ({"rope_theta": 10_000, "rope_scaling": {"rope_type": "yarn", "factor": 40}}, None, None),
        ({"rope_theta": "much", "rope_scaling": None}, None, None),
        ({"rope_theta": 10_000, "rope_scaling": LLAMA_3 | {"factor": -1}}, None, None),
    ],
)
def test_wavelengths_of_rotary_positions_are_read(
    changes: dict[str, Any], base: float | None, scaling: float | None, tmp_path: Path
) -> None:
    shape, _ = shape_and_notes("llama-3.1-8b", tmp_path, **changes)
    assert (shape.rotary_base, shape.rotary_scaling) == (base, scaling)


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
        ({"model_type": "zamba"}, "'zamba' is not supported yet: its state-space heads are those of no later model"),
        ({"model_type": "gemma3n"}, "take gemma-4-e2b or gemma-4-e4b"),
        ({"model_type": "dory"}, "a token passes its layers several times"),
        ({"model_type": "gemma4_assistant"}, "size the model that it drafts for"),
        ({"per_layer_config": {"3": {"head_dim": 64}}}, "layers that differ from each other are not supported yet"),
        ({"model_type": "odd", "hidden_act": "relu2"}, "its activation, relu2, need not have a gate"),
        ({"model_type": "odd", "architectures": ["OddForMaskedLM"]}, "it predicts masked tokens"),
        ({"model_type": "odd", "rms_norm_eps": None}, "it lacks 'rms_norm_eps'"),
        ({"model_type": "odd", "num_experts": 8}, "it has experts"),
        ({"model_type": "whisper"}, "neither a decoder nor"),
        ({"is_encoder_decoder": True}, "neither a decoder nor"),
        ({"layer_types": ["linear_attention"] * 32}, "'linear_attention' are not supported yet"),
        ({"moba_topk": 3, "moba_chunk_size": 4096}, "'moba_topk': sparse attention (MoBA) is not read of model type"),
        ({"model_type": "odd", "sparse_config": {"topk": 64}}, "'sparse_config': sparse attention (InfLLM v2)"),
        ({"index_topk": 2048}, "'index_topk': sparse attention (DeepSeek sparse attention)"),
        ({"model_type": "minicpm", "mixer_types": ["lightning-attn"] * 32}, "'lightning-attn' are not supported yet"),
        ({"num_key_value_heads": 5}, "32 heads are not a multiple of 5 KV heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 3}, "4096 is not a multiple of 33 heads"),
    ],
)
def test_config_that_cannot_be_estimated(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    found = problems(write(tmp_path, CONFIGS["llama-3.1-8b"][0] | changes))
    assert len(found) == 1
    assert expected in found[0]


SPARSE = {
    "kernel_size": 32, "kernel_stride": 16, "init_blocks": 1, "block_size": 64, "window_size": 2048, "topk": 64,
    "use_nope": False, "dense_len": 8192,
}  # fmt: skip
"""As MiniCPM4.1-8B has it, and the README of OpenBMB/MiniCPM."""


def test_minicpm_picks_blocks_beside_those_that_are_near(tmp_path: Path) -> None:
    """64 blocks of 64 tokens, and the 32 of a window of 2,048; the shape is otherwise that of a Llama."""
    config = CONFIGS["llama-3.1-8b"][0] | {"model_type": "minicpm", "tie_word_embeddings": False}
    shape, _ = model_from_config(write(tmp_path, config | {"sparse_config": SPARSE}))
    expected = SparseIndexer(32, 128, (64 + 32) * 64, "infllm-v2", block_tokens=64, key_tokens=16, dense_tokens=8192)
    assert shape.indexer == expected
    assert count_parameters(shape).total == 8030261248
    assert model_from_config(write(tmp_path, config))[0].indexer is None
    always, _ = model_from_config(write(tmp_path, config | {"sparse_config": SPARSE | {"dense_len": -1}}))
    assert always.indexer == replace(expected, dense_tokens=0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sparse_attention_freq": [0] * 3 + [1] * 56}, "attention of 60 layers must be told"),
        ({"sparse_num_index_heads": 2}, "2 heads of the indexer must be as many as 4 KV heads"),
        ({"sparse_disable_index_value": [0] * 60}, "an indexer with values of its own is not supported yet"),
    ],
)
def test_indexers_of_minimax_that_cannot_be_sized(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    sparse = {"sparse_attention_freq": [0] * 3 + [1] * 57, "sparse_num_index_heads": 4}
    config = CONFIGS["minimax-m3"][0] | {"sparse_attention_config": sparse | changes}
    (found,) = problems(write(tmp_path, config))
    assert expected in found


def test_minimax_may_switch_its_sparse_attention_off(tmp_path: Path) -> None:
    sparse = {"sparse_attention_freq": [1] * 60, "use_sparse_attention": False}
    shape, _ = shape_and_notes("minimax-m3", tmp_path, sparse_attention_config=sparse)
    assert shape.indexer is None


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
