"""A service as another tool starts it: its command or call, its image, and files of options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import field
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location
from xe_sizer.immutable import Immutable
from xe_sizer.interop.launch import Node, plain_keys
from xe_sizer.interop.readers.python_values import call_keys
from xe_sizer.interop.readers.shell_script import Heredoc, Word, parse_flags, unwrapped
from xe_sizer.interop.values import Unread, Written
from xe_sizer.profiles.yaml_reader import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xe_sizer.interop.readers.python_values import Call
    from xe_sizer.interop.readers.shell_script import Arguments, Command, Flag, Launch
    from xe_sizer.interop.source import Source
    from xe_sizer.interop.values import Keys

# A model server as a file starts it: its engine, its arguments, and the hardware that it is given.
#
# Commands, container manifests, charts and recipes all come down to these; the engine's own table reads the arguments.

VLLM, SGLANG, TENSORRT_LLM, ATOM, LLAMA_CPP = "vllm", "sglang", "tensorrt-llm", "atom", "llama.cpp"
TEI, INFINITY = "text-embeddings-inference", "infinity-emb"
PREFILL, DECODE = "prefill", "decode"
MODELS = (
    "model", "model_path", "model_tag", "hf_repo", "hf", "hfr", "m", "model_id", "env.MODEL_ID",
    "env.INFINITY_MODEL_ID",
)  # fmt: skip
"""Arguments that name the model, the last seven of llama.cpp and of servers of embeddings."""


class Service(Immutable):
    """One model server, or one of the two roles of a disaggregated one.

    engine : of the constants above
    keys : its arguments, by name with underscores; those that depend on variables which nobody sets are `Unread`
    name : what the file calls it
    replicas : how many are started alike
    gpus : GPUs that one replica is given; `gpu` is their product
    image : container image
    role : empty where it does both
    """

    engine: str
    keys: Keys
    where: Location
    name: str = ""
    replicas: Written | None = None
    gpus: Written | None = None
    gpu: Written | None = None
    image: Written | None = None
    role: str = ""

    def with_keys(self, keys: Mapping[str, Written]) -> Service:
        """The same service with further arguments; those that it has stay."""
        return replace(self, keys={**keys, **self.keys})

    @property
    def model(self) -> Written | None:
        """The model as the arguments name it."""
        return next((self.keys[name] for name in MODELS if name in self.keys), None)

    @property
    def title(self) -> str:
        """What the file calls it, else its model or its role."""
        model = str(self.model.value) if self.model else ""
        return self.name or model or self.role or "?"

    def is_called(self, name: str) -> bool:
        """Whether a user may mean this one: by what the file calls it, its model, or the last part of that."""
        model = str(self.model.value).lower() if self.model else ""
        served = str(self.keys["served_model_name"].value).lower() if "served_model_name" in self.keys else ""
        wanted = name.lower()
        return wanted in {self.name.lower(), model, model.rpartition("/")[2], served, served.rpartition("/")[2]}


class Chosen(Immutable):
    """The service of a file that is read: the one that decodes, the one that only prefills, and the others."""

    service: Service
    prefill: Service | None
    others: tuple[Service, ...]


def choose(services: Sequence[Service], wanted: str | None) -> Chosen | None:
    """The first service, or the one that is asked for by name; None where the file has none."""
    called = [each for each in services if wanted is not None and each.is_called(wanted)]
    first = next(iter(called or services), None)
    if first is None:
        return None
    other = {PREFILL: DECODE, DECODE: PREFILL}.get(first.role)
    alike = (each for each in services if other and each.role == other and each.engine == first.engine)
    partner = next(alike, None)
    pair = {first.role: first, partner.role: partner} if partner else {}
    main = pair.get(DECODE, first)
    used = {id(first), id(partner)}
    return Chosen(main, pair.get(PREFILL), tuple(each for each in services if id(each) not in used))


def apart(services: Sequence[Service]) -> Iterator[Chosen]:
    """All services in their order, each with the one that only prefills for it."""
    while (chosen := choose(services, None)) is not None:
        yield chosen
        services = chosen.others


# Model servers that commands start: the programs of vLLM, SGLang, TensorRT-LLM, ATOM, llama.cpp, Text Embeddings
# Inference and Infinity, and those of Dynamo.
#
# Programs: vLLM docs, cli/serve; SGLang docs, server_arguments; TensorRT-LLM docs, trtllm-serve; ai-dynamo/dynamo,
# components/backends; llama.cpp, tools/server; text-embeddings-inference, Dockerfile-cuda-all; Infinity docs, cli_v2.

_PROGRAMS: Mapping[str, str] = {
    "vllm": VLLM, "vllm.entrypoints.openai.api_server": VLLM, "vllm.entrypoints.api_server": VLLM,
    "vllm.entrypoints.cli.main": VLLM, "dynamo.vllm": VLLM, "sglang": SGLANG, "sglang.launch_server": SGLANG,
    "dynamo.sglang": SGLANG, "trtllm-serve": TENSORRT_LLM, "dynamo.trtllm": TENSORRT_LLM,
    "tensorrt_llm.commands.serve": TENSORRT_LLM, "atom.entrypoints.openai_server": ATOM,
    "llama-server": LLAMA_CPP, "llama_cpp.server": LLAMA_CPP, "infinity_emb": INFINITY,
    **dict.fromkeys(("text-embeddings-router", *(f"text-embeddings-router-{n}" for n in (75, 80, 86, 89, 90))), TEI),
}  # fmt: skip
_WITH_SUBCOMMAND = (
    "vllm", "sglang", "trtllm-serve", "vllm.entrypoints.cli.main", "tensorrt_llm.commands.serve", "infinity_emb",
)  # fmt: skip
SUBCOMMANDS: Mapping[str, str] = {INFINITY: "v2"}
"""What stands behind the program of an engine, or in front of the arguments of its image, in place of `serve`."""
_MUST_SERVE = ("vllm", "sglang", "vllm.entrypoints.cli.main", "infinity_emb")
_RUNNERS = frozenset({"trtllm-llmapi-launch"})
_IMAGES = (
    ("vllm-openai", VLLM), ("vllm", VLLM), ("sglang", SGLANG), ("tensorrt", TENSORRT_LLM), ("llama.cpp", LLAMA_CPP),
    ("text-embeddings-inference", TEI), ("michaelf34/infinity", INFINITY),
)  # fmt: skip
SERVER_IMAGES = (VLLM, LLAMA_CPP, TEI, INFINITY)
"""Engines whose images start the server, so that a container's words are its arguments."""
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


