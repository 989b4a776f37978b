"""Remedies of jobs that compare answers or have a teacher: what stands beside the model, and what learns of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from xe_sizer.scenario.read import Change
from xe_sizer.scenario.schema import NO_ADAPTERS
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, COPY, PRECOMPUTED, REFERENCE

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.training.adapters import AdapterKind
    from xe_sizer.training.estimate import TrainingEstimate

KEY = "train.reference"
OTHER_TRAINING = 13  # chosen: effort from which a remedy is another way to train, see `training.remedies`


def reference_elsewhere(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Log-probabilities of a reference from the model without its adapters, or computed before the training."""
    method = sized.resolved.job.method
    references = [one for one in method.frozen if one.words == REFERENCE]
    if method.adapter and any(one.copies for one in references):
        yield Change("the reference from the model with its adapters off, without a copy", {KEY: ADAPTERS_OFF}, 1)
    if references:
        yield Change("reference log-probabilities computed beforehand", {KEY: PRECOMPUTED}, 2)


def other_adapters(sized: TrainingEstimate) -> Iterator[Change]:
    """All weights in place of adapters, and the adapters that change least to take less; under a job that takes any."""
    method = sized.resolved.job.method
    if method.adapter and method.kind.implies_adapter:
        copied = sized.resolved.given.values.train.reference == ADAPTERS_OFF
        values: dict[str, object] = {"adapter": NO_ADAPTERS, **({KEY: COPY} if copied else {})}
        yield Change(f"all weights instead of {method.adapter.label}", values, OTHER_TRAINING)
    yield from islice(_fewer(sized), 1)


def fewer_learning_weights(sized: TrainingEstimate, _: Registry) -> Iterator[Change]:
    """Adapters in place of all weights, or lighter ones, under a job that takes any."""
    return _fewer(sized)


def _fewer(sized: TrainingEstimate) -> Iterator[Change]:
    method = sized.resolved.job.method
    if not method.kind.implies_adapter:
        return
    copied = sized.resolved.given.values.train.reference == COPY
    now = method.adapter.label if method.adapter else "all weights"
    for effort, lighter in enumerate(_lighter(method.adapter), start=OTHER_TRAINING):
        values = {"adapter": lighter.name, **({KEY: ADAPTERS_OFF} if copied else {})}
        yield Change(f"{lighter.label} instead of {now}", values, effort)


def _lighter(now: AdapterKind | None) -> Iterator[AdapterKind]:
    """Kinds of adapters that take less, the one that changes least first."""
    usual = next((kind for kind in ADAPTERS.values() if kind.usual), None)
    kind = usual if now is None else ADAPTERS.get(now.lighter or "")
    while kind is not None:
        yield kind
        kind = ADAPTERS.get(kind.lighter or "")
