"""The catalogue: every kind of profile by name or path, the user's before the built-in ones, in SI units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem, did_you_mean, place_of
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.fabric import fabric_with, load_fabric_profile
from xe_sizer.profiles.finder import (
    BUILT_IN,
    Finder,
    default_name,
    is_path,
    is_repository,
    load_inherited,
)
from xe_sizer.profiles.gpu import accelerator, load_gpu_profile
from xe_sizer.profiles.hub import CONFIG, Hub, repository_of
from xe_sizer.profiles.model import _ANY_MODELS, load_model_profile
from xe_sizer.profiles.server import bare_server, load_server_profile, server
from xe_sizer.profiles.text import at_home, read_text
from xe_sizer.profiles.yaml_reader import PATH_HINT, load_yaml
from xe_sizer.software.optimizer import Optimizer
from xe_sizer.software.stack import CHOICES_BY_FORMAT, GRADIENT_TYPES, LOADS, Stack

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.profiles.fabric import FabricProfile
    from xe_sizer.profiles.gpu import GpuProfile, LendsTo
    from xe_sizer.profiles.server import ServerProfile
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.quantiser import Quantiser

# Model profiles: from a name, an alias or a path to the shape of a model.
#
# Besides the profiles (`<name>.yaml`), a folder `model_profiles/` may hold `aliases.yaml` (other names of the
# profiles).


def resolve_model(name_or_path: str, finder: Finder, where: Where = None, hub: Hub | None = None) -> ModelShape:
    """The model that a user names: a profile, an alias, a repository on the Hub, or the path of one of their files.

    Parameters
    ----------
    name_or_path    a name as people write it (`Finder.find`), a repository on the Hub, a profile's YAML file, a
                    `config.json`, a folder with a `config.json`, or a path that is not there and ends in a model's name
    finder          knows the folders with profiles; the first that knows the name wins
    where           what a problem points at: the place of the name in the scenario, a flag
    hub             where configurations of repositories are that no profile is for

    Raises
    ------
    InputError    unknown name (with the nearest known ones), a name of several models, a wrong file
    """
    path = at_home(name_or_path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return _shape_from_file(path, where)
    if is_path(name_or_path) and _is_folder(path):
        return _shape_from_folder(path, name_or_path, finder, where)
    hub, repository = hub or Hub(), repository_of(name_or_path)
    cached = hub.cached(repository) if repository else None
    try:
        found = model_file(name_or_path, finder, where)
    except InputError:
        if not cached:
            raise
        found = None
    if not found and name_or_path.strip() and _is_folder(path):
        return _shape_from_folder(path, name_or_path, finder, where)
    found = found or (None if cached else _file_of_last_part(name_or_path, finder))
    if found:
        instructed = "instruct" in name_or_path.lower()
        kind = "instructed model" if instructed else "model"
        return finder.once(kind, found, lambda file: load_model_profile(file, instructed=instructed))
    config = cached or (hub.config(repository, where) if repository else None)
    if config and repository:
        shape = _shape_from_file(config, None)
        assumptions = (f"no profile has this name; its shape is that of {config}", *shape.assumptions)
        return replace(shape, name=repository.rpartition("/")[2], assumptions=assumptions)
    raise InputError(_unknown(name_or_path, finder, where, hub if repository else None))


def model_file(name: str, finder: Finder, where: Where = None) -> Path | None:
    """The profile of a name, or of the model that it is another name of; None when there is none. Raises InputError."""
    return None if is_path(name) and not is_repository(name) else finder.find("model", name, where)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or that no path can have
        return False


def _file_of_last_part(name: str, finder: Finder) -> Path | None:
    """The profile that the last part of a path means, behind names of folders that any model has; None: none alone."""
    parts = [part for part in re.split(r"[/\\]", name) if part]
    while len(parts) > 1 and _ANY_MODELS.fullmatch(parts[-1]):
        parts.pop()
    last = parts[-1].rpartition("--")[2] if parts else ""
    if not last or last == name:
        return None
    with suppress(InputError):
        found = finder.find("model", last)
        if found:
            finder.readings.pop(("model", last), None)
            finder.readings["model", name] = found.stem
        return found
    return None


def _unknown(name: str, finder: Finder, where: Where, hub: Hub | None) -> Problem:
    """What to say of a name that leads nowhere. hub : where the configuration of a repository of that name is not"""
    near = finder.suggestion("model", name)
    if hub is None:
        return Problem(f"unknown model '{name}'", place_of(where), near)
    message = f"unknown model '{name}': {CONFIG} of {repository_of(name)} is not on this machine"
    return Problem(message, place_of(where), f"{hub.how}; {near}")


def _shape_from_folder(path: Path, name: str, finder: Finder, where: Where) -> ModelShape:
    """The model whose configuration lies in a folder; without one, that which the folder is called after."""
    named = None if (path / CONFIG).is_file() else _file_of_last_part(name, finder)
    return load_model_profile(named) if named else _shape_from_file(path / CONFIG, where)


def published_as(name: str, finder: Finder) -> str | None:
    """The repository on the Hugging Face Hub that a profile names; None where it names none. Raises InputError."""
    found = model_file(name, finder)
    profile = load_yaml(found).value if found else None
    return profile.get("hugging_face") if isinstance(profile, dict) else None


def _shape_from_file(path: Path, where: Where) -> ModelShape:
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", place_of(where), PATH_HINT))
    if path.suffix.lower() != ".json":
        return load_model_profile(path)
    from xe_sizer.profiles.huggingface import model_from_config

    shape, assumptions = model_from_config(path)
    return replace(shape, assumptions=assumptions)


class Registry(Finder):
    """Profiles by name or path, each read once, as what the laws are given."""

    def __init__(self, extra: Sequence[Path] = (), hub: Hub | None = None) -> None:
        super().__init__(extra)
        self.hub = hub

    def accelerator(self, name: str, where: Where = None) -> Accelerator:
        """The accelerator of a profile name or path. Raises InputError."""
        return self.once("accelerator", self.path("gpu", name, where), self._accelerator)

    def _accelerator(self, path: Path) -> Accelerator:
        profile = self._gpu(path)
        donors = [self._gpu(donor) for donor in self._donors(path)]
        return accelerator(profile, self._link(profile, path), donors)

    def _gpu(self, path: Path) -> GpuProfile:
        return self.once("gpu", path, lambda file: load_gpu_profile(file, self))

    def neighbours(self, own: ModelShape, apart: float) -> tuple[str, ...]:
        """Names of the next smaller and the next larger model of the family that differ by at least a factor in size.

        apart : the factor between the weights of two models [-]
        """
        family = own.name.split("-", maxsplit=1)[0]
        kin = [self.model(name) for name in self.names("model") if name.split("-", maxsplit=1)[0] == family]
        sized = sorted((count_parameters(model).total, model.name) for model in kin if model.family == own.family)
        total = count_parameters(own).total
        smaller = [name for size, name in sized if size < total / apart][-1:]
        larger = [name for size, name in sized if size > total * apart][:1]
        return (*smaller, *larger)

    def _link(self, profile: GpuProfile, path: Path) -> FabricProfile:
        """The fabric of an accelerator's link; that of a link that nobody measured where it has none."""
        if profile.link is None:
            return fabric_with("link", default_name("fabric", "link:"), self.fabric, None)
        return fabric_with("link", profile.link.kind, self.fabric, lambda: load_yaml(path).locate(("link", "kind")))

    def _donors(self, path: Path) -> list[Path]:
        """Accelerators that lend laws to the one in that file, nearest first: its lender, the lender's, and so on."""
        chain = [path]
        while (lender := self._lender(chain[-1])) and lender not in chain:
            chain.append(lender)
        return chain[1:]

    def _lender(self, path: Path) -> Path | None:
        """The accelerator that the one in that file borrows from.

        The one that it names; none where it lends to its own generation itself; else one that lends to its generation,
        to its vendor, or to any.
        """
        profile = self._gpu(path)
        if profile.borrows_from is not None:
            return self.path("gpu", profile.borrows_from, lambda: load_yaml(path).locate(("borrows_from",)))
        generation, vendor = profile.generation, profile.vendor
        if profile.lends_to and generation in profile.lends_to.generations:
            return None
        return (
            self._lends(generation, lambda to: generation in to.generations)
            or self._lends("vendors", lambda to: vendor in to.vendors)
            or self._lends("others", lambda to: to.others)
        )

    def _lends(self, word: str, lends: Callable[[LendsTo], bool]) -> Path | None:
        """The first accelerator whose offer has that word in it, and keeps what it says."""
        offers = ((path, self._gpu(path).lends_to) for path in self._gpus_with("lends_to", word))
        return next((path for path, offer in offers if offer and lends(offer)), None)

    def donors_of(self, name: str) -> tuple[str, ...]:
        """Names of the accelerators that lend laws to this one, nearest first. Raises InputError."""
        return tuple(path.stem for path in self._donors(self.path("gpu", name)))

    def suggested_gpus(self) -> tuple[str, ...]:
        """Names of the accelerators that advice proposes: by memory, and by bandwidth where that is the same."""
        profiles = [self._gpu(path) for path in self._gpus_with("suggested", "true")]
        marked = [each for each in profiles if each.suggested]
        found = [(round(each.memory_gib), each.memory_bandwidth_gb_per_s, each.name) for each in marked]
        return tuple(dict.fromkeys(name for _, _, name in sorted(found)))

    def measured_gpus(self) -> tuple[str, ...]:
        """Names of all accelerators but those that are announced, and that nobody has measured."""
        announced = {path.stem for path in self._gpus_with("announced", "true") if self._gpu(path).announced}
        return tuple(name for name in self.names("gpu") if name not in announced)

    def larger_gpus(self, gpu: Accelerator, factor: float) -> Iterator[Accelerator]:
        """Suggested accelerators with more than `factor` times the memory: those of the same segment first.

        Of one segment those of the same vendor first, each by memory.
        """
        suggested = map(self.accelerator, self.suggested_gpus())
        larger = [each for each in suggested if each.memory_bytes > factor * gpu.memory_bytes]
        yield from sorted(larger, key=lambda each: (each.segment != gpu.segment, each.vendor != gpu.vendor))

    def _gpus_with(self, key: str, word: str) -> list[Path]:
        """Files of accelerators that have a key, and a word; a look at their text spares reading the others."""
        kept = self._kept
        if not kept.gpu_texts:
            files = [file for place, _ in self.places("gpu") for file in sorted(place.glob("*.yaml"))]
            texts = {file: _text_of(file) for file in files}
            kept.gpu_texts = {file: text for file, text in texts.items() if "\npeak_tflops:" in text}
        wanted = re.compile(rf"\b{re.escape(word)}\b")
        return [file for file, text in kept.gpu_texts.items() if f"\n{key}:" in text and wanted.search(text)]

    def fabric(self, name: str, where: Where = None) -> FabricProfile:
        """The fabric of a profile name or path. Raises InputError."""
        return self.once("fabric", self.path("fabric", name, where), lambda path: load_fabric_profile(path, self))

    def server(self, name: str, where: Where = None) -> Server:
        """The server of a profile name or path, with its accelerator. Raises InputError."""
        return self.once("server", self.path("server", name, where), self._server)

    def _server(self, path: Path) -> Server:
        profile, document = self._server_profile(path)
        gpu = self.accelerator(profile.gpu, lambda: document.locate(("gpu",)))
        return server(profile, gpu, self.fabric, document.locate)

    def servers_built(self, accelerators: int, scale_up: str) -> Iterator[Server]:
        """Every server with so many accelerators on such a fabric; of the others the profile alone is read."""
        for name in self.names("server"):
            profile, _ = self._server_profile(self.path("server", name))
            if (profile.gpus, profile.scale_up.kind) == (accelerators, scale_up):
                yield self.server(name)

    def _server_profile(self, path: Path) -> tuple[ServerProfile, Document]:
        return self.once("server profile", path, load_server_profile)

    def bare_server(self, gpu: Accelerator, accelerators: int | None = None) -> Server:
        """A node around a bare accelerator, for scenarios that name a GPU and no server."""
        return bare_server(gpu, self.fabric, accelerators)

    def model(self, name: str, where: Where = None) -> ModelShape:
        """The model of a profile name, alias, path, repository on the Hub or config.json. Raises InputError."""
        return self.once("model", Path(name), lambda _: resolve_model(name, self, where, self.hub))


