"""What an accelerator profile may say: the schema of `gpu_profiles/<name>.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER

# The upper ends are far above any real part; they find a wrong unit or a slip of the keyboard.
Positive = Annotated[float, Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
MemoryGib = Annotated[float, Meta(gt=0, le=1e5)]
GbPerS = Annotated[float, Meta(gt=0, le=1e6)]
Tflops = Annotated[float, Meta(gt=0, le=1e6)]
Watt = Annotated[float, Meta(gt=0, le=1e5)]
Microseconds = Annotated[float, Meta(ge=0, le=1e6)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Gpus = Annotated[int, Meta(gt=0, le=100_000)]
Segment = Literal["desktop", "data-centre"]
Cooling = Literal["air", "liquid"]
Error = Annotated[float, Meta(ge=0, description="absolute relative error of the fit")]

OPERATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)
KERNEL_FAMILIES = ("flash-1", "flash-2", "flash-3", "sdpa")


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the figures of a file come from."""

    title: str
    url: str | None = None
    read_on: str | None = None


class Pcie(Struct, frozen=True, forbid_unknown_fields=True):
    gen: Annotated[int, Meta(ge=3, le=6)]
    lanes: Annotated[int, Meta(ge=1, le=16)]
    peer_to_peer: bool = True


class LinkProfile(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    one_way_gb_per_s: GbPerS


class UsualNodeProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """The node that it usually comes in, where that is not the usual one of its link."""

    scale_up: str | None = None
    gpus: Gpus | None = None
    nic_gbit_per_s: GbPerS = 400.0
    cooling: Cooling = "air"


class LendsTo(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom the accelerator lends laws to: generations; vendors whose generation has no lender; all who have none."""

    generations: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    others: bool = False


class MatmulProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile leaves out of a law is taken from the accelerator that lends its laws."""

    floor_us: Microseconds | None = None
    flops_efficiency: Fraction | None = None
    sustained_flops_efficiency: Fraction | None = None
    memory_efficiency: Fraction | None = None
    sharpness: Annotated[float, Meta(ge=1, le=1000)] | None = None
    cast_bytes_per_element: NotNegative | None = None
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str | None = None


class AttentionProfile(Struct, frozen=True, forbid_unknown_fields=True):
    floor_us: Microseconds
    flops_efficiency: Fraction
    backward_flops_efficiency: Fraction
    memory_efficiency: Fraction
    half_length: NotNegative = 0.0
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str = ""


class DecodeProfile(Struct, frozen=True, forbid_unknown_fields=True):
    floor_us: Microseconds
    memory_efficiency: Fraction
    root_us_per_sqrt_mb: NotNegative = 0.0
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str = ""


class CollectiveProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """Lists have one entry per entry of `ranks`."""

    ranks: tuple[Annotated[int, Meta(ge=2)], ...]
    alpha_us: tuple[Microseconds, ...]
    bus_gb_per_s: tuple[GbPerS, ...]
    root_us_per_sqrt_mb: tuple[Microseconds, ...] | None = None
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str = ""


class MemoryBoundProfile(Struct, frozen=True, forbid_unknown_fields=True):
    efficiency: Fraction
    floor_us: Microseconds | None = None
    source: str = ""


class LawsProfile(Struct, frozen=True, forbid_unknown_fields=True):
    matmul: dict[str, MatmulProfile] = {}
    attention: dict[str, AttentionProfile] = {}
    decode: DecodeProfile | None = None
    collectives: dict[str, CollectiveProfile] = {}
    memory_bound: MemoryBoundProfile | None = None


class GpuProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu_profiles/<name>.yaml`.

    segment : who buys it; advice proposes larger GPUs of the same segment first
    suggested : advice proposes it where memory is short
    """

    name: str
    vendor: str
    generation: str
    memory_gib: MemoryGib
    memory_bandwidth_gb_per_s: GbPerS
    peak_tflops: dict[str, Tflops]
    source: Source
    aliases: tuple[str, ...] = ()
    title: str | None = None
    segment: Segment = "data-centre"
    streaming_multiprocessors: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None
    tdp_w: Watt | None = None
    pcie: Pcie | None = None
    pcie_gb_per_s: GbPerS | None = None
    link: LinkProfile | None = None
    usual_node: UsualNodeProfile = UsualNodeProfile()
    suggested: bool = False
    lends_to: LendsTo | None = None
    borrows_from: str | None = None
    laws: LawsProfile = LawsProfile()
    assumed: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    notes: str | None = None
