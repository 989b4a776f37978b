"""Counts live storages of PyTorch tensors under a dispatch mode: what `torch.cuda.memory_allocated` would report.

A storage counts once, however many views share it, from the operator that makes it until Python and autograd let
go of it. Sizes are rounded up as the CUDA caching allocator does. What a kernel allocates and frees inside itself
(workspaces of cuBLAS, the accumulators of a flash backward) is invisible here.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

ALLOCATION_BYTES = 512  # kMinBlockSize of c10/cuda/CUDACachingAllocator.cpp
_NUMBER = re.compile(r"\.\d+(?=\.|$)")
_PEFT_PREFIX = "base_model.model."


def rounded(size_bytes: int) -> int:
    """Bytes that the caching allocator hands out for a request."""
    return -(-size_bytes // ALLOCATION_BYTES) * ALLOCATION_BYTES


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


class MemoryTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage that an operator returns. Labels say who made it: module or autograd node, operator."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.phases: list[Phase] = []
        self._by_label: dict[str, list[int]] = {}
        self._known: dict[int, weakref.ref[Any]] = {}
        self._modules: list[str] = []
        self._names = {id(module): _plain(name) for name, module in model.named_modules()}

    def hold(self, tensors: Iterable[torch.Tensor], label: str) -> None:
        """Count tensors that exist already: weights, buffers, the batch."""
        for tensor in tensors:
            self._count(tensor, label)

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

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
        for tensor in made:
            self._count(tensor, None, func)
        return result

    def _enter(self, module: torch.nn.Module) -> None:
        self._modules.append(self._names.get(id(module), type(module).__name__))

    def _leave(self) -> None:
        self._modules.pop()

    def _label(self, func: Callable[..., Any]) -> str:
        operator = getattr(func, "_opname", getattr(func, "__name__", "?"))
        node = torch._C._current_autograd_node()
        where = f"backward {node.name()}" if node is not None else ""
        if self._modules:
            where = f"{'recomputed ' if node is not None else ''}{self._modules[-1] or 'model'}"
        return f"{where or 'step'}: {operator}"

    def _count(self, tensor: torch.Tensor, label: str | None, func: Callable[..., Any] | None = None) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        known = self._known.get(key)
        if known is not None and known() is storage:
            return
        size = rounded(storage.nbytes())
        if size == 0:
            return
        label = label or self._label(func)  # type: ignore[arg-type]
        self._known[key] = weakref.ref(storage, lambda _: self._release(key, size, label))
        entry = self._by_label.setdefault(label, [0, 0])
        entry[0], entry[1] = entry[0] + size, entry[1] + 1
        self.live_bytes += size
        if self.phases and self.live_bytes > self.phases[-1].peak_bytes:
            self.phases[-1].peak_bytes, self.phases[-1].live = self.live_bytes, self._snapshot()

    def _release(self, key: int, size: int, label: str) -> None:
        del self._known[key]
        entry = self._by_label[label]
        entry[0], entry[1] = entry[0] - size, entry[1] - 1
        self.live_bytes -= size

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        return {label: (size, count) for label, (size, count) in self._by_label.items() if count}
