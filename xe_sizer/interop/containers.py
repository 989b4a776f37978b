"""Services in containers: Dockerfiles, Compose and Kubernetes files."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location
from xe_sizer.interop.launch import Node
from xe_sizer.interop.readers.shell_script import read_words
from xe_sizer.interop.services import (
    DECODE,
    MODELS,
    NO_SERVICES,
    PREFILL,
    SERVER_IMAGES,
    SUBCOMMANDS,
    TENSORRT_LLM,
    VLLM,
    Service,
    Services,
    engine_of_image,
    find_services,
    listed_arguments,
    opened,
    serving_role,
)
from xe_sizer.interop.values import Written
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.interop.source import Source

# Model servers in container manifests: Kubernetes, KServe, LeaderWorkerSet, llm-d's charts and Compose files.
#
# Resources: Kubernetes API (containers, resources.limits, nodeSelector, affinity), DynamoGraphDeployment of Dynamo,
# InferenceService and LLMInferenceService of KServe, the Compose specification (deploy.resources.reservations.devices).

MIG = "mig_profile"
_GPU_LIMIT = re.compile(r"(nvidia|amd|gpu\.intel)\.com/(gpu|mig-.*|i915)")
_PRODUCT = re.compile(
    r"gpu[._-]?product|gke-accelerator|gpu[._-]?(type|class|model|name)|accelerator(-type)?$|cloud\.google\.com/.*gpu"
)
_PODS = (
    ("spec", "template", "spec"), ("spec", "jobTemplate", "spec", "template", "spec"), ("spec",),
    ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
    ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
)  # fmt: skip
_DEEPEST = 12
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(|[KMGT]i?)")
_UNITS = {
    **{f"{prefix}i" if prefix else "": 1024.0**power for power, prefix in enumerate(("", "K", "M", "G", "T"))},
    **{prefix: 1000.0**power for power, prefix in enumerate("KMGT", 1)},
}  # fmt: skip


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The servers of a manifest, of a Compose file or of a chart's values."""
    if node.text("kind") == "InferenceService":
        found = list(_kserve(node))
    elif node.text("kind") in ("LLMInferenceService", "LLMInferenceServiceConfig"):
        found = list(_llm_kserve(node))
    elif node.text("kind") == "DynamoGraphDeployment":
        found = list(_dynamo(node, given))
    elif node.get("kind") is not None:
        found = list(_manifest(node, given))
    elif node.get("services") is not None:
        found = list(_compose(node, given))
    else:
        found = list(_chart(node, given))
    return Services(tuple(found)) if found else NO_SERVICES


def _manifest(node: Node, given: Mapping[str, str]) -> Iterator[Service]:
    if node.text("kind") == "List":
        items = node.get("items")
        for item in items.each() if items is not None else ():
            yield from _manifest(item, given)
        return
    for path in _PODS:
        pod = node.get(*path)
        containers = pod.get("containers") if pod is not None else None
        if pod is None or containers is None:
            continue
        found = [each for one in containers.each() for each in _container(one, pod, given)]
        size = node.said("spec", "leaderWorkerTemplate", "size")
        for service in found:
            replicas = node.said("spec", "replicas") or node.said("spec", "parallelism")
            yield replace(service, replicas=replicas, name=node.text("metadata", "name"), gpus=_of_all(service, size))
        if found:
            return


def _of_all(service: Service, size: Written | None) -> Written | None:
    """GPUs of a group of pods, each of which has as many."""
    if size is None or service.gpus is None or not str(size.value).isdigit() or not str(service.gpus.value).isdigit():
        return service.gpus
    return Written(int(str(size.value)) * int(str(service.gpus.value)), size.where)


def _container(node: Node, around: Node, given: Mapping[str, str]) -> Iterator[Service]:
    """The server that a container starts: by its command, else by its image, whose program gets the arguments."""
    image = node.said("image")
    for service in _started(node, image, given):
        environment = _environment(node)
        yield replace(
            service.with_keys(environment),
            gpus=_limit(node),
            gpu=gpu_of_selectors(around),
            image=service.image or image,
        )


def _started(node: Node, image: Written | None, given: Mapping[str, str]) -> Iterator[Service]:
    parts = [each for name in ("entrypoint", "command", "args") if (each := node.get(name)) is not None]
    words = [word for part in parts for word in (_split(part) if len(parts) > 1 else part.words())]
    known = {**{name: str(value.value) for name, value in _environment(node, "").items()}, **given}
    found = list(find_services(read_words(words, known).commands)) if words else []
    engine = engine_of_image(str(image.value)) if image is not None else None
    if found:
        yield from found
        return
    if words and words[0][0] == SUBCOMMANDS.get(str(engine)):
        words = words[1:]
    if engine in (*SERVER_IMAGES, TENSORRT_LLM) and (not words or words[0][0].startswith("-")):
        keys = listed_arguments(_resolved(words, known))
        if keys or not _environment(node).keys().isdisjoint(MODELS):
            yield Service(engine, keys, node.where, role=serving_role(keys))


