"""From samples to a profile: the laws fitted, over those of the catalogue's accelerator or as a device of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import yaml

from xe_sizer.errors import Location
from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import AttentionLaw
from xe_sizer.laws.device import BF16, FLOAT32_KERNELS, FP8, FP16, FP32, TF32
from xe_sizer.laws.hardware import DEFAULT_DECODE
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.laws.network import network as network_of
from xe_sizer.measure import fit
from xe_sizer.measure.grid import LAUNCH, STEP, is_known, work
from xe_sizer.measure.samples import (
    ATTENTION,
    COLLECTIVE,
    COPY,
    DECODE,
    GROUPED,
    HOST,
    MATMUL,
    MEMORY,
    STORAGE,
    SUSTAINED,
    drift,
    points,
)
from xe_sizer.measure.timer import CPU
from xe_sizer.profiles.finder import default_name
from xe_sizer.profiles.gpu import KERNEL_FAMILIES, CollectiveProfile, collective_law
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.measurement import MeasuredKernel, MeasuredLaw, Measurement
from xe_sizer.units import BITS_PER_BYTE, FLOAT32, GIB, GIGA, MICRO, SIXTEEN_BIT, TERA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.measure.samples import (
        Machine,
        Point,
        Sample,
    )
    from xe_sizer.profiles.catalogue import Registry

EIGHT_BIT = 1.0


class Fits(Immutable):
    """The laws of a session: rows of the report, sections of the profile, kernels with their laws' times."""

    rows: tuple[MeasuredLaw, ...]
    laws: dict[str, Any]
    kernels: tuple[MeasuredKernel, ...]
    errors: tuple[float, ...]


# Where the fits begin for a device that the catalogue does not name: a law of middling kernels.
_PRODUCTS = MatmulLaw(5e-6, 0.7, 0.7, 2.0)
_ATTENTION = AttentionLaw(5e-6, 0.4, 100.0, 0.6, 0.35)


# Chosen: what the best kernel that was seen reaches of the rate that stands for the peak of a device that the catalogue
# does not have, so that a law may lie above a kernel.
BEST = 0.95


class Device(Immutable):
    """What laws are fractions of, and the laws that they take the place of; None where the catalogue has none.

    peaks [FLOP/s] by number format, bandwidth [bytes/s]
    """

    peaks: dict[str, float]
    bandwidth: float
    known: Accelerator | None

    @property
    def base(self) -> str:
        """The 16-bit format of kernels beside products."""
        return BF16 if BF16 in self.peaks or FP16 not in self.peaks else FP16


GAMES = "GeForce"


def find_known(machine: Machine, registry: Registry, named: str | None = None) -> Accelerator | None:
    """The accelerator of the catalogue that a machine's is; None: it has none of that name. Raises InputError: named"""
    if named is not None:
        return registry.accelerator(named)
    if machine.kind == CPU:
        return None
    # Cards for games come with more than one size of memory under one name.
    size = f" {round(machine.memory_bytes / GIB)}GB" if GAMES in machine.device else ""
    found = registry.find("gpu", f"{machine.device}{size}", Location("--inherits"))
    return registry.accelerator(found.stem) if found else None


def device_of(known: Accelerator | None, timed: Sequence[Point]) -> Device:
    """The device: its peaks are the catalogue's, else the best product and the best stream that were seen."""
    if known is not None:
        return Device(dict(known.peak_flops_per_s), known.memory_bandwidth_bytes_per_s, known)
    peaks: dict[str, float] = {}
    stream = 0.0
    for point in timed:
        element = _element_bytes(point.kernel.name if point.kernel.law == MATMUL else point.kernel.form)
        flops, moved = work(point.kernel, element)
        if point.kernel.law == MATMUL:
            peaks[point.kernel.name] = max(peaks.get(point.kernel.name, 0.0), flops / point.seconds)
        elif point.kernel.law == MEMORY:
            stream = max(stream, moved / point.seconds)
    return Device({name: best / BEST for name, best in peaks.items()}, stream / BEST, None)


def _element_bytes(name: str) -> float:
    if name in (FP32, TF32, FLOAT32_KERNELS):
        return FLOAT32
    return SIXTEEN_BIT if name != FP8 else EIGHT_BIT


