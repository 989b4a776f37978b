"""Model servers that commands start: the programs of vLLM, SGLang, TensorRT-LLM and ATOM, and those of Dynamo.

Programs: vLLM docs, cli/serve; SGLang docs, server_arguments; TensorRT-LLM docs, trtllm-serve; ai-dynamo/dynamo,
components/backends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from xe_sizer.importers.parts.service import (
    ATOM,
    DECODE,
    PREFILL,
    SGLANG,
    TENSORRT_LLM,
    VLLM,
    Service,
)
from xe_sizer.importers.readers.shell import Word, flags_of, unwrapped
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xe_sizer.errors import Location
    from xe_sizer.importers.readers.shell import Arguments, Command, Flag, Launch

_PROGRAMS: Mapping[str, str] = {
    "vllm": VLLM, "vllm.entrypoints.openai.api_server": VLLM, "vllm.entrypoints.api_server": VLLM,
    "vllm.entrypoints.cli.main": VLLM, "dynamo.vllm": VLLM, "sglang": SGLANG, "sglang.launch_server": SGLANG,
    "dynamo.sglang": SGLANG, "trtllm-serve": TENSORRT_LLM, "dynamo.trtllm": TENSORRT_LLM,
    "tensorrt_llm.commands.serve": TENSORRT_LLM, "atom.entrypoints.openai_server": ATOM,
}  # fmt: skip
_WITH_SUBCOMMAND = ("vllm", "sglang", "trtllm-serve", "vllm.entrypoints.cli.main", "tensorrt_llm.commands.serve")
_MUST_SERVE = ("vllm", "sglang", "vllm.entrypoints.cli.main")
_RUNNERS = frozenset({"trtllm-llmapi-launch"})
_IMAGES = (("vllm-openai", VLLM), ("vllm", VLLM), ("sglang", SGLANG), ("tensorrt", TENSORRT_LLM))
_OF_SCRIPT = re.compile(r"(?:.*/)?(vllm/entrypoints/openai/api_server|sglang/launch_server)\.py")
SWITCHES = frozenset(
    [
        "trust_remote_code",
        "enforce_eager",
        "enable_expert_parallel",
        "enable_prefix_caching",
        "no_enable_prefix_caching",
        "enable_lora",
        "enable_chunked_prefill",
        "no_enable_chunked_prefill",
        "async_scheduling",
        "no_async_scheduling",
        "language_model_only",
        "enable_auto_tool_choice",
        "disable_log_requests",
        "disable_log_stats",
        "enable_eplb",
        "enable_dbo",
        "headless",
        "api_server_count_auto",
        "disable_radix_cache",
        "enable_dp_attention",
        "enable_dp_lm_head",
        "disable_cuda_graph",
        "enable_metrics",
        "enable_mixed_chunk",
        "enable_torch_compile",
        "skip_tokenizer_init",
        "enable_symm_mem",
        "disable_overlap_schedule",
        "enable_hierarchical_cache",
        "enable_flashinfer_allreduce_fusion",
        "enable_two_batch_overlap",
        "disable_custom_all_reduce",
        "enable_attention_dp",
        "enable_chunked_context",
        "fail_fast_on_attention_window_too_large",
    ]
)
"""Arguments without a value, behind which a model's name may stand."""
_ID = re.compile(r"[\w.-]+/[\w.-]+")  # of a model, behind an image whose program is the server
_TEXT = 1 << 16  # characters of an argument beyond which it is not read as JSON


def services_of(commands: Iterable[Command]) -> Iterator[Service]:
    """The model servers that commands start, in their order."""
    for command in commands:
        found = service_of(unwrapped(command))
        if found is not None:
            yield found


def service_of(launch: Launch) -> Service | None:
    """The model server that a program with its words is; None where it is another program."""
    words = launch.command.words
    while len(words) > 1 and (words[0].text.rpartition("/")[2] in _RUNNERS or words[0].text == "-m"):
        words = words[1:]
    engine, rest = _program(words, launch)
    if engine is None or rest is None:
        return None
    image = _image(launch)
    arguments = flags_of(rest, SWITCHES)
    keys = _arguments(arguments)
    _positional_model(arguments, keys)
    environment = {f"env.{name}": Written(word.text, word.where) for name, word in launch.command.environment.items()}
    service = Service(engine, {**environment, **keys}, words[0].where, image=image, role=role_of(keys))
    return service if keys else None