def find_services(commands: Iterable[Command]) -> Iterator[Service]:
    """The model servers that commands start, in their order."""
    for command in commands:
        found = find_service(unwrapped(command))
        if found is not None:
            yield found


def find_service(launch: Launch) -> Service | None:
    """The model server that a program with its words is; None where it is another program."""
    words = launch.command.words
    while len(words) > 1 and (words[0].text.rpartition("/")[2] in _RUNNERS or _is_module(words)):
        words = words[1:]
    engine, rest = _program(words, launch)
    if engine is None or rest is None:
        return None
    image = _image(launch)
    arguments = parse_flags(rest, SWITCHES)
    keys = _arguments(arguments)
    _positional_model(arguments, keys)
    environment = {f"env.{name}": Written(word.text, word.where) for name, word in launch.command.environment.items()}
    service = Service(engine, {**environment, **keys}, words[0].where, image=image, role=serving_role(keys))
    return service if keys else None


def engine_of_image(image: str) -> str | None:
    """The engine whose image this is, by its name."""
    name = image.lower()
    return next((engine for part, engine in _IMAGES if part in name), None)


def _is_module(words: Sequence[Word]) -> bool:
    """Whether a program of Python's `-m` follows, and not the model that `-m` names to llama.cpp."""
    return words[0].text == "-m" and words[1].text in _PROGRAMS


def _program(words: Sequence[Word], launch: Launch) -> tuple[str | None, Sequence[Word] | None]:
    first = words[0].text
    script = _OF_SCRIPT.fullmatch(first)
    name = script[1].replace("/", ".") if script else first.rpartition("/")[2]
    engine = _PROGRAMS.get(name)
    image = _image(launch) if engine is None else None
    starts = engine_of_image(str(image.value)) if image is not None else None
    if starts is not None and first == SUBCOMMANDS.get(starts):
        return starts, words[1:]
    if image is not None and (first.startswith("-") or _ID.fullmatch(first)):
        return (starts, words) if starts in SERVER_IMAGES else (None, None)
    if name not in _WITH_SUBCOMMAND:
        return engine, words[1:]
    if len(words) > 1 and words[1].text == SUBCOMMANDS.get(str(engine), "serve"):
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
    if first is not None and not any(name in keys for name in MODELS):
        keys["model"] = Written(not_set(first.text, first.unknown) if first.unknown else first.text, first.where)


