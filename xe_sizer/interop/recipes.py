"""Services in the forms that projects publish them in: recipes, cookbooks, and settings of engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.interop.containers import gpu_of_selectors
from xe_sizer.interop.launch import plain_keys
from xe_sizer.interop.services import (
    ATOM,
    DECODE,
    NO_SERVICES,
    PREFILL,
    SGLANG,
    TENSORRT_LLM,
    VLLM,
    Service,
    Services,
    listed_arguments,
    not_set,
    opened,
    serving_role,
)
from xe_sizer.interop.values import Unread, UnreadableError, Written, is_on, positive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xe_sizer.interop.launch import Node
    from xe_sizer.interop.readers.shell_script import Command, Word
    from xe_sizer.interop.source import Source

# SGLang's cookbook: models with configurations for several GPUs.
#
# Keys: sgl-project/sgl-cookbook, data/models. The first configuration of the first model is read; `--set model=NAME`,
# `--set hardware=GPU` and `--set configuration=NAME` choose others.

_SGL_COOKBOOK_ROLES = (("engine", ""), ("prefill", PREFILL), ("decode", DECODE))


def read_sgl_cookbook(node: Node, given: Mapping[str, str]) -> Services:
    """The configurations of a file of the cookbook, those that are asked for first."""
    families = node.get("families")
    if families is None:
        return NO_SERVICES
    found = [each for family in families.each() for each in _of_family(family, node.text("vendor"))]
    return Services(tuple(sorted(found, key=lambda each: not _is_wanted(each, given))))


def _is_wanted(service: Service, given: Mapping[str, str]) -> bool:
    gpu = str(service.gpu.value).lower() if service.gpu is not None else ""
    words = service.name.lower().split()
    asked = {name: given[name].lower() for name in ("hardware", "configuration") if name in given}
    return asked.get("hardware", gpu) == gpu and asked.get("configuration", words[-1]) == words[-1]


def _of_family(family: Node, vendor: str) -> Iterator[Service]:
    models = family.get("models")
    for model in models.each() if models is not None else ():
        path = model.said("model_path") or model.said("name")
        hardware = model.get("hardware")
        for gpu in hardware.each() if hardware is not None else ():
            configurations = gpu.get("configurations")
            for each in configurations.each() if configurations is not None else (gpu,):
                yield from _sgl_cookbook_services(each, gpu, model, path, vendor)


def _sgl_cookbook_services(node: Node, gpu: Node, model: Node, path: Written | None, vendor: str) -> Iterator[Service]:
    name = node.text("name") or "default"
    precision = node.said("attributes", "quantization") or model.said("quantization")
    for part, role in _SGL_COOKBOOK_ROLES:
        engine = node.get(part) or (node if part == "engine" and node.get("tp") else None)
        if engine is None:
            continue
        extra = engine.get("extra_args")
        keys = listed_arguments(extra.words()) if extra is not None else {}
        for key in ("tp", "dp", "ep", "pp", "enable_dp_attention"):
            said = engine.said(key)
            keys |= {key: said} if said is not None else {}
        checkpoint = node.said("quantized_model_path") or path
        if checkpoint is not None:
            repository = str(checkpoint.value)
            if "/" not in repository and vendor:
                repository = f"{vendor}/{repository}"
            keys.setdefault("model_path", Written(repository, checkpoint.where))
        environment = engine.get("env_vars")
        keys |= environment.keys("env") if environment is not None else {}
        keys |= {"precision": precision} if precision is not None else {}
        product = Written(str(gpu.path[-1]), gpu.document.locate(gpu.path, key=True))
        yield Service(
            SGLANG, keys, engine.where, name=f"{model.text('name')} {product.value} {name}", gpu=product, role=role
        )


# Recipes of vllm-project/recipes: a model with its arguments, its variants, and the hardware that it was tried on.
#
# Keys: vllm-project/recipes, CONTRIBUTING.md. The default variant is read, or the one of `--set variant=NAME`; features
# that are not opt-in are on. Degrees of parallelism follow from the GPUs at hand, unless the recipe sets them.

_TENSOR = "single_node_tp"


def read_vllm_recipes(node: Node, given: Mapping[str, str]) -> Services:
    """The server that a recipe describes."""
    model = node.said("model", "model_id")
    if model is None or (node.get("variants") is None and node.get("features") is None):
        return NO_SERVICES
    variants = node.get("variants")
    names = [str(each.path[-1]) for each in variants.each()] if variants is not None else []
    wanted = given.get("variant", "default")
    variant = variants.get(wanted if wanted in names else names[0]) if variants is not None and names else None
    keys = _arguments(node, variant)
    keys["model"] = (variant.said("model_id") if variant is not None else None) or model
    precision = variant.said("precision") if variant is not None else None
    if precision is not None:
        keys["precision"] = precision
    if variant is not None:
        others = [name for name in names if name != str(variant.path[-1])]
        keys |= {f"variants.{name}": Written(True, node.document.locate(("variants", name))) for name in others}
    keys.setdefault("tensor_parallel_size", _degree(node, variant))
    hardware = node.get("hardware_overrides")
    keys |= hardware.keys("hardware_overrides") if hardware is not None else {}
    name = node.text("meta", "slug")
    keys["recipe"] = Written(name or str(model.value), model.where)
    return Services((Service(VLLM, keys, node.document.locate(("model",)), name=name, gpu=_hardware(node, given)),))


def _arguments(node: Node, variant: Node | None) -> dict[str, Written]:
    base = node.get("model", "base_args")
    keys = listed_arguments(base.words()) if base is not None else {}
    opt_in = node.get("opt_in_features")
    off = {text for text, _ in opt_in.words()} if opt_in is not None else set()
    features = node.get("features")
    for feature in features.each() if features is not None else ():
        args = feature.get("args") if isinstance(feature.value, dict) else None
        if args is None:
            continue
        name = str(feature.path[-1])
        if name in off:
            keys[f"features.{name}"] = Written(False, feature.where)
        else:
            keys |= listed_arguments(args.words())
    extra = variant.get("extra_args") if variant is not None else None
    if extra is not None:
        keys |= listed_arguments(extra.words())
    return keys


def _degree(node: Node, variant: Node | None) -> Written:
    stated = variant.said("tp") if variant is not None else None
    stated = stated or node.said("strategy_overrides", _TENSOR, "tp")
    if stated is not None:
        return stated
    where = node.document.locate(("compatible_strategies",))
    return Written(Unread("", "as many as the GPUs of a node; pass --tp"), where)


def _hardware(node: Node, given: Mapping[str, str]) -> Written | None:
    """The GPU that is asked for, the recipe's default, or the first that it was tried on."""
    stated = node.said("meta", "default_hardware")
    tried = node.get("meta", "hardware")
    names = {str(each.path[-1]): each for each in tried.each()} if tried is not None else {}
    wanted = given.get("hardware", "")
    if wanted in names:
        return Written(wanted, names[wanted].where)
    if stated is not None:
        return stated
    return None


