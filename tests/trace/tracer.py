"""Live tensors of a training step by who made them and in which phase: `xe_sizer.measure.storages`, with labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from xe_sizer.measure.storages import LiveStorages

_NUMBER = re.compile(r"\.\d+(?=\.|$)")
_PEFT_PREFIX = "base_model.model."


def _plain(module_name: str) -> str:
    """The same name for every layer, with adapters or without."""
    return _NUMBER.sub(".*", module_name.removeprefix(_PEFT_PREFIX))


@dataclass
class Phase:
    """One stretch of a training step. `peak_bytes` within it, `end_bytes` live when it ends, `live` at its peak."""

    name: str
    peak_bytes: int = 0
    end_bytes: int = 0
    live: dict[str, tuple[int, int]] = field(default_factory=dict)


class MemoryTracer(LiveStorages):
    """Follows every storage that an operator returns. Labels say who made it: module or autograd node, operator."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.phases: list[Phase] = []
        self._by_label: dict[str, list[int]] = {}
        self._modules: list[str] = []
        self._names = {id(module): _plain(name) for name, module in model.named_modules()}

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """A stretch whose peak is kept apart."""
        current = Phase(name, peak_bytes=self.live_bytes, live=self._snapshot())
        self.phases.append(current)
        yield current
        current.end_bytes = self.live_bytes

    @contextmanager
    def following(self) -> Iterator[MemoryTracer]:
        """Count from here on, and know which module runs."""
        hooks = (
            register_module_forward_pre_hook(lambda module, _: self._enter(module)),
            register_module_forward_hook(lambda module, *_: self._leave(), always_call=True),
        )
        try:
            with self:
                yield self
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: torch.nn.Module) -> None:
        self._modules.append(self._names.get(id(module), type(module).__name__))

    def _leave(self) -> None:
        self._modules.pop()

    def label(self, func: Callable[..., Any]) -> str:
        operator = getattr(func, "_opname", getattr(func, "__name__", "?"))
        node = torch._C._current_autograd_node()
        where = f"backward {node.name()}" if node is not None else ""
        if self._modules:
            where = f"{'recomputed ' if node is not None else ''}{self._modules[-1] or 'model'}"
        return f"{where or 'step'}: {operator}"

    def grown(self, size_bytes: int, label: str) -> None:
        entry = self._by_label.setdefault(label, [0, 0])
        entry[0], entry[1] = entry[0] + size_bytes, entry[1] + 1
        if self.phases and self.live_bytes > self.phases[-1].peak_bytes:
            self.phases[-1].peak_bytes, self.phases[-1].live = self.live_bytes, self._snapshot()

    def shrunk(self, size_bytes: int, label: str) -> None:
        entry = self._by_label[label]
        entry[0], entry[1] = entry[0] - size_bytes, entry[1] - 1

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        return {label: (size, count) for label, (size, count) in self._by_label.items() if count}
