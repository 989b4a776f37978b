"""Services of NVIDIA Dynamo: a frontend and workers of an engine, in one pool or prefill and decode apart.

Resource: nvidia.com/v1beta1 DynamoGraphDeployment of Dynamo 1.3 (deploy/operator/api/v1beta1); arguments of workers:
components/src/dynamo of the same release; adapters of its graphs for autoscalers: docs, kubernetes/autoscaling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.interop.manifests import (
    NVIDIA,
    Server,
    applied,
    arguments,
    build_pools,
    build_schedule,
    engine_of,
    environment,
    gpu_device,
    gpu_notes,
    nixl_transfer,
    object_name,
    options_map,
    options_mounts,
    options_path,
    resources,
    scaled_object,
    schedule_notes,
)
from xe_sizer.interop.services import PREFILL, SGLANG, TENSORRT_LLM, VLLM
from xe_sizer.interop.tools.serving import SAYS, SAYS_ADAPTERS, SETTINGS
from xe_sizer.interop.write import SAYS_PREFILL, Exporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.manifests import Pool
    from xe_sizer.interop.write import Plan, ToolFiles

_TITLE = "NVIDIA Dynamo"
_API = "nvidia.com/v1beta1"
_RELEASE = "1.3.1"
_IMAGE = f"nvcr.io/nvidia/ai-dynamo/{{}}-runtime:{_RELEASE}"
_SERVERS: Mapping[str, Server] = {
    VLLM: Server(("python3", "-m", "dynamo.vllm"), {NVIDIA: _IMAGE.format("vllm")}, model_flag="--model"),
    SGLANG: Server(("python3", "-m", "dynamo.sglang"), {NVIDIA: _IMAGE.format("sglang")}, model_flag="--model-path"),
    TENSORRT_LLM: Server(
        ("python3", "-m", "dynamo.trtllm"), {NVIDIA: _IMAGE.format("tensorrtllm")}, model_flag="--model-path",
        options_flag="--extra-engine-args",
    ),
}  # fmt: skip
_FRAMEWORKS = {VLLM: "vllm", SGLANG: "sglang", TENSORRT_LLM: "trtllm"}
_TRANSFER: Mapping[str, list[str]] = {
    VLLM: nixl_transfer(),
    SGLANG: ["--disaggregation-transfer-backend", "nixl"],
    TENSORRT_LLM: [],
}
"""How the KV cache gets from the workers that prefill to those that decode."""
_ADAPTERS = [{"name": name, "value": "true"} for name in ("DYN_LORA_ENABLED", "DYN_SYSTEM_ENABLED")]
_WORKER, _FRONTEND = "worker", "frontend"
_GAUGE = "dynamo_frontend_inflight_requests"


def _write(plan: Plan) -> ToolFiles:
    engine = engine_of(plan, _SERVERS, _TITLE)
    pools = build_pools(plan, SETTINGS[engine], _TITLE)
    schedule = build_schedule(plan, engine, _GAUGE)
    name = object_name(str(plan.peek("model")))
    in_a_file = bool(_SERVERS[engine].options_flag)
    documents = [options_map(pool.name, _options(pool)) for pool in pools] if in_a_file else []
    image = _SERVERS[engine].images[NVIDIA]
    frontend = {
        "type": _FRONTEND,
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": image}]}},
    }
    workers = [_worker(plan, pool, engine) for pool in pools]
    if schedule is not None:
        workers[-1]["scalingAdapter"] = {}
    documents.append(
        {
            "apiVersion": _API,
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": name},
            "spec": {
                "backendFramework": _FRAMEWORKS[engine],
                "components": [{"name": "Frontend", **frontend}, *workers],
            },
        }
    )
    if schedule is not None:
        adapter = f"{name}-{workers[-1]['name']}"
        target = {"apiVersion": _API, "kind": "DynamoGraphDeploymentScalingAdapter", "name": adapter}
        documents.append(scaled_object(adapter, target, schedule))
    adapters = ("a DynamoModel for each adapter",) if plan.peek("serve.adapters") else ()
    yours = (*gpu_notes(plan), *adapters, *schedule_notes(schedule))
    return applied(documents, yours)


def _worker(plan: Plan, pool: Pool, engine: str) -> dict[str, Any]:
    server, model = _SERVERS[engine], str(plan.take("model"))
    apart = ["--disaggregation-mode", pool.role, *_TRANSFER[engine]] if pool.role else []
    in_a_file = bool(server.options_flag)
    options = [server.options_flag, options_path(pool.name)] if in_a_file else []
    mounts, volumes = options_mounts(pool.name) if in_a_file else ([], [])
    device = gpu_device(plan, _TITLE)
    main = {
        "name": "main",
        "image": server.images[NVIDIA],
        "command": list(server.words),
        "args": [server.model_flag, model, *arguments({} if in_a_file else pool.settings), *options, *apart],
        "env": environment(*(_ADAPTERS if plan.peek("serve.adapters") else ())),
        "resources": resources(device, pool.gpus_per_pod, plan.peek("serve.kv_host_gib")),
        "volumeMounts": mounts or None,
    }
    return {
        "name": pool.role or _WORKER,
        "type": pool.role or _WORKER,
        "replicas": pool.replicas,
        "multinode": {"nodeCount": pool.nodes} if pool.nodes > 1 else None,
        "podTemplate": {"spec": {"containers": [main], "volumes": volumes or None}},
    }


def _options(pool: Pool) -> dict[str, Any]:
    """The options of a worker of TensorRT-LLM, with what those of two pools need to hand over the cache."""
    if not pool.role:
        return dict(pool.settings)
    overlap = {"disable_overlap_scheduler": True} if pool.role == PREFILL else {}
    return {**pool.settings, "cache_transceiver_config": {"backend": "DEFAULT"}, **overlap}


EXPORTERS = (
    Exporter("dynamo", _TITLE, ".yaml", _write, (*SAYS, *SAYS_ADAPTERS, *SAYS_PREFILL), serving=True, training=False),
)