# Settings of one engine in a file of its own: `--config` of vLLM and of SGLang, options of TensorRT-LLM.

_OWN: Mapping[str, frozenset[str]] = {
    TENSORRT_LLM: frozenset(
        [
            "kv_cache_config",
            "moe_config",
            "cuda_graph_config",
            "enable_attention_dp",
            "max_num_tokens",
            "attention_dp_config",
            "free_gpu_memory_fraction",
            "enable_chunked_prefill",
            "cache_transceiver_config",
            "nvfp4_gemm_config",
            "print_iter_log",
            "moe_expert_parallel_size",
            "num_postprocess_workers",
            "enable_iter_perf_stats",
            "torch_compile_config",
            "stream_interval",
            "disable_overlap_scheduler",
            "pytorch_backend_config",
            "context_servers",
            "generation_servers",
        ]
    ),
    SGLANG: frozenset(
        [
            "mem_fraction_static",
            "chunked_prefill_size",
            "disable_radix_cache",
            "model_path",
            "tp_size",
            "dp_size",
            "ep_size",
            "max_running_requests",
            "context_length",
            "enable_dp_attention",
            "cuda_graph_max_bs",
            "attention_backend",
            "tp",
        ]
    ),
    VLLM: frozenset(
        [
            "gpu_memory_utilization",
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_model_len",
            "kv_cache_dtype",
            "enable_prefix_caching",
            "no_enable_prefix_caching",
            "enable_expert_parallel",
            "tensor_parallel_size",
            "async_scheduling",
            "enforce_eager",
            "compilation_config",
            "max_cudagraph_capture_size",
            "served_model_name",
            "data_parallel_size",
            "trust_remote_code",
            "block_size",
        ]
    ),
}
_ENOUGH = 2
_FOREIGN = frozenset(
    [
        "base_model",
        "datasets",
        "stage",
        "finetuning_type",
        "trainer",
        "training",
        "train",
        "data_path",
        "micro_batch_size",
    ]
)


