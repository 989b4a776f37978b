"""Kubernetes objects of a plan: pools of alike replicas, their pods, and how many of them run in each hour of a day.

Every form that runs on Kubernetes is made of these: plain objects, custom resources, and values of charts.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import field

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.services import DECODE, PREFILL, SGLANG, VLLM
from xe_sizer.interop.write import (
    AUTOSCALE,
    HOURLY_LOAD,
    PREFILL_RANKS,
    SAYS_PREFILL,
    SHARERS,
    ToolFiles,
    yaml_text,
)
from xe_sizer.profiles.catalogue import load_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xe_sizer.interop.write import Plan

# Names, GPUs and images.

NVIDIA, AMD = "NVIDIA", "AMD"
DEVICES = {NVIDIA: "nvidia.com/gpu", AMD: "amd.com/gpu"}
"""What device plugins call the GPUs of a vendor (NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin)."""
PORT = 8000
PLACEHOLDER_IMAGE = "IMAGE"
"""What stands in files for an image that nobody publishes; no runtime pulls it."""
_TOKEN = {
    "name": "HF_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "hf-token-secret", "key": "HF_TOKEN", "optional": True}},
}
"""Access to gated models, where the namespace has the secret."""
_NAME = 40  # characters of a name, of 63, which leaves room for what controllers add


def object_name(model: str) -> str:
    """A name that Kubernetes takes for every kind of object (RFC 1035), from the name of a model."""
    name = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower())[:_NAME].strip("-")
    return name if name[:1].isalpha() else f"model-{name}".rstrip("-")


def gpu_device(plan: Plan, title: str, vendors: Sequence[str] = (NVIDIA,)) -> str:
    """What a container asks for to be given a GPU.

    vendors : for whose GPUs the tool has images

    Raises
    ------
    InputError : no manifest is written for the GPUs of the plan
    """
    vendor = plan.peek("vendor", NVIDIA)
    if vendor not in vendors:
        what = f"files for {title} are written for GPUs of {' and '.join(vendors)}, not for {plan.peek('gpu')}"
        raise InputError(Problem(what, plan.where("gpu"), "--gpu or --server names other hardware"))
    part = str(plan.take("slice") or "")
    if vendor == NVIDIA and part and not plan.peek(SHARERS):
        return f"nvidia.com/mig-{part}"
    return DEVICES[vendor]


def gpu_notes(plan: Plan) -> Iterator[str]:
    """What a user adds so that pods get the GPU of the plan, or their part of it."""
    gpu, sharers, part = plan.peek("gpu"), plan.peek(SHARERS), plan.peek("slice")
    if sharers:
        yield f"{part} in the device plugin's configuration (sharing, {sharers} replicas of each GPU)"
    elif part:
        yield f"GPUs cut into slices of {part}, and a device plugin that names them (the strategy mixed)"
    if gpu:
        yield f"a nodeSelector for {gpu}, where the cluster has other GPUs too"


# The engine of a plan: its program, its image, and how its settings are passed.


class Server(Immutable):
    """How an engine is started in a container.

    words : its program
    images : by the vendor of the GPUs
    model_flag : the flag of the model; empty where that is the first argument
    options_flag : the flag of a file that holds the settings; empty where they are flags themselves
    """

    words: tuple[str, ...]
    images: Mapping[str, str]
    model_flag: str = ""
    options_flag: str = ""


def engine_of(plan: Plan, known: Iterable[str], title: str) -> str:
    """The engine of a plan or the one that it builds on. Raises InputError: the tool does not start it."""
    wanted = str(plan.take("serve.engine", VLLM))
    engine: str | None = wanted
    with suppress(InputError):  # an engine of the user's own that lies elsewhere
        while engine is not None and engine.partition("@")[0] not in known:
            engine = load_engine(engine).parent
    if engine is None:
        what = f"files for {title} are written for {', '.join(sorted(known))}, not for {wanted}"
        raise InputError(Problem(what, plan.where("serve.engine"), "--engine names another"))
    return engine.partition("@")[0]


# Pools of replicas.


class Pool(Immutable):
    """Replicas that are alike: all of a service, or those of one of its roles.

    name : of the object that keeps them
    role : empty where they do both
    gpus : of a replica, on so many nodes
    settings : of the engine, for one replica
    """

    name: str
    role: str
    replicas: int
    gpus: int
    nodes: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus_per_pod(self) -> int:
        return self.gpus // self.nodes


def build_pools(plan: Plan, settings: Callable[[Plan], dict[str, Any]], title: str) -> tuple[Pool, ...]:
    """The pools of a plan: one, or those that prefill and those that decode.

    settings : of the engine for a replica, which takes what it says of a plan

    Raises
    ------
    InputError : the engine cannot place the replicas that only prefill
    """
    name = object_name(str(plan.peek("model")))
    plan.said("gpus", "nodes", "job", "replicas")
    per_node = int(plan.take("gpus_per_node", 0))
    first = plan.of_prefill
    main = _pool(plan, f"{name}-{DECODE}" if first else name, DECODE if first else "", per_node, settings)
    if first is None:
        return (main,)
    plan.said(*SAYS_PREFILL)
    other = _pool(first, f"{name}-{PREFILL}", PREFILL, per_node, settings)
    problems = [
        Problem(f"{title} has no setting for {PREFILL_RANKS[key]}: {value}", plan.where(PREFILL_RANKS[key]),
                "fix the key to another value")
        for key, value in first.left() if key in PREFILL_RANKS
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    return other, main


def _pool(plan: Plan, name: str, role: str, per_node: int, settings: Callable[[Plan], dict[str, Any]]) -> Pool:
    replicas = int(plan.peek("serve.prefill_replicas" if role == PREFILL else "replicas", 1))
    gpus = math.prod(int(plan.peek(f"layout.{ranks}", 1)) for ranks in ("tp", "pp", "dp"))
    nodes = math.ceil(gpus / per_node) if per_node else 1
    return Pool(name, role, replicas, gpus, nodes, settings(plan))


def refuse_several_nodes(plan: Plan, pools: Sequence[Pool], title: str) -> None:
    """Raises InputError where a replica spans nodes and the tool's form has one pod for each."""
    for pool in pools:
        if pool.nodes > 1:
            key = PREFILL_RANKS["layout.tp"] if pool.role == PREFILL else "layout.tp"
            what = f"{title} runs a replica in one pod: {pool.gpus} GPUs are on {pool.nodes} nodes"
            hint = "fit a replica into a node, or write --to kubernetes or dynamo"
            raise InputError(Problem(what, plan.where(key), hint))


