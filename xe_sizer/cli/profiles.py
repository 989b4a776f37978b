"""`xe-sizer profiles`: what is known, where it comes from, and whether your own files are sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from xe_sizer.cli.command import Invocation, answering, profile_folders
from xe_sizer.cli.options import ColorOption, FileOption, ProfilesOption
from xe_sizer.cli.output import (
    Target,
    check_choice,
    one_file,
    one_line,
    output_from,
    print_problems,
    write_stderr,
    write_texts,
)
from xe_sizer.cli.schema import SCHEMAS, schema_of
from xe_sizer.cli.text import TextCommand, TextGroup
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_OK, InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.profiles.catalogue import Registry, load_dataset, load_engine, load_optimizer, load_quantiser, load_stack
from xe_sizer.profiles.finder import (
    INHERITS,
    KINDS,
    LIST_HINT,
    RELEASED,
    Finder,
    is_path,
    is_repository,
    read_inherited,
    releases,
)
from xe_sizer.profiles.hub import CONFIG, Hub, asked_hub, published_on_hub, published_parameters, repository_of
from xe_sizer.profiles.installed import TOOLS, host_memory_bytes, installed_accelerators, installed_cards, processor
from xe_sizer.profiles.server import usual_scale_out
from xe_sizer.profiles.text import YAML_ENDINGS, at_home, read_text
from xe_sizer.profiles.yaml_reader import Document as YamlDocument
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.report.document import Block, Column, Document, Fact, Facts, Options, Step, Steps, Table
from xe_sizer.report.format import clean, given, plural
from xe_sizer.report.formats import json
from xe_sizer.report.registry import formats
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import Profiles
from xe_sizer.software.number_formats import format_of
from xe_sizer.software.release import Release, split_release
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

# What `xe-sizer profiles` knows about profile files: their key figures, sources and checks.

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
        return find_kind(registry, Path(name)), Path(name)
    for kind in KINDS:
        found = next(registry.files(kind, name), None)
        if found:
            return kind, found
    repository = is_path(name)
    for kind in (kind for kinds in _ASKED_FOR for kind in kinds if kind == "model" or not repository):
        found = registry.find(kind, name)
        if found:
            return kind, found
    bare, release = split_release(name)
    if release is not None and not repository:
        for kind in RELEASED:
            if released := registry.find(kind, bare):
                return kind, released
    raise InputError(Problem(f"there is no profile '{name}'", hint=_near(registry, name) or LIST_HINT))


def _near(registry: Registry, name: str) -> str | None:
    """The nearest names of the kinds that people ask for most, else of the others."""
    known = ([each for kind in kinds for each in registry.names(kind)] for kinds in _ASKED_FOR)
    return next((hint for names in known if (hint := did_you_mean(name, names))), None)


def show_document(kind: str, path: Path, finder: Finder | None = None) -> Document:
    """Every figure of a profile with where it comes from; of an accelerator those that it inherits too."""
    document = load_yaml(path)
    value = document.value
    assert isinstance(value, dict)
    notes = _Footnotes()
    facts = tuple(_facts(value, value, (), notes))
    blocks: list[Block] = [Facts("Figures", facts)]
    sources = tuple(Fact(key, text) for key, text in _leaves(value.get("source"), ()))
    if sources:
        blocks.append(Facts("Source, where no other is marked", sources))
    if (heir := KINDS[kind].heir) == INHERITS and value.get(heir):
        blocks.append(_inherited(document, kind, finder or Finder()))
    if older := releases(document):
        blocks.append(_releases(path.stem, older))
    if notes.texts:
        blocks.append(Facts("Other sources", tuple(Fact(mark, text) for text, mark in notes.texts.items())))
    return Document(path.stem, True, f"{kind} profile {path}", (), tuple(blocks))


def _inherited(document: YamlDocument, kind: str, finder: Finder) -> Facts:
    """The figures that a file leaves to the one that it inherits from."""
    own: Any = document.value
    whole = read_inherited(document, kind, finder)
    stated = {key for key, _ in _leaves(own, ())}
    rest = ((key, text) for key, text in _leaves(whole, ()) if key not in stated and not _is_provenance(key))
    return Facts(f"Inherited from {clean(own[INHERITS])}", tuple(Fact(clean(key), text) for key, text in rest))


def _is_provenance(key: str) -> bool:
    return not _PROVENANCE.isdisjoint(key.split("."))


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


def find_kind(registry: Registry, path: Path) -> str:
    """Find the kind of a profile file by what it holds. Raises InputError if that is no profile."""
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


app = typer.Typer(
    cls=TextGroup,
    add_completion=False,
    no_args_is_help=True,
    help="List, show and validate profiles; print JSON Schemas.",
)
SOURCE = "yaml"  # the format of `profiles show` that is the file as it stands
ShowFormatOption = Annotated[
    str | None,
    typer.Option("--format", "-f", metavar="FORMAT", help="table, markdown, html, json, or yaml: the file itself."),
]
KindArgument = Annotated[
    str | None,
    typer.Argument(metavar="|".join(KINDS), help="Only this kind, or a part of a name."),
]
PartArgument = Annotated[str | None, typer.Argument(metavar="PART", help="Only names with PART in them.")]


@app.command("list", cls=TextCommand, help="List profiles with their key figures.")
@answering(without=("download", "brief", "explain", "exit_zero"))
def list_command(*, kind: KindArgument = None, part: PartArgument = None, how: Invocation) -> int:
    if kind is not None and part is not None:
        check_choice("profiles list", kind, tuple(KINDS))
    kinds = (kind,) if kind in tuple(KINDS) else tuple(KINDS)
    wanted = part or ("" if kind is None or kind in tuple(KINDS) else kind)
    found, problems = entries(how.registry, kinds, wanted)
    code = how.write(found)
    if problems:
        print_problems(problems)
        write_stderr("note: files with problems are not listed; 'xe-sizer profiles validate' checks them")
    _say_unused(how.registry, kinds)
    return code


def _say_unused(registry: Registry, kinds: Iterable[str]) -> None:
    """Names that several files have, to stderr."""
    for kind in kinds:
        for used, unused in registry.unused(kind):
            write_stderr(f"note: {kind} '{used.stem}' is {used}; {unused} is not used")


@app.command("show", cls=TextCommand, help="Show every figure of a profile with its source.")
def show_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A name, an alias or a file.")] = None,
    profiles: ProfilesOption = None,
    format_: ShowFormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    if name is None:
        raise InputError(Problem("a profile name is missing", hint="'xe-sizer profiles list' prints all"))
    registry = Registry(profile_folders(profiles, os.environ))
    kind, path = locate(registry, name)
    file = one_file(output)
    _check_showable(format_, file)
    if format_ == SOURCE or (format_ is None and file is not None and file.suffix.lower() in YAML_ENDINGS):
        write_texts([(file, read_text(path))])
        return EXIT_OK
    write_texts(
        (target.file, target.format.render(_shown(kind, path, target, registry), target.options(color)))
        for target in output_from(format_, output, color).targets
    )
    return EXIT_OK


def _shown(kind: str, path: Path, target: Target, registry: Registry) -> Any:
    """What the format lays out: all that the file says, or a document of it."""
    return load_yaml(path).value if target.format.whole else show_document(kind, path, registry)


def _check_showable(format_: str | None, file: Path | None) -> None:
    """A profile has neither verdicts nor rows, but its own file. Raises InputError for any other format or ending."""
    showing = [each for each in formats() if each.shows in ("answer", "document")]
    if format_ is not None:
        names = sorted((*(each.name for each in showing), SOURCE))
        if format_ not in names:
            hint = did_you_mean(format_, names) or f"one of {', '.join(names)}"
            raise InputError(Problem(f"'{format_}' cannot show a profile", Location("--format"), hint))
    elif file is not None and file.suffix:
        endings = sorted((*(ending for each in showing for ending in each.endings), *YAML_ENDINGS))
        if file.suffix.lower() not in endings:
            hint = f"known are {', '.join(endings)}; or name a format with --format"
            message = f"a profile cannot be shown in a file with the ending '{file.suffix}'"
            raise InputError(Problem(message, Location("--output"), hint))


@app.command("add", cls=TextCommand, help="Write profiles of models from their Hugging Face configurations.")
def add_command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="HUB-ID|PATH", help="Repositories on the Hub, config.json files or folders of them."),
    ] = None,
    profiles: ProfilesOption = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What to call the model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> int:
    if not sources:
        hint = "xe-sizer profiles add --profiles my OWNER/REPOSITORY"
        raise InputError(Problem("a repository or the path of a config.json is missing", hint=hint))
    if name is not None and len(sources) > 1:
        raise InputError(Problem(f"one name for {len(sources)} models", Location("--name")))
    folder = _own_folder(profiles, os.environ)
    texts, told = _added_files(sources, name, folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    write_texts(texts.items())
    registry = Registry((folder,))
    for file in texts:
        check(registry, "model", file)
        total, active = (_at(load_yaml(file).value, f"parameters.{key}") for key in ("total", "active"))
        print(f"{file}: {total:,} parameters" + (f", {active:,} active" if active != total else ""))
    for line in told:
        write_stderr(f"note: {one_line(line)}")
    return EXIT_OK


def _added_files(
    sources: Sequence[str], name: str | None, folder: Path, force: bool
) -> tuple[dict[Path, str], list[str]]:
    """Files with their texts, and what to tell of them. Raises InputError with every problem of every source."""
    hub = asked_hub(os.environ, True, write_stderr)
    shipped = Finder().names("model")
    texts: dict[Path, str] = {}
    told: list[str] = []
    problems: list[Problem] = []
    for source in sources:
        with collecting(problems):
            file, text, notes = _added(source, name, folder, hub)
            if file in texts:
                raise InputError(Problem(f"{source} has the name of another model here", Location(str(file))))
            if file.exists() and not force:
                raise InputError(Problem("this file is there already", Location(str(file)), "--force writes over it"))
            texts[file] = text
            told += [f"{file.stem}: {note}" for note in notes]
            if file.stem in shipped:
                told.append(f"{file.stem}: with this folder, the model of this name that ships is not used")
    if problems:
        raise InputError(problems)
    return texts, told


def _own_folder(folders: Sequence[str] | None, environment: Mapping[str, str]) -> Path:
    """The first folder of the user's own profiles, which need not be there yet. Raises InputError: none is named."""
    named = [*(folders or ()), *environment.get("XE_SIZER_PROFILES", "").split(os.pathsep)]
    first = next((name for name in named if name.strip()), None)
    if first is None:
        raise InputError(Problem("no folder of your own profiles", Location("--profiles"), "as in --profiles my"))
    folder = Path(first)
    if folder.exists() and not folder.is_dir():
        raise InputError(Problem(f"'{first}' is not a folder", Location("--profiles")))
    inner = folder / KINDS["model"].folder
    return inner if inner.is_dir() else folder


