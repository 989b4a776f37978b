"""Megatron's arguments in snake case: what they say alone and together."""

import pytest
from msgspec.structs import replace

from xe_sizer.errors import Location
from xe_sizer.interop.draft import READ, TOOL_DEFAULT, Draft
from xe_sizer.interop.megatron import TABLE, Arguments, parse_stages, state_megatron
from xe_sizer.interop.values import Written


def draft_of(**said: object) -> Draft:
    keys = {name: Written(value, Location("job.sh", line)) for line, (name, value) in enumerate(said.items(), 1)}
    draft = Draft("megatron", keys)
    state_megatron(Arguments(draft))
    draft.finish(TABLE)
    return draft


def test_defaults_are_those_of_megatron() -> None:
    draft = draft_of(micro_batch_size="2", bf16=True)
    expected = {
        "layout.tp": 1, "layout.pp": 1, "layout.cp": 1, "layout.ep": 1, "layout.vpp": 1, "layout.zero": 0,
        "layout.recompute": "none", "layout.sequence_parallel": False, "optimizer": "adamw", "attention": "flash",
        "train.dropout": 0.1, "train.grad_accum": 1,
    }  # fmt: skip
    assert {key: draft.fact(key) for key in expected} == expected
    assert {draft.facts[key].origin for key in expected} == {TOOL_DEFAULT}
    assert (draft.fact("precision"), draft.facts["precision"].origin) == ("bf16", READ)
    assert draft.fact("train.weights_dtype") == "bf16"


def test_precision_without_a_switch_is_float32() -> None:
    assert draft_of().fact("precision") == "fp32"


@pytest.mark.parametrize(
    ("said", "recompute", "layers"),
    [
        ({"recompute_activations": True}, "selective", None),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, "full", None),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": "3"}, "full", 3),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0}, "none", None),
        ({"activations_checkpoint_method": "uniform"}, "full", None),
        ({"recompute_granularity": "selective", "recompute_num_layers": 4}, "selective", None),
    ],
)
def test_recomputation(said: dict[str, object], recompute: str, layers: int | None) -> None:
    draft = draft_of(**said)
    assert (draft.fact("layout.recompute"), draft.fact("layout.recompute_layers")) == (recompute, layers)


def test_block_counts_layers_of_every_chunk() -> None:
    draft = draft_of(
        num_layers=24, pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=4,
        recompute_granularity="full", recompute_method="block", recompute_num_layers=2,
    )  # fmt: skip
    assert (draft.fact("layout.vpp"), draft.fact("layout.recompute_layers")) == (3, 6)


def test_modules_to_recompute_are_read_and_others_told() -> None:
    draft = draft_of(recompute_granularity="selective", recompute_modules=["moe_act", "core_attn", "mhc"])
    assert draft.fact("layout.recompute_modules") == ("moe_act", "core_attn")
    told = [(each.key, each.why) for each in draft.ignored if each.effect == "memory or time"]
    assert told == [("recompute_modules", "recomputes mhc too")]
    full = draft_of(recompute_granularity="full", recompute_method="uniform", recompute_modules=["moe_act"])
    assert full.fact("layout.recompute_modules") is None


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ({"use_distributed_optimizer": True}, 1),
        ({"use_megatron_fsdp": True, "use_distributed_optimizer": True}, 3),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, 2),
        ({"use_torch_fsdp2": True}, 3),
        ({"use_torch_fsdp2": True, "torch_fsdp2_no_reshard_after_forward": True}, 2),
        ({"use_distributed_optimizer": False}, 0),
    ],
)
def test_sharding(said: dict[str, object], stage: int) -> None:
    assert draft_of(**said).fact("layout.zero") == stage


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("Et*3|(tt|)*2m|L", [3, 2, 2, 0, 0]),
        ("Ettt|tttt|tttL", [3, 4, 3]),
        ([["embedding", "decoder"], ["decoder", "loss"]], [1, 1]),
        ("t" * 20_000, None),
        ("(t*999999)*999999", None),
        ("$(x)", None),
    ],
)
def test_written_layouts(text: object, layers: list[int] | None) -> None:
    assert parse_stages(text) == layers


def test_layout_says_chunks_and_outer_stages() -> None:
    draft = draft_of(pipeline_model_parallel_size=2, pipeline_model_parallel_layout="Ett|tt|ttt|tL")
    assert {key: draft.fact(f"layout.{key}") for key in ("vpp", "stages")} == {"vpp": 2, "stages": (5, 3)}


@pytest.mark.parametrize(("pp", "said"), [(4, True), (1, None)])
def test_embedding_and_loss_count_as_layers(pp: int, said: bool | None) -> None:
    """30 layers in chunks of 4 on 4 stages are 8 with the ends, and thus 2 chunks."""
    draft = draft_of(
        num_layers=30, pipeline_model_parallel_size=pp, account_for_embedding_in_pipeline_split=True,
        account_for_loss_in_pipeline_split=True, num_layers_per_virtual_pipeline_stage=4,
    )  # fmt: skip
    assert [draft.fact(f"layout.account_for_{end}") for end in ("embedding", "loss")] == [said, said]
    assert draft.fact("layout.vpp") == 32 // pp // 4


