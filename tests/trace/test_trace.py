"""The counter against arithmetic by hand, then the memory ledger against the counter on real Hugging Face models."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.trace.compare import ledger_of, predicted_bytes  # noqa: E402
from tests.trace.emulation import gpu_like  # noqa: E402
from tests.trace.matrix import LAYERS, LONG, Case  # noqa: E402
from tests.trace.subjects import SUBJECTS, shape_of  # noqa: E402
from tests.trace.tracer import MemoryTracer  # noqa: E402
from tests.trace.training import Traced, trace  # noqa: E402
from xe_sizer.graph.weights import count_parameters  # noqa: E402
from xe_sizer.measure.storages import rounded  # noqa: E402

MEDIAN_ERROR = 0.005
WORST_ERROR = 0.03
QUANTISED = ("llama", "mistral", "qwen3", "gemma", "phi", "olmo2")
PLAIN = Case("llama", batch=2, length=1024, layers=2)


@cache
def traced(case: Case) -> Traced:
    return trace(case)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
def test_sizes_of_the_caching_allocator(asked: int, given: int) -> None:
    assert rounded(asked) == given


def test_a_storage_counts_once_and_until_its_last_view_goes() -> None:
    with FakeTensorMode(), MemoryTracer(torch.nn.Module()).following() as tracer:
        base = torch.empty(1000)
        view = base.view(10, 100)
        assert tracer.live_bytes == 4096
        other = view + 1
        assert tracer.live_bytes == 2 * 4096
        other.mul_(2)
        del base
        assert tracer.live_bytes == 2 * 4096
        del view
        assert tracer.live_bytes == 4096
        del other
        assert tracer.live_bytes == 0


def test_what_a_small_network_keeps() -> None:
    """Linear 64 x 128, ReLU, linear 128 x 32 on 16 rows: autograd keeps the input and what the ReLU returns.

    Weights 49152 bytes, input 4096, hidden 8192, output 2048. The ReLU's own input is there until it returns.
    """
    with FakeTensorMode():
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 128, bias=False), torch.nn.ReLU(), torch.nn.Linear(128, 32, bias=False)
        )
        tracer = MemoryTracer(model)
        tracer.hold(model.parameters(), "weights")
        with tracer.following():
            rows = torch.empty(16, 64)
            with tracer.phase("forward") as forward:
                output = model(rows)
    assert output.shape == (16, 32)
    assert forward.end_bytes == 49152 + 4096 + 8192 + 2048
    assert forward.peak_bytes == 49152 + 4096 + 2 * 8192
    assert forward.live["1: relu"] == (8192, 1)


def test_states_of_bf16_training() -> None:
    """2 + 2 + 2 x 2 bytes a parameter once the backward is through; a rounded step count for each tensor."""
    step = traced(PLAIN)
    assert step.weights_bytes == 2 * step.parameters
    assert step.states_bytes == pytest.approx(4 * step.parameters, rel=1e-4)
    assert step.backward.end_bytes == pytest.approx(8 * step.parameters, rel=1e-4)


def test_adapters_are_float32() -> None:
    """r (inputs + outputs) weights on q and v of two layers: 2 x 2 x 8 x 8192, with 4 + 8 bytes each."""
    step = traced(Case("llama", "lora-qv", batch=2, length=1024, layers=2))
    assert step.adapters == 2 * 2 * 8 * 8192
    assert step.weights_bytes == 2 * step.parameters + 4 * step.adapters
    assert step.states_bytes == pytest.approx(8 * step.adapters, rel=0.02)


def test_the_multi_tensor_update_holds_one_copy_more() -> None:
    """The square roots of the second moments, 2 bytes a parameter (torch.optim.adam, _multi_tensor_adamw)."""
    fused, foreach = (
        traced(Case("llama", batch=2, length=1024, layers=2, optimizer=name)) for name in ("fused", "foreach")
    )
    extra = foreach.optimizer.peak_bytes - fused.optimizer.peak_bytes
    assert extra == pytest.approx(2 * fused.parameters, rel=1e-4)


def test_sdpa_keeps_what_a_flash_kernel_keeps() -> None:
    """Output and log-sum-exp, never the scores: 2 x 2048 x 4096 bytes and 4 x 32 x 2048 a layer."""
    live = traced(PLAIN).forward.live
    name = "model.layers.*.self_attn: _scaled_dot_product_flash_attention_for_cpu"
    assert live[name] == (2 * (2 * 2048 * 4096 + 4 * 32 * 2048), 4)


def test_autocast_keeps_16_bit_copies_of_float32_weights() -> None:
    """The down projection's input is 16 bit already, so the only copy is the weights': 2 x 4096 x 11008."""
    step = traced(Case("llama", batch=2, length=1024, layers=2, dtype="autocast"))
    assert step.weights_bytes == 4 * step.parameters
    assert step.forward.live["model.layers.*.mlp.down_proj: _to_copy"] == (2 * 2 * 4096 * 11008, 2)


def test_autocast_has_the_list_of_cuda() -> None:
    rows = torch.ones(4, 8, dtype=torch.bfloat16)
    with gpu_like(), torch.autocast("cpu", torch.bfloat16):
        assert torch.nn.functional.layer_norm(rows, (8,)).dtype == torch.float32
        assert torch.nn.functional.linear(rows, torch.ones(8, 8)).dtype == torch.bfloat16


@pytest.mark.parametrize("dropout", [False, True])
def test_dropout_keeps_a_byte_an_element(dropout: bool) -> None:
    """OPT's class drops after attention and after the MLP: 4 masks of 2048 x 2048 bytes in two layers."""
    live = traced(Case("opt", batch=2, length=1024, layers=2, dropout=dropout)).forward.live
    masks = [size for label, (size, _) in live.items() if label.endswith("native_dropout")]
    assert sum(masks) == (4 * 2048 * 2048 if dropout else 0)


