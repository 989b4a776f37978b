"""How tokens get to their experts and back: the dispatchers that engines choose of."""

from __future__ import annotations

from typing import Literal

from xe_sizer.immutable import Immutable

# A row for each; an engine's file says which it has. What a key of another tool calls them stands in its table.


class Exchange(Immutable, eq=True):
    """How a dispatcher sends in one kind of steps.

    dispatch : to whom a token goes, as in `graph.operators.Kernels`
    start_s : of a kernel that sends tokens or brings them back; None: as the laws of collectives have it [s]
    rows : each rank keeps room for the tokens of all ranks with each expert, see `serving.memory.communicators`
    replays : a CUDA graph may have it; else the host waits for the number of tokens
    steals : multiprocessors that send while others compute
    """

    dispatch: Literal["per-expert", "per-place", "to-all"]
    start_s: float | None = None
    rows: bool = False
    replays: bool = True
    steals: bool = False


class Dispatcher(Immutable, eq=True):
    """A dispatcher in steps with prompts, and in those that only decode.

    narrow : tokens are sent in the format of the activations, where that is narrower than 16 bit
    overlaps : the other half of a batch may be computed while it sends
    """

    name: str
    prompts: Exchange
    decodes: Exchange
    narrow: bool = True
    overlaps: bool = True

    @property
    def by_phase(self) -> bool:
        """Whether prompts and decodes are sent otherwise."""
        return self.prompts != self.decodes


_GATHERED = Exchange("to-all")
# DeepEP: csrc/kernels/internode.cu, one message a node, on from there over NVLink; intranode.cu, one a rank. The host
# waits for the number of tokens (README: not compatible with CUDA graphs).
_NORMAL = Exchange("per-place", replays=False, steals=True)
# Published, DeepEP README (H800, 128 tokens a rank, fp8 there and bf16 back, 8 to 64 ranks): 77, 118, 155 and 173 us
# there, 114, 195, 273 and 314 us back: 35 us and the bytes at 160 GB/s inside a node, or at 46 GB/s between nodes.
# low_latency_dispatch (internode_ll.cu) sends a copy to each expert, whose rows are kept free for it.
_LOW_LATENCY = Exchange("per-expert", start_s=35e-6, rows=True)
# Measured, GB200 NVL72 (TensorRT-LLM blog 18): 18 to 28 us for one token to experts, 31 to 33 us back; one message a
# rank.
_ONE_SIDED = Exchange("per-place", start_s=25e-6)

_ROWS = (
    # NCCL: all-gather before the experts, reduce-scatter after.
    Dispatcher("all-gather", _GATHERED, _GATHERED, narrow=False, overlaps=False),
    # DeepEP, each of its kernels where it is made for; SGLang's deepep_mode auto.
    Dispatcher("deepep", _NORMAL, _LOW_LATENCY),
    Dispatcher("deepep-normal", _NORMAL, _NORMAL),
    Dispatcher("deepep-low-latency", _LOW_LATENCY, _LOW_LATENCY),
    # Perplexity's: a copy to each expert, in rows that are kept free (pplx_kernels/all_to_all.py); started as DeepEP's.
    Dispatcher("pplx", _LOW_LATENCY, _LOW_LATENCY),
    # One-sided kernels over NVLink of TensorRT-LLM and FlashInfer (moe_a2a), inside one NVLink domain.
    Dispatcher("nvlink", _ONE_SIDED, _ONE_SIDED, overlaps=False),
    # AMD's MoRI: one message a rank (mori/ops/dispatch_combine.py); as synchronous as vLLM has it.
    Dispatcher("mori", Exchange("per-place"), Exchange("per-place"), overlaps=False),
)  # fmt: skip
DISPATCHERS = {row.name: row for row in _ROWS}
# From GPUs of attention to GPUs of experts: one message to each that holds experts which a token picked, sent by the
# NICs alone (MegaScale-Infer's M2N library, arXiv:2504.02263; StepMesh, arXiv:2507.19427). Started as one-sided
# kernels: assumed.
TO_EXPERTS = Dispatcher("m2n", _ONE_SIDED, _ONE_SIDED)


def dispatcher_names() -> tuple[str, ...]:
    """All dispatchers, that of NCCL first."""
    return tuple(DISPATCHERS)


def other_dispatchers() -> dict[str, str]:
    """What engines and people call them."""
    return {
        "allgatherreducescatter": "all-gather", "allgather": "all-gather", "none": "all-gather", "naive": "all-gather",
        "deepephighthroughput": "deepep-normal", "deepepauto": "deepep", "mooncake": "deepep",
        "nixl": "deepep-low-latency", "nixlep": "deepep-low-latency", "flashinfer": "nvlink",
        "flashinferall2allv": "nvlink", "flashinfernvlinkonesided": "nvlink", "flashinfernvlinktwosided": "nvlink",
        "nvlinkonesided": "nvlink", "nvlinktwosided": "nvlink", "morihighthroughput": "mori", "morilowlatency": "mori",
    }  # fmt: skip
