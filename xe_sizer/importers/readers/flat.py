"""The values of a document under dotted keys, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.errors import Location
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Document


def flat(document: Document) -> dict[str, tuple[object, Location]]:
    """Values by dotted key: `{train: {steps: 5}}` gives `train.steps`.

    A list of plain values is one value; the groups of a list have their number in the key (`datasets.0.path`).
    An empty group is a value too. Nothing has a key where the document is one plain value.
    """
    leaves = _leaves(document.value, ())
    return {".".join(map(str, path)): (value, document.locate(path)) for path, value in leaves if path}


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list) and _holds_groups(value):
        for place, each in enumerate(value):
            yield from _leaves(each, (*path, place))
    else:
        yield path, value


def _holds_groups(value: list[object]) -> bool:
    return any(isinstance(each, dict) or (isinstance(each, list) and _holds_groups(each)) for each in value)
