"""What an hour of a GPU costs, and which GPUs are paid for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from xe_sizer.frozen import frozen
from xe_sizer.result.common import GIVEN_PRICE, HourlyPrice

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray
    from xe_sizer.laws.hardware import Offer, Server

Count = TypeVar("Count", int, "IntArray")


@frozen
class Tariff:
    """The price that was given for a GPU, else the server's, which is rented or owned as a whole.

    per_gpu_hour : in `currency`; None where no price is known
    sold_together : GPUs that are paid for together [-]
    offer : how the server's price is meant; None where the price was given
    """

    per_gpu_hour: float | None
    currency: str
    sold_together: int
    offer: Offer | None = None

    @classmethod
    def of(cls, price: float | None, currency: str | None, server: Server) -> Tariff:
        """price : of one GPU for an hour, where it was given; currency : of all prices, where it was given."""
        by_server = price is None
        if price is None and server.price_per_hour is not None:
            price = server.price_per_hour / server.accelerators
        return cls(
            per_gpu_hour=price,
            currency=currency or server.price_currency,
            sold_together=server.accelerators if by_server else 1,
            offer=server.offer if by_server else None,
        )

    def hourly(self, server: Server) -> HourlyPrice | None:
        """What an hour costs, of the whole server or of a GPU whose price was given; None where no price is known."""
        if self.per_gpu_hour is None:
            return None
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


def whole_servers(billed: int, used: int, server: Server) -> Iterator[str]:
    """What to say where a server's price pays for accelerators that are not used, or a price by GPU leaves them out."""
    whole = -(-used // server.accelerators) * server.accelerators
    if billed > used:
        yield f"the price counts whole servers: {billed} GPUs are paid for, {used} used"
    elif billed < whole and not server.bare:
        yield f"the price by GPU counts the {billed} GPUs used, not all {whole} of the servers"
