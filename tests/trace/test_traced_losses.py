"""The next token's loss as trainers without a compiled one compute it: bytes of a logit in forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra [trace]")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from tests.trace.emulation import gpu_like
from tests.trace.tracer import MemoryTracer
from xe_sizer.graph.operators import LOG_PROBABILITIES, LOSSES

TOKENS, VOCABULARY, HIDDEN = 2048, 32_000, 64


@pytest.mark.parametrize(("kernel", "lets_go"), [("eager", True), ("eager-returned", False)])
def test_bytes_of_a_logit_of_cross_entropy(kernel: str, lets_go: bool) -> None:
    """`del pred` before the backward (torchtitan, torchtune), or `out` in the frame of it (NeMo AutoModel)."""
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_like():
        head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16)
        state = torch.zeros(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(TOKENS, dtype=torch.int64)
        tracer = MemoryTracer(head)
        tracer.hold([*head.parameters(), state], "weights and input")
        before = tracer.live_bytes
        with tracer.following():
            with tracer.phase("forward") as forward:
                logits = head(state)
                loss = torch.nn.functional.cross_entropy(logits.float(), labels)
                if lets_go:
                    del logits
            with tracer.phase("backward") as backward:
                loss.backward()
    each = [(size - before) / (TOKENS * VOCABULARY) for size in (forward.end_bytes, backward.peak_bytes)]
    assert each == pytest.approx([LOSSES[kernel].kept_bytes, LOSSES[kernel].live_bytes], rel=0.02)


class _Chunks(torch.autograd.Function):
    """Log-probabilities of 512 tokens at a time, whose logits the backward makes again (verl's FusedLinearForPPO)."""

    tokens = 512

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(states, weight, labels)
        found = torch.zeros(len(states), dtype=torch.float32)
        for start in range(0, len(states), _Chunks.tokens):
            part = slice(start, start + _Chunks.tokens)
            found[part] = _Chunks.passed(states[part], weight, labels[part])
        return found

    @staticmethod
    def passed(states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = ((states @ weight.t()) / 0.9).to(torch.float32)
        shares = logits.softmax(dim=-1)
        _entropy = torch.logsumexp(logits, dim=-1) - torch.sum(shares * logits, dim=-1)
        return logits.log_softmax(dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        states, weight, labels = ctx.saved_tensors
        of_states, of_weight = torch.zeros_like(states), torch.zeros_like(weight)
        for start in range(0, len(states), _Chunks.tokens):
            part = slice(start, start + _Chunks.tokens)
            ours, theirs = _Chunks.turned(states[part], weight, labels[part], gradients[0][part])
            of_states[part] += ours
            of_weight += theirs
        return of_states, of_weight, None

    @staticmethod
    def turned(
        states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = (states @ weight.t()) / 0.9
        narrow = logits.dtype
        logits = logits.to(torch.float32)
        shares = logits.softmax(dim=-1)
        summed = 0.0
        one_hot = torch.zeros_like(logits).scatter_(-1, labels.unsqueeze(-1), 1)
        summed += gradient.unsqueeze(-1) * (one_hot - shares)
        of_logits = torch.as_tensor(summed).to(narrow) / 0.9
        return of_logits @ weight, of_logits.t() @ states


@pytest.mark.parametrize("learns", [True, False])
def test_bytes_of_a_logit_of_verl_s_chunks(learns: bool) -> None:
    """Of 512 tokens, however many there are; and the gradient of the head twice, of a chunk and of all."""
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_like():
        head = torch.zeros(VOCABULARY, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        states = torch.zeros(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(TOKENS, dtype=torch.int64)
        tracer = MemoryTracer(torch.nn.Module())
        tracer.hold([head, states, labels], "weights and input")
        before = tracer.live_bytes
        with tracer.following(), tracer.phase("pass") as passed, torch.set_grad_enabled(learns):
            found = _Chunks.apply(states, head, labels)
            if learns:
                found.mean().backward()
    kernel = LOG_PROBABILITIES["chunked-512"]
    sums = 2 * HIDDEN * VOCABULARY * 2 if learns else 0
    each = (passed.peak_bytes - before - sums) / (kernel.tokens * VOCABULARY)
    assert each == pytest.approx(kernel.live_bytes if learns else kernel.frozen_bytes, rel=0.03)


def allocated_bytes(step: Callable[[], object]) -> int:
    """The most that PyTorch's allocator has handed out while a step runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    changes = [(e.start_ns(), e.nbytes()) for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    most = held = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        held += size
        most = max(most, held)
    return most


@pytest.mark.parametrize("job", ["pairs", "policy"])
def test_bytes_of_a_logit_of_liger_s_chunks(job: str) -> None:
    """Of a pair, in what torch.compile makes of it; of a policy 2,048 tokens with 4,096 words."""
    losses = pytest.importorskip("liger_kernel.chunked_loss", reason="pip install --no-deps liger-kernel")
    length, batch = 512, 4
    head = torch.zeros(VOCABULARY, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    states = torch.zeros(batch, length, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(batch, length, dtype=torch.int64)
    if job == "pairs":
        compare, kernel = losses.LigerFusedLinearDPOLoss(use_ref_model=False), LOG_PROBABILITIES["chunked"]
        sums, logits = 2 * head.numel() * 2, kernel.sequences * length * VOCABULARY

        def step() -> None:
            compare(head, states, labels)[0].backward()
    else:
        learn, kernel = losses.LigerFusedLinearGRPOLoss(use_ref_model=False, beta=0.0), LOG_PROBABILITIES["streamed"]
        sums, logits = head.numel() * (2 + 4), length * kernel.words  # an answer has fewer tokens than a chunk

        def step() -> None:
            learn(states, head, labels, torch.ones(batch, length), torch.ones(batch))[0].backward()

    step()  # which compiles it
    head.grad = states.grad = None
    assert (allocated_bytes(step) - sums) / logits == pytest.approx(kernel.live_bytes, rel=0.05)
