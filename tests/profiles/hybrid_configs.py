"""Published configurations of models with state-space layers; parameters in all, and active for a token.

Counted in the classes of transformers 5.24 on PyTorch's meta device.
"""

from __future__ import annotations

from typing import Any

Known = tuple[dict[str, Any], int, int]


def falcon_h1(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **other: Any
) -> dict[str, Any]:
    return {
        "model_type": "falcon_h1", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": 128, "intermediate_size": ffn, "vocab_size": vocab,
        "mamba_d_conv": 4, "mamba_d_head": 128, "mamba_d_state": 256, "mamba_n_groups": 1, "mamba_rms_norm": False,
        "max_position_embeddings": 262144, "tie_word_embeddings": False, **other,
    }  # fmt: skip


def minimax(**other: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": 80, "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 9216, "num_local_experts": 32, "num_experts_per_tok": 2,
        "vocab_size": 200064, "max_position_embeddings": 10240000, "tie_word_embeddings": False, "rotary_dim": 64,
        **other,
    }  # fmt: skip


def zamba2(hybrid: set[int], layers: int, hidden: int, **other: Any) -> dict[str, Any]:
    return {
        "model_type": "zamba2", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": 32,
        "layers_block_type": ["hybrid" if layer in hybrid else "mamba" for layer in range(layers)],
        "n_mamba_heads": hidden // 32, "intermediate_size": 4 * hidden, "vocab_size": 32000, "adapter_rank": 128,
        "max_position_embeddings": 4096, "use_mem_rope": True, "mamba_expand": 2, **other,
    }  # fmt: skip


EIGHTHS = [int(layer % 8 == 7) for layer in range(80)]
MINIMAX_COUNTS = 456_089_655_296, 48_403_306_496
HYBRIDS: dict[str, Known] = {
    "falcon-h1-0.5b": (
        falcon_h1(36, 1024, 8, 2, 2048, 32784, head_dim=64, mamba_d_head=64, mamba_n_heads=24, mamba_d_state=128,
                  mamba_d_ssm=1536, max_position_embeddings=16384),
        521_411_104, 521_411_104,
    ),
    "falcon-h1-34b": (
        falcon_h1(72, 5120, 20, 4, 21504, 261120, mamba_n_heads=32, mamba_d_ssm=4096, mamba_n_groups=2),
        33_642_221_312, 33_642_221_312,
    ),
    "falcon-mamba-7b": (
        {"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "intermediate_size": 8192,
         "vocab_size": 65024, "state_size": 16, "time_step_rank": 256, "expand": 16, "tie_word_embeddings": False},
        7_272_665_088, 7_272_665_088,
    ),
    "codestral-mamba-7b": (
        {"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768, "num_heads": 128,
         "head_dim": 64, "state_size": 128, "n_groups": 8, "tie_word_embeddings": False},
        7_285_403_648, 7_285_403_648,
    ),
    "mamba2-2.7b": (
        {"d_model": 2560, "d_intermediate": 0, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {"layer": "Mamba2"},
         "attn_layer_idx": [], "pad_vocab_size_multiple": 16, "tie_embeddings": True},
        2_702_599_680, 2_702_599_680,
    ),
    "minimax-text-01": (minimax(model_type="minimax_text_01", attn_type_list=EIGHTHS), *MINIMAX_COUNTS),
    "minimax-text-01-hf": (
        minimax(model_type="minimax", layer_types=["full_attention" if one else "linear_attention" for one in EIGHTHS]),
        *MINIMAX_COUNTS,
    ),
    "zamba2-1.2b": (
        zamba2(set(range(5, 36, 6)), 38, 2048, mamba_d_state=128, use_shared_attention_adapter=True),
        1_215_064_704, 1_215_064_704,
    ),
    "zamba2-7b": (
        zamba2({6, 11, *range(17, 78, 6)}, 81, 3584, mamba_d_state=64, mamba_ngroups=2, num_mem_blocks=2),
        7_356_749_648, 7_356_749_648,
    ),
}  # fmt: skip
