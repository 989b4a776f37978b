"""Which commands of a script are read: branches by what is known, loops once, functions where they are called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.importers.readers.shell.arithmetic import NoValueError, UnknownNamesError, evaluate
from xe_sizer.importers.readers.shell.conditions import PRESUMED, Condition, Truth
from xe_sizer.importers.readers.shell.expansion import Expander, pattern_of
from xe_sizer.importers.readers.shell.patterns import matches
from xe_sizer.importers.readers.shell.substitutions import substituted
from xe_sizer.importers.readers.shell.syntax import (
    AndOr,
    Assignment,
    Calculation,
    Case,
    For,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Pipeline,
    Simple,
    Test,
)
from xe_sizer.importers.readers.shell.values import Budget, Run, computed_in, plain_text, text_of, unknown_in

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.places import Places
    from xe_sizer.importers.readers.shell.syntax import (
        Node,
        Parts,
    )
    from xe_sizer.importers.readers.shell.values import Runs
    from xe_sizer.importers.readers.shell.variables import Variables

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


class LoopEndError(Exception):
    """`break` and `continue`; a loop is read once, so both end it."""


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
        self.budget.work(len(text) * len(wanted or ""))
        return wanted is not None and (wanted == "*" or (not computed and matches(wanted, text)))

    def _note_case(self, names: str, body: Sequence[Node], at: int) -> None:
        if names and self._matter(body):
            self.note(at, f"a branch is chosen by what is not known: {names}")

    def _for(self, node: For) -> Truth:
        if node.words is None and node.name:
            words: list[Runs] = list(self.variables.arguments[-1])
        else:
            words = [word for parts in node.words or () for word in self.expander.words(parts)]
        if node.start:
            self._calculate(node.start, node.at)
        if node.name and not words:
            return Truth(True)
        if words:
            self.variables.set(node.name, words[0])
        if (len(words) > 1 or not node.name) and self._matter(node.body):
            first = f", for {node.name} = {text_of(words[0])}" if words else ""
            self.note(node.at, f"a loop is read once{first}")
        return self._once(node.body)

    def _loop(self, node: Loop) -> Truth:
        if any(isinstance(each, Simple) and _name(each) == "getopts" for each in node.condition):
            return Truth(True)  # the script's options are not known
        truth = self.run(node.condition)
        if truth.value is node.until:
            return Truth(True)
        if self._matter(node.body):
            self.note(node.at, "a loop is read once")
        return self._once(node.body)

    def _once(self, body: tuple[Node, ...]) -> Truth:
        try:
            return self.run(body)
        except LoopEndError:
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

    def _test(self, node: Test) -> Truth:
        words = [self.expander.text(word) or (Run("", node.at, False, True),) for word in node.words]
        return Condition(words, self.expander, double=True).truth()

    def _calculation(self, node: Calculation) -> Truth:
        return self._calculate(node.expression, node.at)

    def _calculate(self, expression: Parts, at: int) -> Truth:
        """Does a calculation with its assignments; it holds where the value is not zero."""
        text = self.expander.text(expression)
        try:
            if unknown := unknown_in(text):
                raise UnknownNamesError(*unknown)
            return Truth(self.expander.number(text_of(text), at) != 0)
        except UnknownNamesError as problem:
            return Truth(self._with_zeros(plain_text(text), at), f"{', '.join(problem.names)} is not set")
        except NoValueError:
            return Truth(False, f"'{text_of(text)}' is no calculation")

    def _with_zeros(self, text: str, at: int) -> bool:
        """Whether a calculation holds where variables that are not set count as zero; it assigns nothing."""

        def value(name: str) -> int:
            try:
                return self.expander.number(name, at)
            except NoValueError:
                return 0

        try:
            return evaluate(text, value, lambda name, number: None) != 0
        except NoValueError:
            return False


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
    if isinstance(node, For | Loop | Group):
        return node.body
    return (node.body,) if isinstance(node, Function) else ()


_HANDLERS: dict[type, Callable[[Any, Any], Truth]] = {
    Pipeline: Flow._pipeline,
    AndOr: Flow._and_or,
    If: Flow._if,
    Case: Flow._case,
    For: Flow._for,
    Loop: Flow._loop,
    Function: Flow._function,
    Group: Flow._group,
    Test: Flow._test,
    Calculation: Flow._calculation,
}
