"""Shell scripts followed as far as launch scripts need: assignments, conditions, functions, and commands with flags."""

from __future__ import annotations

import operator
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.readers.shell_expansion import (
    Array,
    Budget,
    Expander,
    NoValueError,
    Run,
    UnknownNamesError,
    Variables,
    appended,
    as_pattern,
    computed_in,
    list_items,
    moving_text,
    plain_text,
    split_words,
    text_of,
    unknown_in,
)
from xe_sizer.interop.readers.shell_syntax import (
    DECLARATIONS,
    AndOr,
    Assignment,
    Calculation,
    Case,
    CommandReader,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Pipeline,
    Places,
    Simple,
    Test,
)

if TYPE_CHECKING:
    from xe_sizer.interop.readers.shell_expansion import Runs, Value
    from xe_sizer.interop.readers.shell_syntax import Node, Redirection, Text

__all__ = ["Arguments", "Command", "Flag", "Heredoc", "Launch", "Script", "Word", "parse_flags", "read_script",
           "read_words", "unwrapped"]  # fmt: skip

# Flags, Hydra overrides and positional arguments of a command.

_NUMBER = re.compile(r"-\.?\d")
_FLAG = re.compile(r"--?([A-Za-z_][^=\s]*)(=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"(\+\+?|~)?([A-Za-z_][\w./@-]*)=(.*)|~([A-Za-z_][\w./@-]*)", re.DOTALL)
_FURTHER_FLAGS = re.compile(r"ARG|OPT|FLAG|PARAM|EXTRA|CMD|COMMAND|[@*]", re.IGNORECASE)


class Word(Immutable):
    """One word of a command and its place. What is not known stands as `${NAME}`; `unknown` are the names."""

    text: str
    where: Location
    unknown: tuple[str, ...] = ()


class Flag(Immutable):
    """`--name value...` or an override `name=value`, of which `sign` is "+", "++" or "~".

    `name` is without dashes and with `_` for `-`.
    """

    name: str
    values: tuple[Word, ...]
    where: Location
    override: bool = False
    sign: str = ""


class Arguments(Immutable):
    """What follows a program's name: flags by name in the order of their last occurrence, and all other words."""

    flags: Mapping[str, Flag]
    positionals: tuple[Word, ...]


def parse_flags(words: Iterable[Word], switches: Collection[str] = frozenset()) -> Arguments:
    """Flags of a command's words, without its program.

    A flag takes all words up to the next flag or override, `--flag=value` just that one. `switches` are names that
    take none: the words behind stay positional.
    """
    found: dict[str, tuple[Flag, list[Word]]] = {}
    positionals: list[Word] = []
    taken: list[Word] | None = None  # values of the flag that takes what follows
    remaining = iter(words)
    for word in remaining:
        flag = None if _NUMBER.match(word.text) else _FLAG.fullmatch(word.text)
        override = _OVERRIDE.fullmatch(word.text)
        if word.text == "--":
            positionals += remaining
            break
        if flag:
            name, value = flag[1].replace("-", "_"), flag[3]
            opened = Flag(name, (), word.where)
        elif override and _is_override(override, taken):
            name, value = override[2] or override[4], override[3]
            opened = Flag(name, (), word.where, True, (override[1] or "") if override[2] else "~")
        elif taken is not None and not _holds_further_flags(word, taken):
            taken.append(word)
            continue
        else:
            positionals.append(word)
            continue
        values = [] if value is None else [Word(value, word.where, word.unknown)]
        found.pop(name, None)  # flags stand in the order of their last occurrence
        found[name] = opened, values
        taken = values if flag and value is None and name not in switches else None
    return Arguments(
        {name: replace(flag, values=tuple(values)) for name, (flag, values) in found.items()}, tuple(positionals)
    )


def _is_override(match: re.Match[str], taken: list[Word] | None) -> bool:
    """`a.b=c` is an override wherever it stands; `a=c` is one unless the flag in front takes such words."""
    if taken is None or match[1] or match[4] or "." in match[2]:
        return True
    return bool(taken) and not _OVERRIDE.fullmatch(taken[0].text)


def _holds_further_flags(word: Word, taken: list[Word]) -> bool:
    """Whether a word that is not known holds further flags rather than a value of the one in front."""
    if len(word.unknown) != 1 or word.text != f"${{{word.unknown[0]}}}":
        return False
    return bool(taken or _FURTHER_FLAGS.search(word.unknown[0]))


# Conditions of a script: `[ ... ]`, `[[ ... ]]` and how sure their answer is.

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne,
    "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")
