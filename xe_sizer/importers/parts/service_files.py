"""All model servers of a file, whatever its kind: scripts, containers, charts, recipes, settings of an engine."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.importers.parts import (
    container_files,
    engine_settings,
    inferencex,
    production_stack,
    sgl_cookbook,
    srt_slurm,
    vllm_recipes,
)
from xe_sizer.importers.parts.dockerfile import is_dockerfile, services_of_dockerfile
from xe_sizer.importers.parts.nodes import Node
from xe_sizer.importers.parts.option_files import with_options
from xe_sizer.importers.parts.service_calls import services_of_calls
from xe_sizer.importers.parts.service_commands import services_of
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.parts.serving_load import benchmark_keys
from xe_sizer.importers.readers.shell import read_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xe_sizer.importers.readers.shell import Script
    from xe_sizer.importers.source import Source

_EXIT = re.compile(r"\bexit(?:[ \t]+\d+)?\b")
_STARTS = re.compile(r"vllm|sglang|trtllm|tensorrt_llm|atom")
_READERS: tuple[Callable[[Node, Mapping[str, str]], Services], ...] = (
    srt_slurm.read, production_stack.read, vllm_recipes.read, sgl_cookbook.read, container_files.read,
    engine_settings.read,
)  # fmt: skip
"""Readers of documents; the first that finds a server reads the document."""


@lru_cache(maxsize=8)
def services_in(source: Source) -> Services:
    """The model servers of a file, and what it says beside them."""
    if is_dockerfile(source):
        return Services(tuple(services_of_dockerfile(source)))
    if source.kind == "python":
        return _of_module(source)
    if source.script is not None:
        return _of_script(source, source.script)
    try:
        documents = source.documents
    except InputError:
        return NO_SERVICES
    read = [_read(Node(document, document.value), source.given) for document in documents]
    return Services(
        tuple(service for each in read for service in each.services),
        {name: written for each in read for name, written in each.beside.items()},
    )


def _of_module(source: Source) -> Services:
    """The servers that a Python file starts; files that name no engine are not looked through."""
    try:
        module = source.module if _STARTS.search(source.text) else None
    except InputError:
        return NO_SERVICES
    return Services(tuple(services_of_calls(module.calls))) if module is not None else NO_SERVICES


def _of_script(source: Source, script: Script) -> Services:
    """The servers that a script starts; one that ends in a branch that cannot be told is read beyond it."""
    found = tuple(with_options(each, source) for each in services_of(script.commands))
    if found:
        return Services(found, benchmark_keys(script.commands))
    submitted = inferencex.submitted(source)
    if submitted.services or not _EXIT.search(source.text) or not _STARTS.search(source.text):
        return submitted
    text = _EXIT.sub(lambda word: ":".ljust(len(word[0])), source.text)
    commands = read_script(text, source.name, source.given, source.text_beside).commands
    found = tuple(with_options(each, source) for each in services_of(commands))
    return Services(found, benchmark_keys(commands)) if found else NO_SERVICES


def _read(node: Node, given: Mapping[str, str]) -> Services:
    if not isinstance(node.value, dict):
        return NO_SERVICES
    found = (reader(node, given) for reader in _READERS)
    return next((each for each in found if each.services), NO_SERVICES)
