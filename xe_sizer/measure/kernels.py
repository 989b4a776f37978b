"""Kernels as PyTorch runs them: what a `Kernel` of the grid names, on the device, with random operands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from xe_sizer.laws.device import BF16, FLOAT32_FORMATS, FLOAT32_KERNELS, FP8, FP16, FP32, INT8, TF32
from xe_sizer.measure.grid import (
    INPUT_GRADIENT,
    LAUNCH,
    TO_DEVICE,
    UPDATE,
    WEIGHT_GRADIENT,
)
from xe_sizer.measure.samples import (
    ATTENTION,
    BACKWARD,
    COPY,
    DECODE,
    GROUPED,
    HOST,
    MATMUL,
    MEMORY,
    STORAGE,
    SUSTAINED,
    Kernel,
)
from xe_sizer.measure.timer import CUDA, own_stream

if TYPE_CHECKING:
    from xe_sizer.measure.timer import Call

DTYPES: dict[str, torch.dtype] = {
    FP32: torch.float32, TF32: torch.float32, BF16: torch.bfloat16, FP16: torch.float16,
    FP8: torch.float8_e4m3fn, INT8: torch.int8,
}  # fmt: skip
TRIED = (FP32, TF32, BF16, FP16, FP8, INT8)  # in which a device may multiply, each of which is tried
# Families of attention kernels by the name of the backend of scaled_dot_product_attention; sdpa is what PyTorch picks.
# The memory-efficient kernels of CUTLASS are about as fast as the first FlashAttention (laws.device.MEMORY_EFFICIENT).
BACKENDS = {"flash-2": "FLASH_ATTENTION", "flash-1": "EFFICIENT_ATTENTION"}
PICKED = "sdpa"
USUAL_CACHE_BYTES = 32e6  # assumed: of a device that does not say how large its last cache is
MOST_COPIES = 8  # chosen: of a weight, so that it comes from memory and not from a cache


def element_bytes(name: str) -> float:
    """Size of an element of a number format [bytes]."""
    return float(DTYPES[name].itemsize)


class Operands:
    """Random tensors on one device. `dtype` is in which activations are kept; weights are as they are multiplied."""

    def __init__(self, device: str) -> None:
        self.device = device

    def random(self, *sizes: float, dtype: torch.dtype) -> torch.Tensor:
        """Normal numbers: what a kernel's power follows is what it multiplies."""
        whole = tuple(int(size) for size in sizes)
        if dtype == torch.int8:
            return torch.randint(-8, 8, whole, dtype=dtype, device=self.device)
        made = torch.randn(whole, device=self.device, dtype=torch.float32 if dtype.itemsize == 1 else dtype)
        return made.to(dtype)

    @property
    def cache_bytes(self) -> float:
        """Size of the last cache [bytes]."""
        if self.device.startswith(CUDA):
            return float(getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", USUAL_CACHE_BYTES))
        return USUAL_CACHE_BYTES

    def copies(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """So many copies of a weight that taking one after the other finds none of them in the cache."""
        count = min(MOST_COPIES, int(2 * self.cache_bytes / max(tensor.nbytes, 1)) + 1)
        return [tensor, *(tensor.clone() for _ in range(count - 1))]


@cache
def formats(device: str) -> tuple[str, ...]:
    """Number formats in which the device multiplies at all; TF32 is a card's."""
    found = []
    for name in TRIED:
        if name == TF32 and not device.startswith(CUDA):
            continue
        probe = Kernel(law=MATMUL, name=name, sizes={"m": 64, "n": 64, "k": 64})
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):
            build(probe, device, None)(0)
            found.append(name)
    return tuple(found)


def build(kernel: Kernel, device: str, folder: Path | None) -> Call:
    """The call of a kernel, ready to be timed. folder : that a file is written to"""
    with own_stream(device):
        return _BUILDERS[kernel.law](kernel, Operands(device), folder)


def _matmul(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    """Forward x W^T, gradient of the input g W, gradient of the weight g^T x."""
    m, n, k, dtype = kernel.sizes["m"], kernel.sizes["n"], kernel.sizes["k"], DTYPES[kernel.name]
    if dtype in (torch.int8, torch.float8_e4m3fn):
        return _narrow(operands, m, n, k, dtype)
    weights = operands.copies(operands.random(n, k, dtype=dtype))
    inputs, gradients = operands.random(m, k, dtype=dtype), operands.random(m, n, dtype=dtype)
    count = len(weights)
    calls: dict[str, Call] = {
        INPUT_GRADIENT: lambda place: gradients @ weights[place % count],
        WEIGHT_GRADIENT: lambda _: gradients.t() @ inputs,
    }
    call = calls.get(kernel.form, lambda place: F.linear(inputs, weights[place % count]))
    if kernel.name in FLOAT32_FORMATS and operands.device.startswith(CUDA):
        return _in_tensor_cores(call, kernel.name == TF32)
    return call


def _in_tensor_cores(call: Call, wanted: bool) -> Call:
    def run(place: int) -> object:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = wanted
        try:
            return call(place)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return run


def _narrow(operands: Operands, m: float, n: float, k: float, dtype: torch.dtype) -> Call:
    """A product in 8 bit with one scale a tensor; activations are cast before it, as the law of 8 bit counts."""
    weight = operands.random(n, k, dtype=dtype)
    wide = operands.random(m, k, dtype=torch.bfloat16)
    if dtype == torch.int8:
        return lambda _: torch._int_mm(wide.to(dtype), weight.t())
    one = torch.ones((), device=operands.device)
    return lambda _: torch._scaled_mm(wide.to(dtype), weight.t(), one, one, out_dtype=torch.bfloat16)


def _grouped(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    """Every expert has as many rows."""
    m, n, k, count = (int(kernel.sizes[name]) for name in ("m", "n", "k", "copies"))
    dtype = DTYPES[kernel.name]
    inputs = operands.random(m * count, k, dtype=dtype)
    weights = operands.random(count, k, n, dtype=dtype)
    ends = torch.arange(m, m * count + 1, m, dtype=torch.int32, device=operands.device)
    return lambda _: torch._grouped_mm(inputs, weights, offs=ends)


@cache
def families(device: str) -> tuple[str, ...]:
    """Families of attention kernels that run here; a CPU has one, whatever it is asked for."""
    if not device.startswith(CUDA):
        return PICKED, FLOAT32_KERNELS
    found = [PICKED]
    for family in BACKENDS:
        probe = Kernel(law=ATTENTION, name=family, sizes={"batch": 1, "heads": 1, "length": 64, "head_dim": 64})
        with contextlib.suppress(RuntimeError, NotImplementedError):
            build(probe, device, None)(0)
            found.append(family)
    return (*found, FLOAT32_KERNELS)


@contextlib.contextmanager
def _backend(family: str) -> Iterator[None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    name = BACKENDS.get(family)
    if name is None:
        yield
        return
    with sdpa_kernel(getattr(SDPBackend, name)):
        yield


def sixteen_bit(device: str) -> str:
    """The 16-bit format of kernels beside products."""
    known = formats(device)
    return BF16 if BF16 in known or FP16 not in known else FP16


def _attention(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    batch, heads, length, size = (kernel.sizes[name] for name in ("batch", "heads", "length", "head_dim"))
    dtype = torch.float32 if kernel.name == FLOAT32_KERNELS else DTYPES[sixteen_bit(operands.device)]
    queries, keys, values = (operands.random(batch, heads, length, size, dtype=dtype) for _ in range(3))

    def forward(_: int) -> torch.Tensor:
        with _backend(kernel.name):
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    if kernel.form != BACKWARD:
        return forward
    for tensor in (queries, keys, values):
        tensor.requires_grad_()
    made = forward(0)
    gradient = torch.randn_like(made)
    return lambda _: torch.autograd.grad(made, (queries, keys, values), gradient, retain_graph=True)


def _decode(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    """On a card in an installed engine's kernel over pages, on a CPU in PyTorch's own."""
    batch, heads, length, size = (int(kernel.sizes[name]) for name in ("batch", "heads", "length", "head_dim"))
    dtype = DTYPES[kernel.name]
    if operands.device.startswith(CUDA):
        return _paged(operands, batch, heads, length, size, dtype)
    query = operands.random(batch, heads, 1, size, dtype=dtype)
    keys, values = (operands.random(batch, heads, length, size, dtype=dtype) for _ in range(2))
    return lambda _: F.scaled_dot_product_attention(query, keys, values)


PAGE = 256  # tokens: what the kernels of flash-attn take


def paged_kernels() -> bool:
    """Whether an engine's kernels over a paged cache are installed."""
    try:
        from flash_attn import flash_attn_with_kvcache
    except ImportError:
        return False
    return flash_attn_with_kvcache is not None


def _paged(operands: Operands, batch: int, heads: int, length: int, size: int, dtype: torch.dtype) -> Call:
    from flash_attn import flash_attn_with_kvcache

    pages = -(-length // PAGE)
    query = operands.random(batch, 1, heads, size, dtype=dtype)
    keys, values = (operands.random(batch * pages, PAGE, heads, size, dtype=dtype) for _ in range(2))
    table = torch.arange(batch * pages, dtype=torch.int32, device=operands.device).view(batch, pages)
    filled = torch.full((batch,), length, dtype=torch.int32, device=operands.device)
    return lambda _: flash_attn_with_kvcache(query, keys, values, cache_seqlens=filled, block_table=table)


NORM_WIDTH, SOFTMAX_WIDTH = (
    4096,
    32768,
)  # elements of a row: a hidden size, a vocabulary; the least that is moved has two


def _moving(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    elements = int(kernel.sizes["elements"])
    if kernel.name == UPDATE:
        return _update(operands, elements)
    dtype = DTYPES[kernel.form]
    one = operands.random(elements, dtype=dtype)
    rows, logits = one.view(-1, min(NORM_WIDTH, elements)), one.view(-1, min(SOFTMAX_WIDTH, elements))
    other = operands.random(elements, dtype=dtype) if kernel.name == "add" else one
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "add": lambda: one + other,
        "scale": lambda: one * 0.5,
        "silu": lambda: F.silu(one),
        "layer-norm": lambda: F.layer_norm(rows, rows.shape[1:]),
        "softmax": lambda: F.softmax(logits, dim=-1),
    }
    chosen = calls[kernel.name]
    return lambda _: chosen()


def _update(operands: Operands, elements: int) -> Call:
    """AdamW of one tensor in one kernel."""
    weight = torch.nn.Parameter(operands.random(elements, dtype=torch.float32))
    weight.grad = operands.random(elements, dtype=torch.float32)
    optimizer = torch.optim.AdamW([weight], fused=True, capturable=operands.device.startswith(CUDA))
    optimizer.step()
    return lambda _: optimizer.step()


def _host(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    """What Python takes from one small kernel to the next, or for an update of many small tensors."""
    if kernel.name == LAUNCH:
        one = operands.random(4, dtype=torch.float32)

        def launches(_: int) -> None:
            for _place in range(int(kernel.sizes["kernels"])):
                one.mul_(1.0)

        return launches
    weights = [torch.nn.Parameter(operands.random(4, dtype=torch.float32)) for _ in range(int(kernel.sizes["tensors"]))]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW(weights)

    def step(_: int) -> None:
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    return step


def _copy(kernel: Kernel, operands: Operands, _: Path | None) -> Call:
    size = int(kernel.sizes["bytes"])
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(size, dtype=torch.uint8, device=operands.device)
    if kernel.name == TO_DEVICE:
        return lambda _: card.copy_(host, non_blocking=True)
    return lambda _: host.copy_(card, non_blocking=True)


def _write(kernel: Kernel, _: Operands, folder: Path | None) -> Call:
    """A file of random bytes, as far as the disk, then away with it. Its call raises RuntimeError on a full disk."""
    import os

    assert folder is not None
    file, data = folder / ".written", os.urandom(int(kernel.sizes["bytes"]))

    def write(_: int) -> None:
        try:
            with file.open("wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise RuntimeError(f"cannot write: {error.strerror}") from error
        finally:
            file.unlink(missing_ok=True)

    return write


_BUILDERS: dict[str, Callable[[Kernel, Operands, Path | None], Call]] = {
    MATMUL: _matmul,
    SUSTAINED: _matmul,
    GROUPED: _grouped,
    ATTENTION: _attention,
    DECODE: _decode,
    MEMORY: _moving,
    HOST: _host,
    COPY: _copy,
    STORAGE: _write,
}
