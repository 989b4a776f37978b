"""A foreign file: what kind of text it is, what it says, and the files that it names."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import field

from xe_sizer.errors import InputError, Location
from xe_sizer.immutable import Immutable
from xe_sizer.interop.readers.documents import flat
from xe_sizer.interop.values import Written
from xe_sizer.profiles.text import MAX_FILE_BYTES, MAX_JOB_BYTES, STDIN, name_of, pasted, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from xe_sizer.interop.draft import Draft, Table
    from xe_sizer.interop.readers.python import Module
    from xe_sizer.interop.readers.shell_script import Script
    from xe_sizer.interop.values import Keys
    from xe_sizer.profiles.yaml_reader import Document

Kind = Literal["yaml", "json", "toml", "python", "shell"]
KINDS: Mapping[str, Kind] = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python", ".ipynb": "python",
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell", ".sub": "shell", ".zsh": "shell",
}  # fmt: skip
"""Endings of files that are read, each with what the text is."""
NOTEBOOK = ".ipynb"  # most of which may be pictures
COMPANIONS = frozenset({".yaml", ".yml", ".json", ".toml"})
"""Endings of files that a file may name and that are read with it."""
PYTHON = ".py"
"""Ending of scripts that launch scripts start."""
_MOST_FOLDERS = 300
_LEVELS_DOWN = 8
_LEVELS_UP = 4  # folders above a file in which the files that it names are looked for


class Source(Immutable):
    """A file as text; its documents, script or module are read when they are asked for.

    path : the file; `-` is stdin
    given : values of variables that were passed, by name
    beside : texts of files beside this one that are not on disk, by name
    service : which of the model servers of the file is read, from 0; None: the first, or the one that `given` names
    """

    path: Path
    kind: Kind
    text: str
    given: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    service: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def start(self) -> Location:
        """The file as a place, for what stands nowhere in particular."""
        return Location(self.name)

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Documents of a YAML, JSON or TOML file; none of other kinds. Raises InputError: broken text."""
        if self.kind == "yaml":
            from xe_sizer.profiles.yaml_reader import documents_of

            return documents_of(self.path, self.text)
        if self.kind == "json":
            from xe_sizer.interop.readers.documents import read_json

            return (read_json(self.path, self.text),)
        if self.kind == "toml":
            from xe_sizer.interop.readers.documents import read_toml

            return (read_toml(self.path, self.text),)
        return ()

    @cached_property
    def keys(self) -> Keys:
        """Dotted keys of the first document; none where it is no group of keys."""
        first = flat(self.documents[0]) if self.documents else {}
        return {key: Written(value, where) for key, (value, where) in first.items()}

    @cached_property
    def script(self) -> Script | None:
        """The commands of a shell script; None of other kinds. Raises InputError: more than is read."""
        if self.kind != "shell":
            return None
        from xe_sizer.interop.readers.shell_script import read_script

        try:
            return read_script(self.text, self.name, self.given, self.text_beside)
        except InputError:
            if self.path == STDIN or self.path.suffix.lower() in KINDS or self.text.lstrip().startswith("#!"):
                raise
            return None  # a text without an ending, which may be anything

    @cached_property
    def module(self) -> Module | None:
        """The values of a Python file or notebook; None of other kinds. Raises InputError: broken or too large."""
        if self.kind != "python":
            return None
        from xe_sizer.interop.readers.python import modules_near, read_python

        return read_python(self.text, self.name, self.given, modules_near(self.path))

    def text_beside(self, name: str) -> str | None:
        """The text of a file that this one names, whatever its ending; None where it is not found near it."""
        if name in self.beside:
            return self.beside[name]
        file = self._file(Path(name))
        try:
            return read_text(file) if file is not None else None
        except InputError:
            return None

    def companion(self, name: object, endings: Container[str] = COMPANIONS) -> Source | None:
        """A file that this one names, a configuration unless others are asked for; None where it is not found.

        It is looked for from the folder of this file, from those above it, from the folders beside it and from the
        working folder, as tools are started from several of these.
        """
        named = Path(str(name))
        if str(name) in self.beside:
            text = self.beside[str(name)]
            return Source(named, guess_kind(named, text), text, self.given)
        file = self._file(named) if named.suffix.lower() in endings else None
        return open_source(file, self.given) if file is not None else None

    def _file(self, named: Path) -> Path | None:
        """The nearest file of a name, which may be a path.

        A path never leads out of the folders that are looked through, nor does a link: of an absolute path, which may
        be one of another machine, the last parts are looked for.
        """
        inside = [part for part in named.parts if part not in ("..", ".", named.anchor)]
        names = [Path(*inside[start:]) for start in range(len(inside) if named.is_absolute() else 1) if inside]
        for folder in self._folders():
            for name in names:
                with suppress(OSError, ValueError):
                    if (folder / name).is_file() and self._is_inside(folder / name):
                        return folder / name
        found = None if self.path == STDIN or not names else _only_one_below(self.path.parent, names[0])
        return found if found is not None and self._is_inside(found) else None

    def _is_inside(self, file: Path) -> bool:
        """Whether a file lies in the folders that are looked through when all links are followed."""
        target = file.resolve()
        return any(target.is_relative_to(folder) for folder in (*self._above(), Path.cwd().resolve()))

    def _folders(self) -> Iterator[Path]:
        here = Path.cwd() if self.path == STDIN else self.path.parent
        yield here
        yield from self._above()[1:]
        yield from _below(here)
        yield Path.cwd()

    def _above(self) -> list[Path]:
        """The folder of the file and those above it, but for that of the whole machine."""
        here = (Path.cwd() if self.path == STDIN else self.path.parent).resolve()
        return [here, *(folder for folder in here.parents[:_LEVELS_UP] if folder != Path(folder.anchor))]


