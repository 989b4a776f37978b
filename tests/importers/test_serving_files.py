"""Services of vLLM, SGLang and TensorRT-LLM as scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, as_yaml, read_foreign
from xe_sizer.interop.source import Asked

SCRIPT = """
#!/bin/bash
CONC=${CONC:-32}
vllm serve meta-llama/Llama-3.1-70B-Instruct --trust-remote-code \\
  --tensor-parallel-size 4 --max-model-len 16k --gpu-memory-utilization=0.85 \\
  --kv-cache-dtype fp8 --no-enable-prefix-caching --max-num-batched-tokens 8192 \\
  --enforce-eager --port $PORT > server.log 2>&1 &
vllm bench serve --model x --dataset-name random --random-input-len 2048 --random-output-len 512 \\
  --max-concurrency $CONC --num-prompts $((CONC * 10)) --request-rate inf
"""
SGLANG = """
python3 -m sglang.launch_server --model-path nvidia/DeepSeek-R1-0528-FP4 --tp 8 --dp-size 8 --enable-dp-attention \\
  --ep-size 8 --mem-fraction-static 0.8 --max-running-requests 512 --chunked-prefill-size 32768 \\
  --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 \\
  --speculative-num-draft-tokens 4 --kv-cache-dtype fp8_e4m3 --disable-radix-cache
"""
TENSORRT = """
cat > options.yaml <<EOF
enable_attention_dp: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.8
  enable_block_reuse: false
moe_config:
  backend: CUTLASS
max_batch_size: $BATCH
EOF
mpirun -n 1 trtllm-serve openai/gpt-oss-120b --tp_size=8 --ep_size=8 --max_num_tokens 20000 --config options.yaml
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          env: [{name: MODEL, value: Qwen/Qwen2.5-32B-Instruct}]
          args: ["--model", "$(MODEL)", "--tensor-parallel-size", "2", "--max-num-seqs", "64"]
          resources: {limits: {nvidia.com/gpu: "2"}}
"""
COMPOSE = """
services:
  web: {image: nginx}
  llm:
    image: vllm/vllm-openai:latest
    command: --model mistralai/Mistral-7B-Instruct-v0.3 --max-model-len 8192
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
"""
CHART = """
servingEngineSpec:
  modelSpec:
    - name: small
      repository: vllm/vllm-openai
      tag: v0.8.5
      modelURL: Qwen/Qwen2.5-7B-Instruct
      replicaCount: 2
      requestGPU: 2
      vllmConfig: {tensorParallelSize: 2, maxModelLen: 4096, extraArgs: ["--max-num-seqs=32", "--seed", "1"]}
      lmcacheConfig: {enabled: true, cpuOffloadingBufferSize: "20"}
    - {name: other, repository: vllm/vllm-openai, tag: latest, modelURL: Qwen/Qwen2.5-14B-Instruct, requestGPU: 1}
"""
SLURM = """
name: one-prefill
model: {path: dsr1, container: "lmsysorg/sglang:v0.5.11", precision: fp4}
resources: {gpu_type: gb200, gpus_per_node: 4, prefill_nodes: 2, prefill_workers: 2, decode_nodes: 4, decode_workers: 1}
backend:
  sglang_config:
    prefill: {served-model-name: deepseek-ai/DeepSeek-R1, tensor-parallel-size: 4, data-parallel-size: 4,
              enable-dp-attention: true, disaggregation-mode: prefill, chunked-prefill-size: 65536}
    decode: {served-model-name: deepseek-ai/DeepSeek-R1, tensor-parallel-size: 16, data-parallel-size: 16,
             expert-parallel-size: 16, enable-dp-attention: true, disaggregation-mode: decode, moe-a2a-backend: deepep}
