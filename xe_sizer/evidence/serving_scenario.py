"""Records of services as scenarios: what a record states of engine, traffic and load, in the words of scenarios."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from xe_sizer.evidence.names import Flags, compiled, conditions, plain, release_in
from xe_sizer.evidence.training_scenario import find_hardware, find_model, find_targets
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP4, FP8, FP16, FP32, INT8
from xe_sizer.profiles.catalogue import load_engine
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.serving.job import even_spread
from xe_sizer.software.number_formats import (
    ALIASES,
    AWQ,
    E4M3,
    E4M3_BLOCKS,
    EXL2,
    FORMATS,
    GPTQ,
    GPTQ8,
    MXFP4,
    exl2_near,
    told_by,
)
from xe_sizer.software.release import Number, is_month, split_release, version
from xe_sizer.software.speculation import drafting_of
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.evidence.names import RecordRegistry
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape

# The load: requests, when they come, and how long they are.

CHAT_INPUT_TOKENS, CHAT_OUTPUT_TOKENS = 240.0, 230.0
"""Where a source says nothing of lengths: conversations of ShareGPT, whose prompts and answers have such means."""
CHAT_SPREAD = 0.8
"""Standard deviation over mean of lengths that nobody fixed: 0.7 to 1 in ShareGPT and OpenOrca."""
REQUESTS_OF_A_CLIENT = 10
"""As common scripts around the engines' benchmarks set it: assumed where a source does not say."""
FEW_OF_A_CLIENT = 3
"""As few as tests have; the other end is a load that runs on."""
REQUESTS_AT_A_RATE = 1000
"""Default of the engines' own benchmark commands (vLLM's bench serve and SGLang's bench_serving, num-prompts)."""
REQUESTS_ASSUMED = f"{REQUESTS_AT_A_RATE} requests: not stated"
SCRIPT_MEAN = 0.9
"""Of a length of which a script draws 0.8 to 1, evenly: InferenceX's benchmark_serving.py, random-range-ratio."""
DRAWN_MEANS = (SCRIPT_MEAN, 0.5)
"""Of the longest length; half of it where 0 to 1 are drawn: SGLang's bench_serving, whose random-range-ratio is 0."""
DRAWN_MARGIN = 0.02
"""How far the mean of some hundred drawn lengths may lie from that of all of them, over the longest."""
FIXED_SHARE = 0.97
"""Of the longest length, from which on all are as long: cut from text, or with few that fail, they lose some."""
ROUND_TOKENS, LITTLE_LESS = (128, 500), 0.002
"""Lengths that people ask for are multiples of these; tools divide what they counted, which is a little less."""
LEAST_TOKENS = 1e-3
LOADS = ("sequences", "concurrency", "requests", "request_rate")


class Lengths(Immutable, eq=True):
    """Prompts or answers of a record.

    mean : tokens; spread : standard deviation over mean; longest : of them, infinite where none is known [tokens]
    assumed : in words; None where all is stated
    """

    mean: float
    spread: float = 0.0
    longest: float = math.inf
    assumed: str | None = None


def put_load(record: Record, flags: Flags) -> None:
    """Put the load into the flags: batch, concurrency or rate as stated, with the requests of the test.

    Where none is stated, it is as much as a replica takes. The beams of a request are sequences of their own, each with
    the prompt.
    """
    beams = record.beams or 1
    if beams > 1:
        flags.assumed.append(f"the {beams} beams of a request as {beams} requests, each with the prompt")
        scaled = {key: value * beams for key in LOADS if (value := getattr(record, key)) is not None}
        record = msgspec.structs.replace(record, **scaled)
    flags.put("serve.concurrency", record.concurrency)
    flags.put("serve.request_rate", record.request_rate)
    flags.put("serve.documents", record.documents)
    together = record.phase or load_engine(flags.values["serve.engine"]).batching.batching == "static"
    if record.sequences and together:
        flags.put("serve.batch", record.sequences)
    elif not record.encodes:  # what gets no answer is a load that goes on
        _requests(record, flags)
    flags.put("serve.images", record.images)
    flags.put("serve.image_size", record.image_size if record.images else None)
    for key, lengths in (("input", prompt_lengths(record)), ("output", answer_lengths(record))):
        flags.put(f"serve.{key}_tokens", lengths.mean, lengths.assumed)
        flags.put(f"serve.{key}_spread", lengths.spread or None)
        flags.put(f"serve.longest_{key}_tokens", int(lengths.longest) if math.isfinite(lengths.longest) else None)