def refuse_roles(plan: Plan, pools: Sequence[Pool], title: str, why: str) -> None:
    """Raises InputError where prompts have pools of their own and nothing sends requests from one to the other."""
    if len(pools) > 1:
        what = f"{title} has no setting for serve.prefill_replicas: {why}"
        hint = "leave --prefill-replicas out, or write --to dynamo, llm-d or kserve"
        raise InputError(Problem(what, plan.where("serve.prefill_replicas"), hint))


def arguments(settings: Mapping[str, Any]) -> list[str]:
    """Flags as the arguments of a container; one that is True stands alone, None and False are left out."""
    words: list[str] = []
    for name, value in settings.items():
        if value is None or value is False:
            continue
        values = [] if value is True else value if isinstance(value, list | tuple) else [value]
        words += [f"--{name}", *map(str, values)]
    return words


# Containers and pods.

NIXL_HOST = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""Where vLLM's NIXL connector is found by the pods of another pool."""


def nixl_transfer(role: str = "kv_both") -> list[str]:
    """Arguments of vLLM by which the KV cache gets from the pods that prefill to those that decode.

    role : of the connector, which knows it without (vLLM docs, features/nixl_connector_usage)
    """
    return ["--kv-transfer-config", f'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}']


def environment(*more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Variables of a server's container."""
    return [_TOKEN, *more]


def resources(device: str, gpus: int, host_gib: float | None) -> dict[str, Any]:
    """GPUs of a container, and the host memory that its KV cache takes [GiB]."""
    requests = {"memory": f"{math.ceil(host_gib)}Gi"} if host_gib else None
    return {"limits": {device: str(gpus)}, "requests": requests}


def serving_pod(container: Mapping[str, Any], options: str = "") -> dict[str, Any]:
    """A pod of one server on port 8000: shared memory for its ranks, traffic once it answers, and a file of options.

    options : the ConfigMap that holds the file; empty without one
    """
    mounts, volumes = options_mounts(options) if options else ([], [])
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, *mounts]
    ports = [{"name": "http", "containerPort": PORT}]
    ready = {"httpGet": {"path": "/health", "port": PORT}}
    return {
        "containers": [{**container, "ports": ports, "readinessProbe": ready, "volumeMounts": mounts}],
        "volumes": [SHARED_MEMORY, *volumes],
    }


