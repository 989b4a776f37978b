"""Accelerator profiles: how a YAML file is read and becomes an `Accelerator` in SI units."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.laws.attention import AttentionLaw, DecodeLaw
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COPY_EFFICIENCY,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    CollectiveLaw,
)
from xe_sizer.laws.device import BF16, FLOAT32_KERNELS, FP4, FP8, FP32, PRECISIONS, SIXTEEN_BIT_FORMATS
from xe_sizer.laws.hardware import DEFAULT_DECODE, Accelerator, Laws, Link, MeasuredHere, Slice, UsualHost, UsualNode
from xe_sizer.laws.matmul import GROUPED_EFFICIENCY, MatmulLaw
from xe_sizer.profiles.convert import (
    Error,
    Fraction,
    GbPerS,
    Gpus,
    MemoryGib,
    Microseconds,
    NotNegative,
    Source,
    Tflops,
    Watt,
    convert,
)
from xe_sizer.profiles.fabric import FabricProfile
from xe_sizer.profiles.finder import BUILT_IN, Finder, read_inherited
from xe_sizer.profiles.yaml_reader import Document, load_yaml, name_problems
from xe_sizer.units import GIB, GIGA, MEGA, MICRO, TERA

# What an accelerator profile may say: the schema of `gpu_profiles/<name>.yaml`.

Segment = Literal["desktop", "data-centre"]
Cooling = Literal["air", "liquid"]
OPERATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)
KERNEL_FAMILIES = ("flash-1", "flash-2", "flash-3", "sdpa", FLOAT32_KERNELS)


class Pcie(Struct, frozen=True, forbid_unknown_fields=True):
    gen: Annotated[int, Meta(ge=3, le=6)]
    lanes: Annotated[int, Meta(ge=1, le=16)]
    peer_to_peer: bool = True


class LinkProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """axes : of the torus that its lanes lead along, as many along each"""

    kind: str
    one_way_gb_per_s: GbPerS
    axes: Annotated[int, Meta(ge=1, le=6)] = 1


class UsualHostProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the hosts of a node that has several: how many of its accelerators it has, and its memory."""

    gpus: Gpus
    memory_gb: Annotated[float, Meta(gt=0, le=1e6)]


class UsualNodeProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """The node that it usually comes in, where that is not the usual one of its link."""

    scale_up: str | None = None
    gpus: Gpus | None = None
    nic_gbit_per_s: GbPerS = 400.0
    cooling: Cooling = "air"
    host: UsualHostProfile | None = None


class ChipProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """The chip of which software sees a part as a device of its own. devices : how many of them it has"""

    name: str
    devices: Annotated[int, Meta(ge=2, le=64)]


class SliceProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of slice: how many of them the accelerator has, and the shares of each.

    compute : of its multiprocessors; memory : of its memory, bandwidth and L2 cache
    """

    count: Annotated[int, Meta(ge=1, le=64)]
    compute: Fraction
    memory: Fraction


class LendsTo(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom the accelerator lends laws to: generations; vendors whose generation has no lender; all who have none."""

    generations: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    others: bool = False


class MatmulProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile leaves out of a law is taken from the accelerator that lends its laws.

    grouped_efficiency : share of the rate of single products that grouped ones of small sides reach
    grouped_factor, grouped_p90_error : rate of grouped products over what follows from that of single ones, where it
    was measured
    masked_factor : how much longer grouped products take of a side that no tile divides
    unaligned_factor : how much longer products of a weight with an odd side take; lent within a generation alone
    """

    floor_us: Microseconds | None = None
    flops_efficiency: Fraction | None = None
    sustained_flops_efficiency: Fraction | None = None
    memory_efficiency: Fraction | None = None
    sharpness: Annotated[float, Meta(ge=1, le=1000)] | None = None
    cast_bytes_per_element: NotNegative | None = None
    grouped_efficiency: Fraction | None = None
    grouped_factor: Annotated[float, Meta(gt=0, le=10)] | None = None
    grouped_p90_error: Error | None = None
    masked_factor: Annotated[float, Meta(ge=1, le=100)] | None = None
    unaligned_factor: Annotated[float, Meta(ge=1, le=100)] | None = None
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str | None = None


class AttentionProfile(Struct, frozen=True, forbid_unknown_fields=True):
    floor_us: Microseconds
    flops_efficiency: Fraction
    backward_flops_efficiency: Fraction
    memory_efficiency: Fraction
    half_length: NotNegative = 0.0
    half_head_dim: NotNegative = 0.0
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
    median_error: Error | None = None
    p90_error: Error | None = None
    source: str = ""


class HostProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """The host beside the accelerator. launch_us : from one small kernel to the next, started from Python"""

    launch_us: Microseconds
    source: str = ""


class CopyProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """Between host and accelerator. gb_per_s : of large pinned copies, the slower direction"""

    gb_per_s: GbPerS
    source: str = ""


class LawsProfile(Struct, frozen=True, forbid_unknown_fields=True):
    matmul: dict[str, MatmulProfile] = {}
    attention: dict[str, AttentionProfile] = {}
    decode: DecodeProfile | None = None
    collectives: dict[str, CollectiveProfile] = {}
    memory_bound: MemoryBoundProfile | None = None
    host: HostProfile | None = None
    copies: CopyProfile | None = None


class MeasuredProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """What `xe-sizer measure` says of its laws.

    date : YYYY-MM-DD; device : as its driver calls it; software : of the kernels; conditions : clocks, power
    laws : those that were measured, such as matmul.bf16; samples : kernels and sizes that were timed
    median_error, p90_error : of all laws on kernels that their fit had not seen, to be read; ranges rest on those of
    each law
    """

    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    device: str
    software: str
    laws: tuple[str, ...]
    samples: Annotated[int, Meta(ge=1)]
    median_error: Error
    p90_error: Error
    conditions: str = ""


class GpuProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu_profiles/<name>.yaml`.

    inherits : an accelerator whose figures and laws hold where the file says nothing
    measured : when and how its laws were measured on the machine at hand
    chip : whose part it is, where software counts parts of a chip
    slices : of the hardware, such as MIG profiles, by name
    announced : nobody has published measurements of it, and its figures are what its maker says; ranges are wider
    segment : who buys it; advice proposes larger GPUs of the same segment first
    suggested : advice proposes it where memory is short
    runtime_apart : memory_gib is what a program may have; contexts, communicators and libraries take nothing of it
    unified_share : of the memory of the machine, which it may use where it has none of its own; memory_gib is that
    share of the largest machine
    serving_only : training on it is refused, since no published run shows how fast it is
    """

    name: str
    vendor: str
    generation: str
    memory_gib: MemoryGib
    memory_bandwidth_gb_per_s: GbPerS
    peak_tflops: dict[str, Tflops]
    source: Source
    inherits: str | None = None
    measured: MeasuredProfile | None = None
    aliases: tuple[str, ...] = ()
    title: str | None = None
    chip: ChipProfile | None = None
    slices: dict[str, SliceProfile] = {}
    announced: bool = False
    segment: Segment = "data-centre"
    streaming_multiprocessors: Annotated[int, Meta(gt=0, le=1_000_000)] | None = None
    tdp_w: Watt | None = None
    pcie: Pcie | None = None
    pcie_gb_per_s: GbPerS | None = None
    link: LinkProfile | None = None
    usual_node: UsualNodeProfile = UsualNodeProfile()
    suggested: bool = False
    runtime_apart: bool = False
    unified_share: Fraction | None = None
    serving_only: bool = False
    lends_to: LendsTo | None = None
    borrows_from: str | None = None
    laws: LawsProfile = LawsProfile()
    assumed: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    notes: str | None = None


# One direction, one lane, after line coding: 8 GT/s x 128/130 in generation 3, then doubling.
PCIE_LANE_BYTES_PER_S = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


