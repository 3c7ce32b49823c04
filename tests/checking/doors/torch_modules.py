"""Modules of PyTorch, and methods."""

import math

import torch
from torch import nn

RIGHT = ("ScaledDotProductAttention", "MultiHeadAttention", "Tools.attend")
WRONG = {
    "KeyValueSwapped": "swaps key and value",
    "HeadsMerged": "head",
    "SoftmaxOverHeads.forward": "takes the softmax over the heads",
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
