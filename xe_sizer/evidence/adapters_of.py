"""What a record says of adapters and of the frozen weights below them, as keys of a scenario."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.evidence.names import names, plain, release_in
from xe_sizer.evidence.record_parts import Lora
from xe_sizer.profiles.inherited import of_release
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.quantiser import load_quantiser, quantiser_names
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.adapters.low_rank import resolve_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.evidence.flags import Flags
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.training.methods import MethodKind


def _words(stated: str | list[str] | None) -> list[str]:
    """Names of modules, without what parentheses say of them."""
    listed = re.sub(r"\([^)]*\)?", " ", stated if isinstance(stated, str) else ",".join(map(str, stated or ())))
    return [word for word in re.split(r"[\s,]+", listed) if word]


def _saved(record: Record, flags: Flags) -> None:
    """Embedding and head that learn beside adapters; other modules are small."""
    saved = []
    for word in _words(record.lora.modules_to_save):
        try:
            saved.append(resolve_end(word))
        except InputError:
            flags.assumed.append(f"'{word}' does not learn: neither embedding nor head")
    flags.put("lora.modules_to_save", saved or None)


@cache
def _quantisers() -> Mapping[str, str]:
    """Quantisers by their names and their other names."""
    others = {alias: name for name in quantiser_names() for alias in load_quantiser(name).aliases}
    return others | {name: name for name in quantiser_names()}


def _settings(job: MethodKind, flags: Flags) -> tuple[str, ...]:
    """Sections of a scenario that say how the job's adapters are made."""
    asked = flags.values.get("adapter")
    return ADAPTERS[asked].settings if asked else job.settings


def _few_bits(record: Record, job: MethodKind, flags: Flags) -> bool:
    """Whether the frozen weights below adapters have few bits."""
    asked = flags.values.get("adapter")
    if asked is None:
        return job.quantises
    narrow = any(word in plain(record.weights or "") for word in names().quantised_weights)
    return job.quantises or ADAPTERS[asked].quantises or narrow


def quantiser(record: Record, job: MethodKind, usual: str, flags: Flags) -> None:
    """The library that quantised the weights, else the one of the stack, and their bits, if it has so many.

    usual : the quantiser of the stack
    """
    if not _few_bits(record, job, flags):
        return
    words = [plain(word) for word in (record.quantiser or "", record.weights or "")]
    name = next((_quantisers()[word] for word in words if word in _quantisers()), None)
    if record.quantiser and name is None:
        flags.assumed.append(f"quantiser '{record.quantiser}' is unknown here: the stack's")
    if name is not None and (own := of_release(usual)[0]) == name:
        release = release_in((record.framework or "").lower(), (own, *load_quantiser(own).aliases))
        name = f"{name}@{release}" if release else usual  # in the release that is stated, else in the stack's
    flags.put("train.quantiser", name)
    stated = record.bits or (8.0 if "8" in words[1] else None)  # as int8 does
    has = load_quantiser(name or usual).bits
    if stated is None:
        if not (job.quantises or name):  # what asks for few bits under any adapters
            flags.put("train.bits", has[0])
        return
    bits = min(has, key=lambda each: abs(each - stated))
    flags.put("train.bits", bits, None if bits == stated else f"weights of {stated:g} bits predicted as {bits}")


def adapts(record: Record, job: MethodKind, flags: Flags) -> bool:
    """Whether adapters on projections learn: the job or the record means them, or the record says of which rank."""
    asked = "adapter" in flags.values
    return "lora" in _settings(job, flags) or (not asked and job.implies_adapter and record.lora != Lora())


def adapters(record: Record, job: MethodKind, model: ModelShape, flags: Flags) -> None:
    """Rank and targets of adapters, those that the model has; virtual tokens of a prompt."""
    if "p_tuning" in _settings(job, flags):
        flags.put("p_tuning.virtual_tokens", record.virtual_tokens)
    if not adapts(record, job, flags):
        return
    flags.put("lora.rank", record.lora.rank)
    flags.put("lora.dropout", record.lora.dropout)
    flags.put("lora.dora", True if record.lora.dora else None)
    _saved(record, flags)
    asked = flags.values.get("adapter") or job.adapter
    on_head = ADAPTERS[asked].on_head if asked else job.implies_adapter  # which are the usual ones
    words = _words(record.lora.targets)
    targets: list[str] = []
    for word in words:
        target = "all-linear" if word.lower() in ("all", "all-linear") else word.lower()
        try:
            found = resolve_targets(model, [target], head=on_head)
        except InputError:
            flags.assumed.append(f"no adapter on '{word}'")
            continue
        if not ("qkv" in found and {"q", "k", "v"} <= set(targets)):
            targets += found
    if not targets and _few_bits(record, job, flags):
        targets = list(resolve_targets(model, ["all-linear"]))
        flags.assumed.append("adapters on all linear layers: usual for QLoRA (arXiv:2305.14314)")
    flags.put("lora.targets", list(dict.fromkeys(targets)) or None)
