"""What a fake CPU does otherwise than a GPU, made alike: only things that change which tensors live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as functional

_sdpa: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA has one kernel with a mask of one byte an element; the CPU path keeps a mask in the input's type."""
    if p == 0 or not training:
        return input
    return torch.native_dropout(input, p, training)[0]


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """CUDA's kernels redraw their dropout from a seed; the CPU would fall back to the unfused path."""
    return _sdpa(*args, **{**kwargs, "dropout_p": 0.0})


def _scalar(value: Any) -> Any:
    """Adam reads its step count; a fake tensor has no value."""
    return 1.0 if isinstance(value, torch.Tensor) else value


def _stay(module: torch.nn.Module, *_: Any, **__: Any) -> torch.nn.Module:
    """Modules do not move: all is on one device, and built in its final type."""
    return module


@contextmanager
def gpu_like() -> Iterator[None]:
    """Patches in force while a model is traced.

    transformers looks at the values of position_ids for packed sequences and finds none; a fake tensor has no
    values, so the answer is given here. peft moves new adapters to the base weights' type and then back to float32
    (autocast_adapter_dtype); fake tensors cannot always be swapped in place, and the adapters are float32 already.
    """
    patches = (
        mock.patch("torch.nn.functional.dropout", _dropout),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention),
        mock.patch("torch.optim.adam._get_value", _scalar),
        mock.patch("transformers.masking_utils.find_packed_sequence_indices", lambda _: None),
        mock.patch("torch.nn.Module.to", _stay),
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
