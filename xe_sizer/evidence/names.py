"""What the words of records stand for: tables of names, and the choice of a stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry, load_stack, optimizers_of
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.software.number_formats import recipes_of
from xe_sizer.software.stack import PARALLEL_WAYS

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.software.stack import Defaults, Stack

T = TypeVar("T")
FOLDER = Path(__file__).parent
# What may stand between a framework's name and the number of its release, and the number; a month may be 2024-04.
_RELEASE = (
    r"[\s=:@(-]*(?:(?:core|lm|framework|containers?|nvidia|release|version|commit)[\s=:,(-]*)*"
    r"v?(\d+(?:\.\d+)+|20\d\d(?:-(?:0[1-9]|1[0-2])(?!\d))?)"
)


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Fabrics inside a node that take the place of the usual one, and the words of records for bus and link.

    quads : what stands for a fabric among the first four of its accelerators
    """

    bus: str
    bridged: str
    single: str
    bus_word: str
    link_word: str
    quads: dict[str, str]


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """`names.yaml`: other words for jobs, precisions, hardware and so on."""

    jobs: dict[str, str]
    tasks: dict[str, str]
    jobs_by_task: dict[str, str]
    precisions: dict[str, str]
    quantised_weights: tuple[str, ...]
    quantisers_by_format: dict[str, str]
    offload: dict[str, str]
    recompute: dict[str, str]
    schedules: dict[str, str]
    attention: dict[str, str]
    optimizers: dict[str, str]
    optimizers_in_words: dict[str, str]
    weights_dtypes: dict[str, str]
    mixed_precision: dict[str, str]
    overlap: dict[str, str]
    fp8_recipes: dict[str, str]
    fused_kernels: dict[str, tuple[str, ...]]
    fused_in_words: dict[str, str]
    dispatch_in_words: dict[str, str]
    padding: dict[str, str]
    without_padding: tuple[str, ...]
    grouped_by_length: tuple[str, ...]
    gpus: dict[str, str]
    networks: dict[str, tuple[str, ...]]
    nodes: Nodes
    families: dict[str, str]
    mixtures: dict[str, str]
    rollout_engines: dict[str, str]


class StackRule(msgspec.Struct, frozen=True, kw_only=True):
    """Records of `stack`, with all words of `framework` in their framework, are predicted as the first usable of `use`.

    `compiled` rules are for records that say that torch.compile was or was not used; `in_flight` ones for frameworks
    whose answers go on with the new weights where they are written while it trains.
    """

    stack: str
    use: tuple[str, ...]
    because: str
    framework: tuple[str, ...] = ()
    compiled: bool | None = None
    counts: Literal["steps", "micro-batches"] = "steps"
    in_flight: bool = False


class Recipes(msgspec.Struct, frozen=True, kw_only=True):
    """What published runs of a framework leave open where nothing is stated."""

    recompute: str | None = None
    tuned: bool = False
    interleaves: bool = False


class StackNames(msgspec.Struct, frozen=True, kw_only=True):
    """`stack_names.yaml`; see there."""

    refinements: tuple[StackRule, ...]
    nearest: tuple[StackRule, ...]
    undated: dict[str, str]
    released_as: dict[str, tuple[str, ...]]
    recipes: dict[str, Recipes]
    otherwise: StackRule


class ChosenStack(msgspec.Struct, frozen=True):
    """The stack that a record is predicted with, and its release in `name`, with what its layout has beyond that.

    `plain_name` is the name without a release; `assumed` says why this stack where the record does not name it.
    `stands_in` where the record's does not ship.
    `defaults` are those of the stack that the record names where that is no ancestor of the one that stands for it.
    """

    name: str
    plain_name: str
    stack: Stack
    optimizers: tuple[str, ...]
    weights_dtypes: tuple[str, ...]
    fp8_recipes: tuple[str, ...]
    quantiser: str
    stands_in: bool
    assumed: tuple[str, ...]
    counts_micro_batches: bool
    defaults: Defaults


@cache
def _known() -> Mapping[str, str]:
    """Shipped stacks by their names and their other names."""
    others = {alias: name for name in BUILT_IN.names("stack") for alias in load_stack(name).aliases}
    return others | {name: name for name in BUILT_IN.names("stack")}


@cache
def names() -> Names:
    return _load("names.yaml", Names)


@cache
def stack_rules() -> StackNames:
    return _load("stack_names.yaml", StackNames)


def _load(file: str, struct: type[T]) -> T:
    document = load_yaml(FOLDER / file)
    return convert(document.value, struct, document.locate)


