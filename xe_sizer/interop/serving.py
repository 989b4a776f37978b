"""Services of other tools as scenarios: what files hold them, number formats, and the load of a benchmark."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location
from xe_sizer.immutable import Immutable
from xe_sizer.interop import containers, recipes
from xe_sizer.interop.containers import DOCKERFILE, services_of_dockerfile
from xe_sizer.interop.draft import ASSUMED, READ, Draft, Ignored
from xe_sizer.interop.launch import Node, gpus_in, state_gpu
from xe_sizer.interop.readers.shell_script import parse_flags, read_script, unwrapped
from xe_sizer.interop.recipes import named_by
from xe_sizer.interop.services import (
    MODELS,
    NO_SERVICES,
    Services,
    apart,
    choose,
    find_called_services,
    find_services,
    not_set,
    with_options,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import (
    ImpossibleError,
    Unread,
    UnreadableError,
    Written,
    above_zero,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
)
from xe_sizer.profiles.catalogue import model_file
from xe_sizer.profiles.convert import show
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.number_formats import TORCH_TYPES, quantised_in
from xe_sizer.software.speculation import (
    DFLASH,
    DRAFT_MODEL,
    EAGLE,
    EAGLE3,
    MEDUSA,
    METHODS,
    MTP,
    NGRAM,
    SUFFIX,
    named_drafting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from xe_sizer.interop.draft import Table
    from xe_sizer.interop.readers.shell_script import Command, Script, Word
    from xe_sizer.interop.services import Chosen, Service
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys

# Values of the arguments of inference engines as scenarios have them.

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_UNITS = {"k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2, "g": 1e9, "G": 1024**3}


def human_count(value: object) -> int | None:
    """A number of tokens or requests: `8192`, `4k` (4,000) and `4K` (4,096); `auto` and below 1 say nothing.

    Raises ImpossibleError: it is none.
    """
    word = str(value).strip()
    found = _HUMAN.fullmatch(word)
    if found:
        return int(float(found[1]) * _UNITS[found[2]])
    return None if word.lower() in ("auto", "none", "null") else positive_or_open(value)


_WRITES = ("generate", "auto", "none", "draft", "transcription")


def no_answer(value: object) -> int | None:
    """No output tokens, of servers that embed, classify or score (`pooling`, `embed`); others say nothing of them."""
    return None if value is False or str(value).lower() in _WRITES else 0


def place_of_tables(value: object) -> str:
    """Where tables of n-grams are, of a switch that takes them off the GPU."""
    return "host" if is_on(value) else "gpu"


def share(value: object) -> float | int | None:
    """A share of the memory of a GPU, above 0 and up to 1. Raises ImpossibleError: it is none."""
    found = number(value)
    if found is not None and not 0 < found <= 1:
        raise ImpossibleError(f"{show(value)} is no share of 1")
    return found


# How tokens get to their experts, by the names that engines give to it; what is empty is their default.

_DISPATCHERS: Mapping[str, str] = {
    **dict.fromkeys(("none", "auto", "naive", "allgather_reducescatter"), ""),
    **dict.fromkeys(("deepep", "mooncake"), "deepep"),
    "deepep_high_throughput": "deepep-normal",
    **dict.fromkeys(("deepep_low_latency", "nixl_ep", "nixl"), "deepep-low-latency"),
    "pplx": "pplx",
    **dict.fromkeys(
        ("flashinfer", "flashinfer_all2allv", "flashinfer_nvlink_one_sided", "flashinfer_nvlink_two_sided"), "nvlink"
    ),
    **dict.fromkeys(("mori", "mori_high_throughput", "mori_low_latency"), "mori"),
}
_OF_DECODES = {"deepep-low-latency": "deepep"}
"""Dispatchers of replicas that only decode, and what has them with kernels for the prompts of others."""
_READ_DISPATCHERS = {plain(name): ours for name, ours in _DISPATCHERS.items()}


def dispatcher(value: object) -> str | None:
    """The dispatcher that an engine's word stands for; None for its default.

    Raises UnreadableError: it is not known here.
    """
    return _format(value, _READ_DISPATCHERS, "a way to send tokens to experts")


# Number formats of weights and caches by the names that inference engines give to them.

AUTO = ("auto", "none", "null", "")
_WEIGHTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("fp8", "w8a8_fp8", "modelopt", "modelopt_fp8", "fbgemm_fp8", "ptpc_fp8", "fp8_per_tensor", "fp8_per_channel",
         "fp8_rowwise", "fp8_per_channel_per_token"),
        "fp8",
    ),
    **dict.fromkeys(("fp8_per_block", "fp8_block_scales", "deepseek_v4_fp8", "blockwise_fp8"), "fp8-block"),
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq", "w4a16_awq"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin", "gptq_marlin_24", "auto_gptq", "w4a16", "w4a16_gptq", "int4"), "int4"),
    **dict.fromkeys(("modelopt_fp4", "nvfp4", "nvfp4_per_token", "fp4", "petit_nvfp4", "modelopt_nvfp4"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4", "w4a8_mxfp4_fp8", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"), "mxfp4"),
    **dict.fromkeys(("mxfp8", "modelopt_mxfp8"), "mxfp8"),
    **dict.fromkeys(
        ("w8a8_int8", "int8_per_channel_weight_only", "experts_int8", "int8", "w8a16", "tpu_int8", "blockwise_int8"),
        "int8",
    ),
    **dict.fromkeys(("bitsandbytes", "bnb"), "nf4"),
    **dict.fromkeys(
        ("compressed-tensors", "quark", "torchao", "inc", "moe_wna16", "humming", "modelopt_mixed", "online", "gguf",
         "hqq", "aqlm", "marlin", "unquant", "quark_int4fp8_moe", "qoq", "auto-round", "w4afp8"),
        "",
    ),
}  # fmt: skip
"""Methods of quantisation by the names of engines; an empty format is one that only the checkpoint says."""
_PLAIN_WIDTHS: Mapping[str, str] = {
    "bf16": "bf16", "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "fp16": "fp16", "float": "fp32",
    "float32": "fp32", "fp32": "fp32",
}  # fmt: skip
_CACHES: Mapping[str, str] = {
    **_PLAIN_WIDTHS,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head"), "fp8"),
    **dict.fromkeys(("int8", "int8_per_token_head"), "int8"),
    **dict.fromkeys(("int4_per_token_head", "int4"), "int4-plain"),
}  # fmt: skip
_READ_WEIGHTS = {plain(name): ours for name, ours in {**_WEIGHTS, **_PLAIN_WIDTHS}.items()}
_READ_CACHES = {plain(name): ours for name, ours in _CACHES.items()}


def weights_format(value: object) -> str | None:
    """The format of weights that a method of quantisation or a type stands for; None where the checkpoint decides.

    Raises UnreadableError: the method says no format, or is not known here.
    """
    return _format(value, _READ_WEIGHTS, "a format of weights")


def cache_format(value: object) -> str | None:
    """The format of the KV cache; None where it is that of the model.

    Raises UnreadableError: it is not known here.
    """
    return _format(value, _READ_CACHES, "a format of the KV cache")


def state_type(value: object) -> str | None:
    """The type of recurrent states; None where it is left to the engine. Raises UnreadableError: it is not known."""
    found = _format(value, _PLAIN_WIDTHS, "a type of recurrent states")
    return TORCH_TYPES[found] if found else None


def _format(value: object, names: Mapping[str, str], what: str) -> str | None:
    word = str(value).strip().lower()
    if value is None or word in AUTO:
        return None
    if plain(word) in names:
        return names[plain(word)] or None
    raise UnreadableError(f"{show(value)} is not known here as {what}")


# The load of a service, where a file holds a benchmark of it: lengths, concurrency or rate, number of requests.
#
# Flags: vLLM `vllm bench serve` and benchmark_serving.py, SGLang `bench_serving`, genai-perf and aiperf, and the
# functions of InferenceX's benchmark_lib.sh.

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "serve.input_tokens": (
        "random_input_len", "input_len", "random_input", "isl", "synthetic_input_tokens_mean", "input_tokens",
    ),
    "serve.output_tokens": (
        "random_output_len", "output_len", "random_output", "osl", "output_tokens_mean", "synthetic_output_tokens_mean",
        "output_tokens",
    ),
    "serve.concurrency": ("max_concurrency", "concurrency", "conc"),
    "serve.request_rate": ("request_rate", "req_rate"),
    "serve.requests": ("num_prompts", "num_prompt", "request_count", "num_requests"),
}  # fmt: skip
_BENCHMARKS = re.compile(
    r"run_benchmark_serving|(?:.*/)?benchmark_serving(?:_multi_turn)?\.py|sglang\.bench_serving|(?:.*/)?bench_serving\.py"
    r"|genai-perf|aiperf|vllm\.entrypoints\.cli\.benchmark.*|(?:.*/)?benchmark_throughput\.py|guidellm"
)
_OF_LENGTHS = ("random_range_ratio", "range_ratio")
_DATASETS = ("dataset_name", "dataset_path", "dataset")
_MADE_UP = ("random", "random-ids", "synthetic", "")


def benchmark_keys(commands: Iterable[Command]) -> dict[str, Written]:
    """Arguments of the first benchmark of a service that commands run, each with `benchmark.` in front."""
    for words in _benchmarks(commands):
        found: dict[str, Written] = {}
        for name, flag in parse_flags(words).flags.items():
            text = " ".join(value.text for value in flag.values)
            unknown = [each for value in flag.values for each in value.unknown]
            where = flag.values[0].where if flag.values else flag.where
            value: object = not_set(text, unknown) if unknown else text if flag.values else True
            found[f"benchmark.{name}"] = Written(value, where)
        return found
    return {}


def _benchmarks(commands: Iterable[Command]) -> Iterator[Sequence[Word]]:
    for command in commands:
        words = unwrapped(command).command.words
        first = words[0].text
        if _BENCHMARKS.fullmatch(first):
            yield words[1:]
        elif first.rpartition("/")[2] == "vllm" and [word.text for word in words[1:3]] == ["bench", "serve"]:
            yield words[3:]


def state_load(draft: Draft, given: Mapping[str, str]) -> None:
    """State the load that the keys below `benchmark.` say.

    Of a rate and a concurrency the rate is taken where both are given; a list of concurrencies is a sweep, of which
    the first is read, or the one that is passed as `--set concurrency=N`.
    """
    for key, names in _FLAGS.items():
        if key == "serve.concurrency":
            continue
        written = draft.take(*(f"benchmark.{name}" for name in names))
        if written is not None and str(written.value).strip().lower() not in ("inf", "infinity", ""):
            read = above_zero if key == "serve.request_rate" else positive_or_open
            draft.state(key, draft.value(written, read), written)
    _concurrency(draft, given)
    _requests(draft)
    lengths = draft.peek(*(f"benchmark.{name}" for name in _OF_LENGTHS))
    if lengths is not None and str(lengths.value) not in ("0", "0.0", "1", "1.0"):
        name = next(name for name in (f"benchmark.{each}" for each in _OF_LENGTHS) if name in draft.keys)
        draft.lose(name, "draws every length from a range below or around the given one")
    data = next((f"benchmark.{name}" for name in _DATASETS if f"benchmark.{name}" in draft.keys), None)
    if (
        data is not None
        and str(draft.keys[data].value).lower() not in _MADE_UP
        and "serve.input_tokens" not in draft.facts
    ):
        draft.lose(data, "has lengths of its own; pass --input-tokens and --output-tokens")
    draft.count("benchmark.*")


def _requests(draft: Draft) -> None:
    """The number of requests as a multiple of those in flight."""
    times, flight = draft.take("benchmark.num_prompts_mult"), draft.facts.get("serve.concurrency")
    factor = draft.value(times, positive) if times is not None else None
    if times is not None and isinstance(factor, int) and flight is not None and isinstance(flight.value, int):
        draft.state("serve.requests", factor * flight.value, times, f"{factor} for each that is in flight")


def _concurrency(draft: Draft, given: Mapping[str, str]) -> None:
    name = next(
        (each for each in ("benchmark.max_concurrency", "benchmark.concurrency", "benchmark.conc",
                           "benchmark.concurrencies") if each in draft.keys),
        None,
    )  # fmt: skip
    written = draft.take(name) if name else None
    if written is None or name is None:
        return
    if "serve.request_rate" in draft.facts:
        draft.lose(name, "bounds the requests in flight beside the rate")
        return
    sweep = draft.value(written, _numbers)
    if not isinstance(sweep, list) or not sweep:
        draft.lose(name, "not read: no number of requests in flight")
        return
    asked = given.get("concurrency", "")
    value = int(asked) if asked.isdigit() and int(asked) in sweep else sweep[0]
    others = ", ".join(str(each) for each in sweep if each != value)
    note = f"of a sweep; --set concurrency=N takes another of {others}" if others else ""
    draft.state("serve.concurrency", value, written, note)


def _numbers(value: object) -> list[int]:
    """Concurrencies as lists, `4x8x16` and `4 8 16` have them."""
    parts = value if isinstance(value, list | tuple) else re.split(r"[x,\s]+", str(value).strip(" []"))
    return [found for part in parts if (found := positive(part)) is not None]


# All model servers of a file, whatever its kind: scripts, containers, charts, recipes, settings of an engine.

_EXIT = re.compile(r"\bexit(?:[ \t]+\d+)?\b")
_STARTS = re.compile(r"vllm|sglang|trtllm|tensorrt_llm|atom|llama.server|llama_cpp|text-embeddings|infinity")
_READERS: tuple[Callable[[Node, Mapping[str, str]], Services], ...] = (
    recipes.read_srt_slurm, recipes.read_production_stack, recipes.read_vllm_recipes, recipes.read_sgl_cookbook,
    containers.read,
    recipes.read,
)  # fmt: skip
"""Readers of documents; the first that finds a server reads the document."""


@lru_cache(maxsize=8)
def services_in(source: Source) -> Services:
    """The model servers of a file, or the one of them that is asked for, and what it says beside them."""
    if source.service is None:
        return _all_services(source)
    found = services_in(replace(source, service=None))
    one = list(apart(found.services))[source.service]
    return replace(found, services=tuple(filter(None, (one.prefill, one.service))))


def names_of_services(source: Source) -> tuple[str, ...]:
    """What the model servers of a file are called, each otherwise."""
    titles = [each.service.title for each in apart(services_in(source).services)]
    earlier = [titles[:place].count(title) for place, title in enumerate(titles)]
    return tuple(f"{title} ({n + 1})" if n else title for title, n in zip(titles, earlier, strict=True))


def _all_services(source: Source) -> Services:
    if DOCKERFILE.fullmatch(source.path.name):
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
        tuple(with_options(service, source) for each in read for service in each.services),
        {name: written for each in read for name, written in each.beside.items()},
    )


def _of_module(source: Source) -> Services:
    """The servers that a Python file starts; files that name no engine are not looked through."""
    try:
        module = source.module if _STARTS.search(source.text) else None
    except InputError:
        return NO_SERVICES
    return Services(tuple(find_called_services(module.calls))) if module is not None else NO_SERVICES


def _of_script(source: Source, script: Script) -> Services:
    """The servers that a script starts; one that ends in a branch that cannot be told is read beyond it."""
    found = tuple(with_options(each, source) for each in find_services(script.commands))
    if found:
        return Services(found, benchmark_keys(script.commands))
    submitted = recipes.submitted(source)
    if submitted.services or not _EXIT.search(source.text) or not _STARTS.search(source.text):
        return submitted
    text = _EXIT.sub(lambda word: ":".ljust(len(word[0])), source.text)
    commands = read_script(text, source.name, source.given, source.text_beside).commands
    found = tuple(with_options(each, source) for each in find_services(commands))
    return Services(found, benchmark_keys(commands)) if found else NO_SERVICES


def _read(node: Node, given: Mapping[str, str]) -> Services:
    if not isinstance(node.value, dict):
        return NO_SERVICES
    found = (reader(node, given) for reader in _READERS)
    return next((each for each in found if each.services), NO_SERVICES)


# What is the same for all engines: the model and its formats, the release, GPUs, roles and further services.

_PLACEMENT = ("tp", "pp", "ep", "dp")
_RANKS = ("layout.tp", "layout.pp", "layout.dp")
_RELEASE = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_OWN_IMAGES = ("vllm/vllm-openai", "lmsysorg/sglang", "tensorrt-llm/release")
_FOLDER = re.compile(r"(?:/|\.{0,2}/|~|\$).*|[^/]*")
_ACCEPTED = 0.7
_SURE = 95
_CALLED = 30  # a Python file that calls an engine may train with it
_BESIDE = 20  # where a server of another engine stands in front
_USUAL = 1280  # tokens of a prompt and its answer that `serve` assumes
_TOLD = 6  # further services that are told one by one
_STEP = "serve.max_step_tokens"
_OF_ROLES = ("serve.max_sequences", "serve.gpu_memory_utilization", "serve.kv_cache", "serve.max_model_len")


def serving_tool(
    name: str,
    title: str,
    reads: str,
    engines: tuple[str, ...],
    read: Callable[[Draft, Source, Chosen], None],
    table: Table,
    aliases: tuple[str, ...] = (),
) -> Tool:
    """The tool of an engine, whose servers are looked for in files of all kinds.

    engines : what services call it, and those that stand for it; aliases : further names of the tool
    read : states what a service says, in a draft that has its arguments
    """

    def own(source: Source) -> list[Service]:
        return [each for each in services_in(source).services if each.engine in engines]

    def recognises(source: Source) -> Certainty:
        found = services_in(source).services
        if not own(source):
            return 0
        return _BESIDE if found[0].engine not in engines else _SURE if source.kind != "python" else _CALLED

    def chosen(source: Source) -> Chosen | None:
        return choose(own(source), source.given.get("model"))

    def keys(source: Source) -> Keys:
        found = chosen(source)
        return {**services_in(source).beside, **found.service.keys} if found is not None else {}

    def read_chosen(draft: Draft, source: Source) -> None:
        found = chosen(source)
        if found is None:
            draft.miss("model", f"the file starts no server of {title}", "--from TOOL, or another file")
        else:
            read(draft, source, found)

    return Tool(name, title, reads, recognises, read_chosen, table, keys, aliases=aliases, serving=True)


def state_service(
    draft: Draft, chosen: Chosen, source: Source, table: Table, place: Callable[[Draft], None], engine: str
) -> None:
    """State what a service says, whatever its engine.

    place : states the placement of a replica by the engine's own arguments
    engine : the name of the engine's profile
    """
    service = chosen.service
    draft.version = draft.version or _release(service)
    draft.state("job", "inference", Written("", service.where))
    draft.state("serve.engine", engine, Written("", service.where))
    _model(draft, source)
    state_formats(draft, source.path.name)
    place(draft)
    draft.apply(table)
    state_load(draft, source.given)
    prefill = _prefill(draft, chosen, table, place)
    _gpus(draft, chosen, prefill)
    state_gpu(draft, service.gpu)
    _of_file_name(draft, source)
    _lengths(draft)
    draft.following.append(_runs)
    _others(draft, chosen.others)


def _runs(draft: Draft) -> None:
    """Set aside what goes with nothing else that the file says, so that the scenario runs."""
    if "serve.prefill_replicas" in draft.facts:
        draft.set_aside("serve.requests", "no test is simulated on prefill and decode replicas")
        sent = draft.facts.get("serve.dispatcher")
        if sent is not None and sent.value in _OF_DECODES:
            draft.facts["serve.dispatcher"] = replace(sent, value=_OF_DECODES[sent.value], note="prompts by its others")
    if "serve.users" not in draft.facts or not draft.fact("serve.prefix_hit_share"):
        draft.set_aside("serve.kv_host_gib", "counts for users who come back; pass it with --users, --prefix-hit-share")


def _lengths(draft: Draft) -> None:
    """Requests that are no longer than the engine accepts, where nothing says how long they are."""
    longest = draft.fact("serve.max_model_len")
    if isinstance(longest, int) and longest < _USUAL and "serve.input_tokens" not in draft.facts:
        draft.assume("serve.input_tokens", longest // 2, "half of the longest request")
        draft.assume("serve.output_tokens", longest // 8, "an eighth of the longest request")


def _others(draft: Draft, others: Sequence[Service]) -> None:
    """Tell of the services that are not read."""
    for other in others[:_TOLD]:
        told = f"a further service of the file; --set model={other.title} reads it instead"
        draft.ignored.append(Ignored(f"service {other.title}", other.where, told))
    if len(others) > _TOLD:
        more = f"{len(others) - _TOLD} further services of the file"
        draft.ignored.append(Ignored("services", others[_TOLD].where, more))


def _release(service: Service) -> str | None:
    """The release of the engine that the tag of its own image names."""
    image = str(service.image.value) if service.image else ""
    name, _, tag = image.rpartition(":")
    found = _RELEASE.match(tag) if any(own in name for own in _OWN_IMAGES) else None
    return found[1] if found else None


def _model(draft: Draft, source: Source) -> None:
    """The model by its id; where the argument is a folder or not set, by the name under which it is served."""
    written, served = draft.take(*MODELS), draft.take("served_model_name")
    name = next(iter(listed(served.value) or ()), None) if served else None
    is_id = written is not None and not _FOLDER.fullmatch(str(written.value))
    if written is not None and (is_id or name is None):
        draft.state("model", str(written.value).removeprefix("hf://"), written)
    elif served is not None and name is not None:
        draft.state("model", name, served, "the name under which it is served")
    elif (named := named_by(source.path.name)) is not None:
        draft.assume("model", named[0], "by the name of the file; pass --set MODEL=ID")
    else:
        unread = next((draft.unread[each] for each in MODELS if each in draft.unread), None)
        why = unread.value.why if unread and isinstance(unread.value, Unread) else "no argument names it"
        draft.miss("model", f"the file does not say it: {why}", "--set MODEL=ID, or --model in what reads the scenario")


def state_formats(draft: Draft, file: str | None = None) -> None:
    """The formats of weights and KV cache: by their arguments, else by what the name of the checkpoint says.

    file : the name of the script, which says the format where it says the model too
    """
    method, width, cache = draft.take("quantization", "q"), draft.take("dtype"), draft.take("kv_cache_dtype")
    precision = draft.take("precision")
    named = quantised_in(str(draft.fact("model") or ""))
    plain = _PLAIN_WIDTHS.get(str(width.value).lower()) if width is not None else None
    if method is not None:
        draft.state("serve.weights", draft.value(method, weights_format), method)
    if named is not None:
        draft.state("serve.weights", named, _where(draft, "model"), "by the name of the checkpoint")
    if precision is not None:
        draft.state("serve.weights", _precision(draft, precision), precision)
    elif plain is not None and method is None:
        draft.state("serve.weights", plain, width)
    assumed = "model" in draft.facts and draft.facts["model"].origin == ASSUMED
    if file is not None and assumed and (said := named_by(file)) is not None:
        draft.assume("serve.weights", _precision(draft, Written(said[1], Location(file))), "by the name of the file")
    if cache is not None:
        draft.state("serve.kv_cache", draft.value(cache, cache_format), cache)


def _precision(draft: Draft, written: Written) -> object:
    """The format that a recipe gives in a word; 4-bit floats of OpenAI and AMD have the blocks of OCP's."""
    model = str(draft.fact("model") or "").lower()
    if str(written.value).lower() == "fp4" and ("gpt-oss" in model or model.startswith("amd/")):
        return "mxfp4"
    return draft.value(written, weights_format)