def _added(source: str, name: str | None, folder: Path, hub: Hub) -> tuple[Path, str, tuple[str, ...]]:
    """The file of a model, its text, and what to tell of it. Raises InputError: no such model, or an unknown kind."""
    from xe_sizer.profiles.write import profile_from_config, profile_text

    config = at_home(source)
    config = config / CONFIG if config.is_dir() else config
    repository = None if config.is_file() or config.suffix.lower() == ".json" else repository_of(source)
    if repository:
        config = hub.config(repository, Location(source)) or config
        published = published_on_hub(repository, hub.cache, config)
    else:
        published = published_parameters(config)
    if not config.is_file():
        hint = f"name a repository as OWNER/NAME, a {CONFIG} or a folder that has one"
        raise InputError(Problem(f"no such file: {config}", Location(source), hint))
    profile, notes = profile_from_config(config, repository, published, datetime.now(UTC).date().isoformat(), name)
    return folder / f"{profile['name']}.yaml", profile_text(profile), notes


@app.command(
    "detect", cls=TextCommand, help="Name this machine's GPUs, their profile, or the command that measures one."
)
def detect_command(
    profiles: ProfilesOption = None,
    format_: ShowFormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    registry = Registry(profile_folders(profiles, os.environ))
    file = one_file(output)
    _check_showable(format_, file)
    if format_ == SOURCE:
        raise InputError(Problem("a machine has no file", Location("--format"), "json has all of it"))
    found = detected(registry)
    write_texts(
        (target.file, target.format.render(found if target.format.whole else _machine(found), target.options(color)))
        for target in output_from(format_, output, color).targets
    )
    return EXIT_OK


def detected(registry: Registry) -> dict[str, Any]:
    """What the machine at hand has, and the profile that fits each kind of card best; None: none does."""
    cards, known = installed_cards(), installed_accelerators()
    kinds: list[dict[str, Any]] = []
    for name, count in (known,) if known else ():
        card = next((card for card in cards if name.startswith(card.name)), None)
        path = registry.find("gpu", name)
        measured = registry.accelerator(path.stem).measured if path else None
        kinds.append({
            "name": name,
            "gpus": count,
            "memory_gib": card and round(card.memory_bytes / GIB, 2),
            "used_gib": card and round(card.used_bytes / GIB, 2),
            "power_limit_w": card and card.power_limit_w,
            "bus": card and card.pcie and {"gen": card.pcie[0], "lanes": card.pcie[1]},
            "link": card.link if card else "",
            "driver": card.driver if card else "",
            "profile": path.stem if path else None,
            "measured": measured.date if measured else None,
        })  # fmt: skip
    memory = host_memory_bytes()
    host_gib = round(memory / GIB, 1) if memory else None
    return {"schema_version": SCHEMA_VERSION, "gpus": kinds, "processor": processor(), "host_memory_gib": host_gib}


def _machine(found: Mapping[str, Any]) -> Document:
    """The machine with what to do next."""
    facts = [Fact("processor", found["processor"])]
    if found["host_memory_gib"]:
        facts.append(Fact("host memory", f"{given(found['host_memory_gib'])} GiB: --host-memory-gib"))
    blocks: list[Block] = []
    steps = []
    for kind in found["gpus"]:
        labels = {"memory_gib": "memory [GiB]", "used_gib": "used [GiB]", "power_limit_w": "power limit [W]"}
        rows = [Fact(label, _text(kind[key])) for key, label in labels.items() if kind[key] is not None]
        if kind["bus"]:
            rows.append(Fact("PCIe", f"generation {kind['bus']['gen']}, {kind['bus']['lanes']} lanes"))
        rows += [Fact(key, kind[key]) for key in ("link", "driver") if kind[key]]
        profile = kind["profile"] or "none has this name"
        rows.append(Fact("profile", f"{profile}, measured here on {kind['measured']}" if kind["measured"] else profile))
        blocks.append(Facts(f"{kind['gpus']} x {clean(kind['name'])}", tuple(rows)))
        if kind["profile"]:
            steps.append(Step("size a job for it", "", "xe-sizer estimate job.yaml --gpu auto"))
        if not kind["measured"]:
            steps.append(Step("measure it", "", "xe-sizer measure -o measured"))
    blocks.append(Facts("Host", tuple(facts)))
    if not found["gpus"]:
        steps.append(Step("measure the processor in place of a GPU", "", "xe-sizer measure --device cpu -o measured"))
    blocks.append(Steps("What next", tuple(steps)))
    names = [f"{kind['gpus']} x {clean(kind['name'])}" for kind in found["gpus"]]
    asked = " and ".join(command[0] for command, _ in TOOLS)
    headline = ", ".join(names) or f"no accelerator: asked {asked}"
    return Document("DETECTED", True, headline, (), tuple(blocks))


@app.command("validate", cls=TextCommand, help="Check profile files as an estimate would read them.")
def validate_command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE|all", help="Files, or all that are known.")] = None,
    profiles: ProfilesOption = None,
) -> int:
    if not files:
        raise InputError(Problem("a file is missing", hint="xe-sizer profiles validate all"))
    registry = Registry(profile_folders(profiles, os.environ))
    paths: list[tuple[str | None, Path]] = [(None, Path(name)) for name in files]
    if files == ["all"]:
        paths = [(kind, registry.path(kind, name)) for kind in KINDS for name in registry.names(kind)]
        paths += [(None, file) for file in registry.unreadable()]
    bad = 0
    for kind, path in paths:
        try:
            check(registry, kind or find_kind(registry, path), path)
        except InputError as error:
            print_problems(error.problems)
            bad += 1
    if files == ["all"]:
        _say_unused(registry, KINDS)
    print(f"{plural(len(paths), 'profile')} read, {bad} with problems")
    return EXIT_BAD_INPUT if bad else EXIT_OK


@app.command("schema", cls=TextCommand, help="Print the JSON Schema of a kind of file, for editors and CI.")
def schema_command(
    what: Annotated[str | None, typer.Argument(metavar="KIND", help=f"{', '.join(SCHEMAS)}.")] = None,
    output: FileOption = None,
) -> int:
    if what is None:
        raise InputError(Problem("a kind of file is missing", hint=f"one of {', '.join(SCHEMAS)}"))
    kind = check_choice("profiles schema", what, SCHEMAS)
    file = one_file(output)
    if file is not None and file.suffix and file.suffix.lower() not in json.ENDINGS:
        hint = f"a schema is JSON; known is {', '.join(json.ENDINGS)}"
        raise InputError(Problem(f"a schema cannot have the ending '{file.suffix}'", Location("--output"), hint))
    write_texts([(file, json.render(schema_of(kind), Options()))])
    return EXIT_OK
