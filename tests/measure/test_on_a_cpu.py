"""All of it on this machine's CPU, with a small grid: measure, estimate, run a job, validate and calibrate on it.

Nothing here says how long anything may take, as machines that run tests are shared: what is asserted is what was
written, that it agrees with itself, and memory, which is counted. `python benchmarks/measure.py` compares times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")

from xe_sizer.cli.main import main  # noqa: E402
from xe_sizer.evidence.records import read_records  # noqa: E402
from xe_sizer.measure import grid, job, kernels, session, timer  # noqa: E402
from xe_sizer.measure.samples import SAMPLES, read_samples  # noqa: E402
from xe_sizer.profiles.catalogue import Registry  # noqa: E402

ROOT = Path(__file__).parents[2]
SHAPE = {
    "name": "four-layers", "family": "llama", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64,
    "ffn": 640, "vocab": 2048, "max_positions": 4096, "tied_embeddings": False, "norm": "rmsnorm",
    "activation": "swiglu", "position": "rope",
}  # fmt: skip
TRAIN = {"steps": 10, "micro_batch": 2, "global_batch": 2, "seq_len": 64, "weights_dtype": "fp32", "padding": "packed"}
JOB: dict[str, Any] = {"model": SHAPE, "stack": "pytorch-fsdp", "job": "sft", "precision": "fp32", "train": TRAIN}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A grid of few and small kernels, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(grid, "ROWS", {True: (1, 64, 256), False: (1, 64, 256)})
    monkeypatch.setattr(grid, "LENGTHS", {True: (64, 128, 256), False: (64, 128, 256)})
    monkeypatch.setattr(grid, "MOVED", {True: (2**12, 2**16, 2**20), False: (2**12, 2**16, 2**20)})
    monkeypatch.setattr(grid, "FILE_BYTES", {True: 1e5, False: 1e5})
    monkeypatch.setattr(session, "QUICK_S", 90.0)  # that every kernel is timed, however busy the machine is
    monkeypatch.setattr(session, "QUICK_CALL_S", 0.01)
    monkeypatch.setattr(timer, "MOST_REPEATS", 5)
    yield
    torch.set_num_threads(threads)


def measured(folder: Path, *options: str) -> int:
    return main(["measure", "--quick", "--anyway", "--device", "cpu", "-o", str(folder), *options])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture
def name() -> str:
    from xe_sizer.measure.profile import slug

    return slug(session.machine("cpu").device)


@pytest.fixture
def mine(folder: Path, name: str) -> Path:
    """A folder with a profile of this CPU, measured once for the module."""
    if not (folder / f"{name}.yaml").exists():
        assert measured(folder) == 0
    return folder


def test_measuring_writes_a_profile_that_commands_read(
    mine: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {f"{name}.yaml", SAMPLES, "measurement.html", "measurement.json"} <= {file.name for file in mine.iterdir()}
    assert main(["profiles", "validate", str(mine / f"{name}.yaml")]) == 0
    gpu = Registry((mine,)).accelerator(name)
    assert gpu.measured is not None
    assert {"matmul.fp32", "attention.float32", "memory_bound"} <= set(gpu.measured.laws)
    assert gpu.laws.launch_s is not None
    assert gpu.laws.launch_s > 0
    capsys.readouterr()
    assert main(["render", str(mine / "measurement.json"), "-f", "markdown"]) == 0
    assert "matmul.fp32" in capsys.readouterr().out
    asked = ["--model", "qwen2.5-0.5b", "--gpu", name, "--gpus", "1", "--job", "lora", "--profiles", str(mine)]
    assert main(["estimate", *asked, "--precision", "fp32", "--exit-zero"]) == 0
    assert "Kernels were measured on your machine" in capsys.readouterr().out


def test_the_laws_say_what_the_kernels_took(mine: Path) -> None:
    """The fit of products errs on half of its own kernels by less than a factor of two, however busy the machine is."""
    report = json.loads((mine / "measurement.json").read_text())
    ratios = [one["law_s"] / one["seconds"] for one in report["kernels"] if one["law"] == "matmul.fp32"]
    assert len(ratios) >= 4
    assert 0.5 < sorted(ratios)[len(ratios) // 2] < 2.0


def test_a_second_run_adds_to_the_first(mine: Path) -> None:
    before = read_samples(mine / SAMPLES)
    assert measured(mine) == 0
    after = read_samples(mine / SAMPLES)
    assert len(after[0]) == len(before[0]) + 1
    assert len(after[1]) > len(before[1])
    assert {one.kernel.key for one in before[1]} <= {one.kernel.key for one in after[1]}


def test_an_interrupt_keeps_what_was_timed_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, built = kernels.build, []

    def interrupted(kernel: Any, device: str, folder: Path | None) -> Any:
        if folder is not None:
            built.append(kernel.key)
            if len(built) == 30:
                raise KeyboardInterrupt
        return build(kernel, device, folder)

    monkeypatch.setattr(kernels, "build", interrupted)
    assert measured(tmp_path) == 0
    said = capsys.readouterr()
    assert "interrupted" in said.err
    assert "another run goes on from here" in said.out
    first = {one.kernel.key for one in read_samples(tmp_path / SAMPLES)[1]}
    assert len(first) == 29
    built.clear()

    def noted(kernel: Any, device: str, folder: Path | None) -> Any:
        if folder is not None:
            built.append(kernel.key)
        return build(kernel, device, folder)

    monkeypatch.setattr(kernels, "build", noted)
    assert measured(tmp_path) == 0
    assert not first & set(built[:10])  # what was not timed yet comes first
    assert len({one.kernel.key for one in read_samples(tmp_path / SAMPLES)[1]}) > len(first)


def test_a_busy_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (64.0, 64.0, 64.0))
    assert main(["measure", "--quick", "--device", "cpu", "-o", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "the processor is busy: 64.0 processes" in said
    assert "--anyway" in said


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ("cuda:9", "tpu", "cpu:1"):
        assert main(["measure", "--device", asked, "-o", str(tmp_path)]) == 2
        assert "--device" in capsys.readouterr().err


def test_a_disk_with_too_little_room_for_a_file_leaves_that_out(tmp_path: Path) -> None:
    writes = next(one for one in grid.beside(card=False, quick=True) if one.law == "storage")
    gone = tmp_path / "gone"
    with pytest.raises(RuntimeError, match="cannot write: No such file or directory"):
        kernels.build(writes, "cpu", gone)(0)
    assert not gone.exists()


# A job.


def ran(folder: Path, scenario: dict[str, Any]) -> tuple[int, Path]:
    file = folder / "job.yml"
    file.write_text(yaml.safe_dump(scenario))
    code = main(["measure", "--anyway", "--device", "cpu", "--job", str(file), "--steps", "1", "-o", str(folder)])
    file.unlink()
    return code, folder / job.RECORDS


def test_a_job_becomes_a_record_that_validate_and_calibrate_read(
    mine: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for length in (32, 64, 96):
        code, file = ran(mine, JOB | {"train": TRAIN | {"seq_len": length}})
        assert code == 0, capsys.readouterr().err
    assert "predicted" in capsys.readouterr().out
    records = [one for one in read_records(file).records if one.model == "four-layers"]
    assert {one.seq_len for one in records} >= {32, 64, 96}
    (one,) = [one for one in records if one.seq_len == 64]
    assert (one.precision, one.load_dtype, one.batch.micro, one.gpus, one.recompute) == ("fp32", "fp32", 2, 1, "none")
    assert one.measured.step_time_s
    assert one.measured.memory_metric == "allocated"
    assert main(["validate", str(file), "--profiles", str(mine), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["skipped"]
    assert {row["quantity"] for row in found["records"]} == {"step_time", "peak_memory", "oom"}
    assert not any(row["guessed"] for row in found["records"])
    stack = tmp_path / "mine.yaml"
    assert main(["calibrate", str(file), "--profiles", str(mine), "-o", str(stack)]) == 0, capsys.readouterr().err
    assert "parent: pytorch-fsdp" in stack.read_text()


WIDE = {"hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1408, "vocab": 16384}
CASES: dict[str, dict[str, Any]] = {
    "all weights, fp32": {},
    "all weights, bf16": {"precision": "bf16", "train": {"weights_dtype": "bf16"}},
    "LoRA": {"job": "lora", "lora": {"rank": 16, "targets": ["all-linear"]}},
    "recomputation": {"layout": {"recompute": "full"}},
    "eager attention": {"attention": "eager"},
    "accumulation": {"train": {"global_batch": 4}},
    "pairs and a copy": {"job": "dpo", "precision": "bf16", "train": {"weights_dtype": "bf16"}},
    "pairs without a reference": {"job": "simpo", "precision": "bf16", "train": {"weights_dtype": "bf16"}},
}
WORKSPACE_BYTES = 0.03 * 2**30  # of cuBLAS, which a CPU does not have (memory.workspace_gib of the stack)


@pytest.mark.parametrize("made_of", ["transformers", "plain blocks"])
@pytest.mark.parametrize("case", CASES)
def test_the_peak_of_memory_is_predicted_within_ten_per_cent(
    mine: Path, case: str, made_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live storages of real steps, which are counted: the same on every machine."""
    if made_of == "transformers":
        pytest.importorskip("transformers")
        if case == "LoRA":
            pytest.importorskip("peft")
    else:
        monkeypatch.setitem(sys.modules, "transformers", None)
        monkeypatch.setitem(sys.modules, "peft", None)
    changes = CASES[case]
    train = TRAIN | {"seq_len": 128} | changes.get("train", {})
    code, _ = ran(mine, JOB | changes | {"train": train, "model": SHAPE | WIDE})
    assert code == 0
    found = json.loads((mine / "job.json").read_text())["job"]
    predicted = found["predicted_peak_bytes"] - WORKSPACE_BYTES
    assert predicted / found["peak_bytes"] == pytest.approx(1.0, abs=0.10)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "deepseek-v3"}, "has latent attention, experts, which are not built here"),
        ({"job": "kto"}, "KTO is not run: pre-training, fine-tuning, and pairs of answers"),
        ({"job": "dpo", "train": {"reference": "precomputed"}}, "DPO is not run"),
        ({"job": "qlora", "train": {"quantiser": "hqq"}}, "weights of hqq are not run: those of bitsandbytes are"),
        ({"optimizer": "sgd"}, "the optimizer sgd is not run"),
        ({"job": "lora", "lora": {"dora": True}}, "DoRA with these settings is not run"),
    ],
)
def test_a_job_that_is_not_run_is_refused_by_name(
    mine: Path, changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train = TRAIN | {"weights_dtype": "bf16"} | changes.get("train", {})
    code, _ = ran(mine, JOB | {"precision": "bf16"} | changes | {"train": train})
    assert code == 2
    assert said in capsys.readouterr().err


BF16 = {"precision": "bf16", "train": TRAIN | {"weights_dtype": "bf16"}}
ADAPTED = {"lora": {"rank": 8, "targets": ["all-linear"]}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": "qlora", **ADAPTED}, {"bits": 4, "quantiser": "bitsandbytes", "job": "qlora"}),
        ({"job": "dpo", **ADAPTED}, {"reference": "adapters-off", "job": "dpo"}),
        ({"optimizer": "adamw-8bit"}, {"optimizer": "adamw-8bit"}),
    ],
)
def test_a_record_says_what_was_run(mine: Path, changes: dict[str, Any], said: dict[str, Any]) -> None:
    """Frozen weights in few bits, adapters that are off for the reference, an optimizer of another library."""
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft")
    code, file = ran(mine, JOB | BF16 | changes)
    assert code == 0
    *_, last = (json.loads(row) for row in file.read_text().splitlines())
    assert said.items() <= last.items()
    if "quantiser" in said:
        assert last["lora"]["rank"] == 8


