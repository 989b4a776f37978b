"""Memory of a GPU that serves, as a ledger: what it is made of, what is available, and what is missing."""

from __future__ import annotations

from xe_sizer.result.common import MemoryComponent, Reason
from xe_sizer.result.serving import ServeMemory
from xe_sizer.serving.memory import (
    ALLOCATED_PARTS,
    BATCH_PARTS,
    BESIDE,
    SHORT_PARTS,
    Card,
    Held,
    cache,
    cuda_graphs,
    left_free,
    request_bytes,
    static_peak,
    weights,
)
from xe_sizer.serving.sizing import ServingEstimate
from xe_sizer.serving.uncertainty import MEMORY_ERROR_SHARE
from xe_sizer.units import GIB

CACHE, RESERVED = cache.name, left_free.name


def serve_memory(sized: ServingEstimate) -> ServeMemory:
    """The ledger: the pool as the engine allocates it, or the batch at its peak where the cache grows.

    What does not fit is shown with the cache of one whole request, which is the least that serves, and with what the
    engine is told to leave free [bytes].
    """
    sizes = _sizes(sized)
    peak = sum(sizes.values())
    usable = sized.memory.usable_bytes
    pp, room = int(sized.placement.pp[0]), usable - peak
    return ServeMemory(
        peak_bytes=peak,
        usable_bytes=usable,
        headroom_bytes=room if abs(room) >= 1.0 else 0.0,
        phase=f"{_held(sized)} at their peak" if grows(sized) else "as allocated" if sized.fits else "one request",
        gpu="fullest pipeline stage" if pp > 1 else "all alike",
        components=tuple(
            MemoryComponent(name=part.name, bytes=size, formula=part.formula, source=part.source)
            for part, size in zip(_parts(sized), sizes.values(), strict=True)
        ),
        error_share=MEMORY_ERROR_SHARE,
    )


def margin(sized: ServingEstimate, memory: ServeMemory) -> str:
    """How close: over, tight (the room beside one request is inside the error of the model) or headroom."""
    if not sized.fits:
        return "over"
    room = memory.headroom_bytes if grows(sized) else _pool_bytes(sized) - _request_bytes(sized)
    return "tight" if room < memory.error_share * memory.usable_bytes else "headroom"


def cache_bytes(sized: ServingEstimate, memory: ServeMemory) -> float:
    """Room for the cache on one GPU: the pool, or all beside the other parts where it grows [bytes]."""
    if not grows(sized):
        return _pool_bytes(sized)
    held = sum(part.bytes for part in memory.components if part.name == CACHE)
    return max(memory.headroom_bytes + held, 0.0)


def _request_bytes(sized: ServingEstimate) -> float:
    """Cache of one request at its full length on one GPU [bytes]."""
    traffic = sized.resolved.traffic
    return float(request_bytes(sized.resolved.job, sized.placement, traffic.inputs + traffic.outputs)[0])


def shortage(sized: ServingEstimate, memory: ServeMemory) -> Reason:
    """Why it does not fit: needed, available and missing memory of a GPU, and what takes it."""
    sizes = {part.name: part.bytes for part in memory.components}
    weights, cache, reserved = sizes["weights"], sizes[CACHE], sizes.get(RESERVED, 0.0)
    rest = memory.peak_bytes - weights - cache - reserved
    free = f", {RESERVED} {reserved / GIB:,.1f}" if reserved else ""
    message = (
        f"needs {memory.peak_bytes / GIB:,.1f} GiB per GPU, {memory.usable_bytes / GIB:,.1f} GiB available, "
        f"{-memory.headroom_bytes / GIB:,.1f} GiB missing (weights {weights / GIB:,.1f}, "
        f"KV cache of {_held(sized)} {cache / GIB:,.1f}{free}, the rest {rest / GIB:,.1f} GiB)"
    )
    return Reason(code="out-of-memory", message=message)


def grows(sized: ServingEstimate) -> bool:
    return sized.resolved.job.engine.memory.grows


def _held(sized: ServingEstimate) -> str:
    if not grows(sized):
        return "one request"
    sequences = _sequences(sized)
    return "one request" if sequences < 1.5 else f"{sequences:,.0f} requests"


def _sequences(sized: ServingEstimate) -> float:
    """Requests inside a replica whose cache grows: the batch, or as many as run, of those that fit to their end."""
    if sized.resolved.load == "batch":
        return sized.resolved.amount
    return max(min(sized.point.running, float(int(sized.holds))), 1.0)


def _pool_bytes(sized: ServingEstimate) -> float:
    return float(sized.memory.pool_bytes[0])


def _parts(sized: ServingEstimate) -> tuple[Held, ...]:
    """What the ledger lists, in its order."""
    if grows(sized):
        return BATCH_PARTS
    return ALLOCATED_PARTS if sized.fits else SHORT_PARTS


def _sizes(sized: ServingEstimate) -> dict[str, float]:
    """Size of each of the parts [bytes]."""
    fixed = {name: float(value[0]) for name, value in sized.memory.fixed.items()}
    if not grows(sized):
        held = {weights.name: fixed[weights.name]}
        if sized.fits:
            return {**held, CACHE: _pool_bytes(sized), **fixed}
        return {**held, CACHE: _request_bytes(sized), **fixed, RESERVED: _left_free_bytes(sized)}
    job, traffic = sized.resolved.job, sized.resolved.traffic
    live = static_peak(job, sized.placement, _sequences(sized), traffic.inputs, traffic.outputs)
    return {
        **{name: float(value[0]) for name, value in live.items()},
        **{part.name: fixed[part.name] for part in BESIDE},
    }


def _left_free_bytes(sized: ServingEstimate) -> float:
    """What the engine is told to leave of a GPU [bytes]."""
    fixed = sized.memory.fixed
    beside = tuple(value for name, value in fixed.items() if name != cuda_graphs.name)
    return float(left_free(Card(sized.resolved.job, beside, fixed[cuda_graphs.name]))[0])
