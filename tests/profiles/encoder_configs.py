"""Published configurations of encoders and encoder-decoders; parameters in all, and active for a token.

Counted in the classes of transformers for masked tokens, and for sequences from sequences; of Flan-T5 and mT5, whose
head transformers 5 ties, in the published weights.
"""

from __future__ import annotations

from typing import Any

Known = tuple[dict[str, Any], int, int]


def bert_like(layers: int, hidden: int, heads: int, vocab: int, **further: Any) -> dict[str, Any]:
    return {
        "model_type": "bert", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "intermediate_size": 4 * hidden, "vocab_size": vocab, "max_position_embeddings": 512, "type_vocab_size": 2,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, **further,
    }  # fmt: skip


def roberta_like(layers: int, hidden: int, heads: int, vocab: int, **further: Any) -> dict[str, Any]:
    own = {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1}
    return bert_like(layers, hidden, heads, vocab, **own | further)


def deberta_v3(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return bert_like(
        layers, hidden, heads, 128100, model_type="deberta-v2", type_vocab_size=0, relative_attention=True,
        position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False,
    )  # fmt: skip


def modernbert(layers: int, hidden: int, heads: int, ffn: int) -> dict[str, Any]:
    return {
        "model_type": "modernbert", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "intermediate_size": ffn, "vocab_size": 50368, "max_position_embeddings": 8192, "local_attention": 128,
        "global_attn_every_n_layers": 3, "hidden_activation": "gelu", "norm_bias": False,
    }  # fmt: skip


def t5(layers: int, hidden: int, head_dim: int, ffn: int, heads: int, **further: Any) -> dict[str, Any]:
    return {
        "model_type": "t5", "is_encoder_decoder": True, "num_layers": layers, "num_decoder_layers": layers,
        "d_model": hidden, "d_kv": head_dim, "d_ff": ffn, "num_heads": heads, "vocab_size": 32128, "n_positions": 512,
        "feed_forward_proj": "relu", "relative_attention_num_buckets": 32, "dropout_rate": 0.1, **further,
    }  # fmt: skip


def bart(layers: int, hidden: int, heads: int, vocab: int, **further: Any) -> dict[str, Any]:
    halves = {f"{half}_{key}": value for half in ("encoder", "decoder") for key, value in (
        ("layers", layers), ("attention_heads", heads), ("ffn_dim", 4 * hidden))}  # fmt: skip
    return {
        "model_type": "bart", "is_encoder_decoder": True, "d_model": hidden, "vocab_size": vocab,
        "max_position_embeddings": 1024, "activation_function": "gelu", "dropout": 0.1, **halves, **further,
    }  # fmt: skip


FLAN = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
ENCODERS: dict[str, Known] = {
    name: (config, total, total)
    for name, config, total in (
        ("bert-base-uncased", bert_like(12, 768, 12, 30522), 109_514_298),
        ("bert-base-cased", bert_like(12, 768, 12, 28996), 108_340_804),
        ("bert-large-uncased", bert_like(24, 1024, 16, 30522), 335_174_458),
        ("roberta-base", roberta_like(12, 768, 12, 50265), 124_697_433),
        ("roberta-large", roberta_like(24, 1024, 16, 50265), 355_412_057),
        ("xlm-roberta-large", roberta_like(24, 1024, 16, 250002, model_type="xlm-roberta"), 560_142_482),
        ("electra-small-discriminator", bert_like(12, 256, 4, 30522, model_type="electra", embedding_size=128),
         13_546_682),
        ("distilbert-base-uncased",
         {"model_type": "distilbert", "n_layers": 6, "dim": 768, "n_heads": 12, "hidden_dim": 3072,
          "vocab_size": 30522, "max_position_embeddings": 512}, 66_985_530),
        ("deberta-v3-base", deberta_v3(12, 768, 12), 184_551_780),
        ("deberta-v3-large", deberta_v3(24, 1024, 16), 435_191_908),
        ("modernbert-base", modernbert(22, 768, 12, 1152), 149_655_232),
        ("modernbert-large", modernbert(28, 1024, 16, 2624), 395_881_664),
        ("t5-small", t5(6, 512, 64, 2048, 8), 60_506_624),
        ("t5-11b", t5(24, 1024, 128, 65536, 128), 11_307_321_344),
        ("flan-t5-xl", t5(24, 2048, 64, 5120, 32, **FLAN), 2_849_757_184),
        ("mt5-small", t5(8, 512, 64, 1024, 6, **FLAN | {"model_type": "mt5", "vocab_size": 250112}), 300_176_768),
        ("bart-large", bart(12, 1024, 16, 50265), 406_291_456),
        ("albert-base-v2", bert_like(12, 768, 12, 30000, model_type="albert", embedding_size=128), 11_221_680),
        ("all-mpnet-base-v2", bert_like(12, 768, 12, 30527, model_type="mpnet", max_position_embeddings=514),
         109_518_527),
        ("nomic-embed-text-v1.5", bert_like(12, 768, 12, 30528, model_type="nomic_bert", hidden_act="silu"),
         137_354_304),
        # without the 768 biases of each down projection
        ("gte-multilingual-base", bert_like(12, 768, 12, 250048, model_type="new", type_vocab_size=1),
         306_210_496 - 12 * 768),
        ("jina-embeddings-v3", bert_like(24, 1024, 16, 250002, model_type="xlm-roberta", type_vocab_size=1,
                                         position_embedding_type="rotary", max_position_embeddings=8194), 559_616_146),
        ("eurobert-210m", bert_like(12, 768, 12, 128256, model_type="eurobert", hidden_act="silu",
                                    tie_word_embeddings=False), 310_266_624),
        ("ettin-decoder-150m", modernbert(22, 768, 12, 1152) | {"model_type": "modernbert-decoder"}, 149_655_232),
        ("mbart-large-50", bart(12, 1024, 16, 250054, model_type="mbart"), 610_879_488),
    )
}  # fmt: skip
