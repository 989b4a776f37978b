"""Services as what runs on Kubernetes: each file follows its published schema and is read back as the same service."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from published_schemas import documents, problems, validator

from xe_sizer.cli.command import answer_to
from xe_sizer.cli.export import exported_plan
from xe_sizer.cli.read_back import differences, other_estimate, read_back
from xe_sizer.errors import InputError
from xe_sizer.interop.manifests import build_schedule, object_name
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
from xe_sizer.interop.write import Exported, Plan, export, exporter_named
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.yaml_reader import documents_of
from xe_sizer.result.serving import ServeResult
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario

DAY = """\
model: llama-3.1-70b
server: dell-xe9680-h100
serve:
  request_rate: 20
  input_tokens: 4000
  output_tokens: 300
  max_model_len: 16384
  hourly_load: [4, 3, 2, 2, 2, 3, 6, 12, 22, 32, 38, 40, 36, 38, 40, 39, 35, 30, 26, 22, 18, 14, 9, 6]
limits: {max_ttft_s: 1, max_tpot_s: 0.05}
"""
APART = """\
model: llama-3.1-70b
server: dell-xe9680-h100
gpus: 20
layout: {tp: 8}
serve:
  {request_rate: 12, input_tokens: 3000, output_tokens: 300, max_model_len: 8192, prefill_replicas: 3, prefill_tp: 4}
"""
ADAPTERS = """\
model: llama-3.1-8b
gpu: h100-sxm-80gb
lora: {rank: 16}
serve:
  users: 200
  input_tokens: 1000
  output_tokens: 200
  prefix_hit_share: 0.5
  kv_host_gib: 100
  adapters: 40
  adapter_slots: 8