def test_answers_are_compared_by_the_frozen_weights() -> None:
    """Adapters that have learned nothing change no answer, and those that have do not count in the reference."""
    from xe_sizer.measure import blocks
    from xe_sizer.measure.model import without_adapters

    model = blocks.Decoder(Registry().model("tiny-llama").with_layers(1), "sdpa", recompute=False)
    plain = torch.randint(3, 100, (1, 8))
    before = model(plain)["logits"]
    assert blocks.adapt(model, {"q_proj", "down_proj"}, 4, 0.0) == 2
    for layer in model.modules():
        if isinstance(layer, blocks.LowRank):
            torch.nn.init.ones_(layer.lora_b.weight)
    assert not torch.allclose(model(plain)["logits"], before)
    with without_adapters(model):
        assert torch.allclose(model(plain)["logits"], before)
    assert not torch.allclose(model(plain)["logits"], before)


def test_mixtures_are_built_with_every_expert() -> None:
    """A model of every class of transformers that a shape may ask for has as many parameters as are counted."""
    pytest.importorskip("transformers")
    from xe_sizer.graph.weights import count_parameters
    from xe_sizer.measure import model as models

    for name in ("mixtral-8x7b", "qwen3-30b-a3b", "qwen3-0.6b", "qwen2.5-0.5b", "tiny-llama"):
        shape = Registry().model(name).with_layers(1)
        assert models.unbuilt(shape, 64) is None
        plan = models.Plan(shape, 1, 1, 1, 64, "bf16", "bf16", "sdpa", False, 0, "adamw")
        with torch.device("meta"):
            made = models.build(plan, "meta")[0]
        assert sum(weight.numel() for weight in made.parameters()) == count_parameters(shape).total, name


