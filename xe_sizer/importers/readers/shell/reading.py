"""Reads the commands of a script: assignments, what shells do themselves, and programs with their words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from xe_sizer.errors import Location
from xe_sizer.importers.readers.shell.builtins import BUILTINS, joined, leading_options
from xe_sizer.importers.readers.shell.commands import CommandReader
from xe_sizer.importers.readers.shell.conditions import PRESUMED, Truth
from xe_sizer.importers.readers.shell.flags import Word, flags_of
from xe_sizer.importers.readers.shell.flow import Flow, FunctionEndError, LoopEndError, ScriptEndError
from xe_sizer.importers.readers.shell.runners import Command, unwrapped
from xe_sizer.importers.readers.shell.script import Heredoc, Script, Unread
from xe_sizer.importers.readers.shell.simple_commands import DECLARATIONS
from xe_sizer.importers.readers.shell.syntax import Assignment, Simple
from xe_sizer.importers.readers.shell.values import (
    Array,
    Run,
    moving_text,
    split_words,
    text_of,
    unknown_in,
)
from xe_sizer.importers.readers.shell.variables import appended, items_of

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.places import Places, Text
    from xe_sizer.importers.readers.shell.syntax import Redirection
    from xe_sizer.importers.readers.shell.values import (
        Runs,
        Value,
    )
    from xe_sizer.importers.readers.shell.variables import Variables

Loader: TypeAlias = Callable[[str], "str | None"]
MAX_CALLS, MAX_FILES = 20, 50
"""Functions, texts and files that may stand in one another, and files that a script may read in."""

_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB|FLUX)[ \t]+", re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SUBMITTERS: Mapping[str, str] = {  # programs that run a script, and their flags that take a value
    "sbatch": "-p -A -J -N -n -c -t -o -e -w -x -G -C -q -M -d -D -a -b -L --gres",
    "qsub": "-l -q -N -o -e -P -A -v -W -M -m",
    "ssh": "-i -l -o -p -F -J",
}
_TO_STANDARD_OUTPUT = re.compile(r"1?(>>?|>\|)|&>>?")


class Reading(Flow):
    """One reading; `loader` gives the text of a file below the script's folder, None where there is none."""

    def __init__(self, places: Places, variables: Variables, own_name: str, loader: Loader | None) -> None:
        super().__init__(places, variables, own_name)
        self.loader = loader
        self.commands: list[Command] = []
        self.heredocs: list[Heredoc] = []
        self.directives: dict[str, Word] = {}
        self.written: dict[str, Runs] = {}
        self._within: tuple[Command, ...] = ()
        self._inherited: Mapping[str, Word] = {}
        self._calls = self._files = 0
        self._piped: Runs | None = None

    def script(self, text: Text) -> None:
        """Reads a whole text and its `#SBATCH` lines."""
        reader = CommandReader(text, self.places)
        nodes = reader.script()
        for at in reader.broken:
            self.note(at, "this is not read: its syntax is not clear")
        self._directives(text)
        self.run(nodes)

    def _directives(self, text: Text) -> None:
        for match in _DIRECTIVE.finditer(text.characters):
            end = text.characters.find("\n", match.end())
            line = text.part(match.end(), end if end >= 0 else len(text.characters))
            nodes = CommandReader(line, self.places).script()
            words = self._expanded(nodes[0]) if nodes and isinstance(nodes[0], Simple) else []
            for name, flag in flags_of(map(self.word, words)).flags.items():
                self.directives[name] = flag.values[0] if flag.values else Word("", flag.where)

    def word(self, runs: Runs) -> Word:
        return Word(text_of(runs), self.places.locate(runs[0].at), unknown_in(runs))

    def _expanded(self, node: Simple) -> list[Runs]:
        parts = [word for word in node.words if not isinstance(word, Assignment)]
        return [word for each in parts for word in self.expander.words(each)]

    def simple(self, node: Simple) -> Truth:
        text, piped = self._input(node.redirections), self._piped
        self._piped = None
        text = piped if text is None else text
        if not node.words:
            for assignment in node.assignments:
                self._assign(assignment)
            return Truth(True)
        words = self._expanded(node)
        if not words:
            return Truth(True)
        name = text_of(words[0])
        if name in DECLARATIONS:
            return self._declare(name, words[1:], [each for each in node.words if isinstance(each, Assignment)])
        builtin = BUILTINS.get(name)
        if builtin:
            return builtin(self, node, words, text)
        self._output(node, words, text)
        if name in self.functions:
            return self._call(name, words[1:])
        self.program(words, self._environment(node), text)
        return PRESUMED

    def _input(self, redirections: Sequence[Redirection]) -> Runs | None:
        """What a here-document or here-string gives the command."""
        for each in redirections:
            if each.body is not None:
                return self.expander.text(each.body)
            if each.operator == "<<<":
                return (*self.expander.text(each.target), Run("\n", each.at, moves=False))
        return None

    def _output(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> None:
        """What `cat <<EOF`, `echo` and `tee` write: to a file, or to the next command of a pipeline."""
        name = text_of(words[0])
        if name == "echo":
            text = _echoed(words[1:])
        elif name not in {"cat", "tee"} or text is None:
            if text is not None:
                self._keep(None, text, append=False)
            return
        target, append = self._target(node.redirections)
        if name == "tee" and len(words) > 1:
            target, append = words[-1], any(text_of(word) == "-a" for word in words[1:])
        if target is not None:
            self._keep(target, text, append)
        elif name != "echo" or text:
            self._piped = text

    def _target(self, redirections: Sequence[Redirection]) -> tuple[Runs | None, bool]:
        for each in redirections:
            if _TO_STANDARD_OUTPUT.fullmatch(each.operator):
                return self.expander.text(each.target), ">>" in each.operator
        return None, False

    def _keep(self, target: Runs | None, text: Runs, append: bool) -> None:
        name = None if target is None else text_of(target)
        if name == "/dev/null" or not text:
            return
        where = self.places.locate(text[0].at)
        self.heredocs.append(Heredoc(name, text_of(text), where, unknown_in(text), append))
        if name is not None:
            before = self.written.get(_path(name), ()) if append else ()
            self.written[_path(name)] = (*before, *text)

    def _environment(self, node: Simple) -> dict[str, Word]:
        """What was exported so far, and the assignments in front of the command."""
        found = dict(self._inherited)
        self.budget.spend(0, 10 * len(self.variables.exported))
        for name in self.variables.exported:
            value = self.variables.get(name, node.at)
            if value and not isinstance(value, Array):
                found[name] = self.word(value)
        for each in node.assignments:
            runs = self.expander.text(each.value)
            found[each.name] = self.word(runs) if runs else Word("", self.places.locate(each.at))
        return found

    def _assign(self, node: Assignment, *, named: bool = False) -> None:
        old = self.variables.get(node.name, node.at)
        if node.items is not None:
            new: Value = self._array(node, named or (isinstance(old, Array) and old.named))
        else:
            new = self.expander.text(node.value)
        if node.append or node.index is not None:  # each one copies what was there
            self.budget.spend(0, len(old.items if isinstance(old, Array) else old or ()))
        if node.index is not None and not isinstance(new, Array):
            self._assign_item(node, new, old, named)
            return
        self.variables.set(node.name, appended(old, new) if node.append else new)

    def _assign_item(self, node: Assignment, new: Runs, old: Value | None, named: bool) -> None:
        items = dict(old.items) if isinstance(old, Array) else {}
        key = text_of(self.expander.text(node.index or ()))
        items[key] = (*items.get(key, ()), *new) if node.append else new
        self.variables.set(node.name, Array(items, named or not key.isdigit()))

    def _array(self, node: Assignment, named: bool) -> Array:
        items: dict[str, Runs] = {}
        for element in node.items or ():
            if element.key is not None:
                key = text_of(self.expander.text(element.key))
                named = named or not key.isdigit()
                items[key] = self.expander.text(element.value)
                continue
            for word in self.expander.words(element.value):
                items[str(len(items))] = word
        return Array(items, named)

    def _declare(self, name: str, words: Sequence[Runs], assignments: Sequence[Assignment]) -> Truth:
        options = "".join(text_of(word) for word in words if text_of(word).startswith("-"))
        names = [text_of(word) for word in words if not text_of(word).startswith("-")]
        for each in (*names, *(assignment.name for assignment in assignments)):
            if name == "local" or (name in {"declare", "typeset"} and "g" not in options):
                self.variables.hide(each)
            if name == "export" or "x" in options:
                self.variables.exported.add(each)
        for assignment in assignments:
            self._assign(assignment, named="A" in options)
        if name != "export":
            for each in names:
                if "A" in options or "a" in options:
                    self.variables.set(each, Array({}, "A" in options))
        return Truth(True)

    def _call(self, name: str, arguments: Sequence[Runs]) -> Truth:
        if self._calls >= MAX_CALLS:
            self.note(arguments[0][0].at if arguments else 0, f"calls of '{name}' stand in one another too deep")
            return PRESUMED
        self._calls += 1
        self.variables.call(tuple(arguments))
        try:
            return self.run((self.functions[name],))._replace(presumed=True)
        except FunctionEndError:
            return PRESUMED
        finally:
            self.variables.leave()
            self._calls -= 1

    def program(
        self, words: Sequence[Runs], environment: Mapping[str, Word] | None = None, text: Runs | None = None
    ) -> None:
        """A program; where it only starts a script, the script's commands stand in its place."""
        command = Command(tuple(map(self.word, words)), environment or {}, self._within)
        launch = unwrapped(command)
        inner = words[len(words) - len(launch.command.words) :]
        name = posixpath.basename(text_of(inner[0]))
        before = len(self.commands)
        outer = self._within, self._inherited
        self._inherited = launch.command.environment
        self._within = (*launch.runners, *((launch.command,) if name in _SUBMITTERS else ()))
        self._started(name, inner, text)
        self._within, self._inherited = outer
        if len(self.commands) == before:
            self.commands.append(command)

    def _started(self, name: str, words: Sequence[Runs], text: Runs | None) -> None:
        """What a shell, `sbatch` or `ssh` starts: a text in its words, a file, or its standard input."""
        if name in _SHELLS:
            flags, rest = leading_options(words[1:], "-o -O")
            if rest and any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", each) for each in flags):
                self.inner(rest[0], ())
                return
        elif name in _SUBMITTERS:
            _, rest = leading_options(words[1:], _SUBMITTERS[name])
            if name == "ssh" and len(rest) > 1:
                self.inner(joined(rest[1:]), ())
                return
            rest = [] if name == "ssh" else rest
        elif text_of(words[0]).endswith(".sh"):
            rest = list(words)
        else:
            return
        if rest and text_of(rest[0]) != "-":
            self.file(rest[0], rest[1:])
        elif text is not None:
            self.inner(text, ())

    def inner(self, runs: Runs, arguments: Sequence[Runs]) -> None:
        """Reads a text that stands in the script as commands of their own."""
        if not runs or self._calls >= MAX_CALLS:
            return
        self._calls += 1
        self.variables.call(tuple(arguments))
        try:
            self.script(moving_text(runs))
        except (ScriptEndError, FunctionEndError, LoopEndError):
            pass
        finally:
            self.variables.leave()
            self._calls -= 1

    def file(self, name: Runs, arguments: Sequence[Runs]) -> None:
        """Reads another script: one written before, or one below the folder of this one."""
        path, at = _path(text_of(name)), name[0].at
        if path in self.written:
            self.inner(self.written[path], arguments)
            return
        outside = path.startswith(("/", "..", "~")) or unknown_in(name)
        found = None if outside or not self.loader or self._files >= MAX_FILES else self.loader(path)
        if found is None:
            self.note(
                at, f"'{text_of(name)}' is not read" + (": it lies outside the script's folder" if outside else "")
            )
            return
        self._files += 1
        own, self.expander.own_name = self.expander.own_name, f"./{path}"
        text = self.places.add(found, Location(path, 1, 1))
        self.inner((Run(text.characters, text.offsets[0]),), arguments)
        self.expander.own_name = own

    def complete(self, read: Callable[[], None]) -> None:
        """Reads until the script ends or leaves itself."""
        with suppress(ScriptEndError, FunctionEndError, LoopEndError):
            read()

    def result(self) -> Script:
        """All that was read."""
        variables: dict[str, Word | tuple[Word, ...]] = {}
        split: dict[str, tuple[Word, ...]] = {}
        for name in self.variables.values:
            value = self.variables.get(name, 0)
            items = [item for item in items_of(value) if item]
            if items:
                words = tuple(map(self.word, items))
                variables[name] = words if isinstance(value, Array) else words[0]
                split[name] = tuple(self.word(word) for item in items for word in split_words(item))
        unread = tuple([Unread(self.places.locate(at), why) for at, why in self.notes])
        return Script(tuple(self.commands), variables, split, self.directives, tuple(self.heredocs), unread)


def _path(name: str) -> str:
    return posixpath.normpath(name)


def _echoed(words: Sequence[Runs]) -> Runs:
    kept = list(words)
    while kept and text_of(kept[0]) in {"-n", "-e", "-E", "-ne", "-en"}:
        kept.pop(0)
    return (*joined(kept), Run("\n", kept[-1][0].at, moves=False)) if kept else ()
