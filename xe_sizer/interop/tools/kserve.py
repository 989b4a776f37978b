"""Services of KServe: an LLMInferenceService of vLLM, with pools and KV offload, or an InferenceService of any engine.

Resources: serving.kserve.io/v1alpha2 LLMInferenceService and v1beta1 InferenceService of KServe 0.18 (config/crd/full);
what its templates pass on to vLLM: config/llmisvcconfig.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from xe_sizer.interop.manifests import (
    NIXL_HOST,
    applied,
    arguments,
    build_pools,
    build_schedule,
    engine_of,
    environment,
    gpu_device,
    gpu_notes,
    nixl_transfer,
    options_map,
    refuse_roles,
    refuse_several_nodes,
    resources,
    scaled_object,
    schedule_notes,
    serving_pod,
)
from xe_sizer.interop.services import DECODE, PREFILL, VLLM
from xe_sizer.interop.tools.kubernetes import SERVERS, adapter_notes, image_notes, server_container
from xe_sizer.interop.tools.serving import SAYS, SAYS_ADAPTERS, SETTINGS
from xe_sizer.interop.write import SAYS_PREFILL, Exporter

if TYPE_CHECKING:
    from xe_sizer.interop.manifests import Pool, Schedule
    from xe_sizer.interop.write import Plan, ToolFiles

# LLMInferenceService: KServe's own templates start vLLM, with a router and a scheduler in front.

_LLM, _PREDICTOR = "KServe LLMInferenceService", "KServe InferenceService"
_TENSOR, _OFFLOADED = "tensor-parallel-size", "kv-offloading-size"  # flags that the resource has fields for
_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}


def _write_llm(plan: Plan) -> ToolFiles:
    engine = engine_of(plan, (VLLM,), _LLM)
    pools = build_pools(plan, SETTINGS[engine], _LLM)
    refuse_several_nodes(plan, pools, _LLM)
    schedule = build_schedule(plan, engine)
    model = str(plan.take("model"))
    spec: dict[str, Any] = {
        "model": {"uri": f"hf://{model}", "name": model},
        **_workload(plan, pools[-1], schedule),
        "router": {"route": {}, "gateway": {}, "scheduler": {}},
        "prefill": _workload(plan, pools[0], None) if len(pools) > 1 else None,
    }
    resource = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": pools[-1].name.removesuffix(f"-{pools[-1].role}")},
        "spec": spec,
    }
    yours = (*gpu_notes(plan), *adapter_notes(plan), *schedule_notes(schedule))
    return applied([resource], yours)


def _workload(plan: Plan, pool: Pool, schedule: Schedule | None) -> dict[str, Any]:
    """The replicas of a pool, or their triggers; a variable passes on those flags of vLLM that have no field."""
    flags = {name: value for name, value in pool.settings.items() if name not in (_TENSOR, _OFFLOADED)}
    words = arguments(flags)
    role = _ROLES.get(pool.role)
    words += nixl_transfer(role) if role else []
    host = pool.settings[_OFFLOADED]
    further = {"name": "VLLM_ADDITIONAL_ARGS", "value": shlex.join(words)}
    main = {
        "name": "main",
        "env": environment(*([NIXL_HOST] if role else []), further),
        "resources": resources(gpu_device(plan, _LLM), pool.gpus, host),
    }
    scaling = {"minReplicas": schedule.fewest, "maxReplicas": schedule.most} if schedule else None
    return {
        "replicas": None if schedule else pool.replicas,
        "scaling": {**scaling, "keda": {"triggers": list(schedule.triggers)}} if scaling and schedule else None,
        "parallelism": {"tensor": pool.settings[_TENSOR]},
        "kvCacheOffloading": {"cpu": f"{host}Gi"} if host else None,
        "template": {"containers": [main]},
    }


# InferenceService: a container of the engine, one for each replica.


def _write_predictor(plan: Plan) -> ToolFiles:
    engine = engine_of(plan, SERVERS, _PREDICTOR)
    pools = build_pools(plan, SETTINGS[engine], _PREDICTOR)
    refuse_roles(plan, pools, _PREDICTOR, "its predictor is one pool")
    refuse_several_nodes(plan, pools, _PREDICTOR)
    schedule = build_schedule(plan, engine)
    (pool,) = pools
    options = pool.name if SERVERS[engine].options_flag else ""
    pod = serving_pod(server_container(plan, pool, engine, _PREDICTOR, "kserve-container", []), options)
    ports = [{"containerPort": each["containerPort"], "protocol": "TCP"} for each in pod["containers"][0]["ports"]]
    predictor = {
        "minReplicas": pool.replicas,
        "maxReplicas": pool.replicas,
        **pod,
        "containers": [{**pod["containers"][0], "ports": ports}],
    }
    scaler = "external" if schedule else "none"
    documents: list[dict[str, Any]] = [options_map(pool.name, pool.settings)] if options else []
    documents.append(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {
                "name": pool.name,
                "annotations": {
                    "serving.kserve.io/deploymentMode": "Standard",
                    "serving.kserve.io/autoscalerClass": scaler,
                },
            },
            "spec": {"predictor": predictor},
        }
    )
    if schedule is not None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{pool.name}-predictor"}
        documents.append(scaled_object(pool.name, target, schedule))
    yours = (*gpu_notes(plan), *image_notes(plan, engine), *adapter_notes(plan), *schedule_notes(schedule))
    return applied(documents, yours)


_SAYS = (*SAYS, *SAYS_ADAPTERS)
EXPORTERS = (
    Exporter(
        "kserve", _LLM, ".yaml", _write_llm, (*_SAYS, *SAYS_PREFILL), serving=True, training=False,
        aliases=("llminferenceservice",),
    ),
    Exporter("inferenceservice", _PREDICTOR, ".yaml", _write_predictor, _SAYS, serving=True, training=False),
)  # fmt: skip
