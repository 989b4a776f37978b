"""`xe-sizer profiles add`: models become profiles from their configurations, checked against the published weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_cases import CONFIG, stand_in

from xe_sizer.profiles.hub import published_parameters

from .conftest import Cli

# q and o 2 x 512 x 512, k and v 2 x 512 x 128, MLP 3 x 512 x 1024, norms 2 x 512; embedding, head, last norm
TOTAL = 4 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1024 + 2 * 512) + 2 * 1000 * 512 + 512
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"


def model(folder: Path, name: str = "Novel-9B", metadata: dict[str, Any] | None = None, **changes: Any) -> Path:
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    config = CONFIG | {"torch_dtype": "bfloat16"} | changes
    (home / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    if metadata is not None:
        (home / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": {}}), encoding="utf-8")
    return home


def test_a_folder_becomes_a_profile_with_its_source_and_date(cli: Cli, tmp_path: Path) -> None:
    home, mine = model(tmp_path, metadata={"total_size": 2 * TOTAL}), tmp_path / "my"
    ran = cli("profiles", "add", "--profiles", str(mine), str(home))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{mine / 'novel-9b.yaml'}: {TOTAL:,} parameters\n"
    profile = yaml.safe_load((mine / "novel-9b.yaml").read_text(encoding="utf-8"))
    assert profile["parameters"] == {"total": TOTAL, "active": TOTAL}
    assert profile["source"]["title"] == str(home / "config.json")
    assert profile["source"]["parameters"] == f"{INDEX} has {TOTAL:,}"
    assert len(profile["source"]["read_on"]) == len("2026-11-27")
    shown = json.loads(cli("profiles", "show", "--profiles", str(mine), "novel-9b", "--format", "json").out)
    assert shown["layers"] == 4


def test_an_estimate_of_the_profile_is_that_of_the_configuration(cli: Cli, tmp_path: Path) -> None:
    """With experts in every layer, windows and assumptions, which all pass through the file."""
    more: dict[str, Any] = {
        "model_type": "laguna",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
    }
    more |= {"sliding_window": 128, "head_dim": 64}
    home, mine = model(tmp_path, metadata=None, **more), tmp_path / "my"
    assert cli("profiles", "add", "--profiles", str(mine), str(home)).code == 0
    job = ("--gpu", "h100-sxm-80gb", "--gpus", "8", "--job", "full", "--format", "json")
    answers = [
        json.loads(cli("estimate", "--model", named, *job, *rest).out)
        for named, rest in ((str(home), ()), ("novel-9b", ("--profiles", str(mine))))
    ]
    assert answers[0]["memory"] == answers[1]["memory"]
    assert answers[0]["time"] == answers[1]["time"]
    told = [[each.partition(": ")[2] for each in answer["warnings"] if "query heads" in each] for answer in answers]
    assert told[0]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("metadata", "changes", "words"),
    [
        ({"total_parameters": TOTAL}, {}, None),
        ({"total_parameters": round(1.0009 * TOTAL)}, {}, None),
        ({"total_parameters": round(1.1 * TOTAL)}, {}, "9.09% fewer"),
        ({"total_size": TOTAL}, {}, "100.00% more"),
        ({"total_size": 2 * TOTAL}, {"quantization_config": {"quant_method": "fp8"}}, "not verified"),
        ({"total_size": 4 * TOTAL}, {"torch_dtype": "float32"}, None),
        ({"total_size": 4 * TOTAL}, {"torch_dtype": "int8"}, "not verified"),
        ({"total_parameters": "many"}, {}, "not verified"),
        (None, {}, "not verified"),
    ],
)
def test_the_count_is_compared_with_the_published_one(
    metadata: dict[str, Any] | None, changes: dict[str, Any], words: str | None, cli: Cli, tmp_path: Path
) -> None:
    home = model(tmp_path, metadata=metadata, **changes)
    ran = cli("profiles", "add", "--profiles", str(tmp_path / "my"), str(home))
    assert ran.code == 0
    assert (words in ran.err) if words else ran.err == ""


def test_a_single_file_of_weights_is_counted_by_its_header(tmp_path: Path) -> None:
    home = model(tmp_path)
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [3, 5]},
        "b": {"dtype": "F32", "shape": [7]},
    }
    text = json.dumps(header).encode()
    (home / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text)
    published = published_parameters(home / "config.json")
    assert published is not None
    assert (published.total, published.file) == (22, WEIGHTS)
    packed = json.dumps(header | {"c": {"dtype": "U8", "shape": [9]}}).encode()
    (home / WEIGHTS).write_bytes(struct.pack("<Q", len(packed)) + packed)
    assert published_parameters(home / "config.json") is None
    (home / WEIGHTS).write_bytes(b"\xff" * 20)
    assert published_parameters(home / "config.json") is None


def test_a_file_that_is_there_is_kept_without_force(cli: Cli, tmp_path: Path) -> None:
    home, mine = model(tmp_path), tmp_path / "my"
    assert cli("profiles", "add", "--profiles", str(mine), str(home)).code == 0
    file = mine / "novel-9b.yaml"
    file.write_text("mine", encoding="utf-8")
    refused = cli("profiles", "add", "--profiles", str(mine), str(home))
    assert (refused.code, refused.err) == (
        2,
        f"{file}: this file is there already\n  hint: --force writes over it\n",
    )
    assert file.read_text(encoding="utf-8") == "mine"
    assert cli("profiles", "add", "--force", "--profiles", str(mine), str(home)).code == 0
    assert "llama" in file.read_text(encoding="utf-8")


def test_problems_of_all_are_told_and_nothing_is_written(cli: Cli, tmp_path: Path) -> None:
    good, mine = model(tmp_path), tmp_path / "my"
    short = model(tmp_path, "Short", hidden_size=None)
    odd = model(tmp_path, "Odd", model_type="rwkv")
    ran = cli("profiles", "add", "--profiles", str(mine), str(good), str(short), str(odd), str(tmp_path / "nope.json"))
    assert ran.code == 2
    assert f"{short / 'config.json'}: missing key 'hidden_size'" in ran.err
    assert f"{odd / 'config.json'}:2:3: model type 'rwkv' is not supported" in ran.err
    assert f"no such file: {tmp_path / 'nope.json'}" in ran.err
    assert not mine.exists()


def test_a_folder_must_be_named_and_one_name_is_of_one_model(cli: Cli, tmp_path: Path) -> None:
    home = str(model(tmp_path))
    assert "--profiles: no folder of your own profiles" in cli("profiles", "add", home).err
    assert "--name: one name for 2 models" in cli("profiles", "add", "--profiles", "x", "--name", "a", home, home).err
    assert "is missing" in cli("profiles", "add").err
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "is not a folder" in cli("profiles", "add", "--profiles", str(tmp_path / "file"), home).err


def test_the_folder_of_the_environment_and_a_name_of_ones_own(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my" / "model_profiles").mkdir(parents=True)
    monkeypatch.setenv("XE_SIZER_PROFILES", str(tmp_path / "my"))
    ran = cli("profiles", "add", str(model(tmp_path, metadata={"total_parameters": TOTAL})), "--name", "Our model/2")
    assert ran.code == 0
    assert (tmp_path / "my" / "model_profiles" / "our-model-2.yaml").is_file()
    shipped = cli("profiles", "add", str(model(tmp_path, "Qwen3-8B", {"total_parameters": TOTAL})))
    assert "the model of this name that ships is not used" in shipped.err


def test_a_repository_is_fetched_with_its_index(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its revision, its address and its published count stand in the file; the cache is not fetched again."""
    asked: list[str] = []
    snapshot = tmp_path / "hub" / "models--maker--Novel-9B" / "snapshots" / ("a" * 40)

    def hf_hub_download(repository: str, file: str, cache_dir: Path) -> str:
        asked.append(file)
        made = model(snapshot.parent, snapshot.name, {"total_parameters": TOTAL} if file == INDEX else None)
        return str(made / file)

    stand_in(monkeypatch, hf_hub_download)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for _ in range(2):
        ran = cli("profiles", "add", "--profiles", str(tmp_path / "my"), "--force", "maker/Novel-9B")
        assert ran.code == 0
    assert asked == ["config.json", INDEX]
    profile = yaml.safe_load((tmp_path / "my" / "novel-9b.yaml").read_text(encoding="utf-8"))
    assert profile["hugging_face"] == "maker/Novel-9B"
    assert profile["source"]["title"] == "config.json of maker/Novel-9B, revision aaaaaaaaaaaa"
    assert profile["source"]["url"] == "https://huggingface.co/maker/Novel-9B"
    assert profile["source"]["parameters"] == f"{INDEX} has {TOTAL:,}"
