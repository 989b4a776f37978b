"""Values of Helm charts that serve models with vLLM: llm-d's model service, and vLLM's production stack.

Keys: llm-d-modelservice 0.4.12 and vllm-stack 0.1.12, values.yaml, values.schema.json and templates of both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from xe_sizer.graph.weights import count_parameters
from xe_sizer.interop.manifests import (
    NIXL_HOST,
    PORT,
    arguments,
    build_pools,
    build_schedule,
    documents_text,
    engine_of,
    environment,
    gpu_device,
    gpu_notes,
    nixl_transfer,
    object_name,
    refuse_roles,
    refuse_several_nodes,
    resources,
    scaled_object,
    schedule_notes,
)
from xe_sizer.interop.services import DECODE, PREFILL, VLLM
from xe_sizer.interop.tools.kubernetes import adapter_notes
from xe_sizer.interop.tools.serving import SAYS, SAYS_ADAPTERS, vllm_flags
from xe_sizer.interop.write import SAYS_PREFILL, Exporter, ToolFiles, yaml_text
from xe_sizer.units import GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.interop.manifests import Pool
    from xe_sizer.interop.write import Plan

# llm-d: Deployments of the pools that prefill and decode, with a sidecar that hands requests from one to the other.

_LLM_D, _STACK = "llm-d", "vLLM production stack"
_OF_CHART = ("tensor-parallel-size", "data-parallel-size")  # flags that the chart writes itself
_NIXL_PORT = {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "5600"}
_BEHIND_SIDECAR = 8200
_SPARE = 1.2  # of the disk that a checkpoint takes: tokenizers, and files in the making


def _write_llm_d(plan: Plan) -> ToolFiles:
    engine_of(plan, (VLLM,), _LLM_D)
    pools = build_pools(plan, vllm_flags, _LLM_D)
    refuse_several_nodes(plan, pools, _LLM_D)
    schedule = build_schedule(plan, VLLM)
    model = str(plan.take("model"))
    name, apart = object_name(model), len(pools) > 1
    device = gpu_device(plan, _LLM_D)
    parts = {pool.role or DECODE: _llm_d_pool(plan, pool, device) for pool in pools}
    values: dict[str, Any] = {
        "fullnameOverride": name,
        "modelArtifacts": {
            "name": model, "uri": f"hf://{model}", "size": f"{_checkpoint_gib(plan)}Gi",
            "labels": {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": name},
        },
        "accelerator": {"type": device.partition(".")[0]},
        "routing": {"servicePort": PORT, "proxy": {"enabled": apart, "secure": False, "targetPort": _BEHIND_SIDECAR}},
        PREFILL: {"create": False},
        **parts,
    }  # fmt: skip
    if schedule is not None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{name}-{DECODE}"}
        values["extraObjects"] = [scaled_object(f"{name}-{DECODE}", target, schedule)]
    yours = (
        *gpu_notes(plan), *adapter_notes(plan), *schedule_notes(schedule),
        f"the router of the pool whose pods have the label llm-d.ai/model: {name}",
    )  # fmt: skip
    run = f"helm install {name} llm-d-modelservice/llm-d-modelservice -f FILE"
    return ToolFiles(yaml_text(values), run=run, yours=yours)


def _llm_d_pool(plan: Plan, pool: Pool, device: str) -> dict[str, Any]:
    flags = {name: value for name, value in pool.settings.items() if name not in _OF_CHART}
    groups = int(pool.settings["data-parallel-size"] or 1)
    port = _BEHIND_SIDECAR if pool.role == DECODE else PORT
    server = {
        "name": "vllm",
        "image": "ghcr.io/llm-d/llm-d-cuda:v0.9.0",
        "modelCommand": "vllmServe",
        "args": [*arguments(flags), *(nixl_transfer() if pool.role else [])],
        "env": environment(*((NIXL_HOST, _NIXL_PORT) if pool.role else ())),
        "ports": [{"containerPort": port, "protocol": "TCP"}],
        "resources": resources(device, pool.gpus, plan.peek("serve.kv_host_gib")),
        "mountModelVolume": True,
    }
    return {
        "create": True,
        "replicas": pool.replicas,
        "parallelism": {"tensor": pool.settings["tensor-parallel-size"], "data": groups, "dataLocal": groups},
        "containers": [server],
    }


def _checkpoint_gib(plan: Plan) -> int:
    """Disk of a pod for the checkpoint, which is in 16 bit unless it is quantised [GiB]."""
    return math.ceil(count_parameters(plan.shape).total * SIXTEEN_BIT * _SPARE / GIB)


# vLLM's production stack: a Deployment of vLLM for each model behind one router.

_SETTINGS = {
    "tensor-parallel-size": "tensorParallelSize", "gpu-memory-utilization": "gpuMemoryUtilization",
    "max-model-len": "maxModelLen", "max-num-seqs": "maxNumSeqs", "max-loras": "maxLoras",
}  # fmt: skip
_RELEASE = "vllm"
_AUTOSCALER = "autoscaler.yaml"


def _write_stack(plan: Plan) -> ToolFiles:
    engine_of(plan, (VLLM,), _STACK)
    pools = build_pools(plan, vllm_flags, _STACK)
    refuse_roles(plan, pools, _STACK, "each of its servers that prefill sends to one that decodes")
    refuse_several_nodes(plan, pools, _STACK)
    schedule = build_schedule(plan, VLLM)
    (pool,) = pools
    flags = {name: value for name, value in pool.settings.items() if name not in (*_SETTINGS, "enable-lora")}
    device = gpu_device(plan, _STACK)
    spec = {
        "name": pool.name,
        "repository": "vllm/vllm-openai",
        "tag": "latest",
        "modelURL": str(plan.take("model")),
        "replicaCount": pool.replicas,
        "resources": resources(device, pool.gpus, plan.peek("serve.kv_host_gib")),
        "enableLoRA": pool.settings.get("enable-lora"),
        "vllmConfig": {
            "enablePrefixCaching": True,  # which vLLM does itself, and the chart turns off
            **{key: pool.settings.get(name) for name, key in _SETTINGS.items()},
            "extraArgs": arguments(flags),
        },
        "env": environment(),
    }
    text = yaml_text({"servingEngineSpec": {"modelSpec": [spec]}})
    run = f"helm install {_RELEASE} vllm/vllm-stack -f FILE"
    beside = {}
    if schedule is not None:
        # The chart's schema takes no list of triggers.
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{_RELEASE}-{pool.name}-deployment-vllm"}
        beside[_AUTOSCALER] = documents_text([scaled_object(pool.name, target, schedule)])
        run += f" && kubectl apply -f {_AUTOSCALER}"
    yours = (*gpu_notes(plan), *adapter_notes(plan), *schedule_notes(schedule))
    return ToolFiles(text, beside=beside, run=run, yours=yours)


EXPORTERS = (
    Exporter(
        "llm-d", _LLM_D, ".yaml", _write_llm_d, (*SAYS, *SAYS_ADAPTERS, *SAYS_PREFILL), serving=True, training=False
    ),
    Exporter(
        "production-stack",
        _STACK,
        ".yaml",
        _write_stack,
        (*SAYS, *SAYS_ADAPTERS),
        serving=True,
        training=False,
        aliases=("vllm-stack",),
    ),
)
