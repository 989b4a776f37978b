"""Configurations of models of 2025 and 2026; parameters in all, as transformers counts them, and active for a token."""

from __future__ import annotations

from typing import Any


def recent(
    kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **other: Any
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "head_dim": 128,
    } | other


def small_gemma_4(layers: int, hidden: int, ffn: int, kv_heads: int, period: int, **other: Any) -> dict[str, Any]:
    own = {"head_dim": 256, "global_head_dim": 512, "hidden_size_per_layer_input": 256, "sliding_window": 512}
    types = [("sliding" if (layer + 1) % period else "full") + "_attention" for layer in range(layers)]
    keys = own | {"vocab_size_per_layer_input": 262144, "layer_types": types, "tie_word_embeddings": True}
    return recent("gemma4_text", layers, hidden, 8, kv_heads, ffn, 262144, **keys | other)


RECENT: dict[str, tuple[dict[str, Any], int, int]] = {
    # Qwen3-30B-A3B with 128 rows more in each of its tables, 2 x 128 x 2048; 120 of 128 experts idle, 3 x 2048 x 768
    "qwen3-omni-30b-a3b": (
        {
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "audio_config": {},
                "text_config": recent(
                    "qwen3_omni_moe_text", 48, 2048, 32, 4, 768, 152064, num_experts=128, num_experts_per_tok=8,
                    moe_intermediate_size=768, tie_word_embeddings=False,
                ),
            },
        },
        30532122624 + 2 * 128 * 2048, 30532122624 + 2 * 128 * 2048 - 48 * 120 * 3 * 2048 * 768,
    ),
    "gemma-4-e2b": (
        small_gemma_4(35, 1536, 6144, 1, 5, num_kv_shared_layers=20, use_double_wide_mlp=True),
        4628569344, 4628569344,
    ),
    "gemma-4-e4b": (small_gemma_4(42, 2560, 10240, 2, 6, num_kv_shared_layers=18), 7463013376, 7463013376),
    # The published 9.78B of its language model, but for the gates, norms and 8 rows of its layers for images
    "llama-3.2-11b-vision": (
        {"model_type": "mllama", "vision_config": {}, "text_config": recent(
            "mllama_text_model", 40, 4096, 32, 8, 14336, 128256, rms_norm_eps=1e-5, cross_attention_layers=[3, 8, 13],
        )},
        9775192080 - 34832, 9775192080 - 34832,
    ),
    "dots.llm1": (
        recent(
            "dots1", 62, 4096, 32, 32, 10944, 152064, moe_intermediate_size=1408, n_routed_experts=128,
            n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1,
        ),
        142774373888, 142774373888 - 61 * 122 * 3 * 4096 * 1408,
    ),
    # as transformers 5.24 writes it, which leaves defaults out and says of layers what differs
    "gemma-4-e4b saved again": (
        small_gemma_4(42, 2560, 10240, 2, 6, num_kv_shared_layers=18, global_head_dim=None,
                      hidden_size_per_layer_input=None,
                      per_layer_config={f"{layer:02}": {"head_dim": 512} for layer in range(5, 42, 6)}),
        7463013376, 7463013376,
    ),
    "afm-4.5b": (recent("arcee", 36, 2560, 20, 4, 18432, 128004), 4619184640, 4619184640),
    # 64 values of its activations are left out
    "apertus-8b": (recent("apertus", 32, 4096, 32, 8, 21504, 131072), 8053338176 - 64, 8053338176 - 64),
    "exaone-4.0-32b": (
        recent("exaone4", 64, 5120, 40, 8, 27392, 102400, sliding_window=4096),
        32003216384,
        32003216384,
    ),
    "trinity-mini": (
        recent(
            "afmoe", 32, 2048, 32, 4, 6144, 200192,
            num_dense_layers=2, num_experts=128, num_experts_per_tok=8, num_shared_experts=1,
            moe_intermediate_size=1024, sliding_window=2048,
        ),
        26123974400,
        3474732800,
    ),
    "hy3-295b-a21b": (
        recent(
            "hy_v3", 80, 4096, 64, 8, 13312, 120832,
            num_experts=192, num_experts_per_tok=8, num_shared_experts=1, moe_intermediate_size=1536,
            mlp_layer_types=["dense"] + ["sparse"] * 79,
        ),
        295033528320,
        20675715072,
    ),
    "hunyuan-a13b": (
        recent(
            "hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167,
            num_experts=64, moe_topk=8, num_shared_expert=1, tie_word_embeddings=True,
        ),
        80393183232,
        12747448320,
    ),
    "minimax-m3": (
        recent(
            "minimax_m3_vl_text", 60, 6144, 64, 4, 3072, 200064,
            rotary_dim=64, dense_intermediate_size=12288, shared_intermediate_size=3072, num_local_experts=128,
            num_experts_per_tok=4, moe_layer_freq=[0] * 3 + [1] * 57,
        ),
        425950417920,
        25738318848,
    ),
    "ernie-4.5-300b-a47b": (
        recent(
            "ernie4_5_moe", 54, 8192, 64, 8, 28672, 103424,
            moe_num_experts=64, moe_k=8, moe_intermediate_size=3584, moe_num_shared_experts=0, moe_layer_start_index=3,
        ),
        299484163264,
        47926586560,
    ),
    # 64 sinks in each of the 9 layers without a window more than it has
    "mimo-v2-flash": (
        recent(
            "mimo_v2_flash", 48, 4096, 64, 4, 16384, 152576,
            head_dim=192, v_head_dim=128, swa_num_key_value_heads=8, sliding_window=128, moe_intermediate_size=2048,
            n_routed_experts=256, num_experts_per_tok=8, mlp_layer_types=["dense"] + ["sparse"] * 47,
            hybrid_layer_pattern=[0] + [1] * 4 + ([0] + [1] * 5) * 7 + [0],
        ),
        308778768832 + 576,
        15445924864,
    ),
}  # fmt: skip
