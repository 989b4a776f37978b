"""A file of another tool to a scenario: which tool it is, its table of keys, what is assumed, and what is told."""

from __future__ import annotations

import importlib
import math
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.graph.recompute import find_modules
from xe_sizer.immutable import Immutable
from xe_sizer.interop import tools
from xe_sizer.interop.containers import script_of_job
from xe_sizer.interop.draft import ASSUMED, FLAG, READ, TOOL_DEFAULT, Draft, Effect, Fact, Origin
from xe_sizer.interop.huggingface import (
    keys_started,
    read_deepspeed,
    script_started,
    starts_script,
    state_alpha,
    state_launch,
)
from xe_sizer.interop.source import PYTHON, open_source
from xe_sizer.interop.values import UnreadableError
from xe_sizer.laws.device import BF16, FP16, supported_precisions
from xe_sizer.profiles.catalogue import Registry, load_stack
from xe_sizer.profiles.finder import default_name
from xe_sizer.profiles.text import name_of, scalar
from xe_sizer.profiles.yaml_reader import Document
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.stack import DOES, OF_GRADIENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.interop.draft import Ignored, Missing
    from xe_sizer.interop.source import Asked, Source, Tool
    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.profiles.convert import KeyPath

# What a file says and a scenario would refuse: such values are told, and the scenario is written without them.

TARGETS = "lora.targets"
_WEIGHTS = "train.weights_dtype"
_BACKEND = "train.backend"
_PARALLEL = "layout.sequence_parallel"
_EXPERT_TP = "layout.expert_tp"
_MODULES = "layout.recompute_modules"
_STAGES = "layout.stages"
_BESIDE = ("train.critic_model", "train.reward_model")


def settle(draft: Draft) -> None:
    """Set aside what goes with nothing else that the files say, so that the scenario runs."""
    _precision(draft)
    _weights(draft)
    _targets(draft)
    if draft.fact(_PARALLEL) and draft.fact("layout.tp") in (None, 1):
        draft.set_aside(_PARALLEL, "without tensor parallelism there is nothing to split")
    _split_experts(draft)
    _modules(draft)
    _stages(draft)
    _models_beside(draft)


def _precision(draft: Draft) -> None:
    """Float16 where a tool chooses by the card and the card has no bfloat16, for weights that it loads so too."""
    accelerator = _accelerator(draft)
    known = supported_precisions(accelerator) if accelerator is not None else ()
    if accelerator is None or BF16 in known or FP16 not in known:
        return
    for key in ("precision", _WEIGHTS):
        fact = draft.facts.get(key)
        if fact is not None and fact.value == BF16 and fact.origin in (TOOL_DEFAULT, ASSUMED):
            draft.replace(key, replace(fact, value=FP16, note=f"{accelerator.name} has no {BF16}"))


def _accelerator(draft: Draft) -> Accelerator | None:
    registry, gpu, server = Registry(), draft.fact("gpu"), draft.fact("server")
    try:
        if gpu is not None:
            return registry.accelerator(str(gpu))
        return registry.server(str(server)).accelerator if server is not None else None
    except InputError:
        return None


def _weights(draft: Draft) -> None:
    """What shares states out, where the stack has it; the type of the weights, where it is no choice."""
    dtype, backend = draft.fact(_WEIGHTS), draft.fact(_BACKEND)
    try:
        stack = load_stack(str(draft.fact("stack"))) if "stack" in draft.facts else None
    except InputError:
        return
    if stack is None:
        return
    if backend is not None and backend not in stack.runs_on:
        draft.set_aside(_BACKEND, f"{stack.name} does not run on {backend}")
    elif backend is not None:
        stack = stack.on_backend(str(backend))
    if dtype is not None and (dtype not in stack.weights_dtypes or stack.loads_alike):
        draft.set_aside(_WEIGHTS, f"what {stack.backend or stack.name} keeps weights in is part of the stack")
    precision = str(draft.fact("precision") or stack.defaults.precision)
    for key, choice in OF_GRADIENTS.items():
        known = stack.gradient_dtypes(choice, precision)
        if draft.fact(key) is not None and draft.fact(key) not in known:
            does, name = DOES[choice], stack.backend or stack.name
            has = f"it has {', '.join(known)}" if known else f"how it {does}s them is part of the stack"
            draft.set_aside(key, f"{name} cannot {does} gradients in {draft.fact(key)}: {has}")


