"""The chosen plan under flat scenario keys, and which of them an exporter has said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NEUTRAL: Mapping[str, frozenset[object]] = {
    **dict.fromkeys(("layout.tp", "layout.pp", "layout.vpp", "layout.cp", "layout.ep"), frozenset({1})),
    **dict.fromkeys(("layout.offload", "layout.recompute"), frozenset({"none"})),
    "layout.zero": frozenset({0}),
    **dict.fromkeys(("layout.zero_group", "layout.expert_tp"), frozenset({0})),
    "layout.sequence_parallel": frozenset({False}),
    "layout.schedule": frozenset({"1f1b", "1f1b-interleaved"}),
    "train.grad_accum": frozenset({1}),
    "lora.dora": frozenset({False}),
    "lora.dropout": frozenset({0}),
    "train.dropout": frozenset({0}),
    "rollout.oversampling": frozenset({1}),
    "rollout.updates": frozenset({1}),
    "rollout.offload": frozenset({"none"}),
    **dict.fromkeys(("rollout.tp", "rollout.pp", "rollout.ep"), frozenset({1})),
    **dict.fromkeys(("train.reference", "train.reward_model"), frozenset({"none"})),
    "adapter": frozenset({"none"}),
    "train.backend": frozenset({"fsdp"}),
    "serve.kv_cache": frozenset({"bf16", "fp16"}),
    "serve.weights": frozenset({"bf16", "fp16"}),
}
"""Values that say nothing: a tool that has no word for the key runs them anyway."""
DECIDES = (
    "model", "job", "layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero", "layout.offload",
    "layout.recompute", "train.micro_batch", "train.grad_accum", "train.seq_len", "lora.rank", "train.bits",
    "adapter", "train.teacher_model", "rollout.gpus", "rollout.prompts",
)  # fmt: skip
"""Keys without which the tool would run another plan."""
_TOLD = (
    *DECIDES, "train.reference", "layout.vpp", "layout.sequence_parallel", "layout.schedule", "layout.zero_group",
    "train.batch_ramp_up", "layout.stages", "layout.first_stage_layers", "layout.last_stage_layers",
    "layout.expert_tp", "layout.cp_kind", "layout.offload_layers", "layout.recompute_modules",
    "train.padding", "train.weights_dtype", "train.fused_kernels", "optimizer", "attention", "loss", "lora.targets",
    "lora.dropout", "lora.dora", "lora.modules_to_save", "precision", "serve.weights", "serve.kv_cache",
    "serve.kv_host_gib", "serve.adapters", "serve.prefill_replicas", "serve.batch_wait_iters",
    "serve.scheduler_recv_interval", "train.critic_model", "train.reward_model", "rollout.group",
    "rollout.max_output_tokens", "rollout.updates", "rollout.engine", "rollout.tp", "rollout.pp",
    "rollout.ep", "rollout.asynchronous", "rollout.oversampling", "rollout.weights", "rollout.sleep",
    "rollout.offload", "train.backend", "layout.bucket_gib",
)  # fmt: skip


class Plan:
    """What is to be run. `take` marks a key as said; what is left the tool has no word for.

    values : flat scenario keys in the words of scenarios; `model` is a repository of the Hub where one is known
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = {key: _whole(value) for key, value in values.items() if value is not None}
        self._said: set[str] = set()

    def take(self, key: str, otherwise: Any = None) -> Any:
        """The value of a key, which is said with it."""
        self._said.add(key)
        return self.values.get(key, otherwise)

    def peek(self, key: str, otherwise: Any = None) -> Any:
        """The value of a key, which stays to be said."""
        return self.values.get(key, otherwise)

    def said(self, *keys: str) -> None:
        """These keys are said by others, or by how the tool works."""
        self._said.update(keys)

    def left(self) -> Iterator[tuple[str, Any]]:
        """Keys with their values that nothing has said though they change memory or time."""
        for key in _TOLD:
            value = self.values.get(key)
            if key in self.values and key not in self._said and not _is_neutral(key, value):
                yield key, value


def _is_neutral(key: str, value: Any) -> bool:
    return any(value == each for each in NEUTRAL.get(key, ()))


def _whole(value: Any) -> Any:
    """2.0 as 2, which is how people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plan_of(answer: Mapping[str, Any], repository: str | None) -> Plan:
    """The plan of an answer of `estimate` or `serve`, as JSON has it.

    repository : where the model lies on the Hugging Face Hub; None leaves the name of its profile
    """
    values = dict(_flat({key: value for key, value in answer["scenario"].items() if key not in ("names", "origin")}))
    layout = dict(answer["layout"])
    for key in ("micro_batch", "grad_accum"):
        if key in layout:
            values[f"train.{key}"] = layout.pop(key)
    values |= {f"layout.{key}": value for key, value in layout.items()}
    values |= {key: answer["gpus"][key] for key in ("nodes", "gpus_per_node")}
    values["gpus"] = answer["gpus"]["count"]
    if "replicas" in answer:
        values["replicas"] = answer["replicas"]["count"]
    values["model"] = repository or values["model"]
    return Plan(values)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
