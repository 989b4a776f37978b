"""Model servers that Python files start: `vllm.LLM(...)`, `sglang.Engine(...)`, `tensorrt_llm.LLM(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service import SGLANG, TENSORRT_LLM, VLLM, Service
from xe_sizer.importers.parts.service_commands import opened, role_of
from xe_sizer.importers.readers.python import keys_of
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xe_sizer.importers.readers.python import Call

_CALLED: Mapping[str, str] = {
    **dict.fromkeys(("LLM", "EngineArgs", "AsyncEngineArgs", "AsyncLLMEngine.from_engine_args"), VLLM),
    **dict.fromkeys(("Engine", "ServerArgs", "Runtime"), SGLANG),
}
_PACKAGES: Mapping[str, str] = {"vllm": VLLM, "sglang": SGLANG, "tensorrt_llm": TENSORRT_LLM}
_NOT_SAID = ("_target_", "_args_")


def services_of_calls(calls: Iterable[Call]) -> Iterator[Service]:
    """The servers among the calls of a file."""
    for call in calls:
        package, _, rest = call.name.partition(".")
        engine = _PACKAGES.get(package)
        if engine is None or rest.rpartition(".")[2] not in _CALLED:
            continue
        keys: dict[str, Written] = {}
        for name, written in keys_of(Written(call, call.where)).items():
            if not any(part in _NOT_SAID for part in name.split(".")):
                keys |= opened(name, written)
        if call.args and "model" not in keys:
            keys["model"] = call.args[0]
        if keys:
            yield Service(engine, keys, call.where, role=role_of(keys))
