"""A scenario of inference with everything resolved but the placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given
    from xe_sizer.scenario.tariff import Tariff
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.traffic import Traffic


@frozen
class ResolvedService:
    """What is asked, resolved but for the placement and the number of replicas.

    load : request_rate, concurrency, batch, or None: as much as a replica can take; `amount` of it
    fixed : sizes of the placement that the user chose
    """

    given: Given
    job: ServingJob
    traffic: Traffic
    load: str | None
    amount: float
    fixed: Mapping[str, int]
    gpus: int | None
    percentile: float
    spare_replicas: int
    tariff: Tariff
    values: Mapping[str, Any]
    origin: Mapping[str, str]
    warnings: tuple[str, ...]

    def most_gpus(self) -> int | None:
        """GPUs that a replica may have: those asked for hold the spare ones too."""
        most = self.gpus or self.given.values.limits.max_gpus
        return None if most is None else most // (1 + self.spare_replicas)

    def billed_gpus(self, gpus: int) -> int:
        """GPUs that are paid for: those asked for, and servers of which a part is used."""
        return self.tariff.billed_gpus(max(gpus, self.gpus or 0))
