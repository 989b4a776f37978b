"""Commands that are asked the same answer the same: what fits, in which layout, on how many servers, for how much."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
H100, H200 = "dell-xe9680-h100", "dell-xe9680-h200"
JOB = "--model llama-3.3-70b --job sft --samples 200000 --mean-tokens 900 --epochs 2 --max-hours 24"
CALENDAR = f"""server: {H100}
jobs:
  tune:
    deadline_hours: 24
    scenario:
      model: llama-3.3-70b
      job: sft
      data: {{samples: 200000, mean_tokens: 900}}
      train: {{epochs: 2}}
"""


def ask(cli: Cli, command: str, code: int = 0) -> Any:
    ran = cli(*shlex.split(command), "--format", "json")
    assert ran.code == code, ran.err
    return json.loads(ran.out)


@pytest.fixture
def planned(cli: Cli) -> Any:
    """What `plan` takes for the job: two servers, with the optimizer in host memory."""
    answer = ask(cli, f"plan {JOB} --server {H100}")
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    assert (chosen["nodes"], chosen["layout"]["offload"]) == (2, "optimizer")
    return chosen


def calendar(cli: Cli, folder: Path, more: str = "", *options: str, code: int = 0) -> Any:
    file = folder / "cluster.yaml"
    file.write_text(CALENDAR + more, encoding="utf-8")
    return ask(cli, shlex.join(["calendar", str(file), *options]), code)


def test_a_calendar_names_as_many_servers_as_a_plan(cli: Cli, planned: Any, tmp_path: Path) -> None:
    """In the same layout, with the time of the plan beside the start of the job."""
    found = calendar(cli, tmp_path)
    (job,) = found["jobs"]
    assert found["fewest_gpus"] == planned["gpus"]
    assert job["layout"] == planned["layout"]
    worked_s = job["finish"]["expected_s"] - job["lost_s"]
    assert worked_s == pytest.approx(planned["total_s"]["expected"])
    assert calendar(cli, tmp_path, "", "--servers", "2")["jobs"][0]["ok"]
    alone = calendar(cli, tmp_path, "      layout: {offload: none}\n")
    assert alone["fewest_gpus"] > planned["gpus"]


def test_a_calendar_is_as_sure_as_a_plan_on_as_many_servers(cli: Cli, tmp_path: Path) -> None:
    """Three servers cannot split the batch that is assumed for one, and have one of their own, as in a plan."""
    answer = ask(cli, f"plan {JOB} --server {H100} --confidence 0.9")
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    found = calendar(cli, tmp_path, "confidence: 0.9\n")
    (job,) = found["jobs"]
    assert found["fewest_gpus"] == chosen["gpus"] == 24
    assert {each["gpus"] for each in job["sessions"]} == {24}
    assert job["layout"] == chosen["layout"]
    batch = job["scenario"]["train"]["global_batch"]
    assert batch == int(re.findall(r"--global-batch (\d+)", chosen["command"])[0])
    assert batch % 3 == 0


def test_an_estimate_on_the_gpus_of_a_plan_is_that_of_the_plan(cli: Cli, planned: Any) -> None:
    """The first screen says what the stack has to be told, and how the job is judged without it."""
    command = f"estimate {JOB} --server {H100} --gpus 16"
    found = ask(cli, command)
    assert found["layout"] == planned["layout"]
    assert found["time"]["total_s"]["expected"] == pytest.approx(planned["total_s"]["expected"])
    assert found["verdict"]["fit_probability"] == pytest.approx(planned["fit_probability"])
    screen = cli(*shlex.split(command), "--brief").out
    assert re.search(r"optimizer offloaded, which generic does only when it is told to; --offload none", screen)


def test_a_limit_on_gpus_is_searched_as_a_plan_is(cli: Cli, planned: Any) -> None:
    """One server holds the job and is too slow: two meet the limit."""
    found = ask(cli, f"estimate {JOB} --server {H100} --max-gpus 16")
    assert (found["gpus"]["count"], found["layout"]) == (planned["gpus"], planned["layout"])


def test_what_is_compared_is_judged_as_a_plan_judges_it(cli: Cli, planned: Any) -> None:
    command = f"compare {JOB} --gpus 16 server={H100} server={H200}"
    first = ask(cli, command)["alternatives"][0]["result"]
    assert first["verdict"]["fits"]
    assert first["layout"] == planned["layout"]
    screen = cli(*shlex.split(command), "--brief").out
    assert f"{H100}  FITS on 16 GPUs, optimizer offloaded, 18.4 h" in screen


def test_a_sensitivity_starts_from_the_layout_of_a_plan(cli: Cli, planned: Any) -> None:
    """Every factor moves it: the data, the GPUs, and the parallelism with what is offloaded."""
    command = f"sensitivity {JOB} --server {H100} --nodes 2"
    found = ask(cli, command)
    assert found["base"]["total_s"] == pytest.approx(planned["total_s"]["expected"])
    assert "optimizer offloaded" in found["cautions"][0]
    assert "optimizer offloaded" in cli(*shlex.split(command), "--brief").out
    steps = {factor["name"]: factor["effects"] for factor in found["factors"]}
    assert steps["data size"][0]["time_ratio"] == pytest.approx(0.5, abs=0.01)
    assert any(one["outcome"]["fits"] for one in steps["parallelism"])
    twice = next(one for one in steps["deadline"] if one["step"] == "twice the time")
    assert twice["outcome"]["gpus"] <= 16


def test_a_layout_that_is_given_is_judged_as_it_is(cli: Cli) -> None:
    """Whoever names a part of the layout describes a run: nothing is offloaded that it does not offload."""
    for given in ("--offload none", "--tp 8 --pp 2"):
        found = ask(cli, f"estimate {JOB} --server {H100} --gpus 16 {given}", code=1)
        assert found["layout"]["offload"] == "none"
        assert not found["cautions"]


def test_states_go_to_the_host_before_another_optimizer_is_taken(cli: Cli) -> None:
    """The host is known to hold them, and the job stays what it is: the first command is that of the plan's layout."""
    found = ask(cli, f"estimate {JOB} --server {H100} --gpus 16 --offload none", code=1)
    assert found["advice"][0]["command"].endswith("--offload optimizer")
    assert found["advice"][0]["change"] == "optimizer states in host memory"
    assert "fix" in found["verdict"]["reasons"][0]
    unknown = ask(cli, f"estimate {JOB} --gpu h100-sxm-80gb --gpus 16", code=1)
    assert "AdamW" in unknown["advice"][0]["change"]  # nobody knows what its host holds


