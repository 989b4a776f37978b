"""Conditions of a script: `[ ... ]`, `[[ ... ]]` and how sure their answer is."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xe_sizer.importers.readers.shell import patterns
from xe_sizer.importers.readers.shell.arithmetic import NoValueError
from xe_sizer.importers.readers.shell.expansion import pattern_of
from xe_sizer.importers.readers.shell.values import computed_in, plain_text, text_of, unknown_in

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.expansion import Expander
    from xe_sizer.importers.readers.shell.values import Runs

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne,
    "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")
_SAME, _DIFFERENT = frozenset({"=", "=="}), "!="
_BINARY = frozenset({*_COMPARISONS, *_SAME, _DIFFERENT, "<", ">", "=~", "-nt", "-ot", "-ef"})
_SAFE_EXPRESSION = re.compile(r"[^()|{}]*")
_MAX_REPEATS = 2
_MAX_DEPTH = 50


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
        self.at = self.depth = 0

    def truth(self) -> Truth:
        return self._any() if self.words else Truth(False)

    def _sign(self, offset: int = 0) -> str:
        """The operator that stands here; quoted text is none."""
        at = self.at + offset
        if at >= len(self.words) or any(run.quoted for run in self.words[at]):
            return ""
        return text_of(self.words[at])

    def _any(self) -> Truth:
        self.depth += 1
        left = self._all()
        while self._sign() in {"||", "-o"}:
            self.at += 1
            left = either(left, self._all())
        self.depth -= 1
        return left

    def _all(self) -> Truth:
        left = self._not()
        while self._sign() in {"&&", "-a"}:
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
        if self._sign() in {"(", "\\("} and self.depth < _MAX_DEPTH:
            self.at += 1
            found = self._any()
            self.at += 1
            return found
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
        first, second = plain_text(left), plain_text(right)
        if sign in _COMPARISONS:
            return self._numbers(first, sign, second, left, why)
        if sign in _SAME or sign == _DIFFERENT:
            pattern = pattern_of(right) if self.double else None
            self.budget.work(len(first) * len(second))
            same = patterns.matches(pattern, first) if pattern is not None else first == second
            return Truth(same is (sign != _DIFFERENT), why)
        if sign == "=~":
            self.budget.work(len(first) ** 3 // 64)  # the engine's steps are small
            return _expression(first, right, why)
        return Truth(first < second if sign == "<" else first > second, why)

    def _numbers(self, first: str, sign: str, second: str, left: Runs, why: str) -> Truth:
        try:
            at = left[0].at if left else 0
            if self.double:  # there, what is empty counts as zero
                first, second = first or "0", second or "0"
            return Truth(_COMPARISONS[sign](self.number(first, at), self.number(second, at)), why)
        except NoValueError:
            return Truth(False, why or f"'{first} {sign} {second}' compares no numbers")


def _expression(text: str, right: Runs, why: str) -> Truth:
    """`=~`, for expressions whose search cannot take long."""
    expression = "".join([re.escape(run.text) if run.quoted else run.text for run in right if not run.unknown])
    simple = _SAFE_EXPRESSION.fullmatch(expression) and sum(map(expression.count, "*+?")) <= _MAX_REPEATS
    try:
        if simple:
            return Truth(re.search(expression, text) is not None, why)
    except re.error:
        pass
    return Truth(False, f"'{expression}' is not compared")


def _assumption(runs: Runs) -> str:
    names = ", ".join(dict.fromkeys(unknown_in(runs)))
    return f"{names} {'is not known' if computed_in(runs) else 'is not set'}" if names else ""
