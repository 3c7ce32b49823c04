"""NumPy classes with matrices as attributes, and functions with each matrix as an argument."""

import numpy as np

RIGHT = ("Attention", "Biased", "projected")
WRONG = {"Unscaled": "does not scale the logits", "Transposed": "transposed projection weights", "swapped": "k, q, v"}


def _split(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)


def _attended(q, k, v, scale, mask=None):
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    raised = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(scores.dtype).min))
    total = raised.sum(axis=-1, keepdims=True)
    heads = raised / np.where(total == 0, 1, total) @ v
    return heads.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


class Attention:
    """It cannot be called itself: its method is forward."""

    power = -0.5

    def __init__(self, d_model, num_heads):
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = np.random.default_rng(0).standard_normal((4, d_model, d_model))

    def forward(self, query, key, value, mask=None):
        given = ((query, self.W_q), (key, self.W_k), (value, self.W_v))
        q, k, v = (_split(x @ weight, self.num_heads) for x, weight in given)
        return _attended(q, k, v, self.d_k**self.power, mask) @ self.W_o


class Unscaled(Attention):
    power = 0


class Transposed(Attention):
    def forward(self, query, key, value, mask=None):
        given = ((query, self.W_q), (key, self.W_k), (value, self.W_v))
        q, k, v = (_split(x @ weight.T, self.num_heads) for x, weight in given)
        return _attended(q, k, v, self.d_k**-0.5, mask) @ self.W_o.T


class Biased:
    def __init__(self, d_model, num_heads):
        self.num_heads = num_heads
        for part in "qkvo":
            setattr(self, f"W{part}", np.zeros((d_model, d_model)))
            setattr(self, f"b{part}", np.zeros(d_model))

    def __call__(self, x, mask=None):
        pairs = ((self.Wq, self.bq), (self.Wk, self.bk), (self.Wv, self.bv))
        q, k, v = (_split(x @ weight + bias, self.num_heads) for weight, bias in pairs)
        return _attended(q, k, v, q.shape[-1] ** -0.5, mask) @ self.Wo + self.bo


def projected(X, W_Q, W_K, W_V, W_O, num_heads, mask=None):
    q, k, v = (_split(X @ weight, num_heads) for weight in (W_Q, W_K, W_V))
    return _attended(q, k, v, q.shape[-1] ** -0.5, mask) @ W_O


def swapped(query, key, value, wq, bq, wk, bk, wv, bv, wo, bo, num_heads):
    pairs = ((query, wk, bk), (key, wq, bq), (value, wv, bv))
    q, k, v = (_split(x @ weight + bias, num_heads) for x, weight, bias in pairs)
    return _attended(q, k, v, q.shape[-1] ** -0.5) @ wo + bo
