"""The kinds of hardware among which a plan or a service chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.finder import is_path
from xe_sizer.result.common import LeftOut
from xe_sizer.result.serving import BY_POWER, BY_PRICE, FleetOption, ParetoPoint
from xe_sizer.scenario.read import changed
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import curve
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.search import build_fit, size
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.summary import build_layout, build_throughput
from xe_sizer.studies.estimate import serving_wing

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.tariff import Tariff
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.resolved import ResolvedService

T = TypeVar("T")


def all_hardware(
    scenario: Scenario, among: Sequence[str], any_gpu: bool, registry: Registry
) -> list[dict[str, object]]:
    """Keys of every kind of hardware to choose from, {} for the scenario's own. Raises InputError."""
    own = ({"gpu": scenario.values.gpu}, {"server": scenario.values.server})
    place = Location(scenario.caller.place("among"))
    hardware = [keys for keys in hardware_named(among, any_gpu, registry, place) if keys not in own]
    if "gpu" in scenario.origin or "server" in scenario.origin:
        hardware = [{}, *hardware]
    return hardware or [{}]


def hardware_named(names: Sequence[str], any_gpu: bool, registry: Registry, place: Location) -> list[dict[str, object]]:
    """Keys of the GPUs and servers named, and of all measured ones of the catalogue where they are asked for.

    Raises
    ------
    InputError : every name that is none
    """
    found: list[dict[str, object]] = []
    problems: list[Problem] = []
    for name in dict.fromkeys(names):
        with collecting(problems):
            found.append({_kind(name, registry, place): name})
    if problems:
        raise InputError(problems)
    named = {entry.get("gpu") for entry in found}
    gpus = registry.measured_gpus() if any_gpu else ()
    every: list[dict[str, object]] = [{"gpu": name} for name in gpus if name not in named]
    return [*found, *every]


def _kind(name: str, registry: Registry, place: Location) -> str:
    """Whether a name or a path is that of a server or of a GPU. Raises InputError."""
    for kind in ("server", "gpu"):
        if registry.kind_of(Path(name)) == kind if is_path(name) else any(registry.files(kind, name)):
            return kind
    for kind in () if is_path(name) else ("gpu", "server"):
        if registry.find(kind, name, place):
            return kind
    near = did_you_mean(name, (*registry.names("gpu"), *registry.names("server")))
    hint = near or "'xe-sizer profiles list gpu' and 'xe-sizer profiles list server' print all"
    raise InputError(Problem(f"no GPU or server is called '{name}'", place, hint))


def on_each(
    scenario: Scenario,
    hardware: Sequence[Mapping[str, object]],
    answer: Callable[[Scenario], T],
    left_out: list[LeftOut],
) -> Iterator[tuple[str, T]]:
    """The name of each kind of hardware ("" for the scenario's own) and the answer on it.

    hardware : keys that name each kind, {} for the scenario's own
    left_out : where kinds are added that have no answer, with the reason

    Raises
    ------
    InputError : where there is one kind and it has no answer, or several and none has one
    """
    problems: list[Problem] = []
    answered = False
    for keys in hardware:
        name = " ".join(str(value) for value in keys.values())
        try:
            found = answer(changed(scenario, keys) if keys else scenario)
        except InputError as error:
            if len(hardware) == 1:
                raise
            problems += error.problems
            left_out.append(LeftOut(name=name, reason=error.problems[0].message))
            continue
        answered = True
        yield name, found
    if not answered:
        raise InputError(list(dict.fromkeys(problems)))


def price_kinds(tariffs: Iterable[Tariff]) -> set[str | None]:
    """The kinds of contract that prices of profiles are for; a price that the user gives compares with any."""
    return {tariff.offer.kind for tariff in tariffs if tariff.offer is not None}


def hardware_name(server: Server) -> str:
    """The server, or the GPU where none is named."""
    return server.accelerator.name if server.bare else server.name


def one_price(scenario: Scenario) -> Iterator[str]:
    """A warning where every kind of hardware is charged what the user gave for one."""
    for name, what in {"price_per_gpu_hour": "per GPU-hour", "capex_per_server": "a server"}.items():
        price = getattr(scenario.values.cost, name)
        if price is not None and not isinstance(price, Mapping):
            each = scenario.caller.setting(f"cost.{name}", {"NAME": price})
            yield f"every kind of hardware is charged the same {price:,g} {what}; {each} sets the price of one of them"


# The service on many kinds of hardware, and the Pareto-optimal ways to run a replica.

MOST_POINTS = 24  # of a Pareto front


class Fleet(Immutable):
    """Answers on every kind of hardware, the best first, and what was left out.

    order : price or power, as `fleet_order` of a result
    """

    answers: tuple[ServingEstimate, ...]
    left_out: tuple[LeftOut, ...]
    order: str

    @property
    def chosen(self) -> ServingEstimate:
        return self.answers[0]


def serve_on(
    scenario: Scenario,
    registry: Registry,
    hardware: Sequence[Mapping[str, object]] = ({},),
    front: bool = False,
    operators: bool = False,
    details: bool = True,
) -> ServeResult:
    """Size one service, on the best of the kinds of hardware.

    hardware : keys (`gpu` or `server`) that name each kind, {} for the scenario's own
    front : with the Pareto-optimal ways to run a replica
    operators : with its steps operator by operator
    details : False for the verdict alone, with the one change that mends a no

    Raises
    ------
    InputError : as `fleet`
    """
    found = fleet(scenario, registry, hardware)
    result = serving_wing().conclude(found.chosen, registry, details, operators)
    if len(hardware) > 1:
        compared = tuple(option(one) for one in found.answers)
        warnings = (*result.warnings, *one_price(scenario), *_unpriced(found))
        result = replace(result, fleet=compared, fleet_order=found.order, left_out=found.left_out, warnings=warnings)
    return replace(result, pareto=pareto(found.chosen.resolved)) if front else result