benchmark: {type: sa-bench, isl: 8192, osl: 1024, concurrencies: "64x256", req_rate: inf, num_prompts_mult: 10}
"""
RECIPE = """
meta: {title: A, slug: a-model}
model: {model_id: openai/gpt-oss-20b, min_vllm_version: "0.10.0", base_args: ["--async-scheduling"]}
features: {spec: {args: ["--speculative-config", '{"method":"mtp","num_speculative_tokens":2}']}}
opt_in_features: [spec]
variants: {default: {precision: mxfp4}, fp8: {model_id: org/gpt-oss-20b-FP8, precision: fp8}}
compatible_strategies: [single_node_tp]
"""
COOKBOOK = """
vendor: zai-org
families:
- name: GLM
  models:
  - name: GLM-4.6
    model_path: zai-org/GLM-4.6
    hardware:
      H200:
        configurations:
        - {name: default, attributes: {quantization: bf16}, engine: {tp: 8, extra_args: []}}
        - {name: dp, engine: {tp: 8, dp: 8, enable_dp_attention: true, extra_args: []}}
      B200:
        configurations:
        - {name: default, attributes: {quantization: bf16}, engine: {tp: 4, extra_args: [--kv-cache-dtype, fp8_e4m3]}}
"""


def read(folder: Path, name: str, text: str, **given: str) -> Imported:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_foreign([file], Asked(given=given))


def values(found: Imported, *keys: str) -> list[object]:
    return [found.facts[key].value if key in found.facts else None for key in keys]


def lost(found: Imported) -> set[str]:
    return {each.key for each in found.lost}


def test_a_script_gives_the_service_and_the_load_of_its_benchmark(tmp_path: Path) -> None:
    found = read(tmp_path, "run.sh", SCRIPT)
    assert found.tool.name == "vllm"
    assert values(found, "model", "layout.tp", "gpus", "serve.kv_cache") == [
        "meta-llama/Llama-3.1-70B-Instruct", 4, 4, "fp8",
    ]  # fmt: skip
    assert found.facts["gpus"].origin == "read"
    limits = ("serve.max_model_len", "serve.gpu_memory_utilization", "serve.max_step_tokens", "serve.prefix_hit_share")
    assert values(found, *limits) == [16_000, 0.85, 8192, 0]
    load = ("serve.input_tokens", "serve.output_tokens", "serve.concurrency", "serve.requests", "serve.request_rate")
    assert values(found, *load) == [2048, 512, 32, 320, None]
    assert lost(found) == {"enforce_eager"}
    assert not found.unknown
    assert not found.missing


def test_variables_that_are_passed_count_and_those_that_are_not_are_told(tmp_path: Path) -> None:
    script = "vllm serve $MODEL --tensor-parallel-size $TP --max-model-len $LEN\n"
    found = read(tmp_path, "run.sh", script, MODEL="Qwen/Qwen2.5-7B", TP="2")
    assert values(found, "model", "layout.tp", "gpus", "serve.max_model_len") == ["Qwen/Qwen2.5-7B", 2, 2, None]
    told = {each.key: each.why for each in found.lost}
    assert "--set LEN=VALUE" in told["max_model_len"]
    bare = read(tmp_path, "run.sh", script)
    assert [each.key for each in bare.missing] == ["model"]
    assert "layout.tp" not in bare.facts


def test_attention_groups_of_sglang_share_its_ranks_and_limits(tmp_path: Path) -> None:
    found = read(tmp_path, "launch.sh", SGLANG)
    assert found.tool.name == "sglang"
    assert values(found, "layout.tp", "layout.dp", "layout.ep", "gpus") == [1, 8, 8, 8]
    assert values(found, "serve.max_sequences", "serve.max_step_tokens") == [64, 4096]
    assert values(found, "serve.draft_tokens", "serve.weights") == [3, "nvfp4"]
    assert values(found, "serve.speculative", "serve.acceptance_rate") == ["mtp", None]  # as published of the method


def test_options_of_tensorrt_llm_in_a_here_document_stand_at_their_lines(tmp_path: Path) -> None:
    found = read(tmp_path, "launch.sh", TENSORRT)
    assert found.tool.name == "trtllm"
    assert values(found, "layout.tp", "layout.dp", "layout.ep") == [1, 8, 8]
    assert values(found, "serve.kv_cache", "serve.gpu_memory_utilization", "serve.max_step_tokens") == [
        "fp8", 0.8, 20_000,
    ]  # fmt: skip
    where = found.facts["serve.gpu_memory_utilization"].where
    assert where is not None
    assert where.line == 6
    assert "serve.max_sequences" not in found.facts  # $BATCH is not set, and the default would be wrong
    assert {"moe_config.backend", "max_batch_size"} <= lost(found)
    passed = read(tmp_path, "launch.sh", TENSORRT, BATCH="96")
    assert values(passed, "serve.max_sequences") == [96]


def test_a_deployment_gives_replicas_the_gpu_and_the_release(tmp_path: Path) -> None:
    found = read(tmp_path, "chat.yaml", DEPLOYMENT)
    assert values(found, "model", "gpu", "gpus", "serve.max_sequences") == [
        "Qwen/Qwen2.5-32B-Instruct", "h100-sxm-80gb", 6, 64,
    ]  # fmt: skip
    assert values(found, "serve.gpu_memory_utilization") == [0.9]  # the default until 0.19


def test_a_service_of_compose_is_found_among_others(tmp_path: Path) -> None:
    found = read(tmp_path, "compose.yaml", COMPOSE)
    assert values(found, "model", "gpus", "serve.max_model_len") == ["mistralai/Mistral-7B-Instruct-v0.3", 1, 8192]


def test_values_of_a_chart_and_the_services_that_are_not_read(tmp_path: Path) -> None:
    found = read(tmp_path, "values.yaml", CHART)
    assert values(found, "model", "gpus", "layout.tp", "serve.max_sequences", "serve.kv_host_gib") == [
        "Qwen/Qwen2.5-7B-Instruct", 4, 2, 32, 40,
    ]  # fmt: skip
    assert values(found, "serve.prefix_hit_share") == [0]  # the chart turns the prefix cache off
    assert "service other" in lost(found)
    other = read(tmp_path, "values.yaml", CHART, model="other")
    assert values(other, "model", "gpus") == ["Qwen/Qwen2.5-14B-Instruct", 1]
    assert "# kv_host_gib: 40" in as_yaml(found)


def test_a_recipe_of_srt_slurm_gives_both_roles(tmp_path: Path) -> None:
    found = read(tmp_path, "recipe.yaml", SLURM)
    assert values(found, "model", "serve.weights", "gpu", "gpus") == ["deepseek-ai/DeepSeek-R1", "nvfp4", "gb200", 24]
    assert values(found, "layout.tp", "layout.dp", "layout.ep") == [1, 16, 16]
    roles = ("serve.prefill_replicas", "serve.prefill_tp", "serve.prefill_dp")
    assert values(found, *roles) == [2, 1, 4]
    assert values(found, "serve.concurrency", "serve.requests", "serve.input_tokens") == [64, 640, 8192]
    assert values(found, "serve.max_step_tokens") == [16_384]  # prompts run on the replicas that prefill
    assert values(found, "serve.dispatcher") == ["deepep"]
    document = found.document().value
    assert "requests" not in document["serve"]  # no test is simulated on both roles
    assert values(read(tmp_path, "recipe.yaml", SLURM, concurrency="256"), "serve.concurrency") == [256]


def test_a_recipe_of_vllm_is_split_over_the_gpus_that_are_passed(tmp_path: Path) -> None:
    found = read(tmp_path, "recipe.yaml", RECIPE)
    assert values(found, "model", "serve.weights", "serve.draft_tokens") == ["openai/gpt-oss-20b", "mxfp4", None]
    assert "layout.tp" not in found.facts
    sized = read_foreign([tmp_path / "recipe.yaml"], Asked(hardware={"gpus": 4}))
    assert values(sized, "layout.tp", "gpus") == [4, 4]
    variant = read(tmp_path, "recipe.yaml", RECIPE, variant="fp8")
    assert values(variant, "model", "serve.weights") == ["org/gpt-oss-20b-FP8", "fp8"]


def test_configurations_of_the_cookbook_are_chosen_by_name(tmp_path: Path) -> None:
    found = read(tmp_path, "glm.yaml", COOKBOOK)
    assert values(found, "model", "gpu", "layout.tp", "gpus") == ["zai-org/GLM-4.6", "h200-sxm-141gb", 8, 8]
    groups = read(tmp_path, "glm.yaml", COOKBOOK, configuration="dp")
    assert values(groups, "layout.tp", "layout.dp") == [1, 8]
    other = read(tmp_path, "glm.yaml", COOKBOOK, hardware="B200")
    assert values(other, "gpu", "gpus", "serve.kv_cache") == ["b200", 4, "fp8"]


def test_a_script_of_variables_alone_says_what_it_is_given(tmp_path: Path) -> None:
    script = "check_env_vars PREFILL_TP DECODE_TP PREFILL_NUM_WORKERS DECODE_NUM_WORKERS ISL OSL CONC_LIST MODEL_PATH\n"
    bare = read(tmp_path, "gptoss_fp4_gb200_dynamo-trt.sh", script + "sbatch job.slurm $PREFILL_TP $DECODE_TP\n")
    assert [bare.facts[key].origin for key in ("model", "gpu", "serve.weights")] == ["assumed"] * 3
    assert "gpus" not in bare.facts
    sizes = {"PREFILL_TP": "2", "DECODE_TP": "4", "PREFILL_NUM_WORKERS": "3", "DECODE_NUM_WORKERS": "1"}
    found = read(tmp_path, "gptoss_fp4_gb200_dynamo-trt.sh", script, MODEL_PATH="openai/gpt-oss-20b", **sizes)
    assert values(found, "model", "gpus", "serve.prefill_replicas", "layout.tp") == ["openai/gpt-oss-20b", 10, 3, 4]


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("vllm serve a/b --mamba-ssm-cache-dtype float32", ["float32"]),
        ("vllm serve a/b --mamba_ssm_cache_dtype float16 --mamba-cache-dtype auto", ["float16"]),
        ("vllm serve a/b --mamba-cache-dtype float32", ["float32"]),
        ("vllm serve a/b --mamba-ssm-cache-dtype auto", []),
        ("SGLANG_MAMBA_SSM_DTYPE=bfloat16 python -m sglang.launch_server --model-path a/b", ["bfloat16"]),
        ("python -m sglang.launch_server --model-path a/b --mamba-ssm-dtype bfloat16", ["bfloat16"]),
    ],
)
def test_types_of_recurrent_states_are_read(tmp_path: Path, command: str, kept: list[str]) -> None:
    found = read(tmp_path, "run.sh", command + "\n")
    assert [one.value for key, one in found.facts.items() if key == "serve.state_dtype"] == kept
    assert not lost(found)


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("vllm serve a/b --engram-config '{\"cpu_offload\": false}'", "gpu"),
        ("vllm serve a/b --engram-config.cpu_offload true", "host"),
        ("python -m sglang.launch_server --model-path a/b --ple-offload-embedding", "host"),
        ("python -m sglang.launch_server --model-path a/b --no-ple-offload-embedding", "gpu"),
    ],
)
def test_places_of_tables_of_ngrams_are_read(tmp_path: Path, command: str, place: str) -> None:
    found = read(tmp_path, "run.sh", command + "\n")
    assert values(found, "serve.ngram_tables") == [place]
    assert not lost(found)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve $(touch canary) --tensor-parallel-size `touch canary`\n",
        'vllm serve a/b --speculative-config \'{"num_speculative_tokens": "x"}\' --max-model-len -5\n',
        "vllm serve a/b --tensor-parallel-size 1e400 --gpu-memory-utilization 7\n",
        "trtllm-serve a/b --config ../../../etc/passwd --tp_size many\n",
        "python -m sglang.launch_server --model-path a/b --tp 8 --dp 3 --enable-dp-attention --hicache-size lots\n",
        "vllm serve " + "{" * 5000 + "\n",
    ],
)
def test_hostile_values_are_told_or_refused_and_nothing_is_run(tmp_path: Path, text: str) -> None:
    try:
        found = read(tmp_path, "run.sh", text)
    except InputError:
        found = None
    assert found is None or found.facts["job"].value == "inference"
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "text",
    [
        "kind: Deployment\nspec: {template: {spec: {containers: [{image: vllm/vllm-openai, args: [[1], {a: b}]}]}}}\n",
        "servingEngineSpec: {modelSpec: [1, {modelURL: [x]}, null]}\n",
        "backend: {sglang_config: {decode: [1, 2]}}\nresources: {decode_workers: -1}\n",
        "families: [{models: [{hardware: {H200: 3}}]}]\n",
        "model: {model_id: a/b}\nvariants: []\nfeatures: {x: 1}\n",
    ],
)
def test_manifests_of_another_shape_end_without_a_traceback(tmp_path: Path, text: str) -> None:
    try:
        found = read(tmp_path, "odd.yaml", text)
    except InputError:
        return
    assert found.tool.serving


def test_an_engine_that_a_python_file_makes(tmp_path: Path) -> None:
    text = (
        "from vllm import LLM\nRANKS = 2 * 2\n"
        "llm = LLM(model='Qwen/Qwen2.5-32B-Instruct-AWQ', tensor_parallel_size=RANKS, max_model_len=8192)\n"
    )
    found = read(tmp_path, "serve.py", text)
    assert values(found, "model", "layout.tp", "gpus", "serve.weights", "serve.max_model_len") == [
        "Qwen/Qwen2.5-32B-Instruct-AWQ", 4, 4, "awq", 8192,
    ]  # fmt: skip
    nested = (
        "from tensorrt_llm import LLM\nfrom tensorrt_llm.llmapi import KvCacheConfig as C\n"
        "llm = LLM('meta-llama/Llama-2-7b', kv_cache_config=C(free_gpu_memory_fraction=0.7, dtype='fp8'))\n"
    )
    found = read(tmp_path, "serve.py", nested)
    assert found.tool.name == "trtllm"
    assert values(found, "serve.gpu_memory_utilization", "serve.kv_cache") == [0.7, "fp8"]


def test_a_dockerfile_starts_what_its_last_instructions_say(tmp_path: Path) -> None:
    text = (
        'FROM vllm/vllm-openai:v0.11.0\nENTRYPOINT ["vllm", "serve", "a/b-7b"]\nCMD ["--max-model-len", \\\n "4096"]\n'
    )
    assert values(read(tmp_path, "Dockerfile", text), "model", "serve.max_model_len") == ["a/b-7b", 4096]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"method": "suffix"}', ["suffix", 3, None]),
        ('{"method": "suffix", "num_speculative_tokens": 32}', ["suffix", 3, None]),
        ('{"method": "medusa", "model": "a/b-medusa", "num_speculative_tokens": 4}', ["medusa", 4, None]),
        (
            '{"model": "a/b-speculator.eagle3", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}',
            ["eagle3", 3, 1],
        ),
    ],
)
def test_methods_and_ranks_of_drafts(config: str, expected: list[object], tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        f"vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --speculative-config '{config}'\n",
        encoding="utf-8",
    )
    found = read_foreign([file], Asked())
    assert values(found, "serve.speculative", "serve.draft_tokens", "serve.draft_tp") == expected
    assert not found.unknown


APART = """vllm serve deepseek-ai/DeepSeek-V2-Lite --data-parallel-size 2 --tensor-parallel-size {tp} \\
  --enable-expert-parallel --enable-dbo --max-num-seqs 64 --additional-config '{{"afd": {{"role": "{role}",
  "connector": "P2pNcclAFDConnector", "num_attention_ranks": 4, "num_ffn_ranks": 2}}}}' &
"""


@pytest.mark.parametrize(("first", "tp", "dp"), [("attention", 2, 2), ("ffn", 1, 4)])
def test_experts_on_gpus_of_their_own(first: str, tp: int, dp: int, tmp_path: Path) -> None:
    """vllm-project/afd-plugin, recipe/gpu: a server of each role, of which either may come first."""
    servers = {"attention": APART.format(role="attention", tp=2), "ffn": APART.format(role="ffn", tp=1)}
    text = servers.pop(first) + "".join(servers.values())
    found = read(tmp_path, "run.sh", text)
    assert values(found, "serve.expert_gpus", "serve.micro_batches", "gpus") == [2, 2, 6]
    assert values(found, "layout.tp", "layout.dp", "layout.ep", "serve.two_batch_overlap") == [tp, dp, None, None]
    assert not found.lost