def _below(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []


def _only_one_below(folder: Path, name: Path) -> Path | None:
    """The file of a name in the folders below one, where there is just one and they are few."""
    found: list[Path] = []
    waiting = deque((each, 1) for each in _below(folder))
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return found[0] if len(found) == 1 else None
        below, level = waiting.popleft()
        with suppress(OSError, ValueError):
            found += [below / name] if (below / name).is_file() else []
        waiting.extend((each, level + 1) for each in (_below(below) if level < _LEVELS_DOWN else ()))
    return None


def open_source(path: Path, given: Mapping[str, str] | None = None) -> Source:
    """A file, or the command line in its place, as a source. Raises InputError: unreadable, too large, binary."""
    command = pasted(path)
    if command is not None:
        return Source(path, "shell", command, given or {})
    text = read_text(path, MAX_FILE_BYTES if path.suffix.lower() == NOTEBOOK else MAX_JOB_BYTES)
    return Source(path, guess_kind(path, text), text, given or {})


def guess_kind(path: Path, text: str) -> Kind:
    """What a file is, by its ending, else by how it begins."""
    known = KINDS.get(path.suffix.lower())
    if known:
        return known
    first = text.lstrip()[:200]
    if first.startswith("#!"):
        return "python" if "python" in first.split("\n", 1)[0] else "shell"
    if first.startswith("{"):
        return "json"
    return "yaml" if _is_yaml(path, text) else "shell"


def _is_yaml(path: Path, text: str) -> bool:
    """Whether a text without an ending holds keys and values."""
    try:
        return bool(Source(path, "yaml", text).keys)
    except InputError:
        return False


# What a user passes beside the files.

YAML, JSON = "yaml", "json"
"""How an import is written: as a scenario file, or with the origins of its values."""


class Asked(Immutable):
    """Flags of an import; None and empty where they were not given.

    tool, version : of `--from TOOL@VERSION`
    hardware : model, server, gpu, gpus and nodes by scenario key, as they were passed
    given : values of variables of scripts and templates, by name
    """

    tool: str | None = None
    version: str | None = None
    hardware: Mapping[str, object] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)


# What a tool file provides: how its files are known, how they are read, and its table of keys.

Certainty = int
"""How surely a file is a tool's: 0 not at all, 100 beyond doubt; the surest tool reads it."""


class Tool(Immutable):
    """A tool whose files are read.

    name : what `--from` calls it
    title : what users call it, for sentences
    reads : what it reads, in words, for the page of the tool
    recognises : how surely a file is one of this tool's
    read : states what a file says, in a draft that has its keys; the table's keys and defaults that are left come after
    table : keys that set a scenario key as they stand, defaults, losses, and keys without effect
    keys : the tool's keys in a file, where these are not simply those of its first document
    serving : whether the tool serves models
    aliases : what else `--from` calls it
    """

    name: str
    title: str
    reads: str
    recognises: Callable[[Source], Certainty]
    read: Callable[[Draft, Source], None]
    table: Table
    keys: Callable[[Source], Keys] = lambda source: source.keys
    serving: bool = False
    aliases: tuple[str, ...] = ()
