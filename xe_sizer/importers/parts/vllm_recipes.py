"""Recipes of vllm-project/recipes: a model with its arguments, its variants, and the hardware that it was tried on.

Keys: vllm-project/recipes, CONTRIBUTING.md. The default variant is read, or the one of `--set variant=NAME`; features
that are not opt-in are on. Degrees of parallelism follow from the GPUs at hand, unless the recipe sets them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service import VLLM, Service
from xe_sizer.importers.parts.service_commands import arguments_of
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.parts.nodes import Node

_TENSOR = "single_node_tp"


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The server that a recipe describes."""
    model = node.said("model", "model_id")
    if model is None or (node.get("variants") is None and node.get("features") is None):
        return NO_SERVICES
    variants = node.get("variants")
    names = [str(each.path[-1]) for each in variants.each()] if variants is not None else []
    wanted = given.get("variant", "default")
    variant = variants.get(wanted if wanted in names else names[0]) if variants is not None and names else None
    keys = _arguments(node, variant)
    keys["model"] = (variant.said("model_id") if variant is not None else None) or model
    precision = variant.said("precision") if variant is not None else None
    if precision is not None:
        keys["precision"] = precision
    if variant is not None:
        others = [name for name in names if name != str(variant.path[-1])]
        keys |= {f"variants.{name}": Written(True, node.document.locate(("variants", name))) for name in others}
    keys.setdefault("tensor_parallel_size", _degree(node, variant))
    hardware = node.get("hardware_overrides")
    keys |= hardware.keys("hardware_overrides") if hardware is not None else {}
    name = node.text("meta", "slug")
    keys["recipe"] = Written(name or str(model.value), model.where)
    return Services((Service(VLLM, keys, node.document.locate(("model",)), name=name, gpu=_hardware(node, given)),))


def _arguments(node: Node, variant: Node | None) -> dict[str, Written]:
    base = node.get("model", "base_args")
    keys = arguments_of(base.words()) if base is not None else {}
    opt_in = node.get("opt_in_features")
    off = {text for text, _ in opt_in.words()} if opt_in is not None else set()
    features = node.get("features")
    for feature in features.each() if features is not None else ():
        args = feature.get("args") if isinstance(feature.value, dict) else None
        if args is None:
            continue
        name = str(feature.path[-1])
        if name in off:
            keys[f"features.{name}"] = Written(False, feature.where)
        else:
            keys |= arguments_of(args.words())
    extra = variant.get("extra_args") if variant is not None else None
    if extra is not None:
        keys |= arguments_of(extra.words())
    return keys


def _degree(node: Node, variant: Node | None) -> Written:
    stated = variant.said("tp") if variant is not None else None
    stated = stated or node.said("strategy_overrides", _TENSOR, "tp")
    if stated is not None:
        return stated
    where = node.document.locate(("compatible_strategies",))
    return Written(Unread("", "as many as the GPUs of a node; pass --tp"), where)


def _hardware(node: Node, given: Mapping[str, str]) -> Written | None:
    """The GPU that is asked for, the recipe's default, or the first that it was tried on."""
    stated = node.said("meta", "default_hardware")
    tried = node.get("meta", "hardware")
    names = {str(each.path[-1]): each for each in tried.each()} if tried is not None else {}
    wanted = given.get("hardware", "")
    if wanted in names:
        return Written(wanted, names[wanted].where)
    if stated is not None:
        return stated
    return None
