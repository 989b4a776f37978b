"""Services of llama.cpp as scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

SCRIPT = """
CUDA_VISIBLE_DEVICES=0,1 ./build/bin/llama-server -m models/Llama-3.3-70B-Instruct-Q4_K_M.gguf -ngl 40 -c 16384 -np 2 \\
  -ctk q8_0 -ctv q8_0 -fa on --host 0.0.0.0 --port 8080 -t 16
"""
EXPERTS = """
llama-server -hf unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M --n-gpu-layers 99 --n-cpu-moe 20 --ctx-size 32768 --jinja -sm none
"""
COMPOSE = """
services:
  llm:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m /models/Meta-Llama-3.1-8B-Instruct-Q8_0.gguf --port 8000
    environment: {LLAMA_ARG_N_GPU_LAYERS: "20", LLAMA_ARG_CTX_SIZE: "8192"}
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
"""
DOCKER = """
docker run --gpus all -v /models:/models ghcr.io/ggml-org/llama.cpp:server-cuda -m /models/qwen2.5-7b-q6_k.gguf -ngl 99
"""
PYTHON = "python3 -m llama_cpp.server --model models/qwen2.5-7b-instruct-q4_k_m.gguf --n_gpu_layers -1 --n_ctx 4096\n"


def imported(folder: Path, text: str, name: str = "run.sh") -> Imported:
    (folder / name).write_text(text, encoding="utf-8")
    return read_foreign([folder / name], Asked(hardware={"gpu": "rtx-4090"}))


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.written for key, fact in found.facts.items()}


def test_layers_that_are_not_on_the_gpu_are_on_the_cpu(tmp_path: Path) -> None:
    found = imported(tmp_path, SCRIPT)
    assert found.tool.name == "llama.cpp"
    expected = {
        "serve.engine": "llama.cpp", "serve.weights": "q4_k_m", "serve.cpu_layers": 40, "serve.max_model_len": 8192,
        "serve.max_sequences": 2, "serve.kv_cache": "int8", "layout.pp": 2, "layout.tp": 1, "gpus": 2,
    }  # fmt: skip
    assert expected.items() <= facts(found).items()
    assert [each.key for each in found.lost] == ["t"]
    assert not found.unknown
    note = found.facts["serve.cpu_layers"].note
    assert note == "40 of 80 layers are on the GPU"


@pytest.mark.parametrize(
    ("words", "expected", "lost"),
    [
        (
            "-md models/Qwen2.5-0.5B-Instruct-Q8_0.gguf --draft-max 8 --draft-min 1 -ngld 99",
            {"serve.speculative": "draft-model", "serve.draft_tokens": 8},
            ["draft_min"],
        ),
        ("--spec-type ngram-simple --draft-max 16", {"serve.speculative": "ngram", "serve.draft_tokens": 16}, []),
        (
            "--spec-type draft-dflash -md models/dflash.gguf -ngld 0",
            {"serve.speculative": "dflash", "serve.draft_tokens": 15},
            ["md", "ngld"],
        ),
        ("--spec-type none", {}, []),
    ],
)
def test_drafts(words: str, expected: dict[str, object], lost: list[str], tmp_path: Path) -> None:
    found = imported(tmp_path, f"llama-server -m models/Qwen2.5-32B-Instruct-Q4_K_M.gguf -ngl 99 {words}\n")
    drafts = ("serve.speculative", "serve.draft_tokens")
    assert {key: value for key, value in facts(found).items() if key in drafts} == expected
    assert sorted(each.key for each in found.lost) == lost
    assert not found.unknown


def test_experts_on_the_cpu_are_told(tmp_path: Path) -> None:
    found = imported(tmp_path, EXPERTS)
    assert "serve.cpu_layers" not in facts(found)
    assert {"serve.max_model_len": 32768, "layout.pp": 1, "gpus": 1}.items() <= facts(found).items()
    assert [each.why for each in found.lost] == ["computes experts on the CPU, which is not sized"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("compose.yaml", COMPOSE, {"serve.weights": "q8_0", "serve.cpu_layers": 12, "serve.max_model_len": 8192,
                                   "gpus": 2, "layout.pp": 2}),
        ("docker.sh", DOCKER, {"serve.weights": "q6_k", "gpus": 1}),
        ("serve.sh", PYTHON, {"serve.weights": "q4_k_m", "serve.max_model_len": 4096}),
        ("Dockerfile", 'FROM ghcr.io/ggml-org/llama.cpp:server-cuda\nCMD ["-m", "/models/llama-3.1-8b-q8_0.gguf"]\n',
         {"serve.weights": "q8_0", "serve.engine": "llama.cpp"}),
    ],
)  # fmt: skip
def test_a_container_or_a_module_starts_it_too(tmp_path: Path, name: str, text: str, said: dict[str, object]) -> None:
    found = imported(tmp_path, text, name)
    assert found.tool.name == "llama.cpp"
    assert said.items() <= facts(found).items()
    assert not found.unknown
    assert ("serve.cpu_layers" in facts(found)) == ("serve.cpu_layers" in said)


def test_a_model_that_is_passed_is_the_one_whose_layers_count(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("llama-server -m /data/m.gguf -ngl 20\n", encoding="utf-8")
    asked = Asked(hardware={"gpu": "rtx-4090", "model": "llama-3.1-8b"})
    assert read_foreign([tmp_path / "run.sh"], asked).fact_of("serve.cpu_layers") == 12


@pytest.mark.parametrize("count", ["all", "auto", "33"])
def test_all_layers_on_the_gpu_leave_none_to_the_cpu(tmp_path: Path, count: str) -> None:
    found = imported(tmp_path, f"llama-server -m llama-3.1-8b-q8_0.gguf -ngl {count}\n")
    assert "serve.cpu_layers" not in facts(found)
    assert not found.lost
