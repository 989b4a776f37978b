"""Commands and configurations of verl: which files are its own, and what they say under its dotted keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.commands import arguments_of, command_of, keys_of_flags
from xe_sizer.importers.parts.verl_keys import MODEL, ROOT
from xe_sizer.importers.readers.interpolation import resolved
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell import Command
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys

SFT = "sft_trainer"
"""What the names of trainers for supervised training end in."""
_TRAINERS = ("main_ppo", "main_dapo", "main_grpo", "main_sppo", "main_prime", "main_spin", SFT)
_PACKAGES = ("verl", "recipe")
_MODELS = (f"{MODEL}path", "model.path", "model.partial_pretrain")
_CUT_OFF = re.compile(r"\+*[a-z_]+(?:\.\w+)+=")


def command(source: Source) -> Command | None:
    """The command of a script that starts one of verl's trainers."""
    return command_of(source, _starts)


def _starts(words: tuple[str, ...]) -> bool:
    ours = words[0].startswith(_PACKAGES)
    trains = ours and (any(part in words[0] for part in _TRAINERS) or words[0].endswith("_main"))
    overrides = any(word.lstrip("+").startswith(f"{ROOT}actor.") for word in words[1:])
    return trains or (overrides and "=" not in words[0])


def recognises(source: Source) -> Certainty:
    """How surely a file is verl's: a command that starts it, or keys that only it has."""
    if source.kind == "shell":
        return 95 if command(source) is not None else 0
    return 90 if any(name.startswith(ROOT) for name in source.keys) or _is_of_tuning(source.keys) else 0


def _is_of_tuning(keys: Keys) -> bool:
    return {"data.train_batch_size", "trainer.project_name"} <= keys.keys() and (
        "model.partial_pretrain" in keys or "data.pad_mode" in keys
    )


def keys_said(source: Source) -> Keys:
    """Overrides of the command, over the configuration that it names where that is found."""
    started = command(source)
    if started is None:
        return resolved(source.keys, source.given)
    said = {**keys_of_flags(arguments_of(started)), **_behind_comments(source, started)}
    found = {name: _plain(name, each) for name, each in said.items()}
    named = found.get("config_name")
    file = source.companion(f"{str(named.value).removesuffix('.yaml')}.yaml") if named is not None else None
    return resolved({**(file.keys if file is not None else {}), **found}, source.given)


def _behind_comments(source: Source, started: Command) -> Keys:
    """Overrides that a comment between the lines of a command cuts off; they are read as they are meant."""
    commands = source.script.commands if source.script is not None else ()
    keys: dict[str, Written] = {}
    for each in commands[commands.index(started) + 1 :]:
        if each.words and _CUT_OFF.match(each.words[0].text):
            keys |= keys_of_flags(arguments_of(each, 0))
    return keys


def _plain(name: str, written: Written) -> Written:
    """`null` as nothing; a path whose folder alone is not known says by its last part what it is of."""
    if written.value in ("null", "None", "~"):
        return Written(None, written.where)
    if not isinstance(written.value, Unread) or name not in _MODELS:
        return written
    last = written.value.text.rstrip("/").rpartition("/")[2]
    return Written(last, written.where) if last and "$" not in last and "/" in written.value.text else written


def program(source: Source) -> str:
    """The trainer that the command starts; empty where the file is a configuration."""
    started = command(source)
    words = (word.text for word in started.words) if started is not None else ()
    return next((word for word in words if word.startswith(_PACKAGES) or SFT in word), "")
