"""FSDP settings as transformers, accelerate and axolotl have them: sharding, offload and recomputation.

Keys: transformers' `TrainingArguments.fsdp` and `fsdp_config`, accelerate's `FullyShardedDataParallelPlugin`. Their
names stand with and without the prefix `fsdp_`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.offload import PARAMS
from xe_sizer.importers.values import listed, plain, switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

_STRATEGIES: Mapping[str, int] = {
    "fullshard": 3, "1": 3, "shardgradop": 2, "2": 2, "noshard": 0, "3": 0, "hybridshard": 3, "4": 3,
    "hybridshardzero2": 2, "5": 2,
}  # fmt: skip


def state_fsdp(draft: Draft, options: Written | None, section: str) -> None:
    """State the sharding of FSDP.

    options : the list of options (`full_shard auto_wrap`), or a switch
    section : the dotted prefix of the settings, `fsdp_config.`
    """
    words = [plain(word) for word in listed(options.value) or ()] if options and options.value is not True else []
    where = options or next((each for name, each in draft.keys.items() if name.startswith(section)), None)
    strategy = _take(draft, section, "sharding_strategy")
    reshard = _take(draft, section, "reshard_after_forward")
    stage = next((_STRATEGIES[word] for word in words if word in _STRATEGIES), None)
    if strategy is not None and plain(strategy.value) in _STRATEGIES:
        draft.state("layout.zero", _STRATEGIES[plain(strategy.value)], strategy)
    if stage is not None:
        draft.state("layout.zero", stage, options)
    if reshard is not None:
        draft.state("layout.zero", _STRATEGIES.get(plain(reshard.value), 3 if _is_on(reshard) else 2), reshard)
    draft.state("layout.zero", 3, where, "FSDP shards all states unless told otherwise")
    offload = _take(draft, section, "offload_params") or _take(draft, section, "cpu_offload")
    if "offload" in words and options is not None:
        draft.state("layout.offload", PARAMS, options)
    elif offload is not None and _is_on(offload):
        draft.state("layout.offload", PARAMS, offload)
    recompute = _take(draft, section, "activation_checkpointing")
    if recompute is not None and _is_on(recompute):
        draft.state("layout.recompute", "full", recompute)


def _take(draft: Draft, section: str, name: str) -> Written | None:
    return draft.take(f"{section}{name}", f"{section}fsdp_{name}")


def _is_on(written: Written) -> bool:
    return bool(switch(written.value))


SILENT = tuple(
    f"{prefix}{name}"
    for prefix in ("", "fsdp_")
    for name in (
        "version", "sync_module_states", "cpu_ram_efficient_loading", "use_orig_params", "state_dict_type",
        "final_state_dict_type", "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params",
        "limit_all_gathers", "forward_prefetch", "backward_prefetch", "backward_prefetch_policy",
        "cpu_offload_pin_memory", "xla*",
    )
)  # fmt: skip
"""Settings of FSDP that change nothing that is modelled."""
