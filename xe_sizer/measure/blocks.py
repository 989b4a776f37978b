"""A transformer in plain PyTorch, for a machine without transformers, or a shape that none of its classes has.

The same operators, one kernel after the other, as the eager classes of transformers have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

EAGER = "eager"
_EPSILON = 1e-6


class Norm(nn.Module):  # type: ignore[misc]  # torch is not there where types are checked
    """Root mean square in float32, as LlamaRMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        wide = states.to(torch.float32)
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + _EPSILON)
        return self.weight * scaled.to(states.dtype)


def _rotated(states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * cosine + turned * sine


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped queries with rotary positions; one fused kernel, or step by step."""

    def __init__(self, shape: ModelShape, kernel: str) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.kernel = shape.heads, shape.kv_heads, shape.head_dim, kernel
        self.rotary = shape.position == "rope"
        bias = shape.qkv_bias
        self.q_proj = nn.Linear(shape.hidden, self.heads * self.size, bias=bias)
        self.k_proj = nn.Linear(shape.hidden, self.kv_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(shape.hidden, self.kv_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.size, shape.hidden, bias=shape.output_bias)

    def forward(self, states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        batch, length, _ = states.shape

        def heads(projected: torch.Tensor) -> torch.Tensor:
            return projected.view(batch, length, -1, self.size).transpose(1, 2)

        queries, keys, values = heads(self.q_proj(states)), heads(self.k_proj(states)), heads(self.v_proj(states))
        if self.rotary:
            queries, keys = _rotated(queries, cosine, sine), _rotated(keys, cosine, sine)
        if self.kernel == EAGER:
            mixed = self._step_by_step(queries, keys, values)
        else:
            grouped = self.heads != self.kv_heads
            mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=grouped)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))

    def _step_by_step(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        groups = self.heads // self.kv_heads
        keys, values = keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)
        scores = torch.matmul(queries, keys.transpose(2, 3)) * self.size**-0.5
        length = queries.shape[2]
        mask = torch.full((length, length), float("-inf"), dtype=queries.dtype, device=queries.device).triu(1)
        weights = F.softmax(scores + mask, dim=-1, dtype=torch.float32).to(queries.dtype)
        return torch.matmul(weights, values)


class Mlp(nn.Module):  # type: ignore[misc]
    """Gated, or one product up and one down."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.mlp_bias
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=bias) if shape.gated else None
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=bias)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if self.gate_proj is None:
            return self.down_proj(F.gelu(self.up_proj(states)))
        return self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))


class Block(nn.Module):  # type: ignore[misc]
    """One layer."""

    def __init__(self, shape: ModelShape, kernel: str) -> None:
        super().__init__()
        norm = Norm if shape.norm == "rmsnorm" else nn.LayerNorm
        self.input_layernorm, self.post_attention_layernorm = norm(shape.hidden), norm(shape.hidden)
        self.self_attn, self.mlp = Attention(shape, kernel), Mlp(shape)

    def forward(self, states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        states = states + self.self_attn(self.input_layernorm(states), cosine, sine)
        return states + self.mlp(self.post_attention_layernorm(states))


class Decoder(nn.Module):  # type: ignore[misc]
    """Embedding, layers, head and the loss of the next token in float32."""

    def __init__(self, shape: ModelShape, kernel: str, recompute: bool) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, kernel) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden) if shape.norm == "rmsnorm" else nn.LayerNorm(shape.hidden)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        states = self.embed_tokens(input_ids)
        places = torch.arange(input_ids.shape[1], device=states.device, dtype=torch.float32)
        size = self.shape.head_dim
        rates = 10000.0 ** (-torch.arange(0, size, 2, device=states.device, dtype=torch.float32) / size)
        angles = torch.cat((torch.outer(places, rates),) * 2, dim=-1)
        turns = angles.cos().to(states.dtype), angles.sin().to(states.dtype)
        for layer in self.layers:
            if self.recompute and self.training:
                states = checkpoint(layer, states, *turns, use_reentrant=False, preserve_rng_state=False)
            else:
                states = layer(states, *turns)
        logits = self.lm_head(self.norm(states))
        if labels is None:
            return {"logits": logits}
        logits = logits.float()
        following = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return {"loss": F.cross_entropy(logits.view(-1, logits.shape[-1]), following.reshape(-1))}


class LowRank(nn.Module):  # type: ignore[misc]
    """A frozen projection with a low-rank update beside it, in float32 as peft keeps it."""

    def __init__(self, base: nn.Linear, rank: int, dropout: float) -> None:
        super().__init__()
        self.base = base
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.lora_a = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float32, device=base.weight.device)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float32, device=base.weight.device)
        self.adapts = True

    def enable_adapters(self, enabled: bool) -> None:
        """Whether the update counts, by the name that peft's layers have for it."""
        self.adapts = enabled

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if not self.adapts:
            return self.base(states)
        update = self.lora_b(self.lora_a(self.dropout(states.to(self.lora_a.weight.dtype)))) * 2.0
        return self.base(states) + update.to(states.dtype)


def adapt(model: nn.Module, targets: set[str], rank: int, dropout: float) -> int:
    """Freeze a model and put adapters beside its projections of these names; how many."""
    model.requires_grad_(False)
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if name in targets and isinstance(child, nn.Linear)
    ]
    for parent, name, child in places:
        setattr(parent, name, LowRank(child, rank, dropout))
    return len(places)