def fit_laws(timed: Sequence[Point], device: Device) -> Fits:
    """Fit every law of the device that has samples enough; what crosses nodes is none of them."""
    by_law: dict[tuple[str, str], list[Point]] = {}
    for point in timed:
        if crosses(point):
            continue
        name = "" if point.kernel.law == MEMORY else point.kernel.name
        by_law.setdefault((point.kernel.law, name), []).append(point)
    rows: list[MeasuredLaw] = []
    laws: dict[str, Any] = {}
    shown: list[MeasuredKernel] = []
    errors: list[float] = []
    single: dict[str, MatmulLaw] = {}
    order = (MATMUL, GROUPED, ATTENTION, DECODE, MEMORY, COLLECTIVE)
    for (law, name), found in sorted(
        by_law.items(), key=lambda item: order.index(item[0][0]) if item[0][0] in order else 9
    ):
        made = _FITS[law](name, found, device, single) if law in _FITS else None
        if made is None:
            continue
        rows.append(made.row)
        errors += made.errors
        shown += made.kernels
        for path, value in made.sections:
            _put(laws, path, value)
    return Fits(tuple(rows), laws, tuple(shown), tuple(errors))


def crosses(point: Point) -> bool:
    """Whether what was timed passed between nodes."""
    return point.kernel.sizes.get("nodes", 1.0) > 1.0


class Made(Immutable):
    """One law, fitted: its row, its kernels, and where in a profile its figures stand."""

    row: MeasuredLaw
    kernels: tuple[MeasuredKernel, ...]
    sections: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]
    errors: tuple[float, ...]


def _put(laws: dict[str, Any], path: Sequence[str], value: Mapping[str, Any]) -> None:
    for key in path[:-1]:
        laws = laws.setdefault(key, {})
    laws.setdefault(path[-1], {}).update(value)


def _figures(found: fit.Fitted) -> dict[str, float]:
    """Parameters to three digits, and the errors of the fit."""
    rounded = {name: float(f"{value:.3g}") for name, value in found.parameters.items()}
    return rounded | {"median_error": round(found.median_error, 3), "p90_error": round(found.p90_error, 3)}


def _row(
    law: str, found: fit.Fitted, before: Mapping[str, float] | None = None, slower: float | None = None
) -> MeasuredLaw:
    """What a report says of a law. before, slower : its parameters in the catalogue, and times over those by them"""
    return MeasuredLaw(
        law=law,
        samples=found.points,
        parameters=found.parameters,
        median_error=found.median_error,
        p90_error=found.p90_error,
        before=dict(before or {}),
        slower=slower,
    )


def _made(
    law: str,
    found: fit.Fitted,
    timed: Sequence[Point],
    by_law: NDArray[np.float64],
    before: NDArray[np.float64] | None,
    old: Mapping[str, float],
    sections: Iterable[tuple[tuple[str, ...], dict[str, Any]]],
    element_bytes: float,
) -> Made:
    slower = None if before is None else float(np.median([p.seconds for p in timed] / before))
    row = _row(law, found, old, slower)
    shown = []
    for place, point in enumerate(timed):
        flops, moved = work(point.kernel, element_bytes)
        shown.append(
            MeasuredKernel(
                law=law,
                name=point.kernel.words,
                seconds=point.seconds,
                flops=flops,
                bytes=moved,
                law_s=float(by_law[place]),
                before_s=None if before is None else float(before[place]),
            )
        )
    return Made(row, tuple(shown), tuple(sections), found.errors)


def _products(name: str, timed: Sequence[Point], device: Device, single: dict[str, MatmulLaw]) -> Made | None:
    known = device.known.laws.matmul.get(name) if device.known else None
    peak = device.peaks.get(name)
    if peak is None:  # the catalogue has no peak of it, so nobody can ask for it
        return None
    start, element = known or _PRODUCTS, _element_bytes(name)
    odd = [_is_odd(point, element) for point in timed]
    even = [point for point, is_odd in zip(timed, odd, strict=True) if not is_odd]
    found = fit.of_products(even, start, peak, device.bandwidth, element)
    if found is None:
        return None
    single[name] = law = fit.matmul_law(found.parameters, start)
    seconds = fit.seconds_of_products(timed, law, peak, device.bandwidth, element)
    slower = _of_odd_sides(timed, seconds, odd)
    seconds = np.where(odd, slower * seconds, seconds)
    before = fit.seconds_of_products(timed, known, peak, device.bandwidth, element) if known else None
    figures = _figures(found) | ({"unaligned_factor": float(f"{slower:.3g}")} if any(odd) else {})
    # Bursts and long runs alike, until a run of seconds says otherwise.
    figures["sustained_flops_efficiency"] = figures["flops_efficiency"]
    old = {} if known is None else {
        "floor_us": known.floor_s / MICRO,
        "flops_efficiency": known.effective_flops_efficiency,
        "memory_efficiency": known.memory_efficiency,
        "sharpness": known.sharpness,
    }  # fmt: skip
    return _made(f"{MATMUL}.{name}", found, timed, seconds, before, old, [((MATMUL, name), figures)], element)


