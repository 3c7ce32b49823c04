"""Modules of PyTorch, and methods."""

import math

import torch
from torch import nn

RIGHT = ("ScaledDotProductAttention", "MultiHeadAttention", "Tools.attend", "Configured")
WRONG = {
    "KeyValueSwapped": "swaps key and value",
    "HeadsMerged": "head",
    "SoftmaxOverHeads.forward": "takes the softmax over the heads",
    "AlwaysCausal": "applies a causal mask although none is requested",
}


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(attn_dropout)

    def forward(self, q, k, v, mask=None):
        scores = torch.matmul(q / self.temperature, k.transpose(2, 3))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        weights = self.dropout(scores.softmax(-1))
        return torch.matmul(weights, v), weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.shape[0], -1, self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], -1, self.num_heads * self.head_dim)

    def weights(self, scores):
        return torch.nan_to_num(scores.softmax(-1))

    def forward(self, value, key, query, mask=None):
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.w_o(self.merge(self.dropout(self.weights(scores)) @ v))


class Tools:
    @staticmethod
    def attend(q, k, v, attention_mask=None):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        return torch.nan_to_num(scores.softmax(-1)) @ v


class KeyValueSwapped(MultiHeadAttention):
    def forward(self, query, key, value, mask=None):
        return super().forward(key, value, query, mask)


class HeadsMerged(MultiHeadAttention):
    def merge(self, x):
        return x.reshape(x.shape[0], -1, self.num_heads * self.head_dim)


class SoftmaxOverHeads(ScaledDotProductAttention):
    def forward(self, q, k, v, mask=None):
        scores = torch.matmul(q / self.temperature, k.transpose(2, 3))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        return torch.matmul(scores.softmax(1), v)


class Configured(nn.Module):
    """As in GPT: an object has the sizes, the projections are packed, and a buffer has a row for each position."""

    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.attn_pdrop if getattr(config, "uses_dropout", True) else 0.0)
        self.register_buffer("visible", self.pattern(torch.ones(config.block_size, config.block_size)).bool())
        self.n_head = config.n_head

    @staticmethod
    def pattern(ones):
        return ones

    def forward(self, x, mask=None):
        length = x.shape[1]
        q, k, v = (each.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for each in self.c_attn(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        scores = scores.masked_fill(~self.visible[:length, :length], -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        weights = self.dropout(torch.nan_to_num(scores.softmax(-1)))
        return self.c_proj((weights @ v).transpose(1, 2).flatten(-2))


class AlwaysCausal(Configured):
    pattern = staticmethod(torch.tril)