"""
GROUPS = """\
model: deepseek-r1
server: dell-xe9680-h200
layout: {tp: 1, dp: 8, ep: 8}
serve: {request_rate: 4, input_tokens: 2000, output_tokens: 500, draft_tokens: 1, acceptance_rate: 0.7, kv_cache: fp8}
"""
NODES = """\
model: llama-3.1-405b
server: dell-xe9680-h100
layout: {tp: 8, pp: 2}
serve: {request_rate: 1, input_tokens: 1000, output_tokens: 200}
"""
SERVICES = {
    "a day": DAY, "pools apart": APART, "adapters": ADAPTERS, "attention groups": GROUPS, "two nodes": NODES,
}  # fmt: skip
TARGETS = ("kubernetes", "dynamo", "kserve", "inferenceservice", "llm-d", "production-stack")
ANY_ENGINE, OTHERS = ("kubernetes", "dynamo", "inferenceservice"), ("sglang", "tensorrt-llm")
STARTED = [*((target, "vllm") for target in TARGETS), *((target, other) for target in ANY_ENGINE for other in OTHERS)]
ONE_POOL = ("kubernetes", "inferenceservice", "production-stack")
ONE_NODE = ("kserve", "inferenceservice", "llm-d", "production-stack")
REFUSED = {
    **{(*each, "pools apart"): ("serve.prefill_replicas", 6) for each in STARTED if each[0] in ONE_POOL},
    **{(*each, "two nodes"): ("2 nodes", 3) for each in STARTED if each[0] in ONE_NODE},
    ("kubernetes", "tensorrt-llm", "two nodes"): ("layout.tp", 3),
    **{(target, "tensorrt-llm", "adapters"): ("serve.adapters", 10) for target in ANY_ENGINE},
}
"""What a target cannot say of a service: what the message names, and the line of the scenario that it points at."""
CASES = [(*each, name) for each in STARTED for name in SERVICES]


@cache
def answered(name: str, engine: str) -> tuple[Scenario, ServeResult]:
    path = Path(f"{name.replace(' ', '-')}.yaml")
    scenario = read_scenario(path, {"serve.engine": engine}, {}, lambda _: documents_of(path, SERVICES[name])[0])
    answer = answer_to(scenario, Registry(), details=True)
    assert isinstance(answer, ServeResult)
    return scenario, answer


@cache
def exported(target: str, engine: str, name: str) -> tuple[Plan, Exported]:
    scenario, answer = answered(name, engine)
    return exported_plan(exporter_named(target), scenario, answer, Registry())


@pytest.mark.parametrize(("target", "engine", "name"), [case for case in CASES if case not in REFUSED])
def test_a_file_follows_its_published_schema(target: str, engine: str, name: str) -> None:
    assert list(problems(exported(target, engine, name)[1].written, target)) == []


@pytest.mark.parametrize(("target", "engine", "name"), [case for case in CASES if case not in REFUSED])
def test_a_file_is_read_back_as_the_same_service(target: str, engine: str, name: str, tmp_path: Path) -> None:
    (plan, found), (scenario, answer) = exported(target, engine, name), answered(name, engine)
    file = tmp_path / "service.yaml"
    file.write_text(found.written.text, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    assert facts["gpus"].value == answer.gpus.count
    assert answer.layout is not None
    assert {key: facts[f"layout.{key}"].value for key in ("tp", "pp", "dp")} == {
        "tp": answer.layout.tp, "pp": answer.layout.pp, "dp": answer.layout.dp
    }  # fmt: skip
    again = read_back(found, exporter_named(target), {"gpus": answer.gpus.count, "server": scenario.values.server})
    assert again is not None
    other = {key: (wanted, got) for key, wanted, got in differences(plan, found, again, Registry())}
    if engine == "sglang":  # whose flag has whole gigabytes
        assert math.isclose(*other.pop("serve.kv_host_gib", (1, 1)), rel_tol=0.01)
    assert other == {}
    if engine == "vllm":
        assert other_estimate(again, scenario, answer, Registry()) is None


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_form_cannot_say_is_refused_by_name_where_it_stands(case: tuple[str, str, str]) -> None:
    name, line = REFUSED[case]
    with pytest.raises(InputError) as caught:
        exported(*case)
    problem = next(each for each in caught.value.problems if name in each.message)
    assert problem.hint
    assert problem.location is not None
    assert (problem.location.name, problem.location.line) == (f"{case[2].replace(' ', '-')}.yaml", line)


PLAN: dict[str, Any] = {"model": "Qwen/Qwen3-32B", "job": "inference", "layout.tp": 2, "gpus": 4, "replicas": 2}


def small(**more: Any) -> Plan:
    hours = more.pop("hours", ())
    return Plan(PLAN | {key.replace("__", "."): value for key, value in more.items()}, hours=hours)


def test_a_schema_takes_no_key_that_the_published_one_has_not() -> None:
    deployment = documents(export(small(), exporter_named("kubernetes")).written)[0]
    assert not list(validator("Deployment").iter_errors(deployment))
    deployment["spec"]["replica"] = deployment["spec"].pop("replicas")
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    assert {error.json_path for error in validator("Deployment").iter_errors(deployment)} == {
        "$.spec", "$.spec.template.spec.containers[0].ports[0].containerPort",
    }  # fmt: skip


def test_replicas_are_started_before_their_hour_and_stopped_after_it() -> None:
    hours = (1,) * 8 + (2,) * 4 + (3,) * 6 + (2,) * 2 + (1,) * 4
    schedule = build_schedule(small(hours=hours, replica_start_s=301), "vllm")
    assert schedule is not None
    times = [tuple(each["metadata"][key] for key in ("start", "end", "desiredReplicas")) for each in schedule.triggers]
    assert times == [
        ("54 7 * * *", "0 12 * * *", "2"), ("54 11 * * *", "0 18 * * *", "3"), ("54 17 * * *", "0 20 * * *", "2"),
    ]  # fmt: skip
    assert (schedule.fewest, schedule.most) == (1, 3)


def minute(cron: str) -> int:
    minutes, hours, *rest = cron.split()
    assert rest == ["*", "*", "*"]
    return 60 * int(hours) + int(minutes)


@given(hours=st.lists(st.integers(1, 4), min_size=24, max_size=24), start_s=st.integers(0, 3600))
def test_every_minute_has_the_replicas_of_its_hour(hours: list[int], start_s: int) -> None:
    schedule = build_schedule(small(hours=tuple(hours), replica_start_s=start_s), "vllm")
    if schedule is None:
        assert len(set(hours)) == 1
        return
    spans = [
        (minute(each["metadata"]["start"]), minute(each["metadata"]["end"]), int(each["metadata"]["desiredReplicas"]))
        for each in schedule.triggers
    ]
    lead = math.ceil(start_s / 60)
    for at in range(24 * 60):
        running = [count for start, end, count in spans if (at - start) % 1440 < ((end - start) % 1440 or 1440)]
        soon = max(hours[(at + ahead) % 1440 // 60] for ahead in range(lead + 1))  # those of the next hour start
        assert max([schedule.fewest, *running]) == soon


def test_the_same_load_all_day_needs_no_autoscaler() -> None:
    kinds = [each["kind"] for each in documents(export(small(hours=(2,) * 24), exporter_named("kubernetes")).written)]
    assert kinds == ["Deployment", "Service"]


SOME = SERVICES | {"many users": ADAPTERS.replace("users: 200", "users: 3000"), "a rate": DAY.replace("hourly", "#")}
FOLLOWED = [(target, "vllm", name) for target in TARGETS for name in ("a day", "a rate", "many users")]


@pytest.mark.parametrize(("target", "engine", "name"), [*FOLLOWED, ("kubernetes", "sglang", "a rate")])
def test_replicas_follow_the_requests_in_flight(
    target: str, engine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as each of the plan has make as many replicas as the plan has; a day's hours stay beside it."""
    monkeypatch.setattr(sys.modules[__name__], "SERVICES", SOME)
    scenario, answer = answered(name, engine)
    _, found = exported_plan(exporter_named(target), scenario, answer, Registry(), autoscale=True)
    assert list(problems(found.written, target)) == []
    (spec,) = (each for each in map(scaling, documents(found.written)) if each)
    (trigger,) = (each["metadata"] for each in spec["triggers"] if each["type"] == "prometheus")
    assert answer.replicas is not None
    assert answer.per_replica is not None
    assert answer.per_replica.concurrency is not None
    total = answer.replicas.count * answer.per_replica.concurrency
    assert math.ceil(0.99 * total / float(trigger["threshold"])) == answer.replicas.count == spec["most"]
    gauge = {"dynamo": "dynamo_frontend_inflight", "kubernetes": "running"}.get(target, "waiting")
    assert gauge in trigger["query"]
    assert (len(spec["triggers"]) > 1) == (name == "a day")
    assert ("--enable-metrics" in found.written.text) == (engine == "sglang")


