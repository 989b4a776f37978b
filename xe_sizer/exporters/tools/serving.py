"""Commands of vLLM, SGLang and TensorRT-LLM for one replica, and a Kubernetes Deployment of vLLM for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.exporters.as_text import command_text, yaml_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.engine_flags import (
    SAYS,
    replica_note,
    sglang_flags,
    tensorrt_llm_options,
    vllm_flags,
)

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_OPTIONS = "options.yaml"


def _vllm(plan: Plan) -> Written:
    note = replica_note(plan)
    return Written(_noted(note) + command_text(["vllm", "serve", plan.take("model")], vllm_flags(plan)), run="sh FILE")


def _sglang(plan: Plan) -> Written:
    note = replica_note(plan)
    words = ["python3", "-m", "sglang.launch_server", "--model-path", plan.take("model")]
    return Written(_noted(note) + command_text(words, sglang_flags(plan)), run="sh FILE")


def _tensorrt_llm(plan: Plan) -> Written:
    note = replica_note(plan)
    options = yaml_text(tensorrt_llm_options(plan))
    command = command_text(["trtllm-serve", plan.take("model")], {"config": _OPTIONS})
    return Written(f"{_noted(note)}cat > {_OPTIONS} <<'EOF'\n{options}EOF\n{command}", run="sh FILE")


def _noted(note: str) -> str:
    return f"# {note}\n" if note else ""


def _kubernetes(plan: Plan) -> Written:
    """A Deployment of vLLM: a pod is a replica, so that one that spans nodes cannot be written."""
    replicas = int(plan.take("replicas", 1))
    plan.said("gpus", "nodes", "gpus_per_node", "job", "serve.engine")
    model = str(plan.take("model"))
    flags = vllm_flags(plan)
    ranks = int(flags["tensor-parallel-size"]) * int(flags["pipeline-parallel-size"])
    ranks *= int(flags["data-parallel-size"] or 1)
    args = ["--model", model]
    for name, value in flags.items():
        if value is not None and value is not False:
            args += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return Written(yaml_text(_deployment(model, replicas, ranks, args)), run="kubectl apply -f FILE")


def _deployment(model: str, replicas: int, ranks: int, args: list[str]) -> dict[str, Any]:
    name = "".join(char if char.isalnum() else "-" for char in model.rpartition("/")[2].lower()).strip("-")[:63]
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:latest",
        "args": args,
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": ranks}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


EXPORTERS = (
    Exporter("vllm", "vLLM", ".sh", _vllm, SAYS, serving=True, training=False),
    Exporter("sglang", "SGLang", ".sh", _sglang, SAYS, serving=True, training=False),
    Exporter("trtllm", "TensorRT-LLM", ".sh", _tensorrt_llm, SAYS, serving=True, training=False),
    Exporter("kubernetes", "Kubernetes", ".yaml", _kubernetes, SAYS, serving=True, training=False),
)
