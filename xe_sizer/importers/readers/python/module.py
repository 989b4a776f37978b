"""A Python file as data: its names, its calls, and what its functions return as configurations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.importers.readers.python.evaluator import Evaluator
from xe_sizer.importers.readers.python.functions import call_function
from xe_sizer.importers.readers.python.objects import Freezer, Function, Plain, Thing
from xe_sizer.importers.readers.python.reading import Exhausted, Reading
from xe_sizer.importers.readers.python.statements import Jump, run
from xe_sizer.importers.readers.python.text import PythonText
from xe_sizer.importers.readers.python.values import Call, Name
from xe_sizer.importers.written import Unread, Written
from xe_sizer.profiles.text import foreign_scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    FindModule = Callable[[str], tuple[str, str] | None]

_STOPPED = (Jump, Exhausted, RecursionError)


def read_python(text: str, name: str, given: Mapping[str, str] | None = None, find: FindModule | None = None) -> Module:
    """Read a Python file or notebook without executing any of it.

    given : values of variables of the file and of the environment; they win over what the file says
    find : text and file name of a module by its dotted name, or None where its file is not at hand

    Raises
    ------
    InputError    no valid Python, or more than MAX_CHARACTERS
    """
    reading = Reading(given or {}, lambda module, around: _opened(module, around, find))
    evaluator = _evaluated(PythonText(text, name), reading, "")
    return Module(evaluator)


def _opened(module: str, reading: Reading, find: FindModule | None) -> Evaluator | None:
    """A module whose file is at hand and is valid Python."""
    found = find(module) if find else None
    if found is None:
        return None
    reading.characters -= len(found[0])
    if reading.characters < 0:
        return None
    try:
        text = PythonText(*found)
    except InputError:
        return None
    calls, steps = len(reading.calls), reading.steps
    reading.start()
    evaluator = _evaluated(text, reading, module)
    reading.steps = steps
    del reading.calls[calls:]
    return evaluator


def _evaluated(text: PythonText, reading: Reading, module: str) -> Evaluator:
    evaluator = Evaluator(text, reading, module)
    evaluator.scope.names["__name__"] = Written(module or "__main__", Location(text.name))
    for node in text.body:
        try:
            run(evaluator, [node], evaluator.scope)
        except Exhausted:
            text.notes.append(Problem("from here on the file is not evaluated: it takes too long", text.where(node)))
            break
        except (Jump, RecursionError):
            continue
    return evaluator


class Module:
    """What a file says.

    name : its path
    notes : what could not be read
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._reading = evaluator.reading
        self._met = tuple(evaluator.reading.calls)
        self.name = evaluator.text.name
        self.notes: tuple[Problem, ...] = tuple(evaluator.text.notes)

    @cached_property
    def names(self) -> Mapping[str, Written]:
        """Values of the module's variables, without functions, classes and what it imports."""
        freezer = Freezer(self._reading)
        names = self._evaluator.scope.names
        return {name: freezer.written(each) for name, each in names.items() if _is_data(name, each.value)}

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Calls of what no file at hand defines, as the file makes them when it is started, in this order."""
        freezer = Freezer(self._reading)
        return tuple([freezer.call(each.value) for each in self._met if isinstance(each.value, Thing)])

    @cached_property
    def entries(self) -> Mapping[str, Written]:
        """What the functions of the file return that give a configuration, called with their defaults.

        Functions whose names begin with `_` are for the others.
        """
        public = [name for name in self._functions if not name.startswith("_")]
        found = {name: self.entry(name) for name in public}
        return {name: each for name, each in found.items() if _is_configuration(each.value)}

    def entry(self, name: str, given: Mapping[str, str] | None = None) -> Written:
        """What a function of the file returns, with values for some of its parameters.

        Raises
        ------
        InputError    the file has no such function, or the function no such parameter
        """
        functions = self._functions
        if name not in functions:
            hint = did_you_mean(name, functions)
            raise InputError(Problem(f"the file has no function '{name}'", Location(self.name), hint))
        kwargs = {key: Written(foreign_scalar(text), Location(f"--set {key}")) for key, text in (given or {}).items()}
        function = functions[name]
        where = function.home.text.where(function.node)
        self._reading.start()
        self._reading.depth = 0
        try:
            return Freezer(self._reading).written(call_function(function, [], kwargs, where))
        except _STOPPED:
            return Written(Unread(f"{name}()", "it takes too long to evaluate"), where)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Names of the parameters of a function of the file; none where it has no such function."""
        function = self._functions.get(name)
        args = function.node.args if function else None
        return tuple([each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]) if args else ()

    @cached_property
    def _functions(self) -> dict[str, Function]:
        names = self._evaluator.scope.names
        own = {name: each.value for name, each in names.items() if isinstance(each.value, Function)}
        return {name: each for name, each in own.items() if each.home is self._evaluator}


def _is_configuration(value: object) -> bool:
    return bool(value.name) if isinstance(value, Call) else isinstance(value, dict)


def _is_data(name: str, value: object) -> bool:
    """Whether a name of the module is a variable, and no import."""
    if isinstance(value, Name):
        return value.text != name
    return name != "__name__" and isinstance(value, (*Plain, list, tuple, dict, Thing, Unread))
