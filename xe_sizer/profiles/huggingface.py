"""The shape of a model from its Hugging Face `config.json`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import field
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.drafter import DFLASH_STATES, EAGLE3_STATES, EAGLE_STATES
from xe_sizer.graph.model import (
    INDEXERS,
    Experts,
    Generator,
    LatentAttention,
    ModelShape,
    SharedBlocks,
    SparseIndexer,
)
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.huggingface_config import MAX_LAYERS, MINIMAX_SPARSE, QUIRKS, WINDOWED, Config, load_json
from xe_sizer.profiles.huggingface_hybrids import HYBRID_QUIRKS, RECURRENT
from xe_sizer.profiles.huggingface_vision import tower_from
from xe_sizer.profiles.huggingface_weights import checkpoint_format
from xe_sizer.software.speculation import DFLASH, EAGLE, EAGLE3

if TYPE_CHECKING:
    from xe_sizer.graph.model import VisionTower
    from xe_sizer.profiles.huggingface_config import Values

# What each `model_type` of Hugging Face transformers is built of, as data.
#
# A family states how its reference implementation differs from a Llama: which vectors exist, what the class
# assumes when a key is absent, and how its keys are called. Source: the modelling and configuration files of
# transformers, or of the models' own repositories for the families that ship their code.

Flag = bool | tuple[str, bool]
"""Fixed, or the key that decides it and what the class assumes without the key."""
ATTENTION_BIAS = ("attention_bias", False)


class Moe(Immutable, eq=True):
    """Keys of a mixture of experts. `shared` holds the shared width, `shared_count` a number of experts.

    `optional`: the family has models without experts, whose configs do not have the key of their number. `loop`: how
    its classes compute one expert after the other.
    """

    count: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    ffn: str = "moe_intermediate_size"
    or_ffn: tuple[str, ...] = ()
    shared: str | None = None
    shared_count: str | None = None
    shared_gate: bool = False
    first_dense: str | None = None
    every: str | None = None
    biased: bool = False
    optional: bool = False
    loop: str = "modules"


class Family(Immutable, eq=True):
    """One model_type.

    `window`: the layers that look back a window, when the config has no `layer_types`. `recurrent`: some layers have a
    state-space mixer in place of attention. `attends`: some layers have attention, which has heads.
    """

    norm: str = "rmsnorm"
    norms: int = 2
    activation: str = "swiglu"
    position: str = "rope"
    rotary: float = 1.0
    tied: bool = False
    qkv_bias: Flag = False
    output_bias: Flag = False
    mlp_bias: Flag = False
    head_bias: Flag = False
    parallel: bool = False
    qk_norm: str | None = None
    head_dim: int | None = None
    embedding_norm: bool = False
    sinks: bool = False
    wide_norm: bool = False
    held_scores: tuple[str, ...] = ()
    window: str | None = None
    recurrent: bool = False
    attends: bool = True
    moe: Moe | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


_LOCAL = Moe(count="num_local_experts", ffn="intermediate_size")
_DEEPSEEK = Moe(
    count="n_routed_experts",
    shared_count="n_shared_experts",
    first_dense="first_k_dense_replace",
    every="moe_layer_freq",
    optional=True,
)
_BIASED = Family(qkv_bias=ATTENTION_BIAS, output_bias=ATTENTION_BIAS)
_LLAMA = replace(_BIASED, mlp_bias=("mlp_bias", False))
_GEMMA = replace(_BIASED, activation="geglu", tied=True, head_dim=256, wide_norm=True)
_GEMMA_2 = replace(_GEMMA, norms=4, window="alternate", defaults={"sliding_window": 4096})
_GEMMA_3 = replace(
    _GEMMA_2, qk_norm="perhead", window="5-of-6",
    defaults={
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)  # fmt: skip
_GPT = Family(norm="layernorm", activation="gelu", qkv_bias=True, output_bias=True, mlp_bias=True)
_GPT_J = Family(norm="layernorm", norms=1, activation="gelu", mlp_bias=True, head_bias=True, parallel=True)
_GPT_2 = replace(_GPT, position="learned", tied=True)
_ROTARY_QKV_BIAS = Family(qkv_bias=("attention_bias", True), rotary=0.5)
_COHERE = replace(_BIASED, norm="layernorm-nobias", norms=1, tied=True, parallel=True, wide_norm=True)
_FALCON = Family(
    norm="layernorm", activation="gelu", tied=True, qkv_bias=("bias", False), output_bias=("bias", False),
    mlp_bias=("bias", False), held_scores=("unmasked", "returned"), defaults={"max_position_embeddings": 2048},
)  # fmt: skip
_LATENT = replace(_BIASED, moe=_DEEPSEEK)
_STABLE = Family(norm="layernorm", qkv_bias=("use_qkv_bias", False), rotary=0.25)
_QWEN_3 = replace(_BIASED, qk_norm="perhead", head_dim=128, window="upper")
_QWEN_3_MOE = replace(_BIASED, qk_norm="perhead", window="upper", moe=Moe(every="decoder_sparse_step"))
_DELTA_NET = replace(_BIASED, qk_norm="perhead", head_dim=256, rotary=0.25, recurrent=True)
_DELTA_NET_MOE = replace(
    _DELTA_NET, moe=Moe(shared="shared_expert_intermediate_size", shared_gate=True, every="decoder_sparse_step")
)
_GEMMA_4 = replace(_GEMMA_3, defaults={}, moe=Moe(per_token="top_k_experts", shared="intermediate_size", optional=True))
_AFMOE = Family(
    norms=4, qkv_bias=ATTENTION_BIAS, output_bias=ATTENTION_BIAS, qk_norm="perhead", window="3-of-4",
    moe=Moe(shared_count="num_shared_experts", first_dense="num_dense_layers"),
)  # fmt: skip
_KIMI = replace(
    _BIASED, position="none", recurrent=True,
    moe=Moe(
        per_token="num_experts_per_token", shared_count="num_shared_experts", first_dense="first_k_dense_replace",
    ),
)  # fmt: skip
_BAILING = Family(
    qkv_bias=("use_qkv_bias", False), output_bias=("use_bias", False), rotary=0.5,
    moe=Moe(shared_count="num_shared_experts", first_dense="first_k_dense_replace"),
)  # fmt: skip
_ERNIE = Family(qkv_bias=("use_bias", False), output_bias=("use_bias", False), mlp_bias=("use_bias", False))
_HUNYUAN = replace(_BIASED, qk_norm="perhead")
_MINIMAX_3 = Family(
    activation="swiglu-clamped", qk_norm="perhead", wide_norm=True,
    moe=replace(_LOCAL, shared="shared_intermediate_size", first_dense="first_k_dense_replace"),
)  # fmt: skip
_LLAMA_4 = replace(
    _BIASED, window="3-of-4",
    moe=replace(_LOCAL, shared="intermediate_size", every="interleave_moe_layer_step"),
)  # fmt: skip
_APERTUS = replace(_BIASED, activation="relu2", qk_norm="perhead")
_MAMBA = Family(norms=1, position="none", tied=True, recurrent=True, attends=False)
_LFM = replace(_BIASED, tied=True, qk_norm="perhead", recurrent=True)
_INKLING_MOE = Moe(
    count="n_routed_experts", or_ffn=("intermediate_size",), shared_count="n_shared_experts",
    first_dense="dense_mlp_idx",
)  # fmt: skip
_INKLING = Family(position="none", qk_norm="perhead", embedding_norm=True, moe=_INKLING_MOE)
LLAMA_LIKE = replace(_LLAMA, window="all")
FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(window="all"),
    "mixtral": Family(window="all", moe=_LOCAL),
    "qwen": Family(qkv_bias=True, defaults={"kv_channels": 128}),
    "qwen2": Family(qkv_bias=True, window="upper"),
    "qwen2_moe": Family(
        qkv_bias=("qkv_bias", True), window="upper",
        moe=Moe(shared="shared_expert_intermediate_size", shared_gate=True, every="decoder_sparse_step"),
    ),
    "mimo": Family(qkv_bias=ATTENTION_BIAS),
    "qwen3": _QWEN_3,
    "qwen3_vl_text": _QWEN_3,
    "qwen3_moe": _QWEN_3_MOE,
    "qwen3_vl_moe_text": _QWEN_3_MOE,
    "qwen3_next": _DELTA_NET_MOE,
    "qwen3_5_text": _DELTA_NET,
    "qwen3_5_moe_text": _DELTA_NET_MOE,
    "qwen4_exp_text": _DELTA_NET_MOE,
    "smollm3": replace(_LLAMA, tied=True),
    "ministral3": Family(),
    "seed_oss": Family(qkv_bias=("attention_bias", True), output_bias=("attention_out_bias", False)),
    "nemotron_h": Family(
        norms=1, activation="relu2", position="none", recurrent=True, qkv_bias=ATTENTION_BIAS,
        output_bias=ATTENTION_BIAS, mlp_bias=("mlp_bias", False),
        moe=Moe(count="n_routed_experts", shared="moe_shared_expert_intermediate_size", optional=True),
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA_2,
    "gemma3_text": _GEMMA_3,
    "gemma4_text": _GEMMA_4,
    "phi": replace(_GPT, norms=1, head_bias=True, parallel=True, rotary=0.5),
    "phi3": Family(window="all"),
    "phimoe": replace(
        _BIASED, norm="layernorm", head_bias=("lm_head_bias", False), moe=_LOCAL, window="all"
    ),
    "opt": replace(_GPT_2, activation="relu"),
    "gpt2": _GPT_2,
    "gpt_bigcode": _GPT_2,
    "gpt_neo": replace(_GPT_2, qkv_bias=False),
    "gptj": _GPT_J,
    "codegen": _GPT_J,
    "gpt_neox": Family(
        norm="layernorm", activation="gelu", qkv_bias=("attention_bias", True),
        output_bias=("attention_bias", True), mlp_bias=True, parallel=True, rotary=0.25,
    ),
    "starcoder2": Family(
        norm="layernorm", activation="gelu", qkv_bias=("use_bias", True), output_bias=("use_bias", True),
        mlp_bias=("use_bias", True), tied=True, window="all",
    ),
    "bloom": replace(
        _GPT, position="alibi", tied=True, embedding_norm=True, held_scores=("unmasked", "returned"),
        defaults={"seq_length": 2048},
    ),
    "falcon": _FALCON,
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "mpt": Family(
        norm="layernorm-nobias", activation="gelu", position="alibi", tied=True, held_scores=("returned",)
    ),
    "stablelm": _STABLE,
    "stablelm_epoch": _STABLE,
    "olmo": replace(_BIASED, norm="layernorm-nonparam"),
    "olmo2": replace(_BIASED, qk_norm="full", wide_norm=True),
    "olmo3": replace(_BIASED, qk_norm="full", wide_norm=True, window="3-of-4"),
    "olmoe": replace(_BIASED, qk_norm="full", moe=Moe(ffn="intermediate_size")),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, window="3-of-4", defaults={"sliding_window": 4096}),
    "cohere2_moe": replace(
        _COHERE, parallel=False, window="3-of-4", defaults={"sliding_window": 4096},
        moe=Moe(ffn="intermediate_size", shared_count="num_shared_experts", first_dense="first_k_dense_replace"),
    ),
    "granite": _LLAMA,
    "granitemoe": replace(_BIASED, moe=replace(_LOCAL, loop="split")),
    "granitemoeshared": replace(_BIASED, moe=replace(_LOCAL, loop="split", shared="shared_intermediate_size")),
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "kimi_k2": _LATENT,
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": _LATENT,
    "mistral4": _LATENT,
    "deepseek": replace(_BIASED, moe=_DEEPSEEK),
    "dots1": replace(_BIASED, qk_norm="perhead", moe=_DEEPSEEK),
    **dict.fromkeys(
        ("deepseek_v4", "deepseek_v41_text"),
        replace(_BIASED, moe=replace(_DEEPSEEK, first_dense=None, every=None, optional=False)),
    ),
    "axk1": _LATENT,
    "sarvam_mla": _LATENT,
    "youtu": _LATENT,
    "mistral_large4_text": _LATENT,
    "kimi_linear": _KIMI,
    "bailing_hybrid": replace(_KIMI, position="rope"),
    "glm5_next_text": replace(_LATENT, position="none", recurrent=True),
    "afmoe": _AFMOE,
    "iquestcoder": _LLAMA,
    "solar_open": replace(_BIASED, moe=_DEEPSEEK),
    "sarvam_moe": Family(qkv_bias=ATTENTION_BIAS, moe=_DEEPSEEK),
    "mellum": replace(_QWEN_3_MOE, window="3-of-4", moe=Moe()),
    "granite_swa": replace(_LLAMA, sinks=True, window="3-of-4"),
    "jais2": replace(_LLAMA, norm="layernorm", activation="relu2"),
    "apertus": _APERTUS,
    "apertus1p5_text": _APERTUS,
    "arcee": replace(_LLAMA, activation="relu2"),
    "cosmos3_edge_text": replace(_LLAMA, activation="relu2"),
    **dict.fromkeys(("bitnet", "cwm", "exaone", "granite_docling_text", "helium"), LLAMA_LIKE),
    **dict.fromkeys(("internlm3", "minicpm3", "mllama_text_model"), LLAMA_LIKE),
    "hyperclovax": replace(_LLAMA, norms=4),
    "phi4_multimodal": Family(window="all"),
    "phi4mm": Family(window="all"),
    "vaultgemma": replace(_GEMMA_2, norms=2),
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "ernie4_5": _ERNIE,
    "ernie4_5_moe": replace(
        _ERNIE,
        moe=Moe(count="moe_num_experts", per_token="moe_k", shared_count="moe_num_shared_experts",
                first_dense="moe_layer_start_index", every="moe_layer_interval"),
    ),
    "exaone4": Family(qk_norm="perhead", window="3-of-4"),
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": replace(_HUNYUAN, moe=Moe(per_token="moe_topk", ffn="intermediate_size")),
    "hy_v3": replace(
        _HUNYUAN, moe=Moe(shared_count="num_shared_experts", first_dense="first_k_dense_replace")
    ),
    "laguna": replace(
        _BIASED, qk_norm="perhead", window="3-of-4",
        moe=Moe(shared="shared_expert_intermediate_size", first_dense="num_dense_layers"),
    ),
    "hy_v4": replace(_LATENT, moe=replace(_DEEPSEEK, optional=False)),
    "axk2": _LATENT,
    "dots3_note_text": _LATENT,
    "exaone_moe": Family(
        qk_norm="perhead", window="3-of-4",
        moe=Moe(shared_count="num_shared_experts", first_dense="first_k_dense_replace"),
    ),
    "kolibri1": Family(
        norms=4, qk_norm="perhead", window="4-of-5", moe=Moe(shared="shared_expert_intermediate_size"),
    ),
    "granitemoe_swa": replace(
        _BIASED, sinks=True, window="3-of-4",
        moe=replace(_LOCAL, loop="split", shared="shared_intermediate_size"),
    ),
    "inkling_text": _INKLING,
    "inkling2_text": replace(_INKLING, sinks=True, moe=replace(_INKLING_MOE, shared_count=None)),
    "longcat_flash": replace(
        _BIASED, moe=Moe(count="n_routed_experts", per_token="moe_topk", ffn="expert_ffn_hidden_size"),
    ),
    "flint": replace(
        _BIASED, qk_norm="perhead", sinks=True, window="3-of-4", moe=Moe(shared="shared_expert_intermediate_size"),
    ),
    "flex_olmo": replace(_BIASED, qk_norm="full", wide_norm=True, moe=Moe(ffn="intermediate_size")),
    "aria_text": replace(
        _LLAMA,
        moe=Moe(count="moe_num_experts", per_token="moe_topk", ffn="intermediate_size",
                shared_count="moe_num_shared_experts"),
    ),
    "nanochat": replace(_BIASED, norm="layernorm-nonparam", activation="relu2"),
    "olmo_hybrid": replace(_BIASED, qk_norm="full", wide_norm=True, recurrent=True),
    "lara_mini": replace(_DELTA_NET_MOE, moe=Moe(shared="shared_expert_intermediate_size")),
    "granitemoehybrid": replace(
        _BIASED, recurrent=True, moe=replace(_LOCAL, loop="split", shared="shared_intermediate_size", optional=True),
    ),
    "bamba": replace(_LLAMA, recurrent=True),
    "jamba": Family(position="none", recurrent=True, moe=Moe(ffn="intermediate_size", every="expert_layer_period")),
    "mamba": _MAMBA,
    "mamba2": replace(_MAMBA, tied=False),
    "mamba_ssm": _MAMBA,
    "falcon_mamba": _MAMBA,
    "falcon_h1": replace(_LLAMA, recurrent=True),
    "zamba2": Family(norms=1, activation="geglu", tied=True, recurrent=True),
    "minimax": Family(recurrent=True, moe=replace(_LOCAL, shared="shared_intermediate_size")),
    "lfm2": _LFM,
    "lfm2_moe": replace(_LFM, moe=Moe(first_dense="num_dense_layers")),
    "lfm3": _LFM,
    "k2_horizon": _LLAMA,
    "solar_open2": replace(_BIASED, position="none", recurrent=True, moe=_DEEPSEEK),
    "spark2_5": replace(_LLAMA, activation="geglu", tied=True, window="3-of-4"),
    "mimo_v2_flash": Family(
        qkv_bias=ATTENTION_BIAS, sinks=True, rotary=0.334, moe=Moe(count="n_routed_experts")
    ),
    "muse_glimmer_text": Family(norms=4, window="3-of-4"),
    "muse_spark_text": Family(norms=4, window="3-of-4", moe=Moe(count="num_local_experts")),
    "step3p5": replace(
        _BIASED, qk_norm="perhead", window="3-of-4",
        moe=Moe(count="n_routed_experts", shared="share_expert_dim", first_dense="first_k_dense_replace"),
    ),
    "minicpm": replace(_LLAMA, tied=True),
    "minimax_m3": _MINIMAX_3,
    "minimax_m3_vl_text": _MINIMAX_3,
    "gpt_oss": Family(
        qkv_bias=("attention_bias", True), output_bias=("attention_bias", True), sinks=True, head_dim=64,
        wide_norm=True, window="alternate", activation="swiglu-clamped",
        moe=replace(_LOCAL, biased=True, loop="sliced"),
    ),
    "internlm": Family(qkv_bias=("bias", True), output_bias=("bias", True)),
    "internlm2": Family(qkv_bias=("bias", False), output_bias=("bias", False)),
    "baichuan": Family(),
    "chatglm": Family(qkv_bias=("add_qkv_bias", False), rotary=0.5),
    "glm": _ROTARY_QKV_BIAS,
    "glm4": Family(qkv_bias=ATTENTION_BIAS, rotary=0.5, norms=4),
    "glm4_moe": Family(qkv_bias=ATTENTION_BIAS, rotary=0.5, moe=_DEEPSEEK),
    "nemotron": replace(_LLAMA, norm="layernorm1p", activation="relu2", rotary=0.5),
    "llama4_text": _LLAMA_4,
    "minimax_m2": Family(qk_norm="full", moe=_LOCAL),
}  # fmt: skip
"""By `model_type`. Multimodal configurations are read through the `model_type` of their `text_config`."""
TEXT_PARTS = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_text",
    "gemma4_unified_text": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "kimi_k25": "kimi_k2",
    "apertus1p5": "apertus1p5_text",
    "dots3_note": "dots3_note_text",
    "hy_v4_vl": "hy_v4",
    "inkling_mm_model": "inkling_text",
    "inkling2": "inkling2_text",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "exaone4_5": "exaone4",
    "exaone4_5_text": "exaone4",
    "aria": "aria_text",
    "kimi_k3": "kimi_linear",
    "muse_spark": "muse_spark_text",
    "mistral_large4": "mistral_large4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "step3p7": "step3p5",
    "glm5_next": "glm5_next_text",
    "deepseek_ref": "deepseek_v4",
    "deepseek_v41": "deepseek_v41_text",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "glm4v": "glm4",
    "glm4v_text": "glm4",
    "glm46v": "glm4",
    "glm_ocr_text": "glm4",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "hy_v4_vl_text": "hy_v4",
    "deepseek_ocr2_text": "deepseek",
    "new": "gte",
    "mllama": "mllama_text_model",
    "gpt-sw3": "gpt2",
    "llava": "llama",
    "mimo_v2": "mimo_v2_flash",
    "longcat_flash_ngram": "longcat_flash",
}
"""Text model of a multimodal model_type whose `text_config` does not name its own, and other names of a type."""
CLASSES = {"LongcatCausalLM": "longcat_flash"}
"""Type of a model whose configuration names a class alone."""
_STATE_SPACE = "its layers with a state are not like those that are known"
_RECURRENT = "its recurrence has no equation of memory and time here yet"
_SEVERAL_TIMES = "a token passes its layers several times"
_NOT_A_LANGUAGE_MODEL = "it is neither a decoder nor one of the encoders and encoder-decoders that are known"
_ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
_GEMMA_3N = ("gemma3n", "gemma3n_text")
_RECURRENCES = ("rwkv", "rwkv5", "rwkv6", "recurrent_gemma", "xlstm")
REFUSED: Mapping[str, str] = {
    "plamo2": "its state-space layers are of a kind of their own",
    **dict.fromkeys(_RECURRENCES, _RECURRENT),
    **dict.fromkeys(("whisper", "clip", "vit", "umt5"), _NOT_A_LANGUAGE_MODEL),
    **dict.fromkeys(("hrm_text", "inkling2_loop", "inkling2_loop_text", "dory"), _SEVERAL_TIMES),
    **dict.fromkeys(_ASSISTANTS, "it drafts for another model, whose cache it reads"),
    "idefics": "some of its layers attend to images alone",
    **dict.fromkeys(("ernie4_5_vl_moe", "ernie4_5_vl_moe_text"), "its experts for text and images differ in width"),
    **dict.fromkeys(("ultrabert", "ultravbert"), "what of its input its layers see is not described"),
    **dict.fromkeys(("diffusion_gemma", "diffusion_gemma_text"), "it writes a block of tokens in several passes"),
    "zamba": "its state-space heads are those of no later model; Zamba2 is known",
    "zaya": "its attention is compressed by convolutions, and its router is an MLP",
    "jetmoe": "its attention heads are experts too",
    "doge": "its attention picks keys by a learned mask",
    "deberta": "its attention keeps projections of positions of its own; deberta-v2 and v3 are known",
    "deci": "its layers differ from one another in heads and MLP width",
    "nemotron-nas": "its layers differ from one another in heads and MLP width",
    **dict.fromkeys(_GEMMA_3N, "its layers carry four states, of which each computes one"),
}  # fmt: skip
"""Model types that are known not to fit the shape, with the reason."""
HINTS: Mapping[str, str] = {
    **dict.fromkeys(_ASSISTANTS, "size the model that it drafts for"),
    **dict.fromkeys(_GEMMA_3N, "take gemma-4-e2b or gemma-4-e4b, which are as large and follow it"),
    **dict.fromkeys(_RECURRENCES, "no profile can describe it yet"),
    **dict.fromkeys(("whisper", "clip", "vit"), "xe-sizer sizes language models, and encoders of text"),
}
"""What to do instead, where it is not to describe the model in a profile."""


# Encoders and encoder-decoders by `model_type` of Hugging Face transformers: BERT and its kin, T5, BART.

ROTATED = ("rotary", "rope")  # words for rotary positions
PADDING_ROWS = 2  # of the position tables of RoBERTa and BART, which no token uses
# Published: widths of generators over those of their discriminators (arXiv:2003.10555, table 6), base and all others.
BASE_WIDTH, BASE_GENERATOR, USUAL_GENERATOR = 768, 1 / 3, 1 / 4
GENERATOR_HEAD = 64  # published: width of an attention head (google-research/electra, get_generator_config)
_BERT = Family(
    norm="layernorm", activation="gelu", position="learned", tied=True, qkv_bias=True, output_bias=True, mlp_bias=True,
    head_bias=True, embedding_norm=True, defaults={"vocab_size": 30522},
)  # fmt: skip
_ROBERTA = replace(_BERT, defaults={})
_T5 = Family(norm="rmsnorm-t5", position="relative", tied=True, defaults={"max_position_embeddings": 512})
_BART = replace(_BERT, head_bias=False, defaults={})
_MODERNBERT = Family(
    norm="layernorm-nobias", activation="geglu", tied=True, qkv_bias=("attention_bias", False),
    output_bias=("attention_bias", False), mlp_bias=("mlp_bias", False), head_bias=("decoder_bias", True),
    embedding_norm=True,
)  # fmt: skip
ENCODERS: Mapping[str, Family] = {
    "bert": _BERT,
    "distilbert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "deberta-v2": replace(_ROBERTA, position="relative"),
    "modernbert": _MODERNBERT,
    "t5": _T5,
    "mt5": replace(_T5, tied=False),
    "bart": _BART,
    "mbart": _BART,
    "albert": _BERT,
    "mpnet": _ROBERTA,
    "nomic_bert": replace(
        _BERT, activation="swiglu", position="rope", qkv_bias=False, output_bias=False, mlp_bias=False
    ),
    "gte": replace(_BERT, activation="geglu", position="rope", mlp_bias=False, defaults={}),
    "jina_embeddings_v3": replace(_BERT, position="rope", defaults={}),
    "eurobert": replace(_LLAMA, head_bias=("mlp_bias", False)),
    "llama_bidirec": _LLAMA,
    "modernbert-decoder": _MODERNBERT,
}  # fmt: skip


def _dropout(config: Config, rates: Mapping[str, tuple[str, float]]) -> tuple[str, ...]:
    """Places where the model drops. rates : place -> key of its rate, and what the class assumes"""
    stated = {place: config.data.get(key, default) for place, (key, default) in rates.items()}
    return tuple(place for place, rate in stated.items() if rate)


def _bert(config: Config, values: Values) -> Values:
    hidden = ("hidden_dropout_prob", 0.1)
    rates = {"embedding": hidden, "attention": ("attention_probs_dropout_prob", 0.1), "hidden": hidden}
    width = config.count("embedding_size", default=values["hidden"])
    return {
        "bidirectional": True,
        "post_norm": True,
        "final_norm": False,
        "narrow_softmax": True,
        "narrow_loss": True,
        "token_types": config.count("type_vocab_size", default=2, least=0),
        "embedding_size": width if width != values["hidden"] else None,
        "head_transform": "biased",
        "dropout": _dropout(config, rates),
    }


def _electra(config: Config, values: Values) -> Values:
    """A discriminator, beside which a generator is pre-trained of as many layers and a part of the width.

    Source: arXiv:2003.10555, table 6; google-research/electra, get_generator_config, whose part is a quarter unless it
    is told otherwise, and whose heads are 64 wide.
    """
    if "ElectraForMaskedLM" in (config.data.get("architectures") or ()):  # the generator itself
        return _bert(config, values)
    part = BASE_GENERATOR if values["hidden"] == BASE_WIDTH else USUAL_GENERATOR
    width = round(part * values["hidden"])
    generator = Generator(values["layers"], width, max(width // GENERATOR_HEAD, 1), 4 * width)
    return {**_bert(config, values), "generator": generator}


def _roberta(config: Config, values: Values) -> Values:
    found = _bert(config, values)
    if config.word("position_embedding_type") in ROTATED:  # Jina v3 as its own code has it
        config.assume("adapters for its tasks are left out")
        return {**found, "position": "rope", "learned_positions": 0}
    return {**found, "max_positions": max(values["max_positions"] - PADDING_ROWS, 1)}


def _rotated_bert(config: Config, values: Values) -> Values:
    """Nomic, GTE and Jina v3: rotary positions in place of a table."""
    if values["activation"] == "geglu":
        config.assume("biases of the MLP's second product are left out")
    return _bert(config, values)


def _albert(config: Config, values: Values) -> Values:
    """ALBERT: layers of a group have one set of weights."""
    if config.count("inner_group_num", default=1) > 1:
        config.fail("several layers in a group are not supported yet", "inner_group_num")
    return {**_bert(config, values), "shared_blocks": SharedBlocks(config.count("num_hidden_groups", default=1))}


def _mpnet(config: Config, values: Values) -> Values:
    """MPNet: a table of positions, and biases of relative ones, which all layers share."""
    return {
        **_roberta(config, values),
        "token_types": 0,
        "relative_buckets": config.count("relative_attention_num_buckets", default=32),
    }


def _both_ways(config: Config, values: Values) -> Values:
    """Decoders whose tokens attend to all others: EuroBERT, and what embedding models make of a Llama."""
    return {"bidirectional": True}


def _modernbert_decoder(config: Config, values: Values) -> Values:
    """Ettin's decoders: a ModernBERT that looks back, by half of the window."""
    window = config.count("sliding_window", default=config.count("local_attention", default=128) // 2)
    return {**_modernbert(config, values), "bidirectional": False, "sliding_window": window}


def _distilbert(config: Config, values: Values) -> Values:
    rates = {"embedding": ("dropout", 0.1), "attention": ("attention_dropout", 0.1), "hidden": ("dropout", 0.1)}
    return {**_bert(config, values), "token_types": 0, "dropout": _dropout(config, rates)}


def _deberta(config: Config, values: Values) -> Values:
    if not (config.flag("relative_attention", False) and config.flag("share_att_key", False)):
        config.fail("only disentangled attention with shared keys is supported yet", "relative_attention")
    if config.has("conv_kernel_size") and config.count("conv_kernel_size", least=0):
        config.fail("a convolution beside the first layer is not supported yet", "conv_kernel_size")
    buckets = config.data.get("position_buckets")
    span = buckets if isinstance(buckets, int) and buckets > 0 else values["max_positions"]
    absolute = config.flag("position_biased_input", True)
    return {
        **_bert(config, values),
        "token_types": config.count("type_vocab_size", default=0, least=0),
        "learned_positions": values["max_positions"] if absolute else 0,
        "disentangled_positions": 2 * span,
    }


def _modernbert(config: Config, values: Values) -> Values:
    layers, period = values["layers"], config.count("global_attn_every_n_layers", default=3)
    rates = {
        "embedding": ("embedding_dropout", 0.0), "attention": ("attention_dropout", 0.0),
        "mlp": ("mlp_dropout", 0.0),
    }  # fmt: skip
    return {
        "bidirectional": True,
        "norm": "layernorm" if config.flag("norm_bias", False) else "layernorm-nobias",
        "bare_first_layer": True,
        "fused": ("qkv", "gate_up"),
        "sliding_window": config.count("local_attention", default=128),
        "windowed_layers": layers - -(-layers // period),
        "head_transform": "biased" if config.flag("classifier_bias", False) else "unbiased",
        "dropout": _dropout(config, rates),
    }


def _t5(config: Config, values: Values) -> Values:
    projection = config.word("feed_forward_proj") or "relu"
    if projection not in ("relu", "gated-gelu"):
        config.fail(f"'feed_forward_proj' may be relu or gated-gelu, not {projection}", "feed_forward_proj")
    decoder = config.count("num_decoder_layers", default=values["layers"])
    rate = ("dropout_rate", 0.1)
    return {
        "layers": values["layers"] + decoder,
        "encoder_layers": values["layers"],
        "activation": "geglu-new" if projection == "gated-gelu" else "relu",
        "relative_buckets": config.count("relative_attention_num_buckets", default=32),
        "float32_weights": ("down",),  # _keep_in_fp32_modules of T5PreTrainedModel: wo
        "narrow_softmax": True,
        "narrow_loss": True,
        "dropout": _dropout(config, dict.fromkeys(("embedding", "attention", "hidden", "mlp"), rate)),
    }


def _bart(config: Config, values: Values) -> Values:
    encoder = config.count("encoder_layers", default=values["layers"])
    for one, other in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        if config.data.get(one) != config.data.get(other):
            config.fail("halves of different widths are not supported yet", other)
    rates = {
        "embedding": ("dropout", 0.1), "attention": ("attention_dropout", 0.0), "hidden": ("dropout", 0.1),
        "mlp": ("activation_dropout", 0.0),
    }  # fmt: skip
    return {
        "layers": encoder + config.count("decoder_layers", default=encoder),
        "encoder_layers": encoder,
        "learned_positions": values["max_positions"] + PADDING_ROWS,
        "post_norm": True,
        "final_norm": False,
        "narrow_softmax": True,
        "narrow_loss": True,
        "whole_targets": True,
        "dropout": _dropout(config, rates),
    }


def _mbart(config: Config, values: Values) -> Values:
    return {**_bart(config, values), "post_norm": False, "final_norm": True}


ENCODER_QUIRKS: Mapping[str, Callable[[Config, Values], Values]] = {
    "bert": _bert,
    "electra": _electra,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "deberta-v2": _deberta,
    "modernbert": _modernbert,
    "t5": _t5,
    "mt5": _t5,
    "bart": _bart,
    "mbart": _mbart,
    "albert": _albert,
    "mpnet": _mpnet,
    "nomic_bert": _rotated_bert,
    "gte": _rotated_bert,
    "jina_embeddings_v3": _rotated_bert,
    "eurobert": _both_ways,
    "llama_bidirec": _both_ways,
    "modernbert-decoder": _modernbert_decoder,
}


KNOWN = {**FAMILIES, **ENCODERS}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
# Not num_mtp_modules: the modules of MiniMax-M2 that it counts are not among its weights.
MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")
FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "encoder_ffn_dim", "hidden_dim")
VOCAB = ("draft_vocab_size", "padded_vocab_size", "vocab_size")  # the first: of the head of EAGLE-3
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "max_sequence_length",
    "seq_length", "n_ctx",
)  # fmt: skip
WITHOUT_POSITIONS = 2**20  # chosen: of a model that states no longest sequence, since nothing in it depends on one
ROTARY = ("partial_rotary_factor", "rotary_pct", "rope_pct")
LLAMA_KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
    "rms_norm_eps",
)  # fmt: skip
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # as on a hub: the owner, and a name
GATES = ("silu", "swish", "gelu")  # activations that MLPs like Llama's have
BY_LAYER = frozenset({"gemma4_text", "dots3_note_text", "laguna", "step3p5"})  # types whose `per_layer_config` is known
HINT = "describe the model in a profile"
LIKE_IT = "describe a model like it in a profile, of the same widths and of layers that are known"
TIED_INSIDE = frozenset({"llava", "llava_next_video", "llava_onevision", "fast_vlm", "video_llama_3"})
SNAPSHOT = re.compile(r"[0-9a-f]{40}")
# Where they are lists: a word, 0 and 1, or false and true for each layer.
KINDS_OF_MLP = ("mlp_layer_types", "moe_layer_freq", "is_moe_layer")
ATTENTION = WINDOWED | {
    "full_attention", MINIMAX_SPARSE, "deepseek_sparse_attention", "indexed_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "hybrid",
}  # fmt: skip


