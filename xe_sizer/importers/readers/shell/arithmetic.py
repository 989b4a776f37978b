"""Whole-number arithmetic of shells, in 64 bits as they have it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

Lookup = Callable[[str], "int | None"]
Store = Callable[[str, int], None]

_TOKEN = re.compile(
    r"\s*(?:(\d+#\w+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)|(\*\*|<<=?|>>=?|[<>=!]=|&&|\|\||\+\+|--|[-+*/%&|^]=|\S))",
    re.ASCII,
)
_WORD_BITS = 64
_MAX_DEPTH = 50


class NoValueError(Exception):
    """An expression that has no value."""


def _quotient(a: int, b: int) -> int:
    """Division towards zero."""
    if b == 0:
        raise NoValueError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": lambda a, b: a << (b % _WORD_BITS), ">>": lambda a, b: a >> (b % _WORD_BITS)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b)},
)


class UnknownNamesError(NoValueError):
    """An expression with variables whose value is not known; `names` are theirs."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


def evaluate(text: str, lookup: Lookup, store: Store) -> int:
    """The value of an expression. `lookup` gives a variable's value or raises, `store` takes assignments.

    Raises NoValueError where the expression has no value, UnknownNamesError where a variable's is not known.
    """
    return _Expression(text, lookup, store).value()


def _wrapped(value: int) -> int:
    half = 1 << (_WORD_BITS - 1)
    return (value + half) % (2 * half) - half


def _power(a: int, b: int) -> int:
    if b < 0:
        raise NoValueError("an exponent below zero")
    return _wrapped(pow(a, b, 2**_WORD_BITS))


class _Expression:
    def __init__(self, text: str, lookup: Lookup, store: Store) -> None:
        self.tokens = [match.group(match.lastindex or 0) for match in _TOKEN.finditer(text)]
        self.lookup, self.store = lookup, store
        self.at = self.depth = 0

    def value(self) -> int:
        result = self._comma()
        if self.at < len(self.tokens):
            raise NoValueError(f"'{self.tokens[self.at]}' is not expected")
        return result

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _took(self, *tokens: str) -> str:
        """The next token where it is one of these, and steps over it."""
        token = self._next()
        if token not in tokens or not token:
            return ""
        self.at += 1
        return token

    def _comma(self) -> int:
        result = self._assignment()
        while self._took(","):
            result = self._assignment()
        return result

    def _assignment(self) -> int:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NoValueError("nested too deep")
        name, follows = self._next(), self.tokens[self.at + 1 : self.at + 2]
        if follows and _is_name(name) and follows[0].endswith("=") and follows[0] not in {"==", "!=", "<=", ">="}:
            self.at += 2
            result = self._assignment()
            if len(follows[0]) > 1:
                result = self._applied(follows[0][:-1], self._variable(name), result)
            self.store(name, result)
        else:
            result = self._choice()
        self.depth -= 1
        return result

    def _choice(self) -> int:
        condition = self._binary(0)
        if not self._took("?"):
            return condition
        yes = self._assignment()
        if not self._took(":"):
            raise NoValueError("':' is missing")
        no = self._assignment()
        return yes if condition else no

    def _applied(self, sign: str, left: int, right: int) -> int:
        for level in _LEVELS:
            if sign in level:
                return _wrapped(level[sign](left, right))
        raise NoValueError(f"'{sign}' is no operator")

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._powers()
        result = self._binary(level + 1)
        while sign := self._took(*_LEVELS[level]):
            result = self._applied(sign, result, self._binary(level + 1))
        return result

    def _powers(self) -> int:
        base = self._unary()
        if not self._took("**"):
            return base
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NoValueError("nested too deep")
        exponent = self._powers()
        self.depth -= 1
        return _power(base, exponent)

    def _unary(self) -> int:
        signs: list[str] = []
        while sign := self._took("-", "+", "!", "~", "++", "--"):
            signs.append(sign)
        result = self._primary(step=signs.pop() if signs and signs[-1] in {"++", "--"} else "")
        for sign in reversed(signs):
            result = {"-": -result, "!": int(not result), "~": ~result}.get(sign, result)
        return result

    def _primary(self, step: str) -> int:
        token = self._next()
        self.at += 1
        if token == "(":
            result = self._comma()
            if not self._took(")"):
                raise NoValueError("')' is missing")
            return result
        if _is_name(token):
            return self._stepped(token, step)
        if not token[:1].isdigit():
            raise NoValueError(f"'{token}' is no number")
        return number(token)

    def _stepped(self, name: str, before: str) -> int:
        """A variable, and what `++` and `--` around it do."""
        value = self._variable(name)
        if before:
            value += 1 if before == "++" else -1
            self.store(name, value)
        after = self._took("++", "--")
        if after:
            self.store(name, value + (1 if after == "++" else -1))
        return value

    def _variable(self, name: str) -> int:
        value = self.lookup(name)
        if value is None:
            raise UnknownNamesError(name)
        return value


def number(text: str) -> int:
    """A whole number as shells write it: 0x1f, 017, 16#ff. Raises NoValueError for anything else."""
    base, _, digits = text.rpartition("#")
    try:
        if base:
            return _wrapped(int(digits, int(base)))
        octal = len(text) > 1 and text[0] == "0" and text[1] not in "xX"
        return _wrapped(int(text, 8 if octal else 0))
    except ValueError as error:
        raise NoValueError(f"'{text}' is no number") from error


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"