def scaling(document: dict[str, Any]) -> dict[str, Any]:
    """Triggers, and the most replicas, of what has them."""
    spec = document.get("spec", {})
    if "scaleTargetRef" in spec:
        return {"triggers": spec["triggers"], "most": spec["maxReplicaCount"]}
    own = spec.get("scaling") or {}
    return {"triggers": own["keda"]["triggers"], "most": own["maxReplicas"]} if own else {}


@pytest.mark.parametrize(
    ("target", "more", "why"),
    [
        ("vllm", {}, "has no setting for --autoscale"),
        ("kubernetes", {"serve__engine": "tensorrt-llm"}, "has no gauge"),
        ("kubernetes", {"replicas": 1}, "nothing to scale"),
        ("dynamo", {"serve__prefill_replicas": 2, "serve__prefill_tp": 2}, "only prefill or decode"),
    ],
)
def test_what_cannot_follow_requests_is_refused(target: str, more: dict[str, Any], why: str) -> None:
    plan = Plan(small(**more).values, in_flight=30.0)
    with pytest.raises(InputError, match=why):
        export(plan, exporter_named(target))


@pytest.mark.parametrize(("model", "name"), [
    ("Qwen/Qwen3-0.6B", "qwen3-0-6b"), ("01-ai/Yi-34B_Chat", "yi-34b-chat"), ("x/3B", "model-3b"),
    ("a/" + "long-" * 20, ("long-" * 8).strip("-")),
])  # fmt: skip
def test_names_are_those_of_kubernetes(model: str, name: str) -> None:
    assert object_name(model) == name