# Published: a multiprocessor of Volta, Turing, A100 and MI200 has 64 lanes for float32 beside 64 for integers, one of
# those since 128 that do either (NVIDIA's architecture white papers, AMD CDNA 2 and 3).
LANES, SLOWEST_CLOCK_HZ = 128, 1e9


def load_gpu_profile(path: Path, finder: Finder = BUILT_IN) -> GpuProfile:
    """Read one accelerator profile, over that which it inherits from.

    Raises
    ------
    InputError    with every problem: syntax, types, ranges, unknown precisions, operations and kernel
                  families, lists of a collective that differ in length, a name that is not the file's
    """
    document = load_yaml(path)
    profile = convert(read_inherited(document, "gpu", finder), GpuProfile, document.locate)
    problems = [*_general_problems(profile, document), *_law_problems(profile.laws, document)]
    if problems:
        raise InputError(problems)
    return profile


def _general_problems(profile: GpuProfile, document: Document) -> list[Problem]:
    problems = name_problems(profile.name, document)
    problems += _unknown_keys(profile.peak_tflops, PRECISIONS, "precision", ("peak_tflops",), document)
    if profile.peak_tflops.keys().isdisjoint(SIXTEEN_BIT_FORMATS):
        where = document.locate(("peak_tflops",), key=True)
        hint = "give the dense peak of one of them"
        neither = " nor ".join(SIXTEEN_BIT_FORMATS)
        problems.append(Problem(f"peak_tflops has neither {neither}", where, hint))
    if (profile.pcie is None) == (profile.pcie_gb_per_s is None):
        where = document.locate(("pcie_gb_per_s",), key=True)
        hint = "give the generation and lanes, or the rate to the host in one direction"
        problems.append(Problem("exactly one of pcie and pcie_gb_per_s is needed", where, hint))
    return problems


def _law_problems(laws: LawsProfile, document: Document) -> list[Problem]:
    kernels = ("laws", "attention")
    problems = _unknown_keys(laws.matmul, PRECISIONS, "precision", ("laws", "matmul"), document)
    problems += _unknown_keys(laws.attention, KERNEL_FAMILIES, "kernel family", kernels, document)
    problems += _unknown_keys(laws.collectives, OPERATIONS, "operation", ("laws", "collectives"), document)
    for operation, law in laws.collectives.items():
        where = ("laws", "collectives", operation)
        if not law.ranks or list(law.ranks) != sorted(set(law.ranks)):
            problems.append(Problem("ranks must ascend", document.locate((*where, "ranks"))))
        for key in ("alpha_us", "bus_gb_per_s", "root_us_per_sqrt_mb"):
            values = getattr(law, key)
            if values is not None and len(values) != len(law.ranks):
                message = f"{key} has {len(values)} entries for {len(law.ranks)} ranks"
                problems.append(Problem(message, document.locate((*where, key))))
    return problems


def _unknown_keys(
    given: Mapping[str, object], known: Sequence[str], what: str, path: tuple[str, ...], document: Document
) -> list[Problem]:
    return [
        Problem(
            f"unknown {what} '{key}'",
            document.locate((*path, key), key=True),
            did_you_mean(key, known) or f"known: {', '.join(known)}",
        )
        for key in given
        if key not in known
    ]


def pcie_bytes_per_s(pcie: Pcie) -> float:
    """Line rate of a PCIe link, one direction [bytes/s]."""
    return PCIE_LANE_BYTES_PER_S[pcie.gen] * pcie.lanes


