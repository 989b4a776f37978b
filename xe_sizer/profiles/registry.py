"""Names to profiles: accelerators, servers and models, from the user's folders and the built-in catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.graph.model import ModelShape
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.profiles.fabric import UNSTATED_LINK, FabricProfile, fabric_with, load_fabric_profile
from xe_sizer.profiles.gpu import accelerator, load_gpu_profile
from xe_sizer.profiles.gpu_schema import GpuProfile, LendsTo
from xe_sizer.profiles.server import bare_server, load_server_profile, server
from xe_sizer.profiles.source import PATH_HINT, load_yaml, read_text

Kind = Literal["gpu", "server", "model", "fabric"]

FOLDERS: dict[Kind, str] = {
    "gpu": "gpu_profiles",
    "server": "gpu_profiles/servers",
    "model": "model_profiles",
    "fabric": "gpu_profiles/fabrics",
}
NOT_MODELS = ("aliases",)  # files beside the model profiles that are none
LIST_HINT = "'xe-sizer profiles list' prints all"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def built_in_folder() -> Path:
    """Where the shipped profiles are: inside an installed package, else beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    catalogue = package / "catalogue"
    return catalogue if catalogue.is_dir() else package.parent


class Registry:
    """Finds profiles by name; a folder given by the user wins over the built-in ones.

    A user's folder may have the built-in layout (gpu_profiles/, gpu_profiles/servers/, model_profiles/) or
    hold the files directly. A name opens one file; folders are listed only to suggest a name or to print all.
    """

    def __init__(self, extra: Sequence[Path] = ()) -> None:
        self._folders = (*extra, built_in_folder())
        self.user_folders = tuple(extra)
        # Advice and searches ask for the same few profiles many times.
        self._gpus: dict[Path, GpuProfile] = {}
        self._accelerators: dict[Path, Accelerator] = {}
        self._fabrics: dict[Path, FabricProfile] = {}
        self._servers: dict[str, Server] = {}
        self._models: dict[str, ModelShape] = {}
        self._gpu_texts: dict[Path, str] = {}

    def accelerator(self, name: str, where: Location | None = None) -> Accelerator:
        """The accelerator of a profile name or path. Raises InputError."""
        path = self.path("gpu", name, where)
        if path in self._accelerators:
            return self._accelerators[path]
        profile = self._gpu(path)
        link = self._link(profile, path)
        donors = [self._gpu(donor) for donor in self._donors(path)]
        return self._accelerators.setdefault(path, accelerator(profile, link, donors))

    def _gpu(self, path: Path) -> GpuProfile:
        if path not in self._gpus:
            self._gpus[path] = load_gpu_profile(path)
        return self._gpus[path]

    def _link(self, profile: GpuProfile, path: Path) -> FabricProfile:
        """The fabric of an accelerator's link; that of a link that nobody measured where it has none."""
        if profile.link is None:
            return fabric_with("link", UNSTATED_LINK, self.fabric, None)
        try:
            return fabric_with("link", profile.link.kind, self.fabric, None)
        except InputError:
            where = load_yaml(path).locate(("link", "kind"))
            return fabric_with("link", profile.link.kind, self.fabric, where)

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
            return self.path("gpu", profile.borrows_from, load_yaml(path).locate(("borrows_from",)))
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

    def _gpus_with(self, key: str, word: str) -> list[Path]:
        """Files of accelerators that have a key, and a word; a look at their text spares reading the others."""
        if not self._gpu_texts:
            files = [
                file
                for folder in self._folders
                for place in self._places("gpu", folder)
                for file in sorted(place.glob("*.yaml"))
            ]
            texts = {file: _text_of(file) for file in files}
            self._gpu_texts = {file: text for file, text in texts.items() if "\npeak_tflops:" in text}
        wanted = re.compile(rf"\b{re.escape(word)}\b")
        return [file for file, text in self._gpu_texts.items() if f"\n{key}:" in text and wanted.search(text)]

    def fabric(self, name: str, where: Location | None = None) -> FabricProfile:
        """The fabric of a profile name or path. Raises InputError."""
        path = self.path("fabric", name, where)
        if path not in self._fabrics:
            self._fabrics[path] = load_fabric_profile(path, built_in_folder() / FOLDERS["fabric"])
        return self._fabrics[path]

    def server(self, name: str, where: Location | None = None) -> Server:
        """The server of a profile name or path, with its accelerator. Raises InputError."""
        if name not in self._servers:
            profile, document = load_server_profile(self.path("server", name, where))
            gpu = self.accelerator(profile.gpu, document.locate(("gpu",)))
            self._servers[name] = server(profile, gpu, self.fabric, document.locate)
        return self._servers[name]

    def bare_server(self, gpu: Accelerator, accelerators: int | None = None) -> Server:
        """A node around a bare accelerator, for scenarios that name a GPU and no server."""
        return bare_server(gpu, self.fabric, accelerators)

    def model(self, name: str, where: Location | None = None) -> ModelShape:
        """The model of a profile name, alias, profile path or Hugging Face config.json. Raises InputError."""
        from xe_sizer.profiles.model import resolve_model

        if name not in self._models:
            self._models[name] = resolve_model(name, self._folders, where)
        return self._models[name]

    def names(self, kind: Kind) -> tuple[str, ...]:
        """All names of a kind, sorted; lists the folders."""
        found: set[str] = set()
        for folder in self._folders:
            for candidate in self._places(kind, folder):
                found.update(path.stem for path in candidate.glob("*.yaml") if _NAME.fullmatch(path.stem))
        return tuple(sorted(found.difference(NOT_MODELS) if kind == "model" else found))

    def path(self, kind: Kind, name: str, where: Location | None = None) -> Path:
        """The file of a name, or the path itself if `name` is one.

        Raises
        ------
        InputError    no such profile (with the nearest names), a name with characters that no profile has
        """
        if is_path(name):
            return _existing_file(name, kind, where)
        plain = name.strip().lower()
        if ".." in plain or not _NAME.fullmatch(plain):
            near = did_you_mean(re.sub(r"[^a-z0-9._]+", "-", plain), self.names(kind))
            hint = near or f"names have letters, digits, '.', '_' and '-'; {LIST_HINT}"
            raise InputError(Problem(f"'{name}' cannot be the name of a {kind}", where, hint))
        for folder in self._folders:
            for place in self._places(kind, folder):
                file = place / f"{plain}.yaml"
                if file.is_file():
                    return file
        raise InputError(self._unknown(kind, name, where))

    def _places(self, kind: Kind, folder: Path) -> tuple[Path, ...]:
        """Folders that may hold profiles of a kind; a user's folder may hold them directly."""
        return (folder / FOLDERS[kind], folder) if folder in self.user_folders else (folder / FOLDERS[kind],)

    def _unknown(self, kind: Kind, name: str, where: Location | None) -> Problem:
        begun = [f"'{known}'" for known in self.names(kind) if known.startswith(f"{name.strip().lower()}-")]
        suggestion = f"did you mean {' or '.join(begun)}?" if begun else did_you_mean(name, self.names(kind))
        hint = " ".join(part for part in (suggestion, LIST_HINT) if part)
        other: Kind = "server" if kind == "gpu" else "gpu"
        if kind in ("gpu", "server") and name.lower() in self.names(other):
            hint = f"'{name}' is a {other}: write {other}: {name}"
        return Problem(f"unknown {kind} '{name}'", where, hint)


def _existing_file(name: str, kind: Kind, where: Location | None) -> Path:
    """The profile file at a path. Only YAML files are opened: messages quote what a wrong file holds."""
    path = Path(name).expanduser()
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(Problem(f"'{name}' is not the path of a {kind} profile", where, "profiles end in .yaml"))
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", where, PATH_HINT))
    return path


def _text_of(file: Path) -> str:
    """The text of a file that nobody asked for by name: what is wrong with it is not said here."""
    try:
        return read_text(file)
    except InputError:
        return ""


def is_path(name: str) -> bool:
    """Whether a profile is named by the path of its file."""
    return "/" in name or "\\" in name or name.lower().endswith((".yaml", ".yml", ".json"))
