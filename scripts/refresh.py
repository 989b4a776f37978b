"""Bring the catalogue's models up to date with their configurations: python scripts/refresh.py [FOLDER...] [--write]

Compared is the `config.json` of every repository that a profile or an alias names: OWNER__NAME/config.json or
OWNER__NAME.json in a FOLDER, else that in the cache of the Hugging Face Hub; --download fetches those that are neither
here nor there. Configurations in a FOLDER that nothing names are new. Printed is what changed, what is new, and what
cannot be read; --write puts changes into the profiles, and writes a profile of each new model.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from xe_sizer.errors import InputError
from xe_sizer.profiles.finder import Finder, file_name
from xe_sizer.profiles.hub import CONFIG, Hub, asked_hub, published_parameters
from xe_sizer.profiles.huggingface import model_from_config
from xe_sizer.profiles.model import load_model_profile
from xe_sizer.profiles.write import lines, profile_from_config, profile_of, write

MODELS = Path(__file__).resolve().parents[1] / "model_profiles"
BETWEEN = "__"  # owner and name, in names of files
# What a configuration decides. Profiles say more than that: how the reference implementation computes.
DECIDED = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied_embeddings", "norms_per_layer", "biases",
    "qk_norm", "sliding_window", "attention_sinks", "global_attention", "latent_attention", "indexer", "experts",
    "layer_pattern", "state_space", "shared_blocks", "doubled_input", "borrowing_layers", "borrowing_ffn",
    "layer_embedding", "bidirectional", "output_gate", "head_vocab", "parameters",
)  # fmt: skip
Changes = dict[str, tuple[Any, Any]]


def configurations(folders: Iterable[Path]) -> dict[str, Path]:
    """Repositories, in lower case, with their configurations in folders; the first folder that has one wins."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted((*folder.glob(f"*{BETWEEN}*/{CONFIG}"), *folder.glob(f"*{BETWEEN}*.json"))):
            name = path.parent.name if path.name == CONFIG else path.stem
            found.setdefault(name.replace(BETWEEN, "/", 1), path)
    return found


def repositories(models: Path) -> dict[str, list[Path]]:
    """Repositories that profiles name, each with the profiles that do."""
    found: dict[str, list[Path]] = {}
    for path in sorted(models.glob("*.yaml")):
        stated = yaml.safe_load(path.read_text(encoding="utf-8")).get("hugging_face")
        if stated:
            found.setdefault(stated, []).append(path)
    return found


def changes(profile: Path, config: Path) -> Changes:
    """Keys that a configuration decides otherwise than a profile says, with the old value and the new one.

    Raises InputError: the profile or the configuration cannot be read
    """
    source = {"title": "-"}
    old = profile_of(load_model_profile(profile), source=source)
    new = profile_of(model_from_config(config)[0], source=source)
    return {key: (old.get(key), new.get(key)) for key in DECIDED if old.get(key) != new.get(key)}


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """A profile's text with other values; None takes a key out. New keys stand before the parameters."""
    for key, value in values.items():
        block = "" if value is None else "\n".join(lines({key: value})) + "\n"
        text, found = re.subn(rf"^{key}:.*\n(?:[ \t].*\n)*", lambda _, new=block: new, text, flags=re.MULTILINE)  # type: ignore[misc]
        if not found:
            text = re.sub(r"^(?=parameters:)", lambda _, new=block: new, text, count=1, flags=re.MULTILINE)  # type: ignore[misc]
    return text


def refresh(folders: Iterable[Path], models: Path, hub: Hub, read_on: str, put: bool) -> Iterator[str]:
    """Compare every profile with its configuration; yield a line for each change, and write them where asked to."""
    there = configurations(folders)
    by_lower = {name.lower(): path for name, path in there.items()}
    known = repositories(models)
    same = 0
    for repository, profiles in known.items():
        try:
            config = by_lower.get(repository.lower()) or hub.config(repository)
            for profile in profiles if config else ():
                found = changes(profile, config or profile)
                same += not found
                yield from (f"{profile.stem}: {key}: {_told(old)} -> {_told(new)}" for key, (old, new) in found.items())
                if found and put:
                    text = with_values(
                        profile.read_text(encoding="utf-8"), {key: new for key, (_, new) in found.items()}
                    )
                    profile.write_text(text, encoding="utf-8")
        except InputError as error:
            yield from (f"{repository}: {problem.message}" for problem in error.problems)
    finder, named = Finder((models,)), {repository.lower() for repository in known}
    for repository, config in there.items():
        if repository.lower() not in named and not _is_named(repository, finder):
            yield from _added(repository, config, models, read_on, put)
    yield f"{same} unchanged"


def _added(repository: str, config: Path, models: Path, read_on: str, put: bool) -> Iterator[str]:
    """A line for a new model, and one for each thing to know of it; its profile is written where asked to."""
    try:
        new, notes = profile_from_config(config, repository, published_parameters(config), read_on)
    except InputError as error:
        yield from (f"{repository}: new, {problem.message}" for problem in error.problems)
        return
    totals = new["parameters"]
    yield f"{repository}: new, {totals['total']:,} parameters, {totals['active']:,} active"
    yield from (f"  {note}" for note in notes)
    if put:
        write(models, new)


def _is_named(repository: str, finder: Finder) -> bool:
    """Whether a profile or an alias has the name of a repository."""
    try:
        return finder.find("model", file_name(repository.rpartition("/")[2])) is not None
    except InputError:  # several models have it
        return True


def _told(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of the profiles")
    parser.add_argument("--download", action="store_true", help="fetch configurations that are not here")
    parser.add_argument("--write", action="store_true", help="put changes into the profiles, and write new ones")
    options = parser.parse_args()
    hub = asked_hub(os.environ, options.download, lambda line: print(line, file=sys.stderr))
    today = datetime.now(UTC).date().isoformat()
    for line in refresh(options.folders, options.models, hub, today, options.write):
        print(line)


if __name__ == "__main__":
    main()
