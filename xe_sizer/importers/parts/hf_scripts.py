"""Commands of shell scripts that start a trainer: its flags, the files that it names, and what its launcher says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.draft import Draft
from xe_sizer.importers.parts.accelerate import TABLE, state_accelerate
from xe_sizer.importers.parts.deepspeed import read_deepspeed
from xe_sizer.importers.parts.launchers import hardware_of, state_gpus
from xe_sizer.importers.readers.shell import flags_of, unwrapped
from xe_sizer.importers.source import PYTHON
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xe_sizer.importers.readers.shell import Command, Flag, Word
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Keys

    Starts = Callable[[Sequence[str]], bool]

_FILES = (".yaml", ".yml", ".json")


def command_of(source: Source, starts: Starts) -> Command | None:
    """The last command of a script that starts a trainer; None without one.

    starts : whether words, from the program's name on, start it
    """
    commands = source.script.commands if source.script is not None else ()
    return next((each for each in reversed(commands) if starts(_texts(_words(each)))), None)


def keys_started(source: Source, starts: Starts) -> Keys:
    """The keys of a configuration, or those that a script's command states: its files first, its flags over them."""
    command = command_of(source, starts)
    if command is None:
        return source.keys
    arguments = flags_of(_words(command)[1:])
    keys: dict[str, Written] = {}
    named = [
        flag.values[0] for name in ("config", "config_file") if (flag := arguments.flags.get(name)) and flag.values
    ]
    for word in (*arguments.positionals, *named):
        found = source.companion(word.text) if word.text.lower().endswith(_FILES) and not word.unknown else None
        keys |= found.keys if found is not None else {}
    return keys | {name: _written(flag) for name, flag in arguments.flags.items()}


def script_started(source: Source) -> Word | None:
    """The Python file that the last command of a launch script starts which starts one; None without one."""
    commands = source.script.commands if source.script is not None else ()
    first = (_words(each)[0] for each in reversed(commands))
    return next((word for word in first if word.text.endswith(PYTHON) and not word.unknown), None)


def starts_script(words: Sequence[str]) -> bool:
    """Whether a command starts a Python file, whatever that is."""
    return bool(words) and words[0].endswith(PYTHON)


def words_started(source: Source, starts: Starts) -> tuple[str, ...]:
    """The words of the command, from the program's name on; none without one."""
    command = command_of(source, starts)
    return tuple(_texts(_words(command))) if command is not None else ()


def state_launch(draft: Draft, source: Source, starts: Starts) -> None:
    """State the GPUs that a command is started on, and what the accelerate file of its launcher says."""
    command = command_of(source, starts)
    if command is None or source.script is None:
        return
    said = hardware_of(source.script, command)
    for file in _accelerate_files(source, command):
        part = Draft(draft.tool, file.keys, draft.version)
        state_accelerate(part, file)
        part.apply(TABLE)
        part.finish(TABLE)
        state_gpus(draft, said)
        draft.merge(part)
    for named in _flagged(command, "deepspeed_config_file"):
        part = Draft(draft.tool, {}, draft.version)
        read_deepspeed(part, Written(named.text, named.where), source)
        draft.merge(part)
    state_gpus(draft, said)


def _accelerate_files(source: Source, command: Command) -> Iterator[Source]:
    for named in _flagged(command, "config_file"):
        found = source.companion(named.text)
        if found is not None:
            yield found


def _flagged(command: Command, name: str) -> Iterator[Word]:
    """What the launchers of a command are given for a flag."""
    for runner in (*command.within, *unwrapped(command).runners):
        flag = flags_of(runner.words[1:]).flags.get(name)
        if flag is not None and flag.values and not flag.values[0].unknown:
            yield flag.values[0]


def _written(flag: Flag) -> Written:
    if not flag.values:
        return Written(True, flag.where)
    unknown = [name for word in flag.values for name in word.unknown]
    texts = [word.text for word in flag.values]
    value: object = texts[0] if len(texts) == 1 else texts
    if unknown:
        return Written(Unread(str(texts[0]), f"${unknown[0]} is not known: pass --set {unknown[0]}=VALUE"), flag.where)
    return Written(value, flag.values[0].where)


def _words(command: Command) -> tuple[Word, ...]:
    return unwrapped(command).command.words


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]
