"""The next token's loss as trainers without a compiled one compute it: bytes of a logit in forward and backward."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra [trace]")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.trace.emulation import gpu_like
from tests.trace.tracer import MemoryTracer
from xe_sizer.graph.operators import LOSSES

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
