"""Writes model_profiles/*.yaml from Hugging Face configurations: python scripts/models_from_configs.py FOLDER

FOLDER holds PROFILE/config.json for profiles of the table below, as published, or with the shape that the source
states. Each shape is counted twice, here and by the reference implementation on PyTorch's meta device (extra
`[trace]`), and must agree to the parameter; where transformers has no class for the text model alone, with what its
makers state. Profiles without a file in FOLDER stay as they are.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, NamedTuple

from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.huggingface import model_from_config
from xe_sizer.profiles.model import load_model_profile
from xe_sizer.profiles.write import profile_of, write

TARGET = Path(__file__).resolve().parent.parent / "model_profiles"
READ_ON = "2026-11-27"
AUTOMODEL = "NVIDIA-NeMo/Automodel nemo_automodel/components/models (configuration class)"
AICONFIGURATOR = "ai-dynamo/aiconfigurator@095f58a model_configs (packaged HF config.json)"
LITGPT = "Lightning-AI/litgpt@2685705 litgpt/config.py"
OLMO_3 = "Olmo 3 (arXiv:2512.13961), table of models; marin-community/marin experiments/qwen3.py (32B)"
SEED_OSS = "ByteDance-Seed/seed-oss README.md (layers, heads, head size, hidden size, vocabulary)"
SLIME = "THUDM/slime@624b824 scripts/models/*.sh"
TRANSFORMERS = "transformers 5.23 configuration class, whose defaults are this model's"
TRANSFORMERS_24 = "transformers 5.24 configuration class, whose defaults are this model's"
FEW_BITS = (
    "Experts are published in FP4, most other weights in FP8. One layer for multi-token prediction is not counted."
)
MINISTRAL = "NVIDIA-NeMo/Megatron-Bridge docs/models/vlm/ministral3.md (layers, hidden size, heads, 256k context)"
TEXT_ONLY = "Text model only; the vision tower is not counted."
INFERRED = "Widths that the source leaves out are inferred; they reproduce the published {}."
COHERE = "docs.cohere.com/docs/command-a-plus (size); shape as in a public implementation's tests, which reproduces it"
CARD = "model card (size), which these widths reproduce"
LING = "inclusionAI/Ling-V2 README.md; NVIDIA-NeMo/Automodel docs/model-coverage/llm/inclusionai/ling-2.mdx"
FALCON_H1 = (
    "transformers docs/source/en/model_doc/falcon_h1.md (table of sizes); "
    "NVIDIA-NeMo/Megatron-Bridge tests of its bridge (config.json of the 0.5B)"
)
ZAMBA_2 = "arXiv:2411.15242; transformers 5.24 Zamba2Config; model card (size), which these widths reproduce"
TURNS = "A layer with a shared block is described as three: its attention, its MLP, and its Mamba-2."
SMALL_GEMMA_4 = "rasbt/LLMs-from-scratch@df1fcf8 ch05/17_gemma4/standalone-gemma4.ipynb (configuration)"
BORROWED = f"{TEXT_ONLY} Published files also have the unused keys and values of layers that borrow those of others."
XIELU = "Its xIELU is priced as relu2; the two values of each are not counted."


class Origin(NamedTuple):
    """What a configuration does not say about its model.

    checkpoint : number format of the published weights where that is not 16 bit
    besides : parameters of the reference implementation that the shape leaves out, as `notes` say
    published : the count that its makers state, where there is no reference implementation of the text model
    """

    family: str
    released: str | None
    repository: str
    title: str
    notes: str | None = None
    besides: int = 0
    checkpoint: str | None = None
    published: str | None = None


MODELS = {
    "falcon3-1b": Origin("falcon3", "2024-12", "tiiuae/Falcon3-1B-Base", LITGPT),
    "falcon3-3b": Origin("falcon3", "2024-12", "tiiuae/Falcon3-3B-Base", LITGPT),
    "falcon3-7b": Origin("falcon3", "2024-12", "tiiuae/Falcon3-7B-Base", LITGPT),
    "falcon3-10b": Origin("falcon3", "2024-12", "tiiuae/Falcon3-10B-Base", LITGPT),
    "gemma-4-26b-a4b": Origin(
        "gemma-4", "2026-04", "google/gemma-4-26B-A4B", AICONFIGURATOR,
        f"{TEXT_ONLY} Every layer has a dense MLP beside its experts, described as a shared expert.",
    ),
    "gemma-4-31b": Origin("gemma-4", "2026-04", "google/gemma-4-31B", AICONFIGURATOR, TEXT_ONLY),
    "mimo-7b": Origin(
        "mimo", "2025-04", "XiaomiMiMo/MiMo-7B-Base", AICONFIGURATOR,
        "One module for multi-token prediction is not counted.",
    ),
    "ministral-3-3b": Origin(
        "ministral-3", "2025-12", "mistralai/Ministral-3-3B-Base-2512", MINISTRAL,
        f"{TEXT_ONLY} {INFERRED.format('3.4B')}",
    ),
    "ministral-3-8b": Origin("ministral-3", "2025-12", "mistralai/Ministral-3-8B-Base-2512", TRANSFORMERS, TEXT_ONLY),
    "ministral-3-14b": Origin(
        "ministral-3", "2025-12", "mistralai/Ministral-3-14B-Base-2512", MINISTRAL,
        f"{TEXT_ONLY} {INFERRED.format('13.5B')}",
    ),
    "ministral-8b-2410": Origin(
        "ministral", "2024-10", "mistralai/Ministral-8B-Instruct-2410",
        "model card of mistralai/Ministral-8B-Instruct-2410, which counts 8,019,808,256 parameters",
        "Windows of 32k on three of four layers are left out, as in the published configuration.",
    ),
    "olmo-3-7b": Origin("olmo-3", "2025-11", "allenai/Olmo-3-1025-7B", OLMO_3),
    "olmo-3-32b": Origin("olmo-3", "2025-11", "allenai/Olmo-3-1125-32B", OLMO_3),
    "seed-oss-36b": Origin(
        "seed-oss", "2025-08", "ByteDance-Seed/Seed-OSS-36B-Base", SEED_OSS, INFERRED.format("36B")
    ),
    "moonlight-16b-a3b": Origin("moonlight", "2025-02", "moonshotai/Moonlight-16B-A3B", SLIME),
    "qwen3.5-0.8b": Origin("qwen3.5", "2026-03", "Qwen/Qwen3.5-0.8B", SLIME, TEXT_ONLY),
    "qwen3.5-2b": Origin(
        "qwen3.5", "2026-03", "Qwen/Qwen3.5-2B", "hidden size as published",
        f"{TEXT_ONLY} Other widths are inferred from the 0.8B; they reproduce the size of the 4-bit file, 1.28 GB.",
    ),
    "qwen3.5-4b": Origin("qwen3.5", "2026-03", "Qwen/Qwen3.5-4B", SLIME, TEXT_ONLY),
    "qwen3.5-9b": Origin("qwen3.5", "2026-03", "Qwen/Qwen3.5-9B", f"{SLIME}; {TRANSFORMERS}", TEXT_ONLY),
    "smollm2-135m": Origin("smollm2", "2024-11", "HuggingFaceTB/SmolLM2-135M", LITGPT),
    "smollm2-360m": Origin("smollm2", "2024-11", "HuggingFaceTB/SmolLM2-360M", LITGPT),
    "smollm2-1.7b": Origin("smollm2", "2024-11", "HuggingFaceTB/SmolLM2-1.7B", LITGPT),
    "afm-4.5b": Origin("arcee", "2025-07", "arcee-ai/AFM-4.5B", CARD),
    "apertus-8b": Origin("apertus", "2025-09", "swiss-ai/Apertus-8B-2509", CARD, XIELU, besides=64),
    "apertus-70b": Origin("apertus", "2025-09", "swiss-ai/Apertus-70B-2509", CARD, XIELU, besides=160),
    "command-a-111b": Origin("command-r", "2025-03", "CohereLabs/c4ai-command-a-03-2025", CARD),
    "command-r7b": Origin("command-r", "2024-12", "CohereLabs/c4ai-command-r7b-12-2024", CARD),
    "deepseek-moe-16b": Origin(
        "deepseek", "2024-01", "deepseek-ai/deepseek-moe-16b-base", "arXiv:2401.06066",
        published="the published 16.4B",
    ),
    "devstral-2-123b": Origin("mistral", "2025-12", "mistralai/Devstral-2-123B-Instruct-2512", CARD, checkpoint="fp8"),
    "ernie-4.5-300b-a47b": Origin(
        "ernie-4.5", "2025-06", "baidu/ERNIE-4.5-300B-A47B-PT", CARD,
        "One module for multi-token prediction is not counted.",
    ),
    "eurollm-1.7b": Origin("eurollm", "2024-08", "utter-project/EuroLLM-1.7B", "arXiv:2409.16235"),
    "eurollm-9b": Origin("eurollm", "2024-12", "utter-project/EuroLLM-9B", "arXiv:2506.04079"),
    "exaone-4.0-1.2b": Origin("exaone-4", "2025-07", "LGAI-EXAONE/EXAONE-4.0-1.2B", CARD),
    "exaone-4.0-32b": Origin("exaone-4", "2025-07", "LGAI-EXAONE/EXAONE-4.0-32B", CARD),
    "gemma-3-270m": Origin("gemma-3", "2025-08", "google/gemma-3-270m", CARD),
    "hunyuan-a13b": Origin("hunyuan", "2025-06", "tencent/Hunyuan-A13B-Instruct", CARD),
    "hy3-295b-a21b": Origin(
        "hunyuan", "2026-04", "tencent/Hy3", f"{TRANSFORMERS}; {AUTOMODEL}",
        "The layer for multi-token prediction, 3.8B, is not counted.",
    ),
    "laguna-xs.2": Origin(
        "laguna", "2026-04", "poolside/Laguna-XS.2",
        "config.json of Laguna XS 2.1, of the same shape, as public tests of engines quote it", besides=4925184,
    ),
    "ling-mini-2.0": Origin(
        "ling-2", "2025-09", "inclusionAI/Ling-mini-2.0", AUTOMODEL, published="the published 16.26B"
    ),
    "ling-flash-2.0": Origin("ling-2", "2025-09", "inclusionAI/Ling-flash-2.0", LING, published="the published 103B"),
    "ling-1t": Origin("ling-2", "2025-10", "inclusionAI/Ling-1T", LING, published="the published 1T"),
    "mimo-v2-flash": Origin(
        "mimo-v2", "2025-12", "XiaomiMiMo/MiMo-V2-Flash", AICONFIGURATOR,
        "Keys of 192 and values of 128 elements are described as two of 160. All layers have sinks, in the reference "
        "those with a window.", besides=-576, checkpoint="fp8-block",
    ),
    "minimax-m3": Origin(
        "minimax-m3", "2026-06", "MiniMaxAI/MiniMax-M3", AICONFIGURATOR,
        f"{TEXT_ONLY} The indexer of sparse attention is left out: all layers attend to all tokens.",
    ),
    "mistral-large-3-675b": Origin(
        "mistral-large-3", "2025-12", "mistralai/Mistral-Large-3-675B-Instruct-2512", CARD,
        f"{TEXT_ONLY} Its layers are those of DeepSeek-V3.", checkpoint="fp8",
    ),
    "mistral-small-4-119b": Origin(
        "mistral-small-4", "2026-03", "mistralai/Mistral-Small-4-119B-2603", TRANSFORMERS, TEXT_ONLY, checkpoint="fp8",
        published="the published 119B, 6.5B active",
    ),
    "muse-glimmer-30b": Origin(
        "muse", "2026-07", "meta-models/Muse-Glimmer-30B", TRANSFORMERS, TEXT_ONLY,
        published="the published 29.6B, of which 1.8B are the vision encoder",
    ),
    "nemotron-mini-4b": Origin("nemotron", "2024-09", "nvidia/Nemotron-Mini-4B-Instruct", CARD),
    "olmo-2-1b": Origin("olmo-2", "2025-04", "allenai/OLMo-2-0425-1B", CARD),
    "phi-3-mini-128k": Origin("phi-3", "2024-04", "microsoft/Phi-3-mini-128k-instruct", CARD),
    "phi-3-medium-128k": Origin("phi-3", "2024-05", "microsoft/Phi-3-medium-128k-instruct", CARD),
    "qwen2-57b-a14b": Origin("qwen2", "2024-06", "Qwen/Qwen2-57B-A14B", "arXiv:2407.10671"),
    "seed-coder-8b": Origin("seed-coder", "2025-05", "ByteDance-Seed/Seed-Coder-8B-Base", CARD),
    "stablelm-2-1.6b": Origin("stablelm-2", "2024-01", "stabilityai/stablelm-2-1_6b", "arXiv:2402.17834"),
    "stablelm-3b-4e1t": Origin("stablelm", "2023-09", "stabilityai/stablelm-3b-4e1t", CARD),
    "step-3.5-flash": Origin(
        "step-3.5", "2026-02", "stepfun-ai/Step-3.5-Flash", f"{AICONFIGURATOR}; {AUTOMODEL}",
        "Layers with a window have 96 heads, here as many as the others; three layers for multi-token "
        "prediction are not counted.", published="the published 196B, 11B active",
    ),
    "trinity-mini": Origin("trinity", "2025-12", "arcee-ai/Trinity-Mini", CARD),
    "trinity-large": Origin("trinity", "2026-01", "arcee-ai/Trinity-Large-Preview", CARD),
    "xgen-7b-8k": Origin("xgen", "2023-06", "Salesforce/xgen-7b-8k-base", "arXiv:2309.03450"),
    "smollm3-3b": Origin("smollm3", "2025-07", "HuggingFaceTB/SmolLM3-3B", TRANSFORMERS),
    "deepseek-v4-flash": Origin(
        "deepseek-v4", "2026-04", "deepseek-ai/DeepSeek-V4-Flash", AICONFIGURATOR, FEW_BITS, checkpoint="mxfp4"
    ),
    "deepseek-v4-pro": Origin(
        "deepseek-v4", "2026-04", "deepseek-ai/DeepSeek-V4-Pro", AICONFIGURATOR, FEW_BITS, checkpoint="mxfp4"
    ),
    "kimi-k3": Origin(
        "kimi-k3", "2026-07", "moonshotai/Kimi-K3",
        f"{AICONFIGURATOR}; NVIDIA-NeMo/Automodel nemo_automodel/components/models/kimi_k3/model.py",
        f"{TEXT_ONLY} Attention residuals and the norm of latent experts are left out; its SiTU is priced as SwiGLU.",
        checkpoint="mxfp4", published="the published 2.8T, 104B active",
    ),
    "kimi-linear-48b-a3b": Origin(
        "kimi-linear", "2025-10", "moonshotai/Kimi-Linear-48B-A3B-Instruct", TRANSFORMERS_24
    ),
    "glm-5.3-flash": Origin(
        "glm-5.3", None, "zai-org/GLM-5.3-Flash", TRANSFORMERS_24,
        f"{TEXT_ONLY} The indexer scores every token, in the reference pools of 16.",
        published="those of transformers.Glm5NextTextModel and a head, within 0.002 %",
    ),
    "ling-3.0-flash": Origin(
        "ling-3", None, "inclusionAI/Ling-3.0-Flash", TRANSFORMERS_24,
        "Gates of the heads of latent attention are not counted.", besides=573440,
    ),
    "mistral-large-4-1t": Origin(
        "mistral-large-4", None, "mistralai/Mistral-Large-4-1T-A52B", TRANSFORMERS_24,
        f"{TEXT_ONLY} Scales and norms of the indexer's queries are left out.",
        published="those of transformers.MistralLarge4TextModel and a head, within 0.003 %",
    ),
    "sarvam-30b": Origin("sarvam", None, "sarvamai/sarvam-30b", TRANSFORMERS_24),
    "sarvam-105b": Origin("sarvam", None, "sarvamai/sarvam-105b", TRANSFORMERS_24),
    "solar-open-100b": Origin("solar-open", None, "upstage/Solar-Open-100B", TRANSFORMERS_24),
    "mellum2-12b-a2.5b": Origin("mellum2", None, "JetBrains/Mellum2-12B-A2.5B-Base", TRANSFORMERS_24),
    "granite-swash-2b": Origin("granite-swash", None, "ibm-granite/granite-swash-2b", TRANSFORMERS_24),
    "a.x-k1": Origin(
        "a.x", None, "skt/A.X-K1", TRANSFORMERS_24, "Norms behind the experts are not counted.", besides=430080
    ),
    "youtu-llm-2b": Origin("youtu", None, "tencent/Youtu-LLM-2B", TRANSFORMERS_24),
    "iquest-coder-v1-40b": Origin("iquest-coder", None, "IQuestLab/IQuest-Coder-V1-40B-Instruct", TRANSFORMERS_24),
    "command-a-plus-218b": Origin(
        "command-r", "2026-05", "CohereLabs/command-a-plus-05-2026-bf16", COHERE, TEXT_ONLY,
        published="the published 218B, 25B active",
    ),
    "muse-spark-816b-a42b": Origin(
        "muse", None, "meta-models/Muse-Spark-Open-816B-A42B", TRANSFORMERS_24,
        f"{TEXT_ONLY} Some norms have no weights, and gates of the residuals are left out.",
        published="those of transformers.MuseSparkTextModel and a head, within 0.001 %",
    ),
    "falcon-h1-0.5b": Origin("falcon-h1", "2025-05", "tiiuae/Falcon-H1-0.5B-Base", FALCON_H1),
    "falcon-h1-7b": Origin("falcon-h1", "2025-05", "tiiuae/Falcon-H1-7B-Base", FALCON_H1, INFERRED.format("7.59B")),
    "falcon-h1-34b": Origin("falcon-h1", "2025-05", "tiiuae/Falcon-H1-34B-Base", FALCON_H1, INFERRED.format("33.6B")),
    "falcon-mamba-7b": Origin(
        "falcon-mamba", "2024-08", "tiiuae/falcon-mamba-7b", "arXiv:2410.05355 (layers, widths, state, vocabulary)",
        "Norms without weights on step size, input and output are left out.",
    ),
    "codestral-mamba-7b": Origin("mamba2", "2024-07", "mistralai/Mamba-Codestral-7B-v0.1", TRANSFORMERS_24),
    "minimax-text-01": Origin(
        "minimax-01", "2025-01", "MiniMaxAI/MiniMax-Text-01", "arXiv:2501.08313 (456B, 45.9B active without embeddings)"
    ),
    "zamba2-1.2b": Origin("zamba2", "2024-10", "Zyphra/Zamba2-1.2B", ZAMBA_2, TURNS),
    "zamba2-7b": Origin("zamba2", "2024-10", "Zyphra/Zamba2-7B", ZAMBA_2, TURNS),
    "gemma-4-e2b": Origin("gemma-4", "2026-04", "google/gemma-4-E2B", SMALL_GEMMA_4, BORROWED),
    "gemma-4-e4b": Origin("gemma-4", "2026-04", "google/gemma-4-E4B", SMALL_GEMMA_4, BORROWED),
    "embeddinggemma-300m": Origin(
        "gemma-3", "2025-09", "google/embeddinggemma-300m", CARD,
        "Two products behind the pooled state, 4.7M parameters, are not counted.",
    ),
    "all-mpnet-base-v2": Origin(
        "mpnet", "2021-08", "sentence-transformers/all-mpnet-base-v2", f"{TRANSFORMERS_24}, but for two positions"
    ),
    "gte-multilingual-base": Origin(
        "gte", "2024-07", "Alibaba-NLP/gte-multilingual-base", TRANSFORMERS_24,
        "Biases of the MLP's second product are not counted.", besides=9216,
    ),
    "jina-embeddings-v3": Origin(
        "jina-embeddings", "2024-09", "jinaai/jina-embeddings-v3", TRANSFORMERS_24,
        "Adapters for its tasks are not counted.",
    ),
    "eurobert-210m": Origin("eurobert", "2025-03", "EuroBERT/EuroBERT-210m", TRANSFORMERS_24),
    "jais-2-8b": Origin("jais-2", None, "inceptionai/Jais-2-8B-Chat", TRANSFORMERS_24),
}  # fmt: skip

# Models whose text part has the shape of another: by their configurations, or as their makers say.
SAME_SHAPE = {
    "c4ai-command-a-03-2025": "command-a-111b",
    "c4ai-command-r7b-12-2024": "command-r7b",
    "cogito-v1-preview-llama-3b": "llama-3.2-3b",
    "cogito-v1-preview-llama-70b": "llama-3.1-70b",
    "cogito-v1-preview-llama-8b": "llama-3.1-8b",
    "cogito-v1-preview-qwen-14b": "qwen2.5-14b",
    "cogito-v1-preview-qwen-32b": "qwen2.5-32b",
    "command-a": "command-a-111b",
    "command-a-plus": "command-a-plus-218b",
    "deepcoder-1.5b-preview": "qwen2.5-1.5b",
    "deepcoder-14b-preview": "qwen2.5-14b",
    "deepscaler-1.5b-preview": "qwen2.5-1.5b",
    "deepseek-math-v2": "deepseek-v3.2",
    "deepseek-r1-0528-nvfp4-v2": "deepseek-r1",
    "deepseek-v3.2-speciale": "deepseek-v3.2",
    "deepseek-v4-flash-0731": "deepseek-v4-flash",
    "deepseek-v4-pro-0813": "deepseek-v4-pro",
    "devstral-2": "devstral-2-123b",
    "devstral-small": "mistral-small-24b-2501",
    "devstral-small-2": "mistral-small-24b-2501",
    "devstral-small-2-24b": "mistral-small-24b-2501",
    "devstral-small-2505": "mistral-small-24b-2501",
    "devstral-small-2507": "mistral-small-24b-2501",
    "falcon-h1r-7b": "falcon-h1-7b",
    "dots3-note": "dots3-note-prev",
    "dots3-note-preview": "dots3-note-prev",
    "exaone-4.5": "exaone-4.5-33b",
    "functiongemma-270m": "gemma-3-270m",
    "glm-4.5v": "glm-4.5-air-106b-a12b",
    "glm-4.6": "glm-4.5-355b-a32b",
    "glm-4.6v": "glm-4.5-air-106b-a12b",
    "glm-4.7": "glm-4.5-355b-a32b",
    "glm-5.1": "glm-5",
    "granite-3.1-2b": "granite-3.0-2b",
    "granite-3.1-8b": "granite-3.0-8b",
    "granite-3.2-2b": "granite-3.0-2b",
    "granite-3.2-8b": "granite-3.0-8b",
    "granite-3.3-2b": "granite-3.0-2b",
    "granite-3.3-8b": "granite-3.0-8b",
    "granite-4.1-30b": "granite-4.2-30b",
    "granite-4.1-3b": "granite-4.2-3b",
    "granite-4.1-8b": "granite-4.2-8b",
    "hermes-4-14b": "qwen3-14b",
    "hermes-4-405b": "llama-3.1-405b",
    "hermes-4-70b": "llama-3.1-70b",
    "hermes-4.3-36b": "seed-oss-36b",
    "hunyuan-a13b-80b": "hunyuan-a13b",
    "hy3": "hy3-295b-a21b",
    "hy3-preview": "hy3-295b-a21b",
    "intellect-3": "glm-4.5-air-106b-a12b",
    "k-exaone": "k-exaone-236b-a23b",
    "kimi-k2.6": "kimi-k2.5",
    "kimi-k2.7": "kimi-k2.5",
    "kimi-k2.7-code": "kimi-k2.5",
    "kimi-vl-a3b": "moonlight-16b-a3b",
    "laguna-xs-2.1": "laguna-xs.2",
    "lfm2-1.2b": "lfm2.5-1.2b",
    "magistral-small": "mistral-small-24b-2501",
    "magistral-small-2506": "mistral-small-24b-2501",
    "magistral-small-2507": "mistral-small-24b-2501",
    "minimax-m1-40k": "minimax-text-01",
    "minimax-m1-80k": "minimax-text-01",
    "mellum2": "mellum2-12b-a2.5b",
    "minimax-m2.1": "minimax-m2",
    "minimax-m2.7": "minimax-m2.5",
    "mistral-7b-sft-constitutional-ai": "mistral-7b-v0.1",
    "mistral-large-3": "mistral-large-3-675b",
    "mistral-medium-3.5": "devstral-2-123b",
    "mistral-medium-3.5-128b": "devstral-2-123b",
    "mistral-nemo-12b-instruct-v1": "mistral-nemo-12b",
    "mistral-small-3.2-24b": "mistral-small-24b-2501",
    "mistral-small-4": "mistral-small-4-119b",
    "nemotron-3-nano-omni-30b-a3b": "nemotron-3-nano",
    "nemotron-nano-9b-v2-japanese": "nemotron-nano-9b-v2",
    "multi-qa-mpnet-base-dot-v1": "all-mpnet-base-v2",
    "north-mini-code": "north-mini-code-1.0",
    "olmo-3.1-32b": "olmo-3-32b",
    "olympiccoder-32b": "qwen2.5-32b",
    "olympiccoder-7b": "qwen2.5-7b",
    "open-llama-3b-v2": "open-llama-3b",
    "openreasoning-nemotron-1.5b": "qwen2.5-1.5b",
    "openreasoning-nemotron-14b": "qwen2.5-14b",
    "openreasoning-nemotron-32b": "qwen2.5-32b",
    "openreasoning-nemotron-7b": "qwen2.5-7b",
    "ornith-1.0-9b": "qwen3.5-9b",
    "ornith-1.5-35b": "qwen3.5-35b-a3b",
    "ornith-1.5-35b-a3b": "qwen3.5-35b-a3b",
    "ornith-1.5-9b": "qwen3.5-9b",
    "phi-3-mini-128k-instruct": "phi-3-mini-128k",
    "phi-3.5-mini": "phi-3-mini-128k",
    "qwen3-coder-next": "qwen3-next-80b-a3b",
    "qwen3.6-27b": "qwen3.5-27b",
    "qwen3.6-35b-a3b": "qwen3.5-35b-a3b",
    "qwen3.8-27b": "qwen3.5-27b",
    "qwen3guard-gen-0.6b": "qwen3-0.6b",
    "qwen3guard-gen-4b": "qwen3-4b",
    "qwen3guard-gen-8b": "qwen3-8b",
    "ring-1t": "ling-1t",
    "ring-flash-2.0": "ling-flash-2.0",
    "ring-mini-2.0": "ling-mini-2.0",
    "skywork-or1-32b": "qwen2.5-32b",
    "skywork-or1-7b": "qwen2.5-7b",
    "smollm-1.7b": "smollm2-1.7b",
    "smollm-135m": "smollm2-135m",
    "smollm-360m": "smollm2-360m",
    "snowflake-arctic-embed-m-v2.0": "gte-multilingual-base",
    "solar-open-2": "solar-open2-250b",
    "solar-open2": "solar-open2-250b",
    "stablelm-zephyr-3b": "stablelm-3b-4e1t",
    "starchat2-15b": "starcoder2-15b",
    "step-3.7-flash": "step-3.5-flash",
    "tinyllama-v1.1": "tinyllama-1.1b",
    "translategemma-12b": "gemma-3-12b",
    "translategemma-27b": "gemma-3-27b",
    "translategemma-4b": "gemma-3-4b",
    "trinity-large-preview": "trinity-large",
    "yi-coder-9b": "yi-9b",
    "zephyr-7b-gemma": "gemma-7b",
    "zephyr-sft": "mistral-7b-v0.1",
}


def main(folder: Path) -> None:
    """Write every profile of the table, after its count has been compared, and load it again."""
    there = {name: origin for name, origin in MODELS.items() if (folder / name / "config.json").is_file()}
    for name, origin in there.items():
        config = folder / name / "config.json"
        shape, assumptions = model_from_config(config)
        counted = count_parameters(shape)
        checked = origin.published or _compared(name, config.parent, counted.total + origin.besides)
        if origin.besides:
            checked += ", but for what the notes name"
        source = {"title": origin.title, "parameters": checked, "read_on": READ_ON}
        said: dict[str, Any] = {
            "name": name,
            "family": origin.family,
            "released": origin.released,
            "hugging_face": origin.repository,
        }
        said |= {"checkpoint_format": origin.checkpoint, "notes": origin.notes, "assumed": _beyond(assumptions)}
        write(TARGET, profile_of(shape, **said, source=source))
        load_model_profile(TARGET / f"{name}.yaml")
    _add_names()
    print(f"{len(there)} models, {len(SAME_SHAPE)} names of the same shape")


def _beyond(assumptions: tuple[str, ...]) -> list[str]:
    """What a shape leaves open, but for towers, which the notes of these profiles name."""
    return [each for each in assumptions if "towers" not in each]


def _compared(name: str, folder: Path, counted: int) -> str:
    """What the count was compared with; exits where the two differ."""
    reference, total = _reference(folder)
    if counted != total:
        raise SystemExit(f"{name}: {counted} parameters, {reference} has {total}")
    return f"equal to those of transformers.{reference}"


def _add_names() -> None:
    """The other names, among those that the file has already, in their order."""
    path = TARGET / "aliases.yaml"
    names, repositories = path.read_text(encoding="utf-8").split("\n# Repositories")
    title, *lines = names.strip().splitlines()
    known = {line for line in lines if line} | {f"{name}: {model}" for name, model in SAME_SHAPE.items()}
    path.write_text("\n".join([title, "", *sorted(known), "", f"# Repositories{repositories}"]), encoding="utf-8")


def _reference(folder: Path) -> tuple[str, int]:
    """The class that implements the text model of a configuration in transformers, and its parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder).get_text_config()
        decodes = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        model: Any = (AutoModelForCausalLM if decodes else AutoModelForMaskedLM).from_config(config)
    return type(model).__name__, sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(Path(sys.argv[1]))