def _split_experts(draft: Draft) -> None:
    """Ranks that split an expert, unless it is the tool's default, or there are no experts, or tp has no such part."""
    ranks, tp = draft.fact(_EXPERT_TP), draft.fact("layout.tp") or 1
    if not isinstance(ranks, int) or not isinstance(tp, int):
        return
    model = _model(draft)
    if draft.facts[_EXPERT_TP].origin == TOOL_DEFAULT:
        draft.set_aside(_EXPERT_TP, "experts are split as the layout allows")
    elif model is not None and model.experts is None:
        draft.set_aside(_EXPERT_TP, "the model has no experts")
    elif tp % ranks:
        draft.set_aside(_EXPERT_TP, f"{ranks} ranks do not divide tp {tp}")


def _modules(draft: Draft) -> None:
    """Modules to recompute that the model has; the tool runs nothing again for the others."""
    wanted = draft.fact(_MODULES)
    model = _model(draft) if wanted is not None else None
    if model is None or not isinstance(wanted, tuple):
        return
    has = find_modules(model)
    found = tuple(module for module in wanted if module in has)
    missing = ", ".join(module for module in wanted if module not in has)
    if found and missing:
        draft.narrow(_MODULES, found, f"the model has no {missing}")
    elif missing:
        draft.set_aside(_MODULES, f"the model has no {missing}")


def _stages(draft: Draft) -> None:
    """Stages that hold other layers than the model's, as those of a model that has been cut."""
    stages = draft.fact(_STAGES)
    model = _model(draft) if stages is not None else None
    if model is not None and isinstance(stages, tuple) and sum(stages) != model.layers:
        draft.set_aside(_STAGES, f"the stages hold {sum(stages)} layers, and the model has {model.layers}")


def _models_beside(draft: Draft) -> None:
    """Models that rate answers, unless nothing is known of them: they are taken to have the policy's shape then."""
    for key in _BESIDE:
        name = draft.fact(key)
        if name not in (None, "none") and _profile(str(name)) is None:
            draft.set_aside(key, "its sizes are not known; taken to be those of the model that learns")


def _targets(draft: Draft) -> None:
    """Modules with adapters that the model has; peft gives none to names that it does not find."""
    wanted = draft.fact(TARGETS)
    model = _model(draft) if isinstance(wanted, list | tuple) else None
    if model is None or not isinstance(wanted, list | tuple):
        return
    found = [name for name in wanted if _has(model, str(name))]
    if len(found) == len(wanted):
        return
    missing = ", ".join(str(name) for name in wanted if name not in found)
    if found:
        draft.narrow(TARGETS, tuple(found), f"the model has no {missing}")
    else:
        draft.set_aside(TARGETS, f"the model has no {missing}")


def _model(draft: Draft) -> ModelShape | None:
    name = draft.fact("model")
    return _profile(str(name)) if name is not None else None


def _profile(name: str) -> ModelShape | None:
    try:
        return Registry().model(name)
    except InputError:
        return None


def _has(model: ModelShape, name: str) -> bool:
    try:
        return bool(resolve_targets(model, [name], head=True))
    except InputError:
        return False


# What is the same for every tool after its file was read: hardware that was passed, batches that follow, gaps.

_HARDWARE = ("server", "gpu")
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")  # GPUs that work on the same sequences
INFERENCE = "inference"
_MODEL = "model"
_SIZES = ("model.layers", "model.hidden", "model.vocab")


def finish(draft: Draft, hardware: Mapping[str, object]) -> None:
    """Put in what was passed, derive what follows from what is known, and say what is missing."""
    _put_model(draft, hardware.get(_MODEL))
    _put_hardware(draft, hardware)
    for follow in draft.following:
        follow(draft)
    if "gpus" in draft.facts:
        draft.set_aside("nodes", "follows from the number of GPUs")
    _length(draft)
    state_alpha(draft)
    if draft.fact("job") != INFERENCE:
        _number_of_gpus(draft)
        _global_batch(draft)
        draft.default("layout.offload", "none")
    if not any(key in draft.facts for key in _HARDWARE):
        draft.assume("server", default_name("server"), "no file names a GPU; pass --gpu or --server")


