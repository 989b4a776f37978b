"""What each `model_type` of Hugging Face transformers is built of, as data.

A family states how its reference implementation differs from a Llama: which vectors exist, what the class
assumes when a key is absent, and how its keys are called. Source: the modelling and configuration files of
transformers, or of the models' own repositories for the families that ship their code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from xe_sizer.frozen import frozen

Flag = bool | tuple[str, bool]
"""Fixed, or the key that decides it and what the class assumes without the key."""

ATTENTION_BIAS = ("attention_bias", False)


@frozen(eq=True)
class Moe:
    """Keys of a mixture of experts. `shared` holds the shared width, `shared_count` a number of experts.

    `optional`: the family has models without experts, whose configs do not have the key of their number. `loop`: how
    its classes compute one expert after the other.
    """

    count: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    ffn: str = "moe_intermediate_size"
    shared: str | None = None
    shared_count: str | None = None
    shared_gate: bool = False
    first_dense: str | None = None
    every: str | None = None
    biased: bool = False
    optional: bool = False
    loop: str = "modules"


@frozen(eq=True)
class Family:
    """One model_type.

    `window`: the layers that look back a window, when the config has no `layer_types`. `recurrent`: some layers have a
    state-space mixer in place of attention.
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
    window: str | None = None
    recurrent: bool = False
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
_GPT_2 = replace(_GPT, position="learned", tied=True)
_ROTARY_QKV_BIAS = Family(qkv_bias=("attention_bias", True), rotary=0.5)
_COHERE = replace(_BIASED, norm="layernorm-nobias", norms=1, tied=True, parallel=True, wide_norm=True)
_FALCON = Family(
    norm="layernorm", activation="gelu", tied=True, qkv_bias=("bias", False), output_bias=("bias", False),
    mlp_bias=("bias", False), defaults={"max_position_embeddings": 2048},
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
    "qwen3": _QWEN_3,
    "qwen3_vl_text": _QWEN_3,
    "qwen3_moe": _QWEN_3_MOE,
    "qwen3_vl_moe_text": _QWEN_3_MOE,
    "qwen3_next": _DELTA_NET_MOE,
    "qwen3_5_text": _DELTA_NET,
    "qwen3_5_moe_text": _DELTA_NET_MOE,
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
    "gptj": Family(
        norm="layernorm", norms=1, activation="gelu", mlp_bias=True, head_bias=True, parallel=True
    ),
    "gpt_neox": Family(
        norm="layernorm", activation="gelu", qkv_bias=("attention_bias", True),
        output_bias=("attention_bias", True), mlp_bias=True, parallel=True, rotary=0.25,
    ),
    "starcoder2": Family(
        norm="layernorm", activation="gelu", qkv_bias=("use_bias", True), output_bias=("use_bias", True),
        mlp_bias=("use_bias", True), tied=True, window="all",
    ),
    "bloom": replace(
        _GPT, position="alibi", tied=True, embedding_norm=True, defaults={"seq_length": 2048}
    ),
    "falcon": _FALCON,
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "mpt": Family(norm="layernorm-nobias", activation="gelu", position="alibi", tied=True),
    "stablelm": _STABLE,
    "stablelm_epoch": _STABLE,
    "olmo": replace(_BIASED, norm="layernorm-nonparam"),
    "olmo2": replace(_BIASED, qk_norm="full", wide_norm=True),
    "olmo3": replace(_BIASED, qk_norm="full", wide_norm=True, window="3-of-4"),
    "olmoe": replace(_BIASED, qk_norm="full", moe=Moe(ffn="intermediate_size")),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, window="3-of-4", defaults={"sliding_window": 4096}),
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
    "afmoe": _AFMOE,
    "apertus": replace(_BIASED, activation="relu2", qk_norm="perhead"),
    "arcee": replace(_LLAMA, activation="relu2"),
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
    "mimo_v2_flash": Family(
        qkv_bias=ATTENTION_BIAS, sinks=True, rotary=0.334, moe=Moe(count="n_routed_experts")
    ),
    "muse_glimmer_text": Family(norms=4, window="3-of-4"),
    "step3p5": replace(
        _BIASED, qk_norm="perhead", window="3-of-4",
        moe=Moe(count="n_routed_experts", shared="share_expert_dim", first_dense="first_k_dense_replace"),
    ),
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
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "kimi_k25": "kimi_k2",
    "llava": "llama",
}
"""Text model of a multimodal model_type whose `text_config` does not name its own."""

_STATE_SPACE = "its config is not read yet, but 'xe-sizer profiles list model' has profiles with state-space layers"
_RECURRENT = "its layers are recurrent, which xe-sizer cannot estimate yet"
_NOT_A_LANGUAGE_MODEL = "it is neither a decoder nor one of the encoders and encoder-decoders that are known"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "falcon_h1", "zamba", "zamba2", "granitemoehybrid",
         "lfm2", "minimax", "minimax_text_01", "kimi_linear", "plamo2"),
        _STATE_SPACE,
    ),
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "recurrent_gemma", "xlstm"), _RECURRENT),
    **dict.fromkeys(
        ("whisper", "clip", "vit", "umt5"), _NOT_A_LANGUAGE_MODEL,
    ),
    "albert": "its layers share one set of weights",
    "deberta": "its attention keeps projections of positions of its own; deberta-v2 and v3 are known",
    "deci": "its layers differ from one another in heads and MLP width",
    "nemotron-nas": "its layers differ from one another in heads and MLP width",
    "gemma3n": "its layers share keys and values and embed every token again",
    "gemma3n_text": "its layers share keys and values and embed every token again",
}  # fmt: skip
"""Model types that are known not to fit the shape, with the reason."""