def _text_of(file: Path) -> str:
    """The text of a file that nobody asked for by name: what is wrong with it is not said here."""
    try:
        return read_text(file)
    except InputError:
        return ""


# Data sets and software. A name of software may end in a release (nemo@24.07), and any name may be the path of a file.


def load_dataset(name: str, where: Where = None, finder: Finder | None = None) -> DatasetProfile:
    """The data set profile of a name, or of a path. Raises InputError."""
    from xe_sizer.profiles.dataset import load_dataset_profile

    finder = finder or BUILT_IN
    return finder.once("dataset", finder.path("dataset", name, where), load_dataset_profile)


def load_optimizer(name: str, where: Where = None, finder: Finder | None = None) -> Optimizer:
    """The optimizer of a name. Raises InputError."""
    return load_inherited("optimizer", Optimizer, name, where, finder)


def load_quantiser(name: str, where: Where = None, finder: Finder | None = None) -> Quantiser:
    """The quantiser of a name. Raises InputError."""
    from xe_sizer.software.quantiser import Quantiser

    return load_inherited("quantiser", Quantiser, name, where, finder, _bits_given_twice)


def _bits_given_twice(quantiser: Quantiser, document: Document, _: Finder) -> Iterator[Problem]:
    for index, bits in enumerate(quantiser.bits):
        if bits in quantiser.bits[:index]:
            where = document.locate(("widths", index, "bits"))
            yield Problem(f"weights of {bits} bits are there already", where, "one row for each number of bits")


