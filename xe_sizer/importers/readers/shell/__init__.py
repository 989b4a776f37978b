"""Launch scripts and command lines, read without running anything: variables replaced, flags with their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.importers.readers.shell.flags import Arguments, Flag, Word, flags_of
from xe_sizer.importers.readers.shell.places import Places
from xe_sizer.importers.readers.shell.reading import Reading
from xe_sizer.importers.readers.shell.runners import Command, Launch, unwrapped
from xe_sizer.importers.readers.shell.script import Heredoc, Script, Unread
from xe_sizer.importers.readers.shell.values import Run
from xe_sizer.importers.readers.shell.variables import Variables

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.reading import Loader

__all__ = [
    "Arguments",
    "Command",
    "Flag",
    "Heredoc",
    "Launch",
    "Script",
    "Unread",
    "Word",
    "flags_of",
    "read_script",
    "read_words",
    "unwrapped",
]


def read_script(text: str, name: str, given: Mapping[str, str] | None = None, loader: Loader | None = None) -> Script:
    """The commands of a script as they would run without arguments; nothing is run.

    `given` are values of variables that win over what the script assigns; "1", "2" are its arguments. `loader` gives
    the text of another script by its path below this script's folder, or None where it cannot be read.

    Raises InputError for a script that is too long, nested too deep or expands to too much.
    """
    own_name = "./" + name.rpartition("/")[2]
    places = Places()
    reading = Reading(places, Variables(given or {}), own_name, loader)
    source = places.add(text.removeprefix("\ufeff"), Location(name, 1, 1))
    return _finished(reading, lambda: reading.script(source), Location(name))


def read_words(
    words: Sequence[tuple[str, Location]], given: Mapping[str, str] | None = None, loader: Loader | None = None
) -> Script:
    """A command as a list of words (`command:` and `args:` of containers), each with its place.

    `["bash", "-c", "text"]` is read as the text; a single word with blanks is read as a command line.
    Raises InputError as `read_script` does.
    """
    places = Places()
    reading = Reading(places, Variables(given or {}), "./", loader)
    runs = [(Run(text, places.add(text, where).offsets[0], quoted=True),) for text, where in words]

    def read() -> None:
        if len(runs) == 1:
            reading.inner(runs[0], ())
        elif runs:
            reading.program(runs)

    return _finished(reading, read, words[0][1] if words else Location(""))


def _finished(reading: Reading, read: Callable[[], None], where: Location) -> Script:
    try:
        reading.complete(read)
        return reading.result()
    except RecursionError as error:
        raise InputError(Problem("the script is nested too deep", where)) from error