def _requests(record: Record, flags: Flags) -> None:
    """Requests of the test; a load that clients measure in a window runs on."""
    stated = record.requests or (None if record.concurrency or record.request_rate else record.sequences)
    if stated or record.window_s:
        flags.put("serve.requests", stated)
    elif record.concurrency:
        requests = REQUESTS_OF_A_CLIENT * record.concurrency
        flags.put("serve.requests", requests, f"{requests} requests, {REQUESTS_OF_A_CLIENT} of each client: not stated")
    elif record.request_rate:
        flags.put("serve.requests", REQUESTS_AT_A_RATE, REQUESTS_ASSUMED)


def other_requests(record: Record) -> tuple[int | None, ...]:
    """How many requests a test with clients may have had too where nobody says it; None: it runs on."""
    if not record.concurrency or record.requests or record.window_s or record.encodes:
        return ()
    return FEW_OF_A_CLIENT * record.concurrency * (record.beams or 1), None


def prompt_lengths(record: Record) -> Lengths:
    """Tokens of the prompts, without those of images."""
    return _lengths("prompts", record.input_len, record.input_spread, record.max_prompt_len, CHAT_INPUT_TOKENS)


def answer_lengths(record: Record) -> Lengths:
    """Tokens of the answers."""
    return _lengths("answers", record.output_len, record.output_spread, record.max_output_len, CHAT_OUTPUT_TOKENS)


def _lengths(words: str, mean: float | None, spread: float | None, most: int | None, chat: float) -> Lengths:
    """What is stated of lengths, and what their mean says of the rest.

    A mean next to the longest length, or a whole or nearly round one, is of lengths that are all alike; one of half or
    0.9 of the longest is of an even draw. Other lengths spread as in chats, up to the longest.
    """
    if mean is None:
        text = f"{words} of {chat:.0f} tokens, as in chats: length not stated"
        return Lengths(chat, CHAT_SPREAD if spread is None else spread, _longest(most, chat), text)
    longest = _longest(most, mean)
    capped = math.isfinite(longest)
    if spread is not None:
        return Lengths(mean, spread, longest)
    if mean >= FIXED_SHARE * longest if capped else _is_round(mean):
        return Lengths(mean)
    for share in DRAWN_MEANS if capped else (SCRIPT_MEAN,):
        end = longest if capped else float(round(mean / share))
        if abs(mean - share * end) < (DRAWN_MARGIN * end if capped else share * LEAST_TOKENS):
            text = f"{words} of {max(2 * mean - end, 1):g} to {end:g} tokens, drawn evenly: the mean is {share:g} of "
            return Lengths(mean, even_spread(mean, end), end, text + ("the longest" if capped else "a whole number"))
    text = f"{words} that spread by {CHAT_SPREAD:g} of their mean, as in chats"
    return Lengths(mean, CHAT_SPREAD, longest, text + ("" if capped else ": the mean is no whole number"))


def _longest(most: int | None, mean: float) -> float:
    """The longest length; infinite where none is stated, or one that the mean is above [tokens]."""
    return float(most) if most and most >= mean else math.inf


def _is_round(mean: float) -> bool:
    """Whether a mean is a whole number, or that of lengths that were asked for and came out a little shorter."""
    return mean == round(mean) or any(-mean % each < max(0.5, LITTLE_LESS * mean) for each in ROUND_TOKENS)


# The scenario. Nothing here looks at what was measured, at the id or at the source.

QUANTISED = re.compile(r"-(gptq|awq)(-\w+)?$")
UNRELEASED = re.compile(r"nightly|latest|\bmain\b|\bdev\b")
DATE = re.compile(r"(?<!\d)(20[12]\d)(?:[-.]?(0[1-9]|1[0-2])(?:(?!\d)|(?=[0-3]\d(?!\d))))?")
# Chosen: three drafts of a model's own heads then give 2.7 tokens a step (arXiv:2211.17192).
USUAL_ACCEPTANCE = 0.75
SPARE_STEP_TOKENS = 782
"""Tokens of a step that launch scripts leave over: 64 in InferenceMAX's, 1,500 in those that NVIDIA's aiconfigurator
writes (generator/rule_plugin/benchmark/trtllm.rule); the mean."""
GPTQ_WORD = "gptq"  # of auto-gptq, gptqmodel and gptq itself
NARROW_PRECISIONS = (FP8, FP4, ALIASES[FP4], INT8)


class EngineRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of `engine_names.yaml`.

    until : the framework names no release, and the one that is assumed is of this month or an older one
    unstated : the framework names no release of this library; word : stands in it; encodes : nothing is written
    """

    stack: str
    engine: str
    because: str
    encodes: bool = False
    library: str | None = None
    before: tuple[int, int] | None = None
    until: Number | None = None
    word: str = ""
    unstated: str | None = None


class Undated(msgspec.Struct, frozen=True, kw_only=True):
    """The release of runs that state none, with its month."""

    month: Number
    because: str
    release: Number | None = None


class StandIn(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    because: str


class Otherwise(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for an engine without a name: one that compiles, one that takes requests as they come, or neither."""

    words: tuple[str, ...]
    compiled: StandIn
    running: StandIn
    batches: StandIn


class EngineNames(msgspec.Struct, frozen=True, kw_only=True):
    """`engine_names.yaml`; see there. first : engine -> generation or format -> month."""

    undated: dict[str, Undated]
    first: dict[str, dict[str, Number]]
    rules: tuple[EngineRule, ...]
    otherwise: Otherwise


class Needs(Immutable, eq=True):
    """What a run needs of its engine: the accelerator's generation, the format of the weights, and the model.

    encodes : whether nothing is written
    """

    generation: str = ""
    weights: str = ""
    model: str = ""
    released: str | None = None
    encodes: bool = False


NO_NEEDS = Needs()


@cache
def _rules() -> EngineNames:
    document = load_yaml(Path(__file__).parent / "engine_names.yaml")
    return convert(document.value, EngineNames, document.locate)


def build_inference(record: Record, registry: RecordRegistry) -> Flags:
    """Build the scenario's keys that say what the record says, with what had to be assumed.

    Raises
    ------
    InputError : what makes the record impossible to size
    """
    flags = Flags()
    named = msgspec.structs.replace(record, model=QUANTISED.sub("", record.model or ""))
    model = find_model(named, registry)
    registry.built_models[model.name] = model.shape
    hardware = find_hardware(record, registry)
    registry.built_servers[hardware.key] = hardware.server
    flags.assumed += [*model.assumed, *hardware.assumed]
    flags.put("model", model.name)
    flags.put("server", hardware.key)
    flags.put("gpus", record.gpus)
    _formats(record, model.shape, flags)
    weights = flags.values.get("serve.weights") or model.shape.checkpoint_format or ""
    gpu = hardware.server.accelerator
    needs = Needs(gpu.generation, weights, model.shape.name, model.shape.released, record.encodes)
    engine, because = find_engine(record, needs)
    flags.put("serve.engine", engine, because and f"engine {engine}: {because}")
    _placement(record, flags)
    put_load(record, flags)
    _launch_options(record, model.shape, flags)
    return flags


def stands_in(record: Record) -> bool:
    """Whether no engine here has the name of the record's, so that another one stands for it."""
    stack = _stack(record)
    return stack not in BUILT_IN.names("engine") and not any(rule.stack == stack for rule in _rules().rules)


def find_engine(record: Record, needs: Needs = NO_NEEDS) -> tuple[str, str | None]:
    """Find the engine that stands for the record's in its release, and why where it is another or assumed.

    Where the framework names no release, it is the one of the run's date, else the usual one; but none that lacks what
    the run needs.
    """
    if stands_in(record):
        other = _rules().otherwise
        chosen = other.running if record.concurrency or record.request_rate else other.batches
        if compiled(record) or any(word in (record.framework or "").lower() for word in other.words):
            chosen = other.compiled
        if chosen.engine != other.batches.engine:
            return chosen.engine, chosen.because
        return find_engine(msgspec.structs.replace(record, stack=chosen.engine), needs)[0], chosen.because
    stack, framework = _stack(record), (record.framework or "").lower()
    month, because = _assumed_month(record, stack, needs)
    for rule in _rules().rules:
        if rule.stack == stack and rule.encodes <= needs.encodes and _matches(rule, framework, month):
            words = (stack,) if rule.unstated else (rule.library or stack, stack)
            told = because if rule.until else rule.because
            return _in_release(rule.engine, words, framework, None if rule.library else month), told
    return _in_release(stack, (stack,), framework, month), because


@cache
def _other_names() -> dict[str, str]:
    """Other names of engines, and the engine that each is one of."""
    return {alias: name for name in BUILT_IN.names("engine") for alias in load_engine(name).aliases}


def _stack(record: Record) -> str:
    name = plain(record.stack or "unstated")
    return _other_names().get(name, name)