def load_engine(name: str, where: Where = None, finder: Finder | None = None) -> Engine:
    """The engine of a name. Raises InputError."""
    from xe_sizer.software.engine import Engine

    return load_inherited("engine", Engine, name, where, finder)


def default_engine(family: str = "", generation: str = "") -> str:
    """The engine where none is named: of a family of formats or a generation of accelerators, else the one for all."""
    engines = map(load_engine, BUILT_IN.names("engine"))
    made_for = (each.name for each in engines if family in each.families or generation in each.default_on)
    return next(made_for, default_name("engine"))


def load_stack(name: str, where: Where = None, finder: Finder | None = None) -> Stack:
    """The stack of a name, its weights loaded in the number format that is its default. Raises InputError."""
    made = finder.made("stack", name) if finder else None
    if isinstance(made, Stack):
        return made
    stack = load_inherited("stack", Stack, name, where, finder, _stack_problems)
    return stack.loaded_in(stack.defaults.weights_dtype) if stack.defaults.weights_dtype else stack


def _stack_problems(stack: Stack, document: Document, finder: Finder) -> Iterator[Problem]:
    """Names that nobody knows, sections that cannot be so, and defaults that the stack itself cannot do."""
    supports, defaults, locate = stack.supports, stack.defaults, document.locate
    yield from tuple(_malformed_choices(stack, document)) or _section_problems(stack, document)
    for key in ("weights_dtype", "quantised_weights_dtype"):
        dtype = getattr(defaults, key)
        if dtype is not None and dtype not in stack.weights_dtypes:
            hint = f"it has {', '.join(stack.weights_dtypes)}" if stack.loads else None
            yield Problem(f"'loads' does not say what weights in {dtype} take", locate(("defaults", key)), hint)
    if stack.lighter is not None and finder.find("stack", stack.lighter) is None:
        hint = finder.suggestion("stack", stack.lighter)
        yield Problem(f"unknown stack '{stack.lighter}'", locate(("lighter",)), hint)
    for index, name in enumerate(supports.optimizers):
        if name not in finder.names("optimizer"):
            where, hint = locate(("supports", "optimizers", index)), finder.suggestion("optimizer", name)
            yield Problem(f"unknown optimizer '{name}'", where, hint)
    for key in ("optimizer", "single_gpu_optimizer"):
        name = getattr(defaults, key)
        if name is not None and name not in supports.optimizers:
            hint = did_you_mean(name, supports.optimizers) or f"it has {', '.join(supports.optimizers)}"
            message = f"the default optimizer '{name}' is not among those that it supports"
            yield Problem(message, locate(("defaults", key)), hint)
    for zero in {*defaults.zero, defaults.usual_zero} - {None, *supports.zero}:
        message = f"the default ZeRO stage {zero} is not among those that it supports"
        yield Problem(message, locate(("defaults", "zero")))