def test_a_model_that_is_too_large_runs_with_the_layers_that_fit(
    mine: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same CPU with little memory, part of which contexts take: some layers fit, not all."""
    text = (mine / f"{name}.yaml").read_text()
    memory = next(line for line in text.splitlines() if line.startswith("memory_gib"))
    (tmp_path / f"{name}.yaml").write_text(text.replace(memory, "memory_gib: 2.4"))
    code, _ = ran(tmp_path, JOB | {"model": SHAPE | WIDE | {"layers": 40}})
    assert code == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "job.json").read_text())["job"]
    assert found["of_layers"] == 40
    assert 1 <= found["layers"] < 40


def test_a_job_without_a_profile_says_what_to_do_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = ran(tmp_path, JOB)
    assert code == 2
    assert "no profile is of this device" in capsys.readouterr().err


# Several processes, over gloo.


def torchrun(ranks: int, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from xe_sizer.measure import collectives\n"
        "collectives.MESSAGES = {True: (4096, 65536, 262144, 1048576)}\n"
        "from xe_sizer.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    script = folder / "ranks.py"
    script.write_text(code)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), str(script)]
    asked = ["measure", "--quick", "--anyway", "--device", "cpu", "-o", str(folder), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([*run, *asked], capture_output=True, text=True, env=environment, timeout=300, check=False)


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_between_processes(mine: Path, name: str, ranks: int) -> None:
    done = torchrun(ranks, mine)
    assert done.returncode == 0, done.stderr[-2000:]
    gpu = Registry((mine,)).accelerator(name)
    operations = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert operations <= set(gpu.laws.collectives)
    for operation in operations:
        law = gpu.laws.collectives[operation]
        assert ranks in law.ranks
        assert min(law.bus_bytes_per_s) > 1e5
    assert gpu.laws.collectives["point_to_point"].ranks == (2,)


@pytest.mark.parametrize("zero", [0, 3])
def test_a_job_over_two_processes(mine: Path, zero: int, tmp_path: Path) -> None:
    """Replicas by DistributedDataParallel, shards by FSDP2."""
    scenario = JOB | {"train": TRAIN | {"global_batch": 4}, "layout": {"zero": zero}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(scenario))
    done = torchrun(2, mine, "--job", str(file), "--steps", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    found = [one for one in read_records(mine / job.RECORDS).records if one.gpus == 2 and one.layout.zero == zero]
    assert len(found) == 1
    assert (found[0].layout.dp, found[0].batch.total) == (2, 4)


def test_a_full_disk_while_a_record_is_kept(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write: Callable[..., int] = Path.write_text

    def full(self: Path, *args: Any, **options: Any) -> int:
        if self.suffix == ".tmp":
            raise OSError(28, "No space left on device")
        return write(self, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    code, _ = ran(mine, JOB)
    assert code == 2
    assert "cannot write: No space left on device" in capsys.readouterr().err