def test_chunks_of_other_sizes_are_stages_of_their_own() -> None:
    """3 layers on each stage, in chunks of 2 and 1."""
    draft = draft_of(
        pipeline_model_parallel_size=2,
        pipeline_model_parallel_layout="Ett|tt|t|tL",
        num_virtual_stages_per_pipeline_rank=2,
    )
    assert {key: draft.fact(f"layout.{key}") for key in ("vpp", "stages")} == {"vpp": 2, "stages": (3, 3)}


@pytest.mark.parametrize(
    ("said", "stages"),
    [
        ({"pipeline_model_parallel_layout": "Et*2|(ttt|)*30mL"}, (11, 12, 12, 12, 12, 12, 12, 9)),
        ({"decoder_first_pipeline_num_layers": 10, "decoder_last_pipeline_num_layers": 10}, None),
    ],
)
def test_layouts_of_glm(said: dict[str, object], stages: tuple[int, ...] | None) -> None:
    """92 layers on 8 stages, which they do not divide: as Megatron lists them, or with both ends given."""
    draft = draft_of(num_layers=92, pipeline_model_parallel_size=8, **said)
    assert draft.fact("layout.stages") == stages
    if stages is None:
        assert [draft.fact(f"layout.{end}_stage_layers") for end in ("first", "last")] == [10, 10]
    else:
        assert sum(stages) == 92


