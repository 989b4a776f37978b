"""What `xe-sizer profiles` knows about profile files: their key figures, sources and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.profiles.dataset import load_dataset
from xe_sizer.profiles.finder import KINDS, LIST_HINT, RELEASED, is_path, is_repository
from xe_sizer.profiles.inherited import Release, of_release, read_inherited, releases
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.server import usual_scale_out
from xe_sizer.profiles.source import load_yaml
from xe_sizer.report.document import Block, Column, Document, Fact, Facts, Table
from xe_sizer.report.format import clean, given
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.profiles import Profiles
from xe_sizer.software.engine import load_engine
from xe_sizer.software.number_formats import format_of
from xe_sizer.software.optimizer import load_optimizer
from xe_sizer.software.quantiser import load_quantiser
from xe_sizer.software.stack import load_stack

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

_FIGURES: dict[str, tuple[str, ...]] = {
    "gpu": (
        "vendor",
        "memory_gib",
        "memory_bandwidth_gb_per_s",
        "peak_tflops.bf16",
        "peak_tflops.fp16",
        "link.one_way_gb_per_s",
        "tdp_w",
    ),
    "server": ("vendor", "gpu", "gpus", "scale_up.kind", "scale_out.nics", "scale_out.gbit_per_s"),
    "model": ("family", "parameters.total", "parameters.active", "layers", "hidden", "max_positions"),
    "fabric": ("describes", "link.ring_share", "node.topology", "network.rate_share"),
    "dataset": ("samples", "mean_tokens", "max_tokens"),
    "stack": ("parent", "describes"),
    "optimizer": ("parent", "describes"),
    "quantiser": ("parent", "describes"),
    "engine": ("parent", "describes"),
}
# What a name without a kind may be meant as, likeliest first. Names of fabrics are those of parts: one is `none`.
_ASKED_FOR = (("model", "gpu", "server"), ("stack", "engine", "optimizer", "quantiser", "dataset"))
_PROVENANCE = frozenset({"source", "sources", "assumed"})


def entries(registry: Registry, kinds: tuple[str, ...], part: str) -> tuple[Profiles, tuple[Problem, ...]]:
    """Profiles of `kinds` whose name has `part` in it, and what is wrong with those that cannot be read.

    Raises
    ------
    InputError    no such name; all that have it cannot be read
    """
    wanted = part.lower()
    found = [(kind, name) for kind in kinds for name in registry.names(kind) if wanted in name]
    if not found:
        known = [name for kind in kinds for name in registry.names(kind)]
        hint = (did_you_mean(part, kinds) if len(kinds) > 1 else None) or did_you_mean(part, known)
        raise InputError(Problem(f"no profile has '{part}' in its name", hint=hint))
    rows: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for kind, name in found:
        with collecting(problems):
            rows.append({"kind": kind, "name": name} | _entry(registry, kind, name))
    if not rows:
        raise InputError(problems)
    return Profiles(schema_version=SCHEMA_VERSION, profiles=tuple(rows)), tuple(problems)


def _entry(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    value = read_inherited(load_yaml(registry.path(kind, name)), kind, registry)
    figures = {key.replace(".", "_"): _at(value, key) for key in _FIGURES[kind]}
    return figures | _network(registry, figures) if kind == "server" else figures


def _network(registry: Registry, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The network of a server; what is usual for such a node where its profile does not say."""
    nics, rate = figures["scale_out_nics"], figures["scale_out_gbit_per_s"]
    assumed = rate is None
    if assumed:
        gpu = registry.accelerator(figures["gpu"])
        usual = usual_scale_out(gpu, figures["gpus"], registry.fabric(figures["scale_up_kind"]).node_fabric())
        nics, rate = usual.nics, usual.gbit_per_s
    return {"scale_out_nics": nics or 1, "scale_out_gbit_per_s": rate, "scale_out_assumed": assumed}