def read(node: Node, given: Mapping[str, str]) -> Services:
    """The engine whose settings a file holds, where two of them are its own."""
    keys: dict[str, Written] = {}
    for name, written in plain_keys(node).items():
        keys |= opened(name, written)
    top = {name.partition(".")[0] for name in keys}
    found = {engine: len(top & own) for engine, own in _OWN.items()}
    engine = max(found, key=lambda each: found[each])
    if found[engine] < _ENOUGH or top & _FOREIGN:
        return NO_SERVICES
    return Services((Service(engine, keys, node.where, role=serving_role(keys)),))


# Recipes of srt-slurm: prefill and decode workers, or workers that do both, and the benchmark that is run on them.
#
# Keys: the recipes of SemiAnalysisAI/InferenceX (benchmarks/multi_node/srt-slurm-recipes) and NVIDIA/srt-slurm.

_SRT_SLURM_ENGINES = {"vllm_config": VLLM, "sglang_config": SGLANG, "trtllm_config": TENSORRT_LLM}
_SRT_SLURM_ROLES = (("prefill", PREFILL, "prefill"), ("decode", DECODE, "decode"), ("aggregated", "", "agg"))


def read_srt_slurm(node: Node, given: Mapping[str, str]) -> Services:
    """The workers of a recipe; of one with variants of a base, those of the base."""
    recipe = node.get("base") or node
    backend = recipe.get("backend")
    named = next((name for name in _SRT_SLURM_ENGINES if backend is not None and backend.get(name)), None)
    if backend is None or named is None or recipe.get("resources") is None:
        return NO_SERVICES
    services = tuple(_workers(recipe, backend, named))
    beside: dict[str, Written] = {}
    for section in ("benchmark", "frontend", "resources", "infra"):
        part = recipe.get(section)
        beside |= part.keys(section) if part is not None else {}
    name = recipe.said("name")
    return Services(services, beside | ({"recipe": name} if name else {}))


def _workers(recipe: Node, backend: Node, named: str) -> Iterator[Service]:
    for section, role, short in _SRT_SLURM_ROLES:
        settings = backend.get(named, section)
        if settings is None:
            continue
        keys: dict[str, Written] = {}
        for name, written in plain_keys(settings).items():
            keys |= opened(name, written)
        environment = backend.get(f"{section}_environment")
        if environment is not None:
            keys |= environment.keys("env")
        yield Service(
            _SRT_SLURM_ENGINES[named],
            _with_model(recipe, keys),
            settings.where,
            name=section,
            replicas=recipe.said("resources", f"{short}_workers"),
            gpus=_srt_slurm_gpus(recipe, section, short),
            gpu=recipe.said("resources", "gpu_type"),
            image=recipe.said("identity", "container", "image") or recipe.said("model", "container"),
            role=role,
        )


