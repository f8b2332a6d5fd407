"""A small llama-architecture language model in plain PyTorch.

RMSNorm, rotary positions (interleaved pairs, so that the q/k weights go to GGUF unpermuted), grouped-query
attention, SwiGLU, no biases, tied embedding. The modules have the names of the GGUF tensors.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """Shape of a model; every field ends up in the GGUF metadata."""

    dim: int = 256
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 768
    vocab: int = 4096
    rope_base: float = 10000.0
    eps: float = 1e-5
    context: int = 2048

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)


PRESETS: dict[str, Config] = {
    "target": Config(),
    "draft": Config(dim=128, layers=2, heads=4, kv_heads=2, ffn=256),
    "draft-s": Config(dim=96, layers=2, heads=3, kv_heads=3, ffn=192),
    "draft-l": Config(dim=128, layers=3, heads=4, kv_heads=2, ffn=384),
}


class Block(nn.Module):
    """One layer: attention, then the feed-forward part, each added to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        kv = config.head_dim * config.kv_heads
        self.attn_norm = nn.RMSNorm(config.dim, eps=config.eps)
        self.attn_q = nn.Linear(config.dim, config.dim, bias=False)
        self.attn_k = nn.Linear(config.dim, kv, bias=False)
        self.attn_v = nn.Linear(config.dim, kv, bias=False)
        self.attn_output = nn.Linear(config.dim, config.dim, bias=False)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=config.eps)
        self.ffn_gate = nn.Linear(config.dim, config.ffn, bias=False)
        self.ffn_up = nn.Linear(config.dim, config.ffn, bias=False)
        self.ffn_down = nn.Linear(config.ffn, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._attention(self.attn_norm(x), cos, sin)
        h = self.ffn_norm(x)
        down: Tensor = self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))
        return x + down

    def _attention(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        c = self.config
        n_batch, n_time, _ = h.shape
        q = rotate(self.attn_q(h).view(n_batch, n_time, c.heads, c.head_dim), cos, sin).transpose(1, 2)
        k = rotate(self.attn_k(h).view(n_batch, n_time, c.kv_heads, c.head_dim), cos, sin).transpose(1, 2)
        v = self.attn_v(h).view(n_batch, n_time, c.kv_heads, c.head_dim).transpose(1, 2)
        group = c.heads // c.kv_heads
        if group > 1:  # query head i reads kv head i // group, as llama.cpp does
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.attn_output(mixed.transpose(1, 2).reshape(n_batch, n_time, c.dim))
        return out


class Model(nn.Module):
    """The whole model, freshly initialised from torch's generator."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocab, config.dim)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_norm = nn.RMSNorm(config.dim, eps=config.eps)
        cos, sin = _rope_tables(config, config.context)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if is_matrix(parameter):
                _initialise(name, parameter, config.layers)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch, time, vocab] for ids [batch, time]."""
        x = self.token_embd(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blk:
            x = block(x, cos, sin)
        return functional.linear(self.output_norm(x), self.token_embd.weight)

    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def is_matrix(parameter: Tensor) -> bool:
    """Not the weight of a norm."""
    return parameter.dim() > 1


def _initialise(name: str, matrix: Tensor, n_layers: int) -> None:
    if "embd" in name:
        scale = 0.02
    else:  # what writes to the stream is smaller the more layers do
        to_stream = "output" in name or "down" in name
        scale = ((2 * n_layers) ** -0.5 if to_stream else 1.0) * matrix.shape[1] ** -0.5
    nn.init.normal_(matrix, std=scale)


def _rope_tables(config: Config, length: int) -> tuple[Tensor, Tensor]:
    """Cos and sin, each [length, head_dim / 2]."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_base**-half)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x0,x1), (x2,x3), ... of x: [batch, time, heads, head_dim]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[None, :, None, :].to(x.dtype), sin[None, :, None, :].to(x.dtype)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