def _put_model(draft: Draft, passed: object) -> None:
    """A model passed takes the place of one that was read, and of a shape; a shape needs its largest sizes."""
    shape = [key for key in draft.facts if key.startswith(f"{_MODEL}.")]
    if passed is not None:
        for key in shape:
            draft.drop(key)
        draft.replace(_MODEL, Fact(passed, FLAG))
        draft.missing = [each for each in draft.missing if each.key != _MODEL]
    elif shape:
        for key in _SIZES:
            draft.miss(key, "the file leaves it to something that was not passed", "--set VAR=VALUE, or --model NAME")
    elif not any(each.key == _MODEL for each in draft.missing):
        draft.miss(_MODEL, "no file names one", "--model NAME")


def _put_hardware(draft: Draft, hardware: Mapping[str, object]) -> None:
    """A server passed takes the place of a GPU that was read, and the other way round; so do GPUs and nodes."""
    for pair in (_HARDWARE, ("gpus", "nodes")):
        passed = {key: hardware[key] for key in pair if hardware.get(key) is not None}
        if passed:
            for key in pair:
                draft.drop(key)
        for key, value in passed.items():
            draft.replace(key, Fact(value, FLAG))


def _length(draft: Draft) -> None:
    """Steps decide how long a run is where both steps and passes over the data are known."""
    if "train.steps" in draft.facts and "train.epochs" in draft.facts:
        stated = {key for key in ("train.steps", "train.epochs") if draft.facts[key].origin == READ}
        draft.drop("train.steps" if stated == {"train.epochs"} else "train.epochs")


def _number_of_gpus(draft: Draft) -> None:
    if "gpus" in draft.facts or "nodes" in draft.facts:
        return
    why = f"{draft.tool} takes it from the launch command, which is not among the files"
    draft.miss("gpus", why, "--gpus N, or name the launch script too")