def options_mounts(name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts of a container, and volumes of its pod, for a file of options.

    name : of the ConfigMap that holds it
    """
    mounts = [{"name": "options", "mountPath": _OPTIONS_FOLDER}]
    return mounts, [{"name": "options", "configMap": {"name": name}}]


SHARED_MEMORY: dict[str, Any] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
_OPTIONS_FOLDER = "/etc/engine"


def options_path(name: str) -> str:
    """Where a container finds the file of options that a ConfigMap holds; no two have the same name."""
    return f"{_OPTIONS_FOLDER}/{name}.yaml"


def options_map(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A file of an engine's options as the object that pods mount."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {f"{name}.yaml": yaml_text(options)},
    }


def documents_text(documents: Iterable[Mapping[str, Any]]) -> str:
    """Objects as one file of YAML."""
    return "---\n".join(yaml_text(each) for each in documents)


def applied(documents: Iterable[Mapping[str, Any]], yours: Sequence[str], told: Sequence[str] = ()) -> ToolFiles:
    """Objects as the file that kubectl applies. yours, told : what a user adds, and what is said of it"""
    return ToolFiles(documents_text(documents), run="kubectl apply -f FILE", yours=tuple(yours), told=tuple(told))


# Replicas by the hour, and by the requests in flight: triggers of KEDA, of which the one with the most replicas wins.
#
# Keys: keda.sh/docs/2.18/scalers/cron and /prometheus, which divides what it asks for by the threshold; gauges: vLLM
# docs, usage/metrics; SGLang docs, production_metrics; Dynamo docs, observability/metrics.

_PROMETHEUS = "http://PROMETHEUS:9090"
_IN_FLIGHT: Mapping[str, tuple[str, ...]] = {
    VLLM: ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    SGLANG: ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
_ZONE = "Etc/UTC"
_DAY, _HOUR = 24, 60  # hours; minutes


class Schedule(Immutable):
    """The fewest and the most replicas, and KEDA's triggers for what is above the fewest."""

    fewest: int
    most: int
    triggers: tuple[Mapping[str, Any], ...]


def build_schedule(plan: Plan, engine: str, gauge: str = "") -> Schedule | None:
    """Replicas of a plan by the hour, each started early enough for its hour, and by the requests in flight.

    None where they are as many all day, and follow nothing.

    gauge : of the requests in flight; empty: those of the engine

    Raises
    ------
    InputError : nothing says how many requests are in flight, or there is one replica
    """
    plan.said(HOURLY_LOAD, AUTOSCALE)
    hours = plan.hours if len(set(plan.hours)) > 1 else ()
    following = [] if plan.in_flight is None else [_following(plan, plan.in_flight, engine, gauge)]
    if not hours and not following:
        return None
    plan.said("replica_start_s")
    lead = math.ceil(float(plan.peek("replica_start_s", 0)) / 60)
    fewest, most = (min(hours), max(hours)) if hours else (1, int(plan.peek("replicas", 1)))
    runs = _runs(hours) if hours else []
    triggers = [_trigger(first, length, hours[first], lead) for first, length in runs if hours[first] > fewest]
    return Schedule(fewest, most, (*triggers, *following))


def _following(plan: Plan, in_flight: float, engine: str, gauge: str) -> dict[str, Any]:
    """A replica for as many requests in flight as each has under the load of the plan. Raises InputError."""
    what, key, hint = "", "", ""
    if plan.of_prefill is not None:
        key, what = "serve.prefill_replicas", "replicas that only prefill or decode do not follow requests in flight"
        hint = "leave --prefill-replicas out, or --autoscale, and let the tool's own planner balance the pools"
    elif not gauge and engine not in _IN_FLIGHT:
        key, what = "serve.engine", f"{engine} has no gauge of the requests in flight"
        hint = f"--engine {' or '.join(_IN_FLIGHT)}, or --to dynamo, whose frontend has one"
    elif max((int(plan.peek("replicas", 1)), *plan.hours)) < 2:
        key, what, hint = AUTOSCALE, "one replica carries the load: there is nothing to scale", "leave --autoscale out"
    if what:
        raise InputError(Problem(what, Location(key) if key == AUTOSCALE else plan.where(key), hint))
    label, gauges = ("model", (gauge,)) if gauge else ("model_name", _IN_FLIGHT[engine])
    query = " + ".join(f'sum({each}{{{label}="{plan.peek("model")}"}})' for each in gauges)
    metadata = {"serverAddress": _PROMETHEUS, "query": query, "threshold": f"{max(in_flight, 1.0):.3g}"}
    return {"type": "prometheus", "metadata": metadata}


def gauge_flags(plan: Plan, engine: str) -> list[str]:
    """Flags with which an engine shows the gauges that replicas follow."""
    return ["--enable-metrics"] if plan.in_flight is not None and engine == SGLANG else []


def _runs(hours: Sequence[int]) -> list[tuple[int, int]]:
    """First hour and length of each stretch of a day with as many replicas; midnight parts none."""
    starts = [hour for hour in range(_DAY) if hours[hour] != hours[hour - 1]]
    return [(start, (after - start) % _DAY) for start, after in zip(starts, [*starts[1:], starts[0]], strict=True)]


def _trigger(first: int, length: int, replicas: int, lead: int) -> dict[str, Any]:
    start, end = ((first * _HOUR - lead) % (_DAY * _HOUR), (first + length) % _DAY * _HOUR)
    times = {name: f"{at % _HOUR} {at // _HOUR} * * *" for name, at in (("start", start), ("end", end))}
    return {"type": "cron", "metadata": {"timezone": _ZONE, **times, "desiredReplicas": str(replicas)}}


def scaled_object(name: str, target: Mapping[str, str], schedule: Schedule) -> dict[str, Any]:
    """KEDA's object that starts and stops the replicas of another by the hour.

    target : apiVersion, kind and name of what has the replicas
    """
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicaCount": schedule.fewest,
            "maxReplicaCount": schedule.most,
            "triggers": list(schedule.triggers),
        },
    }


def schedule_notes(schedule: Schedule | None) -> tuple[str, ...]:
    """What a user adds to a schedule."""
    kinds = {trigger["type"] for trigger in schedule.triggers} if schedule else set()
    zone = f"the time zone of the day's load (timezone, which is {_ZONE}), and KEDA in the cluster"
    scraped = f"the Prometheus that scrapes the pods (serverAddress, {_PROMETHEUS}), and KEDA in the cluster"
    return (*((zone,) if "cron" in kinds else ()), *((scraped,) if "prometheus" in kinds else ()))
