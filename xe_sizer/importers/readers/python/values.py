"""What a Python file says, as data: plain values, names, calls, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.written import Keys

CALLED = "_target_"
"""The key of what is called, in dotted keys of a call."""
BY_PLACE = "_args_"
"""The key of arguments without a keyword."""


@frozen(eq=True)
class Name:
    """Something that another file defines, by its full dotted name: `torch.bfloat16`."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Call:
    """A call of something that the file does not define as a function, and what is assigned to its result later.

    name : what is called, dotted, with imports resolved; empty for a part of an object of which only some attributes
        are known
    args : arguments without a keyword
    kwargs : arguments by keyword, defaults of a class of the file, and attributes assigned later
    where : the place of the call
    bases : what the class that is called derives from, where its file is at hand
    made_by : functions of other files at hand that gave it, the innermost first
    passed_to : functions of other files that got the result, and may have changed it
    """

    name: str
    args: tuple[Written, ...]
    kwargs: Mapping[str, Written]
    where: Location
    bases: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    passed_to: tuple[Written, ...] = field(default=())

    def is_a(self, *names: str) -> bool:
        """Whether it calls one of these, or a class derived from one, or was given by a function of this name.

        `Trainer.Config` is the end of a longer name.
        """
        known = (self.name, *self.bases, *self.made_by)
        return any(each == name or each.endswith(f".{name}") for each in known for name in names)


def keys_of(written: Written) -> Keys:
    """Values by dotted key: of `Config(training=Training(steps=5))` there are `training.steps`, `training._target_`.

    Keys are those that Hydra has for calls: `_target_` is what is called, `_args_` are arguments without a keyword.
    A list of plain values is one value; calls and groups in a list have their number in the key. Nothing has a key
    where the value is neither a call nor a group.
    """
    return {".".join(path): each for path, each in _leaves(written, ()) if path}


def _leaves(written: Written, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Written]]:
    value = written.value
    if isinstance(value, Call):
        if value.name:
            yield (*path, CALLED), Written(value.name, value.where)
        for place, each in enumerate(value.args):
            yield from _leaves(each, (*path, BY_PLACE, str(place)))
        yield from _of_group(value.kwargs, path)
    elif isinstance(value, dict) and value:
        yield from _of_group(value, path)
    elif isinstance(value, tuple) and any(isinstance(each.value, (Call, dict, tuple)) for each in value):
        yield from _of_group(dict(enumerate(value)), path)
    elif isinstance(value, tuple):
        yield path, Written([each.value for each in value], written.where)
    else:
        yield path, written


def _of_group(
    group: Mapping[str, Written] | dict[int, Written], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Written]]:
    for key, each in group.items():
        yield from _leaves(each, (*path, str(key)))
