"""Command substitutions whose text follows from their words alone. Nothing is run: all others are not known."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell.arithmetic import NoValueError
from xe_sizer.importers.readers.shell.syntax import AndOr, Assignment, Pipeline, Simple
from xe_sizer.importers.readers.shell.values import Run, text_of, unknown_in

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.expansion import Expander
    from xe_sizer.importers.readers.shell.syntax import Node, Substitution
    from xe_sizer.importers.readers.shell.values import Runs

_MAX_SEQUENCE = 10_000
_MAX_PIPED = 10_000
_FIELD_COUNT = re.compile(r"\{\s*print\s+NF\s*;?\s*\}")
_COUNTS = {"-l": lambda text: text.count("\n"), "-w": lambda text: len(text.split()), "-c": len}


def substituted(part: Substitution, expander: Expander) -> Runs | None:
    """What the commands would print, without ends of lines at its end; None where a program would have to run."""
    if part.body is None or len(part.body) != 1:
        return None
    found = _printed(part.body[0], expander)
    return None if found is None else _without_end(found)


def _printed(node: Node, expander: Expander) -> Runs | None:
    if isinstance(node, Simple):
        return _simple(node, expander)
    if isinstance(node, AndOr) and node.operator == "&&":
        return _changed_folder(node, expander)
    if not isinstance(node, Pipeline) or node.negated:
        return None
    found = _printed(node.stages[0], expander)
    for stage in node.stages[1:]:
        if found is None or unknown_in(found) or not isinstance(stage, Simple) or len(text_of(found)) > _MAX_PIPED:
            return None
        words = _words(stage, expander)
        text = _FILTERS[words[0]](text_of(found), words[1:]) if words and words[0] in _FILTERS else None
        found = None if text is None else _made(text, stage.at)
    return found


def _changed_folder(node: AndOr, expander: Expander) -> Runs | None:
    """`cd FOLDER && pwd` is FOLDER."""
    left = _words(node.left, expander) if isinstance(node.left, Simple) else None
    right = _words(node.right, expander) if isinstance(node.right, Simple) else None
    folder = [word for word in left or () if not word.startswith("-")]
    if not left or folder[:1] != ["cd"] or len(folder) != 2 or not right or right[0] != "pwd":
        return None
    return _made(folder[1], node.left.at) if isinstance(node.left, Simple) else None


def _words(node: Simple, expander: Expander) -> list[str] | None:
    """The words of a command; None where one is not known."""
    if node.assignments:
        return None
    found: list[str] = []
    for word in node.words:
        runs = [] if isinstance(word, Assignment) else expander.words(word)
        if any(unknown_in(each) for each in runs):
            return None
        found += map(text_of, runs)
    return found


def _simple(node: Simple, expander: Expander) -> Runs | None:
    bodies = [each.body for each in node.redirections if each.body is not None]
    words = _words(node, expander)
    if words == ["cat"] and len(bodies) == 1:
        return expander.text(bodies[0])
    if not words or bodies or any(each.operator.startswith("<") for each in node.redirections):
        return None
    if words[0] == "expr":
        return _calculated(words[1:], node.at, expander)
    text = _PRINTERS[words[0]](words[1:]) if words[0] in _PRINTERS else None
    return None if text is None else _made(text, node.at)


def _made(text: str, at: int) -> Runs:
    return (Run(text, at, moves=False),)


def _without_end(runs: Runs) -> Runs:
    kept = list(runs)
    while kept and (shorter := kept[-1].text.rstrip("\n")) != kept[-1].text:
        kept[-1:] = [kept[-1]._replace(text=shorter)] if shorter else []
    return tuple(kept)


def _calculated(words: Sequence[str], at: int, expander: Expander) -> Runs | None:
    try:
        return _made(str(expander.number(" ".join(words), at)), at)
    except NoValueError:
        return None


def _echo(words: Sequence[str]) -> str:
    kept = list(words)
    while kept and kept[0] in {"-n", "-e", "-E", "-ne", "-en"}:
        kept.pop(0)
    return " ".join(kept) + "\n"


def _basename(words: Sequence[str]) -> str | None:
    if not words or words[0].startswith("-"):
        return None
    name, ending = posixpath.basename(words[0].rstrip("/")), words[1] if len(words) > 1 else ""
    return name.removesuffix(ending) if name != ending else name


def _same(words: Sequence[str]) -> str | None:
    kept = [word for word in words if not word.startswith("-")]
    return kept[0] if len(kept) == 1 else None


def _sequence(words: Sequence[str]) -> str | None:
    separator = "\n"
    kept = list(words)
    if kept[:1] == ["-s"] and len(kept) > 1:
        separator, kept = kept[1], kept[2:]
    if not 1 <= len(kept) <= 3 or not all(re.fullmatch(r"-?\d{1,9}", word) for word in kept):
        return None
    numbers = [int(word) for word in kept]
    first, step, last = {1: (1, 1, numbers[-1]), 2: (numbers[0], 1, numbers[-1])}.get(
        len(numbers), (numbers[0], numbers[min(1, len(numbers) - 1)], numbers[-1])
    )
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return separator.join(map(str, found)) if len(found) <= _MAX_SEQUENCE else None


def _translated(text: str, words: Sequence[str]) -> str | None:
    if list(words[:1]) == ["-d"] and len(words) == 2:
        return "".join([each for each in text if each not in _escapes(words[1])])
    if len(words) != 2:
        return None
    old, new = (_escapes(word) for word in words)
    if {old, new} <= {"a-z", "A-Z", "[:upper:]", "[:lower:]"}:
        return text.upper() if new in {"A-Z", "[:upper:]"} else text.lower()
    if not old or not new or "-" in old[1:-1] or "[:" in old + new:
        return None
    new = new.ljust(len(old), new[-1])
    return text.translate({ord(each): new[at] for at, each in enumerate(old)})


def _escapes(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _counted(text: str, words: Sequence[str]) -> str | None:
    count = _COUNTS.get(words[0]) if len(words) == 1 else None
    return str(count(text)) if count else None


def _cut(text: str, words: Sequence[str]) -> str | None:
    """`cut -d, -f1` of one line."""
    match = re.fullmatch(r"-d ?(.) -f ?(\d{1,4})", " ".join(words))
    lines = text.splitlines()
    if not match or len(lines) != 1:
        return None
    fields, at = lines[0].split(match[1]), int(match[2])
    return fields[at - 1] if 1 <= at <= len(fields) else ""


def _awk(text: str, words: Sequence[str]) -> str | None:
    """`awk -F, '{print NF}'`: how many fields one line has."""
    match = re.fullmatch(r"-F ?(.) (.*)", " ".join(words))
    lines = text.splitlines()
    if not match or len(lines) != 1 or not _FIELD_COUNT.fullmatch(match[2]):
        return None
    return str(len(lines[0].split(match[1])))


_PRINTERS: dict[str, Callable[[Sequence[str]], str | None]] = {
    "echo": _echo,
    "basename": _basename,
    "dirname": lambda words: (posixpath.dirname(words[0]) or ".") if len(words) == 1 else None,
    "pwd": lambda words: "." if not words or words[0].startswith("-") else None,
    "realpath": _same,
    "readlink": _same,
    "seq": _sequence,
}
_FILTERS: dict[str, Callable[[str, Sequence[str]], str | None]] = {
    "tr": _translated,
    "wc": _counted,
    "cut": _cut,
    "awk": _awk,
}
