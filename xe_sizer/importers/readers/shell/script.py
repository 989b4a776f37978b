"""What reading a script gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.readers.shell.flags import Word
    from xe_sizer.importers.readers.shell.runners import Command


@frozen
class Heredoc:
    """Text that a script writes to a file (`cat > target <<EOF`, `echo ... > target`) or gives to a program."""

    target: str | None
    text: str
    where: Location
    unknown: tuple[str, ...] = ()
    append: bool = False


@frozen
class Unread:
    """A place where the reading had to choose, or could not go on, and why."""

    where: Location
    why: str


@frozen
class Script:
    """A script as it would run without arguments: its commands in order with all variables replaced.

    `variables` are those at its end, `split` the words that each of them becomes unquoted. `directives` are the
    flags of `#SBATCH` lines (text "" where a flag has no value).
    """

    commands: tuple[Command, ...]
    variables: Mapping[str, Word | tuple[Word, ...]]
    split: Mapping[str, tuple[Word, ...]]
    directives: Mapping[str, Word]
    heredocs: tuple[Heredoc, ...]
    unread: tuple[Unread, ...]
