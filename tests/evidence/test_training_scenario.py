"""Models of records: by name, by shape, by size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location
from xe_sizer.evidence.names import RecordRegistry, choose_stack, names
from xe_sizer.evidence.predict import predict_record, predictions
from xe_sizer.evidence.records import (
    SHIPPED,
    Batch,
    LayoutStated,
    Lora,
    Measured,
    Record,
    Shape,
    read_all,
    read_records,
    records_of,
)
from xe_sizer.evidence.training_scenario import Asked, build_scenario, find_model
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import BUILT_IN

REGISTRY = Registry()


def record(model: str, **shape: float) -> Record:
    return Record(id="r", job="sft", model=model, shape=Shape(**shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama-2-7b", "Llama-2-7B", "meta-llama/Llama-2-7b-hf", "llama-2-7b-chat"])
def test_names_lead_to_the_catalogue(name: str) -> None:
    found = find_model(record(name), REGISTRY)
    assert found.shape == REGISTRY.model("llama-2-7b")
    assert not found.assumed


def test_stated_sizes_override_those_of_a_known_model() -> None:
    shape = find_model(record("llama-2-7b", layers=8, vocab=128256), REGISTRY).shape
    known = REGISTRY.model("llama-2-7b")
    assert (shape.layers, shape.vocab, shape.hidden) == (8, 128256, known.hidden)


def test_an_untied_head_is_a_matrix_of_its_own() -> None:
    tied, apart = (find_model(record("gpt3-6.7b", tied_embeddings=tied), REGISTRY).shape for tied in (True, False))
    assert count_parameters(apart).total - count_parameters(tied).total == apart.vocab * apart.hidden


# Layers of the models' own pattern: all windowed, every second, all but every sixth; hybrids repeat theirs.
@pytest.mark.parametrize(
    ("name", "layers", "windowed"),
    [("mistral-7b-v0.1", 4, 4), ("gemma-2-9b", 4, 2), ("gemma-3-27b", 4, 4), ("gemma-3-27b", 12, 10),
     ("modernbert-base", 4, 2), ("llama-2-7b", 4, 0)],
)  # fmt: skip
def test_fewer_layers_are_windowed_as_those_of_the_whole_model_are(name: str, layers: int, windowed: int) -> None:
    shape = find_model(record(name, layers=layers), REGISTRY).shape
    assert (shape.layers, shape.windowed_layers) == (layers, windowed)


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gemma-3-27b", "gpt-oss-20b", "t5-large", "hunyuan-large"])
def test_twice_the_layers_are_the_model_twice(name: str) -> None:
    known = REGISTRY.model(name)
    doubled = known.with_layers(2 * known.layers)
    assert known.with_layers(known.layers) is known
    assert doubled.windowed_layers == pytest.approx(2 * known.windowed_layers, abs=2)
    assert doubled.encoder_layers == 2 * known.encoder_layers
    assert doubled.kv_layers == (known.kv_layers and 2 * known.kv_layers)


def test_a_new_width_brings_heads_of_its_own_size() -> None:
    shape = find_model(record("llama-2-7b", hidden=2048, heads=16, ffn=5504), REGISTRY).shape
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (16, 16, 128)


# Parameters that the publications print: Narayanan et al. 2021, table 1.
@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "billions"),
    [("gpt-18b", 40, 6144, 48, 18.4), ("gpt-145b", 80, 12288, 96, 145.6), ("gpt-1t", 128, 25600, 160, 1008.0)],
)
def test_a_stated_shape_counts_as_published(name: str, layers: int, hidden: int, heads: int, billions: float) -> None:
    found = find_model(record(name, layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocab=51200), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(billions * 1e9, rel=0.005)
    assert found.assumed


@pytest.mark.parametrize(("name", "size"), [("gpt-52b", 52e9), ("gpt-7b", 7e9), ("my-13b", 13e9), ("gpt-760m", 760e6)])
def test_a_size_alone_gives_a_model_of_that_size(name: str, size: float) -> None:
    found = find_model(record(name), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(size, rel=0.15)
    assert "from its size" in found.assumed[0]


@pytest.mark.parametrize(
    ("name", "total", "active"), [("granite-moe-7b-1b-active", 7e9, 1e9), ("unknown-16b-a3b", 16e9, 3e9)]
)
def test_two_sizes_give_a_mixture_of_experts(name: str, total: float, active: float) -> None:
    found = find_model(record(name), REGISTRY)
    counted = count_parameters(found.shape)
    assert counted.total == pytest.approx(total, rel=0.1)
    assert counted.active == pytest.approx(active, rel=0.25)
    assert "in the proportions of" in found.assumed[0]


def test_a_mixture_with_sizes_of_its_own_is_not_guessed() -> None:
    with pytest.raises(InputError):
        find_model(record("unknown-16b-a3b", layers=8, experts=8), REGISTRY)


def test_layers_follow_from_the_size_where_only_they_are_missing() -> None:
    found = find_model(record("gpt-205b", hidden=14400, heads=96, ffn=57600, vocab=250880), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(205e9, rel=0.05)


@pytest.mark.parametrize("name", ["some-moe-7b", "no size at all"])
def test_what_cannot_be_built_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        find_model(record(name), REGISTRY)


def test_a_benchmark_s_small_version_keeps_the_pattern() -> None:
    small = find_model(record("qwen3.5-35b-a3b-8layer-8expert", layers=8, experts=8), REGISTRY).shape
    assert (small.layers, small.layer_pattern) == (8, "MMM*MMM*")
    assert small.experts is not None
    assert (small.experts.count, small.experts.per_token) == (8, 8)


def test_experts_a_token_goes_through_are_as_stated() -> None:
    found = find_model(record("mixtral-8x7b", experts_per_token=8), REGISTRY)
    assert found.shape.experts is not None
    assert (found.shape.experts.count, found.shape.experts.per_token) == (8, 8)
    assert found.name == "mixtral-8x7b with experts_per_token 8"
    assert find_model(record("mixtral-8x7b", experts_per_token=2), REGISTRY).name == "mixtral-8x7b"


# Jobs of records: preference jobs with their reference and adapters, and what has no equation.

PAIRS = Record(
    id="a", job="dpo", stack="trl", model="qwen2.5-7b", gpu="h100-sxm-80gb", gpus=8, gpus_per_node=8, precision="bf16",
    layout=LayoutStated(zero=3), batch=Batch(micro=2, total=64), seq_len=1024, recompute="full",
)  # fmt: skip


def flags_of(**changes: Any) -> dict[str, Any]:
    return dict(build_scenario(changed(**changes), RecordRegistry()).flags)


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
    found = build_scenario(changed(job="sft", task="haiku"), RecordRegistry())
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


# Kernels that records name: in their own field, in that of fused kernels, and in the name of their framework.


def flags(**fields: object) -> dict[str, object]:
    record = Record(
        id="one", job="sft", model="llama-2-7b", gpu="h100-sxm-80gb", gpus=8, seq_len=2048,
        batch=Batch(micro=1, total=8), **fields,
    )  # fmt: skip
    return dict(build_scenario(record, RecordRegistry()).flags)


@pytest.mark.parametrize(
    ("kernel", "attention", "fused"),
    [
        ("flash_attention2 + RMS kernel", "flash", ("norm",)),
        ("flash_attention2", "flash", ("eager-norm",)),
        ("flash_attention1.0.8", "flash", ("eager-norm",)),
        ("flash_attention2, no fused norm", "flash", ("eager-norm",)),
        ("own kernels", None, None),
    ],
)
def test_a_run_named_by_its_kernels(kernel: str, attention: str | None, fused: tuple[str, ...] | None) -> None:
    found = flags(kernel=kernel)
    assert found.get("attention") == attention
    assert found.get("train.fused_kernels") == fused


@pytest.mark.parametrize(
    ("stack", "framework", "stated", "fused"),
    [
        ("torchtune", "torchtune (torch.compile on)", None, ("compiled",)),
        ("torchtune", "torchtune", True, ("compiled",)),
        ("torchtune", "torchtune", False, None),
        ("torchtitan", "torchtitan", True, None),  # its modules are those of a compiled run
    ],
)
def test_a_compiled_run_of_eager_modules(
    stack: str, framework: str, stated: bool | None, fused: tuple[str, ...] | None
) -> None:
    """inductor fuses norms, rotary positions and activations, and the loss with its float32 logits."""
    assert flags(stack=stack, framework=framework, compile=stated).get("train.fused_kernels") == fused


def test_what_is_stated_of_attention_wins() -> None:
    assert flags(kernel="flash_attention2", attention="sdpa")["attention"] == "sdpa"


@pytest.mark.parametrize(
    ("stack", "framework", "fused"),
    [
        ("axolotl", "axolotl 0.8 with Liger", ("liger",)),
        ("trl", "TRL, cut cross entropy", ("linear-cross-entropy",)),
        ("nemo-automodel", "automodel, liger", None),  # its modules are its own
        ("fsdp2", "a loop with pytorch fsdp2, liger", ("liger",)),  # another stack stands in
    ],
)
def test_kernels_in_the_name_of_a_framework(stack: str, framework: str, fused: tuple[str, ...] | None) -> None:
    assert flags(stack=stack, framework=framework).get("train.fused_kernels") == fused


def test_the_fork_that_defers_weight_gradients_ran_as_its_scripts() -> None:
    """Without FlashAttention and with dropout until August 2024; ZB-2p* is ZB-2p with half the micro-batch."""
    chosen = choose_stack(record_of(stack="megatron-lm", framework="megatron-lm (sail-sg zero-bubble fork)"))
    assert chosen.plain_name == "megatron-zero-bubble"
    assert (chosen.stack.kernels.attention, chosen.stack.kernels.dropout) == ("eager", True)
    assert (
        flags(stack="megatron-lm", pipeline_schedule="ZB-2p*", layout=LayoutStated(pp=8))["layout.schedule"] == "zb-h2"
    )


# Images of records: stated, usual for a model that is named for seeing, or none.

RUN = {
    "id": "run", "job": "sft", "stack": "hf-trainer", "model": "qwen2-vl-2b", "gpu": "a100-sxm-80gb", "gpus": 1,
    "max_seq_len": 2048, "batch": {"micro": 1}, "measured": {"peak_memory_gib": 20},
}  # fmt: skip


def record_of(**stated: Any) -> Record:
    (record,) = records_of([{**RUN, **stated}], Location("test")).records
    return record


def asked(**stated: Any) -> Asked:
    return build_scenario(record_of(**stated), RecordRegistry())


def test_stated_images_and_frozen_parts_are_asked_for() -> None:
    flags = asked(images=3, image_size="336x448", freeze=["vision"]).flags
    assert flags["data.images"] == 3
    assert flags["data.image_size"] == "336x448"
    assert flags["train.freeze"] == ("vision",)


@pytest.mark.parametrize(("model", "images"), [("qwen2-vl-2b", 1), ("llava-1.5-7b", 1), ("gemma-3-4b", None)])
def test_a_model_that_is_named_for_seeing_has_an_image_in_each_sample(model: str, images: int | None) -> None:
    found = asked(model=model)
    assert found.flags.get("data.images") == images
    assert ("one image in each sample: not stated" in found.assumed) == (images is not None)


def test_sequences_that_hold_no_image_have_none() -> None:
    found = asked(max_seq_len=128)
    assert "data.images" not in found.flags
    assert any("do not hold them" in text for text in found.assumed)


def test_tokens_of_images_are_taken_from_the_stated_mean_as_they_do_not_vary() -> None:
    """Qwen2-VL has 16 x 16 tokens for 448 x 448 pixels, and two more around them."""
    found = asked(images=1, image_size="448x448", mean_tokens=300, longest_sample_tokens=900)
    image = 300 - found.flags["data.mean_tokens"]
    assert 256 <= image <= 258
    assert found.flags["data.max_tokens"] == 900 - image
    assert f"{image:g} tokens of each sample are images, the others text" in found.assumed
    predicted = predict_record(record_of(images=1, image_size="448x448", mean_tokens=300), RecordRegistry())
    lengths = predicted.sized.resolved.job.lengths
    assert lengths.mean == pytest.approx(300, rel=1e-3)
    assert lengths.lengths[0] > image
    assert asked(images=1, image_size="448x448", mean_tokens=100).flags["data.mean_tokens"] == 100


@pytest.mark.parametrize(
    ("stated", "quantiser"),
    [
        ({"weights": "int4"}, "auto-gptq"),  # bitsandbytes has nf4 and fp4
        ({"weights": "nf4"}, "bitsandbytes"),
        ({"weights": "int4", "stack": "torchtune"}, None),  # the stack's
        ({"weights": "int4", "quantiser": "awq"}, "awq"),
    ],
)
def test_a_number_format_that_the_usual_quantiser_does_not_have(stated: dict[str, Any], quantiser: str | None) -> None:
    found = asked(model="llama-2-7b", job="qlora", **stated)
    assert str(found.flags.get("train.quantiser")).partition("@")[0] == str(quantiser)


# No word of an optimizer, a target or a task becomes another one unseen.


def _worded() -> Iterator[Record]:
    """A record for each such word of those that ship, with the job and the stack that it stands with."""
    told = set()
    for record in read_all([SHIPPED]).records:
        words = (record.optimizer, str(record.lora.targets), record.task, str(record.lora.modules_to_save))
        if not record.serves and words != (None, "None", None, "None") and (*words, record.job) not in told:
            told.add((*words, record.job))
            yield record


@pytest.mark.parametrize("record", list(_worded()), ids=lambda record: record.id)
def test_every_word_is_taken_or_told(record: Record) -> None:
    """What is taken has the word's own name or an alias of it; what is not makes the run a guess and is named."""
    try:
        found = build_scenario(record, RecordRegistry())
    except InputError:  # of a card that has no name: skipped by name, so that no word is taken for another
        return
    said = {"optimizer": record.optimizer, "train.task": record.task}
    for key, word in said.items():
        if word is None or key in found.flags or "adapter" in found.flags:
            continue
        assert found.guessed, key
        assert any(str(word) in text for text in found.assumed), key
    taken = found.flags.get("optimizer")
    if record.optimizer and taken:
        own = BUILT_IN.called("optimizer", record.optimizer)
        assert taken == own or names().optimizers.get(own) == taken or any(taken in text for text in found.assumed)
    for word in (record.lora.targets or ()) if isinstance(record.lora.targets, list) else ():
        assert "lora.targets" in found.flags or any(word in text for text in found.assumed)


