"""Number formats that gradients are kept and exchanged in, against bytes counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.communication import exchange_once_a_step
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory_parts import buckets, gradients, update_workspace

PARAMETERS = 6_738_415_616  # of Llama 2 7B


def whole(part: object) -> float:
    return float(np.max(getattr(part, "value", part)))


@pytest.mark.parametrize(
    ("stack", "asked", "kept", "reduced", "transient"),
    [
        ("megatron-lm", {}, 4, 4, 0),
        ("megatron-lm", {"train__gradient_dtype": "bf16"}, 2, 2, 4),
        ("megatron-lm", {"train__gradient_dtype": "fp16", "precision": "fp16"}, 2, 2, 4),
        ("megatron-lm", {"precision": "fp16"}, 2, 2, 4),  # arguments.py: float32 unasked in bf16 alone
        ("megatron-lm", {"train__gradient_dtype": "fp32", "precision": "fp16"}, 4, 4, 0),
        ("megatron-lm", {"train__gradient_dtype": "bf16", "precision": "fp8"}, 2, 2, 4),
        ("megatron-lm", {"train__gradient_dtype": "bf16", "optimizer": "adamw-precision-aware"}, 2, 2, 0),
        ("nemo", {}, 2, 2, 4),
        ("nemo", {"train__gradient_dtype": "fp32"}, 4, 4, 0),
    ],
)
def test_megatron_keeps_and_exchanges_gradients_in_one_buffer(
    stack: str, asked: dict[str, str], kept: int, reduced: int, transient: int
) -> None:
    """All of them on each of 4 replicas; the share of the update is cast to float32 where it has float32 masters."""
    found = Evaluation(job(stack=stack, **asked), layouts(dp=4, zero=1))
    assert whole(gradients(found)) == pytest.approx(kept * PARAMETERS)
    assert found.sizes.reduce == reduced
    assert whole(update_workspace(found)) == pytest.approx(transient * PARAMETERS / 4)


def test_all_gradients_of_16_bit_are_copied_where_no_update_is_shared() -> None:
    """Megatron-LM core/optimizer/optimizer.py, main_param.grad = model_param.main_grad.float()."""
    found = Evaluation(job(stack="megatron-lm", train__gradient_dtype="bf16"), layouts(dp=4, zero=0))
    assert whole(update_workspace(found)) == pytest.approx(4 * PARAMETERS)


@pytest.mark.parametrize(("zero", "share"), [(1, 1), (2, 8), (3, 8)])
def test_deepspeed_adds_gradients_up_in_a_type_and_exchanges_them_in_another(zero: int, share: int) -> None:
    """Of 8 ranks; the backward makes them in 16 bit whatever they are added up in. A bucket holds all of them."""

    def of(**asked: str) -> Evaluation:
        made = job(stack="deepspeed", layout__bucket_gib=100.0, **asked)
        return Evaluation(made, layouts(dp=8, zero=zero, grad_accum=2))

    plain, wide, sent = of(), of(train__gradient_dtype="fp32"), of(train__reduce_dtype="fp32")
    kept = [whole(gradients(each)) * share / PARAMETERS for each in (plain, wide, sent)]
    assert kept == pytest.approx([2, 4, 2])
    assert [each.sizes.fresh_gradient for each in (plain, wide, sent)] == [2, 2, 2]
    assert [whole(buckets(each)) / PARAMETERS for each in (plain, wide, sent)] == pytest.approx([2, 2, 4])


def test_twice_the_bytes_take_longer_to_reduce() -> None:
    """Reduce-scatter of 4 bytes and gather of 2 against 2 and 2, where the bandwidth alone counts: 3 to 2."""
    narrow, wide = (
        exchange_once_a_step(Evaluation(job(stack="megatron-lm", train__gradient_dtype=dtype), layouts(dp=8, zero=1)))
        for dtype in ("bf16", "fp32")
    )
    assert float(wide[0] / narrow[0]) == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(("dtype", "waiting"), [("fp32", 4), ("bf16", 2)])
def test_fsdp2_adds_up_what_waits_in_the_type_of_the_reduction(dtype: str, waiting: int) -> None:
    """NeMo AutoModel reduces with the last micro-batch; what is reduced has the type of the weights, 2 bytes."""
    found = Evaluation(job(stack="nemo-automodel", train__reduce_dtype=dtype), layouts(dp=8, zero=3, grad_accum=4))
    assert whole(gradients(found)) == pytest.approx(waiting * PARAMETERS)
    once = Evaluation(job(stack="nemo-automodel", train__reduce_dtype=dtype), layouts(dp=8, zero=3))
    assert float(gradients(once)[0, -1, 0]) == pytest.approx(2 * PARAMETERS / 8)


@pytest.mark.parametrize(
    ("stack", "key", "dtype", "hint"),
    [
        ("megatron-lm", "gradient", "fp16", "it has fp32, bf16"),
        ("megatron-lm", "reduce", "bf16", "how it exchanges them is part of the stack"),
        ("hf-trainer", "gradient", "fp32", "how it keeps them is part of the stack"),
        ("torchtitan", "reduce", "bf16", "it has fp32"),
        ("nemo-rl", "reduce", "bf16", "it has fp32"),
        ("nemo@2023", "gradient", "bf16", "how it keeps them is part of the stack"),
    ],
)
def test_what_a_stack_has_no_choice_of_is_refused(stack: str, key: str, dtype: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        ask({"model": "llama-2-7b", "gpus": 8, "stack": stack, f"train.{key}_dtype": dtype})
    (problem,) = caught.value.problems
    does = {"gradient": "keep", "reduce": "exchange"}[key]
    assert f"cannot {does} gradients in {dtype} at precision bf16" in problem.message
    assert problem.hint == hint


def test_the_choice_is_noted_with_the_result() -> None:
    values = ask({"model": "llama-2-7b", "gpus": 8, "stack": "megatron-lm"}).values.train
    assert (values.gradient_dtype, values.reduce_dtype) == ("fp32", None)
    values = ask({"model": "llama-2-7b", "gpus": 8, "stack": "deepspeed", "precision": "fp16"}).values.train
    assert (values.gradient_dtype, values.reduce_dtype) == ("fp16", "fp16")
