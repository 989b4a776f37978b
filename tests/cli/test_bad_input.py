"""Bad input of every kind through the real command line: refused with its place, in words, and with code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Ran
from .refusals import refused

Cli = Callable[..., Ran]
ROOT = Path(__file__).parents[2]
BASE = "model: llama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\n"  # line 4 is the first free one
SERVER = "model: llama-2-7b\nserver: dell-xe9680-h100\n"
SECONDS = 20  # a hostile file must not take longer, start-up and a loaded machine included


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Bad:
    """A scenario file, where its mistake stands, what is said about it."""

    text: str | bytes
    at: str
    says: str
    hint: str | None = None


FILES = {
    # what YAML itself allows or forbids
    "empty file": Bad("", "1:1", "the file is empty", "key: value"),
    "comments only": Bad("# nothing\n", "1:1", "the file is empty"),
    "a list": Bad("- model\n", "1:1", "must hold keys and values, not a list"),
    "plain text": Bad("hello\n", "1:1", "must hold keys and values"),
    "utf-16": Bad(BASE.encode("utf-16"), "1:1", "UTF-16", "UTF-8"),
    "binary": Bad(bytes(range(256)), "1:1", "binary file"),
    "latin-1": Bad(b"model: caf\xe9\n", "1:11", "not valid UTF-8"),
    "control character": Bad("model: a\x1b[31mb\n", "1:9", "control character"),
    "duplicate key": Bad(BASE + "gpus: 16\n", "4:1", "'gpus' is given twice", "remove one"),
    "alias bomb": Bad("a: &a [1, 1]\nb: [*a, *a]\n" + BASE, "2:5", "aliases", "write the value out"),
    "merge key": Bad(BASE + "train:\n  <<: {steps: 5}\n", "5:3", "merge keys"),
    "python tag": Bad("model: !!python/object/apply:os.system [id]\n", "1:8", "tags"),
    "5,000 brackets": Bad(BASE + "data: " + "[" * 5000 + "]" * 5000, "4:56", "nested more than 50 levels"),
    "5,000 groups": Bad(BASE + "data: " + "{a: " * 5000, "4:203", "nested more than 50 levels"),
    "a bracket left open": Bad(BASE + "layout: {tp: 2\n", "5:1", "not closed", "it opens at line 4, column 9"),
    "a tab": Bad(BASE + "layout:\n\ttp: 2\n", "5:1", "cannot start with this character", "spaces"),
    "two documents": Bad(BASE + "---\n" + BASE, "4:1", "second document"),
    # numbers that are none
    "nan": Bad(BASE + "data: {mean_tokens: .nan}\n", "4:21", "not a finite number", "leave the key out"),
    "inf": Bad(BASE + "limits: {max_hours: -.inf}\n", "4:21", "not a finite number"),
    "octal": Bad(BASE + "layout: {tp: 010}\n", "4:14", "leading zero", "write 10"),
    "base 60": Bad(BASE + "limits: {max_hours: 1:30}\n", "4:21", "base 60", "one number"),
    "underscores": Bad(BASE + "data: {samples: 12_012}\n", "4:17", "underscores", "write 12012"),
    "yes for true": Bad(BASE + "efficiency: {ideal: yes}\n", "4:21", "bool", "true or false"),
    "negative": Bad(BASE + "train: {seq_len: -4096}\n", "4:18", "must be at least 1, not -4096"),
    "zero": Bad(BASE + "train: {global_batch: 0}\n", "4:23", "must be at least 1, not 0"),
    "huge": Bad(BASE + "train: {steps: 1e40}\n", "4:16", "too large a number", "1e30"),
    "4,000 digits": Bad("model: llama-2-7b\ngpus: 1" + "0" * 4000 + "\n", "2:7", "too large a number"),
    "above the range": Bad(BASE + "train: {seq_len: 2000000000}\n", "4:18", "at most 1000000000"),
    "a fraction of a GPU": Bad("model: llama-2-7b\ngpus: 7.5\n", "2:7", "must be a whole number, not 7.5"),
    "text for a number": Bad(BASE + "layout: {tp: eight}\n", "4:14", "must be a whole number, not 'eight'"),
    "a list for text": Bad("model: [llama-2-7b]\n", "1:8", "'model' must be text"),
    "an efficiency above 1": Bad(BASE + "efficiency: {flops: 50}\n", "4:21", "at most 1"),
    # names
    "key": Bad(BASE + "layuot: {tp: 2}\n", "4:1", "unknown key 'layuot'", "'layout'"),
    "limit": Bad(BASE + "limits: {max_hrs: 5}\n", "4:10", "unknown key 'max_hrs'", "'max_hours'"),
    "key of another section": Bad(BASE + "layout: {micro_batch: 5}\n", "4:10", "unknown key", "train"),
    "model": Bad(BASE.replace("llama-2-7b", "lama-2-7b"), "1:8", "unknown model", "'llama-2-7b'"),
    "gpu": Bad(BASE.replace("h100-sxm-80gb", "h100-smx"), "2:6", "unknown gpu", "'h100-sxm-80gb'"),
    "gpu of several": Bad(BASE.replace("h100-sxm-80gb", "A100"), "2:6", "matches several gpus", "'a100-sxm-80gb'"),
    "server": Bad(SERVER.replace("h100", "h10"), "2:9", "unknown server", "'dell-xe9680-h100'"),
    "a gpu for a server": Bad("model: llama-2-7b\nserver: l40s\n", "2:9", "unknown server", "write gpu: l40s"),
    "stack": Bad(BASE + "stack: megatorn\n", "4:8", "unknown stack", "'megatron-lm'"),
    "stack like none": Bad(BASE + "stack: zzz\n", "4:8", "unknown stack", "known stacks: "),
    "data set": Bad(BASE + "data: {profile: alpacca}\n", "4:17", "unknown data set", "'alpaca'"),
    "job": Bad(BASE + "job: lroa\n", "4:6", "must be one of", "'lora'"),
    "padding": Bad(BASE + "train: {padding: longest}\n", "4:18", "must be one of", "'longest-in-micro-batch'"),
    "lora target": Bad(BASE + "job: lora\nlora: {targets: [qvk]}\n", "5:17", "'qvk' is not a projection", "'qkv'"),
    "a target that the model lacks": Bad(
        "model: opt-1.3b\ngpu: h100-sxm-80gb\njob: lora\nlora: {targets: [gate]}\n", "4:17", "not a projection"
    ),
    "no hardware": Bad("model: llama-2-7b\n", "1:1", "no hardware named", "--gpu"),
    "no model": Bad("gpu: h100-sxm-80gb\n", "1:1", "missing key 'model'", "name, path or Hub id"),
    "server and gpu": Bad(SERVER + "gpu: b200\n", "3:6", "both given", "remove one"),
    # paths
    "model outside": Bad(BASE.replace("llama-2-7b", "../../etc/passwd"), "1:8", "unknown model"),
    "gpu outside": Bad(BASE.replace("h100-sxm-80gb", "../../etc/passwd"), "2:6", "not the path of a gpu profile"),
    "server outside": Bad("model: llama-2-7b\nserver: /etc/passwd\n", "2:9", "not the path of a server profile"),
    "stack outside": Bad(BASE + "stack: ../../etc/passwd\n", "4:8", "not the path of a stack"),
    "data set outside": Bad(BASE + "data: {profile: ../../etc/passwd}\n", "4:17", "not the path of a data set"),
    "model path": Bad(BASE.replace("llama-2-7b", "./gone.yaml"), "1:8", "no such file", "folder"),
    "config path": Bad(BASE.replace("llama-2-7b", "./config.json"), "1:8", "no such file", "folder"),
    "gpu path": Bad(BASE.replace("h100-sxm-80gb", "./gone.yaml"), "2:6", "no such file", "folder"),
    "server path": Bad("model: llama-2-7b\nserver: ./gone.yaml\n", "2:9", "no such file", "folder"),
    "stack path": Bad(BASE + "stack: ./gone.yaml\n", "4:8", "no such file", "folder"),
    "data set path": Bad(BASE + "data: {profile: gone.yaml}\n", "4:17", "no such file", "folder"),
    # what the model, the hardware or the stack cannot do
    "tp and heads": Bad(BASE.replace("8\n", "6\n") + "layout: {tp: 6}\n", "4:14", "does not divide the 32 heads"),
    "pp and layers": Bad(BASE.replace("8\n", "5\n") + "layout: {pp: 5}\n", "4:14", "does not divide the 32 layers"),
    "pp x vpp and layers": Bad(BASE + "layout: {pp: 2, vpp: 3}\n", "4:22", "pp x vpp = 6 does not divide"),
    "vpp without pp": Bad(BASE + "layout: {pp: 1, vpp: 2}\n", "4:22", "'vpp' (2) needs 'pp'"),
    "cp and tokens": Bad(BASE + "layout: {cp: 8}\ntrain: {seq_len: 1001}\n", "4:14", "cp 8", "multiple of 16"),
    "ep without experts": Bad(BASE + "layout: {ep: 2}\n", "4:14", "llama-2-7b has no experts"),
    "ep and experts": Bad(
        BASE.replace("llama-2-7b", "mixtral-8x7b").replace("8\n", "3\n") + "layout: {ep: 3}\n",
        "4:14", "does not divide the 8 experts",
    ),
    "layout above the GPUs": Bad(BASE + "layout: {tp: 8, pp: 2}\n", "3:7", "not a multiple", "the smallest is 16"),
    "GPUs that are no multiple": Bad(BASE + "layout: {dp: 3}\n", "3:7", "not a multiple of 'dp' (3)", "6 and 9"),
    "batch and dp": Bad(BASE + "train: {global_batch: 12}\nlayout: {dp: 8}\n", "4:23", "not a multiple", "8 and 16"),
    "batch and the dp that is left": Bad(
        BASE + "train: {global_batch: 12}\nlayout: {tp: 1, pp: 1}\n", "4:23", "cannot be split over dp 8", "of 8"
    ),
    "batch that no layout divides": Bad(
        BASE + "stack: deepspeed\ntrain: {global_batch: 7}\n", "3:7", "no legal layout on 8 GPUs", "global batch"
    ),
    "more GPUs than the batch has work for": Bad(
        SERVER + "nodes: 1000000\n", "3:8", "no legal layout on 8,000,000 GPUs", "global batch"
    ),
    "nodes and gpus that differ": Bad(SERVER + "gpus: 8\nnodes: 2\n", "4:8", "2 nodes of 8", "one of the two"),
    "gpus above the limit": Bad(BASE + "limits: {max_gpus: 4}\n", "3:7", "above 'max_gpus' (4)"),
    "bf16 on Volta": Bad(
        "model: llama-2-7b\ngpu: v100-sxm-32gb\nprecision: bf16\n", "3:12", "has no bf16", "fp16"
    ),
    "fp8 on Ampere": Bad("model: llama-2-7b\ngpu: a100-sxm-80gb\nprecision: fp8\n", "3:12", "has no fp8", "bf16"),
    "tp with FSDP": Bad(BASE + "stack: hf-trainer\nlayout: {tp: 2}\n", "5:14", "does not support tp", "megatron-lm"),
    "pp with ZeRO": Bad(BASE + "stack: deepspeed\nlayout: {pp: 2}\n", "5:14", "deepspeed does not support pp", "nemo"),
    "ZeRO 3 of Megatron": Bad(BASE + "stack: nemo-2023\nlayout: {zero: 3}\n", "5:16", "support ZeRO stage 3", "0, 1"),
    "ZeRO 3 and a pipeline": Bad(BASE + "layout: {zero: 3, pp: 2}\n", "4:16", "pipeline stages", "pp 1"),
    "offload of Megatron": Bad(
        BASE + "stack: nemo\nlayout: {offload: params}\n", "5:19", "cannot offload params", "none, optimizer"
    ),
    "sequence parallel alone": Bad(
        BASE + "layout: {tp: 1, sequence_parallel: true}\n", "4:36", "sequence_parallel needs tp above 1"
    ),
    # data that contradict each other
    "mean above max": Bad(BASE + "data: {mean_tokens: 100, max_tokens: 50}\n", "4:21", "above 'max_tokens' (50)"),
    "tokens and samples": Bad(
        BASE + "data: {samples: 10, mean_tokens: 10, tokens: 5000}\n", "4:46", "'tokens' is 5000", "two of the three"
    ),
    "histogram": Bad(BASE + "data: {histogram: {lengths: [1, 2], counts: [1]}}\n", "4:45", "2 'lengths' but 1"),
    "steps and epochs": Bad(BASE + "train: {steps: 5, epochs: 2}\n", "4:27", "both given", "remove one"),
}  # fmt: skip


@pytest.mark.parametrize("bad", FILES.values(), ids=FILES)
def test_scenario_file(cli: Cli, bad: Bad) -> None:
    data = bad.text.encode() if isinstance(bad.text, str) else bad.text
    Path("job.yaml").write_bytes(data)
    ran = cli("estimate", "job.yaml", "-o", "answer.json", "-f", "json")
    refused(ran, f"job.yaml:{bad.at}", bad.says, hint=bad.hint)
    assert [path.name for path in Path().iterdir()] == ["job.yaml"]


def test_a_file_that_is_none(cli: Cli) -> None:
    refused(cli("estimate", "gone.yaml"), "gone.yaml", "no such file")
    refused(cli("estimate", "."), ".", "this is a folder")
    Path("secret.yaml").symlink_to("secret.yaml")
    refused(cli("estimate", "secret.yaml"), "secret.yaml", "cannot read")


FLAGS = {
    "padding": (["--padding", "longest"], "--padding", "not 'longest'", "'longest-in-micro-batch'"),
    "job": (["--job", "finetune"], "--job", " sft, lora, qlora, pretrain, ", None),
    "gpu": (["--gpu", "h100-sx"], "--gpu", "unknown gpu 'h100-sx'", "'h100-sxm-80gb'"),
    "stack": (["--stack", "nemmo"], "--stack", "unknown stack 'nemmo'", "'nemo'"),
    "number": (["--gpus", "many"], "--gpus", "must be a whole number", None),
    "zero": (["--zero", "4"], "--zero", "must be one of 0, 1, 2, 3", None),
    "octal": (["--tp", "010"], "--tp", "leading zero", "write 10"),
    "nan": (["--max-hours", "nan"], "--max-hours", "not a finite number", None),
    "empty": (["--model", ""], "--model", "must not be empty", None),
    "control": (["--model", "a\nb"], "--model", "control characters", None),
    "format": (["--format", "yaml"], "--format", "'yaml'", "json"),
    "color": (["--color", "sometimes"], "--color", "not a choice", "auto"),
    "explain": (["--explain", "memroy"], "--explain", "not a choice", "'memory'"),
    "profiles": (["--profiles", "gone"], "--profiles", "'gone' is not a folder", None),
    "precision": (["--precision", "fp8", "--gpu", "a100-sxm-80gb"], "--precision", "has no fp8", "bf16"),
    "heads": (["--tp", "5", "--gpus", "5"], "--tp", "does not divide the 32 heads", None),
    "batch": (["--global-batch", "7", "--dp", "8"], "--global-batch", "not a multiple", "8"),
    "target": (["--job", "lora", "--lora-targets", "q,zz"], "--lora-targets", "'zz' is not a projection", None),
}


@pytest.mark.parametrize(("arguments", "place", "says", "hint"), FLAGS.values(), ids=FLAGS)
def test_flag(cli: Cli, arguments: list[str], place: str, says: str, hint: str | None) -> None:
    Path("job.yaml").write_text(BASE)
    refused(cli("estimate", "job.yaml", "-o", "out.txt", *arguments), place, says, hint=hint)
    assert [path.name for path in Path().iterdir()] == ["job.yaml"]


VARIABLES = {
    "unknown": ("XE_SIZER_GPUZ", "8", "unknown environment variable", "'XE_SIZER_GPUS'"),
    "number": ("XE_SIZER_TP", "two", "must be a whole number", None),
    "base 60": ("XE_SIZER_MAX_HOURS", "1:30", "base 60", "one number"),
    "choice": ("XE_SIZER_JOB", "lroa", "must be one of", "'lora'"),
    "model": ("XE_SIZER_MODEL", "../../etc/passwd", "unknown model", None),
    "folder": ("XE_SIZER_PROFILES", "gone", "'gone' is not a folder", None),
}


@pytest.mark.parametrize(("name", "value", "says", "hint"), VARIABLES.values(), ids=VARIABLES)
def test_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str, hint: str | None
) -> None:
    Path("job.yaml").write_text(BASE)
    monkeypatch.setenv(name, value)
    refused(cli("estimate", "job.yaml"), name, says, hint=hint)


def test_all_mistakes_of_a_file_are_told_at_once(cli: Cli) -> None:
    Path("job.yaml").write_text(
        "modle: llama-2-7b\ngpus: -8\njob: lroa\nlayout: {tp: two, tpp: 1}\nlimits: {max_hrs: 3}\n"
        "data: {mean_tokens: 100, max_tokens: 50}\n"
    )
    ran = cli("estimate", "job.yaml")
    for place in ("1:1", "2:7", "3:6", "4:14", "4:19", "5:10", "6:21"):
        refused(ran, f"job.yaml:{place}")


ALL_AT_ONCE = {
    "a key, a model and a split that needs the model": (
        "model: lama-2-7b\ngpu: h100-sxm-80gb\ngpus: 8\nlayuot: {tp: 3}\nlayout: {tp: 8, pp: 3}\n",
        ["1:8 unknown model", "3:7 'gpus' (8) is not a multiple", "4:1 unknown key 'layuot'"],
    ),
    "a limit, a server and a split of a good model": (
        "model: llama-2-7b\nserver: dell-xe9680-h10\nlimits: {max_hours: -3}\nlayout: {pp: 5}\n",
        ["2:9 unknown server", "3:21 'max_hours' must be greater", "4:14 pp 5 does not divide"],
    ),
    "a batch, a precision, a stack's ways and a target": (
        (
            "job: lora\nlora: {targets: [qvk]}\nmodel: llama-2-7b\ngpu: a100-sxm-80gb\nprecision: fp8\n"
            "stack: hf-trainer\nlayout: {tp: 2}\ntrain: {micro_batch: none}\n"
        ),
        [
            "2:17 'qvk' is not",
            "5:12 a100-sxm-80gb has no fp8",
            "7:14 hf-trainer does not support tp",
            "8:22 'micro_batch'",
        ],
    ),
    "a key that may name the hardware": (
        "model: llama-2-7b\nsrver: dell-xe9680-h100\nlayout: {tp: 3}\n",
        ["2:1 unknown key 'srver'", "3:14 tp 3 does not divide"],
    ),
    "no hardware and a bad number": (
        "model: llama-2-7b\nlayout: {tp: 0}\ndata: {profile: alpacca}\n",
        ["1:1 no hardware named", "2:14 'tp' must be", "3:17 unknown data set"],
    ),
    "a place with two problems": (
        "model: llama-2-7b\ngpu: b200\ngpus: 8\nlayout: {dp: 8, tp: 0}\ntrain: {global_batch: 12}\n",
        ["4:21 'tp' must be", "5:23 'global_batch' (12) is not a multiple"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), ALL_AT_ONCE.values(), ids=ALL_AT_ONCE)
def test_keys_names_model_and_hardware_are_told_in_one_list(cli: Cli, text: str, expected: list[str]) -> None:
    Path("job.yaml").write_text(text)
    ran = cli("estimate", "job.yaml")
    told = [line.removeprefix("job.yaml:") for line in ran.err.splitlines() if not line.startswith("  hint")]
    assert ran.code == 2
    assert len(told) == len(expected), ran.err
    for line, start in zip(told, expected, strict=True):
        place, _, words = start.partition(" ")
        assert line.startswith(f"{place}: {words}")


def test_a_flag_that_is_no_number_does_not_hide_the_file(cli: Cli) -> None:
    Path("job.yaml").write_text("model: llama-2-7b\nserver: dell-xe9680-h10\n")
    ran = cli("estimate", "job.yaml", "--tp", "010", "--stack", "nemmo")
    told = [line.split(": ")[0] for line in ran.err.splitlines() if not line.startswith("  hint")]
    assert told == ["--tp", "--stack", "job.yaml:2:9"]


def test_all_unknown_names_are_told_at_once(cli: Cli) -> None:
    Path("job.yaml").write_text("model: lama\ngpu: h10\nstack: nmo\ndata: {profile: alpca}\n")
    ran = cli("estimate", "job.yaml")
    for place in ("1:8", "2:6", "3:8", "4:17"):
        refused(ran, f"job.yaml:{place}")


def test_all_that_the_stack_cannot_do_is_told_at_once(cli: Cli) -> None:
    Path("job.yaml").write_text(
        BASE + "stack: hf-trainer\nlayout: {tp: 2, pp: 2, ep: 2}\njob: lora\nlora: {targets: [qvk]}\n"
    )
    ran = cli("estimate", "job.yaml")
    for place in ("5:14", "5:21", "5:28", "7:17"):
        refused(ran, f"job.yaml:{place}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (BASE + "data: " + "[" * 500_000, "job.yaml:4:56"),
        ("a: &a " + "[x,x,x,x,x,x,x,x,x]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(2000)), "job.yaml:1:4"),
        (BASE + "# " + "x" * 11_000_000, "job.yaml"),
        ("!!python/object/apply:os.mkdir [owned]\n", "job.yaml:1:1"),
    ],
    ids=["half a million brackets", "alias bomb", "11 MB", "python tag"],
)
def test_a_hostile_file_costs_a_process_little(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XE_SIZER_")}
    ran = subprocess.run(
        [sys.executable, "-m", "xe_sizer", "estimate", "job.yaml", "-o", "out.txt"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    refused(Ran(ran.returncode, ran.stdout, ran.stderr), place)
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--seq-len", "1000000000"],
        ["--seq-len", "1000000000", "--tp", "8", "--exit-zero"],
        ["--global-batch", "1000000"],
        ["--steps", "1000000000000", "--epochs", "1"],
        ["--tokens", "1e18"],
        ["--samples", "1000000000000", "--epochs", "1e18"],
        ["--mean-tokens", "1e-9", "--samples", "5"],
        ["--job", "lora", "--lora-rank", "65536", "--lora-targets", "all-linear"],
        ["--min-headroom-gib", "1e18"],
        ["--flops-efficiency", "1e-12"],
    ],
    ids=" ".join,
)
def test_absurd_but_legal_figures_are_answered(cli: Cli, flags: list[str]) -> None:
    Path("job.yaml").write_text(BASE)
    ran = cli("estimate", "job.yaml", *flags)
    assert ran.code in (0, 1) or "both given" in ran.err
    assert "nan" not in ran.out.lower().split()
    assert "inf" not in ran.out.lower().split()
    assert not re.search(r"[0-9,.]{30}", ran.out)  # no figure of a hundred digits


def test_check_tells_the_bad_ones_and_answers_the_others(cli: Cli) -> None:
    Path("a.yaml").write_text(BASE + "stack: nemmo\n")
    Path("b.yaml").write_text(BASE)
    Path("c.yaml").write_bytes(b"\x00")
    ran = cli("check", "a.yaml", "b.yaml", "c.yaml", "gone.yaml")
    assert ran.code == 2
    assert "a.yaml:4:8: " in ran.err
    assert "c.yaml:1:1: " in ran.err
    assert "gone.yaml: no such file" in ran.err
    assert "1 passed" in ran.out
    assert "Traceback" not in ran.err


def test_render_refuses_what_is_no_result(cli: Cli) -> None:
    Path("x.json").write_text("{")
    assert cli("render", "x.json").code == 2
    Path("x.json").write_text('{"schema_version": 1}')
    ran = cli("render", "x.json", "-o", "out.html", "-f", "html")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("x.json")
    assert [path.name for path in Path().iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2,50", "write 2.50 "),
        ("1.234,50", "write 1234.50 "),
        ("$2.50", "write 2.50 alone; the currency is a setting of its own"),
        ("2,50 EUR", "write 2.50 alone; the currency is a setting of its own"),
    ],
)
def test_a_number_with_a_comma_or_a_currency_is_hinted_as_it_was_meant(
    cli: Callable[..., Ran], text: str, hint: str
) -> None:
    job = ("plan", "--model", "llama-3.1-8b", "--server", "dell-xe9680-h100", "--max-gpus", "8")
    refused(cli(*job, "--price-per-gpu-hour", text), "--price-per-gpu-hour", text, hint=hint)
    refused(cli(*job, "--price", f"h100-sxm-80gb={text}"), "--price", text, hint=f"h100-sxm-80gb: {hint}")