def _resolved(words: list[tuple[str, Location]], known: Mapping[str, str]) -> Iterator[tuple[str, Location]]:
    """Words with the variables of a container replaced: `$(NAME)` and `${NAME}`."""
    for text, where in words:
        yield re.sub(r"\$[({](\w+)[)}]", lambda found: known.get(found[1], found[0]), text), where


def _split(part: Node) -> list[tuple[str, Location]]:
    """Words of a list, or of a command line beside another one."""
    if not isinstance(part.value, str):
        return part.words()
    try:
        return [(word, part.where) for word in shlex.split(part.value)]
    except ValueError:
        return part.words()


def _environment(node: Node, prefix: str = "env.") -> dict[str, Written]:
    """Environment variables of a container, as a list of names and values or as a group; and the slice that it gets."""
    env = node.get("env") or node.get("environment")
    part = _slice(node) if prefix else {}
    if env is None:
        return part
    if isinstance(env.value, dict):
        plain = (each for each in env.each() if not isinstance(each.value, dict | list))
        return part | {f"{prefix}{each.path[-1]}": each.written for each in plain}
    named = ((each.text("name"), each.said("value")) for each in env.each() if isinstance(each.value, dict))
    return part | {f"{prefix}{name}": value for name, value in named if name and value is not None}


def _slice(node: Node) -> dict[str, Written]:
    """The MIG profile that a container is given, as an argument beside those of the server."""
    part = node.get("resources", "limits") or node.get("resources", "requests")
    found = ((_GPU_LIMIT.fullmatch(str(each.path[-1])), each) for each in (part.each() if part is not None else ()))
    named = (Written(match[2].partition("mig-")[2], each.where) for match, each in found if match)
    name = next((each for each in named if each.value), None)
    return {} if name is None else {MIG: name}


def _limit(node: Node) -> Written | None:
    """GPUs that a container is given: by its limits, or by the devices that Compose reserves."""
    for section in ("limits", "requests"):
        part = node.get("resources", section)
        for each in part.each() if part is not None else ():
            if _GPU_LIMIT.fullmatch(str(each.path[-1])):
                return each.written
    devices = node.get("deploy", "resources", "reservations", "devices")
    for device in devices.each() if devices is not None else ():
        ids = device.get("device_ids")
        if ids is not None and isinstance(ids.value, list):
            return Written(len(ids.value), ids.where)
        count = device.said("count")
        if count is not None and str(count.value).isdigit():
            return count
    return None


def gpu_of_selectors(node: Node, depth: int = 0) -> Written | None:
    """The GPU that a node selector or an affinity below a place names."""
    if depth > _DEEPEST:
        return None
    for each in node.each():
        key = str(each.path[-1])
        if _PRODUCT.search(key) and isinstance(each.value, str) and isinstance(node.value, dict):
            return each.written
        if isinstance(each.value, dict) and _PRODUCT.search(each.text("key")):
            values = each.get("values") or each.get("value")
            first = next(iter(values.words()), None) if values is not None else None
            if first is not None:
                return Written(*first)
        if isinstance(each.value, dict | list):
            found = gpu_of_selectors(each, depth + 1)
            if found is not None:
                return found
    return None


def _compose(node: Node, given: Mapping[str, str]) -> Iterator[Service]:
    services = node.get("services")
    for each in services.each() if services is not None else ():
        for service in _container(each, each, given):
            yield replace(service, name=str(each.path[-1]), replicas=each.said("deploy", "replicas"))


def _dynamo(node: Node, given: Mapping[str, str]) -> Iterator[Service]:
    """Workers of a graph of Dynamo: a list of components, or until v1alpha1 a group of services."""
    parts = node.get("spec", "components") or node.get("spec", "services")
    for part in parts.each() if parts is not None else ():
        pod = part.get("podTemplate", "spec") or part.get("extraPodSpec")
        containers = pod.get("containers") if pod is not None else None
        main = next(containers.each(), None) if containers is not None else part.get("extraPodSpec", "mainContainer")
        if pod is None or main is None:
            continue
        kind = part.text("type") or part.text("subComponentType") or part.text("componentType")
        per_pod = _limit(main) or part.said("resources", "limits", "gpu")
        for service in _container(main, pod, given):
            given_gpus = replace(service, gpus=per_pod)
            yield replace(
                service,
                name=part.text("name") or str(part.path[-1]),
                replicas=part.said("replicas"),
                gpus=_of_all(given_gpus, part.said("multinode", "nodeCount")),
                role=service.role or (kind if kind in (PREFILL, DECODE) else ""),
            )