def accelerator(profile: GpuProfile, link: FabricProfile, donors: Sequence[GpuProfile] = ()) -> Accelerator:
    """The accelerator in SI units, with its link; laws that it lacks come from the first donor that has them.

    Raises
    ------
    InputError    neither the profile nor its donors have a law that every accelerator needs
    """
    laws, assumptions = _laws(profile, donors)
    return Accelerator(
        name=profile.name,
        vendor=profile.vendor,
        generation=profile.generation,
        memory_bytes=profile.memory_gib * GIB,
        memory_bandwidth_bytes_per_s=profile.memory_bandwidth_gb_per_s * GIGA,
        peak_flops_per_s={key: value * TERA for key, value in profile.peak_tflops.items()},
        tdp_w=profile.tdp_w,
        pcie_bytes_per_s=_host_rate_bytes_per_s(profile),
        link=_link(profile),
        link_shares=link.link_shares(),
        usual_node=_usual_node(profile, link),
        laws=laws,
        assumptions=(*profile.assumed, *assumptions),
        source=profile.source.title,
        segment=profile.segment,
        peer_to_peer=profile.pcie.peer_to_peer if profile.pcie else True,
        runtime_apart=profile.runtime_apart,
        unified_share=profile.unified_share,
        serving_only=profile.serving_only,
        clocks_per_s=_clocks_per_s(profile),
        measured=_measured_here(profile.measured),
        announced=profile.announced,
        slices={name: Slice(name, one.count, one.compute, one.memory) for name, one in profile.slices.items()},
    )


def _clocks_per_s(profile: GpuProfile) -> float | None:
    """Clocks of all multiprocessors together, from the peak in float32: each of their lanes multiplies and adds.

    They have 128 lanes for it, or 64 where 128 would mean a clock below 1 GHz.
    """
    count, peak = profile.streaming_multiprocessors, profile.peak_tflops.get(FP32)
    if count is None or peak is None:
        return None
    clocks = peak * TERA / (2.0 * LANES)
    return clocks if clocks >= SLOWEST_CLOCK_HZ * count else 2.0 * clocks


def _measured_here(measured: MeasuredProfile | None) -> MeasuredHere | None:
    return None if measured is None else MeasuredHere(measured.date, measured.laws)


def _usual_node(profile: GpuProfile, link: FabricProfile) -> UsualNode:
    assert link.link is not None
    own, usual = profile.usual_node, link.link.usual_node
    scale_up, gpus = own.scale_up or usual.scale_up, own.gpus or usual.gpus
    host = UsualHost(own.host.gpus, own.host.memory_gb * GIGA) if own.host else None
    return UsualNode(scale_up, gpus, own.nic_gbit_per_s, own.cooling == "liquid", host, usual.network)


def _host_rate_bytes_per_s(profile: GpuProfile) -> float:
    """Line rate to the host [bytes/s]; of measured copies the rate of which they are the usual share."""
    if profile.laws.copies is not None:
        return profile.laws.copies.gb_per_s * GIGA / COPY_EFFICIENCY
    if profile.pcie_gb_per_s is not None:
        return profile.pcie_gb_per_s * GIGA
    assert profile.pcie is not None  # `_general_problems` refused a profile with neither
    return pcie_bytes_per_s(profile.pcie)


def _link(profile: GpuProfile) -> Link | None:
    link, chip = profile.link, profile.chip
    if link is None:
        return None
    return Link(link.kind, link.one_way_gb_per_s * GIGA, link.axes, chip.devices if chip else 1)


