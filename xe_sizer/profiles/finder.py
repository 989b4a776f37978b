"""The one finder: names and paths to the files of every kind of profile, the user's before the built-in ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from xe_sizer.errors import InputError, Problem, did_you_mean, place_of
from xe_sizer.frozen import frozen
from xe_sizer.profiles.source import PATH_HINT, convert, load_yaml
from xe_sizer.profiles.text_file import at_home, read_text

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.profiles.spelling import Known

T = TypeVar("T")
PACKAGE = Path(__file__).resolve().parents[1]
LIST_HINT = "'xe-sizer profiles list' prints all"
FEW = 64  # names that a hint can list
_REPOSITORY = re.compile(r"(https?://)?((www\.)?huggingface\.co/|hf\.co/)?[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.:-]*/?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@frozen(eq=True)
class Kind:
    """One kind of profile.

    folder : where its files lie in a user's folder, and inside `home`
    home : what holds the built-in ones: the catalogue, or a folder of the package
    telling : keys at the top level that no other kind has, by which a file is known that lies anywhere
    scenario_key : of a scenario, that names a profile of the kind
    beside : files of the folder that are no profiles
    """

    name: str
    title: str
    folder: str
    home: str
    telling: frozenset[str]
    scenario_key: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def a_title(self) -> str:
        """The title after its article."""
        return f"{'an' if self.title[0] in 'aeio' else 'a'} {self.title}"

    @property
    def shipped(self) -> Path:
        """The folder of the built-in profiles."""
        return (built_in_folder() if self.home == CATALOGUE else PACKAGE / self.home) / self.folder


CATALOGUE = "catalogue"
_HARDWARE = ("gpu", "server")
RELEASED = ("stack", "engine")  # kinds of which a name may end in a release
ALIASES = "aliases"  # a table of other names, and the key of a profile that lists its own
_ALL = (
    Kind("gpu", "gpu", "gpu_profiles", CATALOGUE, frozenset({"peak_tflops", "memory_gib"}), "gpu"),
    Kind("server", "server", "gpu_profiles/servers", CATALOGUE, frozenset({"scale_up", "scale_out"}), "server"),
    Kind("fabric", "fabric", "gpu_profiles/fabrics", CATALOGUE, frozenset({"link", "node", "network"})),
    Kind("model", "model", "model_profiles", CATALOGUE, frozenset({"layers", "hidden"}), "model", (ALIASES,)),
    Kind("dataset", "data set", "datasets", "profiles", frozenset({"mean_tokens", "samples"}), "data.profile"),
    Kind(
        "stack", "stack", "stacks", "software",
        frozenset({"states", "overlap", "defaults", "supports", "expert_imbalance", "calibrated_on"}), "stack",
    ),
    Kind(
        "optimizer", "optimizer", "optimizers", "software",
        frozenset({"state", "host_bytes", "in_one_kernel", "paged", "newton_schulz_iterations"}), "optimizer",
    ),
    Kind("quantiser", "quantiser", "quantisers", "software", frozenset({"widths", "casts"}), "train.quantiser"),
    Kind(
        "engine", "engine", "engines", "software",
        frozenset({"batching", "exchanges", "narrow", "pipelined", "measured_as", "vendors"}), "serve.engine",
    ),
)  # fmt: skip
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
"""Every kind of profile, in the order in which lists show them. A row makes a kind known to finder and catalogue."""


def built_in_folder() -> Path:
    """Where the catalogue is: inside an installed package, else beside the package in a checkout."""
    catalogue = PACKAGE / CATALOGUE
    return catalogue if catalogue.is_dir() else PACKAGE.parent


class Finder:
    """Finds profiles by name; a folder given by the user wins over the built-in ones.

    A user's folder may have a subfolder for each kind (gpu_profiles/, gpu_profiles/servers/, model_profiles/,
    stacks/ ...) or hold the files directly. A name opens one file; folders are listed only to suggest a name or to
    print all.
    """

    def __init__(self, extra: Sequence[Path] = ()) -> None:
        self.user_folders = tuple(extra)
        # Advice and searches ask for the same few profiles many times.
        self._read: dict[tuple[str, Path], object] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._kinds: dict[Path, str | None] = {}
        self._known: dict[str, tuple[Known, ...]] = {}
        self.readings: dict[tuple[str, str], str] = {}
        """Kinds and names that were not those of a profile, with the profile that each was read as."""

    def path(self, kind: str, name: str, where: Where = None) -> Path:
        """The file of a name, or the path itself if `name` is one.

        Raises
        ------
        InputError    no such profile (with the nearest names), a name with characters that no profile has
        """
        row = KINDS[kind]
        if is_path(name):
            return _existing_file(name, row, where)
        found = self.find(kind, name, where)
        if found is None:
            possible = name.isascii() and name.isprintable() and re.search(r"\w", name) and ".." not in name
            message = f"unknown {row.title} '{name}'" if possible else f"'{name}' cannot be the name of {row.a_title}"
            raise InputError(Problem(message, place_of(where), self.suggestion(kind, name)))
        return found

    def find(self, kind: str, name: str, where: Where = None) -> Path | None:
        """The file of a profile's name, else of the one profile that the name can mean; None: nothing has that name.

        Raises
        ------
        InputError    a name that several profiles have, with what tells them apart
        """
        known = self._paths.get((kind, name))
        found = known or next(self.files(kind, name), None) or self._as_written(kind, name, where)
        return found and self._paths.setdefault((kind, name), found)

    def _as_written(self, kind: str, name: str, where: Where) -> Path | None:
        from xe_sizer.profiles.spelling import listed, meant  # most names are those of profiles

        known = self.known(kind)
        names = meant(kind, name, known)
        if len(names) > 1 and not self._of_another_kind(kind, name):
            message = f"'{name}' matches several {KINDS[kind].title}s"
            raise InputError(Problem(message, place_of(where), f"write {listed(names, known)}"))
        if len(names) != 1:
            return None
        self.readings[kind, name] = names[0]
        return next(self.files(kind, names[0]))

    def called(self, kind: str, name: str) -> str:
        """The name of the profile that another name was or can be read as; else the name itself."""
        if not is_path(name) or is_repository(name):
            with suppress(InputError):  # which whoever asks for the profile is told
                self.find(kind, name)
        return self.readings.get((kind, name), name)

    def known(self, kind: str) -> tuple[Known, ...]:
        """Every profile of a kind with its other names; reads the folders once."""
        if kind not in self._known:
            others = self._aliases_beside(kind)
            memory = {each.name: each.memory_gib for each in self.known("gpu")} if kind == "server" else {}
            found = ((name, _stated(next(self.files(kind, name)))) for name in self.names(kind))
            self._known[kind] = tuple(_known(name, stated, others.get(name, []), memory) for name, stated in found)
        return self._known[kind]

    def _aliases_beside(self, kind: str) -> dict[str, list[str]]:
        """Names in the tables of aliases by the profile that each stands for; the user's table wins."""
        tables = [place / f"{ALIASES}.yaml" for place, direct in self.places(kind) if not direct]
        targets: dict[str, str] = {}
        for table in tables if ALIASES in KINDS[kind].beside else ():
            targets = {**_rows(table), **targets}
        found: dict[str, list[str]] = {}
        for name, target in targets.items():
            found.setdefault(target, []).append(name)
        return found

    def files(self, kind: str, name: str) -> Iterator[Path]:
        """Every file of a name, the one that is used first."""
        plain = _plain(name)
        if plain is None or plain in KINDS[kind].beside:
            return
        for place, direct in self.places(kind):
            file = place / f"{plain}.yaml"
            # A file that states no kind is taken for the one asked for: its loader then says which keys it lacks.
            if file.is_file() and (not direct or self._stated_kind(file) in (None, kind)):
                yield file

    def made(self, kind: str, name: str) -> object | None:
        """A profile that stands in no file, for finders that have such; None: there is none of that name."""
        return None

    def is_users_own(self, kind: str, name: str) -> bool:
        """Whether a name or path is that of a file of the user's, not of a built-in one."""
        file = None if is_path(name) else next(self.files(kind, name), None)
        return is_path(name) or (file is not None and file.parent != KINDS[kind].shipped)

    def names(self, kind: str) -> tuple[str, ...]:
        """All names of a kind, sorted; lists the folders once."""
        if kind not in self._names:
            found = {file.stem for place, direct in self.places(kind) for file in self._listed(kind, place, direct)}
            self._names[kind] = tuple(sorted(found))
        return self._names[kind]

    def unused(self, kind: str) -> list[tuple[Path, Path]]:
        """Files of a kind that another of the same name keeps from being found, behind that other."""
        found = []
        for name in self.names(kind) if self.user_folders else ():
            used, *others = self.files(kind, name)
            found += [(used, other) for other in others]
        return found

    def unreadable(self) -> list[Path]:
        """Files directly in a user's folder that are no YAML as it is read here, so that nobody knows their kind."""
        found = []
        for file in (file for folder in self.user_folders for file in sorted(folder.glob("*.yaml"))):
            try:
                self.kind_of(file)
            except InputError:
                found.append(file)
        return found

    def once(self, kind: str, path: Path, make: Callable[[Path], T]) -> T:
        """What `make` makes of a file, made once."""
        if (kind, path) not in self._read:
            self._read[kind, path] = make(path)
        return cast(T, self._read[kind, path])

    def places(self, kind: str) -> list[tuple[Path, bool]]:
        """Folders that may hold profiles of a kind, and whether they may hold other kinds too."""
        row = KINDS[kind]
        user = [pair for folder in self.user_folders for pair in ((folder / row.folder, False), (folder, True))]
        return [*user, (row.shipped, False)]

    def suggestion(self, kind: str, name: str) -> str:
        """What to say to an unknown name: the kind that it is of, names that begin so, the nearest, or all."""
        from xe_sizer.profiles.spelling import plain as bare
        from xe_sizer.profiles.spelling import unsized

        plain = name.strip().lower()
        other = self._read_as_another_kind(kind, name)
        if other:
            row, found = KINDS[other[0]], other[1]
            return f"'{name}' is {row.a_title}: write {row.scenario_key}: {found if found != plain else name}"
        told = (self._several(name) if kind == "gpu" else None) or (unsized(name) if kind in _HARDWARE else None)
        if told:
            return told
        known = self.names(kind)
        begun = [f"'{each}'" for each in known if each.startswith(f"{plain}-")]
        if begun:
            return f"did you mean {' or '.join(begun)}? {LIST_HINT}"
        every = f"known {KINDS[kind].title}s: {', '.join(known)};" if 0 < len(known) <= FEW else ""
        spellings = [one for each in self.known(kind) for one in each.spellings if "/" not in one]
        among = spellings if ALIASES in KINDS[kind].beside else known  # those of a table are written as names are
        near = did_you_mean(plain.rstrip("/").rpartition("/")[2], among) or did_you_mean(bare(kind, name), among)
        return " ".join(part for part in (near or every, LIST_HINT) if part)

    def _several(self, name: str) -> str | None:
        """What to write for a number of accelerators and their name in one."""
        from xe_sizer.profiles.spelling import counted, listed, meant

        said, known = counted(name), self.known("gpu")
        found = meant("gpu", said[1], known) if said else ()
        if said is None or not found:
            return None
        number = f"the number is a value of its own: gpus: {said[0]} (--gpus {said[0]})"
        return f"write {found[0] if len(found) == 1 else listed(found, known)}; {number}"

    def _of_another_kind(self, kind: str, name: str) -> Kind | None:
        """The kind that has a profile of exactly that name, where it is another than the one asked for."""
        others = (other for other in KINDS.values() if other.name != kind and other.scenario_key)
        return next((other for other in others if name.strip().lower() in self.names(other.name)), None)

    def _read_as_another_kind(self, kind: str, name: str) -> tuple[str, str] | None:
        """Kind and name of the profile that a name means, where it is of another kind than the one asked for."""
        from xe_sizer.profiles.spelling import meant

        exact = self._of_another_kind(kind, name)
        if exact:
            return exact.name, name.strip().lower()
        others = (other.name for other in KINDS.values() if other.name != kind and other.scenario_key)
        found = ((other, meant(other, name, self.known(other))) for other in others)
        return next(((other, names[0]) for other, names in found if len(names) == 1), None)

    def kind_of(self, path: Path) -> str | None:
        """The kind of a file by the keys that it has, else by its parent; None where neither tells.

        Raises
        ------
        InputError    a file that cannot be read
        """
        if path not in self._kinds:
            value = load_yaml(path).value
            assert isinstance(value, dict)
            self._kinds[path] = None  # for a parent whose parent this file is
            told = (kind.name for kind in KINDS.values() if kind.telling & value.keys())
            self._kinds[path] = next(told, None) or self._kind_of_parent(
                str(value.get("parent")).partition("@")[0], path
            )
        return self._kinds[path]

    def _kind_of_parent(self, parent: str, child: Path) -> str | None:
        for kind in KINDS:
            if any((place / f"{parent}.yaml").is_file() for place, direct in self.places(kind) if not direct):
                return kind
        beside = (folder / f"{parent}.yaml" for folder in self.user_folders)
        found = (self.kind_of(file) for file in beside if file.is_file() and file != child)
        return next((kind for kind in found if kind), None)

    def _listed(self, kind: str, place: Path, direct: bool) -> Iterator[Path]:
        for file in place.glob("*.yaml"):
            named = _plain(file.stem) == file.stem and file.stem not in KINDS[kind].beside
            if named and (not direct or self._stated_kind(file) == kind):
                yield file

    def _stated_kind(self, file: Path) -> str | None:
        """The kind that a file states, or None where the file cannot be read or states none."""
        try:
            return self.kind_of(file)
        except InputError:
            return None


