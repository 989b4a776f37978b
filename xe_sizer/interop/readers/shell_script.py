"""Shell scripts followed as far as launch scripts need: assignments, conditions, loops, and commands with flags."""

from __future__ import annotations

import math
import operator
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.readers.shell_expansion import (
    Array,
    Budget,
    Expander,
    NoValueError,
    Run,
    Runs,
    UnknownNamesError,
    Variables,
    appended,
    computed_in,
    items_of,
    known_text,
    matches,
    moving_text,
    pattern_of,
    plain_text,
    split_words,
    steps,
    substituted,
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
    from xe_sizer.interop.readers.shell_expansion import Value
    from xe_sizer.interop.readers.shell_syntax import Node, Parts, Redirection, Text

# Flags, Hydra overrides and positional arguments of a command.

_NUMBER = re.compile(r"-\.?\d")
_FLAG = re.compile(r"--?([A-Za-z_][^=\s]*)(=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"(\+\+?|~)?([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_REMOVED = re.compile(r"~([A-Za-z_][\w./@-]*)")
_FURTHER_FLAGS = re.compile(r"ARG|OPT|FLAG|PARAM|EXTRA|CMD|COMMAND|[@*]", re.IGNORECASE)


class Word(Immutable):
    """One word of a command and its place. What is not known stands as `${NAME}`; `unknown` are the names."""

    text: str
    where: Location
    unknown: tuple[str, ...] = ()


class Flag(Immutable):
    """`--name value...` or an override `name=value`.

    `name` is without dashes and with `_` for `-`. `sign` is "+", "++" or "~" of an override. `earlier` are the
    same flag's occurrences before this one.
    """

    name: str
    values: tuple[Word, ...]
    where: Location
    override: bool = False
    sign: str = ""
    earlier: tuple[Flag, ...] = ()


class Arguments(Immutable):
    """What follows a program's name: flags by name in the order of their last occurrence, and all other words."""

    flags: Mapping[str, Flag]
    positionals: tuple[Word, ...]


class _Occurrence(NamedTuple):
    """One occurrence of a flag while its words are gathered."""

    name: str
    where: Location
    values: list[Word]
    override: bool = False
    sign: str = ""

    def flag(self, earlier: tuple[Flag, ...] = ()) -> Flag:
        return Flag(self.name, tuple(self.values), self.where, self.override, self.sign, earlier)


class _Sorter:
    """Sorts words one after the other; `current` is the flag that takes what follows, `room` how many words more."""

    def __init__(self, switches: Collection[str], single: Collection[str]) -> None:
        self.switches, self.single = switches, single
        self.found: dict[str, list[_Occurrence]] = {}
        self.positionals: list[Word] = []
        self.only_positionals = False
        self.current: list[Word] = []
        self.room = 0.0

    def arguments(self) -> Arguments:
        flags = {
            name: last.flag(tuple([each.flag() for each in earlier])) for name, (*earlier, last) in self.found.items()
        }
        return Arguments(flags, tuple(self.positionals))

    def take(self, word: Word) -> None:
        if self.only_positionals:
            self.positionals.append(word)
        elif word.text == "--":
            self.only_positionals = True
        elif (flag := _FLAG.fullmatch(word.text)) and not _NUMBER.match(word.text):
            self._open(flag[1].replace("-", "_"), flag[3], word)
        elif self._overrides(word):
            self._override(word)
        elif self.room > 0 and not self._is_further(word):
            self.current.append(word)
            self.room -= 1
        else:
            self.positionals.append(word)

    def _open(self, name: str, value: str | None, word: Word) -> None:
        values = [] if value is None else [Word(value, word.where, word.unknown)]
        self._add(_Occurrence(name, word.where, values))
        self.room = 0 if value is not None or name in self.switches else 1 if name in self.single else math.inf

    def _override(self, word: Word) -> None:
        assigned = _OVERRIDE.fullmatch(word.text)
        if assigned:
            value = Word(assigned[3], word.where, word.unknown)
            self._add(_Occurrence(assigned[2], word.where, [value], True, assigned[1] or ""))
        else:
            self._add(_Occurrence(word.text[1:], word.where, [], True, "~"))
        self.room = 0

    def _add(self, occurrence: _Occurrence) -> None:
        before = self.found.pop(occurrence.name, [])  # flags stand in the order of their last occurrence
        before.append(occurrence)
        self.found[occurrence.name] = before
        self.current = occurrence.values

    def _overrides(self, word: Word) -> bool:
        """`a.b=c` is an override wherever it stands; `a=c` is one unless the flag in front takes such words."""
        match = _OVERRIDE.fullmatch(word.text)
        if not match:
            return bool(_REMOVED.fullmatch(word.text))
        if self.room <= 0 or match[1] or "." in match[2]:
            return True
        return bool(self.current) and not _OVERRIDE.fullmatch(self.current[0].text)

    def _is_further(self, word: Word) -> bool:
        """Whether a word that is not known holds further flags rather than a value of the one in front."""
        if len(word.unknown) != 1 or word.text != f"${{{word.unknown[0]}}}":
            return False
        return bool(self.current or _FURTHER_FLAGS.search(word.unknown[0]))


def flags_of(
    words: Iterable[Word],
    switches: Collection[str] = frozenset(),
    single: Collection[str] = frozenset(),
) -> Arguments:
    """Flags of a command's words, without its program.

    A flag takes all words up to the next flag or override, `--flag=value` just that one. `switches` are names that
    take none, `single` names that take one: the words behind stay positional.
    """
    sorter = _Sorter(switches, single)
    for word in words:
        sorter.take(word)
    return sorter.arguments()


# Conditions of a script: `[ ... ]`, `[[ ... ]]` and how sure their answer is.

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne,
    "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")
_SAME, _DIFFERENT = frozenset({"=", "=="}), "!="
_NOT_COMPARED = frozenset({"<", ">", "=~", "-nt", "-ot", "-ef"})
_BINARY = frozenset({*_COMPARISONS, *_SAME, _DIFFERENT, *_NOT_COMPARED})


class Truth(NamedTuple):
    """Whether a condition holds; `why` says what had to be assumed for it, "" where it is sure.

    `presumed`: a program that is taken to succeed.
    """

    value: bool
    why: str = ""
    presumed: bool = False

    def __invert__(self) -> Truth:
        return self._replace(value=not self.value)


PRESUMED = Truth(True, "programs are taken to succeed", presumed=True)


def both(left: Truth, right: Truth) -> Truth:
    if not right.value and not right.why:
        return right
    return Truth(left.value and right.value, left.why or right.why)


def either(left: Truth, right: Truth) -> Truth:
    return ~both(~left, ~right)


class Condition:
    """One test. Variables that are not set are empty, as for a shell; answers that rest on them are not sure."""

    def __init__(self, words: Sequence[Runs], expander: Expander, *, double: bool) -> None:
        self.words, self.number, self.double = words, expander.number, double
        self.budget = expander.budget
        self.at = 0

    def truth(self) -> Truth:
        """Alternatives with `||`; what is not read, such as parentheses, is not known."""
        if not self.words:
            return Truth(False)
        left = self._all()
        while self._sign() == "||":
            self.at += 1
            left = either(left, self._all())
        if self.at < len(self.words):
            return Truth(False, f"'{' '.join(map(text_of, self.words))}' is not read")
        return left

    def _sign(self, offset: int = 0) -> str:
        """The operator that stands here; quoted text is none."""
        at = self.at + offset
        if at >= len(self.words) or any(run.quoted for run in self.words[at]):
            return ""
        return text_of(self.words[at])

    def _all(self) -> Truth:
        left = self._not()
        while self._sign() == "&&":
            self.at += 1
            left = both(left, self._not())
        return left

    def _not(self) -> Truth:
        negated = False
        while self._sign() == "!" and self._sign(1) not in _BINARY:
            negated, self.at = not negated, self.at + 1
        found = self._one()
        return ~found if negated else found

    def _one(self) -> Truth:
        if self._sign(1) in _BINARY and self.at + 1 < len(self.words):
            left, sign = self._take(), self._sign()
            self.at += 1
            return self._compared(left, sign, self._take())
        sign = self._sign()
        if len(sign) == 2 and sign[0] == "-" and sign[1].isalpha() and not (self.double and self._ends(1)):
            self.at += 1
            return self._unary(sign, self._take())
        return self._unary("-n", self._take())

    def _ends(self, offset: int) -> bool:
        return self.at + offset >= len(self.words)

    def _take(self) -> Runs:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else ()

    def _unary(self, sign: str, operand: Runs) -> Truth:
        if sign in {"-z", "-n"}:
            return Truth((plain_text(operand) == "") is (sign == "-z"), _assumption(operand))
        if sign in _FILE_TESTS:
            return Truth(True, f"'{text_of(operand)}' is taken to be there")
        return Truth(False, f"'{sign} {text_of(operand)}' is not known")

    def _compared(self, left: Runs, sign: str, right: Runs) -> Truth:
        why = _assumption((*left, *right))
        if computed_in((*left, *right)):
            return Truth(False, why)
        if sign in _NOT_COMPARED:
            return Truth(False, f"'{sign}' is not compared")
        first, second = plain_text(left), plain_text(right)
        if sign in _COMPARISONS:
            return self._numbers(first, sign, second, left, why)
        pattern = pattern_of(right) if self.double else None
        self.budget.work(steps(first, pattern or ""))
        try:
            same = matches(pattern, first) if pattern is not None else first == second
        except NoValueError as problem:
            return Truth(False, str(problem))
        return Truth(same is (sign != _DIFFERENT), why)

    def _numbers(self, first: str, sign: str, second: str, left: Runs, why: str) -> Truth:
        try:
            at = left[0].at if left else 0
            if self.double:  # there, what is empty counts as zero
                first, second = first or "0", second or "0"
            return Truth(_COMPARISONS[sign](self.number(first, at), self.number(second, at)), why)
        except NoValueError:
            return Truth(False, why or f"'{first} {sign} {second}' compares no numbers")


def _assumption(runs: Runs) -> str:
    names = ", ".join(dict.fromkeys(unknown_in(runs)))
    return f"{names} {'is not known' if computed_in(runs) else 'is not set'}" if names else ""


# Which commands of a script are read: branches by what is known, loops once, functions where they are called.

_ASSIGNED_NUMBER = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))", re.ASCII)
_LEAVING = frozenset({"exit", "return", "die"})
_WITHOUT_EFFECT = frozenset({
    "echo", "printf", "exit", "return", "set", ":", "true", "false", "sleep", "mkdir", "rm", "kill", "wait", "ls",
    "date", "trap", "chmod", "touch", "cp", "mv", "ln", "wget", "curl", "git", "hf", "huggingface-cli", "pip", "pip3",
    "apt-get", "which", "command", "ulimit", "nvidia-smi", "rocm-smi", "conda", "module", "break", "continue",
})  # fmt: skip


class ScriptEndError(Exception):
    """`exit` of the script."""


class FunctionEndError(Exception):
    """`return` of a function or a file that was read in."""


class Flow(ABC):
    """Goes through commands; what they do is left to `simple`."""

    def __init__(self, places: Places, variables: Variables, own_name: str) -> None:
        self.places, self.variables, self.budget = places, variables, Budget()
        self.expander = Expander(variables, self.budget, lambda part: substituted(part, self.expander), own_name)
        self.functions: dict[str, Node] = {}
        self.endings: set[str] = set()  # functions that only say something and end the script, as `usage` does
        self.notes: dict[tuple[int, str], None] = {}

    @abstractmethod
    def simple(self, node: Simple) -> Truth:
        """Reads one command; whether it succeeds."""

    def note(self, at: int, why: str) -> None:
        self.notes.setdefault((at, why))

    def run(self, nodes: Iterable[Node]) -> Truth:
        """Reads commands one after the other; the answer of the last."""
        status = Truth(True)
        for node in nodes:
            status = self._node(node)
        return status

    def _node(self, node: Node) -> Truth:
        self.budget.spend(1, 0)
        if isinstance(node, Simple):
            return self.simple(node)
        handler: Callable[[Flow, Any], Truth] = _HANDLERS[type(node)]
        return handler(self, node)

    def _pipeline(self, node: Pipeline) -> Truth:
        status = PRESUMED
        try:
            for stage in node.stages:
                status = self._node(stage)
        except ScriptEndError:
            if len(node.stages) == 1:
                raise
        if len(node.stages) > 1:
            status = PRESUMED
        return ~status if node.negated else status

    def _and_or(self, node: AndOr) -> Truth:
        left = self._node(node.left)
        if left.value is (node.operator == "||"):
            self._note_branch(left, (node.right,), _at(node.right))
            return left
        if left.why and not left.presumed:
            self._note_branch(left, (node.right,), _at(node.right))
            if self._leaves((node.right,)):
                return left
        right = self._node(node.right)
        return right if not left.why or left.presumed else right._replace(why=right.why or left.why, presumed=False)

    def _if(self, node: If) -> Truth:
        unsure = False
        for condition, body in node.arms:
            truth = self.run(condition)
            unsure = unsure or bool(truth.why)
            if truth.why:
                self._note_branch(truth, (*body, *node.otherwise), node.at)
            if truth.value and not (truth.why and self._leaves(body)):
                return self.run(body)
        return Truth(True) if unsure and self._leaves(node.otherwise) else self.run(node.otherwise)

    def _note_branch(self, truth: Truth, nodes: Sequence[Node], at: int) -> None:
        """Tells what was assumed about a condition, where commands that matter depend on it."""
        if truth.why and not (truth.presumed and not truth.value) and self._matter(nodes):
            self.note(at, f"a condition is taken as {'met' if truth.value else 'not met'}: {truth.why}")

    def _leaves(self, nodes: Iterable[Node]) -> bool:
        """Whether commands end the script; a branch that does is not the one that people run."""
        for node in nodes:
            if isinstance(node, Simple):
                if _name(node) in _LEAVING or _name(node) in self.endings:
                    return True
                continue
            last = node.body if isinstance(node, Group) else (node.right,) if isinstance(node, AndOr) else ()
            if self._leaves(last):
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
        text, names = plain_text(subject), ", ".join(unknown_in(subject))
        for patterns, body in node.arms:
            if not any(self._fits(pattern, text, computed_in(subject)) for pattern in patterns):
                continue
            if names and self._leaves(body):
                break
            self._note_case(names, body, node.at)
            return self.run(body)
        self._note_case(names, [each for _, body in node.arms for each in body], node.at)
        return Truth(True)

    def _fits(self, pattern: Parts, text: str, computed: bool) -> bool:
        wanted = pattern_of(self.expander.text(pattern))
        if wanted is None or wanted == "*" or computed:
            return wanted == "*"
        self.budget.work(steps(text, wanted))
        with suppress(NoValueError):
            return matches(wanted, text)
        return False

    def _note_case(self, names: str, body: Sequence[Node], at: int) -> None:
        if names and self._matter(body):
            self.note(at, f"a branch is chosen by what is not known: {names}")

    def _loop(self, node: Loop) -> Truth:
        if self._matter(node.body):
            self.note(node.at, "a loop is not read")
        return Truth(True)

    def _function(self, node: Function) -> Truth:
        self.functions[node.name] = node.body
        self.endings.discard(node.name)
        if not self._matter((node.body,)) and self._leaves((node.body,)):
            self.endings.add(node.name)
        return Truth(True)

    def _group(self, node: Group) -> Truth:
        if not node.subshell:
            return self.run(node.body)
        before = dict(self.variables.values)
        self.budget.spend(0, len(before))
        try:
            return self.run(node.body)
        except ScriptEndError:
            return Truth(True)
        finally:
            self.variables.values = before

    def _calculation(self, node: Calculation) -> Truth:
        """`(( ... ))` holds where the value is not zero; one that assigns is not read."""
        text = self.expander.text(node.expression)
        try:
            if unknown := unknown_in(text):
                raise UnknownNamesError(*unknown)
            return Truth(self.expander.number(text_of(text), node.at) != 0)
        except UnknownNamesError as problem:
            return Truth(False, f"{', '.join(problem.names)} is not set")
        except NoValueError:
            for name in _ASSIGNED_NUMBER.findall(text_of(text)):
                self.variables.unset(name)
            self.note(node.at, f"'(({text_of(text)}))' is not read")
            return Truth(True, f"'(({text_of(text)}))' is not read")

    def _test(self, node: Test) -> Truth:
        words = [self.expander.text(word) or (Run("", node.at, False, True),) for word in node.words]
        return Condition(words, self.expander, double=True).truth()


def _name(node: Simple) -> str:
    """The command's name where it stands literally; "=" for assignments."""
    if not node.words or isinstance(node.words[0], Assignment):
        return "="
    first = node.words[0][0]
    return first.text if len(node.words[0]) == 1 and isinstance(first, Literal) else ""


def _at(node: Node) -> int:
    """Where a command stands."""
    while isinstance(node, AndOr | Pipeline | Group | Function):
        inner = _inside(node)
        if not inner:
            return 0
        node = inner[0]
    return node.at


def _inside(node: Node) -> tuple[Node, ...]:
    """The commands that a compound command has."""
    if isinstance(node, If):
        return (*(each for _, body in node.arms for each in body), *node.otherwise)
    if isinstance(node, Case):
        return tuple(each for _, body in node.arms for each in body)
    if isinstance(node, AndOr):
        return (node.left, node.right)
    if isinstance(node, Pipeline):
        return node.stages
    if isinstance(node, Loop | Group):
        return node.body
    return (node.body,) if isinstance(node, Function) else ()


_HANDLERS: dict[type, Callable[[Any, Any], Truth]] = {
    Pipeline: Flow._pipeline,
    AndOr: Flow._and_or,
    If: Flow._if,
    Case: Flow._case,
    Loop: Flow._loop,
    Function: Flow._function,
    Group: Flow._group,
    Test: Flow._test,
    Calculation: Flow._calculation,
}


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


class _Runner(NamedTuple):
    """How the flags of a runner are told from the program it starts.

    `switches` take no value, all others one; where `valued` is given, only those take one. `subcommands` follow
    the name, `skipped` words the flags.
    """

    switches: frozenset[str] = frozenset()
    valued: frozenset[str] | None = None
    subcommands: tuple[str, ...] = ()
    skipped: int = 0


def _of(switches: str = "", valued: str | None = None, subcommands: tuple[str, ...] = (), skipped: int = 0) -> _Runner:
    return _Runner(
        frozenset(switches.split()), None if valued is None else frozenset(valued.split()), subcommands, skipped
    )


_MPI = _of(
    "--allow-run-as-root --oversubscribe --tag-output --display-map --report-bindings --verbose -v -q -oversubscribe "
    "-allow-run-as-root --display-allocation --nooversubscribe -l -prepend-rank --prepend-rank --timestamp-output "
    "-tag-output --use-hwthread-cpus --do-not-launch --debug-devel -bycore -bynode -byslot --map-by-node --bind-to-none"
)
_TORCHRUN = _of("--standalone --no-python --no_python --run-path --run_path -m --module --use-env --use_env")
_RUNNERS: Mapping[str, _Runner] = {
    "sudo": _of(valued="-u -g -h -p -C -r -t -U"),
    "nohup": _of(valued=""),
    "exec": _of(valued="-a"),
    "time": _of(valued="-f -o"),
    "command": _of(valued=""),
    "builtin": _of(valued=""),
    "setsid": _of(valued=""),
    "nice": _of(valued="-n --adjustment"),
    "ionice": _of(valued="-c -n -p"),
    "stdbuf": _of(valued="-i -o -e"),
    "unbuffer": _of(valued=""),
    "timeout": _of(valued="-k -s --kill-after --signal", skipped=1),
    "gtimeout": _of(valued="-k -s", skipped=1),
    "taskset": _of(valued="", skipped=1),
    "numactl": _of(valued="-C -N -m -i -p -P --cpunodebind --membind --physcpubind --interleave --preferred"),
    "env": _of(valued="-u -C --unset --chdir"),
    "srun": _of(
        "-l --label --exclusive --overlap --unbuffered -u --pty -K --kill-on-bad-exit --no-kill -k -v --verbose -Q "
        "--quiet --overcommit -O --contiguous --export-env --exact --no-container-mount-home --container-mount-home "
        "--container-writable --container-remap-root --no-container-remap-root --container-readonly -s --oversubscribe "
        "--wait-all-nodes --requeue --no-requeue -I --use-min-nodes -H --hold --multi-prog -E --disable-status -X "
        "--no-container-entrypoint --container-entrypoint --whole"
    ),
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "orterun": _MPI,
    "nsys": _of(valued="-o -t -s -c -f -e -w -x -n -d -y -p --output --trace", subcommands=("profile", "launch")),
    "ncu": _of(valued="-o -k -c -s -f --set --target-processes --export"),
    "rocprof": _of("--stats --hip-trace --hsa-trace --sys-trace --roctx-trace"),
    "rocprofv3": _of("--kernel-trace --hip-trace --stats --sys-trace --runtime-trace --summary -s -r --"),
    "uv": _of(
        "--no-sync --frozen --locked --isolated --active --no-project --all-extras --verbose -v --offline "
        "--all-groups --no-dev --dev --no-default-groups -q --quiet --exact --no-cache -n",
        subcommands=("run",),
    ),
    "uvx": _of("--isolated --verbose -v -q"),
    "poetry": _of(valued="", subcommands=("run",)),
    "pipenv": _of(valued="", subcommands=("run",)),
    "conda": _of(valued="-n -p --name --prefix --cwd", subcommands=("run",)),
    "mamba": _of(valued="-n -p --name --prefix", subcommands=("run",)),
    "micromamba": _of(valued="-n -p --name --prefix", subcommands=("run",)),
    "singularity": _of("--nv --rocm --no-home --cleanenv -e -c -C --writable --fakeroot", None, ("exec",), 1),
    "apptainer": _of("--nv --rocm --no-home --cleanenv -e -c -C --writable --fakeroot", None, ("exec",), 1),
    "docker": _of(
        "--rm -it -i -t -d --privileged --init --detach --interactive --tty -ti -itd -dit -P", None, ("run",), 1
    ),
    "podman": _of("--rm -it -i -t -d --privileged --init --detach", None, ("run",), 1),
    "ray": _of(
        "--no-wait --verbose -v --log-color-always", None, ("job", "submit")
    ),
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "deepspeed": _of(
        "--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --elastic_training "
        "--bind_cores_to_rank -v"
    ),
    "accelerate": _of(
        "--multi_gpu --multi-gpu --use_deepspeed --use-deepspeed --use_fsdp --use-fsdp --use_megatron_lm "
        "--use-megatron-lm --use_parallelism_config --cpu --tpu --mps --use_mps_device --use_xpu --quiet -q --debug -m "
        "--module --no_python --no-python --same_network --standalone --fp8_use_autocast_during_eval --aws_only "
        "--tpu_cluster --no_tpu_cluster --tpu_use_cluster --tpu_use_sudo --dynamo_use_dynamic --dynamo_use_fullgraph "
        "--dynamo_use_regional_compilation --enable_cpu_affinity --fp8_override_linear_precision",
        subcommands=("launch",),
    ),
}  # fmt: skip
_PYTHON_RUNNER = _of("-u -B -O -OO -s -S -E -I -v -q -m")


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
    runner = _PYTHON_RUNNER if _PYTHON.fullmatch(name) else _RUNNERS.get(name)
    if runner is None:
        return 0
    start = 1 + _subcommands(words, runner)
    if start == 1 and runner.subcommands:
        return 0
    return _flags_end(words, start, runner) + runner.skipped


def _subcommands(words: tuple[Word, ...], runner: _Runner) -> int:
    """How many words the runner's subcommand has; 0 where another one stands there."""
    following = [word.text for word in words[1 : 1 + max(2, len(runner.subcommands))]]
    if runner.subcommands == ("job", "submit"):
        return 2 if tuple(following) == runner.subcommands else 0
    return 1 if following and following[0] in runner.subcommands else 0


def _flags_end(words: tuple[Word, ...], start: int, runner: _Runner) -> int:
    at = start
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        at += 1
        if text == "--":
            break
        if text == "-c" and runner is _PYTHON_RUNNER:
            return 0
        if "=" not in text and _takes_value(text, runner) and at < len(words):
            at += not words[at].text.startswith("-") and not _is_program(words, at, runner)
    return at


def _takes_value(flag: str, runner: _Runner) -> bool:
    return flag in runner.valued if runner.valued is not None else flag not in runner.switches


def _is_program(words: tuple[Word, ...], at: int, runner: _Runner) -> bool:
    """Whether a word behind a flag that nobody lists is the program already."""
    return runner.valued is None and at + 1 < len(words) and bool(_PROGRAM.fullmatch(words[at].text))


# What reading a script gives.


class Heredoc(Immutable):
    """Text that a script writes to a file (`cat > target <<EOF`, `echo ... > target`) or gives to a program."""

    target: str | None
    text: str
    where: Location
    unknown: tuple[str, ...] = ()
    append: bool = False


class Unread(Immutable):
    """A place where the reading had to choose, or could not go on, and why."""

    where: Location
    why: str


class Script(Immutable):
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


# What shells do themselves: tests, reading of variables, arguments, and scripts that are read in.


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


def _read(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    """`read NAMES <<< text`; without a text the names hold what is not known."""
    flags, names = leading_options(words[1:], "-d -p -t -n -N -u")
    separators = next((each.value for each in node.assignments if each.name == "IFS"), None)
    as_list = any("a" in flag for flag in flags) and names
    fields = _fields(text, "" if separators is None else text_of(reading.expander.text(separators)))
    missing = (Run("$(read)", node.at, False, False, ("$(read)",), computed=True),)
    if as_list:
        reading.variables.set(text_of(names[0]), Array(tuple(fields)))
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


def _not_read(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    reading.note(node.at, f"'{text_of(words[0])}' is not read")
    return PRESUMED


def _true(reading: Reading, node: Simple, words: Sequence[Runs], text: Runs | None) -> Truth:
    return Truth(True)


_Builtin: TypeAlias = Callable[["Reading", Simple, Sequence[Runs], "Runs | None"], Truth]
BUILTINS: Mapping[str, _Builtin] = {
    "source": _source,
    ".": _source,
    "eval": _eval,
    "[": _bracket,
    "test": _bracket,
    "read": _read,
    **dict.fromkeys(("let", "mapfile", "readarray"), _not_read),
    **dict.fromkeys(("set", ":", "true"), _true),
    "shift": _shift,
    "unset": _unset,
    "exit": _exit,
    "return": _return,
    "false": lambda reading, node, words, text: Truth(False),
}


# Reads the commands of a script: assignments, what shells do themselves, and programs with their words.

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

    def _assign(self, node: Assignment) -> None:
        if node.index is not None:
            self.note(node.at, f"'{node.name}[...]=' is not read")
            return
        old = self.variables.get(node.name, node.at)
        if node.items is not None:
            new: Value = Array(tuple([word for item in node.items for word in self.expander.words(item)]))
        else:
            new = self.expander.text(node.value)
        if node.append:  # each one copies what was there
            self.budget.spend(0, len(old.items if isinstance(old, Array) else old or ()))
        self.variables.set(node.name, appended(old, new) if node.append else new)

    def _declare(self, name: str, words: Sequence[Runs], assignments: Sequence[Assignment]) -> Truth:
        options = "".join(text_of(word) for word in words if text_of(word).startswith("-"))
        names = [text_of(word) for word in words if not text_of(word).startswith("-")]
        if name == "export" or "x" in options:
            self.variables.exported.update(dict.fromkeys((*names, *(each.name for each in assignments))))
        for assignment in assignments:
            if "A" in options:
                self.note(assignment.at, f"'{assignment.name}', whose items have names, is not read")
            else:
                self._assign(assignment)
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
        except (ScriptEndError, FunctionEndError):
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
        with suppress(ScriptEndError, FunctionEndError):
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


# Launch scripts and command lines, read without running anything: variables replaced, flags with their places.

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
