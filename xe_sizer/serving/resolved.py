"""A scenario of inference with everything resolved but the placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import field

from xe_sizer.immutable import Immutable
from xe_sizer.serving.sessions import Turns
from xe_sizer.software.speculation import METHODS, branched, extended

if TYPE_CHECKING:
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.scenario.schema import LimitsSection, ScenarioFile
    from xe_sizer.scenario.tariff import Tariff
    from xe_sizer.serving.job import ServingJob, Traffic
    from xe_sizer.serving.sessions import HostCache
    from xe_sizer.serving.trace import Trace
    from xe_sizer.software.speculation import Acceptance


PATIENCE_S = 60.0
"""What nobody waits for an answer to begin, unless a limit with a unit says so [s]."""
LATENCY_LIMITS = ("max_ttft_s", "max_tpot_s", "max_request_s")
LONGEST_S: Mapping[str, float] = dict(zip(LATENCY_LIMITS, (PATIENCE_S, 1.0, PATIENCE_S), strict=True))
"""Limits above these look like milliseconds where they are written without a unit [s]."""


class ResolvedService(Immutable):
    """What is asked, resolved but for the placement and the number of replicas.

    load : request_rate, concurrency, users, batch, or None: as much as a replica can take; `amount` of it, of all
    replicas together (a batch is one replica's); think_s : between an answer and the user's next request [s]
    requests : of a test, of all replicas together; None: the service goes on for ever
    arrivals : of a test at a rate, poisson or constant; trace : the requests to replay, whose rate is `amount`
    limits : those of the user, and the default objectives where there is a load and no limit on its latency
    fixed : sizes of the placement that the user chose
    objective : latency or throughput, for which the placement is chosen; None: as the load asks
    prefill_replicas : replicas that only read prompts, beside which the others only decode; "auto": as many as is best;
    None: all do both. prefill_fixed : sizes of their placement that the user chose
    encode_replicas : GPUs that only encode images; "auto": as many as the load needs; None: replicas encode their own
    fit : context or sessions, the most of which is looked for; None: neither
    replicas : at work, where they are known; None: as many as the load needs, or as the GPUs hold
    values, origins : scenario keys with defaults filled in, and where each that counts comes from
    returning : sessions that come back to their cache; None: what may be in the cache is there
    read_from_name : what the name of the model alone says of its weights, in words; else empty
    """

    scenario: Scenario
    job: ServingJob
    traffic: Traffic
    load: str | None
    amount: float
    think_s: float
    requests: int | None
    arrivals: str
    trace: Trace | None
    limits: LimitsSection
    fixed: Mapping[str, int]
    gpus: int | None
    percentile: float
    spare_replicas: int
    tariff: Tariff
    values: ScenarioFile
    origins: Mapping[str, str]
    read_from_name: str
    warnings: tuple[str, ...]
    objective: str | None = None
    prefill_replicas: int | str | None = None
    encode_replicas: int | str | None = None
    replicas: int | None = None
    returning: HostCache | Turns | None = None
    fit: str | None = None
    prefill_fixed: Mapping[str, int] = field(default_factory=dict)

    @property
    def turns(self) -> Turns | None:
        """The turns of sessions that grow; None where requests have no history."""
        return self.returning if isinstance(self.returning, Turns) else None

    @property
    def assumed_drafting(self) -> tuple[Acceptance, Acceptance] | None:
        """The least and the most acceptance that is published of the method, where nobody states another."""
        name, positions = self.values.serve.speculative, len(self.traffic.acceptance)
        if not positions or name is None or self.origins.get("serve.acceptance_rate") != "default":
            return None
        width = self.values.serve.draft_width or 1
        low, high = (branched(extended(ends, positions), width) for ends in (METHODS[name].low, METHODS[name].high))
        return low, high

    @property
    def limits_latency(self) -> bool:
        """Whether the user says how long requests may take; else the default objectives do, if anything does."""
        asked = self.scenario.values.limits
        return any(getattr(asked, name) is not None for name in LATENCY_LIMITS)

    @property
    def asked_len(self) -> int | None:
        """The longest sequence that was asked for, of an engine that does not start where it cannot have it [tokens].

        One that allocates the context that it is started with is among them.

        Source: check_enough_kv_cache_memory and the check of max_model_len in vLLM's configuration.
        """
        refuses = self.job.engine.memory.length_flag or self.job.allocated is not None
        return self.scenario.values.serve.max_model_len if refuses else None

    @property
    def request_tokens(self) -> float:
        """Tokens of the mean request at its end, the last of its turns."""
        return max(self.traffic.inputs, self.turns.longest if self.turns else 0.0) + self.traffic.outputs

    @property
    def must_hold(self) -> float:
        """The longest sequence that a cache must hold: a request, or what was asked for of the model's positions."""
        asked = self.asked_len or 0
        return max(self.request_tokens, min(asked, self.job.model.max_positions or asked))

    def unlikely_limits(self) -> Iterator[tuple[str, float]]:
        """Limits on latency, written without a unit, that look like milliseconds: name and value [s]."""
        for name, longest in LONGEST_S.items():
            limit = getattr(self.scenario.values.limits, name)
            if limit is not None and limit > longest and f"limits.{name}" not in self.scenario.with_unit:
                yield name, limit

    def most_gpus(self) -> int | None:
        """GPUs that a replica may have: those asked for hold the spare ones too."""
        most = self.gpus or self.limits.max_gpus
        return None if most is None else most // (1 + self.spare_replicas)

    def billed_gpus(self, gpus: int) -> int:
        """GPUs that are paid for: those asked for, and servers of which a part is used."""
        return self.tariff.billed_gpus(max(gpus, self.gpus or 0))
