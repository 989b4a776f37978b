"""Scripts of InferenceX: what their file names say, and those that submit disaggregated services by variables alone.

Names and variables: SemiAnalysisAI/InferenceX, configs/*-master.yaml and benchmarks/multi_node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service import ATOM, DECODE, PREFILL, SGLANG, TENSORRT_LLM, VLLM, Service
from xe_sizer.importers.parts.service_commands import not_set
from xe_sizer.importers.parts.services import NO_SERVICES, Services
from xe_sizer.importers.values import is_on
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.importers.readers.shell import Command, Word
    from xe_sizer.importers.source import Source

_MODELS: Mapping[str, str] = {
    "dsr1": "deepseek-ai/DeepSeek-R1-0528", "dsv4": "deepseek-ai/DeepSeek-V4-Pro", "glm5": "zai-org/GLM-5",
    "glm5.1": "zai-org/GLM-5.1", "glm5.2": "zai-org/GLM-5.2", "glm52": "zai-org/GLM-5.2",
    "gptoss": "openai/gpt-oss-120b", "kimik2.5": "moonshotai/Kimi-K2.5", "kimik2.6": "moonshotai/Kimi-K2.6",
    "kimik3": "moonshotai/Kimi-K3", "minimaxm2.5": "MiniMaxAI/MiniMax-M2.5", "minimaxm3": "MiniMaxAI/MiniMax-M3",
    "qwen3.5": "Qwen/Qwen3.5-397B-A17B",
}  # fmt: skip
_NAMED = re.compile(rf"(?:.*[^a-z0-9])?({'|'.join(map(re.escape, _MODELS))})_(fp4|fp8|bf16|int4)_(?:.*)\.sh")
_AMD = re.compile(r"_mi\d")
_ENGINES = ((re.compile(r"trt"), TENSORRT_LLM), (re.compile(r"sglang"), SGLANG), (re.compile(r"atom"), ATOM),
            (re.compile(r"vllm"), VLLM))  # fmt: skip
_CHECK = "check_env_vars"
_ROLES = (("PREFILL", PREFILL), ("DECODE", DECODE))
_OF_ROLE: Mapping[str, str] = {
    "TP": "tensor_parallel_size", "MAX_BATCH_SIZE": "max_batch_size", "MAX_NUM_TOKENS": "max_num_tokens",
    "GPU_MEM_FRACTION": "kv_cache_config.free_gpu_memory_fraction", "MTP_SIZE": "speculative_config.max_draft_len",
}  # fmt: skip
_LOAD = {"ISL": "isl", "OSL": "osl", "CONC_LIST": "concurrencies", "CONC": "concurrencies"}
_SERVED = ("MODEL", "SERVED_MODEL_NAME", "MODEL_NAME", "MODEL_PATH")


def named_by(file: str) -> tuple[str, str] | None:
    """The model and the number format that a script's name says: `dsr1_fp4_b300.sh`; None for any other name."""
    found = _NAMED.fullmatch(file.lower())
    if found is None:
        return None
    amd = found[2] == "fp4" and _AMD.search(file.lower())
    return _MODELS[found[1]], "mxfp4" if amd else found[2]


def submitted(source: Source) -> Services:
    """The service that a script submits whose sizes are all variables that it is given."""
    commands = source.script.commands if source.script is not None else ()
    checked = next((each for each in commands if each.words[0].text == _CHECK), None)
    names = [word.text for word in checked.words[1:]] if checked is not None else []
    engine = next((each for pattern, each in _ENGINES if pattern.search(source.path.name.lower())), None)
    if checked is None or engine is None or "PREFILL_TP" not in names or "DECODE_TP" not in names:
        return NO_SERVICES
    values = {word.text: _value(source, word) for word in checked.words[1:]}
    services = tuple(_services(values, checked, engine))
    load = {f"benchmark.{to}": values[name] for name, to in _LOAD.items() if name in values}
    return Services(services, load)


def _value(source: Source, word: Word) -> Written:
    """A variable as it is passed, or as the script sets it."""
    name = word.text
    found = source.given.get(name)
    own = source.script.variables.get(name) if source.script is not None else None
    if found is None and own is not None and not isinstance(own, tuple) and not own.unknown:
        return Written(own.text, own.where)
    return Written(not_set(f"${name}", [name]) if found is None else found, word.where)


def _services(values: Mapping[str, Written], checked: Command, engine: str) -> Iterator[Service]:
    model = next((values[name] for name in _SERVED if name in values and _is_set(values[name])), None)
    unset = next((values[name] for name in _SERVED if name in values), None)
    for prefix, role in _ROLES:
        keys = {to: values[f"{prefix}_{name}"] for name, to in _OF_ROLE.items() if f"{prefix}_{name}" in values}
        if model is not None or unset is not None:
            keys["model"] = model or unset or Written(None, checked.where)
        keys |= _parallel(values, prefix, engine)
        workers = values.get(f"{prefix}_NUM_WORKERS")
        yield Service(engine, keys, checked.where, name=role, replicas=workers, role=role)


def _parallel(values: Mapping[str, Written], prefix: str, engine: str) -> dict[str, Written]:
    """Attention groups and expert parallelism by the arguments of the engine."""
    ranks, experts, groups = (values.get(f"{prefix}_{name}") for name in ("TP", "EP", "DP_ATTN"))
    found: dict[str, Written] = {}
    if experts is not None and engine in (VLLM, ATOM):
        on = experts.value if isinstance(experts.value, Unread) else str(experts.value) not in ("0", "1")
        found["enable_expert_parallel"] = Written(on, experts.where)
    elif experts is not None:
        found["ep_size"] = experts
    if groups is None or ranks is None:
        return found
    on = not isinstance(groups.value, Unread) and is_on(groups.value)
    if engine == TENSORRT_LLM:
        found["enable_attention_dp"] = groups
    elif on and engine == VLLM:
        found |= {"data_parallel_size": ranks, "tensor_parallel_size": Written(1, groups.where)}
    elif engine in (SGLANG, ATOM):
        found["enable_dp_attention"] = groups
        found |= {"dp_size": ranks} if on and engine == SGLANG else {}
    return found


def _is_set(written: Written) -> bool:
    return not isinstance(written.value, Unread)