def _where(draft: Draft, key: str) -> Written | None:
    where = draft.facts[key].where
    return Written("", where) if where is not None else None


class Drafting(Immutable):
    """Speculative decoding as a file has it.

    tokens : proposals per step; method : of scenarios, None: one that they do not have, or that is not said
    drafters : names of the keys that name what drafts; accepted : proposals that are kept in the mean, where it is set
    width, depth : of a tree of proposals
    """

    tokens: Written
    method: str | None
    drafters: Sequence[str]
    accepted: float | None = None
    width: Written | None = None
    depth: Written | None = None
    ranks: Written | None = None


_TAKEN = {
    EAGLE: "a head of its own: taken to be one layer as wide as the model",
    MEDUSA: "heads of their own: taken to have a vocabulary each",
    DFLASH: "layers of its own: taken to be five as wide as those of the model",
}


def heads_taken(method: str) -> str:
    """What is supposed of a checkpoint that drafts, whose shape is not read."""
    return _TAKEN.get(method, _TAKEN[EAGLE])


def state_suffixes(draft: Draft, most: Written | None, word: Written) -> None:
    """State drafts of suffixes, which are as long as what was seen before lets them be."""
    usual = METHODS[SUFFIX].tokens
    draft.state("serve.speculative", SUFFIX, word)
    tokens = draft.value(most, positive) if most is not None else usual
    if isinstance(tokens, int):
        at_most = f"{tokens} at most, and no longer than what matches" if most is not None else ""
        draft.state("serve.draft_tokens", min(tokens, usual), most or word, at_most)