def _kserve(node: Node) -> Iterator[Service]:
    """A predictor of KServe: its Hugging Face runtime takes vLLM's arguments; others have containers."""
    predictor = node.get("spec", "predictor")
    model = predictor.get("model") if predictor is not None else None
    replicas = predictor.said("minReplicas") if predictor is not None else None
    if model is not None and predictor is not None:
        args = model.get("args")
        keys = listed_arguments(args.words()) if args is not None else {}
        uri = model.said("storageUri")
        if uri is not None:
            keys.setdefault("model", Written(str(uri.value).removeprefix("hf://"), uri.where))
        keys = {("model" if name == "model_id" else name): written for name, written in keys.items()}
        yield Service(
            VLLM, {**_environment(model), **keys}, model.where, name=node.text("metadata", "name"), replicas=replicas,
            gpus=_limit(model), gpu=gpu_of_selectors(predictor),
        )  # fmt: skip
    elif predictor is not None and predictor.get("containers") is not None:
        containers = predictor.get("containers")
        for container in containers.each() if containers is not None else ():
            for service in _container(container, predictor, {}):
                yield replace(service, replicas=replicas, name=node.text("metadata", "name"))


def _llm_kserve(node: Node) -> Iterator[Service]:
    spec = node.get("spec")
    if spec is None:
        return
    uri = spec.said("model", "uri")
    for part, role in ((spec, DECODE if spec.get("prefill") else ""), (spec.get("prefill"), PREFILL)):
        if part is None:
            continue
        keys: dict[str, Written] = {}
        for name, to in (("tensor", "tensor_parallel_size"), ("data", "data_parallel_size"),
                         ("pipeline", "pipeline_parallel_size"), ("expert", "enable_expert_parallel")):  # fmt: skip
            said = part.said("parallelism", name)
            keys |= {to: said} if said is not None else {}
        if uri is not None:
            keys["model"] = Written(str(uri.value).removeprefix("hf://"), uri.where)
        containers = (part.get("template", "containers") or part).each()
        groups = (each for each in containers if isinstance(each.value, dict))
        container = next((each for each in groups if each.text("name") in ("main", "kserve-container", "vllm")), None)
        if container is not None:
            keys = {**_environment(container), **keys, **_extra_arguments(container)}
        gpus = _limit(container) if container is not None else None
        host = part.said("kvCacheOffloading", "cpu")
        if host is not None:
            keys["kv_offloading_size"] = Written(_gib(host.value), host.where)
        replicas = part.said("replicas") or part.said("scaling", "maxReplicas")
        yield Service(VLLM, keys, part.where, name=role or node.text("metadata", "name"), role=role,
                      replicas=replicas, gpus=gpus, gpu=gpu_of_selectors(part))  # fmt: skip


def _extra_arguments(container: Node) -> dict[str, Written]:
    """Arguments of a container and those of the variable VLLM_ADDITIONAL_ARGS."""
    args = container.get("args")
    keys = listed_arguments(args.words()) if args is not None else {}
    more = _environment(container, "").get("VLLM_ADDITIONAL_ARGS")
    if more is not None:
        try:
            words = shlex.split(str(more.value))
        except ValueError:
            words = str(more.value).split()
        keys = {**listed_arguments((word, more.where) for word in words), **keys}
    return keys


def _gib(quantity: object) -> object:
    """A quantity of memory as Kubernetes writes it in GiB; what is none stays as it is."""
    found = _QUANTITY.fullmatch(str(quantity))
    return float(found[1]) * _UNITS[found[2]] / GIB if found else quantity


def _chart(node: Node, given: Mapping[str, str]) -> Iterator[Service]:
    """Values of a chart such as llm-d's model service: `decode` and `prefill` with their containers."""
    uri = node.said("modelArtifacts", "uri")
    for name, role in (("decode", DECODE), ("prefill", PREFILL)):
        part = node.get(name)
        containers = part.get("containers") if part is not None else None
        if part is None or containers is None or part.value.get("create") is False:
            continue
        for container in containers.each():
            yield from _of_chart(container, part, uri, role if node.get("prefill", "containers") else "", given)


