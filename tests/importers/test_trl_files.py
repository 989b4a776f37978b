"""Configurations of TRL's trainers as scenarios."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

MODEL = "model_name_or_path: Qwen/Qwen2.5-0.5B\n"


def read(folder: Path, text: str, name: str = "job.yaml", **files: str) -> Imported:
    """A configuration, with files beside it: `ds_json` is written as ds.json and read as if it were named too."""
    main = folder / name
    main.parent.mkdir(parents=True, exist_ok=True)
    main.write_text(text)
    beside = []
    for file, said in files.items():
        path = folder / file.replace("_", ".")
        path.write_text(said)
        beside.append(path)
    return read_foreign([main, *beside], Asked(hardware={}))


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_what_trl_fills_in_is_said_to_be_its_default(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "dataset_name: trl-lib/Capybara\npacking: false\n")
    said = facts(found)
    assert said["job"] == "sft"
    assert said["train.micro_batch"] == 8
    assert said["train.seq_len"] == 1024
    assert said["train.epochs"] == 3
    assert said["layout.recompute"] == "full"
    assert said["precision"] == "bf16"
    assert said["train.weights_dtype"] == "fp32"
    assert {found.facts[key].origin for key in ("precision", "train.micro_batch", "layout.recompute")} == {
        "tool-default"
    }
    assert [each.key for each in found.missing] == ["gpus"]


def test_a_quantised_base_with_adapters_is_qlora(tmp_path: Path) -> None:
    text = "dtype: bfloat16\nuse_peft: true\nload_in_4bit: true\nlora_r: 32\nlora_target_modules: [q_proj, k_proj]\n"
    said = facts(read(tmp_path, MODEL + text + "packing: true\n"))
    assert said["job"] == "qlora"
    assert said["train.bits"] == 4
    assert said["lora.rank"] == 32
    assert said["lora.targets"] == ("q_proj", "k_proj")
    assert said["train.padding"] == "packed"


def test_without_use_peft_the_adapter_keys_say_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "lora_r: 32\npacking: true\n")
    assert "lora.rank" not in found.facts
    assert [each.effect for each in found.ignored if each.key == "lora_r"] == ["none"]


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("num_generations: 8\nbeta: 0.0\n", "grpo"),
        ("desirable_weight: 1.0\n", "kto"),
        ("loss_type: kto\nbeta: 0.1\n", "kto"),
        ("center_rewards_coefficient: 0.01\n", "reward"),
        ("beta: 0.1\nprecompute_ref_log_probs: true\n", "dpo"),
        ("loss_type: simpo\ncpo_alpha: 0.0\n", "simpo"),
        ("teacher_model_name_or_path: Qwen/Qwen2.5-7B\n", "distill"),
        ("num_ppo_epochs: 4\nresponse_length: 53\n", "ppo"),
        ("max_seq_length: 2048\n", "sft"),
    ],
)
def test_keys_tell_the_trainer(tmp_path: Path, text: str, job: str) -> None:
    found = read(tmp_path, MODEL + text)
    assert found.facts["job"].value == job
    assert found.facts["job"].origin == "read"


def test_a_folder_tells_the_trainer_where_keys_do_not(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "beta: 0.05\nmax_prompt_length: 512\n", "recipes/orpo/config_full.yaml")
    assert found.facts["job"].value == "orpo"
    assert found.facts["job"].origin == "assumed"


def test_how_answers_are_written_is_read(tmp_path: Path) -> None:
    text = "num_generations: 16\nmax_prompt_length: 512\nmax_completion_length: 1024\nuse_vllm: true\nbeta: 0.04\n"
    said = facts(read(tmp_path, MODEL + text))
    assert said["train.seq_len"] == 1536
    assert (said["rollout.group"], said["rollout.max_output_tokens"], said["rollout.engine"]) == (16, 1024, "vllm")
    assert said["train.reference"] == "copy"


def test_no_limit_on_length_is_no_default(tmp_path: Path) -> None:
    assert "train.seq_len" not in read(tmp_path, MODEL + "max_length: null\npacking: true\n").facts


def test_saving_and_evaluating_every_so_many_steps(tmp_path: Path) -> None:
    text = "packing: true\nmax_steps: 1000\nsave_steps: 0.1\neval_strategy: steps\neval_steps: 50\n"
    said = facts(read(tmp_path, MODEL + text))
    assert said["train.checkpoint_every"] == 100
    assert said["train.evaluate_every"] == 50
    assert said["train.steps"] == 1000
    assert "train.epochs" not in said
    assert "train.checkpoint_every" not in facts(read(tmp_path, MODEL + "packing: true\nsave_strategy: epoch\n"))


def test_evaluations_after_every_epoch_are_told(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "packing: true\neval_strategy: epoch\n")
    assert [each.key for each in found.lost] == ["eval_strategy"]


def test_unknown_and_commented_keys(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "packing: true\n# max_length: 99\nno_such_key: 3\nlearning_rate: 1.0e-4\n")
    assert found.facts["train.seq_len"].value == 1024
    assert [each.key for each in found.unknown] == ["no_such_key"]


@pytest.mark.parametrize("value", ["[1, 2]", "{a: b}", "many", "-3", "1.5", "true", "9999999999999999999999", ".nan"])
@pytest.mark.parametrize("key", ["per_device_train_batch_size", "max_steps", "save_steps", "lora_r", "bf16", "optim"])
def test_odd_values_give_an_import_that_says_so(tmp_path: Path, key: str, value: str) -> None:
    text = MODEL + f"packing: true\nuse_peft: true\n{key}: {value}\n"
    try:
        assert read(tmp_path, text).facts["model"].value == "Qwen/Qwen2.5-0.5B"
    except InputError as refused:
        problems = refused.problems
    else:
        return
    assert [str(problem.location) for problem in problems] == [f"{tmp_path}/job.yaml:4:{len(key) + 3}"]


@pytest.mark.parametrize("key", ["per_device_train_batch_size", "gradient_accumulation_steps", "lora_r", "max_length"])
@pytest.mark.parametrize("value", ["-5", "0", "-1", "1.5", "many", "true", "[1, 2]", ".nan", ".inf", "'-3'"])
def test_what_no_job_can_be_without_is_a_whole_number_above_zero(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{key}: .* is not a (whole )?number"):
        read(tmp_path, MODEL + f"packing: true\nuse_peft: true\n{key}: {value}\n")


def test_values_that_the_tool_gives_a_meaning_have_it(tmp_path: Path) -> None:
    said = facts(read(tmp_path, MODEL + "packing: true\nmax_steps: -1\nsave_steps: 0\nmax_length: null\n"))
    assert said["train.epochs"] == 3  # max_steps: -1 is the run as long as its epochs
    assert said.keys().isdisjoint(("train.steps", "train.checkpoint_every", "train.seq_len"))


def test_all_impossible_values_are_told_at_once(tmp_path: Path) -> None:
    odd = "max_length: -5\nnum_train_epochs: -2\nmax_steps: -7\ngradient_accumulation_steps: x\n"
    with pytest.raises(InputError) as caught:
        read(tmp_path, MODEL + "packing: true\n" + odd)
    problems = caught.value.problems
    assert [problem.location.line for problem in problems if problem.location is not None] == [3, 4, 5, 6]
    assert all(problem.hint and "leave it out" in problem.hint for problem in problems)


GROUPS = (
    "num_generations: 8\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nmax_completion_length: 1024\n"
)


def test_answers_in_groups_make_the_prompts_of_an_iteration(tmp_path: Path) -> None:
    more = "steps_per_generation: 6\nnum_iterations: 2\nuse_vllm: true\nvllm_mode: colocate\n"
    main = tmp_path / "grpo.yaml"
    main.write_text(f"{MODEL}{GROUPS}{more}vllm_enable_sleep_mode: true\nvllm_tensor_parallel_size: 2\nbeta: 0.04\n")
    said = facts(read_foreign([main], Asked(hardware={"gpus": 4})))
    assert (said["job"], said["rollout.group"], said["rollout.updates"]) == ("grpo", 8, 2)
    assert said["rollout.prompts"] == 4 * 6 * 4 // 8  # micro-batch x steps x GPUs in groups of 8
    assert (said["rollout.engine"], said["rollout.colocated"], said["rollout.tp"]) == ("vllm", True, 2)
    assert (said["rollout.sleep"], said["train.reference"]) == ("weights-dropped", "copy")


def test_answers_that_make_no_whole_groups_are_told(tmp_path: Path) -> None:
    main = tmp_path / "grpo.yaml"
    main.write_text(f"{MODEL}{GROUPS.replace('8', '14')}")
    found = read_foreign([main], Asked(hardware={"gpus": 8}))
    assert facts(found)["rollout.prompts"] == 5  # 64 answers in groups of 14
    assert "no whole groups of 14" in next(each.why for each in found.lost if each.key == "num_generations")


@pytest.mark.parametrize(
    ("name", "text", "reference"),
    [
        ("grpo.yaml", GROUPS, "none"),
        ("rloo.yaml", GROUPS, "copy"),
        ("grpo.yaml", f"{GROUPS}beta: 0.01\nuse_peft: true\nlora_r: 8\n", "adapters-off"),
        ("grpo.yaml", f"{GROUPS}beta: 0.01\nlora_r: 8\n", "copy"),
        ("rloo.yaml", f"{GROUPS}beta: 0.0\n", "none"),
    ],
)
def test_a_reference_stands_where_straying_from_it_counts(tmp_path: Path, name: str, text: str, reference: str) -> None:
    assert facts(read(tmp_path, MODEL + text, name))["train.reference"] == reference


def test_answers_that_a_critic_scores(tmp_path: Path) -> None:
    text = "num_ppo_epochs: 2\nresponse_length: 256\nreward_model_path: Qwen/Qwen2.5-1.5B\n"
    main = tmp_path / "ppo.yaml"
    main.write_text(f"{MODEL}{text}per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n")
    said = facts(read_foreign([main], Asked(hardware={"gpus": 8})))
    assert (said["job"], said["rollout.group"], said["rollout.prompts"]) == ("ppo", 1, 4 * 2 * 8)
    assert (said["rollout.updates"], said["rollout.max_output_tokens"]) == (2, 256)
    assert (said["train.critic_model"], said["train.reward_model"]) == ("Qwen/Qwen2.5-1.5B",) * 2


@pytest.mark.parametrize(
    ("lines", "chunked"),
    [("rpo_alpha: 1.0\n", True), ("num_generations: 8\n", True), ("center_rewards_coefficient: 0.1\n", False)],
)
def test_ligers_losses_come_in_chunks(tmp_path: Path, lines: str, chunked: bool) -> None:
    kernels = facts(read(tmp_path, MODEL + lines + "use_liger_kernel: true\n"))["train.fused_kernels"]
    assert isinstance(kernels, tuple)
    assert "norm" in kernels
    assert ("linear-log-probabilities" in kernels) == chunked


TWO_TRAININGS = """\
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
args = SFTConfig(per_device_train_batch_size=4, max_length=2048, max_steps=100)
trainer = SFTTrainer(model, args=args)
trainer.train()
args = DPOConfig(per_device_train_batch_size=2, max_length=1024, max_steps=50)
DPOTrainer("Qwen/Qwen2.5-14B", args=args).train()
"""


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, ("Qwen/Qwen2.5-14B", "dpo", 2, 1024)),
        ({"training": "1"}, ("Qwen/Qwen2.5-7B", "sft", 4, 2048)),
        ({"training": "SFTTrainer"}, ("Qwen/Qwen2.5-7B", "sft", 4, 2048)),
    ],
)
def test_a_script_that_trains_twice_says_which_training_is_read(
    tmp_path: Path, asked: dict[str, str], wanted: tuple[object, ...]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(TWO_TRAININGS)
    found = read_foreign([path], Asked(given=asked))
    keys = ("model", "job", "train.micro_batch", "train.seq_len")
    assert tuple(found.facts[key].value for key in keys) == wanted
    (told,) = found.lost
    assert "SFTTrainer in line 5, DPOTrainer in line 8" in told.why
    with pytest.raises(InputError, match="no training 'PPO'"):
        read_foreign([path], Asked(given={"training": "PPO"}))
    path.write_text(TWO_TRAININGS.replace("trainer.train()\n", ""))  # a trainer that never trains
    assert not read_foreign([path], Asked()).lost