def model_from_config(path: Path) -> tuple[ModelShape, tuple[str, ...]]:
    """The model that a `config.json` describes, and what had to be assumed, in words.

    Raises
    ------
    InputError    malformed JSON; every missing, mistyped or contradictory key; a model type that cannot be
                  sized yet
    """
    data, text = load_json(path)
    data, joined = _drafter(data)
    whole = Config(path, data, text)
    config, kind = _text_model(whole)
    family = _family(config, kind)
    values = _common(config, family)
    values |= _latent(config) or {}
    values |= _window(config, family, values)
    values["experts"] = _experts(config, family.moe, values["layers"]) if family.moe else None
    quirk = QUIRKS.get(kind) or HYBRID_QUIRKS.get(kind) or ENCODER_QUIRKS.get(kind)
    values |= quirk(config, values) if quirk else {}
    _check(config, values)
    _check_sparse_attention(config, kind, values)
    values["vision"] = _tower(whole, values)
    values["checkpoint_format"] = checkpoint_format(whole, config, values["experts"] is not None)
    if config.problems:
        raise InputError(config.problems)
    values["guesses"] = tuple(config.guesses)
    if joined:
        values |= {"joined_width": joined * values["hidden"], "doubled_input": data.get(SPECULATOR) == EAGLE3}
    return ModelShape(name=_name(path, config), family=kind, **values), tuple(config.assumptions)