def state_drafts(draft: Draft, drafting: Drafting) -> None:
    """State speculative decoding. How often drafts are kept is known of a method that scenarios have, else assumed."""
    written, method, accepted = drafting.tokens, drafting.method, drafting.accepted
    proposed = draft.value(written, positive)
    if not isinstance(proposed, int):
        return
    draft.state("serve.draft_tokens", proposed, written)
    method = _drafter(draft, method, drafting.drafters)
    if method is not None:
        draft.state("serve.speculative", method, written)
    if drafting.ranks is not None and method is not None and METHODS[method].own_weights:
        draft.state("serve.draft_tp", draft.value(drafting.ranks, positive), drafting.ranks)
    positions = proposed
    if drafting.depth is not None and drafting.width is not None:
        found = draft.value(drafting.depth, positive), draft.value(drafting.width, positive)
        depth, width = (each if isinstance(each, int) else 1 for each in found)
        positions = min(depth, proposed)
        draft.state("serve.draft_depth", positions, drafting.depth)
        draft.state("serve.draft_width", width, drafting.width)
    if accepted is not None:
        rate = round(acceptance(positions, accepted), 4)
        draft.state("serve.acceptance_rate", rate, written, f"{accepted:g} of {positions} are kept on average")
    elif method is None:
        draft.assume("serve.acceptance_rate", _ACCEPTED, "depends on the drafter and the text; pass --acceptance-rate")