def _assumed_month(record: Record, stack: str, needs: Needs) -> tuple[str | None, str | None]:
    """The month of a release that is not stated, and why; or the number of the usual one. None where one is stated."""
    usual, first = _rules().undated.get(stack), _rules().first.get(stack, {})
    words = (stack, *(word for word, name in _other_names().items() if name == stack))
    framework, date = (record.framework or "").lower(), _date(record)
    numbered = any(re.search(rf"(?<![a-z]){re.escape(word)}[ =-]*v?\d", framework) for word in words)
    of_today = UNRELEASED.search(framework) and not DATE.search(framework)
    if numbered or release_in(framework, words) or of_today or not (usual or date):
        return None, None
    wanted = {name: first[name] for name in (needs.generation, needs.weights) if name in first}
    if needs.released:
        wanted[needs.model] = needs.released[2:7].replace("-", ".")
    told = date or (usual.month if usual else "")
    newest = max(wanted, key=lambda name: version(wanted[name]), default="")
    if newest and version(wanted[newest]) > version(told):
        return wanted[newest], f"no release stated: of {_in_words(wanted[newest])}, the first for {newest}"
    if date or usual is None:
        return told, f"no release stated: of {_in_words(told)}, as the run"
    return usual.release or usual.month, f"no release stated: {usual.because}"


def _in_words(month: str) -> str:
    """A month as people write it: 2024-07 for 24.07; a year as it is."""
    return f"20{month.replace('.', '-')}" if "." in month else month


def _date(record: Record) -> str | None:
    """When the run was made, as releases are dated: 24.07; None where neither its date nor its framework says."""
    found = DATE.search(str(record.date or "")) or DATE.search(record.framework or "")
    return None if found is None else f"{found[1][2:]}.{found[2]}" if found[2] else found[1]


def _in_release(name: str, words: tuple[str, ...], framework: str, month: str | None) -> str:
    """The engine in the release behind one of the words or its own names, where it differed in older ones.

    month : of a release that none of the words names, or its number
    """
    bare, stated = split_release(name)
    engine = load_engine(bare)
    if stated or not engine.releases:
        return name
    release = release_in(framework, (*words, bare, *engine.aliases)) or month
    return f"{bare}@{release}" if release else bare


def _matches(rule: EngineRule, framework: str, month: str | None) -> bool:
    """Whether a rule is for a framework, or for the month of the release that it is assumed to have."""
    if rule.word not in framework or (rule.unstated and release_in(framework, (rule.unstated,))):
        return False
    if rule.until is not None:
        return month is not None and is_month(month) and version(month) <= version(rule.until)
    if rule.library is None:
        return True
    found = re.search(rf"{rule.library}[ =-]*v?(\d+)\.(\d+)", framework)
    return found is not None and (rule.before is None or (int(found[1]), int(found[2])) < tuple(rule.before))


def _formats(record: Record, model: ModelShape, flags: Flags) -> None:
    """Formats of weights, activations and cache; activations are narrow where the run's precision is.

    Weights of as many bits as a checkpoint of the model's publisher are taken to be that one.
    """
    precision, weights = plain(record.precision or ""), plain(record.weights or record.precision or "")
    if weights:
        name = weights_format_name(weights, plain(record.quantiser or ""), record.bits)
        if name == GPTQ.name and AWQ.name in conditions(record):
            name = AWQ.name
        published = _published(record, model, name)
        if published:
            flags.put("serve.weights", published, f"weights {record.weights} read as {published}, as published")
        elif name in FORMATS:
            flags.put("serve.weights", name)
        else:
            flags.assumed.append(f"weights '{record.weights}' are unknown here: 16 bit")
    if precision and precision not in NARROW_PRECISIONS:
        flags.put("serve.activations", precision if precision in (FP16, FP32) else BF16)
    cache_name = plain(record.kv_cache or "")
    if cache_name in FORMATS:
        flags.put("serve.kv_cache", cache_name)


def _published(record: Record, model: ModelShape, name: str) -> str | None:
    """Format of the checkpoint of as many bits that the model's publisher offers; None where it is the stated one."""
    if model.checkpoint_format == MXFP4.name and name in FORMATS and FORMATS[name].element_bytes < SIXTEEN_BIT:
        return model.checkpoint_format
    if name == E4M3.name and E4M3_BLOCKS.name in (model.checkpoint_format, model.fp8_checkpoint):
        return E4M3_BLOCKS.name
    # Products of integers are a run's own; a library that is named quantises by itself.
    stored = plain(record.precision or "") not in NARROW_PRECISIONS and not record.quantiser
    return model.int8_checkpoint if name == INT8 and stored else None


def weights_format_name(weights: str, quantiser: str, bits: float | None) -> str:
    """Name of a format as formats are called here; one of mean bits is the nearest that is published."""
    if EXL2 in (weights, quantiser) and bits:
        return exl2_near(bits).name
    if weights == INT8 and GPTQ_WORD in quantiser:
        return GPTQ8.name
    known = ALIASES.get(weights, weights)
    told = None if known in FORMATS else told_by(weights.replace("-", "_") if weights[:1] in "iq" else weights)
    return told.format.name if told and told.format else known