def _global_batch(draft: Draft) -> None:
    """Sequences of an optimizer step = micro-batch x gradient accumulation x data-parallel ranks.

    Of global batch and accumulation the one follows that is not stated. An accumulation that follows is set aside: it
    is another one as soon as the ranks or the micro-batch are.
    """
    micro, gpus = draft.fact("train.micro_batch"), draft.trainers
    sizes = (draft.fact(key) for key in _SPLIT)
    split = math.prod(size for size in sizes if isinstance(size, int))  # GPUs that work on the same sequences
    if not isinstance(micro, int) or not isinstance(gpus, int) or gpus < split or gpus % split:
        return
    ranks = gpus // split
    used = ["train.micro_batch", "gpus", *(key for key in _SPLIT if draft.fact(key) != 1)]
    batch, accum = draft.fact("train.global_batch"), draft.fact("train.grad_accum")
    if isinstance(accum, int):
        note = f"micro-batch {micro} x accumulation {accum} x {ranks} data-parallel ranks"
        draft.derive("train.global_batch", micro * accum * ranks, [*used, "train.grad_accum"], note)
    elif isinstance(batch, int) and batch % (micro * ranks) == 0:
        note = f"global batch {batch} / (micro-batch {micro} x {ranks} data-parallel ranks)"
        draft.derive("train.grad_accum", batch // (micro * ranks), [*used, "train.global_batch"], note)
        draft.set_aside("train.grad_accum", "left open, as it follows from them")


# The tools that are read, each found by its file in `tools`.


@cache
def all_tools() -> dict[str, Tool]:
    """The tools by name."""
    modules = (module.name for module in pkgutil.iter_modules(tools.__path__) if not module.ispkg)
    loaded = (importlib.import_module(f"{tools.__name__}.{name}") for name in sorted(modules))
    found: list[Tool] = [module.TOOL for module in loaded if hasattr(module, "TOOL")]
    return {tool.name: tool for tool in found}


def tool_named(name: str) -> Tool:
    """The tool that a user names. Raises InputError: there is none."""
    known = all_tools()
    for each in known.values():
        if name.lower() in (each.name, *each.aliases):
            return each
    hint = did_you_mean(name, known) or f"known are {', '.join(sorted(known))}"
    raise InputError(Problem(f"no tool is called '{name}'", Location("--from"), hint))


def recognise_tool(source: Source) -> Tool | None:
    """The tool whose file this is most surely; None where no tool knows it."""
    sure = [(tool.recognises(source), tool) for tool in all_tools().values()]
    best, tool = max(sure, key=lambda each: each[0])
    return tool if best > 0 else None


# A foreign file as a scenario: the values, where each comes from, and what could not be said.

SCHEMA_VERSION = 1
ORIGINS: Mapping[Origin, str] = {READ: "file", TOOL_DEFAULT: "stack", ASSUMED: "default", FLAG: "flag"}
"""What the answers to a scenario call the origin of an imported value."""


class Imported(Immutable):
    """What a foreign file says, as a scenario."""

    tool: Tool
    path: Path
    facts: Mapping[str, Fact]
    ignored: Sequence[Ignored]
    missing: Sequence[Missing]

    @property
    def lost(self) -> list[Ignored]:
        """Keys that change memory or time and that the scenario cannot say."""
        return [each for each in self.ignored if each.effect == "memory or time"]

    @property
    def unknown(self) -> list[Ignored]:
        """Keys that no table has."""
        return [each for each in self.ignored if each.effect == "unknown"]

    def fact_of(self, key: str) -> object:
        """The value of a scenario key; None without one."""
        return self.facts[key].value if key in self.facts else None

    def document(self) -> Document:
        """The scenario as a document whose places are those of the foreign file; what was not read has all of it."""
        facts = {key: fact for key, fact in self.facts.items() if not fact.aside}
        whole = Location(name_of(self.path))
        places: dict[KeyPath, Location] = {(): whole}
        places |= {tuple(key.split(".")): fact.where or whole for key, fact in facts.items()}
        origins = {key: ORIGINS[fact.origin] for key, fact in facts.items()}
        return Document(self.path, nested(facts), lambda: (places, places), origins)

    def as_json(self) -> str:
        """The import as scripts read it."""
        answer = ImportedFile(
            schema_version=SCHEMA_VERSION,
            tool=self.tool.name,
            scenario={key: _imported(fact) for key, fact in self.facts.items()},
            ignored=tuple(IgnoredKey(each.key, _said(each.where), each.why, each.effect) for each in self.ignored),
            missing=tuple(MissingKey(each.key, each.why, each.hint) for each in self.missing),
        )
        return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


class ImportedKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value of the scenario. where : the file with its line; null for what no file says

    note : why it has this value, where its own line does not say it
    aside : why the scenario is written without it
    """

    value: Any
    origin: Origin
    where: str | None
    note: str = ""
    aside: str = ""


class IgnoredKey(msgspec.Struct, frozen=True):
    """A key of the tool that sets nothing in the scenario, and what it would change."""

    key: str
    where: str | None
    why: str
    effect: Effect


class MissingKey(msgspec.Struct, frozen=True):
    """A key of the scenario that nothing says, and the flag to pass."""

    key: str
    why: str
    hint: str


class ImportedFile(msgspec.Struct, frozen=True):
    """What files of another tool say as a scenario, by its dotted keys: the JSON contract of `import`."""

    schema_version: int
    tool: str
    scenario: dict[str, ImportedKey]
    ignored: tuple[IgnoredKey, ...]
    missing: tuple[MissingKey, ...]


def nested(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Flat facts as the sections of a scenario."""
    values: dict[str, Any] = {}
    for key, fact in facts.items():
        *sections, last = key.split(".")
        group = values
        for section in sections:
            group = group.setdefault(section, {})
        group[last] = list(fact.written) if isinstance(fact.written, tuple) else fact.written
    return values


def _imported(fact: Fact) -> ImportedKey:
    return ImportedKey(fact.value, fact.origin, _said(fact.where), fact.note, fact.aside)


def _said(where: Location | None) -> str | None:
    return None if where is None else str(where)


# An import as a scenario file that runs: every line says in a comment where its value comes from.

_FIRST_KEYS = ("model", "server", "gpu", "gpus", "nodes", "job", "stack", "precision", "optimizer", "attention", "loss")
_ASIDE = "# "
_WIDEST = 60  # columns of keys and values beside which comments are aligned
_LONGEST = 100


def as_yaml(imported: Imported) -> str:
    """The text of the scenario; at its end, as comments, what changes memory or time and could not be said."""
    lines = list(_lines(imported))
    width = min(max((len(line) for line, _ in lines), default=0), _WIDEST)
    text = [f"# Read from {name_of(imported.path)} ({imported.tool.title})"]
    text += [f"{line:{width}}  # {comment}" if comment else line for line, comment in lines]
    text += _told("Not in this scenario, though it changes memory or time:", imported.lost, imported)
    text += _told("Not known, and not read:", imported.unknown, imported)
    return "\n".join(_clean(line) for line in text) + "\n"


def _lines(imported: Imported) -> Iterator[tuple[str, str]]:
    """Lines of the file, each with its comment."""
    facts = imported.facts
    top = [key for key in facts if "." not in key]
    top.sort(key=lambda key: _FIRST_KEYS.index(key) if key in _FIRST_KEYS else len(_FIRST_KEYS))
    for key in top:
        yield _line("", key, facts[key]), _comment(facts[key], imported)
    yield from _sections(imported, "", "")


def _sections(imported: Imported, prefix: str, indent: str) -> Iterator[tuple[str, str]]:
    """The groups of keys below a prefix."""
    inside = {key.removeprefix(prefix): fact for key, fact in imported.facts.items() if key.startswith(prefix)}
    for section in dict.fromkeys(key.partition(".")[0] for key in inside if "." in key):
        bare = all(fact.aside for key, fact in inside.items() if key.startswith(f"{section}."))
        yield f"{indent}{_ASIDE if bare else ''}{section}:", ""
        yield from _section(imported, f"{prefix}{section}.", f"{indent}  ")


def _section(imported: Imported, prefix: str, indent: str) -> Iterator[tuple[str, str]]:
    inside = {key.removeprefix(prefix): fact for key, fact in imported.facts.items() if key.startswith(prefix)}
    for key, fact in inside.items():
        if "." not in key:
            yield _line(indent, key, fact), _comment(fact, imported)
    yield from _sections(imported, prefix, indent)


def _line(indent: str, key: str, fact: Fact) -> str:
    """A key with its value; as a comment where the scenario goes without it."""
    return f"{indent}{_ASIDE if fact.aside else ''}{key}: {scalar(fact.written)}"


def _comment(fact: Fact, imported: Imported) -> str:
    note = "".join(f": {said}" for said in (fact.note, fact.aside) if said)
    if fact.origin == TOOL_DEFAULT:
        return f"default of {imported.tool.title}{note}"
    if fact.origin == ASSUMED:
        return f"assumed{note}"
    if fact.origin == FLAG:
        return "passed on the command line"
    return f"{_short(fact.where, imported)}{note}"


def _short(where: Location | None, imported: Imported) -> str:
    """A place in the file that the title names as its line; one in another file with that file."""
    if where is None or where.line is None:
        return Path(where.name).name if where else ""
    return f"line {where.line}" if where.name == name_of(imported.path) else f"{Path(where.name).name}:{where.line}"


def _told(title: str, ignored: list[Ignored], imported: Imported) -> list[str]:
    if not ignored:
        return []
    return ["", f"# {title}", *(f"#   {_short(each.where, imported)}: {each.key}: {each.why}" for each in ignored)]


def _clean(line: str) -> str:
    """A line without control characters, and without what no reader of a comment needs."""
    shown = "".join(char if char.isprintable() else " " for char in line).rstrip()
    return shown if len(shown) <= 4 * _LONGEST else f"{shown[: 4 * _LONGEST]} ..."


# From files of other tools to a scenario: which tool they are of, what they say, and what is missing.


class ImpossibleJobError(InputError):
    """Files of a tool that it could not run, or whose job would be estimated as another one."""


def read_foreign(paths: Sequence[Path], asked: Asked) -> Imported:
    """Read the files of one job: its configuration, and where they are named too its launch script and the like.

    Raises
    ------
    InputError : a file cannot be read, or no tool knows any of them
    """
    problems: list[Problem] = []
    sources: list[Source] = []
    for path in paths:
        with collecting(problems):
            sources.append(open_source(path, asked.given))
    if problems:
        raise InputError(problems)
    return import_together(with_started(sources), asked)


def import_together(sources: Sequence[Source], asked: Asked) -> Imported:
    """The job that files say together. Raises InputError: broken text, or no tool knows any of them."""
    tool, source = _main(sources, asked)
    return import_file(tool, source, [each for each in sources if each is not source], asked)


def with_started(sources: Sequence[Source]) -> list[Source]:
    """The files with the Python files that launch scripts among them start, where those say what is trained.

    A script whose command says that itself is read by its tool, and a Job of Kubernetes as the script that it runs.
    """
    files = {each.path.resolve() for each in sources}
    found = [started_by(each) for each in sources]
    for each in tuple(found):
        word = script_started(each) if each.script is not None and recognise_tool(each) is None else None
        started = each.companion(word.text, (PYTHON,)) if word is not None else None
        if started is not None and started.path.resolve() not in files and recognise_tool(started) is not None:
            found.append(started)
    return found


def started_by(source: Source) -> Source:
    """A Job as the script that it runs, where a tool knows that and not the manifest itself; others as they are."""
    script = script_of_job(source)
    own = script is source or recognise_tool(source) is not None or recognise_tool(script) is None
    return source if own else script


def import_file(tool: Tool, source: Source, beside: Iterable[Source], asked: Asked) -> Imported:
    """One file as a tool reads it, with the files that were named beside it. Raises InputError: broken text."""
    try:
        draft = Draft(tool.name, tool.keys(source), asked.version)
        tool.read(draft, source)
        for other in beside:
            _read_beside(draft, other)
        draft.apply(tool.table)
        finish(draft, asked.hardware)
        settle(draft)
        draft.finish(tool.table)
        hint = "take it out to be told of the job without it"
        refused = [
            Problem(f"{each.key}: {each.why}", each.where, hint) for each in draft.ignored if each.effect == "refused"
        ]
        if draft.impossible or refused:
            raise ImpossibleJobError([*sorted(draft.impossible, key=_place), *refused])
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", Location(source.name))) from None
    except UnreadableError as error:
        raise InputError(Problem(str(error), Location(source.name))) from None
    return Imported(tool, source.path, draft.facts, draft.ignored, draft.missing)


def _place(problem: Problem) -> tuple[str, int, int]:
    where = problem.location
    return ("", 0, 0) if where is None else (where.name, where.line or 0, where.column or 0)


def _main(sources: Sequence[Source], asked: Asked) -> tuple[Tool, Source]:
    """The file that says most, and its tool."""
    if asked.tool is not None:
        tool = tool_named(asked.tool)
        return tool, max(sources, key=tool.recognises)
    found = [(recognise_tool(source), source) for source in sources]
    known = [(tool.recognises(source), tool, source) for tool, source in found if tool is not None]
    if not known:
        titles = ", ".join(tool.title for tool in all_tools().values())
        hint = f"files of {titles} are read; --from TOOL says which one it is"
        word = next(filter(None, map(script_started, sources)), None)
        if word is not None:
            hint = f"{word.text}, which it starts, says what is trained: name that file too, or put it beside this one"
        raise InputError(Problem("no tool that is known here reads such a file", sources[0].start, hint))
    _, tool, source = max(known, key=lambda each: each[0])
    return tool, source


def _read_beside(draft: Draft, other: Source) -> None:
    """What a further file says of the same job: a launch command, a DeepSpeed or accelerate configuration."""
    tool = recognise_tool(other)
    if tool is None and script_started(other) is not None:
        launch = Draft(draft.tool, keys_started(other, starts_script), draft.version)
        named = launch.on("deepspeed")  # which scripts are given whatever else they say themselves
        if named is not None:
            read_deepspeed(launch, named, other)
        state_launch(launch, other, starts_script)
        draft.merge(launch)
        return
    if tool is None:
        raise InputError(Problem("no tool that is known here reads such a file", other.start))
    part = Draft(tool.name, tool.keys(other), draft.version)
    tool.read(part, other)
    part.finish(tool.table)
    draft.merge(part, without=("model", "job", "stack"))
