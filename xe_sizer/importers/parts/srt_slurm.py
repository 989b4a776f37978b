"""Recipes of srt-slurm: prefill and decode workers, or workers that do both, and the benchmark that is run on them.

Keys: the recipes of SemiAnalysisAI/InferenceX (benchmarks/multi_node/srt-slurm-recipes) and NVIDIA/srt-slurm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.nodes import plain_keys
from xe_sizer.importers.parts.service import DECODE, PREFILL, SGLANG, TENSORRT_LLM, VLLM, Service
from xe_sizer.importers.parts.service_commands import opened
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.values import UnreadableError, positive
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.importers.parts.nodes import Node

_ENGINES = {"vllm_config": VLLM, "sglang_config": SGLANG, "trtllm_config": TENSORRT_LLM}
_ROLES = (("prefill", PREFILL, "prefill"), ("decode", DECODE, "decode"), ("aggregated", "", "agg"))


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The workers of a recipe; of one with variants of a base, those of the base."""
    recipe = node.get("base") or node
    backend = recipe.get("backend")
    named = next((name for name in _ENGINES if backend is not None and backend.get(name)), None)
    if backend is None or named is None or recipe.get("resources") is None:
        return NO_SERVICES
    services = tuple(_workers(recipe, backend, named))
    beside: dict[str, Written] = {}
    for section in ("benchmark", "frontend", "resources", "infra"):
        part = recipe.get(section)
        beside |= part.keys(section) if part is not None else {}
    name = recipe.said("name")
    return Services(services, beside | ({"recipe": name} if name else {}))


def _workers(recipe: Node, backend: Node, named: str) -> Iterator[Service]:
    for section, role, short in _ROLES:
        settings = backend.get(named, section)
        if settings is None:
            continue
        keys: dict[str, Written] = {}
        for name, written in plain_keys(settings).items():
            keys |= opened(name, written)
        environment = backend.get(f"{section}_environment")
        if environment is not None:
            keys |= environment.keys("env")
        yield Service(
            _ENGINES[named],
            _with_model(recipe, keys),
            settings.where,
            name=section,
            replicas=recipe.said("resources", f"{short}_workers"),
            gpus=_gpus(recipe, section, short),
            gpu=recipe.said("resources", "gpu_type"),
            image=recipe.said("identity", "container", "image") or recipe.said("model", "container"),
            role=role,
        )


def _gpus(recipe: Node, section: str, short: str) -> Written | None:
    """GPUs of one worker: as stated, else those of its nodes."""
    stated = recipe.said("resources", f"gpus_per_{short}")
    if stated is not None:
        return stated
    nodes, workers, per_node = (
        recipe.said("resources", name) for name in (f"{short}_nodes", f"{short}_workers", "gpus_per_node")
    )
    if nodes is None or workers is None or per_node is None:
        return None
    try:
        counts = [positive(each.value) for each in (nodes, workers, per_node)]
    except UnreadableError:
        return None
    if not all(counts) or (counts[0] or 0) * (counts[2] or 0) % (counts[1] or 1):
        return None
    return Written((counts[0] or 0) * (counts[2] or 0) // (counts[1] or 1), nodes.where)


def _with_model(recipe: Node, keys: dict[str, Written]) -> dict[str, Written]:
    """The model by the id of its repository, else by the path or the name under which it is served."""
    repository, path = recipe.said("identity", "model", "repo"), recipe.said("model", "path")
    served = keys.get("served_model_name")
    is_id = path is not None and "/" in str(path.value) and not str(path.value).startswith(("/", "."))
    model = repository or (path if is_id else None) or served or path
    found = {name: written for name, written in keys.items() if name not in ("model_path", "model")}
    if model is not None:
        found["model"] = model
    precision = recipe.said("model", "precision")
    if precision is not None:
        found["precision"] = precision
    return found
