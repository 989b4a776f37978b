"""From a name, an alias or a path to a shape; profiles that contradict themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles.catalogue import model_file, resolve_model
from xe_sizer.profiles.finder import BUILT_IN, Finder
from xe_sizer.profiles.model import load_model_profile, windowed_layers

PROFILE = """\
name: toy
family: toys
layers: 2
hidden: 8
heads: 4
kv_heads: 2
ffn: 16
vocab: 10
max_positions: 64
tied_embeddings: false
norm: rmsnorm
activation: swiglu
position: rope
biases: [qkv]
sliding_window: {tokens: 16, layers: alternate}
parameters: {total: 1408, active: 1408}
source: {title: made up for a test}
"""
# 2 layers x (q + k + v + their bias + o + 3 MLP matrices + 2 norms) + embedding and head + final norm
TOTAL = 2 * (64 + 32 + 32 + 16 + 64 + 384 + 16) + 160 + 8


def text(**changes: str) -> str:
    lines = PROFILE.replace("1408", str(TOTAL)).splitlines()
    kept = [line for line in lines if line.split(":")[0] not in changes]
    return "\n".join([*kept, *(f"{key}: {value}" for key, value in changes.items() if value)]) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    profiles = tmp_path / "model_profiles"
    profiles.mkdir()
    (profiles / "toy.yaml").write_text(text(), encoding="utf-8")
    (profiles / "aliases.yaml").write_text("toy-chat: toy\nMaker/Toy-HF: toy\n", encoding="utf-8")
    return tmp_path


def problems(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_model_profile(path)
    return [str(problem).replace(f"{path}:", "") for problem in caught.value.problems]


def test_profile_becomes_a_shape(folder: Path) -> None:
    shape = load_model_profile(folder / "model_profiles" / "toy.yaml")
    assert (shape.head_dim, shape.kv_heads, shape.qkv_bias, shape.output_bias) == (2, 2, True, False)
    assert (shape.sliding_window, shape.windowed_layers) == (16, 1)


@pytest.mark.parametrize("name", ["toy", "TOY", "toy-chat", "Toy-Chat", "maker/toy-hf"])
def test_names_and_aliases_in_any_case(name: str, folder: Path) -> None:
    assert resolve_model(name, Finder([folder])).name == "toy"
    assert model_file(name, Finder([folder])) == folder / "model_profiles" / "toy.yaml"


def test_path_of_a_profile(folder: Path) -> None:
    assert resolve_model(str(folder / "model_profiles" / "toy.yaml"), Finder([])).layers == 2


def test_the_first_folder_that_knows_a_name_wins(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "model_profiles").mkdir(parents=True)
    changed = text(hidden="16", parameters="", parameters_note="other width")
    changed += "parameters: {total: 1, active: 1}\n"
    (mine / "model_profiles" / "toy.yaml").write_text(changed, encoding="utf-8")
    assert resolve_model("toy-chat", Finder([mine, folder])).hidden == 16
    assert resolve_model("toy", Finder([folder, mine])).hidden == 8
    assert resolve_model("toy", Finder([mine])).assumptions == ("other width",)


def test_a_folder_may_hold_profiles_directly(folder: Path) -> None:
    assert resolve_model("toy", Finder([folder / "model_profiles"])).name == "toy"


def test_only_the_named_file_is_opened(folder: Path) -> None:
    (folder / "model_profiles" / "broken.yaml").write_text("{", encoding="utf-8")
    (folder / "model_profiles" / "aliases.yaml").write_text("{", encoding="utf-8")
    assert resolve_model("toy", Finder([folder])).name == "toy"


@pytest.mark.parametrize("as_folder", [True, False])
def test_hugging_face_config(as_folder: bool, tmp_path: Path) -> None:
    home = tmp_path / "my-model"
    home.mkdir()
    config = {
        "model_type": "newcomer",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 4,
        "intermediate_size": 16,
        "vocab_size": 10,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
    }
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shape = resolve_model(str(home if as_folder else home / "config.json"), Finder([]))
    assert (shape.name, shape.kv_heads) == ("my-model", 4)
    assert "built like a Llama" in shape.assumptions[0]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("toi", "unknown model 'toi'", "did you mean 'toy'?"),
        ("toy-chta", "unknown model 'toy-chta'", "did you mean 'toy-chat'"),
        ("nothing-like-it", "unknown model 'nothing-like-it'", "xe-sizer profiles list"),
        ("aliases", "unknown model 'aliases'", None),
        ("../model_profiles/toi", "unknown model '../model_profiles/toi'", None),
        ("nowhere.yaml", "no such file: nowhere.yaml", "working folder"),
        ("", "unknown model ''", None),
    ],
)
def test_names_that_lead_nowhere(name: str, message: str, hint: str | None, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        resolve_model(name, Finder([folder]), Location("--model"))
    (problem,) = caught.value.problems
    assert (str(problem.location), problem.message) == ("--model", message)
    assert hint is None or hint in (problem.hint or "")


def test_names_leave_out_the_tables(folder: Path) -> None:
    assert set(Finder([folder]).names("model")) == {"toy", *BUILT_IN.names("model")}


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"name": "other"}, "17:7", "name is 'other' but the file is 'toy.yaml'"),
        ({"kv_heads": "3"}, "17:11", "'heads' (4) must be a multiple of 'kv_heads' (3)"),
        ({"heads": "3", "kv_heads": ""}, "16:8", "'hidden' (8) is not a multiple of 'heads' (3)"),
        ({"position": "learned"}, "17:11", "learned positions need 'learned_positions'"),
        ({"kv_layers": "5"}, "18:12", "'kv_layers' (5) is more than 'layers' (2)"),
        (
            {"indexer": "{heads: 1, head_dim: 2, top_k: 4, block_tokens: 3}"},
            "18:41",
            "'top_k' (4) must be a multiple of 'block_tokens' (3)",
        ),
        (
            {"indexer": "{heads: 1, head_dim: 2, top_k: 4, kind: infllm-v2}"},
            "18:18",
            "queries of the attention score: 'heads' and 'head_dim' are those of the model",
        ),
        ({"indexer": "{heads: 1, head_dim: 2, top_k: 4, kind: nsa}"}, "18:50", "'kind' must be one of"),
        ({"layer_pattern": '"D*"'}, "18:16", "layers with letter D need an 'indexer'"),
        (
            {
                "layer_pattern": '"cC"',
                "sliding_window": "{tokens: 8, layers: all}",
                "indexer": "{heads: 1, head_dim: 2, top_k: 4}",
                "compressed_attention": "{query_rank: 4, output_groups: 1, output_rank: 4, sparse_tokens: 2, "
                "dense_tokens: 4}",
            },
            "17:16",
            "layers with letter c need one before them that lends them entries",
        ),
        (
            {"experts": "{count: 2, per_token: 3, ffn: 4}"},
            "18:32",
            "'per_token' (3) is more than the 'count'",
        ),
        ({"layer_pattern": '"M*"'}, "18:16", "layers with letter M need a 'state_space' section"),
        ({"layer_pattern": '"***"'}, "18:16", "'layer_pattern' has 3 letters for 2 layers"),
        ({"layer_pattern": '"*-"'}, "18:16", "layers of a single block (- and E) need 'norms_per_layer: 1'"),
        (
            {"layer_pattern": '"*X"'},
            "18:16",
            "a letter a layer: * attention, G global attention, S attention to what another layer picked, ",
        ),
        ({"heads": "", "kv_heads": ""}, "3:9", "layers with attention need 'heads'"),
        ({"ffn": ""}, "3:9", "layers with a dense MLP need 'ffn'"),
        ({"sliding_window": "{tokens: 8, layers: 7-of-6}"}, "17:37", "a share such as 5-of-6, not '7-of-6'"),
        (
            {"sliding_window": "{tokens: 8, layers: some}"},
            "17:37",
            "'layers' must be all, alternate or a share",
        ),
        ({"layers": "0"}, "17:9", "'layers' must be greater than 0, not 0"),
        ({"hiden": "8"}, "18:1", "unknown key 'hiden'"),
        ({"activation": "swish"}, "17:13", "'activation' must be one of"),
    ],
)
def test_profile_that_contradicts_itself(changes: dict[str, str], place: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(text(**changes), encoding="utf-8")
    (found,) = problems(path)
    assert found.startswith(f"{place}: ")
    assert message in found


def test_counts_that_are_off_are_refused_unless_explained(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(text(parameters=f"{{total: {TOTAL + 20}, active: {TOTAL}}}"), encoding="utf-8")
    (found,) = problems(path)
    assert found.startswith(f"17:21: the shape has {TOTAL:,} parameters (total), -1.4")
    near = text(parameters=f"{{total: {TOTAL + 3}, active: {TOTAL}}}")
    path.write_text(near, encoding="utf-8")
    assert load_model_profile(path).assumptions == ()


@pytest.mark.parametrize(
    ("pattern", "layers", "windowed"),
    [("all", 32, 32), ("alternate", 42, 21), ("5-of-6", 26, 22), ("5-of-6", 62, 52), ("3-of-4", 48, 36)],
)
def test_windowed_layers(pattern: str, layers: int, windowed: int) -> None:
    assert windowed_layers(pattern, layers) == windowed