def plain(word: str) -> str:
    """A name without case, spaces and underscores, as the tables have it."""
    return re.sub(r"[\s_]+", "-", word.strip().lower())


def look_up(table: Mapping[str, str], word: str) -> str | None:
    """What a word stands for in a table; None where the table does not know it."""
    return table.get(word.strip().lower()) or table.get(plain(word))


def conditions(record: Record) -> str:
    """What the record says in words about how the run was set up, in lower case."""
    return f"{record.framework or ''} {record.notes or ''}".lower()


def recipes(record: Record, stands_in: str) -> Recipes:
    """What runs of the record's framework, or of what that is made of, leave open; `stands_in` is the stack for it."""
    for name in (_known().get(plain(record.stack or "")), stands_in):
        stack = load_stack(name) if name else None
        while stack:
            if stack.name in stack_rules().recipes:
                return stack_rules().recipes[stack.name]
            stack = load_stack(stack.parent) if stack.parent else None
    return Recipes()


def choose_stack(record: Record) -> ChosenStack:
    """Choose the stack that stands for the record's, by the rules of `stack_names.yaml`."""
    stated = plain(record.stack or "unstated")
    rules = stack_rules()
    for rule in (*rules.refinements, StackRule(stack=stated, use=(stated,), because=""), *rules.nearest):
        known = [_known()[name] for name in rule.use if name in _known()] if _matches(rule, stated, record) else []
        if known:
            return _usable(record, known, rule)
    return _usable(record, list(rules.otherwise.use), rules.otherwise)


def _matches(rule: StackRule, stated: str, record: Record) -> bool:
    framework = (record.framework or "").lower()
    return (
        rule.stack == stated
        and all(word in framework for word in rule.framework)
        and (rule.compiled is None or rule.compiled == compiled(record))
    )


def compiled(record: Record) -> bool | None:
    """Whether the run used torch.compile; None where the record does not say."""
    if record.compile is not None:
        return str(record.compile).strip().lower() not in ("false", "no", "off", "none", "eager")
    return True if "compile" in (record.framework or "").lower() else None


def _usable(record: Record, known: list[str], rule: StackRule) -> ChosenStack:
    """The first of the stacks that can do the record's layout, else the first with what it lacks for that.

    Each is in the record's release.
    """
    released = [(name, *_released(record, name)) for name in known]
    assumed = []
    if rule.because:
        assumed.append(f"stack '{record.stack or 'not stated'}' predicted as {known[0]}: {rule.because}")
    name, full_name, undated = released[0]
    stack = load_stack(full_name)
    lacks, schedule = _lacks(record, stack), _lacked_schedule(record, stack)
    if lacks:
        able = next((each for each in released[1:] if not _lacks(record, load_stack(each[1]))), None)
        words = ", ".join(lacks)
    else:
        kin = (each for each in BUILT_IN.names("stack") if load_stack(each).parent == name) if schedule else ()
        able = next(((each, each, None) for each in kin if not _lacked_schedule(record, load_stack(each))), None)
        words = f"schedule {schedule}"
    if able:
        assumed.append(f"predicted as {able[0]}, since {name} has no {words}")
        name, full_name, undated = able
        stack = load_stack(full_name)
    elif lacks or schedule:
        assumed.append(f"{name} has no {words}: predicted as if it had")
        stack = _with(record, stack, schedule)
        full_name = "+".join((full_name, *lacks, *([schedule] if schedule else [])))
    if undated:
        assumed.append(undated)
    if rule.in_flight:
        stack = msgspec.structs.replace(stack, rollout=msgspec.structs.replace(stack.rollout, in_flight=True))
        full_name = f"{full_name}+in-flight"
    return ChosenStack(
        name=full_name,
        plain_name=name,
        stack=stack,
        optimizers=optimizers_of(stack),
        weights_dtypes=stack.weights_dtypes,
        fp8_recipes=recipes_of(stack),
        quantiser=stack.defaults.quantiser,
        stands_in=plain(record.stack or "") not in _known(),
        assumed=tuple(assumed),
        counts_micro_batches=rule.counts == "micro-batches",
        defaults=_defaults(record, stack),
    )


def _defaults(record: Record, stack: Stack) -> Defaults:
    """What is recomputed is up to the framework that the record names, sharding to the one that it is priced as."""
    own = _known().get(plain(record.stack or ""), stack.name)
    above: Stack | None = stack
    while above and above.name != own:
        above = load_stack(above.parent) if above.parent else None
    named = stack if above else load_stack(_released(record, own)[0])
    return msgspec.structs.replace(named.defaults, usual_zero=stack.defaults.usual_zero)


