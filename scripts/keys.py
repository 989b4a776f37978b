"""Write xe_sizer/scenario/keys.py, the keys of scenarios as typed keyword arguments: python scripts/keys.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from xe_sizer.fields import is_struct
from xe_sizer.scenario.schema import NAMES_A_FILE, Histogram, ScenarioFile, Section, is_section

FILE = Path(__file__).parents[1] / "xe_sizer" / "scenario" / "keys.py"
HEADER = '''"""The keys of a scenario as keyword arguments of the public API: the same tree as `schema`, all optional.

A key that is None counts as not given. Ranges and choices are those of the schema, which checks the values.
Written by `python scripts/keys.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict
'''
SECTIONS = {Histogram: "HistogramKeys", ScenarioFile: "Keys"}


def page() -> str:
    """The whole module."""
    sections = [Histogram, *filter(is_section, ScenarioFile.__annotations__.values()), ScenarioFile]
    return "\n\n".join([HEADER, *("\n".join(_keys_of(section)) + "\n" for section in sections)])


def _keys_of(section: type[Section]) -> Iterator[str]:
    yield f"class {_name(section)}(TypedDict, total=False):"
    yield f'    """{section.__doc__}"""\n'
    for name in section.__struct_fields__:
        type_ = section.__annotations__[name]
        yield f"    {name}: {' | '.join(dict.fromkeys([*_types(type_), *([] if is_section(type_) else ['None'])]))}"


def _name(section: type[Section]) -> str:
    return SECTIONS.get(section) or section.__name__.removesuffix("Section") + "Keys"


def _types(type_: Any, *, is_file: bool = False) -> Iterator[str]:
    """What a call may give for a type of the schema."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        yield from _types(arguments[0], is_file=is_file or NAMES_A_FILE in arguments[1:])
    elif origin in (Union, UnionType):
        for arm in arguments:
            yield from _types(arm)
    elif is_section(type_):
        yield _name(type_)
    elif is_struct(type_):
        yield "Mapping[str, object]"
    elif origin is tuple:
        yield f"Sequence[{next(_types(arguments[0]))}]"
    elif origin is dict:
        yield f"Mapping[str, {next(_types(arguments[1]))}]"
    elif type_ is not NoneType:
        yield type(arguments[0]).__name__ if origin is Literal else type_.__name__
        yield from ["Path"] if is_file else []


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