@pytest.mark.parametrize(
    ("said", "loss"),
    [
        ({"cross_entropy_loss_fusion": True}, "vocab-parallel-compiled"),
        ({"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}, "vocab-parallel-compiled"),
        ({"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}, "flash"),
        ({"cross_entropy_loss_fusion": False, "cross_entropy_fusion_impl": "te"}, None),
        ({"cross_entropy_fusion_impl": "te"}, None),
    ],
)
def test_kernels_of_the_loss(said: dict[str, object], loss: str | None) -> None:
    draft = draft_of(**said)
    assert draft.fact("loss") == loss
    assert not [one for one in draft.ignored if "cross_entropy" in one.key]


def test_samples_become_steps() -> None:
    draft = draft_of(train_samples="1000", global_batch_size="64")
    assert draft.fact("train.steps") == 15


def test_samples_without_a_batch_are_told() -> None:
    assert [each.key for each in draft_of(train_samples=10).ignored] == ["train_samples"]


def test_a_schedule_of_batches_ends_at_the_last() -> None:
    draft = draft_of(step_batch_size_schedule="0:16 2.4B:320")
    assert draft.fact("train.global_batch") == 320
    assert [each.key for each in draft.ignored] == ["step_batch_size_schedule"]


def test_fp8() -> None:
    draft = draft_of(bf16=True, fp8_format="hybrid")
    assert (draft.fact("precision"), draft.fact("train.fp8_recipe")) == ("fp8", "delayed")
    assert draft_of(bf16=True, fp8_recipe="mxfp8").fact("train.fp8_recipe") is None


def test_evaluations_take_global_batches() -> None:
    draft = draft_of(eval_interval=100, eval_iters=10, global_batch_size=32)
    assert (draft.fact("train.evaluate_every"), draft.fact("train.evaluate_samples")) == (100, 320)
    assert draft_of(eval_interval=100, eval_iters=0).fact("train.evaluate_every") is None


def test_dropouts_that_differ() -> None:
    assert draft_of(hidden_dropout="0.0", attention_dropout="0.0").fact("train.dropout") == 0
    draft = draft_of(hidden_dropout=0.0)
    assert (draft.fact("train.dropout"), draft.facts["train.dropout"].note) == (
        0.1, "0 of hidden states, 0.1 of attention",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tensor_model_parallel_size", "recompute_num_layers", "train_samples"])
def test_values_that_are_no_numbers_are_told(name: str) -> None:
    draft = draft_of(**{name: "${N}", "recompute_granularity": "full", "recompute_method": "block"})
    assert any(each.key == name and "not read" in each.why for each in draft.ignored)


def test_arguments_in_groups() -> None:
    keys = {
        "model.tensor_model_parallel_size": Written(4, Location("a.yaml", 1)),
        "model.bf16": Written(True, Location("a.yaml", 2)),
    }
    draft = Draft("x", keys)
    state_megatron(Arguments(draft, ("model.", "")))
    assert (draft.fact("layout.tp"), draft.fact("precision")) == (4, "bf16")
    assert replace(TABLE, prefixes=("model.",)).is_silent("model.lr")


def test_optimizer_names() -> None:
    assert draft_of(optimizer="dist_muon").fact("optimizer") == "muon"
    assert draft_of(optimizer="adam").fact("optimizer") == "adamw"
    assert draft_of(optimizer="lion").fact("optimizer") == "lion"
    assert draft_of(optimizer="dion").ignored[0].key == "optimizer"


def test_offload() -> None:
    said = {"optimizer_cpu_offload": True, "cpu_offloading_num_layers": 4}
    assert draft_of(**said).fact("layout.offload") == "optimizer+activations"


@pytest.mark.parametrize(
    ("said", "ramp", "told"),
    [
        ("16 16 480", (16, 16, 480), []),
        (["16", "16", "480"], (16, 16, 480), []),
        ("16 13 480", None, ["rampup_batch_size"]),
        ("64 16 480", None, []),
        (None, None, []),
    ],
)
def test_batches_that_grow(said: object, ramp: tuple[int, ...] | None, told: list[str]) -> None:
    draft = draft_of(global_batch_size=64, rampup_batch_size=said, train_iters=100)
    assert draft.fact("train.batch_ramp_up") == ramp
    assert [each.key for each in draft.ignored if each.effect == "memory or time"] == told


@pytest.mark.parametrize(
    ("said", "stack", "hidden"),
    [
        ({"overlap_grad_reduce": True}, "megatron-lm", ("context-parallel", "pipeline", "data-parallel")),
        ({"tp_comm_overlap": True, "overlap_moe_expert_parallel_comm": True, "no_overlap_p2p_communication": True},
         "megatron-lm", ("tensor-parallel", "context-parallel", "expert-parallel")),
        ({"overlap_param_gather": False}, "nemo",
         ("context-parallel", "expert-parallel", "pipeline", "data-parallel", "sharding")),
        ({"tp_comm_overlap": False}, "primus",
         ("context-parallel", "pipeline", "data-parallel", "updated-weights", "sharding")),
        ({}, "megatron-lm", None),
    ],
)  # fmt: skip
def test_switches_say_what_compute_hides_and_the_stack_the_rest(
    said: dict[str, object], stack: str, hidden: tuple[str, ...] | None
) -> None:
    draft = draft_of(**said)
    draft.default("stack", stack)
    for settle in draft.following:
        settle(draft)
    found = draft.fact("train.overlap")
    assert (found if found is None or "sharding" in hidden else tuple(n for n in found if n != "sharding")) == hidden
    assert not draft.ignored


@pytest.mark.parametrize(
    ("said", "optimizer"),
    [
        ({}, "adamw-precision-aware"),
        ({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, "adamw-precision-aware-bf16"),
        ({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "fp8_recipe": "blockwise"}, "adamw-bf16-moments"),
        ({"main_params_dtype": "fp16", "fp8_recipe": "tensorwise"}, "adamw-precision-aware"),
        ({"exp_avg_dtype": "fp8"}, "adamw"),  # told as lost
        ({"optimizer_cpu_offload": True}, "adamw"),
    ],
)
def test_types_of_optimizer_states(said: dict[str, object], optimizer: str) -> None:
    """Masters keep 16 bits unless fp8 has other scales than delayed ones."""
    assert (
        draft_of(use_precision_aware_optimizer=True, optimizer="adam", bf16=True, **said).fact("optimizer") == optimizer
    )


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"bf16": True}, None),
        ({"bf16": True, "grad_reduce_in_bf16": True}, "bf16"),
        ({"bf16": True, "accumulate_allreduce_grads_in_fp32": True}, "fp32"),
        ({"bf16": True, "accumulate_allreduce_grads_in_fp32": False}, None),  # on in bf16, whatever is said
        ({"bf16": True, "use_precision_aware_optimizer": True, "main_grads_dtype": "bf16"}, "bf16"),
        ({"bf16": True, "use_precision_aware_optimizer": True, "main_grads_dtype": "fp32"}, "fp32"),
        ({"bf16": True, "main_grads_dtype": "bf16"}, None),
        ({"bf16": True, "grad_reduce_in_fp32": False}, "bf16"),  # as Bridge and NeMo call it
        ({"bf16": True, "grad_reduce_in_fp32": True}, "fp32"),
        ({"fp16": True}, None),
        ({"fp16": True, "accumulate_allreduce_grads_in_fp32": True}, "fp32"),
    ],
)
def test_what_gradients_are_kept_in(said: dict[str, object], kept: str | None) -> None:
    """training/arguments.py; what nobody says is the stack's."""
    assert draft_of(**said).fact("train.gradient_dtype") == kept


def test_the_word_of_the_precision_takes_the_place_of_that_of_the_exchange() -> None:
    keys = {
        "ddp.grad_reduce_in_fp32": Written(True, Location("job.yaml", 1)),
        "mixed_precision.grad_reduce_in_fp32": Written(False, Location("job.yaml", 2)),
        "model.bf16": Written(True, Location("job.yaml", 3)),
    }
    draft = Draft("megatron", keys)
    state_megatron(Arguments(draft, ("model.", "ddp.", "mixed_precision.", "")))
    assert draft.fact("train.gradient_dtype") == "bf16"
