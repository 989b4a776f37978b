"""What a software stack does: kernels, states, overlap, defaults. Data, one YAML file a stack.

A stack names a `parent` and overrides what differs; the root of all is `generic`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec

from xe_sizer.errors import InputError, Problem, Where, did_you_mean, place_of
from xe_sizer.graph.losses import DIVERGENCES, LOG_PROBABILITIES, LOSSES, WIDENED, Loss
from xe_sizer.graph.operators import Kernels
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import BUILT_IN, Finder, default_name
from xe_sizer.profiles.inherited import Release, load_inherited, location_below
from xe_sizer.profiles.source import Document
from xe_sizer.software.objective import Objective
from xe_sizer.software.optimizer import optimizer_names
from xe_sizer.software.rollout import RolloutDefaults
from xe_sizer.software.stack_parts import (
    Boundaries,
    Defaults,
    Host,
    KernelChoice,
    MemoryAround,
    Overlap,
    StackFactors,
    States,
    Supports,
)
from xe_sizer.units import MICRO, MILLI

_LOADS = "loads"
DEEPSPEED = "deepspeed"
"""What `backends` calls the library whose settings other tools name in their files."""


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stack, complete.

    uncertainty : its relative error, assumed unless `calibrated_on` names measurements
    expert_imbalance : the busiest rank's load over the mean
    tuned_expert_spread : standard deviation of experts' loads over their mean where a trained router picks them
    default : stands for all where none is named
    releases : what older ones did otherwise; release : that was asked for; None: the newest
    loads : what `states` are where weights are loaded in a number format, by its name
    backends : what its sections are where another library shares states out, by its name; None: it cannot run on that
    backend : the one of them that the sections are of; a file that names one builds on its parent as it runs on that
    fused : what `kernels` are where somebody fuses a part of them, by what people call it
    aliases : other names of it, and tools that run on it
    lighter : a stack for the same scripts that holds less for every weight
    origins : where figures of this file come from, by section or dotted key, each text after one word for it: fitted,
        measured, published, counted, assumed or defined
    settings : what the stack calls the settings of a scenario, by dotted key, where that is not plain
    """

    name: str
    describes: str
    source: str
    kernels: KernelChoice
    states: States
    host: Host
    overlap: Overlap
    boundaries: Boundaries
    efficiency: StackFactors
    memory: MemoryAround
    defaults: Defaults
    supports: Supports
    rollout: RolloutDefaults
    uncertainty: Annotated[float, msgspec.Meta(gt=0, le=10)]
    expert_imbalance: Annotated[float, msgspec.Meta(ge=1, le=1000)]
    tuned_expert_spread: Annotated[float, msgspec.Meta(ge=0, le=10)]
    loads: dict[str, dict[str, Any] | None] = {}
    backends: dict[str, dict[str, dict[str, Any]] | None] = {}
    backend: str | None = None
    fused: dict[str, dict[str, Any]] = {}
    parent: str | None = None
    releases: tuple[Release, ...] = ()
    release: str | None = None
    default: bool = False
    aliases: tuple[str, ...] = ()
    lighter: str | None = None
    calibrated_on: str | None = None
    origins: dict[str, str] = {}
    settings: dict[str, str] = {}

    @property
    def forward_launch_s(self) -> float:
        return self.host.forward_launch_us * MICRO

    @property
    def backward_launch_s(self) -> float:
        return self.host.backward_launch_us * MICRO

    @property
    def step_overhead_s(self) -> float:
        return self.host.step_overhead_ms * MILLI

    @property
    def micro_batch_overhead_s(self) -> float:
        return self.host.micro_batch_overhead_ms * MILLI

    @property
    def sharded_adapter_s(self) -> float:
        return self.host.sharded_adapter_us * MICRO

    @property
    def weights_dtypes(self) -> tuple[str, ...]:
        """Number formats that weights can be loaded in, where there is a choice."""
        return tuple(name for name, states in self.loads.items() if states is not None)

    @property
    def runs_on(self) -> tuple[str, ...]:
        """Libraries that can share out its states, where there is a choice."""
        return tuple(name for name, sections in self.backends.items() if sections is not None)

    @property
    def loads_alike(self) -> bool:
        """Whether what weights are loaded in changes nothing, since another type takes its place."""
        kinds = [states for states in self.loads.values() if states is not None]
        return len(kinds) > 1 and all(states == kinds[0] for states in kinds)

    def on_backend(self, name: str) -> "Stack":
        """The stack where one of its backends shares states out."""
        sections = {
            section: self.loads | changes if section == _LOADS else _with(getattr(self, section), changes)
            for section, changes in (self.backends[name] or {}).items()
        }
        return msgspec.structs.replace(self, backend=name, **sections)

    def loaded_in(self, dtype: str) -> "Stack":
        """The stack where weights are loaded in one of its number formats."""
        states = _with(self.states, self.loads[dtype] or {})
        defaults = msgspec.structs.replace(self.defaults, weights_dtype=dtype)
        return msgspec.structs.replace(self, states=states, defaults=defaults)

    def with_fused(self, names: Iterable[str]) -> "Stack":
        """The stack with fused kernels by what people call them, one after the other."""
        kernels = self.kernels
        for name in names:
            kernels = msgspec.structs.replace(kernels, **self.fused[name])
        return msgspec.structs.replace(self, kernels=kernels)

    def for_copies(self) -> "Stack":
        """The stack as it keeps models that stand frozen beside the one that learns."""
        if not self.states.copies_as_loaded:
            return self
        states = msgspec.structs.replace(self.states, frozen_bytes=self.states.trained_weight_bytes)
        return msgspec.structs.replace(self, states=states)

    def loss_of(self, objective: Objective) -> Loss:
        """The kernel of what a job makes of the logits."""
        chosen = self.kernels
        if objective is Objective.NEXT_TOKEN:
            return LOSSES[chosen.loss]
        if objective is Objective.LOGITS:
            return WIDENED
        if objective is Objective.DIVERGENCE:
            return DIVERGENCES[chosen.divergence]
        kernel = LOG_PROBABILITIES[chosen.log_probabilities]
        if objective is Objective.ANSWERS:
            return kernel.of_single_answers()
        if objective is Objective.POLICY:
            return kernel.of_policy()
        return kernel.with_likelihood() if objective is Objective.ODDS_RATIO else kernel

    def graph_kernels(
        self, attention: str, fine_tunes: bool = False, objective: Objective = Objective.NEXT_TOKEN
    ) -> Kernels:
        """The graph's view of the stack, with the attention implementation that the job chose.

        fine_tunes : nothing evens out the loads of experts, whose router is trained
        objective : what the job makes of the logits
        """
        return Kernels.chosen(
            self.kernels,
            attention=attention,
            loss=self.loss_of(objective),
            expert_imbalance=self.expert_imbalance,
            expert_spread=self.tuned_expert_spread if fine_tunes else 0.0,
        )