def fleet(scenario: Scenario, registry: Registry, hardware: Sequence[Mapping[str, object]]) -> Fleet:
    """Size the service on each kind of hardware.

    hardware : keys (`gpu` or `server`) that name each kind, {} for the scenario's own
    The best keeps every limit at the lowest price an hour; where not all that do have a price that compares, at the
    lowest design power; of one price the one that makes tokens fastest.

    Raises
    ------
    InputError : what the user can mend; hardware that the model cannot run on is left out, unless all of it is
    """
    left_out: list[LeftOut] = []
    sized = on_each(scenario, hardware, lambda asked: size(resolve(asked, registry)), left_out)
    answers = [one for _, one in sized]
    kept = [one.ok for one in answers]
    good = [one for one, keeps in zip(answers, kept, strict=True) if keeps]
    tariffs = [one.resolved.tariff for one in good]
    alike = len({tariff.currency for tariff in tariffs}) == 1 and len(price_kinds(tariffs)) <= 1
    comparable = alike and all(one.cost is not None for one in good)

    def expense(sized: ServingEstimate) -> float:
        """Price an hour, or design power [W]; unknown ones come last."""
        found = sized.cost if comparable else power_w(sized)
        return math.inf if found is None else found

    order = sorted(
        range(len(answers)),
        key=lambda place: (
            not kept[place],
            not answers[place].fits,
            expense(answers[place]),
            answers[place].tpot_s,
        ),
    )
    ordered = tuple(answers[place] for place in order)
    return Fleet(ordered, tuple(left_out), BY_PRICE if comparable else BY_POWER)


def _unpriced(found: Fleet) -> Iterator[str]:
    """A warning where some of the kinds that keep the limits have a price, and others cannot be compared with it."""
    kept = [one for one in found.answers if one.ok]
    unknown = [one.resolved.job.server.name for one in kept if one.cost is None]
    if found.order == BY_POWER and any(one.cost is not None for one in kept):
        several = len(price_kinds(one.resolved.tariff for one in kept)) > 1
        differ = "prices are of different kinds" if several else "prices are in different currencies"
        why = f"no price is known for {', '.join(unknown)}" if unknown else differ
        yield f"{why}: hardware is sorted by GPU design power, which says nothing about its price"


def power_w(sized: ServingEstimate) -> float | None:
    """Design power of all GPUs [W]."""
    tdp_w = sized.resolved.job.server.accelerator.tdp_w
    return None if tdp_w is None else tdp_w * sized.gpus


def option(sized: ServingEstimate) -> FleetOption:
    """One answer as a line of the comparison."""
    ttft_s, tpot_s, _ = sized.judged_s
    server, tariff = sized.resolved.job.server, sized.resolved.tariff
    return FleetOption(
        gpu=server.accelerator.name,
        server=server.name,
        gpus=sized.gpus,
        replicas=sized.replicas,
        layout=build_layout(sized.placement),
        fits=sized.fits,
        meets_limits=sized.ok,
        ttft_s=ttft_s if math.isfinite(ttft_s) else None,
        tpot_s=tpot_s if math.isfinite(tpot_s) else None,
        output_tokens_per_s_per_gpu=build_throughput(sized).output_tokens_per_s_per_gpu,
        utilisation=sized.utilisation,
        cost_per_hour=sized.cost,
        cost_per_million_output_tokens=sized.cost_per_million_tokens,
        currency=sized.resolved.tariff.currency,
        power_w=power_w(sized),
        cost_per_million_tokens=sized.cost_per_million_of_both,
        fit=build_fit(sized),
        hourly_price=tariff.hourly(server),
        electricity_per_hour=tariff.electricity_of_hour(sized.gpus, sized.nodes),
        total_tokens_per_s_per_gpu=build_throughput(sized).total_tokens_per_s / sized.gpus,
    )


def pareto(resolved: ResolvedService) -> tuple[ParetoPoint, ...]:
    """The ways to run a replica that no other beats in tokens a second per user and per GPU, fastest per user first.

    Every placement with every number of requests inside, from one to as many as fit.
    """
    job, traffic = resolved.job, resolved.traffic
    placements = legal_placements(job, resolved.fixed, resolved.most_gpus())
    if not len(placements) or not traffic.outputs:
        return ()
    found = curve(job, placements, serving_memory(job, placements, traffic.inputs), traffic)
    per_user = 1.0 / found.states.tpot_s
    per_gpu = found.states.requests_per_s * traffic.outputs / placements.gpus
    usable = np.broadcast_to(found.most >= 1.0, per_user.shape)
    rows, columns = np.nonzero(usable)
    order = np.lexsort((-per_gpu[rows, columns], -per_user[rows, columns]))
    best, kept = 0.0, []
    for place in order:
        row, column = int(rows[place]), int(columns[place])
        if per_gpu[row, column] > best:
            best = float(per_gpu[row, column])
            kept.append((row, column))
    step = max(math.ceil(len(kept) / MOST_POINTS), 1)
    return tuple(
        ParetoPoint(
            layout=build_layout(placements[c : c + 1]),
            running_requests=float(found.states.running[r, c]),
            tokens_per_s_per_user=float(per_user[r, c]),
            output_tokens_per_s_per_gpu=float(per_gpu[r, c]),
            ttft_s=float(found.states.step_s[r, c] / 2.0 + found.states.prefill_s[r, c]),
        )
        for r, c in kept[:-1:step] + kept[-1:]
    )