@pytest.mark.parametrize(
    ("stated", "word"),
    [
        ({"optimizer": "adamw-of-mine"}, "adamw-of-mine"),
        ({"optimizer": "galore_adamw_of_mine"}, "galore_adamw_of_mine"),
        ({"job": "lora", "lora": {"targets": ["my_proj"]}}, "my_proj"),
        ({"task": "token-tagging"}, "token-tagging"),
    ],
)
def test_a_word_that_nobody_knows_makes_a_guess(stated: dict[str, Any], word: str) -> None:
    known = {"model": "llama-2-7b", "seq_len": 1024, "max_seq_len": None, "batch": {"micro": 1}, "framework": "trl 1.0"}
    assert not asked(**known).guessed
    found = asked(**known, **stated)
    assert found.guessed
    assert any(word in text for text in found.assumed)


def test_what_a_training_of_a_mixture_states() -> None:
    """Its balance, its layers for further tokens, and the library that moves tokens; a dense model has no balance."""
    stated = {"mtp_layers": 1, "expert_skew": 1.0, "framework": "megatron-core 0.16, hybridep"}
    found = flags_of(job="pretrain", stack="megatron-lm", model="deepseek-v3", **stated)
    assert (found["train.mtp_layers"], found["train.expert_skew"]) == (1, 1.0)
    assert found["train.fused_kernels"] == ("deepep",)
    assert "train.expert_skew" not in flags_of(job="pretrain", model="llama-2-7b", expert_skew=1.0)


