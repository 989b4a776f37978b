"""What Megatron's arguments say together: stages, recomputation, sharding, precision, batches, checkpoints.

Rules: `validate_args` of Megatron-LM's megatron/training/arguments.py, core 0.19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.recompute import RECOMPUTE_MODULES
from xe_sizer.importers.parts.megatron_arguments import TABLE
from xe_sizer.importers.parts.megatron_stages import state_stages
from xe_sizer.importers.parts.offload import ACTIVATIONS, NONE, OPTIMIZER
from xe_sizer.importers.parts.optimizers import MUON, state_optimizer
from xe_sizer.importers.table import Key, Loss, Table
from xe_sizer.importers.values import interval, is_on, listed, number, plain, positive_or_open, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

DROPOUT = 0.1  # transformer_config.py, hidden_dropout and attention_dropout
_SHARDING = {"noshard": 0, "optim": 1, "optimgrads": 2, "optimgradsparams": 3}
_MUON = ("muon", "distmuon", "adaptivemuon")
_RAMP = 3  # numbers of --rampup-batch-size
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")


@frozen
class Arguments:
    """Megatron's arguments in a draft.

    prefixes : groups that a tool keeps them in, as `model.` and `train.`; the first that has an argument wins
    """

    draft: Draft
    prefixes: tuple[str, ...] = ("",)

    def named(self, *names: str) -> list[str]:
        """All keys that such arguments may have."""
        return [f"{prefix}{name}" for name in names for prefix in self.prefixes]

    def peek(self, *names: str) -> Written | None:
        """The first of the arguments that is there and is not empty; it stays to be read."""
        return self.draft.peek(*self.named(*names))

    def take(self, *names: str) -> Written | None:
        """The first of the arguments that is there and is not empty; all of them count as read."""
        return self.draft.take(*self.named(*names))

    def on(self, *names: str) -> Written | None:
        """`take`, where the value turns something on; None otherwise."""
        return self.draft.on(*self.named(*names))

    def lose(self, name: str, why: str) -> None:
        """An argument that sets nothing, and why."""
        for key in self.named(name):
            self.draft.lose(key, why)

    def read(self, convert: Callable[[object], object], *names: str) -> tuple[object, Written] | None:
        """The first of the arguments as a value; one that cannot be read is lost."""
        found = self.take(*names)
        value = self.draft.value(found, convert)
        return None if found is None or value is None else (value, found)

    def open(self, *names: str) -> bool:
        """Whether the files leave the value of one of the arguments to what was not passed."""
        return not self.draft.unread.keys().isdisjoint(self.named(*names))

    def default(self, key: str, value: object, note: str, *names: str) -> None:
        """What Megatron does without the arguments of these names."""
        if not self.open(*names):
            self.draft.default(key, value, note)

    def size(self, *names: str) -> int | None:
        """A whole number above zero."""
        found = self.read(positive_or_open, *names)
        return int(str(found[0])) if found else None


def with_groups(table: Table, prefixes: tuple[str, ...]) -> Table:
    """A table whose names stand in the groups of a tool too."""

    def each(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{prefix}{name}" for name in names for prefix in prefixes)

    keys = tuple(Key(each(key.names), key.to, key.read, key.default, key.since, key.until) for key in table.keys)
    losses = tuple(Loss(each(loss.names), loss.why, loss.harmless) for loss in table.losses)
    return Table(keys, losses, each(table.silent))


def state_megatron(arguments: Arguments) -> None:
    """State all of a job but its model, kind and hardware, and fill in what Megatron does without an argument."""
    draft = arguments.draft
    table = with_groups(TABLE, arguments.prefixes)
    draft.apply(Table(keys=table.keys))
    state_stages(arguments)
    _precision(arguments)
    _sharding(arguments)
    _offload(arguments)
    _recompute(arguments)
    _optimizer(arguments)
    _attention(arguments)
    _dropout(arguments)
    _batches(arguments)
    _ramp_up(arguments)
    _saving(arguments)
    _loss(arguments)
    if draft.fact("layout.ep") not in (None, 1):
        draft.default("layout.expert_tp", draft.fact("layout.tp") or 1, "as tensor parallelism")


def _precision(arguments: Arguments) -> None:
    draft = arguments.draft
    for names, word in ((("fp4_format", "fp4"), "fp4"), (("fp8_format", "fp8"), "fp8")):
        found = arguments.on(*names)
        if found is not None:
            draft.state("precision", word, found)
    if draft.fact("precision") == "fp8":
        arguments.default("train.fp8_recipe", "delayed", "", "fp8_recipe")
    else:
        draft.drop("train.fp8_recipe")
    for name in ("bf16", "fp16"):
        found = arguments.on(name)
        if found is not None:
            draft.state("precision", name, found)
            draft.default("train.weights_dtype", name, "weights have the type of the run")
    draft.default("precision", "fp32", "neither bf16 nor fp16")
    if draft.fact("precision") == "fp32":
        draft.default("train.weights_dtype", "fp32", "weights have the type of the run")


def _sharding(arguments: Arguments) -> None:
    draft = arguments.draft
    strategy = arguments.take("data_parallel_sharding_strategy")
    fsdp = arguments.on("use_megatron_fsdp", "use_custom_fsdp")
    torch = arguments.on("use_torch_fsdp2")
    kept = arguments.on("torch_fsdp2_no_reshard_after_forward")
    optimizer = arguments.on("use_distributed_optimizer")
    if fsdp is not None:
        stage = _SHARDING.get(plain(strategy.value)) if strategy is not None else 3
        draft.state("layout.zero", stage, strategy or fsdp)
    elif torch is not None:
        draft.state("layout.zero", 2 if kept is not None else 3, kept or torch)
    elif optimizer is not None:
        draft.state("layout.zero", 1, optimizer)
    arguments.default("layout.zero", 0, "no distributed optimizer", "data_parallel_sharding_strategy")
    _instances(arguments)


def _instances(arguments: Arguments) -> None:
    """Copies of the sharded optimizer: a group has the data-parallel ranks over their number."""
    draft = arguments.draft
    copies = arguments.size("num_distributed_optimizer_instances")
    if copies is None or copies == 1:
        return
    gpus, split = draft.fact("gpus"), 1
    for key in _SPLIT:
        split *= int(str(draft.fact(key) or 1))
    if isinstance(gpus, int) and gpus % (split * copies) == 0:
        group = gpus // split * int(str(draft.fact("layout.cp") or 1)) // copies
        draft.derive("layout.zero_group", group, ("gpus", *_SPLIT), f"{copies} copies of the optimizer")
    else:
        arguments.lose("num_distributed_optimizer_instances", "keeps several copies of the optimizer")


def _offload(arguments: Arguments) -> None:
    optimizer = arguments.on("optimizer_cpu_offload")
    layers = arguments.take("cpu_offloading_num_layers")
    activations = arguments.on("fine_grained_activation_offloading", "cpu_offloading")
    if activations is None and layers is not None and is_on(layers.value):
        activations = layers
    fine = arguments.on("fine_grained_activation_offloading")
    if fine is None and layers is not None and is_on(layers.value):
        arguments.draft.state("layout.offload_layers", arguments.draft.value(layers, whole), layers)
    words = [OPTIMIZER] * (optimizer is not None) + [ACTIVATIONS] * (activations is not None)
    arguments.draft.state("layout.offload", "+".join(words) or None, optimizer or activations)
    arguments.draft.default("layout.offload", NONE)
    share = arguments.take("optimizer_offload_fraction")
    if optimizer is not None and share is not None:
        arguments.draft.state("layout.offload_fraction", arguments.draft.value(share, number), share)


def _recompute(arguments: Arguments) -> None:
    """Granularity full runs the layers again that the method says, selective the modules that are listed."""
    draft = arguments.draft
    granularity = arguments.take("recompute_granularity", "activations_checkpoint_granularity")
    method = arguments.take("recompute_method", "activations_checkpoint_method")
    modules = arguments.take("recompute_modules")
    briefly, old = arguments.on("recompute_activations"), arguments.on("checkpoint_activations")
    if granularity is None and briefly is not None:
        draft.state("layout.recompute", "selective", briefly)
    elif granularity is None and (old is not None or (method is not None and is_on(method.value))):
        draft.state("layout.recompute", "full", old or method)
    elif granularity is not None:
        word = plain(granularity.value)
        draft.state("layout.recompute", word if word in ("full", "selective") else "none", granularity)
    arguments.default("layout.recompute", "none", "", "recompute_granularity", "recompute_method")
    if draft.fact("layout.recompute") == "full":
        _recomputed_layers(arguments, method)
    else:
        arguments.take("recompute_num_layers", "activations_checkpoint_num_layers")
    if modules is not None and draft.fact("layout.recompute") == "selective":
        words = [str(word) for word in listed(modules.value) or ()]
        known = [word for word in words if word in RECOMPUTE_MODULES]
        draft.state("layout.recompute_modules", tuple(known) or None, modules)
        if others := [word for word in words if word not in known]:
            arguments.lose("recompute_modules", f"recomputes {', '.join(others)} too")


def _recomputed_layers(arguments: Arguments, method: Written | None) -> None:
    """With method block the first layers of every chunk of a stage, with uniform all, checkpointed in groups."""
    draft = arguments.draft
    layers = arguments.read(whole, "recompute_num_layers", "activations_checkpoint_num_layers")
    if method is None or layers is None:
        return
    count, written = int(str(layers[0])), layers[1]
    if plain(method.value) == "block" and count == 0:
        draft.drop("layout.recompute")
        draft.state("layout.recompute", "none", written, "no layer is recomputed")
    elif plain(method.value) == "block" and count > 0:
        chunks = int(str(draft.fact("layout.vpp") or 1))
        note = f"{count} of each of {chunks} chunks" if chunks > 1 else ""
        draft.state("layout.recompute_layers", count * chunks, written, note)
    elif count > 1:
        arguments.lose("recompute_num_layers", "keeps one checkpoint for a group of layers")


def _optimizer(arguments: Arguments) -> None:
    draft = arguments.draft
    found = arguments.peek("optimizer")
    if found is not None and plain(found.value) in _MUON:
        draft.state("optimizer", MUON, arguments.take("optimizer"))
    for key in arguments.named("optimizer"):
        if draft.keys.get(key) is found:
            state_optimizer(draft, key, found)
    arguments.default("optimizer", "adamw", "adam with decoupled weight decay", "optimizer")


def _attention(arguments: Arguments) -> None:
    draft = arguments.draft
    flash = arguments.on("use_flash_attn", "use_flash_attention")
    local = arguments.peek("transformer_impl")
    if flash is not None:
        draft.state("attention", "flash", flash)
    elif local is not None and plain(local.value) == "local":
        draft.state("attention", "eager", local, "local layers without flash attention")
    arguments.default("attention", "flash", "Transformer Engine's choice", "attention_backend", "transformer_impl")


def _dropout(arguments: Arguments) -> None:
    """One rate stands for both; where they differ it is the larger one."""
    found = [arguments.read(number, name) for name in ("hidden_dropout", "attention_dropout")]
    said = [each for each in found if each is not None]
    if not said:
        arguments.default("train.dropout", DROPOUT, "", "hidden_dropout", "attention_dropout")
        return
    hidden, attention = (float(str(each[0])) if each else DROPOUT for each in found)
    note = "" if hidden == attention else f"{hidden:g} of hidden states, {attention:g} of attention"
    arguments.draft.state("train.dropout", max(hidden, attention), said[0][1], note)


def _ramp_up(arguments: Arguments) -> None:
    """The first batch, what it grows by, and samples until it is whole."""
    draft = arguments.draft
    found = arguments.take("rampup_batch_size")
    words = listed(found.value) if found is not None else None
    if words is None or not is_on(words[0]):
        return
    sizes = tuple(int(word) for word in words if word.isdecimal())
    whole = int(str(draft.fact("train.global_batch") or 0))
    growing = len(sizes) == len(words) == _RAMP and min(sizes) > 0
    if growing and sizes[0] < whole and (whole - sizes[0]) % sizes[1] == 0:
        draft.state("train.batch_ramp_up", sizes, found)
    elif not growing or sizes[0] != whole:
        arguments.lose("rampup_batch_size", "starts with smaller batches, which do not lead to the global one")


def _batches(arguments: Arguments) -> None:
    draft = arguments.draft
    schedule = arguments.peek("step_batch_size_schedule")
    if schedule is not None and "train.global_batch" not in draft.facts:
        last = str(schedule.value).split()[-1:] or [""]
        size = last[0].rpartition(":")[2]
        draft.state("train.global_batch", int(size) if size.isdecimal() else None, schedule, "in the end")
    if "train.global_batch" not in draft.facts:
        note = "the global batch is one micro-batch of each replica"
        arguments.default("train.grad_accum", 1, note, "global_batch_size", "step_batch_size_schedule")
    samples = arguments.read(positive_or_open, "train_samples")
    batch = draft.fact("train.global_batch")
    if samples is None or "train.steps" in draft.facts:
        return
    if isinstance(batch, int):
        draft.state("train.steps", int(str(samples[0])) // batch, samples[1], f"{samples[0]} samples / {batch}")
    else:
        arguments.lose("train_samples", "says steps only together with the global batch")


def _saving(arguments: Arguments) -> None:
    """Checkpoints are written where a folder is named; evaluations take a number of global batches."""
    draft = arguments.draft
    every = arguments.read(interval, "save_interval", "persistent_save_interval")
    if every is not None:
        draft.state("train.checkpoint_every", every[0], every[1])
    if "train.checkpoint_every" not in draft.facts:
        draft.drop("train.async_checkpoint")
    iterations = arguments.read(whole, "eval_iters")
    between = arguments.read(interval, "eval_interval")
    if between is None or (iterations is not None and iterations[0] == 0):
        return
    draft.state("train.evaluate_every", between[0], between[1])
    batch = draft.fact("train.global_batch")
    if iterations is not None and isinstance(batch, int):
        samples = int(str(iterations[0])) * batch
        draft.state("train.evaluate_samples", samples, iterations[1], f"{iterations[0]} global batches")


def _loss(arguments: Arguments) -> None:
    fused = arguments.peek("cross_entropy_loss_fusion")
    kernel = arguments.take("cross_entropy_fusion_impl")
    if fused is not None and is_on(fused.value) and kernel is not None and plain(kernel.value) == "te":
        arguments.draft.state("loss", "flash", kernel, "Transformer Engine's kernel rewrites the logits in place")
        arguments.take("cross_entropy_loss_fusion")
