"""Values of a document with their places, walked by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.frozen import frozen
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.errors import Location
    from xe_sizer.importers.written import Keys
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Document

_WORD = 400  # characters of a key beyond which it is no name


@frozen
class Node:
    """A value of a document and the path to it. Steps to what is not there give None."""

    document: Document
    value: Any
    path: KeyPath = ()

    @property
    def where(self) -> Location:
        """Where the value stands."""
        return self.document.locate(self.path)

    @property
    def written(self) -> Written:
        """The value with its place."""
        return Written(self.value, self.where)

    def get(self, *steps: str) -> Node | None:
        """The value below keys; None where there is none or it is empty."""
        node = self
        for step in steps:
            if not isinstance(node.value, dict) or node.value.get(step) is None:
                return None
            node = Node(self.document, node.value[step], (*node.path, step))
        return node

    def said(self, *steps: str) -> Written | None:
        """`get`, with its place; None for groups and lists."""
        found = self.get(*steps)
        return found.written if found is not None and not isinstance(found.value, dict | list) else None

    def text(self, *steps: str) -> str:
        """Plain text below keys; empty where there is none."""
        found = self.said(*steps)
        return str(found.value) if found is not None else ""

    def each(self) -> Iterator[Node]:
        """The values of a list, or of a group in its order."""
        if isinstance(self.value, dict):
            for key in self.value:
                yield Node(self.document, self.value[key], (*self.path, key))
        elif isinstance(self.value, list):
            for place, value in enumerate(self.value):
                yield Node(self.document, value, (*self.path, place))

    def words(self) -> list[tuple[str, Location]]:
        """A list of plain values, or one plain value, as words of a command."""
        if isinstance(self.value, list):
            return [(str(each.value), each.where) for each in self.each() if not isinstance(each.value, dict | list)]
        return [] if self.value is None or isinstance(self.value, dict) else [(str(self.value), self.where)]

    def keys(self, prefix: str = "") -> Keys:
        """All plain values below, by dotted keys; lists of plain values are one value."""
        return dict(_leaves(self, prefix))


def _leaves(node: Node, prefix: str) -> Iterator[tuple[str, Written]]:
    value = node.value
    groups = isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    if (isinstance(value, dict) and value) or groups:
        for each in node.each():
            name = str(each.path[-1])[:_WORD]
            yield from _leaves(each, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix, node.written


def plain_keys(node: Node | None) -> dict[str, Written]:
    """The values of a group by names with underscores, as arguments of a command have them."""
    return {} if node is None else {name.replace("-", "_"): written for name, written in node.keys().items()}