_SAME, _DIFFERENT = frozenset({"=", "=="}), "!="
_BINARY = frozenset({*_COMPARISONS, *_SAME, _DIFFERENT, "<", ">", "=~", "-nt", "-ot", "-ef"})


class Truth(NamedTuple):
    """Whether a condition holds, and whether that is sure: what is not set counts as empty.

    presumed : a program that is taken to succeed
    unread : the condition, and where it stands, that is not read and taken as not met
    """

    value: bool
    sure: bool = True
    presumed: bool = False
    unread: tuple[str, int] | None = None

    def __invert__(self) -> Truth:
        return self._replace(value=not self.value)

    def and_then(self, right: Truth) -> Truth:
        if not right.value and right.sure:
            return right
        return Truth(self.value and right.value, self.sure and right.sure, False, self.unread or right.unread)


PRESUMED = Truth(True, sure=False, presumed=True)


class Condition:
    """One test. Variables that are not set are empty, as for a shell; answers that rest on them are not sure."""

    def __init__(self, words: Sequence[Runs], expander: Expander, place: int, *, double: bool) -> None:
        self.words, self.expander, self.place, self.double = words, expander, place, double
        self.at = 0

    def truth(self) -> Truth:
        """Alternatives with `||` of conditions with `&&`; parentheses, `-a` and `-o` are not read."""
        left = self._all() if self.words else Truth(False)
        while self._sign() == "||":
            self.at += 1
            left = ~(~left).and_then(~self._all())
        return left if self.at >= len(self.words) else self._unread()

    def _unread(self) -> Truth:
        return Truth(False, sure=False, unread=(" ".join(map(text_of, self.words)), self.place))

    def _sign(self, offset: int = 0) -> str:
        """The operator that stands here; quoted text is none."""
        word = self.words[self.at + offset] if self.at + offset < len(self.words) else ()
        return "" if any(run.quoted for run in word) else text_of(word)

    def _take(self) -> Runs:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ()

    def _all(self) -> Truth:
        left = self._one()
        while self._sign() == "&&":
            self.at += 1
            left = left.and_then(self._one())
        return left

    def _one(self) -> Truth:
        if self._sign() == "!" and self._sign(1) not in _BINARY:
            self.at += 1
            return ~self._one()
        if self._sign(1) in _BINARY:
            left, sign, right = self._take(), text_of(self._take()), self._take()
            return self._compared(left, sign, right)
        sign = self._sign()
        is_unary = len(sign) == 2 and sign[0] == "-" and sign[1].isalpha()
        if is_unary and not (self.double and self.at + 1 >= len(self.words)):
            self.at += 1
        else:
            sign = "-n"
        operand = self._take()
        if sign in {"-z", "-n"}:
            return Truth((plain_text(operand) == "") is (sign == "-z"), not unknown_in(operand))
        if sign == "-v":
            is_set = self.expander.variables.get(text_of(operand), self.place) is not None
            return Truth(is_set, sure=is_set)
        return Truth(True, sure=False) if sign in _FILE_TESTS else self._unread()

    def _compared(self, left: Runs, sign: str, right: Runs) -> Truth:
        sure = not unknown_in((*left, *right))
        if computed_in((*left, *right)):
            return Truth(False, sure)
        if sign in _COMPARISONS:
            numbers = plain_text(left), plain_text(right)
            if self.double:  # there, what is empty counts as zero
                numbers = numbers[0] or "0", numbers[1] or "0"
            try:
                first, second = (self.expander.number(each, left[0].at if left else 0) for each in numbers)
                return Truth(_COMPARISONS[sign](first, second), sure)
            except NoValueError:
                return Truth(False, sure=False)
        if sign not in _SAME and sign != _DIFFERENT:
            return self._unread()
        pattern = as_pattern(right) if self.double else None
        self.expander.budget.spend(0, len(text_of(left)))
        same = plain_text(left) == plain_text(right) if pattern is None else fnmatchcase(plain_text(left), pattern)
        return Truth(same is (sign != _DIFFERENT), sure)


