"""Charts and resources of vLLM's production stack: `servingEngineSpec.modelSpec` of values files, and VLLMRuntime.

Keys and what the chart passes on: vllm-project/production-stack, helm/values.yaml and
helm/templates/deployment-vllm-multi.yaml. With `vllmConfig`, the chart turns prefix caching off unless it is asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.container_files import gpu_of_selectors
from xe_sizer.importers.parts.service import DECODE, PREFILL, VLLM, Service
from xe_sizer.importers.parts.service_commands import arguments_of
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.parts.nodes import Node

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ROLES = {"kv_producer": PREFILL, "kv_consumer": DECODE}
_OWN = ("extraArgs", "env", "modelURL", "enableLoRA", "enableTool", "hfTokenSecret")


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The models that a values file deploys, or the one of a VLLMRuntime."""
    if node.text("kind") == "VLLMRuntime":
        return _runtime(node)
    specs = node.get("servingEngineSpec", "modelSpec")
    if specs is None:
        return NO_SERVICES
    each = [spec for spec in specs.each() if isinstance(spec.value, dict) and spec.value.get("enabled") is not False]
    return Services(tuple(_service(spec) for spec in each if spec.said("modelURL")))


def _service(spec: Node) -> Service:
    keys: dict[str, Written] = {}
    config = spec.get("vllmConfig")
    extra = config.get("extraArgs") if config is not None else None
    if extra is not None:
        keys |= arguments_of(extra.words())
    keys = _settings(config) | keys
    if config is not None and "enable_prefix_caching" not in keys:
        keys["chart.no_prefix_caching"] = Written(True, config.where)
    for name, to in (("modelURL", "model"), ("enableLoRA", "enable_lora")):
        said = spec.said(name)
        if said is not None:
            keys.setdefault(to, said)
    keys |= _surrounding(spec)
    image = spec.said("tag")
    repository = spec.text("repository")
    return Service(
        VLLM,
        keys,
        spec.where,
        name=spec.text("name"),
        replicas=spec.said("replicaCount"),
        gpus=_gpus(spec),
        gpu=_gpu(spec),
        image=Written(f"{repository}:{image.value}", image.where) if image else None,
        role=_ROLES.get(spec.text("lmcacheConfig", "kvRole"), ""),
    )


def _settings(config: Node | None) -> dict[str, Written]:
    """The keys of `vllmConfig` by the names of vLLM's arguments."""
    if config is None:
        return {}
    plain = (each for each in config.each() if each.path[-1] not in _OWN)
    return {_snake(str(each.path[-1])): each.written for each in plain if not isinstance(each.value, dict | list)}


def _snake(name: str) -> str:
    return _CAPITAL.sub(lambda found: f"_{found[1].lower()}", name)


def _surrounding(spec: Node) -> dict[str, Written]:
    """Keys around vLLM's own that may change memory or time, by the chart's names."""
    cache = spec.get("lmcacheConfig")
    found = dict(cache.keys("lmcacheConfig")) if cache is not None else {}
    for name in ("requestGPUMem", "requestGPUMemPercentage", "requestGPUCores", "limitGPUMem", "limitGPUMemPercentage",
                 "limitGPUCores", "keda", "requestGPUType", "raySpec"):  # fmt: skip
        part = spec.get(name)
        found |= part.keys(name) if part is not None else {}
    gpus = spec.said("requestGPU")
    if gpus is not None and not str(gpus.value).isdigit():
        found["requestGPU"] = gpus
    return found


def _gpus(spec: Node) -> Written | None:
    stated = spec.said("requestGPU")
    limits = spec.get("resources", "limits") or spec.get("resources", "requests")
    of_limits = next((each.written for each in limits.each() if "gpu" in str(each.path[-1])), None) if limits else None
    return stated or of_limits


def _gpu(spec: Node) -> Written | None:
    """The product that node selectors name."""
    return gpu_of_selectors(spec)


def _runtime(node: Node) -> Services:
    spec = node.get("spec")
    model = spec.said("model", "modelURL") if spec is not None else None
    if spec is None or model is None:
        return NO_SERVICES
    keys = {**_settings(spec.get("model")), **_settings(spec.get("vllmConfig")), "model": model}
    adapters = spec.said("model", "enableLoRA")
    keys |= {"enable_lora": adapters} if adapters is not None else {}
    extra = spec.get("vllmConfig", "extraArgs")
    if extra is not None:
        keys |= arguments_of(extra.words())
    cache = spec.get("lmCacheConfig")
    if cache is not None:
        keys |= cache.keys("lmcacheConfig")
    service = Service(
        VLLM,
        keys,
        spec.where,
        name=node.text("metadata", "name"),
        replicas=spec.said("deploymentConfig", "replicas"),
        gpus=spec.said("deploymentConfig", "resources", "gpu"),
        gpu=gpu_of_selectors(spec),
        image=spec.said("deploymentConfig", "image", "name"),
    )
    return Services((service,))
