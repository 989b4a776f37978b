"""What shells do themselves: tests, reading of variables, arguments, and scripts that are read in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from xe_sizer.importers.readers.shell.conditions import PRESUMED, Condition, Truth
from xe_sizer.importers.readers.shell.flow import FunctionEndError, LoopEndError, ScriptEndError
from xe_sizer.importers.readers.shell.syntax import Assignment, Simple
from xe_sizer.importers.readers.shell.values import Array, Run, Runs, split_words, text_of
from xe_sizer.importers.readers.shell.variables import known_text

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.reading import Reading


def joined(words: Sequence[Runs]) -> Runs:
    """Words as one text with blanks between them."""
    found: list[Run] = []
    for at, word in enumerate(words):
        if at and word:
            found.append(Run(" ", word[0].at, moves=False))
        found += word
    return tuple(found)


def _stripped(runs: Runs) -> Runs:
    """Text without blanks and ends of lines around it."""
    kept = list(runs)
    while kept and (short := kept[-1].text.rstrip()) != kept[-1].text:
        kept[-1:] = [kept[-1]._replace(text=short)] if short else []
    while kept and (short := kept[0].text.lstrip()) != kept[0].text:
        start = len(kept[0].text) - len(short)
        kept[:1] = [kept[0].part(start, len(kept[0].text))] if short else []
    return tuple(kept)


def leading_options(words: Sequence[Runs], valued: str) -> tuple[list[str], list[Runs]]:
    """Options in front and the words behind them; `valued` are the options that take the next word."""
    taking, options, at = valued.split(), [], 0
    while at < len(words) and (text := text_of(words[at])).startswith(("-", "+")) and len(text) > 1:
        options.append(text)
        at += 1
        if text == "--":
            break
        at += text in taking
    return options, list(words[at:])


def _source(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    if len(words) > 1:
        reading.file(words[1], words[2:] or reading.variables.arguments[-1])
    return Truth(True)


def _eval(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    if len(words) > 1 and not all(run.computed for word in words[1:] for run in word):
        reading.inner(joined(words[1:]), reading.variables.arguments[-1])
    return PRESUMED


def _bracket(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    parts = [word for word in node.words[1:] if not isinstance(word, Assignment)]
    operands = [reading.expander.text(part) or (Run("", node.at, False, True),) for part in parts]
    if operands and text_of(words[0]) == "[" and text_of(operands[-1]) == "]":
        operands.pop()
    return Condition(operands, reading.expander, double=False).truth()


def _let(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    truth = Truth(True)
    for word in node.words[1:]:
        truth = Truth(True) if isinstance(word, Assignment) else reading._calculate(word, node.at)
    return truth


def _read(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    """`read NAMES <<< text`; without a text the names hold what is not known."""
    flags, names = leading_options(words[1:], "-d -p -t -n -N -u")
    separators = next((each.value for each in node.assignments if each.name == "IFS"), None)
    as_list = any("a" in flag for flag in flags) and names
    fields = _fields(text, "" if separators is None else text_of(reading.expander.text(separators)))
    missing = (Run("$(read)", node.at, False, False, ("$(read)",), computed=True),)
    if as_list:
        reading.variables.set(text_of(names[0]), Array({str(at): field for at, field in enumerate(fields)}))
        return PRESUMED
    whole = "-d" in flags
    for at, name in enumerate(names):
        last = at == len(names) - 1
        value = text if whole or (last and at == 0) else joined(fields[at:] if last else fields[at : at + 1])
        reading.variables.set(text_of(name), missing if text is None else _stripped(value or ()))
    return PRESUMED


def _fields(text: Runs | None, separators: str) -> list[Runs]:
    known = known_text(text) if text is not None else None
    if separators.strip() and known is not None and text:
        parts = re.split(f"[{re.escape(separators)}]", known.strip())
        return [(Run(part, text[0].at, moves=False),) for part in parts]
    return split_words(run._replace(quoted=False) for run in text or ())


def _lines(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    """`mapfile NAME <<< text`."""
    _, names = leading_options(words[1:], "-d -n -O -s -u -C -c")
    known = known_text(text) if text is not None else None
    if names and known is not None and text:
        lines = enumerate(known.splitlines())
        items = {str(at): (Run(line, text[0].at, moves=False),) for at, line in lines}
        reading.variables.set(text_of(names[0]), Array(items))
    return PRESUMED


def _set(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    """`set -- words` are the arguments from here on."""
    if len(words) > 1 and text_of(words[1]) == "--":
        reading.variables.arguments[-1] = tuple(words[2:])
    return Truth(True)


def _shift(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    count = text_of(words[1]) if len(words) > 1 else "1"
    reading.variables.shift(int(count) if count.isdigit() and len(count) < 6 else 1)
    return Truth(True)


def _unset(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    for word in words[1:]:
        reading.variables.unset(text_of(word))
    return Truth(True)


def _exit(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    raise ScriptEndError


def _return(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    raise FunctionEndError


def _leave_loop(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    raise LoopEndError


def _true(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    return Truth(True)


def _false(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    return Truth(False)


_Builtin: TypeAlias = Callable[["Reading", Simple, Sequence[Runs], "Runs | None"], Truth]
BUILTINS: Mapping[str, _Builtin] = {
    "source": _source,
    ".": _source,
    "eval": _eval,
    "[": _bracket,
    "test": _bracket,
    "let": _let,
    "read": _read,
    "mapfile": _lines,
    "readarray": _lines,
    "set": _set,
    "shift": _shift,
    "unset": _unset,
    "exit": _exit,
    "return": _return,
    "break": _leave_loop,
    "continue": _leave_loop,
    ":": _true,
    "true": _true,
    "false": _false,
}