# Programs that only start another one: what they are told, and what they start.

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_MAX_RUNNERS = 50
_PYTHON = re.compile(r"(python|pypy)[\d.]*|ipython")
_PROGRAM = re.compile(r".+\.(py|sh)|python[\d.]*|torchrun|deepspeed|accelerate|bash|sh")


class Command(Immutable):
    """One command.

    `environment` holds what was exported before it and what stands in front of it, `within` the commands whose
    text or file it comes from, outermost first (`srun`, `sbatch`).
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    within: tuple[Command, ...] = ()

    @property
    def where(self) -> Location:
        """Where its first word stands."""
        return self.words[0].where


class Launch(Immutable):
    """What is started in the end, from a script's or module's name on, and what starts it, outermost first."""

    runners: tuple[Command, ...]
    command: Command


class _Runner(msgspec.Struct, forbid_unknown_fields=True):
    """How the flags of a runner are told from the program it starts, as launchers.yaml says; words between blanks."""

    names: str
    switches: str = ""
    valued: str | None = None
    subcommands: tuple[str, ...] = ()
    skipped: int = 0

    def takes_value(self, flag: str) -> bool:
        """Whether a flag without `=` is followed by its value."""
        return flag not in self.switches.split() if self.valued is None else flag in self.valued.split()


@cache
def _runners() -> Mapping[str, _Runner]:
    """Runners by name."""
    rows = msgspec.yaml.decode((Path(__file__).parent / "launchers.yaml").read_bytes(), type=list[_Runner])
    return {name: row for row in rows for name in row.names.split()}


def unwrapped(command: Command) -> Launch:
    """The program that a command starts in the end; `srun torchrun train.py` is `train.py` started by two runners.

    A command that only starts something, with nothing behind, is its own program.
    """
    runners = list(command.within)
    environment = dict(command.environment)
    words = command.words
    while True:
        words = _without_assignments(words, environment)
        count = _own_words(words)
        if not 0 < count < len(words) or len(runners) >= _MAX_RUNNERS:
            break
        runners.append(Command(words[:count], environment))
        words = words[count:]
    words = words or command.words
    return Launch(tuple(runners), Command(words, environment, command.within))


def _without_assignments(words: tuple[Word, ...], environment: dict[str, Word]) -> tuple[Word, ...]:
    """`env A=1 program`: what stands in front of the program belongs to its environment."""
    at = 0
    while at < len(words) - 1 and (match := _ASSIGNED.fullmatch(words[at].text)):
        environment[match[1]] = Word(match[2], words[at].where, words[at].unknown)
        at += 1
    return words[at:]


def _own_words(words: tuple[Word, ...]) -> int:
    """How many words belong to the runner in front; 0 where the first word is no runner."""
    name = posixpath.basename(words[0].text)
    if words[0].unknown and words[0].text == f"${{{words[0].unknown[0]}}}":
        return 1  # `$LAUNCHER program`: whatever it is, what follows is what is started
    is_python = bool(_PYTHON.fullmatch(name))
    runner = _runners().get("python" if is_python else name)
    if runner is None:
        return 0
    at, texts = 1, [word.text for word in words]
    if runner.subcommands:
        follows = (words.split() for words in runner.subcommands)
        at = next((1 + len(one) for one in follows if texts[1 : 1 + len(one)] == one), 0)
    while 0 < at < len(words) and texts[at].startswith("-"):
        flag = texts[at]
        at += 1
        if flag == "--":
            break
        if flag == "-c" and is_python:
            return 0
        if "=" not in flag and runner.takes_value(flag) and at < len(words):
            # A word behind a flag that nobody lists may be the program.
            is_program = runner.valued is None and at + 1 < len(words) and _PROGRAM.fullmatch(texts[at])
            at += not texts[at].startswith("-") and not is_program
    return at + runner.skipped if at else 0


# What reading a script gives.


class Heredoc(Immutable):
    """Text that a script writes to a file (`cat > target <<EOF`, `echo ... > target`) or gives to a program."""

    target: str | None
    text: str
    where: Location


class Script(Immutable):
    """A script as it would run without arguments: its commands in order with all variables replaced.

    `variables` are those at its end. `directives` are the flags of `#SBATCH` lines (text "" where a flag has no
    value).
    """

    commands: tuple[Command, ...]
    variables: Mapping[str, Word | tuple[Word, ...]]
    directives: Mapping[str, Word]
    heredocs: tuple[Heredoc, ...]


# Reads the commands of a script: branches by what is known, functions where they are called, what shells do
# themselves, and programs with their words. What is not read and may change what is launched is refused.

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
_LEAVING = frozenset({"exit", "return", "die"})
_WITHOUT_EFFECT = frozenset({
    "echo", "printf", "exit", "return", "set", ":", "true", "false", "sleep", "mkdir", "rm", "kill", "wait", "ls",
    "date", "trap", "chmod", "touch", "cp", "mv", "ln", "wget", "curl", "git", "hf", "huggingface-cli", "pip", "pip3",
    "apt-get", "which", "command", "ulimit", "nvidia-smi", "rocm-smi", "conda", "module", "break", "continue", "[",
    "test",
})  # fmt: skip
# Builtins that set names.
_SETTING = frozenset({*DECLARATIONS, "read", "unset", "let", "mapfile", "readarray"})


class ScriptEndError(Exception):
    """`exit` of the script."""


class FunctionEndError(Exception):
    """`return` of a function or a file that was read in."""


class Reading:
    """One reading; `loader` gives the text of a file below the script's folder, None where there is none."""

    def __init__(self, places: Places, given: Mapping[str, str], own_name: str, loader: Loader | None) -> None:
        self.places, self.variables, self.budget, self.loader = places, Variables(given), Budget(), loader
        self.expander = Expander(self.variables, self.budget, own_name)
        self.functions: dict[str, Node] = {}
        self.endings: set[str] = set()  # functions that only say something and end the script, as `usage` does
        self.loops: list[Loop] = []  # that were not read
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
        nodes = CommandReader(text, self.places).script()
        for match in _DIRECTIVE.finditer(text.characters):
            end = text.characters.find("\n", match.end())
            line = text.part(match.end(), end if end >= 0 else len(text.characters))
            directive = CommandReader(line, self.places).script()
            words = self._expanded(directive[0]) if directive and isinstance(directive[0], Simple) else []
            for name, flag in parse_flags(map(self.word, words)).flags.items():
                self.directives[name] = flag.values[0] if flag.values else Word("", flag.where)
        self.run(nodes)

    def run(self, nodes: Iterable[Node]) -> Truth:
        """Reads commands one after the other; the answer of the last."""
        status = Truth(True)
        for node in nodes:
            self.budget.spend(1, 0)
            handler: Callable[[Reading, Any], Truth] = _HANDLERS[type(node)]
            status = handler(self, node)
        return status

    def _pipeline(self, node: Pipeline) -> Truth:
        status = PRESUMED
        try:
            for stage in node.stages:
                status = self.run((stage,))
        except ScriptEndError:
            if len(node.stages) == 1:
                raise
        if len(node.stages) > 1:
            status = PRESUMED
        return ~status if node.negated else status

    def _and_or(self, node: AndOr) -> Truth:
        left = self.run((node.left,))
        goes_on = left.value is (node.operator == "&&")
        if not left.sure and not left.presumed and self._leaves((node.right,)):
            return left
        self._require_read(left, (node.right,))
        if not goes_on:
            return left
        right = self.run((node.right,))
        return right if left.sure or left.presumed else right._replace(sure=False, presumed=False)

    def _if(self, node: If) -> Truth:
        sure = True
        for condition, body in node.arms:
            truth = self.run(condition)
            sure = sure and truth.sure
            leaves = not truth.sure and self._leaves(body)
            if not leaves:
                self._require_read(truth, (*body, *node.otherwise))
            if truth.value and not leaves:
                return self.run(body)
        return Truth(True) if not sure and self._leaves(node.otherwise) else self.run(node.otherwise)

    def _require_read(self, truth: Truth, nodes: Iterable[Node]) -> None:
        """Raises InputError: commands that may change what is launched depend on a condition that is not read."""
        if truth.unread is not None and self._matter(nodes):
            self.places.refuse(f"the condition '{truth.unread[0]}'", truth.unread[1])

    def _leaves(self, nodes: Iterable[Node]) -> bool:
        """Whether commands end the script; a branch that does is not the one that people run."""
        for node in nodes:
            if isinstance(node, Simple):
                if _name(node) in _LEAVING or _name(node) in self.endings:
                    return True
            elif self._leaves(
                node.body if isinstance(node, Group) else (node.right,) if isinstance(node, AndOr) else ()
            ):
                return True
        return False

    def _matter(self, nodes: Iterable[Node]) -> bool:
        """Whether commands can change what is launched."""
        return any(
            _name(node) not in _WITHOUT_EFFECT if isinstance(node, Simple) else self._matter(_inside(node))
            for node in nodes
        )

    def _case(self, node: Case) -> Truth:
        subject = self.expander.text(node.subject)
        for patterns, body in node.arms:
            texts = [as_pattern(self.expander.text(pattern)) for pattern in patterns]
            fits = [text == "*" or (text and fnmatchcase(plain_text(subject), text)) for text in texts]
            if any(fits) and ("*" in texts or not computed_in(subject)):
                return Truth(True) if unknown_in(subject) and self._leaves(body) else self.run(body)
        return Truth(True)

    def _loop(self, node: Loop) -> Truth:
        """A loop without rounds is stepped over; of another one the names that it sets are not known afterwards."""
        names: set[str] = set()
        if node.kind in {"while", "until"}:
            before = len(self.commands)
            truth = self.run(node.heading)
            del self.commands[before:]
            runs = truth.unread is not None or truth.value is (node.kind == "while")
        elif node.heading and isinstance(node.heading[0], Simple):
            words = self._expanded(node.heading[0])  # NAME in WORDS, or NAME alone for the script's arguments
            runs, names = len(words) > 2, {text_of(words[0])}
        else:
            runs = True
        if runs and self._matter(node.body):
            self.loops.append(node)
            for name in {*names, *_assigned(node.body)}:
                unknown = Run(f"${{{name}}}", node.at, False, False, (name,), computed=True)
                self.variables.set(name, (unknown,))
        return Truth(True)

    def _function(self, node: Function) -> Truth:
        self.functions[node.name] = node.body
        self.endings.discard(node.name)
        if not self._matter((node.body,)) and self._leaves((node.body,)):
            self.endings.add(node.name)
        return Truth(True)

    def _group(self, node: Group) -> Truth:
        before = dict(self.variables.values) if node.subshell else self.variables.values
        self.budget.spend(0, len(before) if node.subshell else 0)
        try:
            return self.run(node.body)
        except ScriptEndError:
            if not node.subshell:
                raise
            return Truth(True)
        finally:
            self.variables.values = before

    def _calculation(self, node: Calculation) -> Truth:
        """`(( ... ))` holds where the value is not zero."""
        text = self.expander.text(node.expression)
        try:
            return Truth(self.expander.number(text, node.at) != 0)
        except UnknownNamesError:
            return Truth(False, sure=False)
        except NoValueError:
            self.places.refuse(f"'(({text_of(text)}))'", node.at)

    def _test(self, node: Test) -> Truth:
        words = [self.expander.text(word) or (Run("", node.at, False, True),) for word in node.words]
        return Condition(words, self.expander, node.at, double=True).truth()

    # Simple commands.

    def word(self, runs: Runs) -> Word:
        return Word(text_of(runs), self.places.locate(runs[0].at), unknown_in(runs))

    def _expanded(self, node: Simple) -> list[Runs]:
        parts = [word for word in node.words if not isinstance(word, Assignment)]
        return [word for each in parts for word in self.expander.words(each)]

    def _simple(self, node: Simple) -> Truth:
        text, piped = self._input(node.redirections), self._piped
        self._piped = None
        text = piped if text is None else text
        if not node.words:
            for assignment in node.assignments:
                self._assign(assignment)
            return Truth(True)
        words = self._expanded(node)
        builtin = _BUILTINS.get(text_of(words[0])) if words else Reading._constant
        if builtin:
            return builtin(self, node, words, text)
        self._output(node, words, text)
        if text_of(words[0]) in self.functions:
            return self._call(node, words)
        environment = dict(self._inherited)  # what was exported so far, and the assignments in front of the command
        self.budget.spend(0, 10 * len(self.variables.exported))
        for name in self.variables.exported:
            value = self.variables.get(name, node.at)
            if value and not isinstance(value, Array):
                environment[name] = self.word(value)
        for each in node.assignments:
            runs = self.expander.text(each.value)
            environment[each.name] = self.word(runs) if runs else Word("", self.places.locate(each.at))
        self.program(words, environment, text)
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
        name, target, appends = text_of(words[0]), None, False
        if name == "echo":
            kept = [word for word in words[1:] if not re.fullmatch(r"-[neE]+", text_of(word))]
            text = (*_joined(kept), Run("\n", kept[-1][0].at, moves=False)) if kept else ()
        if name in {"cat", "echo", "tee"} and text is not None:
            for each in node.redirections:
                if _TO_STANDARD_OUTPUT.fullmatch(each.operator):
                    target, appends = self.expander.text(each.target), ">>" in each.operator
            if name == "tee" and len(words) > 1:
                target, appends = words[-1], any(text_of(word) == "-a" for word in words[1:])
            if target is None:
                self._piped = text or None
                return
        path = None if target is None else posixpath.normpath(text_of(target))
        if not text or path == "/dev/null":
            return
        self.heredocs.append(Heredoc(path, text_of(text), self.places.locate(text[0].at)))
        if path is not None:
            self.written[path] = (*self.written.get(path, ()), *text) if appends else text

    def _assign(self, node: Assignment) -> None:
        if node.item:
            self.places.refuse(f"'{node.name}[...]=', which sets one item of a list,", node.at)
        old = self.variables.get(node.name, node.at)
        if node.items is not None:
            new: Value = Array(tuple([word for item in node.items for word in self.expander.words(item)]))
        else:
            new = self.expander.text(node.value)
        if node.append:  # each one copies what was there
            self.budget.spend(0, len(old.items if isinstance(old, Array) else old or ()))
        self.variables.set(node.name, appended(old, new) if node.append else new)

    def _call(self, node: Simple, words: Sequence[Runs]) -> Truth:
        name = text_of(words[0])
        if self._calls >= MAX_CALLS:
            self.places.refuse(f"'{name}', whose calls are nested too deep,", node.at)
        self._calls += 1
        self.variables.arguments.append(tuple(words[1:]))
        try:
            return self.run((self.functions[name],))._replace(presumed=True)
        except FunctionEndError:
            return PRESUMED
        finally:
            self.variables.arguments.pop()
            self._calls -= 1

    # What shells do themselves.

    def _source(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        if len(words) > 1:
            self.file(words[1], words[2:] or self.variables.arguments[-1])
        return Truth(True)

    def _eval(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        if not all(run.computed for word in words[1:] for run in word):
            self.inner(_joined(words[1:]), self.variables.arguments[-1])
        return PRESUMED

    def _bracket(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        parts = [word for word in node.words[1:] if not isinstance(word, Assignment)]
        operands = [self.expander.text(part) or (Run("", node.at, False, True),) for part in parts]
        if operands and text_of(words[0]) == "[" and text_of(operands[-1]) == "]":
            operands.pop()
        return Condition(operands, self.expander, node.at, double=False).truth()

    def _shift(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        count = text_of(words[1]) if len(words) > 1 else "1"
        self.variables.shift(int(count[:6]) if count.isdigit() else 1)
        return Truth(True)

    def _unset(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        for word in words[1:]:
            self.variables.values.pop(text_of(word), None)
        return Truth(True)

    def _leave(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        raise ScriptEndError if text_of(words[0]) == "exit" else FunctionEndError

    def _refused(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        self.places.refuse(f"'{text_of(words[0])}'", node.at)

    def _constant(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        return Truth(not words or text_of(words[0]) != "false")

    def _declare(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        options = "".join(text_of(word) for word in words[1:] if text_of(word).startswith("-"))
        assignments = [each for each in node.words if isinstance(each, Assignment)]
        if text_of(words[0]) == "export" or "x" in options:
            names = [text_of(word) for word in words[1:] if not text_of(word).startswith("-")]
            self.variables.exported.update(dict.fromkeys((*names, *(each.name for each in assignments))))
        for assignment in assignments:
            if "A" in options:
                self.places.refuse(f"'{assignment.name}', a list whose items have names,", assignment.at)
            self._assign(assignment)
        return Truth(True)

    def _read(self, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
        """`read NAMES <<< text`; without a text the names hold what is not known."""
        flags, names = _leading_options(words[1:], "-d -p -t -n -N -u")
        if text is None:
            for name in names:
                unknown = Run("$(read)", node.at, False, False, ("$(read)",), computed=True)
                self.variables.set(text_of(name), (unknown,))
            return PRESUMED
        separators = next(
            (text_of(self.expander.text(each.value)) for each in node.assignments if each.name == "IFS"), ""
        )
        if separators.strip() and not unknown_in(text):
            parts = re.split(f"[{re.escape(separators)}]", text_of(text).strip())
            fields: list[Runs] = [(Run(part, text[0].at, moves=False),) for part in parts]
        else:
            fields = split_words(run._replace(quoted=False) for run in text)
        if any("a" in flag for flag in flags) and names:
            self.variables.set(text_of(names[0]), Array(tuple(fields)))
            return PRESUMED
        for at, name in enumerate(names):
            last = at == len(names) - 1
            whole = "-d" in flags or (last and at == 0)
            value = text if whole else _joined(fields[at:] if last else fields[at : at + 1])
            self.variables.set(text_of(name), _stripped(value))
        return PRESUMED

    # Programs, and the scripts that they start.

    def program(self, words: Sequence[Runs], environment: Mapping[str, Word], text: Runs | None) -> None:
        """A program; where it only starts a script, the script's commands stand in its place."""
        command = Command(tuple(map(self.word, words)), environment, self._within)
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
            flags, rest = _leading_options(words[1:], "-o -O")
            if rest and any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", each) for each in flags):
                self.inner(rest[0], ())
                return
        elif name in _SUBMITTERS:
            _, rest = _leading_options(words[1:], _SUBMITTERS[name])
            if name == "ssh" and len(rest) > 1:
                self.inner(_joined(rest[1:]), ())
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
        if not runs:
            return
        if self._calls >= MAX_CALLS:
            self.places.refuse("a script that starts itself", runs[0].at)
        self._calls += 1
        self.variables.arguments.append(tuple(arguments))
        try:
            self.script(moving_text(runs))
        except (ScriptEndError, FunctionEndError):
            pass
        finally:
            self.variables.arguments.pop()
            self._calls -= 1

    def file(self, name: Runs, arguments: Sequence[Runs]) -> None:
        """Reads another script: one written before, or one below the folder of this one; no other."""
        path = posixpath.normpath(text_of(name))
        if path in self.written:
            self.inner(self.written[path], arguments)
            return
        outside = path.startswith(("/", "..", "~")) or unknown_in(name)
        found = None if outside or not self.loader or self._files >= MAX_FILES else self.loader(path)
        if found is None:
            return
        self._files += 1
        own, self.expander.own_name = self.expander.own_name, f"./{path}"
        text = self.places.add(found, Location(path, 1, 1))
        self.inner((Run(text.characters, text.offsets[0]),), arguments)
        self.expander.own_name = own

    def result(self) -> Script:
        """All that was read. Raises InputError: only a loop starts something."""
        if self.loops and all(command.words[0].text in _WITHOUT_EFFECT for command in self.commands):
            self.places.refuse(f"a '{self.loops[0].kind}' loop", self.loops[0].at)
        variables: dict[str, Word | tuple[Word, ...]] = {}
        for name in self.variables.values:
            value = self.variables.get(name, 0)
            words = tuple(self.word(item) for item in list_items(value) if item)
            if words:
                variables[name] = words if isinstance(value, Array) else words[0]
        return Script(tuple(self.commands), variables, self.directives, tuple(self.heredocs))


_HANDLERS: dict[type, Callable[[Any, Any], Truth]] = {
    Simple: Reading._simple, Pipeline: Reading._pipeline, AndOr: Reading._and_or, If: Reading._if,
    Case: Reading._case, Loop: Reading._loop, Function: Reading._function, Group: Reading._group,
    Test: Reading._test, Calculation: Reading._calculation,
}  # fmt: skip

_BUILTINS: Mapping[str, Callable[[Reading, Simple, list[Runs], Runs | None], Truth]] = {
    "source": Reading._source, ".": Reading._source, "eval": Reading._eval, "[": Reading._bracket,
    "test": Reading._bracket, "read": Reading._read, "shift": Reading._shift, "unset": Reading._unset,
    "exit": Reading._leave, "return": Reading._leave, **dict.fromkeys(DECLARATIONS, Reading._declare),
    **dict.fromkeys(("let", "mapfile", "readarray"), Reading._refused),
    **dict.fromkeys(("set", ":", "true", "false"), Reading._constant),
}  # fmt: skip


def _name(node: Simple) -> str:
    """The command's name where it stands literally; "=" for assignments."""
    if not node.words or isinstance(node.words[0], Assignment):
        return "="
    first = node.words[0][0]
    return first.text if len(node.words[0]) == 1 and isinstance(first, Literal) else ""


def _inside(node: Node) -> tuple[Node, ...]:
    """The commands that a compound command runs."""
    if isinstance(node, If | Case):
        bodies = tuple(each for _, body in node.arms for each in body)
        return (*bodies, *node.otherwise) if isinstance(node, If) else bodies
    if isinstance(node, AndOr):
        return (node.left, node.right)
    if isinstance(node, Pipeline):
        return node.stages
    if isinstance(node, Loop | Group):
        return node.body
    return (node.body,) if isinstance(node, Function) else ()


def _assigned(nodes: Iterable[Node]) -> Iterator[str]:
    """Names that commands set."""
    for node in nodes:
        if not isinstance(node, Simple):
            yield from _assigned(_inside(node))
        elif not node.words or _name(node) in _SETTING:
            assignments = [each for each in (*node.assignments, *node.words) if isinstance(each, Assignment)]
            words = [word[0] for word in node.words[1:] if not isinstance(word, Assignment)]
            yield from [each.name for each in assignments]
            yield from [word.text for word in words if isinstance(word, Literal)]


def _joined(words: Sequence[Runs]) -> Runs:
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


def _leading_options(words: Sequence[Runs], valued: str) -> tuple[list[str], list[Runs]]:
    """Options in front and the words behind them; `valued` are the options that take the next word."""
    taking, options, at = valued.split(), [], 0
    while at < len(words) and (text := text_of(words[at])).startswith(("-", "+")) and len(text) > 1:
        options.append(text)
        at += 1
        if text == "--":
            break
        at += text in taking
    return options, list(words[at:])


# Launch scripts and command lines, read without running anything: variables replaced, flags with their places.


def read_script(text: str, name: str, given: Mapping[str, str] | None = None, loader: Loader | None = None) -> Script:
    """The commands of a script as they would run without arguments; nothing is run.

    `given` are values of variables that win over what the script assigns; "1", "2" are its arguments. `loader` gives
    the text of another script by its path below this script's folder, or None where it cannot be read.

    Raises InputError for a script that is too long, nested too deep, expands to too much, or in which what is
    launched depends on something that is not read.
    """
    reading = Reading(Places(), given or {}, "./" + name.rpartition("/")[2], loader)
    source = reading.places.add(text.removeprefix("\ufeff"), Location(name, 1, 1))
    return _finished(reading, lambda: reading.script(source), Location(name))


def read_words(
    words: Sequence[tuple[str, Location]], given: Mapping[str, str] | None = None, loader: Loader | None = None
) -> Script:
    """A command as a list of words (`command:` and `args:` of containers), each with its place.

    `["bash", "-c", "text"]` is read as the text; a single word with blanks is read as a command line.
    Raises InputError as `read_script` does.
    """
    reading = Reading(Places(), given or {}, "./", loader)
    runs = [(Run(text, reading.places.add(text, where).offsets[0], quoted=True),) for text, where in words]

    def read() -> None:
        if len(runs) == 1:
            reading.inner(runs[0], ())
        elif runs:
            reading.program(runs, {}, None)

    return _finished(reading, read, words[0][1] if words else Location(""))


def _finished(reading: Reading, read: Callable[[], None], where: Location) -> Script:
    try:
        with suppress(ScriptEndError, FunctionEndError):
            read()
        return reading.result()
    except RecursionError as error:
        raise InputError(Problem("the script is nested too deep", where)) from error