def _section_problems(stack: Stack, document: Document) -> Iterator[Problem]:
    """Changes by number format, fused kernel or backend that the changed section of a stack cannot have."""
    if stack.backend is not None and stack.backends and stack.backend not in stack.runs_on:
        hint = did_you_mean(stack.backend, stack.runs_on) or f"it has {', '.join(stack.runs_on)}"
        yield Problem(f"the stack has no backend '{stack.backend}'", document.locate(("backend",)), hint)
    sections = {name: part for name in Stack.__struct_fields__ if isinstance(part := getattr(stack, name), Struct)}
    changed: list[tuple[tuple[str, ...], Struct, Mapping[str, Any]]] = []
    changed += [((LOADS, dtype), stack.states, changes) for dtype, changes in stack.loads.items() if changes]
    changed += [(("mixed_precision", word), stack.states, each) for word, each in (stack.mixed_precision or {}).items()]
    changed += [(("fused", kernel), stack.kernels, changes) for kernel, changes in stack.fused.items()]
    of_sections: list[tuple[tuple[str, ...], Any]] = [
        ((choice, word), each) for choice in GRADIENT_TYPES for word, each in (getattr(stack, choice) or {}).items()
    ]
    of_backends = {("backends", backend) for backend in stack.backends}
    for backend, changes_of in stack.backends.items():
        of_backend = dict(changes_of or {})
        loads = of_backend.pop(LOADS, {})
        changed += [(("backends", backend, LOADS, dtype), stack.states, each) for dtype, each in loads.items()]
        for choice in GRADIENT_TYPES:
            types = of_backend.pop(choice, {})
            of_sections += [(("backends", backend, choice, word), each) for word, each in types.items()]
        of_sections.append((("backends", backend), of_backend))
    for path, differs in of_sections:
        for name, changes in (differs or {}).items():
            if name in sections:
                changed.append(((*path, name), sections[name], changes))
            else:
                near = did_you_mean(name, (*sections, *(CHOICES_BY_FORMAT if path in of_backends else ())))
                yield Problem(f"'{path[-1]}' changes no '{name}'", document.locate((*path, name), key=True), near)
    for place, section, differs in changed:
        try:
            convert(to_builtins(section) | dict(differs), type(section), document.locate_below(place))
        except InputError as error:
            yield from error.problems