def _laws(profile: GpuProfile, donors: Sequence[GpuProfile]) -> tuple[Laws, tuple[str, ...]]:
    """Laws of the profile completed from its donors, and what to say about it."""
    borrowed: dict[str, list[str]] = {}  # donor: parts
    family = (profile, *donors)
    matmul = {p: _matmul_law(p, family, borrowed) for p in profile.peak_tflops}
    attention: dict[str, AttentionLaw] = {}
    for member in family:
        for kernel, law in member.laws.attention.items():
            if kernel not in attention:
                attention[kernel] = _attention_law(law, _share_of_peak(family) / _share_of_peak((member,)))
                _note(borrowed, profile, member, "attention")
    collectives: dict[str, CollectiveLaw] = {}
    for member in family:
        # Measured collectives carry over only to accelerators with the same link at the same rate.
        if member is profile or (member.link is not None and member.link == profile.link):
            for operation, fit in member.laws.collectives.items():
                if operation not in collectives:
                    collectives[operation] = collective_law(fit)
                    _note(borrowed, profile, member, "collectives")
    lender, memory_bound = _first_memory_bound(family)
    _note(borrowed, profile, lender, "memory-bound operators")
    floor_us, smallest_s = memory_bound.floor_us, min(law.floor_s for law in matmul.values())
    laws = Laws(
        matmul=matmul,
        attention=attention,
        collectives=collectives,
        memory_bound_efficiency=memory_bound.efficiency,
        memory_bound_floor_s=smallest_s if floor_us is None else floor_us * MICRO,
        memory_bound_error=memory_bound.p90_error,
        decode=_decode_law(family),
        launch_s=profile.laws.host.launch_us * MICRO if profile.laws.host else None,
        assumed=", ".join(borrowed) or None,
    )
    return laws, tuple(f"laws of {donor} for {', '.join(parts)}" for donor, parts in borrowed.items())


def _note(borrowed: dict[str, list[str]], profile: GpuProfile, lender: GpuProfile, part: str) -> None:
    if lender is not profile and part not in borrowed.setdefault(lender.name, []):
        borrowed[lender.name].append(part)


def _matmul_law(precision: str, family: Sequence[GpuProfile], borrowed: dict[str, list[str]]) -> MatmulLaw:
    """The law of one precision, field by field from the first of the family that states the field.

    A precision without a law of its own uses the 16-bit one, fp4 that of fp8, which casts its inputs too. A member
    that knows only its 16-bit efficiency lends that to the narrower precisions before a farther member is asked. The
    fit's errors are kept only when one member states the whole law: one put together from two sources has no error
    of its own.
    """
    profile = family[0]
    similar = {FP4: (FP4, FP8)}.get(precision, (precision,))
    key = next((name for name in similar if any(name in member.laws.matmul for member in family)), BF16)
    found: dict[str, float | None] = {}
    lenders: list[GpuProfile] = []
    sources: list[str] = []
    for member in family:
        stated = _stated_fields(member, key)
        new = {field: value for field, value in stated.items() if field not in found}
        if new:
            found |= new
            lenders.append(member)
            law = member.laws.matmul.get(key) or member.laws.matmul[BF16]
            sources.append(law.source or member.source.title)
            _note(borrowed, profile, member, "matmul")
    floor_us, flops_efficiency, memory_efficiency, sharpness = _required(found, key, profile)
    whole = lenders[0].laws.matmul[key] if len(lenders) == 1 else MatmulProfile()
    return MatmulLaw(
        floor_s=floor_us * MICRO,
        flops_efficiency=flops_efficiency,
        memory_efficiency=memory_efficiency,
        sharpness=sharpness,
        sustained_flops_efficiency=found.get("sustained_flops_efficiency"),
        cast_bytes_per_element=found.get("cast_bytes_per_element") or 0.0,
        grouped_efficiency=found.get("grouped_efficiency") or GROUPED_EFFICIENCY,
        grouped_factor=found.get("grouped_factor") or 1.0,
        masked=found.get("masked_factor") or 1.0,
        unaligned=_unaligned(key, family) if precision in SIXTEEN_BIT_FORMATS else None,
        median_error=whole.median_error,
        p90_error=whole.p90_error,
        grouped_error=whole.grouped_p90_error,
        source="; ".join(sources),
    )


def _unaligned(precision: str, family: Sequence[GpuProfile]) -> float | None:
    """Of products with an odd side, as the first member of the accelerator's own generation states it."""
    alike = (member for member in family if member.generation == family[0].generation)
    laws = (member.laws.matmul.get(precision) for member in alike)
    return next((law.unaligned_factor for law in laws if law and law.unaligned_factor), None)


_REQUIRED_FIELDS = ("floor_us", "flops_efficiency", "memory_efficiency", "sharpness")