def test_memory_is_compared_where_it_was_read() -> None:
    """A log of the last stage's rank: activations of one micro-batch where the worst GPU, on the first, holds two."""
    staged = Record(
        id="staged", job="pretrain", stack="megatron-lm", model="llama-2-7b", gpu="h100-sxm-80gb", gpus=8,
        layout=LayoutStated(tp=1, pp=2, dp=4, vpp=1, zero=1), batch=Batch(micro=4, total=64), seq_len=4096,
        recompute="none", measured=Measured(peak_memory_gib=70.0, memory_metric="allocated"),
    )  # fmt: skip
    there = Measured(peak_memory_gib=70.0, memory_metric="allocated", memory_stage="last")
    first, last = (
        next(one.predicted for one in predictions(predict_record(each, RecordRegistry())) if one.quantity != "oom")
        for each in (staged, replace(staged, measured=there))
    )
    assert 0.5 * first < last < 0.8 * first


def test_peaks_of_megatrons_own_tests() -> None:
    """Allocated peaks of jobs whose conditions are all known, on A100, H100 and GB200."""
    ratios = np.array([
        prediction.ratio
        for each in read_records(SHIPPED / "megatron.jsonl").records
        for prediction in predictions(predict_record(each, RecordRegistry()))
        if prediction.quantity == "peak_memory"
    ])  # fmt: skip
    assert len(ratios) == 30
    assert np.median(np.abs(ratios - 1.0)) < 0.01
    assert np.max(np.abs(ratios - 1.0)) < 0.1


@pytest.mark.parametrize(
    ("stated", "flag"),
    [
        ({"stack": "megatron-lm", "gradient_dtype": "bf16"}, {"train.gradient_dtype": "bf16"}),
        ({"stack": "nemo", "gradient_dtype": "float32"}, {"train.gradient_dtype": "fp32"}),
        ({"stack": "llm-foundry", "reduce_dtype": "bf16"}, {"train.reduce_dtype": "bf16"}),
        ({"stack": "hf-trainer", "gradient_dtype": "fp32"}, {}),  # it has no choice
    ],
)
def test_gradients_are_kept_and_exchanged_as_a_record_says(stated: dict[str, str], flag: dict[str, str]) -> None:
    found = flags(**stated)
    assert {key: value for key, value in found.items() if "gradient_dtype" in key or "reduce_dtype" in key} == flag
