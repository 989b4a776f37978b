"""Accelerators that are not GPUs: graphs on Gaudi, NeuronCores of Trainium."""

import pytest

from xe_sizer.evidence.names import choose_stack
from xe_sizer.evidence.predict import PredictedRecord, predict_records
from xe_sizer.evidence.records import Batch, LayoutStated, Lora, Measured, Record
from xe_sizer.training.estimate import TrainingEstimate


def predicted(**conditions: object) -> TrainingEstimate:
    """The run as it is predicted."""
    record = Record(id="r", measured=Measured(step_time_s=1.0), **conditions)  # type: ignore[arg-type]
    (found,) = predict_records([record])
    assert isinstance(found, PredictedRecord)
    return found.sized


def predicted_s(**conditions: object) -> float:
    """Predicted time of a step."""
    return predicted(**conditions).step_s


def on_gaudi(gpu: str, micro: int, seq_len: int, accumulation: int = 1) -> float:
    """LoRA of Llama 7B on one card."""
    return predicted_s(
        job="lora", stack="optimum-habana", model="llama-7b", gpu=gpu, gpus=1, seq_len=seq_len, packing=True,
        batch=Batch(micro=micro, grad_accum=accumulation), lora=Lora(rank=8, targets="q,v"), recompute="none",
    )  # fmt: skip


def test_short_steps_on_gaudi_take_the_host_s_time_for_each_micro_batch() -> None:
    """Prompt tuning of a 7B model on 72 tokens takes 127 ms on Gaudi 2 and 130 on Gaudi 3 (Optimum Habana's tests)."""
    short, shorter, twice = on_gaudi("gaudi2", 1, 64), on_gaudi("gaudi3", 1, 32), on_gaudi("gaudi3", 1, 32, 2)
    assert short == pytest.approx(shorter, rel=0.1)
    assert 0.08 < shorter < 0.2
    assert twice == pytest.approx(2 * shorter, rel=0.15)


def test_long_steps_on_gaudi_3_take_about_six_tenths_of_those_on_gaudi_2() -> None:
    """0.868 and 0.536 s for 16 x 512 tokens (Optimum Habana's tests)."""
    two, three = on_gaudi("gaudi2", 16, 512), on_gaudi("gaudi3", 16, 512)
    assert three / two == pytest.approx(0.536 / 0.868, rel=0.1)
    assert two == pytest.approx(0.868, rel=0.15)


def exchanged_s(**conditions: object) -> float:
    """Gradients and weights of Gemma 2B between eight Gaudi 2."""
    layout = LayoutStated(dp=8, zero=conditions.pop("zero"))  # type: ignore[arg-type]
    found = predicted(
        job="pretrain", stack="optimum-habana", model="gemma-2b", gpu="gaudi2", gpus=8, seq_len=1024, packing=True,
        batch=Batch(micro=4, total=32), layout=layout, **conditions,
    )  # fmt: skip
    return found.component_s["data-parallel communication"]


def test_whole_gradients_are_reduced_on_gaudi_where_deepspeed_scatters_none() -> None:
    """reduce_scatter is off in its DeepSpeed configurations: an all-reduce and an all-gather, three parts of 7/8."""
    first, second = exchanged_s(backend="deepspeed", zero=1), exchanged_s(backend="deepspeed", zero=2)
    assert second == pytest.approx(first)
    parameters, bytes_per_s = 2.506e9, 0.85 * 262.5e9
    assert second == pytest.approx(3 * 7 / 8 * 2 * parameters / bytes_per_s, rel=0.05)


def test_degrees_on_trainium_count_neuroncores() -> None:
    """Llama 3.1 8B on 512 chips: tensor parallel 32 is one trn1.32xlarge, 21.4 s for 1,024 x 8,192 tokens (AWS)."""
    found = predicted_s(
        job="pretrain", stack="neuronx-distributed", model="llama-3.1-8b", gpu="trainium1", gpus=512, gpus_per_node=16,
        seq_len=8192, packing=True, layout=LayoutStated(tp=32, pp=1, dp=32, zero=1), recompute="selective",
        batch=Batch(micro=1, total=1024),
    )  # fmt: skip
    assert found == pytest.approx(1024 / 47.95, rel=0.25)


@pytest.mark.parametrize(
    "name", ["neuron", "nxd", "optimum-neuron", "neuronx-nemo-megatron", "neuronx-distributed-training"]
)
def test_names_of_neuron_s_libraries_are_priced_as_neuronx_distributed(name: str) -> None:
    chosen = choose_stack(Record(id="r", job="pretrain", stack=name))
    assert (chosen.plain_name, chosen.stands_in) == ("neuronx-distributed", False)


def test_stochastic_rounding_keeps_no_float32_states() -> None:
    stack = choose_stack(Record(id="r", job="pretrain", stack="neuronx-distributed")).stack
    states = stack.in_mixed_precision("none").states
    assert stack.states.master_bytes + 2 * stack.states.moment_bytes == 12
    assert states.master_bytes + 2 * states.moment_bytes == 4
