"""Files of options that a server's command names: here-documents of the same script, else files that lie near it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location
from xe_sizer.importers.parts.nodes import Node, plain_keys
from xe_sizer.importers.parts.service import TENSORRT_LLM
from xe_sizer.importers.parts.service_commands import not_set, opened, role_of
from xe_sizer.importers.written import Written
from xe_sizer.profiles.yaml_reader import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xe_sizer.importers.parts.service import Service
    from xe_sizer.importers.readers.shell import Heredoc
    from xe_sizer.importers.source import Source

_NAMES = ("config", "extra_llm_api_options", "extra_engine_args")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def with_options(service: Service, source: Source) -> Service:
    """A server with the options of the file that it names; TensorRT-LLM's file wins over flags, others' do not."""
    named = next((service.keys[name] for name in _NAMES if name in service.keys), None)
    if named is None or source.script is None:
        return service
    target = str(named.value)
    written = [each for each in source.script.heredocs if each.target is not None and _same(each.target, target)]
    keys = _of_heredocs(written, source) if written else _of_companion(source, target)
    wins = service.engine == TENSORRT_LLM
    found = {**service.keys, **_in_place_of(keys)} if wins else {**keys, **service.keys}
    return replace(service, keys=found, role=service.role or role_of(found))


def _same(one: str, other: str) -> bool:
    return one == other or one.rpartition("/")[2] == other.rpartition("/")[2]


def _of_companion(source: Source, name: str) -> dict[str, Written]:
    try:
        found = source.companion(name)
        return _keys(Node(found.documents[0], found.documents[0].value)) if found and found.documents else {}
    except InputError:
        return {}


def _of_heredocs(parts: Iterable[Heredoc], source: Source) -> dict[str, Written]:
    """Keys of the text that a script writes to a file, each at its line of the script."""
    keys: dict[str, Written] = {}
    for part in parts:
        try:
            documents = documents_of(Path(source.name), part.text)
        except InputError:
            continue
        for document in documents:
            for name, written in _keys(Node(document, document.value)).items():
                line = (part.where.line or 1) + (written.where.line or 1) - 1
                keys[name] = Written(_known(written.value), Location(source.name, line, written.where.column))
    return keys


def _keys(node: Node) -> dict[str, Written]:
    if not isinstance(node.value, dict):
        return {}
    return {name: each for key, written in plain_keys(node).items() for name, each in opened(key, written).items()}


def _known(value: object) -> object:
    """A value, or what it depends on where it holds variables that nobody sets."""
    parts = value if isinstance(value, list) else [value]
    unknown = [name for part in parts if isinstance(part, str) for name in _VARIABLE.findall(part)]
    return not_set(str(value), unknown) if unknown else value


def _in_place_of(keys: Mapping[str, Written]) -> dict[str, Written]:
    """Options by the names of a file, and by those of the flags that they take the place of."""
    flags = {
        "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "moe_expert_parallel_size": "ep_size",
        "kv_cache_config.free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction",
    }  # fmt: skip
    return {**keys, **{flag: keys[name] for name, flag in flags.items() if name in keys}}
