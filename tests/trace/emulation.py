"""What a fake CPU does otherwise than a GPU, made alike: only things that change which tensors live."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_impls import op_implementations_dict
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_deepcopy: Callable[..., Any] = copy.deepcopy
_sdpa: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention
# What CUDA's autocast runs in float32 and the CPU's does not, as far as language models call it
# (AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE in aten/src/ATen/autocast_mode.h).
FLOAT32_FUNCTIONS = frozenset({
    "layer_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss", "pow", "__pow__", "rsqrt", "reciprocal",
    "exp", "log", "sum", "cumsum", "prod", "norm", "softplus",
})  # fmt: skip


class CudaCasts(TorchFunctionMode):
    """The float32 list of CUDA's autocast on top of the CPU's, wherever autocast is on."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        listed = getattr(func, "__name__", "") in FLOAT32_FUNCTIONS and kwargs.get("dtype") is None
        if listed and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map(_wide, args), tree_map(_wide, kwargs)
        return func(*args, **kwargs)


def _wide(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if half else value


def recomputation() -> tuple[AbstractContextManager[None], AbstractContextManager[Any]]:
    """Contexts of a checkpointed layer: a mode is off inside backward(), so the second forward enters it again."""
    return nullcontext(), CudaCasts()


def _dropout(
    input: torch.Tensor,  # noqa: A002  torch's name, which modules call it by
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> torch.Tensor:
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


def _read(_mode: Any, _func: Any, value: torch.Tensor) -> int:
    """What a single element is where Python looks: a random number in a vector is above a rate, none is infinite."""
    return value.dim()


def _stay(module: torch.nn.Module, *_: Any, **__: Any) -> torch.nn.Module:
    """Modules do not move: all is on one device, and built in its final type."""
    return module


def _copied(original: Any, memo: Any = None) -> Any:
    """A copy of an embedding or a head is made anew: views of a fake tensor's deep copy have their own storage."""
    if isinstance(original, torch.nn.Embedding):
        return torch.nn.Embedding(*original.weight.shape, dtype=original.weight.dtype)
    if isinstance(original, torch.nn.Linear):
        outputs, inputs = original.weight.shape
        return torch.nn.Linear(inputs, outputs, bias=original.bias is not None, dtype=original.weight.dtype)
    return _deepcopy(original, memo)


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
        mock.patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None),
        mock.patch("torch.nn.Module.to", _stay),
        mock.patch("transformers.initialization.trunc_normal_", lambda weight, **_: weight),
        mock.patch("copy.deepcopy", _copied),
        mock.patch.dict(op_implementations_dict, {torch.ops.aten._local_scalar_dense.default: _read}),
    )
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(CudaCasts())
        yield
