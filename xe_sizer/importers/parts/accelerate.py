"""accelerate's configuration files: processes, precision, DeepSpeed, FSDP, Megatron and parallelism.

Keys and defaults: accelerate src/accelerate/commands/config/config_args.py and src/accelerate/utils/launch.py (1.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts import fsdp
from xe_sizer.importers.parts.deepspeed import read_deepspeed
from xe_sizer.importers.parts.offload import OPTIMIZER, PARAMS
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import is_on, plain, positive, positive_or_open, switch, whole
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source

_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
_SETTINGS = "parallelism_config."
_OWN = f"{_SETTINGS}parallelism_config_"
_MEGATRON = "megatron_lm_config.megatron_lm_"


def _parallel(*sizes: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{size}" for size in sizes for prefix in (_OWN, _SETTINGS))


TABLE = Table(
    keys=(
        Key((*_parallel("tp_size"), f"{_MEGATRON}tp_degree"), "layout.tp", positive),
        Key((f"{_MEGATRON}pp_degree",), "layout.pp", positive),
        Key((*_parallel("cp_size", "sp_size"), f"{_MEGATRON}context_parallel_size"), "layout.cp", positive),
        Key((f"{_MEGATRON}expert_model_parallel_size",), "layout.ep", positive),
        Key((f"{_MEGATRON}expert_tensor_parallel_size",), "layout.expert_tp", positive),
        Key((f"{_MEGATRON}sequence_parallelism",), "layout.sequence_parallel", switch),
        Key((f"{_MEGATRON}num_micro_batches", "deepspeed_config.gradient_accumulation_steps"), "train.grad_accum",
            positive),
    ),
    losses=(
        Loss(("dynamo_config.*",), "compiles the model", harmless=("NO", "no")),
        Loss(("fp8_config.*",), "sets how 8-bit operands are made"),
        Loss(("use_cpu",), "trains without a GPU"),
        Loss(("deepspeed_config.zero_quantized_*",), "ZeRO++, which is not modelled: it exchanges in few bits",
             effect="refused"),
        Loss(("deepspeed_config.zero_hpz_partition_size",), "ZeRO++, which is not modelled: it keeps a second copy of "
             "the weights in every node", harmless=(1,), effect="refused"),
        Loss(("fsdp_config.fsdp_use_megatron_fsdp", f"{_MEGATRON}use_custom_fsdp"), "shards with another library"),
        Loss((f"{_MEGATRON}optimizer_cpu_offload",), "keeps the optimizer in host memory"),
        Loss(("downcast_bf16",), "casts to 16 bit on TPUs"),
        Loss(("sp_backend", *_parallel("sp_backend", "cp_comm_strategy", "sp_attn_implementation")),
             "chooses the kind of context parallelism"),
        Loss(("kt_config.*",), "runs experts on the CPU"),
    ),
    silent=(
        *names("""
        compute_environment debug distributed_type machine_rank main_training_function main_process_* rdzv_backend
        same_network tpu_* gpu_ids enable_cpu_affinity command_file commands mpirun_config* ipex_config*
        deepspeed_config deepspeed_config.* megatron_lm_config* parallelism_config* num_machines mixed_precision fp16
        dynamo_backend
        """),
        *(f"fsdp_config.{name}" for name in fsdp.SILENT),
        "fsdp_config.fsdp_ignored_modules",
    ),
)  # fmt: skip


def state_accelerate(draft: Draft, source: Source) -> None:
    """State what a configuration of accelerate says of hardware, precision and sharding."""
    kind = draft.peek("distributed_type")
    word = plain(kind.value) if kind is not None else "no"
    _processes(draft, word)
    mixed = draft.take("mixed_precision")
    if mixed is not None:
        draft.state("precision", _PRECISIONS.get(plain(mixed.value)), mixed)
    if word == "deepspeed":
        draft.state("train.backend", DEEPSPEED, kind)
        _deepspeed(draft, source)
    elif word == "fsdp":
        fsdp.state_fsdp(draft, draft.peek("distributed_type"), "fsdp_config.")
    elif word == "megatronlm":
        _megatron(draft)
    elif kind is not None and word in ("no", "multigpu", "multixpu", "multinpu"):
        draft.state("layout.zero", 0, kind)
    _groups(draft)


def _processes(draft: Draft, word: str) -> None:
    processes, machines = draft.take("num_processes"), draft.take("num_machines")
    if processes is not None:
        draft.state("gpus", draft.value(processes, positive_or_open), processes)
    elif word == "no":
        draft.default("gpus", 1, "not distributed")
    if machines is not None and "gpus" not in draft.facts:
        draft.state("nodes", draft.value(machines, positive_or_open), machines)


def _deepspeed(draft: Draft, source: Source) -> None:
    file, stage = draft.take("deepspeed_config.deepspeed_config_file"), draft.take("deepspeed_config.zero_stage")
    if file is not None:
        read_deepspeed(draft, file, source)
    if stage is not None:
        draft.state("layout.zero", draft.value(stage, whole), stage)
    draft.default("layout.zero", 2, "zero_stage: 2")
    for name, what in (("offload_param_device", PARAMS), ("offload_optimizer_device", OPTIMIZER)):
        found = draft.on(f"deepspeed_config.{name}")
        if found is not None:
            draft.state("layout.offload", what, found)


def _megatron(draft: Draft) -> None:
    sharded, again = draft.take(f"{_MEGATRON}use_distributed_optimizer"), draft.on(f"{_MEGATRON}recompute_activations")
    if sharded is not None:
        draft.state("layout.zero", 1 if is_on(sharded.value) else 0, sharded)
    if again is not None:
        draft.state("layout.recompute", "selective", again)


def _groups(draft: Draft) -> None:
    """Replicas of the sharded states: a group has the ranks that share one copy."""
    copies, shared = draft.take(*_parallel("dp_replicate_size")), draft.take(*_parallel("dp_shard_size"))
    count, size = draft.value(copies, positive_or_open), draft.value(shared, positive_or_open)
    if isinstance(count, int) and count > 1 and isinstance(size, int):
        draft.state("layout.zero_group", size * draft.size(*_parallel("cp_size", "sp_size")), shared)