def _is_odd(point: Point, element_bytes: float) -> bool:
    """Whether a product in 16 bit has a weight with an odd side, which libraries have slow kernels for."""
    sides = point.kernel.sizes
    return element_bytes == SIXTEEN_BIT and bool(sides["n"] % 2 or sides["k"] % 2)


def _of_odd_sides(timed: Sequence[Point], by_law: NDArray[np.float64], odd: Sequence[bool]) -> float:
    """How much longer than their law products of odd sides take, the median; 1 where there are none or no longer."""
    ratios = [point.seconds / law for point, law, is_odd in zip(timed, by_law, odd, strict=True) if is_odd]
    return max(float(np.median(ratios)), 1.0) if ratios else 1.0


def _experts(name: str, timed: Sequence[Point], device: Device, single: dict[str, MatmulLaw]) -> Made | None:
    """Grouped products, by the law of single ones: what is fitted is a factor on it."""
    law = single.get(name)
    if law is None:
        return None
    peak = device.peaks[name]
    found = fit.of_experts(timed, law, peak, device.bandwidth)
    if found is None:
        return None
    factor = found.parameters["factor"]
    seconds = fit.seconds_of_experts(timed, law.scaled(factor), peak, device.bandwidth)
    before = fit.seconds_of_experts(timed, law, peak, device.bandwidth) if device.known else None
    old = {"factor": 1.0} if device.known else {}
    figures = {"grouped_factor": float(f"{factor:.3g}"), "grouped_p90_error": round(found.p90_error, 3)}
    return _made(f"{GROUPED}.{name}", found, timed, seconds, before, old, [((MATMUL, name), figures)], SIXTEEN_BIT)


def _attention(name: str, timed: Sequence[Point], device: Device, _: object) -> Made | None:
    known = device.known.laws.attention.get(name) if device.known else None
    wide = name == FLOAT32_KERNELS
    peak = device.peaks.get(FP32 if wide else device.base)
    if peak is None:
        return None
    start, element = known or _ATTENTION, FLOAT32 if wide else SIXTEEN_BIT
    found = fit.of_attention(timed, start, peak, device.bandwidth, element)
    if found is None:
        return None
    law = fit.attention_law(found.parameters, start)
    seconds = fit.seconds_of_attention(timed, law, peak, device.bandwidth, element)
    before = fit.seconds_of_attention(timed, known, peak, device.bandwidth, element) if known else None
    figures = _figures(found) | {"half_head_dim": law.half_head_dim}
    # A device without a catalogue has one kernel, whatever family is asked for.
    alike = (name,) if device.known or wide else tuple(one for one in KERNEL_FAMILIES if one != FLOAT32_KERNELS)
    old = {} if known is None else {
        "floor_us": known.floor_s / MICRO,
        "flops_efficiency": known.flops_efficiency,
        "backward_flops_efficiency": known.backward_flops_efficiency,
        "memory_efficiency": known.memory_efficiency,
        "half_length": known.half_length,
    }  # fmt: skip
    sections = [((ATTENTION, one), figures) for one in alike]
    return _made(f"{ATTENTION}.{name}", found, timed, seconds, before, old, sections, element)


def _decoding(name: str, timed: Sequence[Point], device: Device, _: object) -> Made | None:
    known = device.known.laws.decode if device.known else None
    start = known or DEFAULT_DECODE
    found = fit.of_decoding(timed, start, device.bandwidth, SIXTEEN_BIT)
    if found is None:
        return None
    named = found.parameters
    law = type(start)(named["floor_us"] * MICRO, named["memory_efficiency"], named["root_us_per_sqrt_mb"] * 1e-9)
    seconds = fit.seconds_of_decoding(timed, law, device.bandwidth, SIXTEEN_BIT)
    before = fit.seconds_of_decoding(timed, known, device.bandwidth, SIXTEEN_BIT) if known else None
    old = {} if known is None else {
        "floor_us": known.floor_s / MICRO,
        "memory_efficiency": known.memory_efficiency,
        "root_us_per_sqrt_mb": known.root_s_per_sqrt_byte / 1e-9,
    }  # fmt: skip
    return _made(DECODE, found, timed, seconds, before, old, [((DECODE,), _figures(found))], SIXTEEN_BIT)


