"""Commands of launch scripts: the one that starts a tool, and its flags as keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell import flags_of, unwrapped
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from xe_sizer.importers.readers.shell import Arguments, Command, Flag, Word
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Keys


def command_of(source: Source, starts: Callable[[tuple[str, ...]], bool]) -> Command | None:
    """The command of a script that starts a tool; of several the last, which those before it prepare.

    starts : whether the words of a command do, launchers such as torchrun taken off: `swift sft --model ...`
    """
    commands = source.script.commands if source.script is not None else ()
    return next((each for each in reversed(commands) if starts(_words(each))), None)


def _words(command: Command) -> tuple[str, ...]:
    return tuple(word.text for word in unwrapped(command).command.words)


def arguments_of(command: Command, skipped: int = 1, switches: Collection[str] = frozenset()) -> Arguments:
    """The flags and positional words of what a command starts in the end.

    skipped : words before the arguments: the program, and subcommands
    switches : flags that take no value
    """
    return flags_of(unwrapped(command).command.words[skipped:], switches)


def keys_of_flags(arguments: Arguments) -> Keys:
    """Flags as keys, without dashes and with `_` for `-`; a flag that stands alone is true."""
    return {name: Written(_value(flag), flag.where) for name, flag in arguments.flags.items()}


def _value(flag: Flag) -> object:
    if not flag.values:
        return True
    unknown = next((word for word in flag.values if word.unknown), None)
    if unknown is not None and len(flag.values) == 1:
        return Unread(unknown.text, _why(unknown))
    texts = [word.text for word in flag.values]
    return texts[0] if len(texts) == 1 else texts


def _why(word: Word) -> str:
    names = ", ".join(word.unknown)
    return f"{names} is set elsewhere; pass --set {word.unknown[0]}=VALUE"
