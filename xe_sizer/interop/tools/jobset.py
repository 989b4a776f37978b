"""Training on Kubernetes: a Job with a Service by which its pods meet, a JobSet, and a JobSet that Kueue queues.

Objects: Kubernetes 1.36 (concepts/workloads/controllers/job), jobset.x-k8s.io/v1alpha2 (JobSet 0.10), labels of
Kueue 0.14 (docs, tasks/run/jobsets). A pod is a node; what it runs is what `--to slurm` starts on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable
from xe_sizer.interop.huggingface import accelerate_configuration, as_words, trl_settings, trl_trainer
from xe_sizer.interop.manifests import (
    DEVICES,
    PLACEHOLDER_IMAGE,
    SHARED_MEMORY,
    applied,
    arguments,
    environment,
    gpu_device,
    gpu_notes,
    object_name,
    resources,
)
from xe_sizer.interop.megatron import megatron_lacks, megatron_tells, one_connection
from xe_sizer.interop.tools.megatron_lm import megatron_words
from xe_sizer.interop.tools.slurm import (
    CONFIGURATION,
    PORT,
    TRAINING_ADDED,
    TRAINING_SAYS,
    is_megatrons,
    launcher_words,
    runs_told,
)
from xe_sizer.interop.write import LEARNING_RATE, RATES, Exporter, ToolFiles, yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xe_sizer.interop.write import Plan

_SETTINGS, _DATA = "/etc/training", "/training"
_FOLDERS = (f"{_DATA}/output", f"{_DATA}/checkpoints")
_CLAIM = "training"  # the disk that all nodes write to
_WORKERS, _QUEUE = "workers", "LOCAL_QUEUE"


class Launch(Immutable):
    """What a pod runs: its command, the configuration that it names, its variables, and what the user is told."""

    words: list[str]
    configuration: Mapping[str, Any] | None
    variables: Sequence[Mapping[str, Any]]
    needs: str
    yours: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def _launch(plan: Plan, host: str) -> Launch:
    """The trainer of a plan on one node; `host` is the name of the first."""
    nodes = int(plan.peek("nodes", 1))
    if is_megatrons(plan):
        words = megatron_words(plan, host, f"{_DATA}/checkpoints")
        name, _, value = one_connection(plan).removeprefix("export ").strip().partition("=")
        variables = [{"name": name, "value": value}] if name else []
        needs = "Megatron-LM, whose folder is its working folder"
        return Launch(words, None, variables, needs, megatron_lacks(plan), megatron_tells(plan))
    plan.said("nodes", "gpus", "gpus_per_node")
    configuration = accelerate_configuration(plan)
    words = launcher_words(configuration, f"{_SETTINGS}/{CONFIGURATION}", nodes, host)
    settings = as_words(trl_settings(plan)) | {"output_dir": f"{_DATA}/output"}
    return Launch([*words, "-m", f"trl.scripts.{trl_trainer(plan)}", *arguments(settings)], configuration, [], "TRL")


def _objects(
    plan: Plan, title: str, host: str, build: Callable[[str, dict[str, Any]], Iterator[dict[str, Any]]]
) -> ToolFiles:
    """The configuration, if there is one, and what runs the pods.

    host : the name of the first pod, in which `NAME` is that of the job
    build : the objects of a job, from its name and the specification of its Job
    """
    name = object_name(str(plan.peek("model")))
    plan.said(RATES)
    nodes, per_node = int(plan.peek("nodes", 1)), int(plan.peek("gpus_per_node", plan.peek("gpus", 1)))
    launch = _launch(plan, host.replace("NAME", name))
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": _DATA}]
    volumes = [SHARED_MEMORY, {"name": "data", "persistentVolumeClaim": {"claimName": _CLAIM}}]
    documents: list[dict[str, Any]] = []
    if launch.configuration is not None:
        mounts.append({"name": "settings", "mountPath": _SETTINGS})
        volumes.append({"name": "settings", "configMap": {"name": name}})
        data = {CONFIGURATION: yaml_text(launch.configuration)}
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    trainer = {
        "name": "trainer",
        "image": PLACEHOLDER_IMAGE,
        "command": launch.words,
        "env": environment(*launch.variables),
        "resources": resources(gpu_device(plan, title, tuple(DEVICES)), per_node, None),
        "ports": [{"containerPort": PORT}] if nodes > 1 else None,
        "volumeMounts": mounts,
    }
    job = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": 0,  # nodes start together or not at all
        "template": {"spec": {"restartPolicy": "Never", "containers": [trainer], "volumes": volumes}},
    }
    for number, rate in enumerate(plan.rates, 1):
        own = f"{name}-lr-{number}"
        words = [_of_rate(word, rate) for word in _launch(plan, host.replace("NAME", own)).words]
        documents += build(own, _with_command(job, words))
    documents += [] if plan.rates else build(name, job)
    network = ("network devices of the pods, such as rdma/ib, which nodes meet by",) if nodes > 1 else ()
    yours = (
        f"{PLACEHOLDER_IMAGE}: an image with {launch.needs}",
        f"a PersistentVolumeClaim {_CLAIM}, which the pods write checkpoints to",
        *gpu_notes(plan), *network, *launch.yours,
    )  # fmt: skip
    return applied(documents, yours, (*launch.told, *((runs_told(plan),) if plan.rates else ())))


def _of_rate(word: str, rate: str) -> str:
    """A word of a command as the run of a learning rate has it, whose folder is its own."""
    return rate if word == LEARNING_RATE else f"{word}/lr-{rate}" if word in _FOLDERS else word


def _with_command(job: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """A job whose pods run another command."""
    spec = job["template"]["spec"]
    (trainer,) = spec["containers"]
    return {**job, "template": {"spec": {**spec, "containers": [{**trainer, "command": words}]}}}


def write_job(plan: Plan) -> ToolFiles:
    """A Job whose pods are the nodes, and a Service without an address, which gives them names."""

    def build(name: str, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if job["completions"] > 1:
            job["template"]["spec"]["subdomain"] = name
            selector = {"batch.kubernetes.io/job-name": name}
            spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
            yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}

    return _objects(plan, "Kubernetes", "NAME-0.NAME", build)


def _job_set(name: str, job: dict[str, Any], queue: str = "") -> Iterator[dict[str, Any]]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else None
    yield {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "suspend": True if queue else None,  # until Kueue admits it
            "replicatedJobs": [{"name": _WORKERS, "replicas": 1, "template": {"spec": job}}],
        },
    }


_HOST = f"NAME-{_WORKERS}-0-0.NAME"


def _write_job_set(plan: Plan) -> ToolFiles:
    return _objects(plan, "JobSet", _HOST, _job_set)


def _write_queued(plan: Plan) -> ToolFiles:
    found = _objects(plan, "Kueue", _HOST, lambda name, job: _job_set(name, job, _QUEUE))
    return ToolFiles(
        found.text, run=found.run, told=found.told, yours=(*found.yours, f"{_QUEUE}: a LocalQueue of the namespace")
    )


EXPORTERS = (
    Exporter("jobset", "JobSet", ".yaml", _write_job_set, TRAINING_SAYS, TRAINING_ADDED),
    Exporter("kueue", "Kueue", ".yaml", _write_queued, TRAINING_SAYS, TRAINING_ADDED),
)
