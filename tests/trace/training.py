"""A training step of a case under the tracer, as the Trainer of transformers runs it on one GPU."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import peft
import torch
import transformers
from accelerate.utils.operations import convert_to_fp32  # type: ignore[import-untyped]
from msgspec.structs import replace
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.trace.adapters import KINDS
from tests.trace.emulation import gpu_like, recomputation
from tests.trace.matrix import TAUGHT, TAUGHT_BY, Case
from tests.trace.objectives import OBJECTIVES, Companion
from tests.trace.optimizers import Updates, optimizer_of
from tests.trace.quantised import quantise
from tests.trace.subjects import DECODER, ENCODER, SEQUENCES, shape_of
from tests.trace.tracer import MemoryTracer, Phase

ADAPTER_DROPOUT = 0.05
MAX_GRAD_NORM = 1.0  # the Trainer's default
VERSIONS = {module.__name__: str(module.__version__) for module in (torch, transformers, peft)}


@dataclass(frozen=True)
class Traced:
    """Live tensors of the step [bytes]. `parameters` counts the base model's, `adapters` what LoRA adds."""

    parameters: int
    adapters: int
    weights_bytes: int
    states_bytes: int
    forward: Phase
    backward: Phase
    optimizer: Phase

    @property
    def worst(self) -> Phase:
        return max(self.forward, self.backward, self.optimizer, key=lambda phase: phase.peak_bytes)


def _config(case: Case) -> Any:
    subject = case.subject
    shape = shape_of(subject, case.layers, case.length)
    dropout = subject.dropout if case.dropout else {}
    made = getattr(transformers, subject.config_class)
    return made(**{**subject.sizes(shape), **subject.fixed, **dropout}, use_cache=False)


def _task(case: Case) -> str | None:
    """What peft calls it; nothing where no module beside the adapters shall learn."""
    if case.job == "reward":
        return "SEQ_CLS"
    return "CAUSAL_LM" if case.subject.classes[1] == DECODER and case.job != "embedding" else None


def _adapted(base: Any, case: Case) -> Any:
    if case.adapter:
        return peft.get_peft_model(base, KINDS[case.adapter].of(case))
    targets = case.targets
    chosen = targets[0] if targets == ("all-linear",) else list(targets)
    options = peft.LoraConfig(
        r=case.rank,
        lora_alpha=16,
        target_modules=chosen,
        lora_dropout=ADAPTER_DROPOUT * case.adapter_dropout,
        modules_to_save=list(case.subject.ends) if case.saved else None,
        task_type=_task(case),
    )
    model = peft.get_peft_model(base, options)
    adapters = [(name, weight) for name, weight in model.named_parameters() if "lora_" in name]
    wrong = [name for name, weight in adapters if weight.requires_grad and weight.element_size() != 4]
    assert not wrong, f"adapters are not float32: {wrong}"
    return model


def build(case: Case) -> tuple[Any, int]:
    """The model, ready to train, and the number of its base parameters."""
    learns_wide = case.dtype == "autocast" and case.method == "full" and not case.adapter
    config, auto = _config(case), case.subject.classes[int(case.method != "full")]
    if case.job == "reward":
        config.num_labels, config.pad_token_id = 1, 0
        auto = "AutoModelForSequenceClassification"
    if case.job == "embedding":
        auto = "AutoModel"
    model = getattr(transformers, auto).from_config(
        config,
        dtype=torch.float32 if learns_wide else torch.bfloat16,
        attn_implementation=case.attention,
    )
    parameters = sum(weight.numel() for weight in model.parameters())
    if case.quantised:
        quantise(model)
    if case.recompute:
        options = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": recomputation}
        model.gradient_checkpointing_enable(options)
    if case.method != "full" or case.adapter:
        if case.recompute:
            model.enable_input_require_grads()
        model = _adapted(model, case)
    if case.trainable_layers:
        model.requires_grad_(False)
        for layer in model.model.layers[-case.trainable_layers :]:
            layer.requires_grad_(True)
    model.train()
    return model, parameters