def _malformed_choices(stack: Stack, document: Document) -> Iterator[Problem]:
    """Choices of number formats that a backend has otherwise, in another form than a stack has them."""
    for backend, changes in stack.backends.items():
        for choice, form in CHOICES_BY_FORMAT.items():
            place = ("backends", backend, choice)
            try:
                convert((changes or {}).get(choice, {}), form, document.locate_below(place))
            except InputError as error:
                yield from error.problems


def has_optimizer(stack: Stack, name: str, finder: Finder | None = None) -> bool:
    """Whether a stack has an optimizer of that name; the files of others are read only where its own list lacks it."""
    return name in stack.supports.optimizers or name in optimizers_of(stack, finder)


def optimizers_of(stack: Stack, finder: Finder | None = None) -> tuple[str, ...]:
    """Every optimizer that a stack has: those of its own list, then those whose files name it or what it builds on.

    The root of all stacks has every optimizer that ships, for it is no software of its own. A stack whose list is that
    of its parent builds on the parent's software.
    """
    own = stack.supports.optimizers
    shipped = (name for name in BUILT_IN.names("optimizer") if name not in own)
    if stack.parent is None:
        return (*own, *shipped)
    line, each = {stack.name}, stack  # releases are of the same name
    while each.parent is not None:
        parent = load_stack(each.parent, finder=finder)
        if parent.parent is None or parent.supports.optimizers != own:
            break
        line.add(parent.name)
        each = parent
    return (*own, *(name for name in shipped if line & _stacks_by_optimizer()[name]))


@cache
def _stacks_by_optimizer() -> dict[str, frozenset[str]]:
    """The stacks that the file of each shipped optimizer names."""
    return {name: frozenset(load_optimizer(name).stacks) for name in BUILT_IN.names("optimizer")}


def stacks_with(way: str) -> tuple[str, ...]:
    """Shipped stacks that support something, such as tensor_parallel."""
    return tuple(name for name in BUILT_IN.names("stack") if getattr(load_stack(name).supports, way))


def relative_on_several_gpus(stack: Stack, finder: Finder) -> str | None:
    """The nearest stack above in the chain of parents that trains on several GPUs; None where there is none."""
    while stack.parent is not None:
        stack = load_stack(stack.parent, finder=finder)
        if stack.supports.several_gpus:
            return stack.name
    return None
