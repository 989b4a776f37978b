"""Optimizers by the names that transformers, TRL and others give to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.table import names
from xe_sizer.importers.values import plain, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

ADAMW, ADAMW_8BIT, PAGED, PAGED_8BIT = "adamw", "adamw-8bit", "paged-adamw", "paged-adamw-8bit"
ADAFACTOR, SGD, MUON = "adafactor", "sgd", "muon"

SAME: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "adam", "adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_anyprecision",
            "fused_adam", "fusedadam", "distributed_fused_adam", "optimi_adamw", "adopt_adamw", "torch.optim.AdamW",
            "torch.optim.Adam", "adamwfused", "stable_adamw",
        ),
        ADAMW,
    ),
    **dict.fromkeys(
        (
            "adamw_8bit", "adamw_bnb_8bit", "adam_8bit", "bnb_adamw", "adamw8bit", "ao_adamw_8bit", "adamw_torch_8bit",
            "bitsandbytes.optim.AdamW8bit", "torchao.optim.AdamW8bit",
        ),
        ADAMW_8BIT,
    ),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW"), PAGED),
    **dict.fromkeys(("paged_adamw_8bit", "bitsandbytes.optim.PagedAdamW8bit"), PAGED_8BIT),
    **dict.fromkeys(("adafactor",), ADAFACTOR),
    **dict.fromkeys(("sgd", "torch.optim.SGD"), SGD),
    **dict.fromkeys(("muon", "torch.optim.Muon"), MUON),
}  # fmt: skip
"""Names of optimizers that keep the same states as one of ours."""

NEAREST: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        names("adamw_torch_4bit ao_adamw_4bit adamw_4bit ao_adamw_fp8 ademamix_8bit flash_adamw flash_adam"),
        (ADAMW_8BIT, "narrow states of another width"),
    ),
    **dict.fromkeys(("paged_ademamix_8bit",), (PAGED_8BIT, "three states in 8 bit")),
    **dict.fromkeys(
        ("galore_adamw", "galore_adamw_layerwise", "apollo_adamw", "apollo_adamw_layerwise"),
        (ADAMW, "states of a low rank, smaller than those of AdamW"),
    ),
    **dict.fromkeys(
        ("galore_adamw_8bit", "galore_adamw_8bit_layerwise", "q_galore_adamw8bit"),
        (ADAMW_8BIT, "states of a low rank in 8 bit, smaller than those of 8-bit AdamW"),
    ),
    **dict.fromkeys(
        names("galore_adafactor galore_adafactor_layerwise came_pytorch came"), (ADAFACTOR, "factored states")
    ),
    **dict.fromkeys(
        ("lion", "lion_32bit", "flash_lion", "lomo", "adalomo", "signsgd", "grokadamw", "schedule_free_adamw",
         "schedule_free_radam", "schedule_free_sgd", "radam", "nadam", "ademamix", "dion", "sinkgd", "shampoo", "soap",
         "sophia", "dist_muon", "adagrad", "rmsprop", "lamb"),
        (ADAMW, "other states than those of AdamW"),
    ),
    **dict.fromkeys(("lion_8bit", "rmsprop_bnb_8bit"), (ADAMW_8BIT, "other states than those of 8-bit AdamW")),
    **dict.fromkeys(("paged_lion", "paged_lion_32bit"), (PAGED, "other states than those of AdamW")),
    **dict.fromkeys(("paged_lion_8bit",), (PAGED_8BIT, "other states than those of 8-bit AdamW")),
}  # fmt: skip
"""Names of other optimizers: what is taken in their place, and how they differ."""

_SAME = {plain(name): ours for name, ours in SAME.items()}
_NEAREST = {plain(name): ours for name, ours in NEAREST.items()}


def state_optimizer(draft: Draft, name: str, written: Written | None) -> None:
    """State the optimizer that a key names; one that is not modelled is lost, and the nearest is assumed.

    name : the foreign key; it counts as read
    """
    word = text(written.value) if written else None
    if written is None or word is None:
        return
    if plain(word) in _SAME:
        draft.take(name)
        draft.state("optimizer", _SAME[plain(word)], written)
        return
    nearest, how = _NEAREST.get(plain(word), (ADAMW, "an optimizer that is not known here"))
    draft.lose(name, f"{word} has {how}; {nearest} is assumed in its place")
    draft.assume("optimizer", nearest, f"in place of {word}", written.where)