@pytest.mark.parametrize("family", [subject.family for subject in SUBJECTS])
def test_the_traced_model_is_the_catalogue_s(family: str) -> None:
    subject = next(subject for subject in SUBJECTS if subject.family == family)
    case = Case(family, attention=subject.attentions[0])
    assert traced(case).parameters == count_parameters(shape_of(subject, case.layers, case.length)).total


def _compared() -> Iterator[Case]:
    """Every family: all weights and adapters, with recomputation and without, with dropout and without.

    Also embedding and head beside the adapters, and sequences beyond the windows.
    """
    for subject in SUBJECTS:
        attention = subject.attentions[0]
        yield Case(subject.family, "full", attention)
        yield Case(subject.family, "full", attention, recompute=True, batch=4, length=512)
        yield Case(subject.family, "lora-qv", attention, recompute=True, batch=2, length=1024)
        yield Case(subject.family, "lora-all", subject.attentions[-1], batch=2, length=1024)
        yield Case(subject.family, "lora-all", attention, batch=2, length=1024, adapter_dropout=True)
        if not subject.tied:
            yield Case(subject.family, "lora-qv", attention, recompute=True, saved=True)
        if subject.family in QUANTISED:
            yield Case(subject.family, "lora-all", attention, dtype="autocast", quantised=True)
            yield Case(subject.family, "lora-qv", attention, recompute=True, dtype="autocast", quantised=True)
        if subject.dropout:
            yield Case(subject.family, "full", attention, batch=2, length=1024, dropout=True)
        if shape_of(subject, LAYERS, LONG).windowed_layers or subject.family == "cohere":
            yield Case(subject.family, "full", attention, length=LONG)


def _windowed() -> Iterator[Case]:
    """What only models with windows hold: masks, which an encoder of classes makes at a cost that no loss hides.

    In four bits values are cast for the attention; layers that run again keep the masks of the forward.
    """
    for method in ("lora-qv", "lora-all"):
        plain = Case("modernbert", method, batch=2, length=1024)
        yield from (replace(plain, recompute=one, dtype="autocast", quantised=True) for one in (False, True))
        yield from (replace(plain, recompute=True, batch=1, length=length) for length in (2048, LONG))
    yield Case("phi3", "lora-qv", batch=2, length=1024, dtype="autocast", quantised=True)
    yield Case("gemma3", "lora-qv", recompute=True, batch=4, length=1024, job="reward")


def _where_layers_run_again() -> Iterator[Case]:
    """The most is held in a layer's backward: of a ReLU, behind adapters, beside a frozen embedding's output."""
    yield Case("opt", "full", recompute=True, batch=4, length=1024, job="reward")
    yield Case("opt", "lora-qv", recompute=True, batch=4, length=1024, job="reward")
    yield Case("llama", "lora-qv", recompute=True, batch=4, length=1024, job="reward")
    yield Case("mistral", "lora-all", recompute=True, batch=4, length=1024, job="reward")