def _of_chart(
    container: Node, part: Node, uri: Written | None, role: str, given: Mapping[str, str]
) -> Iterator[Service]:
    found = list(_container(container, part, given))
    if not found and container.text("modelCommand") in ("vllmServe", "imageDefault"):
        args = container.get("args")
        keys = listed_arguments(args.words()) if args is not None else {}
        found = [Service(VLLM, {**_environment(container), **keys}, container.where, gpus=_limit(container))]
    for service in found:
        more: dict[str, Written] = {}
        for name, to in (("tensor", "tensor_parallel_size"), ("data", "data_parallel_size")):
            said = part.said("parallelism", name)
            more |= {to: said} if said is not None else {}
        if uri is not None:
            more["model"] = Written(str(uri.value).removeprefix("hf://"), uri.where)
        opened_keys = {name: each for key, written in more.items() for name, each in opened(key, written).items()}
        yield replace(service.with_keys(opened_keys), role=role or service.role, replicas=part.said("replicas"),
                      name=str(part.path[-1]))  # fmt: skip


# Training that the pods of a Job run: its command as a script, with the files of the ConfigMaps that it mounts.

_TRAINS = re.compile(r"^kind:\s*[\"']?(Job|JobSet)\b", re.MULTILINE)
_SHELLS = ("sh", "bash")


def script_of_job(source: Source) -> Source:
    """A manifest of a Job or JobSet as the script that each of its pods runs, at the same line; others as they are."""
    if source.kind != "yaml" or not _TRAINS.search(source.text):
        return source
    try:
        nodes = [Node(document, document.value) for document in source.documents]
    except InputError:
        return source
    files = {str(each.path[-1]): str(each.value) for node in nodes for each in _data(node)}
    for node in nodes:
        parts = [part for name in ("command", "args") if (part := _trainer(node, name)) is not None]
        words = [word for part in parts for word in part.words()]
        texts = [text for text, _ in words]
        if not texts:
            continue
        is_script = texts[0].rpartition("/")[2] in _SHELLS and texts[1:2] == ["-c"]
        text = texts[2] if is_script and len(texts) > 2 else shlex.join(texts)
        beside = {each: files[each.rpartition("/")[2]] for each in texts if each.rpartition("/")[2] in files}
        above = "\n" * ((words[0][1].line or 1) - 1)
        return replace(source, kind="shell", text=above + text, beside={**source.beside, **beside})
    return source


def _data(node: Node) -> Iterator[Node]:
    data = node.get("data") if node.text("kind") == "ConfigMap" else None
    yield from data.each() if data is not None else ()


def _trainer(node: Node, name: str) -> Node | None:
    """A key of the first container of a Job, or of the first Job of a set."""
    jobs = node.get("spec", "replicatedJobs")
    job = next(jobs.each(), None) if jobs is not None else node
    template = job.get("template") if job is not None and jobs is not None else node
    containers = template.get("spec", "template", "spec", "containers") if template is not None else None
    first = next(containers.each(), None) if containers is not None else None
    return first.get(name) if first is not None else None


# Model servers that a Dockerfile's last ENTRYPOINT and CMD start.

_INSTRUCTION = re.compile(r"^[ \t]*(FROM|ENTRYPOINT|CMD)[ \t]+((?:[^\n\\]|\\\n|\\.)*)", re.IGNORECASE | re.MULTILINE)
DOCKERFILE = re.compile(r"(.*\.)?dockerfile(\..*)?|containerfile", re.IGNORECASE)


def services_of_dockerfile(source: Source) -> Iterator[Service]:
    """The server that the image starts; the image of vLLM takes arguments alone."""
    last: dict[str, tuple[str, Location]] = {}
    for found in _INSTRUCTION.finditer(source.text):
        line = source.text.count("\n", 0, found.start()) + 1
        last[found[1].upper()] = found[2].replace("\\\n", " ").strip(), Location(source.name, line, 1)
    words = [word for name in ("ENTRYPOINT", "CMD") if name in last for word in _words(*last[name])]
    started = list(find_services(read_words(words, source.given).commands)) if words else []
    base, where = last.get("FROM", ("", Location(source.name)))
    engine = engine_of_image(base)
    if started or engine not in SERVER_IMAGES or not words or not words[0][0].startswith("-"):
        yield from started
        return
    keys = listed_arguments(words)
    yield Service(engine, keys, where, role=serving_role(keys))


def _words(text: str, where: Location) -> list[tuple[str, Location]]:
    """The words of an instruction: a JSON list, or a command line."""
    if text.startswith("["):
        try:
            return [(word, where) for word in msgspec.json.decode(text, type=list[str])]
        except msgspec.DecodeError:
            return []
    return [(word, where) for word in text.split()]