def _stated_fields(member: GpuProfile, precision: str) -> dict[str, float | None]:
    """What one profile says about a precision.

    The sustained efficiency belongs to the burst efficiency beside it: one without the other is stated as
    None, so that it is not paired with another accelerator's.
    """
    law = member.laws.matmul.get(precision)
    only_efficiency = law is None
    law = law or member.laws.matmul.get(BF16)
    if law is None:
        return {}
    stated: dict[str, float | None] = {}
    if law.flops_efficiency is not None:
        stated["flops_efficiency"] = law.flops_efficiency
        stated["sustained_flops_efficiency"] = law.sustained_flops_efficiency
    if only_efficiency:
        return stated
    rest = (
        "floor_us", "memory_efficiency", "sharpness", "cast_bytes_per_element", "grouped_efficiency", "grouped_factor",
        "masked_factor",
    )  # fmt: skip
    return stated | {field: value for field in rest if (value := getattr(law, field)) is not None}


def _required(found: Mapping[str, float | None], precision: str, profile: GpuProfile) -> list[float]:
    values = [value for field in _REQUIRED_FIELDS if (value := found.get(field)) is not None]
    if len(values) < len(_REQUIRED_FIELDS):
        missing = ", ".join(field for field in _REQUIRED_FIELDS if found.get(field) is None)
        message = f"accelerator '{profile.name}': laws.matmul.{precision} lacks {missing}"
        raise InputError(Problem(message, None, "state them, or use a generation whose laws can be borrowed"))
    return values


def _share_of_peak(family: Sequence[GpuProfile]) -> float:
    """Share of the 16-bit peak that matrix products reach, of the first of the family that states it; else 1 [-]."""
    laws = (member.laws.matmul.get(BF16) for member in family)
    return next((law.flops_efficiency for law in laws if law and law.flops_efficiency), 1.0)


def _attention_law(law: AttentionProfile, realised: float) -> AttentionLaw:
    """The law of a kernel; a borrowed one in proportion to what both accelerators make of their peaks in products."""
    return AttentionLaw(
        floor_s=law.floor_us * MICRO,
        flops_efficiency=law.flops_efficiency * realised,
        half_length=law.half_length,
        half_head_dim=law.half_head_dim,
        memory_efficiency=law.memory_efficiency,
        backward_flops_efficiency=law.backward_flops_efficiency and law.backward_flops_efficiency * realised,
        median_error=law.median_error,
        p90_error=law.p90_error,
        source=law.source,
    )


def _decode_law(family: Sequence[GpuProfile]) -> DecodeLaw:
    """The first of the family's laws of attention over a cache; the default where none has one."""
    for member in family:
        law = member.laws.decode
        if law is not None:
            return DecodeLaw(
                law.floor_us * MICRO, law.memory_efficiency, law.root_us_per_sqrt_mb * MICRO / MEGA**0.5,
                law.median_error, law.p90_error, law.source,
            )  # fmt: skip
    return DEFAULT_DECODE


def collective_law(law: CollectiveProfile) -> CollectiveLaw:
    """The law of a collective in SI units, from what a profile says."""
    roots = law.root_us_per_sqrt_mb or (0.0,) * len(law.ranks)
    return CollectiveLaw(
        ranks=law.ranks,
        alpha_s=tuple(alpha * MICRO for alpha in law.alpha_us),
        bus_bytes_per_s=tuple(rate * GIGA for rate in law.bus_gb_per_s),
        root_s_per_sqrt_byte=tuple(root * MICRO / MEGA**0.5 for root in roots),
        median_error=law.median_error,
        p90_error=law.p90_error,
        source=law.source,
    )


def _first_memory_bound(family: Sequence[GpuProfile]) -> tuple[GpuProfile, MemoryBoundProfile]:
    for member in family:
        if member.laws.memory_bound is not None:
            return member, member.laws.memory_bound
    message = f"accelerator '{family[0].name}': laws.memory_bound is missing"
    raise InputError(Problem(message, None, "state it, or use a generation whose laws can be borrowed"))