def _rows(table: Path) -> dict[str, str]:
    """A file of names, lower-cased here, and what they stand for; empty where there is none. Raises InputError."""
    if not table.is_file():
        return {}
    document = load_yaml(table)
    rows = convert(document.value, dict[str, str], document.locate)
    return {name.lower(): target for name, target in rows.items()}


_KEY = re.compile(r"^(vendor|gpu|gpus|memory_gib|aliases|default):(.*\n(?:[ -].*\n)*)", re.MULTILINE)


def _stated(file: Path) -> Mapping[str, Any]:
    """Keys of a profile that help to tell what a name means; a look at its text spares reading all of it."""
    try:
        text = "".join(match[0] for match in _KEY.finditer(read_text(file) + "\n"))
        stated = msgspec.yaml.decode(text) if text else {}
    except (InputError, msgspec.DecodeError):
        return {}  # whoever asks for the profile is told what is wrong with it
    return stated


def _known(name: str, stated: Mapping[str, Any], beside: Sequence[str], memory: Mapping[str, float]) -> Known:
    """A profile as names are compared with it. memory : of accelerators [GiB]"""
    from xe_sizer.profiles.spelling import Known

    gpu, own = str(stated.get("gpu", "")), stated.get(ALIASES)
    aliases = (*(map(str, own) if isinstance(own, list) else ()), *beside)
    size, gpus = stated.get("memory_gib", 0), stated.get("gpus", 0)
    return Known(
        name,
        aliases,
        vendor=str(stated.get("vendor", "")).lower(),
        memory_gib=memory.get(gpu, 0.0) or (float(size) if isinstance(size, int | float) else 0.0),
        gpu=gpu,
        gpus=gpus if isinstance(gpus, int) else 0,
        default=stated.get("default") is True,
    )