@pytest.mark.parametrize("target", TARGETS)
def test_a_tool_starts_engines_that_it_knows_and_gpus_that_have_an_image(target: str) -> None:
    with pytest.raises(InputError, match=r"not for llama\.cpp"):
        export(small(serve__engine="llama.cpp"), exporter_named(target))
    with pytest.raises(InputError, match="not for tpu-v6e"):
        export(small(vendor="Google", gpu="tpu-v6e"), exporter_named(target))


def test_amd_gpus_get_their_device_and_image() -> None:
    text = export(small(vendor="AMD", gpu="mi300x"), exporter_named("kubernetes")).written.text
    assert "amd.com/gpu: '2'" in text
    assert "vllm/vllm-openai-rocm" in text
    exported = export(small(vendor="AMD", gpu="mi300x", serve__engine="sglang"), exporter_named("kubernetes"))
    assert "image: IMAGE" in exported.written.text
    assert any("an image of sglang" in each for each in exported.yours)


@pytest.mark.parametrize("target", ["dynamo", "kserve", "llm-d", "production-stack"])
def test_images_of_nvidia_are_started_on_its_gpus_alone(target: str) -> None:
    with pytest.raises(InputError, match="written for GPUs of NVIDIA, not for mi300x"):
        export(small(vendor="AMD", gpu="mi300x"), exporter_named(target))


@pytest.mark.parametrize("target", ["vllm", "sglang", "trtllm"])
def test_pools_apart_are_no_command_of_one_server(target: str) -> None:
    with pytest.raises(InputError, match=r"serve\.prefill_replicas: 3"):
        export(small(serve__prefill_replicas=3), exporter_named(target))


def test_a_day_is_told_where_a_command_cannot_say_it() -> None:
    unsaid = export(small(hours=(1,) * 12 + (2,) * 12), exporter_named("vllm")).unsaid
    assert unsaid == (("serve.hourly_load", "1 to 2 replicas"),)


def test_prefill_that_the_engine_cannot_place_is_refused_by_its_own_key() -> None:
    with pytest.raises(InputError, match=r"serve\.prefill_ep: 2"):
        export(small(serve__prefill_replicas=1, serve__prefill_tp=4, serve__prefill_ep=2), exporter_named("dynamo"))


ALPHA = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  services:
    Frontend:
      componentType: frontend
      replicas: 1
      extraPodSpec: {mainContainer: {image: frontend, command: [python3, -m, dynamo.frontend]}}
    prefill:
      componentType: worker
      subComponentType: prefill
      replicas: 2
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.sglang]
          args: [--model-path, Qwen/Qwen3-32B, --tp-size, "4"]
    decode:
      componentType: worker
      subComponentType: decode
      replicas: 1
      multinode: {nodeCount: 2}
      resources: {limits: {gpu: "8"}}
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.sglang]
          args: [--model-path, Qwen/Qwen3-32B, --tp-size, "16"]
"""


def test_graphs_of_earlier_releases_of_dynamo_are_read(tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(ALPHA, encoding="utf-8")
    facts = read_foreign([file], Asked()).facts
    said = {
        key: facts[key].value
        for key in ("serve.engine", "layout.tp", "gpus", "serve.prefill_replicas", "serve.prefill_tp")
    }
    assert said == {
        "serve.engine": "sglang", "layout.tp": 16, "gpus": 24, "serve.prefill_replicas": 2, "serve.prefill_tp": 4
    }  # fmt: skip


def test_flags_of_kserve_are_read_as_a_shell_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    drafts = export(small(serve__draft_tokens=2, serve__acceptance_rate=0.7), exporter_named("kserve")).written.text
    file.write_text(drafts, encoding="utf-8")
    assert read_foreign([file], Asked()).facts["serve.draft_tokens"].value == 2
    (resource,) = yaml.safe_load_all(drafts)
    resource["spec"]["kvCacheOffloading"] = {"cpu": "512Mi"}
    file.write_text(yaml.safe_dump(resource), encoding="utf-8")
    assert read_foreign([file], Asked(hardware={"gpus": 4})).facts["serve.kv_host_gib"].value == 0.5
