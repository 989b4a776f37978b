"""The catalogue's models are compared with their configurations; what changed is told, and put in where asked to."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from hub_cases import CONFIG
from msgspec.structs import replace

from xe_sizer.profiles.hub import Hub
from xe_sizer.profiles.model import load_model_profile

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
refreshing = importlib.import_module("refresh")

DAY = "2026-11-27"
PROFILE = """name: novel-9b
family: novel
hugging_face: maker/Novel-9B

layers: {layers}
hidden: 512
heads: 8
kv_heads: 2
ffn: 1024
vocab: 1000  # as published
max_positions: 8192
tied_embeddings: false
norm: rmsnorm
activation: swiglu
position: rope

parameters: {{total: {total}, active: {total}}}
source: {{title: a page}}
"""
LAYER, REST = 2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1024 + 2 * 512, 2 * 1000 * 512 + 512


def catalogue(folder: Path, layers: int) -> Path:
    models = folder / "models"
    models.mkdir()
    text = PROFILE.format(layers=layers, total=layers * LAYER + REST)
    (models / "novel-9b.yaml").write_text(text, encoding="utf-8")
    return models


def lines(folder: Path, models: Path, put: bool = False) -> list[str]:
    return list(refreshing.refresh([folder], models, Hub(folder / "no-cache"), DAY, put))


def store(folder: Path, name: str, **changes: Any) -> None:
    home = folder / "configs"
    home.mkdir(exist_ok=True)
    (home / f"{name}.json").write_text(json.dumps(CONFIG | changes), encoding="utf-8")


def test_a_profile_as_its_configuration_says_is_unchanged(tmp_path: Path) -> None:
    store(tmp_path, "maker__Novel-9B")
    assert lines(tmp_path / "configs", catalogue(tmp_path, 4)) == ["1 unchanged"]


def test_a_change_is_told_and_put_in_where_asked_to(tmp_path: Path) -> None:
    store(tmp_path, "maker__Novel-9B")
    models = catalogue(tmp_path, 3)
    old, new = ({"total": layers * LAYER + REST, "active": layers * LAYER + REST} for layers in (3, 4))
    told = ["novel-9b: layers: 3 -> 4", f"novel-9b: parameters: {old} -> {new}", "0 unchanged"]
    before = (models / "novel-9b.yaml").read_text(encoding="utf-8")
    assert lines(tmp_path / "configs", models) == told
    assert (models / "novel-9b.yaml").read_text(encoding="utf-8") == before
    assert lines(tmp_path / "configs", models, put=True) == told
    text = (models / "novel-9b.yaml").read_text(encoding="utf-8")
    assert "vocab: 1000  # as published\nmax_positions: 8192\n" in text
    assert load_model_profile(models / "novel-9b.yaml").layers == 4
    assert lines(tmp_path / "configs", models) == ["1 unchanged"]


def test_keys_that_are_new_or_gone_are_put_in_and_taken_out() -> None:
    text = PROFILE.format(layers=4, total=4 * LAYER + REST)
    with_experts = refreshing.with_values(text, {"ffn": None, "experts": {"count": 8, "per_token": 2, "ffn": 64}})
    values = yaml.safe_load(with_experts)
    assert "ffn" not in values
    assert values["experts"] == {"count": 8, "per_token": 2, "ffn": 64}
    assert with_experts.index("experts:") < with_experts.index("parameters:")


def test_a_model_that_nothing_names_is_new(tmp_path: Path) -> None:
    store(tmp_path, "maker__Novel-9B")
    store(tmp_path, "maker__Novel-12B", num_hidden_layers=6)
    store(tmp_path, "meta-llama__Llama-3.1-8B")  # that ships
    store(tmp_path, "maker__Odd", model_type="rwkv")
    models = catalogue(tmp_path, 4)
    told = lines(tmp_path / "configs", models, put=True)
    total = 6 * LAYER + REST
    assert f"maker/Novel-12B: new, {total:,} parameters, {total:,} active" in told
    assert any(line.startswith("maker/Odd: new, model type 'rwkv' is not supported yet") for line in told)
    assert not any("Llama" in line for line in told)
    assert load_model_profile(models / "novel-12b.yaml").layers == 6
    assert lines(tmp_path / "configs", models)[-1] == "2 unchanged"


def test_the_catalogue_is_as_the_configurations_of_2026_say(tmp_path: Path) -> None:
    """Whose model a profile or another name stands for, of all of them."""
    folder = Path(__file__).parent / "hub_2026"
    told = list(refreshing.refresh([folder], refreshing.MODELS, Hub(tmp_path), DAY, False))
    assert told[:-1] == []
    assert int(told[-1].split()[0]) >= 20


def test_profiles_that_ship_are_read_back_from_what_is_written_of_them(tmp_path: Path) -> None:
    """But for the width and bias of a dense MLP that no layer has."""
    unused = {"ffn": 0, "mlp_bias": False}
    for path in sorted((ROOT / "model_profiles").glob("*.yaml")):
        if path.stem == "aliases":
            continue
        shape = load_model_profile(path)
        refreshing.write(tmp_path, refreshing.profile_of(shape, source={"title": "-"}))
        dense = any(kind.mlp == "dense" for kind, _ in shape.layer_kinds)
        assert load_model_profile(tmp_path / path.name) == (shape if dense else replace(shape, **unused)), path.stem
