"""Names to profiles: accelerators, servers and models, from the user's folders and the built-in catalogue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.graph.model import ModelShape
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.profiles.gpu import accelerator, load_gpu_profile
from xe_sizer.profiles.gpu_schema import GpuProfile
from xe_sizer.profiles.server import load_server_profile, server
from xe_sizer.profiles.source import PATH_HINT

Kind = Literal["gpu", "server", "model"]

FOLDERS: dict[Kind, str] = {
    "gpu": "gpu_profiles",
    "server": "gpu_profiles/servers",
    "model": "model_profiles",
}
NOT_MODELS = ("aliases",)  # files beside the model profiles that are none
LIST_HINT = "'xe-sizer profiles list' prints all"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")

# Who lends laws to an accelerator of a generation, nearest first. GeForce and RTX parts of the Blackwell
# generation run Ada's kind of tensor-core instructions, not those of the data-centre parts.
DONORS: dict[str, tuple[str, ...]] = {
    "volta": ("a100-sxm-80gb",),
    "turing": ("a100-sxm-80gb",),
    "ampere": ("a100-sxm-80gb",),
    "ada": ("l40s",),
    "hopper": ("h100-sxm-80gb",),
    "blackwell": ("b200",),
    "blackwell-rtx": ("l40s",),
    "cdna2": ("mi300x", "h100-sxm-80gb"),
    "cdna3": ("mi300x", "h100-sxm-80gb"),
    "cdna4": ("mi355x", "h100-sxm-80gb"),
    "gaudi2": ("gaudi2", "h100-sxm-80gb"),
    "gaudi3": ("gaudi3", "h100-sxm-80gb"),
}
VENDOR_DONORS: dict[str, tuple[str, ...]] = {
    "AMD": ("mi300x", "h100-sxm-80gb"),
    "Intel": ("gaudi3", "h100-sxm-80gb"),
}
LAST_DONORS = ("h100-sxm-80gb",)


def built_in_folder() -> Path:
    """Where the shipped profiles are: inside an installed package, else beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    catalogue = package / "catalogue"
    return catalogue if catalogue.is_dir() else package.parent


def donors_of(profile: GpuProfile) -> tuple[str, ...]:
    """Names of the built-in accelerators that lend laws to this one (or are it), nearest first."""
    return DONORS.get(profile.generation) or VENDOR_DONORS.get(profile.vendor) or LAST_DONORS


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
        self._servers: dict[str, Server] = {}
        self._models: dict[str, ModelShape] = {}

    def accelerator(self, name: str, where: Location | None = None) -> Accelerator:
        """The accelerator of a profile name or path. Raises InputError."""
        path = self.path("gpu", name, where)
        if path in self._accelerators:
            return self._accelerators[path]
        profile = self._gpu(path)
        catalogue = built_in_folder() / FOLDERS["gpu"]
        donors = [catalogue / f"{donor}.yaml" for donor in donors_of(profile)]
        made = accelerator(profile, [self._gpu(donor) for donor in donors if donor != path])
        return self._accelerators.setdefault(path, made)

    def _gpu(self, path: Path) -> GpuProfile:
        if path not in self._gpus:
            self._gpus[path] = load_gpu_profile(path)
        return self._gpus[path]

    def server(self, name: str, where: Location | None = None) -> Server:
        """The server of a profile name or path, with its accelerator. Raises InputError."""
        if name not in self._servers:
            profile, document = load_server_profile(self.path("server", name, where))
            self._servers[name] = server(profile, self.accelerator(profile.gpu, document.locate(("gpu",))))
        return self._servers[name]

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
        if kind != "model" and name.lower() in self.names(other):
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


def is_path(name: str) -> bool:
    """Whether a profile is named by the path of its file."""
    return "/" in name or "\\" in name or name.lower().endswith((".yaml", ".yml", ".json"))
