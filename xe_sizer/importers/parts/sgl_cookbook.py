"""SGLang's cookbook: models with configurations for several GPUs.

Keys: sgl-project/sgl-cookbook, data/models. The first configuration of the first model is read; `--set model=NAME`,
`--set hardware=GPU` and `--set configuration=NAME` choose others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service import DECODE, PREFILL, SGLANG, Service
from xe_sizer.importers.parts.service_commands import arguments_of
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.importers.parts.nodes import Node

_ROLES = (("engine", ""), ("prefill", PREFILL), ("decode", DECODE))


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The configurations of a file of the cookbook, those that are asked for first."""
    families = node.get("families")
    if families is None:
        return NO_SERVICES
    found = [each for family in families.each() for each in _of_family(family, node.text("vendor"))]
    return Services(tuple(sorted(found, key=lambda each: not _is_wanted(each, given))))


def _is_wanted(service: Service, given: Mapping[str, str]) -> bool:
    gpu = str(service.gpu.value).lower() if service.gpu is not None else ""
    words = service.name.lower().split()
    asked = {name: given[name].lower() for name in ("hardware", "configuration") if name in given}
    return asked.get("hardware", gpu) == gpu and asked.get("configuration", words[-1]) == words[-1]


def _of_family(family: Node, vendor: str) -> Iterator[Service]:
    models = family.get("models")
    for model in models.each() if models is not None else ():
        path = model.said("model_path") or model.said("name")
        hardware = model.get("hardware")
        for gpu in hardware.each() if hardware is not None else ():
            configurations = gpu.get("configurations")
            for each in configurations.each() if configurations is not None else (gpu,):
                yield from _services(each, gpu, model, path, vendor)


def _services(node: Node, gpu: Node, model: Node, path: Written | None, vendor: str) -> Iterator[Service]:
    name = node.text("name") or "default"
    precision = node.said("attributes", "quantization") or model.said("quantization")
    for part, role in _ROLES:
        engine = node.get(part) or (node if part == "engine" and node.get("tp") else None)
        if engine is None:
            continue
        extra = engine.get("extra_args")
        keys = arguments_of(extra.words()) if extra is not None else {}
        for key in ("tp", "dp", "ep", "pp", "enable_dp_attention"):
            said = engine.said(key)
            keys |= {key: said} if said is not None else {}
        checkpoint = node.said("quantized_model_path") or path
        if checkpoint is not None:
            keys.setdefault("model_path", _with_vendor(checkpoint, vendor))
        environment = engine.get("env_vars")
        keys |= environment.keys("env") if environment is not None else {}
        keys |= {"precision": precision} if precision is not None else {}
        product = Written(str(gpu.path[-1]), gpu.document.locate(gpu.path, key=True))
        yield Service(
            SGLANG, keys, engine.where, name=f"{model.text('name')} {product.value} {name}", gpu=product, role=role
        )


def _with_vendor(path: Written, vendor: str) -> Written:
    name = str(path.value)
    return path if "/" in name or not vendor else Written(f"{vendor}/{name}", path.where)
