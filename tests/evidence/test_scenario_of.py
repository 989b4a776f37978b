"""Records as scenarios: what is taken over, what is filled in, and what never plays a part."""

from typing import Any

import msgspec
import pytest

from xe_sizer.errors import InputError
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.records import Batch, LayoutStated, Lora, Measured, Record
from xe_sizer.evidence.training_scenario import Asked, build_scenario
from xe_sizer.profiles.catalogue import load_optimizer, load_stack
from xe_sizer.profiles.finder import BUILT_IN

BASE = Record(
    id="r",
    job="sft",
    stack="megatron-lm",
    model="llama-2-7b",
    gpu="a100-sxm-80gb",
    gpus=16,
    gpus_per_node=8,
    precision="bf16",
    layout=LayoutStated(tp=2, pp=1, dp=8),
    batch=Batch(micro=2, total=64),
    seq_len=2048,
)


def asked(**changes: Any) -> Asked:
    return build_scenario(msgspec.structs.replace(BASE, **changes), RecordRegistry())


def test_what_is_stated_is_taken_over() -> None:
    flags = asked().flags
    expected = {
        "job": "sft",
        "gpus": 16,
        "precision": "bf16",
        "layout.tp": 2,
        "layout.dp": 8,
        "train.micro_batch": 2,
        "train.global_batch": 64,
        "train.seq_len": 2048,
        "train.padding": "packed",
    }
    assert expected.items() <= flags.items()


def test_measurement_id_and_source_play_no_part() -> None:
    measured = Measured(step_time_s=1e9, oom=True)
    other = asked(id="another", source={"title": "another"}, measured=measured)
    assert (other.flags, other.assumed) == (asked().flags, asked().assumed)