SPECULATOR = "speculators_model_type"
STATES = {EAGLE: EAGLE_STATES, EAGLE3: EAGLE3_STATES, DFLASH: DFLASH_STATES}
"""How many states a drafter joins where its file does not list them."""


def _drafter(data: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The layers of what drafts, and how many states it joins, 0 for a model that writes text.

    Files of `speculators` (config.py, models/eagle3/config.py, models/dflash/config.py) hold the layers in a part of
    their own, those of z-lab's DFlash beside a part about the states.
    """
    layers, part = data.get("transformer_layer_config"), data.get("dflash_config")
    part = part if isinstance(part, dict) else {}
    kind = data.get(SPECULATOR) if isinstance(layers, dict) else DFLASH if part else None
    if kind is None:
        return data, 0
    states = data.get("aux_hidden_state_layer_ids") or part.get("target_layer_ids")
    joined = len(states) if isinstance(states, list) and kind != EAGLE else STATES.get(str(kind), EAGLE_STATES)
    lifted = {key: data[key] for key in (SPECULATOR, "draft_vocab_size") if data.get(key) is not None}
    return {**(layers if isinstance(layers, dict) else data), **lifted}, joined


def _name(path: Path, config: Config) -> str:
    """The file's name; for `config.json` that of the repository which it names, else that of its folder.

    In a download cache, whose folders are named by hashes, the last part of the name that the model was saved under.
    """
    if path.name != "config.json":
        return path.stem
    folder, saved = path.parent.resolve().name, config.data.get("_name_or_path")
    named = saved.strip("/") if isinstance(saved, str) else ""
    if named and (REPOSITORY.fullmatch(named) or not folder or SNAPSHOT.fullmatch(folder)):
        return named.rpartition("/")[2]
    return folder or "config"


def _text_model(config: Config) -> tuple[Config, str]:
    """The configuration of the language model: the whole file, or the text part of a multimodal one."""
    named = next((CLASSES[name] for name in config.items("architectures") or () if name in CLASSES), "")
    kind = config.word("model_type") or named or ("mamba_ssm" if config.has("ssm_cfg") else "")
    if kind in REFUSED:
        return config, kind
    if isinstance(config.data.get("thinker_config"), dict):  # a model that speaks has its language model further in
        config = config.section("thinker_config")
    if not isinstance(config.data.get("text_config"), dict):
        return config, TEXT_PARTS.get(kind, kind)
    text = config.section("text_config")
    if config.has("tie_word_embeddings"):
        # The class with the head reads what stands outside; those of LLaVA tie where either says so.
        inside = kind in TIED_INSIDE and text.flag("tie_word_embeddings", False)
        text.data = {**text.data, "tie_word_embeddings": config.data["tie_word_embeddings"] or inside}
    part = text.word("model_type") or kind
    return text, TEXT_PARTS.get(part, part)


def _tower(whole: Config, values: Values) -> VisionTower | None:
    """The encoder of images of a multimodal model, where it is of a kind that is known."""
    if not any(isinstance(whole.data.get(part), dict) for part in ("text_config", "vision_config", "thinker_config")):
        return None
    tower = tower_from(whole, whole.word("model_type") or "", values["hidden"])
    if tower is None:
        whole.assume("only the language model is sized; the other towers of this multimodal model are left out")
    return tower


def _family(config: Config, kind: str) -> Family:
    """How the model type is built; an undescribed type with the keys of a Llama is taken for one."""
    where = config.locate("model_type")
    mixes = config.has("linear_num_value_heads", "mamba_d_state", "ssm_cfg")
    if kind in REFUSED or (mixes and kind not in FAMILIES):
        reason = REFUSED.get(kind, _STATE_SPACE)
        raise InputError(
            Problem(f"model type '{kind}' is not supported yet: {reason}", where, HINTS.get(kind, LIKE_IT))
        )
    if config.data.get("per_layer_config") and kind not in BY_LAYER:
        config.fail("layers that differ from each other are not supported yet", "per_layer_config", HINT)
    if config.flag("is_encoder_decoder", False) and kind not in ENCODERS:
        raise InputError(Problem(f"model type '{kind}' is not supported: {_NOT_A_LANGUAGE_MODEL}", where, HINT))
    if kind in KNOWN:
        return KNOWN[kind]
    lacks = _unlike_a_llama(config)
    if lacks:
        text = f"model type '{kind}' is not known, and its keys are not those of a Llama: {lacks}"
        raise InputError(Problem(text, where, HINT))
    config.guess(f"model type '{kind}' is not known; it is built like a Llama, as its keys suggest")
    return LLAMA_LIKE


def _unlike_a_llama(config: Config) -> str | None:
    """What in the keys of an undescribed type says that it is no Llama."""
    missing = [key for key in LLAMA_KEYS if not config.has(key)]
    activation, classes = config.word("hidden_act") or "silu", config.items("architectures") or ()
    if missing:
        return f"it lacks '{missing[0]}'"
    if any("expert" in key and value for key, value in config.data.items()):
        return "it has experts"
    if not any(part in activation for part in GATES):
        return f"its activation, {activation}, need not have a gate"
    if any(str(name).endswith("ForMaskedLM") for name in classes):
        return "it predicts masked tokens, as encoders do"
    return None


def _common(config: Config, family: Family) -> Values:
    """What every family has; keys that are absent take the family's defaults."""
    for key, value in family.defaults.items():
        if key not in config.data:
            config.data = {**config.data, key: value}
            config.assume(f"'{key}' is absent; {value} is what its class assumes")
    heads, hidden = config.count(*HEADS) if family.attends else 1, config.count(*HIDDEN)
    positions = config.count(*POSITIONS, default=None if family.attends else WITHOUT_POSITIONS)
    return {
        "layers": config.count(*LAYERS, default=len(config.items("layers_block_type") or ()) or None, most=MAX_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": _head_dim(config, family, hidden, heads),
        "ffn": config.count(*FFN, default=_usual_ffn(config, family, hidden)),
        "vocab": config.count(*VOCAB),
        "max_positions": positions,
        "learned_positions": positions if family.position == "learned" else 0,
        "tied_embeddings": config.flag("tie_word_embeddings", family.tied),
        "norm": family.norm,
        "norms_per_layer": family.norms,
        "activation": _activation(config, family),
        "position": family.position,
        "rotary_fraction": _rotary(config, family),
        **_wavelengths(config),
        "qkv_bias": _flag(config, family.qkv_bias),
        "output_bias": _flag(config, family.output_bias),
        "mlp_bias": _flag(config, family.mlp_bias),
        "head_bias": _flag(config, family.head_bias),
        "parallel_block": family.parallel,
        "qk_norm": family.qk_norm,
        "embedding_norm": family.embedding_norm,
        "wide_norm": family.wide_norm,
        "held_scores": family.held_scores,
        "attention_sinks": family.sinks,
        "mtp_layers": config.count(*MTP, default=0, least=0, most=MAX_LAYERS),
    }


def _usual_ffn(config: Config, family: Family, hidden: int) -> int | None:
    """Width of the dense MLP where none is stated: what classes assume, or nothing where no layer has one."""
    if not family.attends:
        return 0
    if family.moe and config.has(family.moe.count, "num_experts", "num_local_experts"):
        return 0
    return 4 * hidden if family.activation in ("gelu", "relu") else None


def _flag(config: Config, flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else config.flag(*flag)


def _head_dim(config: Config, family: Family, hidden: int, heads: int) -> int:
    stated = config.count("head_dim", "kv_channels", "d_kv", default=0, least=0)
    if stated:
        return stated
    if "head_dim" not in config.data and family.head_dim:
        return family.head_dim
    if hidden % heads and not config.problems and not config.has("kv_lora_rank"):
        place = next((name for name in HEADS if config.has(name)), None)
        config.fail(f"hidden size {hidden} is not a multiple of {heads} heads, and there is no 'head_dim'", place)
    return max(1, hidden // heads)


def _activation(config: Config, family: Family) -> str:
    """The family's MLP form (gated or not) with the function that the config names."""
    word = config.word("hidden_activation", "hidden_act", "activation_function") or ""
    gated = family.activation in ("swiglu", "geglu")
    for part, name in (("gelu", "geglu"), ("silu", "swiglu"), ("swish", "swiglu")) if gated else ():
        if part in word:
            return name
    for part in ("gelu", "relu2", "relu") if not gated else ():
        if part in word:
            return part
    return family.activation


def _rotary(config: Config, family: Family) -> float:
    if family.position != "rope":
        return 1.0
    if config.has(*ROTARY):
        return config.fraction(*ROTARY, default=family.rotary)
    return config.section("rope_parameters").fraction(*ROTARY, default=family.rotary)


def _wavelengths(config: Config) -> Values:
    """Base of the rotary positions, and how Llama 3.1 stretches them; nothing where they are stretched otherwise."""
    given = config.data.get("rope_parameters") or config.data.get("rope_scaling") or {}
    section = given if isinstance(given, dict) else {}
    kind = section.get("rope_type", section.get("type", "default"))
    base = config.data.get("rope_theta") or section.get("rope_theta")
    factor = section.get("factor") if kind == "llama3" else None
    if kind not in ("default", "llama3") or not _is_factor(base) or not (factor is None or _is_factor(factor)):
        return {}
    return {"rotary_base": base, "rotary_scaling": factor}


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and 1 < value < math.inf


def _window(config: Config, family: Family, values: Values) -> Values:
    """Sliding window and the number of layers that have one, from `layer_types` or the family's habit."""
    layers = int(values["layers"])
    types = config.items("layer_types")
    unknown = sorted({str(kind) for kind in types or ()} - ATTENTION - (RECURRENT if family.recurrent else set()))
    if unknown:
        config.fail(f"layers of type '{unknown[0]}' are not supported yet", "layer_types")
    tokens = config.count("sliding_window", "attention_chunk_size", default=0, least=0)
    upper = family.window == "upper"
    if not family.window or not tokens or not config.flag("use_sliding_window", not upper):
        return {}
    if types is not None:
        windowed = sum(kind in WINDOWED for kind in types)
    elif upper:
        windowed = layers - min(layers, config.count("max_window_layers", default=layers, least=0))
    else:
        windowed = _habit(config, family.window, layers)
    if not windowed or tokens >= values["max_positions"]:
        return {}
    return {"sliding_window": tokens, "windowed_layers": min(windowed, layers)}


def _habit(config: Config, pattern: str, layers: int) -> int:
    if pattern == "all":
        return layers
    period = 2 if pattern == "alternate" else int(pattern.split("-of-")[1])
    return layers - layers // config.count("sliding_window_pattern", default=period)


def _latent(config: Config) -> Values | None:
    """Multi-head latent attention and the indexer of sparse attention, where the config has them."""
    if not config.has("kv_lora_rank"):
        return None
    latent = LatentAttention(
        query_rank=config.optional_count("q_lora_rank"),
        kv_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim", least=0),
        v_head_dim=config.count("v_head_dim"),
    )
    values: Values = {
        "latent_attention": latent,
        "head_dim": latent.qk_nope_head_dim + latent.qk_rope_head_dim,
    }
    if config.has("index_n_heads"):
        heads, size = config.count("index_n_heads"), config.count("index_head_dim")
        values["indexer"] = SparseIndexer(heads, size, config.count("index_topk"))
        shares = _shared_indexers(config)
        if any(shares):
            values["layer_pattern"] = "".join("S" if shared else "*" for shared in shares)
    return values


def _shared_indexers(config: Config) -> list[bool]:
    """Of each layer, whether it attends to what an indexer before it picked (GlmMoeDsaConfig of transformers)."""
    types = config.items("indexer_types") or list(config.word("index_topk_pattern") or "")
    if types:
        return [kind in ("shared", "S") for kind in types]
    every, first = (
        config.count("index_topk_freq", default=1),
        config.count("index_skip_topk_offset", default=2, least=0),
    )
    return [max(layer - first + 1, 0) % every > 0 for layer in range(config.count(*LAYERS))]


def _experts(config: Config, moe: Moe, layers: int) -> Experts | None:
    """The mixture of experts; None when the config of such a family has no experts."""
    if moe.optional and not config.data.get(moe.count):
        return None
    ffn = config.count(moe.ffn, *moe.or_ffn)
    shared = config.count(moe.shared, default=0, least=0) if moe.shared else 0
    if moe.shared_count:
        shared = ffn * config.count(moe.shared_count, default=0, least=0)
    return Experts(
        count=config.count(moe.count, "num_experts", "num_local_experts"),
        per_token=config.count(moe.per_token, "experts_per_token", "num_experts_per_tok"),
        ffn=ffn,
        shared_ffn=shared,
        shared_gate=moe.shared_gate and shared > 0,
        first_dense_layers=_first_dense(config, moe, layers),
        every_n_layers=_every(config, moe.every),
        router_bias=moe.biased,
        expert_bias=moe.biased,
        loop=moe.loop,
        groups=config.count("n_group", "num_expert_group", default=1),
        groups_per_token=config.count("topk_group", default=1),
    )


def _every(config: Config, key: str | None) -> int:
    """Of how many layers one has experts; where the key holds a list, `_first_dense` reads it."""
    return 1 if key is None or isinstance(config.data.get(key), list) else config.count(key, default=1)


def _first_dense(config: Config, moe: Moe, layers: int) -> int:
    """Dense layers before the first mixture of experts; other mixtures of layers cannot be expressed."""
    key = next((name for name in KINDS_OF_MLP if isinstance(config.data.get(name), list)), "mlp_only_layers")
    listed = config.items(key) or []
    if key in KINDS_OF_MLP:
        listed = [place for place, kind in enumerate(listed) if kind in ("dense", 0)]
    if listed != list(range(len(listed))):
        config.fail("dense layers between layers with experts are not supported yet", key)
    stated = config.count(moe.first_dense, default=0, least=0) if moe.first_dense else 0
    if max(stated, len(listed)) > layers:
        config.fail(f"more dense layers than the {layers} layers", moe.first_dense or key)
    return max(stated, len(listed))


LOOPS = ("num_loops", "total_ut_steps")  # of Nanbeige 4.2 and of Ouro
PICKING = {
    "sparse_attention_config": "MiniMax sparse attention", "sparse_config": "InfLLM v2", "mixer_types": "InfLLM v2",
    "index_topk": "DeepSeek sparse attention", "index_topk_blocks": "MiniMax sparse attention",
    "moba_topk": "MoBA", "moba_chunk_size": "MoBA", "block_counts": "native sparse attention",
    "seerattn_gate_type": "SeerAttention",
}  # fmt: skip
"""Keys that say that queries pick the keys they attend to, and by which method."""


def _check_sparse_attention(config: Config, kind: str, values: Values) -> None:
    """A model whose queries pick their keys is none that attends to all of them."""
    key = next((key for key in PICKING if config.data.get(key)), None)
    if key and "indexer" not in values:
        text = f"'{key}': sparse attention ({PICKING[key]}) is not read of model type '{kind}' yet"
        kinds = ", ".join(INDEXERS)
        config.fail(text, key, f"describe the model in a profile, whose 'indexer' has the kinds {kinds}")


def _check(config: Config, values: Values) -> None:
    heads, kv_heads, experts = values["heads"], values["kv_heads"], values["experts"]
    for key in LOOPS:
        if config.has(key) and config.count(key) > 1:
            config.fail(f"a token passes its layers {config.count(key)} times, which is not supported yet", key)
    if heads % kv_heads:
        config.fail(f"{heads} heads are not a multiple of {kv_heads} KV heads", "num_key_value_heads")
    if experts and experts.per_token > experts.count:
        text = f"a token cannot visit {experts.per_token} of {experts.count} experts"
        config.fail(text, "num_experts_per_tok")
