"""Configurations of repositories on the Hugging Face Hub: in the cache of this machine, and fetched where asked to."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import field

from xe_sizer.errors import InputError, Problem, place_of
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import at_home

if TYPE_CHECKING:
    from xe_sizer.errors import Where

CONFIG = "config.json"
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
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


def fetched(repository: str, cache: Path, where: Where = None, file: str = CONFIG) -> Path:
    """The `config.json` of a repository, or another file, fetched from the Hub into the cache; nothing else is.

    Raises
    ------
    InputError    huggingface_hub is not installed; no such repository or file; no access; no connection
    """
    place = place_of(where)
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import logging
    except ImportError:
        raise InputError(Problem("the Hub needs the package huggingface_hub", place, _INSTALL)) from None
    logging.set_verbosity_error()  # each attempt without a connection is told otherwise
    try:
        return Path(hf_hub_download(repository, file, cache_dir=cache))
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


# How many parameters the published weights have.

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WHOLE = frozenset({"F64", "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"})  # types of safetensors, one element a parameter
_MOST_HEADER_BYTES = 100_000_000  # as safetensors itself reads at most


class Published(Immutable):
    """Parameters of the weights of a repository, and the file that says so."""

    total: int
    file: str


def published_parameters(config: Path) -> Published | None:
    """Parameters that the weights beside a `config.json` have; None where no file says, or their bits are packed.

        total = total_parameters, or total_size / bytes of an element     of the index of shards
        total = sum of the sizes of all tensors                          of a single file's header

    Source: safetensors format; `save_pretrained` of transformers, which writes both keys of the index's metadata.
    """
    index = _object(config.with_name(INDEX))
    metadata = index.get("metadata") if index else None
    if isinstance(metadata, dict):
        stated, size = metadata.get("total_parameters"), metadata.get("total_size")
        if isinstance(stated, int) and stated > 0:
            return Published(stated, INDEX)
        element = _element_bytes(_object(config) or {})
        if isinstance(size, int | float) and size > 0 and element:
            return Published(round(size / element), INDEX)
    tensors = _header(config.with_name(WEIGHTS)) or {}
    sized = [each for key, each in tensors.items() if key != "__metadata__" and isinstance(each, dict)]
    if not sized or any(each.get("dtype") not in _WHOLE for each in sized):
        return None
    return Published(sum(math.prod(each.get("shape") or (1,)) for each in sized), WEIGHTS)


def published_on_hub(repository: str, cache: Path, config: Path) -> Published | None:
    """The same of a repository on the Hub; its index is fetched where it is not there, or its single file's header is.

    Nothing is said where neither can be had: a count that is not verified is told as such.
    """
    found = published_parameters(config)
    if found is not None:
        return found
    try:
        fetched(repository, cache, file=INDEX)
        return published_parameters(config)
    except InputError:
        pass
    try:
        from huggingface_hub import HfApi

        counts = HfApi().parse_safetensors_file_metadata(repository, WEIGHTS).parameter_count
    except (ImportError, OSError, ValueError):
        return None
    except Exception as error:  # the library's own, of a file that is not there or is none of safetensors
        if type(error).__module__.partition(".")[0] != "huggingface_hub":
            raise
        return None
    return Published(sum(counts.values()), WEIGHTS) if counts and set(counts) <= _WHOLE else None


def _element_bytes(config: Mapping[str, Any]) -> int | None:
    """Bytes of each parameter; None where the configuration does not say, or some are in few bits."""
    inner = config.get("text_config")
    parts = (config, inner if isinstance(inner, dict) else {})
    if any(part.get("quantization_config") for part in parts):
        return None
    stated = (part.get(key) for part in parts for key in ("dtype", "torch_dtype"))
    return next((_ELEMENT_BYTES.get(word) for word in stated if isinstance(word, str)), None)


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _header(path: Path) -> dict[str, Any] | None:
    """The header of a file of weights: its length in eight bytes, then JSON."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            found = json.loads(stream.read(length)) if 0 < length <= _MOST_HEADER_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