OWNED = "cost: {capex_per_server: 340000, kwh_price: 0.22, currency: EUR}\n"


def test_a_calendar_of_owned_servers_costs_what_a_plan_costs(cli: Cli, tmp_path: Path) -> None:
    """All hours of the servers are paid for: GPUs at work with electricity, idle ones without."""
    found = calendar(cli, tmp_path, OWNED)
    money = f"--capex-per-server 340000 --kwh-price 0.22 --utilisation 1 --server {H100}"
    answer = ask(cli, f"plan {JOB} {money}")
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    cost, (job,) = found["cost"], found["jobs"]
    worked_s = job["finish"]["expected_s"] - job["lost_s"]
    assert cost["currency"] == "EUR"
    assert cost["used"] * worked_s / job["finish"]["expected_s"] == pytest.approx(chosen["price"])
    hour = 340_000 / (5 * 8760)  # of a server, over the five years that are assumed
    idle = found["available_gpu_hours"] - found["gpu_hours"]
    assert cost["cluster"] - cost["used"] == pytest.approx(idle / 8 * hour, rel=2e-3)
    parts = {part["name"]: part["value"] for part in cost["parts"]}
    assert sum(parts.values()) == pytest.approx(cost["cluster"])
    assert parts["electricity"] == pytest.approx(0.22 * 1.54 * found["energy_kwh"])
    assert parts["capital"] == pytest.approx(2 * hour * 24 * found["days"], rel=2e-3)
    half = calendar(cli, tmp_path, OWNED.replace("currency", "utilisation: 0.5, currency"))
    assert half["cost"]["hourly_price"]["own"]["utilisation"] == 0.5
    out = " ".join(cli("calendar", str(tmp_path / "cluster.yaml")).out.split())
    assert re.search(r"Cost .* EUR for the cluster in 1 day, .* capital, .* electricity; .*own servers", out)


SEVERAL = f"""server: {H100}
starts: mon 08:00
services:
  chat:
    window: mon-fri 08:00-20:00
    scenario: {{model: llama-3.1-70b, serve: {{users: 300, input_tokens: 1500, output_tokens: 300}}}}
jobs:
  tune:
    deadline: wed 08:00
    window: 20:00-08:00
    scenario: {{model: llama-3.1-8b, job: sft, stack: hf-trainer, data: {{samples: 200000, mean_tokens: 900}}}}
  adapt:
    deadline: thu 08:00
    scenario: {{model: llama-3.1-8b, job: lora, data: {{samples: 200000, mean_tokens: 900}}}}
  later:
    deadline: fri 08:00
    scenario: {{model: llama-3.1-8b, job: lora, data: {{samples: 100000, mean_tokens: 900}}}}
"""


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_brief_calendar_has_every_verdict_and_its_evidence_once(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    file = tmp_path / "cluster.yaml"
    file.write_text(SEVERAL, encoding="utf-8")
    out = cli("calendar", str(file), "--brief").out
    for name in ("chat", "tune", "adapt", "later"):
        assert re.search(rf"^{name} +\S", out, re.MULTILINE), name
    assert " ".join(out.split()).count("Published runs") == 1
    assert out.count("deadline") >= 3
