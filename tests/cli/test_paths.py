"""Profiles that a path names: reports use the profile's own name, the resolved scenario keeps the path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran
from .test_bad_profiles import CONFIG, GPU, SERVER_PROFILE

Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-model").mkdir()
    Path("my-model/config.json").write_text(CONFIG)
    Path("mine.yaml").write_text(GPU)
    Path("box.yaml").write_text(SERVER_PROFILE.replace("name: mine", "name: box"))


def test_model_and_gpu(cli: Cli) -> None:
    flags = ("--model", "./my-model/config.json", "--gpu", "./mine.yaml", "--gpus", "8", "--job", "lora")
    assert " of my-model on 8 x mine" in cli("estimate", *flags).out.splitlines()[0]
    scenario = json.loads(cli("estimate", *flags, "--format", "json").out)["scenario"]
    assert (scenario["model"], scenario["gpu"]) == ("./my-model/config.json", "./mine.yaml")
    hardware = {"server": "generic-8x-mine", "gpu": "mine", "vendor": "NVIDIA"}
    assert scenario["names"] == {"model": "my-model", **hardware, "job": "LoRA"}


def test_server(cli: Cli) -> None:
    flags = ("--model", "llama-2-7b", "--server", "./box.yaml", "--gpus", "8", "--job", "lora")
    assert " on 8 x h100-sxm-80gb (1 x box)" in cli("estimate", *flags).out.splitlines()[0]
    scenario = json.loads(cli("estimate", *flags, "--format", "json").out)["scenario"]
    assert (scenario["server"], scenario["gpu"]) == ("./box.yaml", "h100-sxm-80gb")


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"])
def test_a_cache_of_nobody_is_an_empty_one(cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "~nobody-of-this-name/x")
    assert cli("estimate", "--model", "llama-2-7b", "--gpu", "./mine.yaml", "--gpus", "8", "--job", "lora").code == 0
    ran = cli("estimate", "--model", "some-one/some-model", "--gpu", "./mine.yaml")
    assert (ran.code, "unknown model" in ran.err) == (2, True)


def test_without_a_home_a_path_stays_as_it_is_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: str) -> str:
        return path  # as os.path.expanduser does where neither HOME nor the user's entry says one

    monkeypatch.setattr("os.path.expanduser", no_home)
    assert cli("estimate", "--model", "llama-2-7b", "--gpu", "./mine.yaml", "--gpus", "8", "--job", "lora").code == 0
    ran = cli("estimate", "--model", "~/config.json", "--gpu", "./mine.yaml")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "--model: no such file: ~/config.json")
