"""Plain Kubernetes objects, with Jobs, and services of KServe.

Deployments or LeaderWorkerSets with a Service and KEDA's replicas by the hour; an LLMInferenceService of vLLM, with
pools and KV offload, or an InferenceService of any engine.

Objects: Kubernetes 1.36 API reference; leaderworkerset.x-k8s.io/v1, whose pods are given the variables LWS_*; programs:
vLLM 0.33 (docs, parallelism_scaling), SGLang 0.5.23 (docs, multi_node), TensorRT-LLM 1.2 (docs, trtllm-serve);
serving.kserve.io/v1alpha2 LLMInferenceService and v1beta1 InferenceService of KServe 0.18 (config/crd/full), what its
templates pass on to vLLM: config/llmisvcconfig.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop.manifests import (
    AMD,
    DEVICES,
    NIXL_HOST,
    NVIDIA,
    PLACEHOLDER_IMAGE,
    PORT,
    Server,
    applied,
    arguments,
    build_pools,
    build_schedule,
    engine_of,
    environment,
    gauge_flags,
    gpu_device,
    gpu_notes,
    nixl_transfer,
    options_map,
    options_path,
    refuse_roles,
    refuse_several_nodes,
    resources,
    scaled_object,
    schedule_notes,
    serving_pod,
)
from xe_sizer.interop.services import DECODE, PREFILL, SGLANG, TENSORRT_LLM, VLLM
from xe_sizer.interop.tools.jobset import write_job
from xe_sizer.interop.tools.serving import SAYS, SAYS_ADAPTERS, SETTINGS
from xe_sizer.interop.tools.slurm import TRAINING_ADDED, TRAINING_SAYS
from xe_sizer.interop.write import INFERENCE, SAYS_PREFILL, Exporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.interop.manifests import Pool, Schedule
    from xe_sizer.interop.write import Plan, ToolFiles

_TITLE = "Kubernetes"
SERVERS: Mapping[str, Server] = {
    VLLM: Server(
        ("vllm", "serve"), {NVIDIA: "vllm/vllm-openai:latest", AMD: "vllm/vllm-openai-rocm:latest"}
    ),
    SGLANG: Server(
        ("python3", "-m", "sglang.launch_server"), {NVIDIA: "lmsysorg/sglang:latest"}, model_flag="--model-path"
    ),
    TENSORRT_LLM: Server(
        ("trtllm-serve",), {NVIDIA: "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"}, options_flag="--config"
    ),
}  # fmt: skip
_GROUP, _LEADER = "leaderworkerset.sigs.k8s.io/name", "leader"
_ROLE = "role"


def server_container(plan: Plan, pool: Pool, engine: str, title: str, name: str, more: list[str]) -> dict[str, Any]:
    """The container of a replica, or of its part on one node.

    more : further arguments
    """
    server, model = SERVERS[engine], str(plan.take("model"))
    words = [*server.words, *([server.model_flag] if server.model_flag else []), model]
    settings = {} if server.options_flag else pool.settings
    options = [server.options_flag, options_path(pool.name)] if server.options_flag else []
    listens = [] if engine == VLLM else ["--host", "0.0.0.0", "--port", str(PORT)]
    image = server.images.get(str(plan.peek("vendor", NVIDIA)), PLACEHOLDER_IMAGE)
    device = gpu_device(plan, title, tuple(DEVICES))
    return {
        "name": name,
        "image": image,
        "command": words,
        "args": [*arguments(settings), *options, *listens, *gauge_flags(plan, engine), *more],
        "env": environment(),
        "resources": resources(device, pool.gpus_per_pod, plan.peek("serve.kv_host_gib")),
    }


def image_notes(plan: Plan, engine: str) -> tuple[str, ...]:
    """What a user adds where no image is known for the vendor of the GPUs."""
    vendor = str(plan.peek("vendor", NVIDIA))
    return (
        ()
        if vendor in SERVERS[engine].images
        else (f"an image of {engine} for GPUs of {vendor} ({PLACEHOLDER_IMAGE})",)
    )


def adapter_notes(plan: Plan) -> tuple[str, ...]:
    """What a user adds to a service with adapters."""
    return ("the adapters themselves, by flags or by calls of the server",) if plan.peek("serve.adapters") else ()


def _write(plan: Plan) -> ToolFiles:
    return _write_service(plan) if plan.peek("job") == INFERENCE else write_job(plan)


def _write_service(plan: Plan) -> ToolFiles:
    engine = engine_of(plan, SERVERS, _TITLE)
    pools = build_pools(plan, SETTINGS[engine], _TITLE)
    refuse_roles(plan, pools, _TITLE, "a Service cannot send a request to two pools in turn")
    schedule = build_schedule(plan, engine)
    (pool,) = pools
    documents = list(_objects(plan, pool, engine))
    if schedule is not None:
        kind = {key: documents[-2][key] for key in ("apiVersion", "kind")}
        documents.append(scaled_object(pool.name, {**kind, "name": pool.name}, schedule))
    yours = (*gpu_notes(plan), *image_notes(plan, engine), *adapter_notes(plan), *schedule_notes(schedule))
    return applied(documents, yours)


def _objects(plan: Plan, pool: Pool, engine: str) -> Iterator[dict[str, Any]]:
    """The replicas with their options, and the Service before them."""
    options = pool.name if SERVERS[engine].options_flag else ""
    if options:
        yield options_map(pool.name, pool.settings)
    if pool.nodes > 1:
        yield _group(plan, pool, engine)
        selector = {_GROUP: pool.name, _ROLE: _LEADER}
    else:
        pod = serving_pod(server_container(plan, pool, engine, _TITLE, "server", []), options)
        selector = {"app": pool.name}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": pool.name},
            "spec": {
                "replicas": pool.replicas,
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": selector}, "spec": pod},
            },
        }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": pool.name},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }


def _group(plan: Plan, pool: Pool, engine: str) -> dict[str, Any]:
    """Replicas that are a group of pods each, one on every node, of which the first answers."""
    leader, worker = _node_arguments(plan, engine)
    first = serving_pod(server_container(plan, pool, engine, _TITLE, "server", leader))
    other = serving_pod(server_container(plan, pool, engine, _TITLE, "server", worker))
    for each in other["containers"]:
        del each["ports"], each["readinessProbe"]  # it answers nobody
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": pool.name},
        "spec": {
            "replicas": pool.replicas,
            "leaderWorkerTemplate": {
                "size": pool.nodes,
                "leaderTemplate": {"metadata": {"labels": {_ROLE: _LEADER}}, "spec": first},
                "workerTemplate": {"spec": other},
            },
        },
    }


def _node_arguments(plan: Plan, engine: str) -> tuple[list[str], list[str]]:
    """Arguments by which the pods of a group meet: of the first, and of the others.

    Raises InputError: the engine cannot be started so.
    """
    nodes = ["--nnodes", "$(LWS_GROUP_SIZE)", "--node-rank", "$(LWS_WORKER_INDEX)"]
    if engine == SGLANG:
        nodes += ["--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"]
        return nodes, nodes
    if engine == VLLM and int(plan.peek("layout.dp", 1)) == 1:
        nodes += ["--master-addr", "$(LWS_LEADER_ADDRESS)"]
        return nodes, [*nodes, "--headless"]
    key = "layout.dp" if engine == VLLM else "layout.tp"
    what = f"files for {_TITLE} start no replica of {engine} over several nodes that has {key}: {plan.peek(key)}"
    raise InputError(Problem(what, plan.where(key), "write --to dynamo, or fit a replica into a node"))


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


# Groups of attention are said of services; of training they follow from the GPUs.
_SAYS_SERVICE = (*SAYS, *SAYS_ADAPTERS)
_SAYS = tuple(dict.fromkeys(key for key in (*_SAYS_SERVICE, *TRAINING_SAYS) if key != "layout.dp"))
EXPORTERS = (
    Exporter("kubernetes", _TITLE, ".yaml", _write, _SAYS, TRAINING_ADDED, serving=True, aliases=("k8s",)),
    Exporter(
        "kserve", _LLM, ".yaml", _write_llm, (*_SAYS_SERVICE, *SAYS_PREFILL), serving=True, training=False,
        aliases=("llminferenceservice",),
    ),
    Exporter("inferenceservice", _PREDICTOR, ".yaml", _write_predictor, _SAYS_SERVICE, serving=True, training=False),
)  # fmt: skip