def _srt_slurm_gpus(recipe: Node, section: str, short: str) -> Written | None:
    """GPUs of one worker: as stated, else those of its nodes."""
    stated = recipe.said("resources", f"gpus_per_{short}")
    if stated is not None:
        return stated
    nodes, workers, per_node = (
        recipe.said("resources", name) for name in (f"{short}_nodes", f"{short}_workers", "gpus_per_node")
    )
    if nodes is None or workers is None or per_node is None:
        return None
    try:
        counts = [positive(each.value) for each in (nodes, workers, per_node)]
    except UnreadableError:
        return None
    if not all(counts) or (counts[0] or 0) * (counts[2] or 0) % (counts[1] or 1):
        return None
    return Written((counts[0] or 0) * (counts[2] or 0) // (counts[1] or 1), nodes.where)


def _with_model(recipe: Node, keys: dict[str, Written]) -> dict[str, Written]:
    """The model by the id of its repository, else by the path or the name under which it is served."""
    repository, path = recipe.said("identity", "model", "repo"), recipe.said("model", "path")
    served = keys.get("served_model_name")
    is_id = path is not None and "/" in str(path.value) and not str(path.value).startswith(("/", "."))
    model = repository or (path if is_id else None) or served or path
    found = {name: written for name, written in keys.items() if name not in ("model_path", "model")}
    if model is not None:
        found["model"] = model
    precision = recipe.said("model", "precision")
    if precision is not None:
        found["precision"] = precision
    return found


# Charts and resources of vLLM's production stack: `servingEngineSpec.modelSpec` of values files, and VLLMRuntime.
#
# Keys and what the chart passes on: vllm-project/production-stack, helm/values.yaml and
# helm/templates/deployment-vllm-multi.yaml. With `vllmConfig`, the chart turns prefix caching off unless it is asked
# for.

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_PRODUCTION_STACK_ROLES = {"kv_producer": PREFILL, "kv_consumer": DECODE}
_PRODUCTION_STACK_OWN = ("extraArgs", "env", "modelURL", "enableLoRA", "enableTool", "hfTokenSecret")


def read_production_stack(node: Node, given: Mapping[str, str]) -> Services:
    """The models that a values file deploys, or the one of a VLLMRuntime."""
    if node.text("kind") == "VLLMRuntime":
        return _runtime(node)
    specs = node.get("servingEngineSpec", "modelSpec")
    if specs is None:
        return NO_SERVICES
    each = [spec for spec in specs.each() if isinstance(spec.value, dict) and spec.value.get("enabled") is not False]
    return Services(tuple(_service(spec) for spec in each if spec.said("modelURL")))


def _service(spec: Node) -> Service:
    keys: dict[str, Written] = {}
    config = spec.get("vllmConfig")
    extra = config.get("extraArgs") if config is not None else None
    if extra is not None:
        keys |= listed_arguments(extra.words())
    keys = _settings(config) | keys
    if config is not None and "enable_prefix_caching" not in keys:
        keys["chart.no_prefix_caching"] = Written(True, config.where)
    for name, to in (("modelURL", "model"), ("enableLoRA", "enable_lora")):
        said = spec.said(name)
        if said is not None:
            keys.setdefault(to, said)
    keys |= _surrounding(spec)
    image = spec.said("tag")
    repository = spec.text("repository")
    return Service(
        VLLM,
        keys,
        spec.where,
        name=spec.text("name"),
        replicas=spec.said("replicaCount"),
        gpus=_production_stack_gpus(spec),
        gpu=_gpu(spec),
        image=Written(f"{repository}:{image.value}", image.where) if image else None,
        role=_PRODUCTION_STACK_ROLES.get(spec.text("lmcacheConfig", "kvRole"), ""),
    )


def _settings(config: Node | None) -> dict[str, Written]:
    """The keys of `vllmConfig` by the names of vLLM's arguments."""
    if config is None:
        return {}
    plain = (each for each in config.each() if each.path[-1] not in _PRODUCTION_STACK_OWN)
    found = [each for each in plain if not isinstance(each.value, dict | list)]
    return {_CAPITAL.sub(lambda word: f"_{word[1].lower()}", str(each.path[-1])): each.written for each in found}


def _surrounding(spec: Node) -> dict[str, Written]:
    """Keys around vLLM's own that may change memory or time, by the chart's names."""
    cache = spec.get("lmcacheConfig")
    found = dict(cache.keys("lmcacheConfig")) if cache is not None else {}
    for name in ("requestGPUMem", "requestGPUMemPercentage", "requestGPUCores", "limitGPUMem", "limitGPUMemPercentage",
                 "limitGPUCores", "keda", "requestGPUType", "raySpec"):  # fmt: skip
        part = spec.get(name)
        found |= part.keys(name) if part is not None else {}
    gpus = spec.said("requestGPU")
    if gpus is not None and not str(gpus.value).isdigit():
        found["requestGPU"] = gpus
    return found


def _production_stack_gpus(spec: Node) -> Written | None:
    stated = spec.said("requestGPU")
    limits = spec.get("resources", "limits") or spec.get("resources", "requests")
    of_limits = next((each.written for each in limits.each() if "gpu" in str(each.path[-1])), None) if limits else None
    return stated or of_limits


def _gpu(spec: Node) -> Written | None:
    """The product that node selectors name."""
    return gpu_of_selectors(spec)


def _runtime(node: Node) -> Services:
    spec = node.get("spec")
    model = spec.said("model", "modelURL") if spec is not None else None
    if spec is None or model is None:
        return NO_SERVICES
    keys = {**_settings(spec.get("model")), **_settings(spec.get("vllmConfig")), "model": model}
    adapters = spec.said("model", "enableLoRA")
    keys |= {"enable_lora": adapters} if adapters is not None else {}
    extra = spec.get("vllmConfig", "extraArgs")
    if extra is not None:
        keys |= listed_arguments(extra.words())
    cache = spec.get("lmCacheConfig")
    if cache is not None:
        keys |= cache.keys("lmcacheConfig")
    service = Service(
        VLLM,
        keys,
        spec.where,
        name=node.text("metadata", "name"),
        replicas=spec.said("deploymentConfig", "replicas"),
        gpus=spec.said("deploymentConfig", "resources", "gpu"),
        gpu=gpu_of_selectors(spec),
        image=spec.said("deploymentConfig", "image", "name"),
    )
    return Services((service,))


# Scripts of InferenceX: what their file names say, and those that submit disaggregated services by variables alone.
#
# Names and variables: SemiAnalysisAI/InferenceX, configs/*-master.yaml and benchmarks/multi_node.

_MODELS: Mapping[str, str] = {
    "dsr1": "deepseek-ai/DeepSeek-R1-0528", "dsv4": "deepseek-ai/DeepSeek-V4-Pro", "glm5": "zai-org/GLM-5",
    "glm5.1": "zai-org/GLM-5.1", "glm5.2": "zai-org/GLM-5.2", "glm52": "zai-org/GLM-5.2",
    "gptoss": "openai/gpt-oss-120b", "kimik2.5": "moonshotai/Kimi-K2.5", "kimik2.6": "moonshotai/Kimi-K2.6",
    "kimik3": "moonshotai/Kimi-K3", "minimaxm2.5": "MiniMaxAI/MiniMax-M2.5", "minimaxm3": "MiniMaxAI/MiniMax-M3",
    "qwen3.5": "Qwen/Qwen3.5-397B-A17B",
}  # fmt: skip
_NAMED = re.compile(rf"(?:.*[^a-z0-9])?({'|'.join(map(re.escape, _MODELS))})_(fp4|fp8|bf16|int4)_(?:.*)\.sh")
_AMD = re.compile(r"_mi\d")
_INFERENCEX_ENGINES = ((re.compile(r"trt"), TENSORRT_LLM), (re.compile(r"sglang"), SGLANG), (re.compile(r"atom"), ATOM),
            (re.compile(r"vllm"), VLLM))  # fmt: skip
_CHECK = "check_env_vars"
_INFERENCEX_ROLES = (("PREFILL", PREFILL), ("DECODE", DECODE))
_OF_ROLE: Mapping[str, str] = {
    "TP": "tensor_parallel_size", "MAX_BATCH_SIZE": "max_batch_size", "MAX_NUM_TOKENS": "max_num_tokens",
    "GPU_MEM_FRACTION": "kv_cache_config.free_gpu_memory_fraction", "MTP_SIZE": "speculative_config.max_draft_len",
}  # fmt: skip
_LOAD = {"ISL": "isl", "OSL": "osl", "CONC_LIST": "concurrencies", "CONC": "concurrencies"}
_SERVED = ("MODEL", "SERVED_MODEL_NAME", "MODEL_NAME", "MODEL_PATH")


def named_by(file: str) -> tuple[str, str] | None:
    """The model and the number format that a script's name says: `dsr1_fp4_b300.sh`; None for any other name."""
    found = _NAMED.fullmatch(file.lower())
    if found is None:
        return None
    amd = found[2] == "fp4" and _AMD.search(file.lower())
    return _MODELS[found[1]], "mxfp4" if amd else found[2]


def submitted(source: Source) -> Services:
    """The service that a script submits whose sizes are all variables that it is given."""
    commands = source.script.commands if source.script is not None else ()
    checked = next((each for each in commands if each.words[0].text == _CHECK), None)
    names = [word.text for word in checked.words[1:]] if checked is not None else []
    engine = next((each for pattern, each in _INFERENCEX_ENGINES if pattern.search(source.path.name.lower())), None)
    if checked is None or engine is None or "PREFILL_TP" not in names or "DECODE_TP" not in names:
        return NO_SERVICES
    values = {word.text: _value(source, word) for word in checked.words[1:]}
    services = tuple(_inferencex_services(values, checked, engine))
    load = {f"benchmark.{to}": values[name] for name, to in _LOAD.items() if name in values}
    return Services(services, load)


def _value(source: Source, word: Word) -> Written:
    """A variable as it is passed, or as the script sets it."""
    name = word.text
    found = source.given.get(name)
    own = source.script.variables.get(name) if source.script is not None else None
    if found is None and own is not None and not isinstance(own, tuple) and not own.unknown:
        return Written(own.text, own.where)
    return Written(not_set(f"${name}", [name]) if found is None else found, word.where)


def _inferencex_services(values: Mapping[str, Written], checked: Command, engine: str) -> Iterator[Service]:
    named = [values[name] for name in _SERVED if name in values]
    model = next((each for each in named if not isinstance(each.value, Unread)), None)
    unset = next(iter(named), None)
    for prefix, role in _INFERENCEX_ROLES:
        keys = {to: values[f"{prefix}_{name}"] for name, to in _OF_ROLE.items() if f"{prefix}_{name}" in values}
        if model is not None or unset is not None:
            keys["model"] = model or unset or Written(None, checked.where)
        keys |= _parallel(values, prefix, engine)
        workers = values.get(f"{prefix}_NUM_WORKERS")
        yield Service(engine, keys, checked.where, name=role, replicas=workers, role=role)


def _parallel(values: Mapping[str, Written], prefix: str, engine: str) -> dict[str, Written]:
    """Attention groups and expert parallelism by the arguments of the engine."""
    ranks, experts, groups = (values.get(f"{prefix}_{name}") for name in ("TP", "EP", "DP_ATTN"))
    found: dict[str, Written] = {}
    if experts is not None and engine in (VLLM, ATOM):
        on = experts.value if isinstance(experts.value, Unread) else str(experts.value) not in ("0", "1")
        found["enable_expert_parallel"] = Written(on, experts.where)
    elif experts is not None:
        found["ep_size"] = experts
    if groups is None or ranks is None:
        return found
    on = not isinstance(groups.value, Unread) and is_on(groups.value)
    if engine == TENSORRT_LLM:
        found["enable_attention_dp"] = groups
    elif on and engine == VLLM:
        found |= {"data_parallel_size": ranks, "tensor_parallel_size": Written(1, groups.where)}
    elif engine in (SGLANG, ATOM):
        found["enable_dp_attention"] = groups
        found |= {"dp_size": ranks} if on and engine == SGLANG else {}
    return found
