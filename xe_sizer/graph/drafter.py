"""The shapes of drafters: modules for multi-token prediction, the heads of EAGLE and Medusa, blocks of DFlash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.graph.weights import embedding_weights, head_weights, layer_weights

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

# Assumed: width of the MLP over the hidden size where the model has no dense one; published heads have 2 to 6.
EAGLE_FFN = 3
EAGLE_STATES = 2  # published: the token's embedding and the model's last state (arXiv:2401.15077, section 4)
EAGLE3_STATES = 3  # published: states of a low, a middle and a high layer are joined (arXiv:2503.01840, section 3.1)
DFLASH_LAYERS = 5  # published: of z-lab/Qwen3-8B-DFlash-b16
DFLASH_STATES = 5  # published: that z-lab/Qwen3-8B-DFlash-b16 joins
EAGLE3_VOCABULARY = 32000  # published: of the heads for Llama 3 and Qwen3, the tokens that are used most


def mtp_module(model: ModelShape) -> ModelShape:
    """Build one module that predicts the token after the next, as a model of its own.

        x = W [norm(embedding); norm(state)]       W: hidden x 2 hidden
        logits = head(norm(layer(x)))              a layer as the model's last one

    The embedding and the head are those of the model.

    Parameters
    ----------
    model : its last layer [-]

    Returns
    -------
    ModelShape of one layer [-]

    Source: DeepSeek-V3 (arXiv:2412.19437, section 2.2); Qwen3-Next, GLM-4.5 and MiMo are alike (deepseek_mtp.py,
    qwen3_next_mtp.py, glm4_moe_mtp.py and mimo_mtp.py of vLLM).
    """
    last, pattern = model.layer_sequence[-1], model.layer_pattern
    experts = model.experts
    if pattern and model.norms_per_layer == 1:  # blocks of one half each: attention and an MLP follow each other
        pattern = "*E" if experts else "*-"
    elif pattern:
        pattern = "*" if model.compressed_attention else pattern[-1]
        experts = experts and replace(experts, first_dense_layers=0, every_n_layers=1)
    else:
        kept = experts and replace(experts, first_dense_layers=0, every_n_layers=1)
        experts = kept if last.mlp == "experts" else None
    return replace(
        model,
        name=f"{model.name} (MTP module)",
        layers=len(pattern or "*"),
        layer_pattern=pattern,
        windowed_layers=min(model.windowed_layers, 1) if model.compressed_attention else 0,
        kv_layers=None,
        borrowing_layers=0,
        layer_embedding=None,
        shared_blocks=None,
        experts=experts,
        ngram_tables=None,
        vision=None,
        mtp_layers=0,
        trained_mtp_layers=0,
        joined_width=2 * model.hidden,
    )


def mtp_parameters(model: ModelShape) -> int:
    """Parameters of one such module beside the embedding and the head, which are the model's [-]."""
    module = mtp_module(model)
    ends = (*embedding_weights(module), *head_weights(module))
    own = sum(weight.parameters for weight in ends if weight.split != "vocabulary")
    layers = (count * sum(one.parameters for one in layer_weights(module, kind)) for kind, count in module.layer_kinds)
    return int(own + sum(layers))


def eagle_head(model: ModelShape, stated: ModelShape | None = None) -> ModelShape:
    """Build the head of EAGLE: a layer over the token's embedding joined with the model's last state.

        x = W [embedding; state]       W: hidden x 2 hidden
        logits = head(layer(x))        the head of the model

    Parameters
    ----------
    model : for which it drafts [-]
    stated : the layer, where a profile has it; None: dense, as wide as those of the model [-]

    Returns
    -------
    ModelShape of one layer [-]

    Source: arXiv:2401.15077, section 4; eagle.py and llama_eagle.py of vLLM.
    """
    return replace(stated or _dense_layer(model), joined_width=EAGLE_STATES * model.hidden, vocab=model.vocab)


def eagle3_head(model: ModelShape, stated: ModelShape | None = None) -> ModelShape:
    """Build the head of EAGLE-3: three states of the model joined, a layer that reads them beside the embedding.

        g = W [low; middle; high]                        W: hidden x 3 hidden, once for every verified token
        logits = head(layer([norm(embedding); norm(g)]))     a vocabulary of its own

    Parameters
    ----------
    model : for which it drafts [-]
    stated : the layer and its vocabulary, where a profile has it; None: dense, as wide as those of the model [-]

    Returns
    -------
    ModelShape of one layer [-]

    Source: arXiv:2503.01840, section 3; llama_eagle3.py of vLLM.
    """
    layer = stated or replace(_dense_layer(model), vocab=min(model.vocab, EAGLE3_VOCABULARY))
    return replace(layer, joined_width=EAGLE3_STATES * model.hidden, doubled_input=True)


