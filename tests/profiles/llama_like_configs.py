"""Published Hugging Face configurations with the keys of a Llama; parameters in all, and active for a token."""

from __future__ import annotations

from typing import Any


def llama_like(kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 32768,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }


DEEPSEEK_V2_LITE = llama_like("deepseek_v2", 27, 2048, 16, 16, 10944, 102400) | {
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = llama_like("deepseek_v3", 61, 7168, 128, 128, 18432, 129280) | {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}
LLAMA_LIKE: dict[str, tuple[dict[str, Any], int, int]] = {
    "llama-3.1-8b": (llama_like("llama", 32, 4096, 32, 8, 14336, 128256), 8030261248, 8030261248),
    "mistral-7b-v0.1": (
        llama_like("mistral", 32, 4096, 32, 8, 14336, 32000) | {"sliding_window": 4096},
        7241732096,
        7241732096,
    ),
    "mixtral-8x7b": (
        llama_like("mixtral", 32, 4096, 32, 8, 14336, 32000)
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
        46702792704,
        12879925248,
    ),
    "qwen2.5-7b": (
        llama_like("qwen2", 28, 3584, 28, 4, 18944, 152064) | {"use_sliding_window": False, "sliding_window": 131072},
        7615616512,
        7615616512,
    ),
    "qwen3-8b": (
        llama_like("qwen3", 36, 4096, 32, 8, 12288, 151936) | {"head_dim": 128, "attention_bias": False},
        8190735360,
        8190735360,
    ),
    "qwen3-30b-a3b": (
        llama_like("qwen3_moe", 48, 2048, 32, 4, 6144, 151936)
        | {
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        30532122624,
        3353032704,
    ),
    "qwen1.5-moe-a2.7b": (
        llama_like("qwen2_moe", 24, 2048, 16, 16, 5632, 151936)
        | {
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
        },
        14315784192,
        2689173504,
    ),
    "gemma-2b": (
        llama_like("gemma", 18, 2048, 8, 1, 16384, 256000) | {"head_dim": 256, "hidden_act": "gelu"},
        2506172416,
        2506172416,
    ),
    "gemma-2-9b": (
        llama_like("gemma2", 42, 3584, 16, 8, 14336, 256000)
        | {"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096},
        9241705984,
        9241705984,
    ),
    "phi-2": (
        llama_like("phi", 32, 2560, 32, 32, 10240, 51200)
        | {"hidden_act": "gelu_new", "partial_rotary_factor": 0.4, "tie_word_embeddings": False},
        2779683840,
        2779683840,
    ),
    "phi-3-mini-4k": (
        llama_like("phi3", 32, 3072, 32, 32, 8192, 32064) | {"sliding_window": 2047},
        3821079552,
        3821079552,
    ),
    "phi-3.5-moe": (
        llama_like("phimoe", 32, 4096, 32, 8, 6400, 32064)
        | {"num_local_experts": 16, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True},
        41873153344,
        6640999744,
    ),
    "gpt-neox-20b": (
        llama_like("gpt_neox", 44, 6144, 64, 64, 24576, 50432) | {"hidden_act": "gelu_fast", "rotary_pct": 0.25},
        20554567680,
        20554567680,
    ),
    "starcoder2-7b": (
        llama_like("starcoder2", 32, 4608, 36, 4, 18432, 49152)
        | {"hidden_act": "gelu_pytorch_tanh", "use_bias": True, "sliding_window": 4096},
        7173923840,
        7173923840,
    ),
    "olmo-7b": (llama_like("olmo", 32, 4096, 32, 32, 11008, 50304), 6888095744, 6888095744),
    "olmo-2-7b": (llama_like("olmo2", 32, 4096, 32, 32, 11008, 100352), 7298617344, 7298617344),
    "olmoe-1b-7b": (
        llama_like("olmoe", 16, 2048, 16, 16, 1024, 50304) | {"num_experts": 64, "num_experts_per_tok": 8},
        6919161856,
        1282017280,
    ),
    "command-r-plus": (
        llama_like("cohere", 64, 12288, 96, 8, 33792, 256000) | {"use_qk_norm": True},
        103810674688,
        103810674688,
    ),
    "granite-3.0-1b-a400m": (
        llama_like("granitemoe", 24, 1024, 16, 8, 512, 49155)
        | {"num_local_experts": 32, "num_experts_per_tok": 8, "tie_word_embeddings": True},
        1334628352,
        428658688,
    ),
    "deepseek-v2-lite": (DEEPSEEK_V2_LITE, 15706484224, 2661150208),
    "deepseek-v3": (DEEPSEEK_V3, 671026404352, 37552282624),
    "deepseek-v3.2": (
        DEEPSEEK_V3 | {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        671877929216,
        38403807488,
    ),
    "glm-4.5-air": (
        llama_like("glm4_moe", 46, 4096, 96, 8, 10944, 151552)
        | {
            "head_dim": 128,
            "attention_bias": True,
            "use_qk_norm": False,
            "n_routed_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 1,
        },
        106852245504,
        13424123904,
    ),
    "gpt-oss-20b": (
        llama_like("gpt_oss", 24, 2880, 64, 8, 2880, 201088)
        | {
            "head_dim": 64,
            "attention_bias": True,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        20914757184,
        4187440704,
    ),
    "internlm-7b": (
        llama_like("internlm", 32, 4096, 32, 32, 11008, 103168) | {"bias": True},
        7321948160,
        7321948160,
    ),
    "internlm2-7b": (
        llama_like("internlm2", 32, 4096, 32, 8, 14336, 92544) | {"bias": False},
        7737708544,
        7737708544,
    ),
    "glm-4-9b-0414": (
        llama_like("glm4", 40, 4096, 32, 2, 13696, 151552) | {"head_dim": 128, "attention_bias": True},
        9400279040,
        9400279040,
    ),
    "nemotron-4-15b": (
        llama_like("nemotron", 32, 6144, 48, 8, 24576, 256000) | {"hidden_act": "relu2"},
        15628775424,
        15628775424,
    ),
    "minimax-m2": (
        llama_like("minimax_m2", 62, 3072, 48, 8, 1536, 200064)
        | {"head_dim": 128, "rotary_dim": 64, "num_local_experts": 256, "num_experts_per_tok": 8},
        228689748992,
        11030537216,
    ),
}
