"""The load of a service, and what of it a replica takes: one class for each way to say it.

The load is all replicas' together. Alike replicas share it evenly; `each` is what one of them gets, in the unit of the
load: requests per second, requests in flight, or users.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from xe_sizer.serving.job import HIGHEST_LOAD
from xe_sizer.serving.queueing import (
    in_flight,
    latencies,
    rate_within,
    requests_within,
    users_at,
    users_latencies,
    users_rate,
    users_within,
)
from xe_sizer.serving.uncertainty import allowed_latencies

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.queueing import Curve, Latencies
    from xe_sizer.serving.resolved import ResolvedService

# Shares of the most that a replica takes at which its latencies are told, close together where waits grow.
SHARES = np.array((0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97, 0.99))
WAITING = np.array((1.0, 1.25, 1.5))  # the same where requests are kept in flight: more wait, but none for ever


class Load(Protocol):
    """What is asked of a replica, as arrays over placements.

    by_chance : whether requests come by chance, so that latencies have percentiles and a full replica long queues
    """

    by_chance: bool

    def within(self, resolved: ResolvedService, found: Curve) -> Array:
        """The most that a replica takes within the limits on latency; 0: nothing keeps them."""
        ...

    def full(self, resolved: ResolvedService, found: Curve) -> Array:
        """The most that a replica takes, however long requests wait."""
        ...

    def filled(self, resolved: ResolvedService, found: Curve, most: Array, share: Array) -> Array:
        """What brings a replica so far towards the most, as a share of its rate; all where nothing comes by chance."""
        ...

    def along(self, resolved: ResolvedService, found: Curve) -> Array:
        """Loads from next to none to as much as a replica takes, shape (loads, placements)."""
        ...

    def served(
        self, resolved: ResolvedService, found: Curve, each: Array, *percentiles: float | None
    ) -> tuple[Array, tuple[Latencies, ...]]:
        """Requests per second of a replica, and its latencies at percentiles or, for None, in the mean."""
        ...


class Arrivals:
    """Requests that arrive at a rate, by chance."""

    by_chance = True

    def within(self, resolved: ResolvedService, found: Curve) -> Array:
        return rate_within(found, resolved.traffic, *allowed_latencies(resolved), resolved.percentile)

    def full(self, resolved: ResolvedService, found: Curve) -> Array:
        return found.top_rate

    def filled(self, resolved: ResolvedService, found: Curve, most: Array, share: Array) -> Array:
        return most * share

    def along(self, resolved: ResolvedService, found: Curve) -> Array:
        return SHARES[:, None] * found.top_rate

    def served(
        self, resolved: ResolvedService, found: Curve, each: Array, *percentiles: float | None
    ) -> tuple[Array, tuple[Latencies, ...]]:
        return each, tuple(latencies(found, resolved.traffic, each, one) for one in percentiles)


class InFlight:
    """Requests that are always in flight: as one is answered, the next one comes."""

    by_chance = False

    def within(self, resolved: ResolvedService, found: Curve) -> Array:
        return requests_within(found, resolved.traffic, *allowed_latencies(resolved), resolved.amount)

    def full(self, resolved: ResolvedService, found: Curve) -> Array:
        return np.asarray(np.maximum(found.most, 1.0))

    def filled(self, resolved: ResolvedService, found: Curve, most: Array, share: Array) -> Array:
        return most

    def along(self, resolved: ResolvedService, found: Curve) -> Array:
        return np.concatenate((SHARES, WAITING))[:, None] * self.full(resolved, found)

    def served(
        self, resolved: ResolvedService, found: Curve, each: Array, *percentiles: float | None
    ) -> tuple[Array, tuple[Latencies, ...]]:
        rate, at = in_flight(found, resolved.traffic, each)
        return rate, (at,) * len(percentiles)


class Users:
    """People who ask, wait for the answer, think, and ask again."""

    by_chance = True

    def within(self, resolved: ResolvedService, found: Curve) -> Array:
        limits = allowed_latencies(resolved)
        return users_within(
            found, resolved.traffic, resolved.think_s, *limits, resolved.percentile, max(resolved.amount, 1.0)
        )

    def full(self, resolved: ResolvedService, found: Curve) -> Array:
        return users_at(found, resolved.traffic, HIGHEST_LOAD * found.top_rate, resolved.think_s, resolved.amount)

    def filled(self, resolved: ResolvedService, found: Curve, most: Array, share: Array) -> Array:
        rate = users_rate(found, resolved.traffic, most, resolved.think_s)
        part = users_at(found, resolved.traffic, rate * share, resolved.think_s, resolved.amount)
        return np.where(share < 1.0, part, most)

    def along(self, resolved: ResolvedService, found: Curve) -> Array:
        return users_at(found, resolved.traffic, SHARES[:, None] * found.top_rate, resolved.think_s)

    def served(
        self, resolved: ResolvedService, found: Curve, each: Array, *percentiles: float | None
    ) -> tuple[Array, tuple[Latencies, ...]]:
        return users_latencies(found, resolved.traffic, each, resolved.think_s, *percentiles)


LOADS: Mapping[str | None, Load] = MappingProxyType(
    {"request_rate": Arrivals(), "concurrency": InFlight(), "users": Users(), None: Arrivals()}
)
"""By the key of the scenario; None: as many requests as a replica takes."""