@pytest.mark.parametrize(
    ("batch", "total", "micro"),
    [
        (Batch(micro=2, grad_accum=4), 2 * 4 * 8, 2),
        (Batch(total=64, grad_accum=4), 64, 64 // (4 * 8)),
        (Batch(micro=4), 4 * 8, 4),
        (Batch(grad_accum=4), 4 * 8, 1),
        (Batch(tokens="2M", micro=1), 1024, 1),
        (Batch(tokens="3.2M"), 1536, None),
        (Batch(tokens=2e6), 976, None),
        (Batch(tokens=131072.0), 64, None),
        (Batch(), 128, None),
    ],
)
def test_two_of_micro_accumulation_and_global_give_the_third(batch: Batch, total: int, micro: int | None) -> None:
    flags = asked(batch=batch).flags
    assert (flags["train.global_batch"], flags.get("train.micro_batch")) == (total, micro)


def test_accumulation_alone_leaves_the_batch_a_guess() -> None:
    assert asked(batch=Batch(grad_accum=4)).guessed
    assert not asked(batch=Batch(micro=1, grad_accum=4)).guessed


def test_a_pipeline_of_unknown_accumulation_is_not_one_micro_batch() -> None:
    """The usual batch of fine-tuning, 128 samples, in whole micro-batches of 3 on 4 replicas."""
    found = asked(batch=Batch(micro=3), layout=LayoutStated(pp=4))
    assert found.flags["train.global_batch"] == 132
    assert found.flags["train.micro_batch"] == 3
    assert any(text.endswith("global batch not stated") for text in found.assumed)
    stated = asked(batch=Batch(micro=3, grad_accum=2), layout=LayoutStated(pp=4))
    assert stated.flags["train.global_batch"] == 24


def test_a_batch_that_the_replicas_cannot_share_is_rounded_and_said() -> None:
    found = asked(batch=Batch(micro=3, total=64))
    assert found.flags["train.global_batch"] == 72
    assert any("cannot share" in text for text in found.assumed)


def test_replicas_that_contradict_the_gpus_are_dropped() -> None:
    found = asked(layout=LayoutStated(tp=2, pp=1, dp=4))
    assert "layout.dp" not in found.flags
    assert any(text.startswith("dp 4") for text in found.assumed)


def test_stages_of_different_sizes_are_asked_for() -> None:
    found = asked(model="deepseek-v3", gpus=256, layout=LayoutStated(pp=16, ep=8)).flags
    assert found["layout.pp"] == 16
    assert found["layout.uneven_stages"]
    assert "layout.uneven_stages" not in asked(layout=LayoutStated(pp=4)).flags


@pytest.mark.parametrize(
    ("stack", "job", "zero", "recompute"),
    [("hf-trainer", "sft", 0, "none"), ("hf-trainer", "qlora", 0, "full"), ("torchtune", "sft", 3, "full")],
)
def test_what_a_framework_usually_does_fills_in(stack: str, job: str, zero: int, recompute: str) -> None:
    found = asked(stack=stack, job=job, layout=LayoutStated())
    assert (found.flags["layout.zero"], found.flags["layout.recompute"]) == (zero, recompute)
    assert f"ZeRO {zero}: usual for {stack}" in found.assumed
    assert asked(stack=stack, layout=LayoutStated(zero=2), recompute="selective").flags["layout.zero"] == 2


def test_pages_of_the_optimizer_are_read_from_the_framework() -> None:
    paged = asked(stack="torchtune", layout=LayoutStated(), framework="torchtune with PagedAdamW")
    assert paged.flags["optimizer"] == "paged-adamw"
    assert asked(stack="megatron-lm", framework="with PagedAdamW").flags["optimizer"] == "adamw"


# transformers 5 training_args.py, OptimizerNames; the scripts of GaLore, Q-GaLore and APOLLO (torchrun_main.py,
# run_pretrain.py, utils/setup.py).
OPTIMIZER_NAMES = [
    "adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_apex_fused", "adafactor",
    "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "sgd", "adagrad", "adamw_bnb_8bit",
    "adamw_8bit", "ademamix_8bit", "lion_8bit", "lion_32bit", "paged_adamw_32bit", "paged_adamw_8bit",
    "paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb",
    "rmsprop_bnb_8bit", "rmsprop_bnb_32bit", "galore_adamw", "galore_adamw_8bit", "galore_adafactor",
    "galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "lomo", "adalomo",
    "grokadamw", "schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd", "apollo_adamw",
    "apollo_adamw_layerwise", "stable_adamw", "adam", "adamw", "adam8bit", "galore_adamw8bit",
    "galore_adamw8bit_per_layer", "q_galore_adamw8bit", "q_galore_adamw8bit_per_layer",
]  # fmt: skip
OTHER_OPTIMIZERS = ("adagrad", "adafactor", "lion", "sgd", "rmsprop", "galore", "lomo", "apollo", "ademamix", "free")


@pytest.mark.parametrize(
    "word", sorted({spelt for name in OPTIMIZER_NAMES for spelt in (name, name.replace("_", "-"))})
)
def test_every_word_for_an_optimizer_is_that_optimizer(word: str) -> None:
    found = asked(stack="hf-trainer", optimizer=word)
    name, plain = found.flags["optimizer"], word.replace("_", "-")
    assert not found.guessed
    assert [part for part in OTHER_OPTIMIZERS if part in name] == [part for part in OTHER_OPTIMIZERS if part in plain]
    assert ("8bit" in word.replace("-", "").replace("_", "")) == ("8bit" in name or name == "q-galore")
    if "layer" in plain:
        assert load_optimizer(name).in_backward


@pytest.mark.parametrize("word", [f"{name}-of-mine" for name in BUILT_IN.names("optimizer")])
def test_a_word_that_only_begins_with_an_optimizer_s_name_makes_a_guess(word: str) -> None:
    found = asked(stack="hf-trainer", optimizer=word)
    assert "optimizer" not in found.flags
    assert f"optimizer '{word}' is unknown here: the stack's default" in found.assumed
    assert found.guessed


def test_qlora_without_targets_adapts_all_linear_layers() -> None:
    assert asked(job="qlora").flags["lora.targets"] == ["q", "k", "v", "o", "gate", "up", "down"]


def test_interleaving_is_off_unless_stated() -> None:
    assert asked(layout=LayoutStated(pp=4)).flags["layout.vpp"] == 1
    assert asked(layout=LayoutStated(pp=4, vpp=2)).flags["layout.vpp"] == 2
    assert "layout.vpp" not in asked(layout=LayoutStated()).flags


@pytest.mark.parametrize(
    ("job", "weights", "predicted_as"),
    [
        ("ptuning", None, "p-tuning"),
        ("lora", "nf4", "qlora"),
    ],
)
def test_jobs_are_predicted_as_the_nearest_and_said(job: str, weights: str | None, predicted_as: str) -> None:
    found = asked(job=job, weights=weights)
    assert found.flags["job"] == predicted_as
    assert found.assumed


@pytest.mark.parametrize(
    ("job", "weights", "adapter", "bits"),
    [
        ("adapter-v2", None, "llama-adapter-v2", None),
        ("prefixtuning", None, "prefix-tuning", None),
        ("ln_tuning", None, "ln-tuning", None),
        ("dora", None, "dora", None),
        ("ia3", "int8", "ia3", 8),
    ],
)
def test_adapters_are_predicted_as_themselves(job: str, weights: str | None, adapter: str, bits: int | None) -> None:
    found = asked(job=job, weights=weights).flags
    assert (found["job"], found["adapter"]) == ("sft", adapter)
    assert found.get("train.bits") == bits


def test_an_optimizer_may_be_that_of_a_kind_of_adapters() -> None:
    found = asked(job="lora", optimizer="lora-fa").flags
    assert (found["job"], found["adapter"], found["optimizer"]) == ("sft", "lora-fa", "adamw")


def test_the_library_of_few_bits_holds_under_any_adapter() -> None:
    found = asked(job="adapter", weights="nf4").flags
    assert (found["adapter"], found["train.quantiser"]) == ("llama-adapter", "bitsandbytes")


@pytest.mark.parametrize(("weights", "library"), [("nf4", "bitsandbytes"), ("int4", "auto-gptq"), ("awq", "awq")])
def test_the_format_of_few_bits_names_its_library(weights: str, library: str) -> None:
    """bitsandbytes has floats of 4 bits, and integers of 8 alone."""
    found = asked(job="qlora", weights=weights).flags
    assert found["train.quantiser"].split("@")[0] == library


@pytest.mark.parametrize("job", ["inference", "juggling"])
def test_jobs_without_equations_are_refused(job: str) -> None:
    with pytest.raises(InputError, match=job):
        asked(job=job)


@pytest.mark.parametrize(
    ("gpu", "stated", "predicted_as"),
    [
        ("a100-sxm-80gb", "fp8", "bf16"),
        ("v100-sxm-32gb", "bf16", "fp16"),
        ("b200", "nvfp4", "fp4"),
        ("h100-sxm-80gb", "nvfp4", "fp8"),
        ("t4", "mxfp8", "fp16"),
    ],
)
def test_precisions_fall_back_to_what_the_accelerator_has(gpu: str, stated: str, predicted_as: str) -> None:
    found = asked(gpu=gpu, precision=stated, gpus=8, layout=LayoutStated())
    assert found.flags["precision"] == predicted_as
    assert f"precision {stated} predicted as {predicted_as}" in found.assumed


def test_lengths_of_samples() -> None:
    found = asked(seq_len=None, mean_tokens=210.0, max_seq_len=768, longest_sample_tokens=1304).flags
    assert (found["data.mean_tokens"], found["data.max_tokens"], found["train.seq_len"]) == (210.0, 1304, 768)
    assert "train.padding" not in found


def test_a_known_data_set_is_known_by_its_mean() -> None:
    found = asked(seq_len=None, mean_tokens=114.53571428571429)
    assert found.flags["data.profile"] == "dell-design-guide"


def test_a_named_data_set_stands_for_lengths_that_are_not_stated() -> None:
    for name in ("alpaca", "tatsu-lab/alpaca", "Stanford Alpaca"):
        found = asked(seq_len=None, max_seq_len=2048, dataset=name)
        assert (found.flags["data.profile"], found.flags["train.seq_len"]) == ("alpaca", 2048)
        assert not found.guessed
    part = asked(seq_len=None, dataset="alpaca", samples=1000)
    assert (part.flags["data.mean_tokens"], part.flags["data.max_tokens"]) == (76.7 + 45, 1044)


def test_a_stated_mean_stands_beside_the_longest_of_the_data_set() -> None:
    found = asked(seq_len=None, mean_tokens=130.0, dataset="alpaca").flags
    assert (found["data.mean_tokens"], found["data.max_tokens"]) == (130.0, 1044)
    assert "data.profile" not in found
    assert asked(seq_len=4096, packing=True, dataset="alpaca").flags["train.padding"] == "packed"


def test_a_data_set_that_nobody_knows_is_said() -> None:
    found = asked(seq_len=None, dataset="our-own-tickets")
    assert "data set 'our-own-tickets' is unknown here" in found.assumed
    assert found.guessed


def test_an_emptied_cache_is_read() -> None:
    assert asked(empty_cache_steps=10).flags["train.empty_cache_steps"] == 10
    assert "train.empty_cache_steps" not in asked().flags


@pytest.mark.parametrize(("stated", "meant"), [("no", "none"), (False, "none"), ("bf16", "bf16"), (None, None)])
def test_mixed_precision_of_a_record(stated: str | bool | None, meant: str | None) -> None:
    found = asked(stack="hf-trainer", layout=LayoutStated(), mixed_precision=stated)
    assert found.flags.get("train.mixed_precision") == meant


@pytest.mark.parametrize(
    ("stated", "meant"), [("DeepSpeed", "deepspeed"), ("fsdp", "fsdp"), (None, None), ("horovod", None)]
)
def test_what_shares_states_out_in_a_record(stated: str | None, meant: str | None) -> None:
    found = asked(stack="optimum-habana", layout=LayoutStated(), backend=stated)
    assert found.flags.get("train.backend") == meant
    assert any("horovod" in text for text in found.assumed) == (stated == "horovod")


def test_mixed_precision_where_there_is_no_choice() -> None:
    found = asked(stack="megatron-lm", mixed_precision="bf16")
    assert "train.mixed_precision" not in found.flags
    assert any("no choice of it" in text for text in found.assumed)


def test_padding_free_samples_are_not_padded() -> None:
    assert asked(seq_len=None, mean_tokens=210.4, framework="trainer [padding-free]").flags["train.padding"] == "none"


def test_unknown_lengths_are_assumed_and_said() -> None:
    assert any("lengths not stated" in text for text in asked(seq_len=None).assumed)
    assert asked(seq_len=None, job="pretrain").flags["train.seq_len"] == 2048


def test_targets_of_mixtral_are_experts_and_router_and_words_in_parentheses_are_none() -> None:
    """Names of its checkpoints (transformers before 5): w1 gate, w2 down, w3 up, gate the router."""
    lora = Lora(rank=16, targets="q_proj, w1, w2, w3 (all experts), gate (the router, too)")
    found = asked(model="mixtral-8x7b", job="lora", lora=lora)
    assert found.flags["lora.targets"] == ["q", "expert_gate", "expert_down", "expert_up", "router"]
    assert not any("no adapter" in text for text in found.assumed)
    listed = asked(model="qwen-7b", job="lora", lora=Lora(rank=64, targets=["c_attn", "attn.c_proj", "w1", "w2"]))
    assert listed.flags["lora.targets"] == ["qkv", "o", "up", "gate"]


def test_targets_that_the_model_lacks_are_left_out() -> None:
    found = asked(job="lora", lora=Lora(rank=16, targets="q_proj k_proj v_proj o_proj c_attn head"))
    assert found.flags["lora.targets"] == ["q", "k", "v", "o", "head"]
    kind = asked(job="vera", lora=Lora(rank=16, targets="q_proj lm_head"))
    assert kind.flags["lora.targets"] == ["q"]
    assert "no adapter on 'lm_head'" in kind.assumed


def test_no_condition_is_read_from_the_words_of_a_note() -> None:
    notes = "Time to quality target; fp16=False, bf16=False; liger; group_by_length; fp8; PagedAdamW; compile"
    noted = asked(precision=None, notes=notes, inferred=("6ND incl. a 128k-vocab embedding",))
    assert noted.flags == asked(precision=None).flags


@pytest.mark.parametrize(
    ("framework", "attention"),
    [
        ("hf-trainer (torch 2.0.0, transformers 4.26.1)", "eager"),
        ("transformers 4.36.0", "sdpa"),
        ("transformers==5.13", "sdpa"),
    ],
)
def test_old_releases_run_eager_attention(framework: str, attention: str) -> None:
    flags = asked(stack="hf-trainer", layout=LayoutStated(), framework=framework).flags
    assert load_stack(flags["stack"]).kernels.attention == attention


def test_what_a_framework_does_by_itself_is_taken_where_the_record_is_silent() -> None:
    """Recomputation and sharding of the stack's defaults; who states ZeRO-3 alone may have recomputed."""
    cases = (
        ({"stack": "trl", "framework": "trl 0.29"}, {"layout.recompute": "full"}),
        ({"stack": "trl", "framework": "trl 0.20", "gpus": 4}, {"layout.recompute": "none", "layout.zero": 0}),
        ({"stack": "fsdp", "gpus": 4}, {"layout.recompute": "none", "layout.zero": 3}),
        ({"stack": "hf-trainer", "layout": LayoutStated(zero=3), "gpus": 4}, {"layout.recompute": None}),
        ({"stack": "litgpt", "gpus": 4}, {"layout.recompute": "full", "layout.zero": 3}),
        ({"stack": "unsloth", "framework": "unsloth 2025.3"}, {"layout.recompute": "full"}),
        ({"stack": "hf-trainer", "framework": "llama-recipes", "gpus": 8}, {"layout.zero": 3}),
    )
    for stated, expected in cases:
        flags = asked(**{"job": "sft", "gpus": 1, "layout": LayoutStated(), **stated}).flags
        assert {key: flags.get(key) for key in expected} == expected, stated


@pytest.mark.parametrize(
    ("gpu", "precision", "stated", "recipe"),
    [
        ("b200", "fp8", "mxfp8", "mxfp8"),
        ("b200", "mxfp8", None, "mxfp8"),
        ("h100-sxm-80gb", "fp8", "current scaling", "tensorwise"),
        ("h100-sxm-80gb", "mxfp8", None, None),  # its matrix units scale no blocks
        ("h100-sxm-80gb", "bf16", "delayed", None),
    ],
)
def test_recipes_of_products_in_8_bit(gpu: str, precision: str, stated: str | None, recipe: str | None) -> None:
    found = asked(gpu=gpu, precision=precision, fp8_recipe=stated, stack="nemo")
    assert found.flags.get("train.fp8_recipe") == recipe


@pytest.mark.parametrize(
    ("stack", "framework", "gpu", "job", "precision"),
    [
        ("nemo", "nemo 24.07", "h100-sxm-80gb", "lora", "fp8"),
        ("nemo", "nemo 24.07", "h100-sxm-80gb", "sft", None),  # weights that learn are 16 bit
        ("nemo", "nemo 24.07", "a100-sxm-80gb", "lora", None),  # multiplies no 8 bit
        ("nemo", "nemo 23.08", "h100-sxm-80gb", "lora", None),  # holds no weights in 8 bit
        ("hf-trainer", "transformers 4.40", "h100-sxm-80gb", "lora", None),
    ],
)
def test_an_unstated_precision_is_that_of_the_recipes(
    stack: str, framework: str, gpu: str, job: str, precision: str | None
) -> None:
    found = asked(stack=stack, framework=framework, gpu=gpu, job=job, precision=None)
    assert found.flags.get("precision") == precision
    assert any("precision not stated" in text for text in found.assumed) is (precision is not None)
    assert not found.guessed


def test_kernels_that_a_plugin_fuses_are_read() -> None:
    found = asked(framework="fms-hf-tuning", fused_kernels="foak")
    assert found.flags["train.fused_kernels"] == ("norm", "rotary", "loss")


def test_a_pipeline_is_not_filled_by_one_micro_batch() -> None:
    """4 M tokens of 2,048 are the usual batch of pre-training; without stages, one micro-batch a step is believed."""
    stages = {"gpu": "a100-sxm-80gb", "job": "pretrain", "gpus": 8, "batch": Batch(micro=2), "seq_len": 2048}
    piped = asked(**stages, layout=LayoutStated(tp=1, pp=4))
    assert (piped.flags["train.global_batch"], piped.guessed) == (2048, True)
    assert asked(**stages, layout=LayoutStated(tp=1, pp=1)).flags["train.global_batch"] == 16


@pytest.mark.parametrize(("word", "schedule"), [("DualPipe", "dualpipe"), ("DualPipeV", "dualpipe-v")])
def test_dualpipe_is_a_schedule_that_its_authors_stack_has(word: str, schedule: str) -> None:
    found = asked(layout=LayoutStated(pp=4), pipeline_schedule=word, stack="hai-llm")
    assert (found.flags["layout.schedule"], found.flags["stack"]) == (schedule, "hai-llm")
    assert not any("no schedule" in text for text in found.assumed)


def test_chunks_that_a_schedule_has_by_itself_are_left_to_it() -> None:
    assert asked(layout=LayoutStated(pp=4), pipeline_schedule="1f1b").flags["layout.vpp"] == 1
    assert "layout.vpp" not in asked(layout=LayoutStated(pp=4), pipeline_schedule="zb-v").flags


@pytest.mark.parametrize(
    ("stated", "stack", "hidden", "said"),
    [
        ("on", "megatron-lm", ("on",), None),
        (False, "megatron-lm", ("off",), None),
        (("overlap_grad_reduce", "tp-comm-overlap"), "megatron-lm", ("data-parallel", "tensor-parallel"), None),
        ("expert-parallel", "hf-trainer", ("off",), "overlap 'expert-parallel' is none of hf-trainer@4.40 here"),
        (None, "megatron-lm", None, None),
    ],
)
def test_what_compute_hides_is_as_stated(stated: Any, stack: str, hidden: Any, said: str | None) -> None:
    found = asked(overlap=stated, stack=stack, layout=LayoutStated())
    assert found.flags.get("train.overlap") == hidden
    assert (
        any(text.startswith(said) for text in found.assumed)
        if said
        else not any("overlap" in text for text in found.assumed)
    )