def _placement(record: Record, flags: Flags) -> None:
    """Sizes as stated; GPUs without any are placed as the question asks: a batch in one replica, else chosen.

    Engines split each expert over the tensor ranks where nobody asks for expert parallelism.
    """
    layout = record.layout
    stated = {"tp": record.tp or layout.tp, "pp": record.pp or layout.pp, "ep": layout.ep, "dp": layout.attention_dp}
    if layout.moe_tp and not layout.ep:
        stated["ep"] = max((stated["tp"] or 1) * (layout.attention_dp or 1) // layout.moe_tp, 1)
    elif stated["tp"] and not stated["ep"] and not stated["dp"]:
        stated["ep"] = 1
    for name, size in stated.items():
        flags.put(f"layout.{name}", size)
    if record.gpus and not any(stated.values()):
        if "device_map" in conditions(record) or flags.values["serve.engine"].startswith("hf-"):
            text = f"layers spread over {record.gpus} GPUs (device_map)"
            flags.put("layout.pp", record.gpus, text if record.gpus > 1 else None)
            flags.put("layout.tp", 1)
        elif record.sequences is not None:
            flags.put("layout.tp", record.gpus, f"tp {record.gpus}: not stated" if record.gpus > 1 else None)
        elif record.gpus > 1:
            flags.assumed.append(f"placement on {record.gpus} GPUs chosen for the most throughput: not stated")
    elif layout.attention_dp and not stated["tp"]:
        flags.put("layout.tp", 1)


def _drafts(record: Record, model: ModelShape, flags: Flags) -> None:
    """What drafts of speculative decoding, and how often a draft is kept."""
    if not record.draft_tokens:
        return
    flags.put("serve.draft_tokens", record.draft_tokens)
    flags.put("serve.draft_depth", record.draft_depth)
    flags.put("serve.speculative", record.speculative)
    flags.put("serve.draft_model", record.draft_model)
    by_method = drafting_of(record.speculative, record.draft_model, record.draft_tokens, model) is not None
    unstated = f"each draft kept with a probability of {USUAL_ACCEPTANCE:g}: not stated"
    if by_method and record.acceptance_rate is None:
        flags.assumed.append("drafts kept as often as is published of the method: not stated")
    elif record.acceptance_rate is None:
        flags.put("serve.acceptance_rate", USUAL_ACCEPTANCE, unstated)
    else:
        flags.put("serve.acceptance_rate", record.acceptance_rate)


def _launch_options(record: Record, model: ModelShape, flags: Flags) -> None:
    """What the engine was started with; a prefix cache finds as much as is stated, else nothing.

    Launch scripts of some engines' benchmarks size a step to a prompt, and ask for a narrow cache beside such weights.
    """
    flags.put("serve.gpu_memory_utilization", record.gpu_memory_utilization)
    flags.put("serve.max_step_tokens", record.max_step_tokens)
    engine = load_engine(flags.values["serve.engine"])
    if engine.batching.steps_of_a_prompt and record.concurrency and record.input_len:
        if not record.max_step_tokens:
            tokens = math.ceil(record.input_len + record.concurrency + SPARE_STEP_TOKENS)
            text = f"max_step_tokens {tokens}: one prompt and a token of each sequence, as benchmarks launch it"
            flags.put("serve.max_step_tokens", tokens, text)
        if (
            engine.memory.fp8_cache_with
            and not record.kv_cache
            and flags.values.get("serve.weights") == E4M3_BLOCKS.name
        ):
            flags.put("serve.kv_cache", FP8, "KV cache fp8, as benchmarks launch it: not stated")
    flags.put("serve.scheduler_recv_interval", record.scheduler_recv_interval)
    flags.put("serve.batch_wait_iters", record.batch_wait_iters)
    for name in ("dispatcher", "redundant_experts", "expert_skew", "two_batch_overlap"):
        flags.put(f"serve.{name}", getattr(record, name))
    if record.adapters:
        flags.put("serve.adapters", record.adapters)
        flags.put("lora.rank", record.lora.rank)
        flags.put("lora.targets", find_targets(record, model, flags) or None)
    _drafts(record, model, flags)
    flags.put("serve.prefix_hit_share", record.prefix_hit_share)
    if record.prefix_cache and record.prefix_hit_share is None:
        flags.assumed.append("nothing found in the prefix cache: share of the prompts not stated")
