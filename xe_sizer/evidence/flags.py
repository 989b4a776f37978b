"""Collects the scenario keys that a record becomes, and the catalogue with what records describe themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError
from xe_sizer.evidence.names import look_up, plain
from xe_sizer.profiles.registry import Registry

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Server
    from xe_sizer.software.stack import Stack


class RecordRegistry(Registry):
    """The catalogue, and models, nodes and stacks that records describe. Raises InputError as the catalogue does."""

    def __init__(self) -> None:
        super().__init__()
        self.built_models: dict[str, ModelShape] = {}
        self.built_servers: dict[str, Server] = {}
        self.built_stacks: dict[str, Stack] = {}
        self._refused: dict[str, InputError] = {}

    def model(self, name: str, where: Where = None) -> ModelShape:
        if name in self.built_models:
            return self.built_models[name]
        if name not in self._refused:  # the search for a name like an unknown one is slow
            try:
                return super().model(name, where)
            except InputError as error:
                self._refused[name] = error
        raise self._refused[name]

    def server(self, name: str, where: Where = None) -> Server:
        return self.built_servers.get(name) or super().server(name, where)

    def made(self, kind: str, name: str) -> object | None:
        return self.built_stacks.get(name) if kind == "stack" else None


class Flags:
    """Scenario keys as they are settled, with what had to be assumed."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.assumed: list[str] = []

    def put(self, key: str, value: Any, assumed: str | None = None) -> None:
        if value is not None:
            self.values[key] = value
            if assumed:
                self.assumed.append(assumed)

    def word(self, key: str, table: Mapping[str, str], stated: Any) -> None:
        """A word by its table; one that the table does not know is left to the stack."""
        if stated is None:
            return
        word = str(stated).lower()
        known = look_up(table, word)
        if known is None:
            self.assumed.append(f"{key} '{stated}' is unknown here: the stack's default")
        else:
            self.put(key, known, None if known == plain(word) else f"{key} '{stated}' predicted as {known}")
