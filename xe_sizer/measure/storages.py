"""Live storages of PyTorch tensors, counted under a dispatch mode: what a card's allocator would say is allocated.

A storage counts once, however many views share it, from the operator that makes it until Python and autograd let
go of it. Sizes are rounded up as the CUDA caching allocator does. What a kernel allocates and frees inside itself
(workspaces of cuBLAS, the accumulators of a flash backward) is invisible here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

ALLOCATION_BYTES = 512  # kMinBlockSize of c10/cuda/CUDACachingAllocator.cpp


def rounded(size_bytes: int) -> int:
    """Bytes that the caching allocator hands out for a request."""
    return -(-size_bytes // ALLOCATION_BYTES) * ALLOCATION_BYTES


class LiveStorages(TorchDispatchMode):  # type: ignore[misc]  # torch is not there where types are checked
    """Follows every storage that an operator returns. `label` says who made one, for who wants to know."""

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = self.peak_bytes = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def hold(self, tensors: Iterable[torch.Tensor], label: str = "held") -> None:
        """Count tensors that exist already: weights, buffers, the batch."""
        for tensor in tensors:
            self._count(tensor, label)

    def label(self, func: Callable[..., Any]) -> str:
        """Who makes a storage."""
        return ""

    def grown(self, size_bytes: int, label: str) -> None:
        """Called for each storage that begins to live, once it counts."""

    def shrunk(self, size_bytes: int, label: str) -> None:
        """Called for each that ends."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, None, func)
        return result

    def _count(self, tensor: torch.Tensor, label: str | None, func: Callable[..., Any] | None = None) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        known = self._known.get(key)
        if known is not None and known() is storage:
            return
        size = rounded(storage.nbytes())
        if size == 0:
            return
        said = self.label(func) if label is None and func is not None else label or ""
        self._known[key] = weakref.ref(storage, lambda _: self._release(key, size, said))
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.grown(size, said)

    def _release(self, key: int, size: int, label: str) -> None:
        del self._known[key]
        self.live_bytes -= size
        self.shrunk(size, label)
