"""What a tool file provides: how its files are known, how they are read, and its table of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.table import Table
    from xe_sizer.importers.written import Keys

Certainty = int
"""How surely a file is a tool's: 0 not at all, 100 beyond doubt; the surest tool reads it."""


def keys_of_document(source: Source) -> Keys:
    """The dotted keys of a file's first document."""
    return source.keys


@frozen
class Tool:
    """A tool whose files are read.

    name : what `--from` calls it
    title : what users call it, for sentences
    reads : what it reads, in words, for the page of the tool
    recognises : how surely a file is one of this tool's
    read : states what a file says, in a draft that has its keys; the table's keys and defaults that are left come after
    table : keys that set a scenario key as they stand, defaults, losses, and keys without effect
    keys : the tool's keys in a file, where these are not simply those of its first document
    serving : whether the tool serves models
    aliases : what else `--from` calls it
    """

    name: str
    title: str
    reads: str
    recognises: Callable[[Source], Certainty]
    read: Callable[[Draft, Source], None]
    table: Table
    keys: Callable[[Source], Keys] = keys_of_document
    serving: bool = False
    aliases: tuple[str, ...] = ()