def _drafter(draft: Draft, method: str | None, names: Sequence[str]) -> str | None:
    """State what drafts, or what is supposed of it; the method, None for a model that is not known."""
    name = next((name for name in names if draft.peek(name) is not None), "")
    drafter = draft.take(*names)
    known = _known(str(drafter.value)) if drafter is not None and method == DRAFT_MODEL else None
    if method == DRAFT_MODEL and known is None:
        method = None
    if drafter is not None and known is not None:
        draft.state("serve.draft_model", known, drafter)
    elif drafter is not None and (method is None or METHODS[method].own_weights):
        unknown = "a drafter whose shape is not known: its memory is not counted"
        draft.lose(name, heads_taken(method) if method else unknown)
    return method


def _known(name: str) -> str | None:
    """The name of a model that has a profile, or the end of its path; None where none has."""
    for one in dict.fromkeys((name, name.replace("\\", "/").rpartition("/")[2])):
        with suppress(InputError):
            if model_file(one, BUILT_IN) is not None:
                return one
    return None


_METHODS = {
    **dict.fromkeys(("mtp", "nextn", "frozenkvmtp"), MTP), "eagle": EAGLE, "eagle3": EAGLE3,
    **dict.fromkeys(("draftmodel", "standalone", "drafttarget"), DRAFT_MODEL), "ngram": NGRAM,
    "medusa": MEDUSA, "dflash": DFLASH, "suffix": SUFFIX,
}  # fmt: skip


