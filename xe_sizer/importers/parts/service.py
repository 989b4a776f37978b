"""A model server as a file starts it: its engine, its arguments, and the hardware that it is given.

Commands, container manifests, charts and recipes all come down to these; the engine's own table reads the arguments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xe_sizer.errors import Location
    from xe_sizer.importers.written import Keys, Written

VLLM, SGLANG, TENSORRT_LLM, ATOM = "vllm", "sglang", "tensorrt-llm", "atom"
PREFILL, DECODE = "prefill", "decode"


@frozen
class Service:
    """One model server, or one of the two roles of a disaggregated one.

    engine : of the constants above
    keys : its arguments, by name with underscores; those that depend on variables which nobody sets are `Unread`
    name : what the file calls it
    replicas : how many are started alike
    gpus : GPUs that one replica is given; `gpu` is their product
    image : container image
    role : empty where it does both
    """

    engine: str
    keys: Keys
    where: Location
    name: str = ""
    replicas: Written | None = None
    gpus: Written | None = None
    gpu: Written | None = None
    image: Written | None = None
    role: str = ""

    def with_keys(self, keys: Mapping[str, Written]) -> Service:
        """The same service with further arguments; those that it has stay."""
        return replace(self, keys={**keys, **self.keys})

    @property
    def model(self) -> Written | None:
        """The model as the arguments name it."""
        return next((self.keys[name] for name in ("model", "model_path", "model_tag") if name in self.keys), None)

    def is_called(self, name: str) -> bool:
        """Whether a user may mean this one: by what the file calls it, its model, or the last part of that."""
        model = str(self.model.value).lower() if self.model else ""
        served = str(self.keys["served_model_name"].value).lower() if "served_model_name" in self.keys else ""
        wanted = name.lower()
        return wanted in {self.name.lower(), model, model.rpartition("/")[2], served, served.rpartition("/")[2]}


@frozen
class Chosen:
    """The service of a file that is read: the one that decodes, the one that only prefills, and the others."""

    service: Service
    prefill: Service | None
    others: tuple[Service, ...]


def choose(services: Sequence[Service], wanted: str | None) -> Chosen | None:
    """The first service, or the one that is asked for by name; None where the file has none."""
    called = [each for each in services if wanted is not None and each.is_called(wanted)]
    first = next(iter(called or services), None)
    if first is None:
        return None
    partner = _partner(first, services)
    pair = {first.role: first, partner.role: partner} if partner else {}
    main = pair.get(DECODE, first)
    used = {id(first), id(partner)}
    return Chosen(main, pair.get(PREFILL), tuple(each for each in services if id(each) not in used))


def _partner(service: Service, services: Iterable[Service]) -> Service | None:
    """The service of the other role."""
    other = {PREFILL: DECODE, DECODE: PREFILL}.get(service.role)
    alike = (each for each in services if other and each.role == other and each.engine == service.engine)
    return next(alike, None)
