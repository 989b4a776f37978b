"""Every command of README and docs runs: those of blocks, and those in a sentence or a table that name all they need.

They run in a folder with files of the names that the pages use. `<!-- not run: why -->` before a block, or behind a
command in a sentence, leaves it out. Of what has a placeholder, such as FILE or `...`, the options are known.
"""

from __future__ import annotations

import gc
import glob
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import typer
import yaml

from xe_sizer.cli.main import COMMANDS, app, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"docs/adding.md": "tests/contract/test_adding.py"}  # run there, with the files that the page shows
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
OF_A_SHELL = ("", "sh", "bash", "console")
IN_A_BLOCK = re.compile(r"(?:^|[ /])xe-sizer ([a-z-].*)")
NOT_RUN = re.compile(r"(?<!`)<!-- not run: (.+?) -->")
IN_A_SENTENCE = re.compile(rf"`xe-sizer ([^`]+)`(?:\s*{NOT_RUN.pattern})?")
PLACEHOLDER = re.compile(r"\.\.\.|\b[A-Z]{3,}\b(?![-=])")

EXAMPLES = {
    "service.yaml": "serve/llama-3.1-70b-chat.yaml",
    "grpo.yaml": "reinforcement-learning/grpo-8b-apart.yaml",
    "cluster.yaml": "calendar/day-and-night.yaml",
    "jobs/one.yaml": "plan/lora-8b.yaml",
    "jobs/two.yaml": "qlora-llama-3.1-8b.yaml",
    "scenarios/one.yaml": "qlora-llama-3.1-8b.yaml",
    "sizing/one.yaml": "qlora-llama-3.1-8b.yaml",
}
SHOWN = {"runs.yaml": "docs/calibrate.md", "mine/h100-sxm-80gb.yaml": "docs/new-gpu.md"}  # the first YAML of a page
RECORDS = 4  # of each file that ships
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
sequence_len: 4096
micro_batch_size: 1
gradient_accumulation_steps: 4
max_steps: 100
bf16: auto
deepspeed: zero3.json
"""
FILES = {
    "job.yaml": (
        "{model: llama-3.1-8b, server: dell-xe9680-h100, gpus: 8, job: sft, stack: hf-trainer, "
        "data: {profile: alpaca}, train: {epochs: 3, global_batch: 128, seq_len: 2048}}\n"
    ),
    "axolotl.yml": AXOLOTL,
    "axolotl.yaml": AXOLOTL,
    "zero3.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    "train.sh": "accelerate launch --num_processes 8 -m axolotl.cli.train axolotl.yml\n",
    "dsr1_fp4_b300.sh": "vllm serve $MODEL --tensor-parallel-size $TP --max-num-seqs $CONC --max-model-len $ISL\n",
    "run_grpo.sh": (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=128 "
        "data.max_prompt_length=512 data.max_response_length=1024 trainer.n_gpus_per_node=8 trainer.nnodes=1 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.rollout.n=4 trainer.total_training_steps=99 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=64\n"
    ),
    "values.yaml": (
        "servingEngineSpec:\n  modelSpec:\n    - {name: small, repository: vllm/vllm-openai, tag: v0.8.5, "
        "modelURL: Qwen/Qwen2.5-7B-Instruct, replicaCount: 1, requestGPU: 1}\n"
    ),
    "train.jsonl": '{"prompt": "How large is it?", "completion": "As large as this."}\n' * 50,
    "AzureLLMInferenceTrace_conv.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    + "".join(f"2023-11-16 18:15:{second:02}.0000000,{300 + second},{20 + second}\n" for second in range(60)),
    "run-1.log": "{'train_runtime': 120.5, 'train_steps_per_second': 1.25, 'train_loss': 1.5}\n",
    "run-2.log": "{'train_runtime': 122.5, 'train_steps_per_second': 1.27, 'train_loss': 1.5}\n",
    "trainer_state.json": '{"global_step": 40, "log_history": [{"step": 40, "train_runtime": 32.0}]}',
}


@dataclass(frozen=True)
class Command:
    """A command of a page as it stands there, and why it is not run."""

    text: str
    in_a_block: bool
    why_not: str = ""

    @property
    def words(self) -> list[str]:
        """Arguments as a shell passes them; a few models of the catalogue stand for all."""
        words = shlex.split(self.text.partition(" | ")[0].replace("$GITHUB_STEP_SUMMARY", "summary.md"), comments=True)
        files = [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]  # noqa: PTH207
        return [*files, "--part", "llama-3."] if words[0] == "models" else files

    @property
    def runs(self) -> bool:
        """Whether it names all that it needs, and nothing keeps it from running."""
        complete = " " in self.text or self.text.startswith("-")
        return not self.why_not and (self.in_a_block or (complete and not PLACEHOLDER.search(self.text)))


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, those of blocks first."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block["language"] in OF_A_SHELL:
            why = NOT_RUN.search(block["before"])
            for line in block["text"].replace("\\\n", " ").splitlines():
                found = IN_A_BLOCK.search(line)
                if found:
                    yield Command(found[1], True, why[1] if why else "")
    for found in IN_A_SENTENCE.finditer(BLOCK.sub("", text)):
        yield Command(" ".join(found[1].replace("\\|", "|").split()), False, found[2] or "")


def blocks(page: Path) -> Iterator[re.Match[str]]:
    return BLOCK.finditer(page.read_text(encoding="utf-8"))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_COMMANDS = [
    page for page in PAGES if name(page) not in ELSEWHERE and any(command.runs for command in commands(page))
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, and files of the names that the pages use."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for file in ("preference.jsonl", "reinforcement.jsonl"):
        shipped = ROOT / "xe_sizer/evidence/data" / file
        (folder / "xe_sizer/evidence/data").mkdir(parents=True, exist_ok=True)
        few = shipped.read_text(encoding="utf-8").splitlines(keepends=True)[:RECORDS]
        (folder / "xe_sizer/evidence/data" / file).write_text("".join(few), encoding="utf-8")
    for file, example in EXAMPLES.items():
        (folder / file).parent.mkdir(exist_ok=True)
        text = (ROOT / "examples" / example).read_text(encoding="utf-8")
        (folder / file).write_text(text.replace("../", "examples/"), encoding="utf-8")
    for file, text in FILES.items():
        (folder / file).write_text(text, encoding="utf-8")
    for file, page in SHOWN.items():
        (folder / file).parent.mkdir(exist_ok=True)
        shown = next(block["text"] for block in blocks(ROOT / page) if block["language"] == "yaml")
        (folder / file).write_text(shown, encoding="utf-8")
    records = yaml.safe_load((folder / "runs.yaml").read_text(encoding="utf-8"))
    (folder / "runs.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"unknown": 0}, unk_token="unknown"))
    (folder / "models/llama-3.1-8b").mkdir(parents=True)
    tokenizer.save(str(folder / "models/llama-3.1-8b/tokenizer.json"))
    assert main(["check", str(folder / "scenarios"), "-o", str(folder / "main.json")]) == 0
    return folder


@pytest.fixture
def at_the_users(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a copy of these files; without collecting garbage, as the installed command."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name)
@pytest.mark.usefixtures("at_the_users")
def test_the_commands_of_a_page_answer(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {}
    for command in filter(lambda command: command.runs, commands(page)):
        code = main(command.words)
        said = capsys.readouterr().err
        if code not in (0, 1):
            failed[command.text] = f"exit code {code}: {said}"
    assert failed == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_are_only_mentioned_are_known(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    unknown = []
    for command in commands(page):
        first = re.match(r"[a-z][a-z-]*", command.text)
        if command.runs or not first:
            continue
        if first[0] not in COMMANDS:
            unknown.append(command.text)
            continue
        known = {option for each in parameters(group.get_command(None, first[0])) for option in each}
        written = re.sub(r"\"[^\"]*\"", "", command.text.partition(" # ")[0])
        options = re.findall(r"(?<= )--[a-z-]+", written)
        unknown += [f"{option} of {command.text}" for option in options if option not in known]
    assert unknown == []


def parameters(command: object) -> Iterator[list[str]]:
    """The options of a command, and those of its own commands."""
    for parameter in getattr(command, "params", []):
        yield [*parameter.opts, *parameter.secondary_opts]
    for each in getattr(command, "commands", {}).values():
        yield from parameters(each)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_command_of_a_block_is_missed(page: Path) -> None:
    """Counted line by line, of indented blocks too, which are not looked at: commands stand in fences."""
    fence, count, goes_on = None, 0, False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif (fence in OF_A_SHELL and not goes_on) or (fence is None and line.startswith("    ")):
            count += bool(IN_A_BLOCK.search(line))
        goes_on = line.endswith("\\")
    assert sum(command.in_a_block for command in commands(page)) == count


def test_what_is_not_run_says_why() -> None:
    for page in PAGES:
        whys = NOT_RUN.findall(page.read_text(encoding="utf-8"))
        assert all(len(why.split()) > 2 for why in whys), name(page)
        left_out = {command.why_not for command in commands(page) if command.why_not}
        assert set(whys) == left_out, f"{name(page)}: a command is left out that is none"


def test_pages_run_elsewhere_are_named_there() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