def _labels(tokens: torch.Tensor, case: Case) -> torch.Tensor:
    """Every token; of sequences from sequences a quarter as many; of a classifier one class a sequence."""
    chosen = case.subject.classes[int(case.method != "full")]
    if chosen == ENCODER[1]:
        return torch.ones(case.batch, dtype=torch.int64)
    return tokens[:, : case.length // 4].contiguous() if chosen == SEQUENCES else tokens


def _loss(model: Any, tokens: torch.Tensor, case: Case) -> torch.Tensor:
    """The loss alone leaves: the model's other outputs are dropped before the backward, as in the Trainer."""
    autocast = case.dtype == "autocast"
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = model(input_ids=tokens, labels=_labels(tokens, case))
    if autocast:
        outputs = convert_to_fp32(outputs)  # as accelerate wraps a model's forward
    return outputs["loss"]  # type: ignore[no-any-return]


def _companion(model: Any, case: Case, tracer: MemoryTracer) -> Companion:
    """What stands frozen beside the model: a copy as it was loaded, the model without its adapters, or a teacher."""
    if case.job in TAUGHT or case.reference == "copy":
        layers = TAUGHT_BY * case.layers if case.job in TAUGHT else case.layers
        other, _ = build(replace(case, method="full", layers=layers, recompute=False))
        other.eval().requires_grad_(False)
        tracer.hold(other.parameters(), "frozen weights")
        return Companion(other, nullcontext)
    return Companion(model, model.disable_adapter if case.reference else None)


def _forward_backward(
    tracer: MemoryTracer, model: Any, optimizer: Updates, case: Case, beside: Companion
) -> tuple[Phase, Phase]:
    """The graph ends with this function, before the optimizer runs, as it does with the Trainer's training_step."""
    tokens = torch.ones(case.batch, case.length, dtype=torch.int64)
    compute = OBJECTIVES.get((case.job, case.framework))

    def run(one: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=case.dtype == "autocast"):
            outputs = one(input_ids=tokens)
        return convert_to_fp32(outputs) if case.dtype == "autocast" else outputs

    with tracer.phase("forward") as forward:
        loss = compute(run, model, beside, tokens) if compute else _loss(model, tokens, case)
    with tracer.phase("backward") as backward:
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.end_backward()
    return forward, backward


def _step(tracer: MemoryTracer, model: Any, optimizer: Updates, case: Case, beside: Companion) -> tuple[Phase, ...]:
    forward, backward = _forward_backward(tracer, model, optimizer, case, beside)
    with tracer.phase("optimizer") as update:
        if not optimizer.in_backward:
            torch.nn.utils.clip_grad_norm_(optimizer.weights, MAX_GRAD_NORM)
        optimizer.step()
    idle = optimizer.drop_idle()
    optimizer.zero_grad()
    # States that a real first step would not have made: once more without them.
    return _step(tracer, model, optimizer, case, beside) if idle else (forward, backward, update)


def _update_once(optimizer: Updates) -> None:
    """Make the optimizer's states, which exist from the second step on, by an update with gradients of zeros."""
    for weight in optimizer.weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad()


def trace(case: Case) -> Traced:
    """Trace one case. Takes about a second; nothing is computed and no weight is allocated."""
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), gpu_like():
        warnings.simplefilter("ignore")
        model, parameters = build(case)
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = optimizer_of(case.optimizer, model)
        tracer = MemoryTracer(model)
        tracer.hold(model.parameters(), "weights")
        weights_bytes = tracer.live_bytes
        beside = _companion(model, case, tracer)
        frozen_bytes = tracer.live_bytes - weights_bytes
        tracer.hold(model.buffers(), "buffers")
        tracer.hold(optimizer.made_before(), "states")
        with tracer.following():
            if optimizer.in_backward:  # an update of a weight needs a backward
                _step(tracer, model, optimizer, case, beside)
            else:
                _update_once(optimizer)
            phases = _step(tracer, model, optimizer, case, beside)
        states_bytes = tracer.live_bytes - weights_bytes - frozen_bytes
    adapters = sum(weight.numel() for weight in learning) if case.rank or case.adapter else 0
    return Traced(parameters, adapters, weights_bytes, states_bytes, *phases)
