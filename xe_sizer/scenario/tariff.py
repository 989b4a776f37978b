"""What hardware costs: rented by the hour or owned, with electricity and staff, and which GPUs are paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem, did_you_mean
from xe_sizer.immutable import Immutable
from xe_sizer.laws.hardware import (
    ON_THE_BUS,
    break_even_utilisation,
    capital_per_hour,
    electricity_cost,
    servers_power_w,
)
from xe_sizer.result.common import (
    CAPITAL,
    ELECTRICITY,
    GIVEN_PRICE,
    OWN,
    STAFF,
    CostPart,
    HourlyPrice,
    OwnServers,
    Source,
)
from xe_sizer.scenario.provenance import collect
from xe_sizer.units import WATT_PER_KW

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.laws.hardware import Offer, Server
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.caller import Caller
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.scenario import Scenario

Count = TypeVar("Count", int, "IntArray")
Amount: TypeAlias = "Array | float"

# Of servers that are owned, where nobody says: assumed, each with what it follows.
DEFAULT_YEARS = 5.0
DEFAULT_PUE = 1.54
TRAINING_UTILISATION = 0.8
SERVING_UTILISATION = 1.0  # a service holds its servers day and night, and its load is what it is sized for
FOLLOWS: Mapping[str, str] = {
    "cost.years": "assumed: useful life of servers in Amazon's annual report for 2024, six years before 2025",
    "cost.pue": "assumed: average of data centres, Uptime Institute Global Data Center Survey 2025",
    "cost.utilisation": (
        "assumed: training keeps research clusters busy for some 80 % of their hours (Kokolis et al., arXiv "
        "2410.21680); a service holds its servers all the time"
    ),
}
"""Keys that have a default, and what it follows."""


class Electricity(Immutable, eq=True):
    """What electricity costs. power_share : of their design power that accelerators at work draw [-]

    per_kwh, pue : price of a kilowatt-hour, and power of the data centre over that of its servers [-]
    """

    server: Server
    power_share: float
    per_kwh: float
    pue: float

    def hour(self, gpus: Amount, servers: Amount | None = None) -> Amount:
        """An hour of so many GPUs at work, with the whole servers that they are in, and cooling.

        servers : as of `servers_power_w`
        """
        power_w = servers_power_w(self.server, gpus, self.power_share, servers)
        assert power_w is not None
        return electricity_cost(power_w / WATT_PER_KW, self.per_kwh, self.pue)


class Tariff(Immutable):
    """What an hour of a GPU costs: by the price that was given, by what a server cost to buy, or by the server's price.

    A server is rented or owned as a whole; a price by GPU pays for those that are used.

    per_gpu_hour : of a GPU that is paid for, at work or not: rent or capital; None where no price is known
    currency : of all prices; sold_together : GPUs that are paid for together [-]
    offer : how the server's price is meant; None where the price was given, and of servers that are owned
    electricity : of servers at work; None where no price of electricity is known. It is part of the cost of servers
    that are owned; a rent includes it
    own : what the cost of servers that are owned rests on; None where they are rented
    """

    per_gpu_hour: float | None
    currency: str
    sold_together: int
    offer: Offer | None = None
    electricity: Electricity | None = None
    own: OwnServers | None = None

    @classmethod
    def of(cls, price: float | None, currency: str | None, server: Server) -> Tariff:
        """Of hardware that is rented.

        price : of one GPU for an hour, where it was given; currency : of all prices, where it was given
        """
        by_server = price is None
        if price is None and server.price_per_hour is not None:
            price = server.price_per_hour / server.accelerators
        return cls(
            per_gpu_hour=price,
            currency=currency or server.price_currency,
            sold_together=server.accelerators if by_server else 1,
            offer=server.offer if by_server else None,
        )

    def parts(self, billed: Amount, used: Amount) -> dict[str, Amount]:
        """What an hour of servers that are owned is made of; empty where they are rented.

            capital = GPUs that are paid for x capital of a GPU-hour
            electricity = power of the servers of the GPUs at work x PUE x price of a kilowatt-hour
            staff = share x (capital + electricity)

        Parameters
        ----------
        billed, used : GPUs that are paid for, and those of them that work [-]

        Source: definition.
        """
        if self.own is None or self.per_gpu_hour is None:
            return {}
        found = {CAPITAL: billed * self.per_gpu_hour}
        if self.electricity is not None:
            found[ELECTRICITY] = self.electricity.hour(used, billed / self.sold_together)
        if self.own.staff_share:
            found[STAFF] = self.own.staff_share * sum(found.values())
        return found

    def hour(self, billed: Amount, used: Amount) -> Amount | None:
        """Cost of an hour: the sum of its parts, or the rent; None where no price is known. Arguments as of `parts`."""
        if self.per_gpu_hour is None:
            return None
        return sum(self.parts(billed, used).values()) if self.own else billed * self.per_gpu_hour

    def electricity_of_hour(self, used: int, servers: int | None = None) -> float | None:
        """What an hour of GPUs at work takes, rented ones too; None where nobody knows. servers : that hold them"""
        return None if self.electricity is None else float(self.electricity.hour(used, servers))

    def cost_parts(self, hours: float, billed: int, used: int) -> tuple[CostPart, ...]:
        """The parts of what so many hours cost."""
        return tuple(CostPart(name=name, value=float(hours * part)) for name, part in self.parts(billed, used).items())

    def break_even_utilisation(self, hours: float, billed: int, used: int, rent: float | None) -> float | None:
        """The use from which the same hours of servers that are owned cost less than a rent.

        None where servers are rented, or nobody knows the rent; infinite where the rest alone costs as much.
        """
        if self.own is None or self.per_gpu_hour is None or rent is None:
            return None
        share, parts = 1.0 + (self.own.staff_share or 0.0), self.parts(billed, used)
        capital, rest = (share * hours * float(parts.get(name, 0.0)) for name in (CAPITAL, ELECTRICITY))
        return break_even_utilisation(capital, rest, rent, self.own.utilisation)

    def hourly(self, server: Server) -> HourlyPrice | None:
        """What an hour costs, of the whole server or of a GPU whose price was given; None where no price is known."""
        if self.per_gpu_hour is None:
            return None
        if self.own is not None:
            whole = self.hour(self.sold_together, self.sold_together)
            assert whole is not None
            return HourlyPrice(
                hardware=server.name,
                per_hour=float(whole),
                currency=self.currency,
                kind=OWN,
                date=self.own.date,
                source=self.own.source,
                own=self.own,
            )
        if self.offer is None:
            name = server.accelerator.name
            return HourlyPrice(hardware=name, per_hour=self.per_gpu_hour, currency=self.currency, kind=GIVEN_PRICE)
        return HourlyPrice(
            hardware=server.name,
            per_hour=self.per_gpu_hour * self.sold_together,
            currency=self.currency,
            kind=self.offer.kind,
            date=self.offer.date,
            region=self.offer.region,
            source=self.offer.source,
        )

    def billed_gpus(self, gpus: Count) -> Count:
        """GPUs that are paid for where so many are used."""
        return -(-gpus // self.sold_together) * self.sold_together


def what_is_paid(
    tariff: Tariff, billed: int, used: int, server: Server, caller: Caller, servers: int | None = None
) -> Iterator[str]:
    """What a reader must know of a price: GPUs that it counts and that are not used, and parts that it leaves out.

    servers : that the GPUs used are in; None: as few as hold them
    """
    whole = (servers or -(-used // server.accelerators)) * server.accelerators
    if billed > used:
        yield f"the price counts whole servers: {billed} GPUs are paid for, {used} used"
    elif billed < whole and not server.bare:
        yield f"the price by GPU counts the {billed} GPUs used, not all {whole} of the servers"
    if tariff.own is not None and tariff.electricity is None:
        if tariff.own.kwh_price is None:
            yield f"the cost leaves electricity out: give {caller.setting('cost.kwh_price')}"
        else:
            yield f"the cost leaves electricity out: nobody knows what {server.accelerator.name} draws"


def tariff_of(provenance: Provenance, server: Server, power_share: float, utilisation: float) -> Tariff:
    """What the GPUs of the server cost, as the user says or its profile; what is assumed of it is noted.

    power_share : of their design power that accelerators at work draw [-]
    utilisation : share of their hours that servers have work, where nobody says it [-]

    Raises
    ------
    InputError : every name with a price that is that of no GPU and no server, or of several
    """
    asked = provenance.scenario.values.cost
    rent, rent_named = _price_for("price_per_gpu_hour", provenance.scenario, server, provenance.finder)
    capex, capex_named = _price_for("capex_per_server", provenance.scenario, server, provenance.finder)
    bought = server.capex
    unasked = rent is None and capex is None and bought is not None
    if unasked and (server.price_per_hour is None or asked.years or asked.utilisation or asked.staff_share):
        assert bought is not None
        capex = bought.price
    elif rent is not None and rent_named > capex_named:
        capex = None  # named for this hardware, where the other is for all
    electricity = None
    if asked.kwh_price is not None and server.accelerator.tdp_w is not None:
        pue = provenance.resolve_default("cost.pue", DEFAULT_PUE)
        electricity = Electricity(server, power_share, asked.kwh_price, pue)
    if capex is None:
        rented = Tariff.of(rent, asked.currency, server)
        return replace(rented, electricity=electricity)
    date, source = (bought.date, bought.source) if unasked and bought else (None, None)
    together = _accelerators(server, provenance.scenario.values.gpus)
    own = OwnServers(
        capex=capex,
        years=provenance.resolve_default("cost.years", DEFAULT_YEARS),
        utilisation=provenance.resolve_default("cost.utilisation", utilisation),
        kwh_price=asked.kwh_price,
        pue=provenance.values.cost.pue,
        staff_share=asked.staff_share,
        date=date,
        source=source,
    )
    return Tariff(
        per_gpu_hour=capital_per_hour(capex, own.years, own.utilisation) / together,
        currency=asked.currency or (bought.currency if unasked and bought else server.price_currency),
        sold_together=together,
        electricity=electricity,
        own=own,
    )


def tariff_sources(origins: Mapping[str, str]) -> Iterator[Source]:
    """What the defaults of servers that are owned follow."""
    yield from (Source(name=key, source=text) for key, text in FOLLOWS.items() if origins.get(key) == "default")


def _accelerators(server: Server, gpus: int | None) -> int:
    """Accelerators of a server that is owned: cards named alone stand in a host that holds as many as are asked for."""
    if server.bare and server.fabric.topology in ON_THE_BUS and gpus is not None:
        return min(gpus, server.accelerators)
    return server.accelerators


def _price_for(key: str, scenario: Scenario, server: Server, finder: Finder) -> tuple[float | None, bool]:
    """What was given as a price: for all kinds of hardware, for the server or its GPU by name; and whether by name.

    None where none of these was given.
    """
    asked = getattr(scenario.values.cost, key)
    if not isinstance(asked, Mapping):
        return asked, False
    problems: list[Problem] = []
    where = partial(scenario.locate, ("cost", key))
    found = {collect(problems, _hardware_named, name, finder, where): price for name, price in asked.items()}
    if problems:
        raise InputError(problems)
    return found.get(("server", server.name), found.get(("gpu", server.accelerator.name))), True


def _hardware_named(name: str, finder: Finder, where: Callable[[], Location]) -> tuple[str, str]:
    """Kind and name of the server or GPU that a name means. Raises InputError."""
    for kind in ("server", "gpu"):
        if any(finder.files(kind, name)):
            return kind, name
    for kind in ("gpu", "server"):
        found = finder.find(kind, name, where)
        if found:
            return kind, found.stem
    hint = did_you_mean(name, (*finder.names("gpu"), *finder.names("server")))
    raise InputError(Problem(f"no GPU or server is called '{name}'", where(), hint))
