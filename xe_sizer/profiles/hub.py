"""Configurations of repositories on the Hugging Face Hub: in the cache of this machine, and fetched where asked to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from xe_sizer.errors import InputError, Problem, place_of
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import at_home

if TYPE_CHECKING:
    from xe_sizer.errors import Where

CONFIG = "config.json"
MOST_SNAPSHOTS = 1000  # of a repository that are looked at
_ADDRESS = re.compile(r"(https?://)?(www\.)?(huggingface\.co|hf\.co)/", re.IGNORECASE)
_PART = r"[A-Za-z0-9_](?:[\w.-]*[\w])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_REVISION = re.compile(r"[\w.-]{1,200}", re.ASCII)
_INSTALL = "pip install 'xe-sizer[hub]'"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where libraries of Hugging Face keep what they download: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub."""
    stated = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if stated:
        return at_home(stated)
    cache = Path(environment.get("XDG_CACHE_HOME") or "~/.cache")
    return at_home(Path(environment.get("HF_HOME") or cache / "huggingface") / "hub")


def repository_of(name: str) -> str | None:
    """The repository that a name or an address stands for, as `owner/name`; None where it can be none."""
    plain = _ADDRESS.sub("", name.strip(), count=1).rstrip("/").partition("@")[0].partition(":")[0]
    return plain if _REPOSITORY.fullmatch(plain) and ".." not in plain and "--" not in plain else None


class Hub(Immutable):
    """Where configurations of repositories are looked up.

    cache : the folder with one folder for each repository
    fetch : gets the configuration of a repository that is not there; None: nothing is fetched
    how : what to do about a repository that is not there
    """

    cache: Path = field(default_factory=lambda: cache_folder(os.environ))
    fetch: Callable[[str, Where], Path] | None = None
    how: str = f"download it, for example with 'hf download REPOSITORY {CONFIG}', or name the folder that has it"

    def config(self, repository: str, where: Where = None) -> Path | None:
        """The `config.json` of a repository; None where it is not on this machine and nothing is fetched.

        Raises InputError: it was to be fetched, and cannot be
        """
        found = self.cached(repository)
        return found if found or self.fetch is None else self.fetch(repository, where)

    def cached(self, repository: str) -> Path | None:
        """The `config.json` of a repository in the cache: of its main branch, else of any snapshot, the newest first.

        Links that lead out of the repository's folder are not followed.
        """
        home = self.cache / f"models--{repository.replace('/', '--')}"
        try:
            folders = [home / "snapshots" / name for name in _snapshots(home)]
            found = (folder / CONFIG for folder in folders if (folder / CONFIG).is_file())
            return next((file for file in found if file.resolve().is_relative_to(home.resolve())), None)
        except (OSError, ValueError):  # a name that is too long, a folder that nobody may read, links in a circle
            return None


def _snapshots(home: Path) -> Iterator[str]:
    """Names of a repository's snapshots: that of the main branch, then all, the newest first."""
    reference = home / "refs" / "main"
    if reference.is_file() and reference.resolve().is_relative_to(home.resolve()):
        with reference.open("rb") as stream:
            revision = stream.read(256).decode("ascii", "replace").strip()
        if _REVISION.fullmatch(revision) and ".." not in revision:
            yield revision
    if (home / "snapshots").is_dir():
        every = list(islice((home / "snapshots").iterdir(), MOST_SNAPSHOTS))
        yield from (each.name for each in sorted(every, key=lambda one: -one.stat().st_mtime))


def asked_hub(environment: Mapping[str, str], download: bool, say: Callable[[str], None]) -> Hub:
    """The hub of a command line. download : fetch what the cache has not; say : where it is told what is fetched."""
    cache = cache_folder(environment)
    if not download:
        return Hub(cache, None, f"pass --download (needs {_INSTALL}) or the path of its {CONFIG}")

    def fetch(repository: str, where: Where) -> Path:
        say(f"fetching {CONFIG} of {repository} from the Hugging Face Hub")
        return fetched(repository, cache, where)

    return Hub(cache, fetch)


def fetched(repository: str, cache: Path, where: Where = None) -> Path:
    """The `config.json` of a repository, fetched from the Hub into the cache; no other file is.

    Raises
    ------
    InputError    huggingface_hub is not installed; no such repository or file; no access; no connection
    """
    place = place_of(where)
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import logging
    except ImportError:
        raise InputError(Problem("--download needs the package huggingface_hub", place, _INSTALL)) from None
    logging.set_verbosity_error()  # each attempt without a connection is told otherwise
    try:
        return Path(hf_hub_download(repository, CONFIG, cache_dir=cache))
    except (OSError, ValueError) as error:
        message, hint = _failed(repository, {each.__name__ for each in type(error).__mro__})
        raise InputError(Problem(message, place, hint)) from None


def _failed(repository: str, kinds: set[str]) -> tuple[str, str]:
    """What to say of a download that failed, by the classes of the error, and what to do."""
    copy = f"copy its {CONFIG} to this machine and name its path"
    if "GatedRepoError" in kinds:
        page = f"https://huggingface.co/{repository}"
        return f"{repository} is gated", f"accept its terms at {page} and log in with 'hf auth login', or {copy}"
    if "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        return f"the Hub has no repository {repository}, or it is private", "log in with 'hf auth login' if it is yours"
    if "RemoteEntryNotFoundError" in kinds or ("EntryNotFoundError" in kinds and "FileNotFoundError" not in kinds):
        return f"{repository} has no {CONFIG}", "name the model that it was made from"
    return f"cannot fetch {CONFIG} of {repository}: the Hugging Face Hub cannot be reached", copy