def _moving(_: str, timed: Sequence[Point], device: Device, __: object) -> Made | None:
    known = device.known
    efficiency = known.laws.memory_bound_efficiency if known else 0.7
    floor_s = known.laws.memory_bound_floor_s if known else 3e-6
    found = fit.of_moving(timed, efficiency, floor_s, device.bandwidth, SIXTEEN_BIT)
    if found is None:
        return None
    named = found.parameters
    rates = device.bandwidth, SIXTEEN_BIT
    seconds = fit.seconds_of_moving(timed, named["efficiency"], named["floor_us"] * MICRO, *rates)
    before = fit.seconds_of_moving(timed, efficiency, floor_s, *rates) if known else None
    old = {"efficiency": efficiency, "floor_us": floor_s / MICRO} if known else {}
    figures = _figures(found)
    return _made("memory_bound", found, timed, seconds, before, old, [(("memory_bound",), figures)], SIXTEEN_BIT)


def _collective(name: str, timed: Sequence[Point], device: Device, _: object) -> Made | None:
    """One operation over every number of ranks that was measured; others stay the catalogue's."""
    known = device.known.laws.collectives.get(name) if device.known else None
    rows: dict[int, tuple[float, float, float]] = {}
    if known is not None:
        each = zip(known.ranks, known.alpha_s, known.bus_bytes_per_s, known.root_s_per_sqrt_byte, strict=True)
        rows = {ranks: (alpha / MICRO, bus / GIGA, root / 1e-9) for ranks, alpha, bus, root in each}
    fitted: list[fit.Fitted] = []
    for ranks in sorted({int(point.kernel.sizes["ranks"]) for point in timed}):
        some = [point for point in timed if point.kernel.sizes["ranks"] == ranks]
        found = fit.of_collective(some, rows.get(ranks, (20.0, 5.0, 1.0)))
        if found is not None:
            fitted.append(found)
            named = found.parameters
            rows[ranks] = (named["alpha_us"], named["bus_gb_per_s"], named["root_us_per_sqrt_mb"])
    if not fitted:
        return None
    errors = tuple(error for found in fitted for error in found.errors)
    whole = fit.Fitted(fitted[-1].parameters, sum(found.points for found in fitted), errors)
    ordered = sorted(rows)
    figures = {
        "ranks": ordered,
        "alpha_us": [float(f"{rows[ranks][0]:.3g}") for ranks in ordered],
        "bus_gb_per_s": [float(f"{rows[ranks][1]:.3g}") for ranks in ordered],
        "root_us_per_sqrt_mb": [float(f"{rows[ranks][2]:.3g}") for ranks in ordered],
        "median_error": round(whole.median_error, 3),
        "p90_error": round(whole.p90_error, 3),
    }
    return Made(_row(f"collectives.{name}", whole), (), ((("collectives", name), figures),), errors)


_FITS: dict[str, Callable[[str, Sequence[Point], Device, dict[str, MatmulLaw]], Made | None]] = {
    MATMUL: _products,
    GROUPED: _experts,
    ATTENTION: _attention,
    DECODE: _decoding,
    MEMORY: _moving,
    COLLECTIVE: _collective,
}


# The network between nodes.

NETWORK = "network"


class Between(Immutable):
    """The network between nodes, fitted: what one accelerator gets of it while all of its node use it.

    accelerators : of a node
    """

    row: MeasuredLaw
    accelerators: int

    @property
    def gb_per_s(self) -> float:
        return self.row.parameters["gb_per_s"]

    @property
    def latency_us(self) -> float:
        return self.row.parameters["latency_us"]


def fit_network(timed: Sequence[Point], fits: Fits, device: Device, registry: Registry) -> Between | None:
    """Fit the network to what crossed nodes; None where too little did.

    What the same collectives take inside a node is said by the laws that were fitted there, else by the catalogue's.
    """
    found_across = [point for point in timed if crosses(point)]
    fitted = fits.laws.get("collectives", {})
    own = {name: collective_law(msgspec.convert(law, CollectiveProfile)) for name, law in fitted.items()}
    inside = {**(device.known.laws.collectives if device.known else {}), **own}
    server = registry.bare_server(device.known) if device.known else None
    usual = None if server is None else network_of(server)
    start = (1.0, 30.0) if usual is None else (usual.scale_out_bytes_per_s / GIGA, usual.scale_out_alpha_s / MICRO)
    found = fit.of_network(found_across, inside, start)
    if found is None:
        return None
    slower = None
    if usual is not None:
        before = fit.seconds_across(found_across, inside, usual.scale_out_bytes_per_s, usual.scale_out_alpha_s)
        slower = float(np.median([point.seconds for point in found_across] / before))
    old = {} if usual is None else dict(zip(found.parameters, start, strict=True))
    return Between(
        _row(NETWORK, found, old, slower),
        int(max(point.kernel.sizes["ranks"] / point.kernel.sizes["nodes"] for point in found_across)),
    )