def _with(part: Any, changes: Mapping[str, Any]) -> Any:
    """A section of a stack with what its file says instead, lists of the file as they are read."""
    return msgspec.convert(msgspec.to_builtins(part) | changes, type(part))


def stack_names() -> tuple[str, ...]:
    return BUILT_IN.names("stack")


def default_stack() -> str:
    return default_name("stack")


def load_stack(name: str, where: Where = None, finder: Finder | None = None) -> Stack:
    """The stack of that name, of that name and release (nemo@24.07), or of a path to a user's own stack file.

    Raises
    ------
    InputError : unknown name; problems in the file
    """
    made = finder.made("stack", name) if finder else None
    if isinstance(made, Stack):
        return made
    stack = load_inherited("stack", Stack, name, where, finder, _contradictions)
    return stack.loaded_in(stack.defaults.weights_dtype) if stack.defaults.weights_dtype else stack


def _contradictions(stack: Stack, document: Document, finder: Finder) -> Iterator[Problem]:
    """Optimizers and stacks that nobody knows, states that are none, and defaults that the stack itself cannot do."""
    yield from _misloaded(stack, document)
    if stack.lighter is not None and finder.find("stack", stack.lighter) is None:
        where = document.locate(("lighter",))
        yield Problem(f"unknown stack '{stack.lighter}'", place_of(where), finder.suggestion("stack", stack.lighter))
    for index, name in enumerate(stack.supports.optimizers):
        if name not in optimizer_names(finder):
            where = document.locate(("supports", "optimizers", index))
            yield Problem(f"unknown optimizer '{name}'", place_of(where), finder.suggestion("optimizer", name))
    known, wanted = stack.supports.optimizers, stack.defaults.optimizer
    if wanted not in known:
        hint = did_you_mean(wanted, known) or f"it has {', '.join(known)}"
        where = document.locate(("defaults", "optimizer"))
        yield Problem(f"the default optimizer '{wanted}' is not among those that it supports", place_of(where), hint)
    for stage in {*stack.defaults.zero, stack.defaults.usual_zero} - {None}:
        if stage not in stack.supports.zero:
            where = document.locate(("defaults", "zero"))
            yield Problem(f"the default ZeRO stage {stage} is not among those that it supports", where)


def _misloaded(stack: Stack, document: Document) -> Iterator[Problem]:
    """Weights and fused kernels that cannot be what the stack's file says."""
    loads = {name: states for name, states in stack.loads.items() if states}
    yield from _changed("loads", loads, stack.states, document)
    yield from _changed("fused", stack.fused, stack.kernels, document)
    yield from _misplaced(stack, document)
    for key in ("weights_dtype", "quantised_weights_dtype"):
        dtype = getattr(stack.defaults, key)
        if dtype is not None and dtype not in stack.weights_dtypes:
            where = document.locate(("defaults", key))
            hint = f"it has {', '.join(stack.weights_dtypes)}" if stack.loads else None
            yield Problem(f"'loads' does not say what weights in {dtype} take", place_of(where), hint)


def _misplaced(stack: Stack, document: Document) -> Iterator[Problem]:
    """Backends that change what is no section of a stack, or change one to what it cannot be."""
    if stack.backend is not None and stack.backends and stack.backend not in stack.runs_on:
        hint = did_you_mean(stack.backend, stack.runs_on) or f"it has {', '.join(stack.runs_on)}"
        yield Problem(f"the stack has no backend '{stack.backend}'", document.locate(("backend",)), hint)
    fields = ((field, getattr(stack, field)) for field in stack.__struct_fields__)
    parts = {field: part for field, part in fields if isinstance(part, msgspec.Struct)}
    for backend, sections in stack.backends.items():
        for section, changes in (sections or {}).items():
            if section in parts:
                yield from _changed(f"backends.{backend}", {section: changes}, parts[section], document)
            elif section == _LOADS:
                yield from _changed(f"backends.{backend}.{_LOADS}", changes, stack.states, document)
            else:
                where = document.locate(("backends", backend, section), key=True)
                yield Problem(f"a backend changes no '{section}'", where, did_you_mean(section, (*parts, _LOADS)))


def _changed(
    section: str, rows: Mapping[str, Mapping[str, Any]], part: msgspec.Struct, document: Document
) -> Iterator[Problem]:
    """What is wrong with changes of a part of the stack."""
    for name, changes in rows.items():
        whole = msgspec.to_builtins(part) | changes
        locate = partial(location_below, document, (*section.split("."), name))
        try:
            convert(whole, type(part), locate)
        except InputError as error:
            yield from error.problems
