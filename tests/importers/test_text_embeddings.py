"""Services of Text Embeddings Inference and Infinity as scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign, tool_named
from xe_sizer.interop.source import Asked

ROUTER = (
    "text-embeddings-router --model-id BAAI/bge-m3 --max-batch-tokens 32k --dtype float32 --pooling cls --port 80\n"
)
DOCKER = """
docker run --gpus all -p 8080:80 -v /data:/data --pull always ghcr.io/huggingface/text-embeddings-inference:89-1.8 \\
  --model-id BAAI/bge-reranker-v2-m3 --max-batch-requests 64 --auto-truncate --dtype float16
"""
CPU = "docker run ghcr.io/huggingface/text-embeddings-inference:cpu-1.8 --model-id BAAI/bge-m3\n"
INFINITY = (
    "infinity_emb v2 --model-id BAAI/bge-m3 --batch-size 64 --device-id 0,1 --engine optimum --no-bettertransformer\n"
)
DOCKER_INFINITY = "docker run --gpus all -e X=1 michaelf34/infinity:0.0.77 v2 --model-id BAAI/bge-m3 --dtype int8\n"
KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: embeddings}
spec:
  predictor:
    minReplicas: 3
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
    containers:
    - name: kserve-container
      image: ghcr.io/huggingface/text-embeddings-inference:89-1.8
      args: [--model-id, BAAI/bge-m3, --max-batch-tokens=8192]
      resources: {limits: {nvidia.com/gpu: 1}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: infinity}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: server
        image: michaelf34/infinity:latest
        args: [v2]
        env:
        - {name: INFINITY_MODEL_ID, value: BAAI/bge-m3}
        - {name: INFINITY_BATCH_SIZE, value: "16"}
        resources: {limits: {nvidia.com/gpu: 1}}
"""
COMPOSE = """
services:
  embed:
    image: ghcr.io/huggingface/text-embeddings-inference:1.8
    environment: {MODEL_ID: BAAI/bge-m3, MAX_BATCH_TOKENS: "65536", DTYPE: float16}
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
"""
TEI, EMBEDS = "text-embeddings-inference", {"serve.output_tokens": 0, "layout.tp": 1, "model": "BAAI/bge-m3"}


def imported(folder: Path, text: str, name: str = "run.sh") -> Imported:
    (folder / name).write_text(text, encoding="utf-8")
    return read_foreign([folder / name], Asked(hardware={"gpu": "l4"}))


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (ROUTER, "run.sh", {"serve.engine": TEI, "serve.max_step_tokens": 32000, "serve.weights": "fp32", "gpus": 1}),
        (
            DOCKER,
            "run.sh",
            {"model": "BAAI/bge-reranker-v2-m3", "serve.max_sequences": 64, "serve.weights": "fp16", "gpus": 1},
        ),
        (INFINITY, "run.sh", {"serve.engine": "infinity-emb", "serve.max_sequences": 64, "gpus": 2}),
        (KSERVE, "service.yaml", {"serve.max_step_tokens": 8192, "gpus": 3}),
        (DEPLOYMENT, "service.yaml", {"serve.engine": "infinity-emb", "serve.max_sequences": 16, "gpus": 2}),
        (COMPOSE, "compose.yaml", {"serve.max_step_tokens": 65536, "serve.weights": "fp16", "gpus": 1}),
    ],
)
def test_launches_are_read(tmp_path: Path, text: str, name: str, expected: dict[str, object]) -> None:
    found = imported(tmp_path, text, name)
    assert found.tool.name == TEI
    facts = {key: fact.written for key, fact in found.facts.items()}
    assert (EMBEDS | expected).items() <= facts.items()
    assert not found.unknown
    assert not found.missing


def test_what_has_no_counterpart_is_told(tmp_path: Path) -> None:
    assert [each.key for each in imported(tmp_path, INFINITY).lost] == ["engine", "bettertransformer"]
    narrow = imported(tmp_path, DOCKER_INFINITY)
    assert [each.why for each in narrow.lost] == ["quantises the weights as it loads them; taken to be 16 bit"]
    assert "serve.weights" not in narrow.facts
    assert [each.key for each in imported(tmp_path, CPU).lost] == ["image"]


def test_the_tool_is_called_by_either_name() -> None:
    assert tool_named("tei") is tool_named("infinity") is tool_named("infinity-emb") is tool_named(TEI)