def network_profiles(
    name: str, machine: Machine, device: Device, between: Between, registry: Registry
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profiles of the node and of the network that leads out of it, as their files have them.

    name : of the accelerator's profile. Rates in the node's are those that were reached, so that the network's share
    of them is 1.
    """
    said = f"measured on {machine.date} with {machine.software}"
    link = registry.fabric(default_name("fabric", "link:")).link
    assert link is not None
    usual = device.known.usual_node.scale_up if device.known else link.usual_node.scale_up
    count, fabric = between.accelerators, f"{name}-network"
    rate = float(f"{between.gb_per_s * BITS_PER_BYTE:.3g}")
    host = machine.host_memory_bytes
    node = {
        "name": f"{name}-node",
        "vendor": device.known.vendor if device.known else machine.device.split()[0],
        "gpu": name,
        "gpus": count,
        "scale_up": {"kind": usual if count > 1 else default_name("fabric", "node:")},
        "scale_out": {"nics": count, "gbit_per_s": rate, "fabric": fabric},
        **({"host": {"memory_gb": round(host / GIGA)}} if host else {}),
        "source": {"title": said},
        "notes": "gbit_per_s is what each GPU reached while all of its node used the network, not the rate of a NIC",
    }
    figures = {
        "rate_share": 1.0,
        "latency_us": float(f"{between.latency_us:.3g}"),
        "p90_error": round(between.row.p90_error, 3),
    }
    return node, {
        "name": fabric,
        "describes": "The network between the nodes at hand, at the rates that were reached.",
        "network": figures,
        "source": {"title": said},
    }


# The profile.


class Beside(Immutable):
    """What is no law of kernels; None where it was not measured."""

    launch_s: float | None
    optimizer_step_s: float | None
    copy_bytes_per_s: float | None
    storage_bytes_per_s: float | None
    sustained: float | None


def _beside(timed: Iterable[Point], samples: Iterable[Sample]) -> Beside:
    by_name = {(point.kernel.law, point.kernel.name): point for point in timed}

    def rate(law: str, *names: str) -> float | None:
        rates = [p.kernel.sizes["bytes"] / p.seconds for name in names if (p := by_name.get((law, name)))]
        return min(rates) if rates else None

    launch, step = by_name.get((HOST, LAUNCH)), by_name.get((HOST, STEP))
    hot = [sample for sample in samples if sample.kernel.law == SUSTAINED]
    return Beside(
        launch_s=launch.seconds / launch.kernel.sizes["kernels"] if launch else None,
        optimizer_step_s=step.seconds if step else None,
        copy_bytes_per_s=rate(COPY, *(name for law, name in by_name if law == COPY)),
        storage_bytes_per_s=rate(STORAGE, *(name for law, name in by_name if law == STORAGE)),
        sustained=min(1.0, hot[-1].low / hot[-1].seconds) if hot else None,
    )


def slug(name: str) -> str:
    """A device's name as names of profiles are written."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def _sourced(fitted: Mapping[str, Any], said: str, beside: Beside, host: str) -> dict[str, Any]:
    """The section of laws, each with its source, and what is no law of kernels beside them."""
    laws: dict[str, Any] = {}
    for section, value in fitted.items():
        named = section in ("matmul", "attention", "collectives")  # of which there are several
        laws[section] = {key: {**law, "source": said} for key, law in value.items()} if named else value
        if not named:
            laws[section] = {**value, "source": said}
    for law in laws.get(MATMUL, {}).values() if beside.sustained is not None else ():
        law["sustained_flops_efficiency"] = float(f"{law['flops_efficiency'] * (beside.sustained or 1.0):.3g}")
    if beside.launch_s is not None:
        laws["host"] = {"launch_us": float(f"{beside.launch_s / MICRO:.3g}"), "source": f"{said}; {host}"}
    if beside.copy_bytes_per_s is not None:
        laws["copies"] = {"gb_per_s": float(f"{beside.copy_bytes_per_s / GIGA:.3g}"), "source": said}
    return laws


def build_profile(
    name: str, machine: Machine, device: Device, fits: Fits, beside: Beside, count: int, ranks: int = 1
) -> dict[str, Any]:
    """The profile as its file has it: over the catalogue's accelerator, else a device of its own."""
    said = f"measured on {machine.date} with {machine.software}"
    said += f", {machine.conditions}" if machine.conditions else ""
    laws = _sourced(fits.laws, said, beside, machine.host)
    measured = {
        "date": machine.date,
        "device": machine.device,
        "software": machine.software,
        "conditions": machine.conditions,
        "laws": [row.law for row in fits.rows],
        "samples": count,
        "median_error": round(float(np.median(fits.errors)), 3) if fits.errors else 0.0,
        "p90_error": round(float(np.quantile(fits.errors, 0.9)), 3) if fits.errors else 0.0,
    }
    if device.known is not None:
        inherited = {"name": name, "inherits": device.known.name, "aliases": [machine.device]}
        here = {"measured": measured} if fits.rows else {}
        return {**inherited, **here, "laws": laws, "source": {"title": said}}
    # Nothing is known of the bus of a device that the catalogue does not have: what was seen, else what memory streams.
    bus = beside.copy_bytes_per_s or device.bandwidth
    return {
        "name": name,
        "vendor": machine.device.split()[0],
        "generation": slug(machine.device),
        "memory_gib": round(machine.memory_bytes / GIB, 2),
        "memory_bandwidth_gb_per_s": float(f"{device.bandwidth / GIGA:.4g}"),
        "peak_tflops": {key: float(f"{value / TERA:.4g}") for key, value in device.peaks.items()},
        "pcie_gb_per_s": float(f"{bus / GIGA:.3g}"),
        **({"usual_node": {"gpus": ranks}} if ranks > 1 else {}),
        "measured": measured,
        "laws": laws,
        "assumed": [f"{key}: the best {what} that was seen is {BEST:g} of it" for key, what in _BEST_OF.items()],
        "source": {"title": said},
    }


_BEST_OF = {"peak_tflops": "product", "memory_bandwidth_gb_per_s": "stream"}


def profile_yaml(profile: Mapping[str, Any]) -> str:
    """The text of the file."""
    head = "# Written by `xe-sizer measure`. `--profiles` with this folder finds it, before one of the catalogue.\n"
    return head + yaml.safe_dump(dict(profile), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)


class Written(Immutable):
    """A profile and its report. beside : profiles of the node and its network, where that was measured"""

    profile: dict[str, Any]
    report: Measurement
    beside: tuple[dict[str, Any], ...] = ()


def summarise(
    machine: Machine,
    samples: Sequence[Sample],
    registry: Registry,
    name: str | None,
    known: Accelerator | None,
    left_out: Sequence[str] = (),
    interrupted: bool = False,
) -> Written:
    """Fit the laws, and say beside the catalogue's what they are. name : of the profile; None: its accelerator's"""
    timed = tuple(point for point in points(samples) if is_known(point.kernel))
    device = device_of(known, timed)
    fits = fit_laws(timed, device)
    beside = _beside(timed, samples)
    chosen = name or (known.name if known else slug(machine.device))
    within = [point for point in timed if not crosses(point)]
    ranks = [int(point.kernel.sizes["ranks"]) for point in within if point.kernel.law == COLLECTIVE]
    profile = build_profile(chosen, machine, device, fits, beside, len(within), max(ranks, default=1))
    between = fit_network(timed, fits, device, registry)
    others = () if between is None else network_profiles(chosen, machine, device, between, registry)
    report = Measurement(
        schema_version=SCHEMA_VERSION,
        device=machine.device,
        software=machine.software,
        host=machine.host,
        date=machine.date,
        conditions=machine.conditions,
        profile=chosen,
        file="",
        inherits=known.name if known else None,
        samples=len(timed),
        peaks_flops_per_s=device.peaks,
        bandwidth_bytes_per_s=device.bandwidth,
        measured_peaks=known is None,
        laws=fits.rows if between is None else (*fits.rows, between.row),
        kernels=fits.kernels,
        drift=drift(list(samples)),
        launch_s=beside.launch_s,
        optimizer_step_s=beside.optimizer_step_s,
        copy_bytes_per_s=beside.copy_bytes_per_s,
        storage_bytes_per_s=beside.storage_bytes_per_s,
        interrupted=interrupted,
        left_out=tuple(left_out),
        server=others[0]["name"] if others else None,
    )
    return Written(profile, report, others)