def serving_role(keys: Mapping[str, Written]) -> str:
    """The role that arguments give to a server of a disaggregated service; empty where they give none."""
    roles = {
        "prefill": PREFILL, "decode": DECODE, "context": PREFILL, "generation": DECODE, "kv_producer": PREFILL,
        "kv_consumer": DECODE, "true": PREFILL,
    }  # fmt: skip
    named = ("disaggregation_mode", "server_role", "kv_transfer_config.kv_role", "is_prefill_worker")
    said = (roles.get(str(keys[name].value).lower()) for name in named if name in keys)
    return next((role for role in said if role), "")


def listed_arguments(words: Iterable[tuple[str, Location]]) -> dict[str, Written]:
    """Arguments as a list has them, each word with its place; a word with blanks is split where it holds a flag."""
    split: list[Word] = []
    for text, where in words:
        parts = text.split() if text.startswith("-") and not text.lstrip("-").startswith("{") else [text]
        in_two = text.split(maxsplit=1) if text.startswith("-") else [text]
        plain = parts if all("{" not in part for part in parts) else in_two
        split += [Word(part, where) for part in plain]
    arguments = parse_flags(split, SWITCHES)
    keys = _arguments(arguments)
    _positional_model(arguments, keys)
    return keys


# What a reader of files finds: model servers, and what stands beside them.


class Services(Immutable):
    """Model servers of a file in their order.

    beside : further keys of the file: the benchmark's (`benchmark.`), and those of what surrounds a server
    """

    services: tuple[Service, ...] = ()
    beside: Keys = field(default_factory=dict)


NO_SERVICES = Services()


# Model servers that Python files start: `vllm.LLM(...)`, `sglang.Engine(...)`, `tensorrt_llm.LLM(...)`.

_CALLED: Mapping[str, str] = {
    **dict.fromkeys(("LLM", "EngineArgs", "AsyncEngineArgs", "AsyncLLMEngine.from_engine_args"), VLLM),
    **dict.fromkeys(("Engine", "ServerArgs", "Runtime"), SGLANG),
}
_PACKAGES: Mapping[str, str] = {"vllm": VLLM, "sglang": SGLANG, "tensorrt_llm": TENSORRT_LLM}
_NOT_SAID = ("_target_", "_args_")


def find_called_services(calls: Iterable[Call]) -> Iterator[Service]:
    """The servers among the calls of a file."""
    for call in calls:
        package, _, rest = call.name.partition(".")
        engine = _PACKAGES.get(package)
        if engine is None or rest.rpartition(".")[2] not in _CALLED:
            continue
        keys: dict[str, Written] = {}
        for name, written in call_keys(Written(call, call.where)).items():
            if not any(part in _NOT_SAID for part in name.split(".")):
                keys |= opened(name, written)
        if call.args and "model" not in keys:
            keys["model"] = call.args[0]
        if keys:
            yield Service(engine, keys, call.where, role=serving_role(keys))


# Files of options that a server's command names: here-documents of the same script, else files that lie near it.

_NAMES = ("config", "extra_llm_api_options", "extra_engine_args")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def with_options(service: Service, source: Source) -> Service:
    """A server with the options of the file that it names; TensorRT-LLM's file wins over flags, others' do not."""
    named = next((service.keys[name] for name in _NAMES if name in service.keys), None)
    if named is None:
        return service
    target = str(named.value)
    last = target.rpartition("/")[2]
    files = source.script.heredocs if source.script is not None else tuple(_of_config_maps(source))
    written = [each for each in files if each.target and each.target.rpartition("/")[2] == last]
    keys = _of_heredocs(written, source) if written else _of_companion(source, target)
    wins = service.engine == TENSORRT_LLM
    found = {**service.keys, **_in_place_of(keys)} if wins else {**keys, **service.keys}
    return replace(service, keys=found, role=service.role or serving_role(found))


def _of_config_maps(source: Source) -> Iterator[Heredoc]:
    """Files that the ConfigMaps of a manifest hold, which pods mount."""
    for document in source.documents:
        data = Node(document, document.value).get("data")
        for each in data.each() if data is not None else ():
            yield Heredoc(str(each.path[-1]), str(each.value), each.where)


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