def engine_of_image(image: str) -> str | None:
    """The engine whose image this is, by its name."""
    name = image.lower()
    return next((engine for part, engine in _IMAGES if part in name), None)


def _program(words: Sequence[Word], launch: Launch) -> tuple[str | None, Sequence[Word] | None]:
    first = words[0].text
    script = _OF_SCRIPT.fullmatch(first)
    name = script[1].replace("/", ".") if script else first.rpartition("/")[2]
    engine = _PROGRAMS.get(name)
    image = _image(launch) if engine is None else None
    if image is not None and (first.startswith("-") or _ID.fullmatch(first)):
        found = engine_of_image(str(image.value))
        return (found, words) if found == VLLM else (None, None)
    if name not in _WITH_SUBCOMMAND:
        return engine, words[1:]
    if len(words) > 1 and words[1].text == "serve":
        return engine, words[2:]
    others = {"bench", "disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve", "--help", "--version", "-h"}
    if name in _MUST_SERVE or len(words) == 1 or words[1].text in others:
        return None, None
    return engine, words[1:]


def _image(launch: Launch) -> Written | None:
    """The image of a container that the command is started in."""
    for runner in reversed(launch.runners):
        if runner.words[0].text.rpartition("/")[2] in ("docker", "podman", "singularity", "apptainer"):
            last = runner.words[-1]
            return Written(last.text, last.where)
    return None


def _arguments(arguments: Arguments) -> dict[str, Written]:
    keys: dict[str, Written] = {}
    for name, flag in arguments.flags.items():
        if name.startswith("no_") and not flag.values:
            keys[name.removeprefix("no_")] = Written(False, flag.where)
        else:
            keys.update(opened(name, _value(flag)))
    return keys


def _value(flag: Flag) -> Written:
    values = [value.text for value in flag.values]
    unknown = [name for value in flag.values for name in value.unknown]
    if unknown:
        return Written(not_set(" ".join(values), unknown), flag.where)
    if not values:
        return Written(True, flag.where)
    return Written(values[0] if len(values) == 1 else values, flag.values[0].where)


def opened(name: str, written: Written) -> dict[str, Written]:
    """An argument as keys: one whose value is a JSON object gives a dotted key for each of its values."""
    value = written.value
    if not isinstance(value, str) or not value.lstrip().startswith("{") or len(value) > _TEXT:
        return {name: written}
    try:
        inside = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return {name: written}
    return {f"{name}.{key}": Written(each, written.where) for key, each in inside.items()} or {name: written}


def not_set(text: str, variables: Iterable[str]) -> Unread:
    """A value that holds variables which nobody sets."""
    named = list(dict.fromkeys(variables))
    passed = " ".join(f"--set {name}=VALUE" for name in named)
    return Unread(text, f"${' and $'.join(named)} not set; pass {passed}")


def _positional_model(arguments: Arguments, keys: dict[str, Written]) -> None:
    first = next(iter(arguments.positionals), None)
    if first is not None and "model" not in keys and "model_path" not in keys:
        keys["model"] = Written(not_set(first.text, first.unknown) if first.unknown else first.text, first.where)


def role_of(keys: Mapping[str, Written]) -> str:
    """The role that arguments give to a server of a disaggregated service; empty where they give none."""
    roles = {
        "prefill": PREFILL, "decode": DECODE, "context": PREFILL, "generation": DECODE, "kv_producer": PREFILL,
        "kv_consumer": DECODE, "true": PREFILL,
    }  # fmt: skip
    named = ("disaggregation_mode", "server_role", "kv_transfer_config.kv_role", "is_prefill_worker")
    said = (roles.get(str(keys[name].value).lower()) for name in named if name in keys)
    return next((role for role in said if role), "")


def arguments_of(words: Iterable[tuple[str, Location]]) -> dict[str, Written]:
    """Arguments as a list has them, each word with its place; a word with blanks is split where it holds a flag."""
    split: list[Word] = []
    for text, where in words:
        parts = text.split() if text.startswith("-") and not text.lstrip("-").startswith("{") else [text]
        plain = parts if all("{" not in part for part in parts) else text.split(maxsplit=1)
        split += [Word(part, where) for part in plain]
    arguments = flags_of(split, SWITCHES)
    keys = _arguments(arguments)
    _positional_model(arguments, keys)
    return keys