def _on_the_head() -> Iterator[Case]:
    """Two families: an adapter on the output head beside those of the layers."""
    for family in ("llama", "llama-3"):
        yield Case(family, "lora-qv", on_head=True)
        yield Case(family, "lora-qv", on_head=True, dtype="autocast", adapter_dropout=True)
        yield Case(family, "lora-qv", on_head=True, recompute=True, batch=4, length=1024)


def _preferences() -> Iterator[Case]:
    """Two families: pairs with a copy or with the adapters off, single answers, a likelihood, a teacher, values."""
    for family in ("llama", "qwen2"):
        full = Case(family, "full", recompute=True, batch=4, length=1024, layers=2, dtype="autocast")
        adapted = replace(full, method="lora-all")
        yield replace(full, job="dpo", reference="copy")
        yield replace(adapted, job="dpo", reference="adapters-off")
        yield replace(adapted, job="kto", reference="adapters-off")
        yield from (replace(adapted, job=job) for job in ("orpo", "cpo", "simpo", "distill"))
        yield replace(full, job="reward", layers=LAYERS)
        yield replace(adapted, job="reward", layers=LAYERS)  # the most is held where a layer runs again
    yield replace(full, job="dpo", method="lora-all", reference="adapters-off", dtype="bf16")
    yield replace(full, job="dpo", method="lora-all", reference="copy", framework="llama-factory")
    yield replace(full, job="reward", method="lora-qv", dtype="bf16")
    yield Case("gpt2", "lora-qv", recompute=True, batch=4, length=512, layers=2, dtype="autocast", job="reward")


def _policies() -> Iterator[Case]:
    """Two families: the step of a policy on its own answers, of all weights and of adapters."""
    for family in ("llama", "qwen2"):
        full = Case(family, "full", recompute=True, batch=4, length=1024, layers=2, job="grpo", framework="trl")
        yield replace(full, dtype="autocast")
        yield full
        yield replace(full, method="lora-all", dtype="autocast")
        yield replace(full, method="lora-qv")


def _embeddings() -> Iterator[Case]:
    """An encoder and a decoder, with recomputation and without, all weights and adapters."""
    for family in ("bert", "qwen2"):
        full = Case(family, job="embedding", framework="sentence-transformers", batch=16, length=256, layers=2)
        yield full
        yield replace(full, recompute=True, dtype="autocast")
        yield replace(full, method="lora-qv", recompute=True, layers=LAYERS)
        yield replace(full, method="lora-all", dtype="autocast", layers=LAYERS)  # the most is held inside the forward


def error_of(case: Case) -> float:
    """Relative error of the ledger's peak of live tensors."""
    return predicted_bytes(ledger_of(case)) / traced(case).worst.peak_bytes - 1.0


@pytest.mark.parametrize("case", list(_compared()), ids=lambda case: case.name)
def test_the_ledger_s_peak(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR


def test_the_ledger_s_median_error() -> None:
    assert np.median([abs(error_of(case)) for case in _compared()]) <= MEDIAN_ERROR


@pytest.mark.parametrize("case", [*_windowed(), *_where_layers_run_again()], ids=lambda case: case.name)
def test_the_ledger_s_peak_beyond_logits(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR


@pytest.mark.parametrize("case", list(_on_the_head()), ids=lambda case: case.name)
def test_the_ledger_s_peak_with_an_adapter_on_the_head(case: Case) -> None:
    assert abs(error_of(case)) <= MEDIAN_ERROR


@pytest.mark.parametrize("case", list(_embeddings()), ids=lambda case: case.name)
def test_the_peak_of_an_embedding_model(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR


@pytest.mark.parametrize("case", list(_policies()), ids=lambda case: case.name)
def test_the_ledger_s_peak_of_a_policy_s_step(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR


def test_the_ledger_s_median_error_of_policies() -> None:
    assert np.median([abs(error_of(case)) for case in _policies()]) <= MEDIAN_ERROR


@pytest.mark.parametrize("case", list(_preferences()), ids=lambda case: case.name)
def test_the_ledger_s_peak_of_jobs_that_compare(case: Case) -> None:
    assert abs(error_of(case)) <= WORST_ERROR
