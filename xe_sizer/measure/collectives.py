"""Collectives between the ranks that torchrun started: over gloo between CPUs, over NCCL between GPUs."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER
from xe_sizer.measure.samples import COLLECTIVE, Kernel
from xe_sizer.measure.timer import CUDA, summary

if TYPE_CHECKING:
    from xe_sizer.measure.samples import Sample
    from xe_sizer.measure.session import Say

MESSAGES = {True: (2**12, 2**16, 2**19, 2**22), False: tuple(2**power for power in range(10, 29, 2))}
REPEATS = 9  # chosen: the same of all ranks, so that nobody waits for one that has stopped
WARM_UP = 2
LONGEST_S = 1.0  # of a call: a message that takes longer is followed by none of its operation that is larger
FLOAT_BYTES = 4
DOUBLED = tuple(2**power for power in range(1, 10))


class Ranks(Immutable):
    """A process among those that torchrun started. rank, size : of all nodes; local_size : of a node"""

    rank: int
    size: int
    local_size: int
    local_rank: int

    @property
    def nodes(self) -> int:
        return max(self.size // self.local_size, 1)


def started_ranks() -> Ranks | None:
    """What torchrun says of this process; None where it did not start it, or only this one."""
    size = os.environ.get("WORLD_SIZE", "")
    if not size.isdecimal() or int(size) < 2 or "RANK" not in os.environ:
        return None
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    return Ranks(int(os.environ["RANK"]), int(size), local, int(os.environ.get("LOCAL_RANK", "0")))


def join(device: str, ranks: Ranks) -> str:
    """Meet the other ranks; the device of this one."""
    import torch.distributed as dist

    if device.startswith(CUDA):
        import torch

        own = f"{CUDA}:{ranks.local_rank}"
        torch.cuda.set_device(own)
        dist.init_process_group("nccl", device_id=torch.device(own))
        return own
    dist.init_process_group("gloo")
    return device


def leave() -> None:
    """Part from the other ranks, when all of them are done."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def sizes_of_groups(ranks: Ranks) -> tuple[int, ...]:
    """Numbers of ranks that are timed together: 2, 4 and so on up to a whole node, then whole nodes up to all."""
    inside = [size for size in DOUBLED if size < ranks.local_size] + [ranks.local_size]
    across = [count * ranks.local_size for count in DOUBLED if count < ranks.nodes] + [ranks.nodes * ranks.local_size]
    return tuple(size for size in dict.fromkeys((*inside, *across)) if size > 1)


def measure_collectives(device: str, ranks: Ranks, quick: bool, say: Say) -> list[Sample]:
    """Time every operation over groups of ranks, see `sizes_of_groups`; each rank has the same samples.

    Messages are the whole ones (the gathered, or to be reduced), as the law counts them.
    """
    import torch.distributed as dist

    sizes = sizes_of_groups(ranks)
    groups = {size: dist.new_group(list(range(size))) for size in sizes}
    warnings.simplefilter("ignore", FutureWarning)  # newer releases have other names for the same
    planned = len(sizes) * len(_OPERATIONS) * len(MESSAGES[quick])
    found: list[Sample] = []
    began = time.monotonic()
    done = 0
    for size in sizes:
        for operation in _OPERATIONS:
            for sample in _of_one(operation, size, groups[size], device, ranks, MESSAGES[quick]):
                found.append(sample)
                done += 1
                taken = time.monotonic() - began
                say(done, planned, taken / done * (planned - done))
        dist.barrier()
    return found


def _of_one(
    operation: str, size: int, group: Any, device: str, ranks: Ranks, messages: Sequence[int]
) -> Iterator[Sample]:
    """Samples of one operation over the first ranks; those beyond wait at the barrier of the caller."""
    if ranks.rank >= size:
        return
    import torch
    import torch.distributed as dist

    nodes = -(-size // ranks.local_size)
    together = size
    if operation == POINT_TO_POINT:  # pairs: in a node one, between two nodes one from each rank of the first
        if size != 2 * (ranks.local_size if nodes > 1 else 1):
            return
        together = 2
    for message in messages:
        elements = max(message // FLOAT_BYTES // size, 1) * size
        call = _OPERATIONS[operation](elements, size, ranks.rank, device, group)
        times = []
        for repeat in range(WARM_UP + REPEATS):
            dist.barrier(group=group)
            began = time.perf_counter()
            call()
            if device.startswith(CUDA):
                torch.cuda.synchronize()
            if repeat >= WARM_UP:
                times.append(time.perf_counter() - began)
        sizes = {"bytes": float(elements * FLOAT_BYTES), "ranks": float(together), "nodes": float(nodes)}
        sample = summary(Kernel(law=COLLECTIVE, name=operation, sizes=sizes), times, 1)
        yield sample
        slowest = torch.tensor([sample.seconds], device=device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
        if float(slowest) > LONGEST_S:
            return


Build = Callable[[int, int, int, str, Any], Callable[[], object]]


def _all_reduce(elements: int, size: int, rank: int, device: str, group: Any) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    whole = torch.ones(elements, device=device)
    return lambda: dist.all_reduce(whole, group=group)


def _all_gather(elements: int, size: int, rank: int, device: str, group: Any) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    whole, part = torch.ones(elements, device=device), torch.ones(elements // size, device=device)
    return lambda: dist.all_gather_into_tensor(whole, part, group=group)


def _reduce_scatter(elements: int, size: int, rank: int, device: str, group: Any) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    whole, part = torch.ones(elements, device=device), torch.ones(elements // size, device=device)
    return lambda: dist.reduce_scatter_tensor(part, whole, group=group)


def _all_to_all(elements: int, size: int, rank: int, device: str, group: Any) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    sent, received = torch.ones(elements, device=device), torch.ones(elements, device=device)
    return lambda: dist.all_to_all_single(received, sent, group=group)


def _send(elements: int, size: int, rank: int, device: str, group: Any) -> Callable[[], object]:
    """From each rank of the first half to its place in the second, and one element back, so that both know it came.

    All pairs at once, so that those of two nodes share the network as the ranks of a pipeline do.
    """
    import torch
    import torch.distributed as dist

    whole, one, half = torch.ones(elements, device=device), torch.ones(1, device=device), size // 2

    def exchange() -> None:
        if rank < half:
            dist.send(whole, rank + half, group=group)
            dist.recv(one, rank + half, group=group)
        else:
            dist.recv(whole, rank - half, group=group)
            dist.send(one, rank - half, group=group)

    return exchange


_OPERATIONS: dict[str, Build] = {
    ALL_REDUCE: _all_reduce,
    ALL_GATHER: _all_gather,
    REDUCE_SCATTER: _reduce_scatter,
    ALL_TO_ALL: _all_to_all,
    POINT_TO_POINT: _send,
}