def method_of(word: object, drafter: object = None) -> str | None:
    """The scenario's method by an engine's word for it, or by what drafts; None where scenarios have none for it."""
    said, model = plain(word or "").strip("[]"), plain(drafter or "").strip("[]")
    if said.endswith(MTP):  # deepseek_mtp, qwen3_next_mtp
        return MTP
    if said or not model:
        return _METHODS.get(said)
    return _METHODS.get(model, MTP if model.endswith(("mtp", "nextn")) else named_drafting(model))


def acceptance(proposed: int, accepted: float) -> float:
    """The probability p that a token is kept of which sum(p^i, i = 1..proposed) are on average `accepted`."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        kept = sum(middle**place for place in range(1, proposed + 1))
        low, high = (middle, high) if kept < accepted else (low, middle)
    return low


def _prefill(draft: Draft, chosen: Chosen, table: Table, place: Callable[[Draft], None]) -> Draft | None:
    """The replicas that only prefill, in a draft of their own; what they say apart from the others is told."""
    service = chosen.prefill
    if service is None:
        if chosen.service.role:
            role = chosen.service.role
            why = f"only the servers of the role {role} are in the file; they are sized as a whole service"
            draft.ignored.append(Ignored("disaggregation", chosen.service.where, why))
        return None
    part = Draft(draft.tool, service.keys, draft.version)
    state_formats(part)
    place(part)
    part.apply(table)
    count = service.replicas or Written(1, service.where)
    known = not isinstance(count.value, Unread)
    if known:
        draft.state("serve.prefill_replicas", draft.value(count, positive_or_open), count)
    draft.assume("serve.prefill_replicas", 1, str(getattr(count.value, "why", "the file does not say how many")))
    for name in _PLACEMENT:
        fact = part.facts.get(f"layout.{name}")
        if fact is not None:
            draft.replace(f"serve.prefill_{name}", fact)
    _apart(draft, part, table)
    part.finish(table)
    draft.impossible += part.impossible
    draft.ignored += [
        Ignored(f"prefill.{each.key}", each.where, each.why, each.effect)
        for each in part.ignored
        if each.effect == "memory or time" and each.key not in draft.keys
    ]
    return part


def _apart(draft: Draft, part: Draft, table: Table) -> None:
    """Values of the two roles that differ, of which a scenario has one: prompts run where they are only prefilled."""
    steps = part.facts.get(_STEP)
    if steps is not None and steps.origin == READ:
        own = draft.facts.get(_STEP)
        if own is not None and own.origin == READ and own.value != steps.value:
            told = f"{own.value} on the replicas that decode; one value holds for all"
            draft.ignored.append(Ignored(_foreign(_STEP, draft, table), own.where, told))
        draft.replace(_STEP, steps)
    for key in _OF_ROLES:
        fact = part.facts.get(key)
        if fact is not None and fact.origin == READ and fact.value != draft.fact(key):
            told = f"{fact.value} on the replicas that prefill; one value holds for all"
            draft.ignored.append(Ignored(f"prefill.{_foreign(key, part, table)}", fact.where, told))


def _foreign(key: str, draft: Draft, table: Table) -> str:
    """The argument that sets a scenario key."""
    return next((name for row in table.whole.keys if row.to == key for name in row.names if name in draft.keys), key)


def _gpus(draft: Draft, chosen: Chosen, prefill: Draft | None) -> None:
    """GPUs of the whole service: replicas x ranks of each role, or what containers are given."""
    service = chosen.service
    counted = [each.replicas for each in (service, chosen.prefill) if each is not None and each.replicas is not None]
    if any(isinstance(each.value, Unread) for each in counted):
        return
    replicas = draft.value(service.replicas, positive_or_open) if service.replicas is not None else 1
    own = _of_replica(draft, service)
    if "slice" in draft.facts:  # how many of them a GPU has is not here
        return
    if own is None or not isinstance(replicas, int):
        return
    used = [key for key in _RANKS if draft.fact(key) not in (None, 1)] or [key for key in _RANKS if key in draft.facts]
    parts = [f"{replicas} x {own}"] if replicas > 1 else []
    total = replicas * own
    if chosen.prefill is not None and prefill is not None:
        other, count = _of_replica(prefill, chosen.prefill), int(str(draft.fact("serve.prefill_replicas") or 1))
        if other is None:
            return
        total += other * count
        parts = [f"{count} x {other} that prefill", f"{replicas} x {own} that decode"]
    if service.gpus is not None:
        draft.state("gpus", total, service.gpus, ", ".join(parts))
    elif service.replicas is not None and replicas > 1:
        draft.state("gpus", total, service.replicas, ", ".join(parts))
    elif used:
        apart = ["serve.expert_gpus"] if "serve.expert_gpus" in draft.facts else []
        draft.derive("gpus", total, [*used, *apart], "tp x pp x dp" + (" + expert_gpus" if apart else ""))


def _of_replica(draft: Draft, service: Service) -> int | None:
    """GPUs of one replica: its ranks, where they are known, else what its container is given."""
    stated = int(str(service.gpus.value)) if service.gpus is not None and str(service.gpus.value).isdigit() else None
    ranks = 1
    for key in _RANKS:
        value = draft.fact(key)
        ranks *= value if isinstance(value, int) else 1
    known, apart = "layout.tp" in draft.facts, draft.fact("serve.expert_gpus")
    return ranks + (apart if isinstance(apart, int) else 0) if known else stated


def _of_file_name(draft: Draft, source: Source) -> None:
    """A GPU that nothing but the name of the file says."""
    if "gpu" in draft.facts or "server" in draft.facts:
        return
    found = next(gpus_in(source.path.name), None)
    if found is not None:
        draft.assume("gpu", found.name, "by the name of the file")
