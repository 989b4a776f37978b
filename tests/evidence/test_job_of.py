"""Jobs of records: preference jobs with their reference and adapters, and what has no equation."""

from typing import Any

import pytest

from xe_sizer.errors import InputError
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record, predictions
from xe_sizer.evidence.records import Batch, LayoutStated, Lora, Measured, Record
from xe_sizer.evidence.training_scenario import scenario_of

PAIRS = Record(
    id="a", job="dpo", stack="trl", model="qwen2.5-7b", gpu="h100-sxm-80gb", gpus=8, gpus_per_node=8, precision="bf16",
    layout=LayoutStated(zero=3), batch=Batch(micro=2, total=64), seq_len=1024, recompute="full",
)  # fmt: skip


def flags_of(**changes: Any) -> dict[str, Any]:
    return dict(scenario_of(changed(**changes), RecordRegistry()).flags)


def changed(**changes: Any) -> Record:
    kept = {name: getattr(PAIRS, name) for name in PAIRS.__struct_fields__}
    return Record(**(kept | changes))


def predicted(quantity: str, **changes: Any) -> float:
    found = predict_record(changed(**changes), RecordRegistry())
    return next(float(one.predicted) for one in predictions(found) if one.quantity == quantity)


@pytest.mark.parametrize(("stated", "job"), [("dpo", "dpo"), ("KTO", "kto"), ("ipo", "dpo"), ("full", "sft")])
def test_a_job_goes_by_its_name_and_its_other_names(stated: str, job: str) -> None:
    assert flags_of(job=stated)["job"] == job


@pytest.mark.parametrize("word", ["seq_cls", "seq-cls", "sequence-classification", "regression", "reranker"])
def test_a_task_chooses_what_is_read(word: str) -> None:
    found = flags_of(job="lora", task=word)
    assert found["job"] == "lora"
    assert found["train.task"] == (word if word in ("regression", "reranker") else "seq-cls")
    logits = 2 * 1024 * 152064 * 12  # of a micro-batch, as the loss of transformers 4 turns into its gradient
    measured = Measured(peak_memory_gib=1.0, memory_metric="allocated")
    whole, fewer = (predicted("peak_memory", job="lora", task=task, measured=measured) for task in (None, word))
    assert whole - fewer > 0.8 * logits


@pytest.mark.parametrize(("job", "adapter"), [("lora", "lora"), ("sft", None), ("qlora", "qlora")])
def test_embedding_is_a_job_of_its_own(job: str, adapter: str | None) -> None:
    found = flags_of(job=job, task="embedding")
    assert (found["job"], found.get("adapter")) == ("embedding", adapter)


def test_a_job_that_reads_something_else_keeps_its_head() -> None:
    assert "train.task" not in flags_of(task="seq-cls")
    assert flags_of(job="adalora", task="seq-cls")["train.task"] == "seq-cls"


def test_a_task_that_nobody_knows_is_said() -> None:
    found = scenario_of(changed(job="sft", task="haiku"), RecordRegistry())
    assert "train.task 'haiku' is unknown here: the stack's default" in found.assumed


def test_a_job_of_an_optimizers_name_is_fine_tuning_with_that() -> None:
    assert (flags_of(job="galore")["job"], flags_of(job="galore")["optimizer"]) == ("sft", "galore-adamw")
    assert flags_of(job="BAdam")["optimizer"] == "badam"
    assert flags_of(job="q-galore", optimizer="galore-adamw-8bit")["optimizer"] == "galore-adamw-8bit"
    assert flags_of(job="AdaptionPrompt")["adapter"] == "llama-adapter"


@pytest.mark.parametrize("job", ["lisa", "llamapro"])
def test_what_learns_in_layers_of_its_own_is_named_and_left_out(job: str) -> None:
    with pytest.raises(InputError, match=f"job '{job}': no equation"):
        flags_of(job=job)


def test_a_job_without_equation_is_told() -> None:
    with pytest.raises(InputError, match="no equation"):
        flags_of(job="dreaming")


def test_the_reference_is_what_the_record_says() -> None:
    assert "train.reference" not in flags_of()
    assert flags_of(reference="precomputed")["train.reference"] == "precomputed"
    assert "train.reference" not in flags_of(job="sft", reference="copy")


def test_pairs_on_quantised_weights_keep_their_job_and_get_adapters() -> None:
    found = flags_of(weights="nf4", lora=Lora(rank=16))
    assert (found["job"], found["adapter"], found["lora.rank"]) == ("dpo", "qlora", 16)
    assert flags_of(job="sft", weights="nf4")["job"] == "qlora"


def test_a_rank_alone_makes_adapters_of_a_preference_job() -> None:
    assert flags_of(lora=Lora(rank=8))["lora.rank"] == 8
    assert "lora.rank" not in flags_of()


def test_a_teacher_is_built_by_its_name() -> None:
    found = flags_of(job="distill", model="llama-3.2-1b", teacher_model="meta-llama/Llama-3.2-3B-Instruct")
    assert found["train.teacher_model"] == "llama-3.2-3b"


def test_a_reference_costs_time_and_memory() -> None:
    timed = {"measured": Measured(step_time_s=3.0, peak_memory_gib=40.0)}
    for quantity in ("step_time", "peak_memory"):
        copy = predicted(quantity, reference="copy", **timed)
        assert copy > predicted(quantity, reference="precomputed", **timed) > predicted(quantity, job="sft", **timed)