def release_in(text: str, words: Iterable[str]) -> str | None:
    """The number behind one of the words of a framework's text in lower case; None where none has one."""
    found = (re.search(rf"(?<![a-z]){re.escape(word)}{_RELEASE}", text) for word in words)
    return next((each[1].replace("-", ".") for each in found if each), None)


def _released(record: Record, stack: str) -> tuple[str, str | None]:
    """The stack in the release that the record's framework names, else in a usual one, and what then is assumed."""
    rules, framework = stack_rules(), (record.framework or "").lower()
    for word in (*rules.released_as.get(stack, ()), stack, *load_stack(stack).aliases):
        found = release_in(framework, (word,))
        if found:
            return f"{stack}@{found}", None
    usual_release = rules.undated.get(stack)
    if usual_release is None:
        return stack, None
    if dated := re.match(r"(20\d\d)(?:-(\d\d))?", str(record.date or "")):
        month = f"{dated[1]}.{dated[2] or '06'}"  # as releases have them
        return f"{stack}@{month}", f"{stack} of {month}, when the record was made: release not named"
    return f"{stack}@{usual_release}", f"release {usual_release} of {stack}: none stated"


def _lacks(record: Record, stack: Stack) -> list[str]:
    """What the record's layout has and the stack does not."""
    supports, layout = stack.supports, record.layout
    found = [
        name
        for name, attribute in PARALLEL_WAYS.items()
        if (getattr(layout, name) or 1) > 1 and not getattr(supports, attribute)
    ]
    if layout.zero is not None and layout.zero not in supports.zero and layout.zero > 0:
        found.append(f"ZeRO {layout.zero}")
    return found


def _lacked_schedule(record: Record, stack: Stack) -> str | None:
    """The order of the record's pipeline, where the stack does not have it."""
    schedule = look_up(names().schedules, record.pipeline_schedule or "")
    return None if schedule in stack.supports.schedules else schedule


def _with(record: Record, stack: Stack, schedule: str | None) -> Stack:
    """The stack as whoever ran the record has it: with the ways of its layout, and the order of its pipeline."""
    supports, layout = stack.supports, record.layout
    ways = {way: True for key, way in PARALLEL_WAYS.items() if (getattr(layout, key) or 1) > 1}
    zero = tuple(sorted({*supports.zero, *(() if layout.zero is None else (layout.zero,))}))
    schedules = (*supports.schedules, *((schedule,) if schedule else ()))
    wider = msgspec.structs.replace(supports, **ways, zero=zero, schedules=schedules)
    return msgspec.structs.replace(stack, supports=wider)


# Keys that a record becomes, collected; and the catalogue with what records describe themselves.


class RecordRegistry(Registry):
    """The catalogue, and models, nodes and stacks that records describe. Raises InputError as the catalogue does."""

    def __init__(self, extra: Sequence[Path] = ()) -> None:
        super().__init__(extra)
        self.built_models: dict[str, ModelShape] = {}
        self.built_servers: dict[str, Server] = {}
        self.built_stacks: dict[str, Stack] = {}
        self._refused: dict[str, InputError] = {}

    def model(self, name: str, where: Where = None) -> ModelShape:
        if name in self.built_models:
            return self.built_models[name]
        if name not in self._refused:  # the search for a name like an unknown one is slow
            try:
                return super().model(name, where)
            except InputError as error:
                self._refused[name] = error
        raise self._refused[name]

    def server(self, name: str, where: Where = None) -> Server:
        return self.built_servers.get(name) or super().server(name, where)

    def made(self, kind: str, name: str) -> object | None:
        return self.built_stacks.get(name) if kind == "stack" else None


class Flags:
    """Scenario keys as they are settled, with what had to be assumed."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.assumed: list[str] = []

    def put(self, key: str, value: Any, assumed: str | None = None) -> None:
        if value is not None:
            self.values[key] = value
            if assumed:
                self.assumed.append(assumed)

    def word(self, key: str, table: Mapping[str, str], stated: Any) -> None:
        """A word by its table; one that the table does not know is left to the stack."""
        if stated is None:
            return
        word = str(stated).lower()
        known = look_up(table, word)
        if known is None:
            self.assumed.append(f"{key} '{stated}' is unknown here: the stack's default")
        else:
            self.put(key, known, None if known == plain(word) else f"{key} '{stated}' predicted as {known}")