def medusa_heads(model: ModelShape, heads: int) -> ModelShape:
    """Build heads that each guess one position further from the last state alone, all at once.

        logits(k) = V(k) (x + silu(W(k) x))       W: hidden x hidden, V: hidden x vocabulary, of each head

    As a model: a layer of as many weights as W for each head, and all vocabularies side by side.

    Parameters
    ----------
    model : for which they draft [-]
    heads : positions that they draft [-]

    Returns
    -------
    ModelShape of a layer for each head, without attention [-]

    Source: arXiv:2401.10774, section 2.1.1; medusa.py of vLLM, whose heads have vocabularies of their own.
    """
    return replace(
        _products(_dense_layer(model), heads, model.hidden // 2),
        name=f"{model.name} (Medusa heads)",
        vocab=heads * model.vocab,
        final_norm=False,
    )


def dflash_block(model: ModelShape, stated: ModelShape | None = None) -> ModelShape:
    """Build the layers that fill a block of drafts in one pass.

        c = norm(W [states of 5 layers])             W: hidden x 5 hidden, once for every verified token
        logits = head(layers([token, masks]))        every token of the block sees the others, and keys and values of c

    Embedding and head are those of the model.

    Parameters
    ----------
    model : for which it drafts [-]
    stated : the layers, where a profile has them; None: five dense ones, as wide as those of the model [-]

    Returns
    -------
    ModelShape [-]

    Source: arXiv:2602.06036, section 4; qwen3_dflash.py of vLLM.
    """
    layers = stated or replace(_dense_layer(model), name=f"{model.name} (DFlash block)", layers=DFLASH_LAYERS)
    return replace(layers, joined_width=layers.joined_width or DFLASH_STATES * model.hidden, vocab=model.vocab)


def dflash_context(block: ModelShape) -> ModelShape:
    """Build what verified tokens pass before the block sees them: the joined states, keys and values of every layer.

        k, v = K c, V c         K, V: keys of all layers x hidden, once for every verified token

    As a model: the joining, and one layer of as many weights as these projections.

    Parameters
    ----------
    block : the layers that draft [-]

    Returns
    -------
    ModelShape of one layer without attention [-]

    Source: precompute_and_store_context_kv of vLLM (qwen3_dflash.py), one product for all layers.
    """
    return _products(block, 1, block.layers * block.kv_heads * block.head_dim)


def _products(model: ModelShape, layers: int, width: int) -> ModelShape:
    """Layers of two products each, from the hidden width to this one and back."""
    return replace(
        model,
        layers=layers,
        layer_pattern="-" * layers,
        norms_per_layer=1,
        activation="gelu",
        ffn=width,
        mlp_bias=False,
        qk_norm=None,
    )


def _dense_layer(model: ModelShape) -> ModelShape:
    """A layer of a Llama as wide as the model, with grouped queries of 128."""
    latent = model.latent_attention or model.compressed_attention
    heads = model.hidden // 128 if latent or not model.head_dim else model.heads
    kv_heads = max(heads // 8, 1) if latent else model.kv_heads
    return replace(
        model,
        name=f"{model.name} (EAGLE head)",
        layers=1,
        heads=heads,
        kv_heads=kv_heads if heads % kv_heads == 0 else heads,
        head_dim=128 if latent else model.head_dim,
        ffn=model.ffn or EAGLE_FFN * model.hidden,
        norms_per_layer=2,
        activation="swiglu",
        layer_pattern=None,
        state_space=None,
        shared_blocks=None,
        experts=None,
        latent_attention=None,
        indexer=None,
        compressed_attention=None,
        global_attention=None,
        sliding_window=None,
        windowed_layers=0,
        kv_layers=None,
        borrowing_layers=0,
        layer_embedding=None,
        residual_streams=1,
        stream_rank=0,
        ngram_tables=None,
        output_gate=False,
        attention_sinks=False,
        values_are_keys=False,
        qk_norm=None,
        vision=None,
        checkpoint_format=None,
        mtp_layers=0,
        trained_mtp_layers=0,
    )
