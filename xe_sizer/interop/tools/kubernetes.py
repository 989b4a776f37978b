"""Plain Kubernetes objects: Deployments or LeaderWorkerSets with a Service and KEDA's replicas by the hour, and Jobs.

Objects: Kubernetes 1.36 API reference; leaderworkerset.x-k8s.io/v1, whose pods are given the variables LWS_*; programs:
vLLM 0.33 (docs, parallelism_scaling), SGLang 0.5.23 (docs, multi_node), TensorRT-LLM 1.2 (docs, trtllm-serve).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.interop.manifests import (
    AMD,
    DEVICES,
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
    options_map,
    options_path,
    refuse_roles,
    resources,
    scaled_object,
    schedule_notes,
    serving_pod,
)
from xe_sizer.interop.services import SGLANG, TENSORRT_LLM, VLLM
from xe_sizer.interop.tools.jobset import write_job
from xe_sizer.interop.tools.serving import SAYS, SAYS_ADAPTERS, SETTINGS
from xe_sizer.interop.tools.slurm import TRAINING_ADDED, TRAINING_SAYS
from xe_sizer.interop.write import INFERENCE, Exporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.interop.manifests import Pool
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


# Groups of attention are said of services; of training they follow from the GPUs.
_SAYS = tuple(dict.fromkeys(key for key in (*SAYS, *SAYS_ADAPTERS, *TRAINING_SAYS) if key != "layout.dp"))
EXPORTERS = (Exporter("kubernetes", _TITLE, ".yaml", _write, _SAYS, TRAINING_ADDED, serving=True, aliases=("k8s",)),)