def _at(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def locate(registry: Registry, name: str) -> tuple[str, Path]:
    """Kind and file of a name as people write it, with or without a release, or of a path. Raises InputError."""
    if is_path(name) and (Path(name).exists() or not is_repository(name)):
        return kind_of(registry, Path(name)), Path(name)
    for kind in KINDS:
        found = next(registry.files(kind, name), None)
        if found:
            return kind, found
    repository = is_path(name)
    for kind in (kind for kinds in _ASKED_FOR for kind in kinds if kind == "model" or not repository):
        found = registry.find(kind, name)
        if found:
            return kind, found
    bare, release = of_release(name)
    if release is not None and not repository:
        for kind in RELEASED:
            if released := registry.find(kind, bare):
                return kind, released
    raise InputError(Problem(f"there is no profile '{name}'", hint=_near(registry, name) or LIST_HINT))


def _near(registry: Registry, name: str) -> str | None:
    """The nearest names of the kinds that people ask for most, else of the others."""
    known = ([each for kind in kinds for each in registry.names(kind)] for kinds in _ASKED_FOR)
    return next((hint for names in known if (hint := did_you_mean(name, names))), None)


def show_document(kind: str, path: Path) -> Document:
    """Every figure of a profile with where it comes from."""
    document = load_yaml(path)
    value = document.value
    assert isinstance(value, dict)
    notes = _Footnotes()
    facts = tuple(_facts(value, value, (), notes))
    blocks: list[Block] = [Facts("Figures", facts)]
    sources = tuple(Fact(key, text) for key, text in _leaves(value.get("source"), ()))
    if sources:
        blocks.append(Facts("Source, where no other is marked", sources))
    if older := releases(document):
        blocks.append(_releases(path.stem, older))
    if notes.texts:
        blocks.append(Facts("Other sources", tuple(Fact(mark, text) for text, mark in notes.texts.items())))
    return Document(path.stem, True, f"{kind} profile {path}", (), tuple(blocks))


def _releases(name: str, rows: Sequence[Release]) -> Table:
    """What older releases did otherwise, the newest first; one row for each key."""
    columns = (Column("Before"), Column("Key"), Column("Was"), Column("Source"))
    cells: list[tuple[str, ...]] = []
    for row in rows:
        release = f"{row.before} ({row.dated})" if row.dated else row.before
        first = (release, clean(row.source))
        for key, text in _set(row.differs, ()):
            cells.append((first[0], clean(key), text or "not there", first[1]))
            first = ("", "")
    note = f"a release is written behind the name: {name}@{rows[-1].month}"
    return Table("Releases", columns, tuple(cells), note=note)


def _set(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Leaves of nested tables by their dotted keys, those that are null too."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _set(item, (*path, str(key)))
    else:
        yield ".".join(path), _text(value)


class _Footnotes:
    """Texts, each with the mark that stands for it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def mark(self, text: str) -> str:
        return self.texts.setdefault(text, f"[{len(self.texts) + 1}]") if text else ""


def _facts(
    root: Mapping[str, Any], group: Mapping[str, Any], path: tuple[str, ...], notes: _Footnotes
) -> Iterator[Fact]:
    """Figures below `group`; the origin marks the figure's own source, else that of its group."""
    for key, item in group.items():
        here = (*path, key)
        dotted = ".".join(here)
        if key in _PROVENANCE or (key in ("name", "releases") and not path):
            continue
        if isinstance(item, Mapping):
            yield from _facts(root, item, here, notes)
            continue
        assumed = "assumed" if {dotted, here[0]} & set(root.get("assumed") or ()) else ""
        own = (root.get("sources") or {}).get(dotted) or (group.get("source") if path else "")
        origin = " ".join(part for part in (notes.mark(_text(own)), assumed) if part)
        yield Fact(clean(dotted), _text(item), origin)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif value is not None:
        yield ".".join(path) or "source", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return given(value) if isinstance(value, int | float) else clean(value or "")


def kind_of(registry: Registry, path: Path) -> str:
    """The kind of a profile file: by what it holds. Raises InputError if that is no profile."""
    found = registry.kind_of(path)
    if found is None:
        told = "; ".join(f"{kind.a_title} has {' or '.join(sorted(kind.telling))}" for kind in KINDS.values())
        raise InputError(Problem("this is no profile of a known kind", Location(str(path)), told))
    return found


def check(registry: Registry, kind: str, path: Path) -> None:
    """Load a profile as an estimate would. Raises InputError with every problem."""
    _LOADERS[kind](str(path.resolve()), registry)


def _load_model(path: str, registry: Registry) -> ModelShape:
    """A model, whose weights are published in a format that is known. Raises InputError."""
    model = registry.model(path)
    try:
        if model.checkpoint_format:
            format_of(model.checkpoint_format)
    except InputError as error:
        place = load_yaml(Path(path)).locate(("checkpoint_format",))
        raise InputError(replace(problem, location=place) for problem in error.problems) from None
    return model


_LOADERS: dict[str, Callable[[str, Registry], object]] = {
    "gpu": lambda path, registry: registry.accelerator(path),
    "server": lambda path, registry: registry.server(path),
    "fabric": lambda path, registry: registry.fabric(path),
    "model": _load_model,
    "dataset": lambda path, registry: load_dataset(path, None, registry),
    "stack": lambda path, registry: load_stack(path, None, registry),
    "optimizer": lambda path, registry: load_optimizer(path, None, registry),
    "quantiser": lambda path, registry: load_quantiser(path, None, registry),
    "engine": lambda path, registry: load_engine(path, None, registry),
}