@cache
def default_name(kind: str, section: str = "") -> str:
    """The built-in profile that stands for its kind where none is named: its file says `default: true`.

    section : a key that the file has too, where profiles of the kind are of several uses
    """
    texts = ((name, BUILT_IN.path(kind, name).read_text(encoding="utf-8")) for name in BUILT_IN.names(kind))
    return next(name for name, text in texts if "\ndefault: true\n" in text and f"\n{section}" in text)


def is_repository(name: str) -> bool:
    """Whether a name can be that of a repository on the Hugging Face Hub: an owner and a name, or its address."""
    return _REPOSITORY.fullmatch(name) is not None and not name.lower().endswith((".yaml", ".yml", ".json"))


def is_path(name: str) -> bool:
    """Whether a profile is named by the path of its file."""
    return "/" in name or "\\" in name or name.lower().endswith((".yaml", ".yml", ".json"))


def _plain(name: str) -> str | None:
    """A name as files have it; None where no file can have it."""
    plain = name.strip().lower()
    return plain if _NAME.fullmatch(plain) and ".." not in plain else None


def _existing_file(name: str, kind: Kind, where: Where) -> Path:
    """The profile file at a path. Only YAML files are opened: messages quote what a wrong file holds."""
    path = at_home(name)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(
            Problem(f"'{name}' is not the path of {kind.a_title} profile", place_of(where), "profiles end in .yaml")
        )
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", place_of(where), PATH_HINT))
    return path


BUILT_IN = Finder()
