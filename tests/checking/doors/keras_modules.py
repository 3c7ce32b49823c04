"""Keras layers: weights are created in the first call, and no number can be subtracted from a boolean tensor."""

import tensorflow as tf
from keras import Layer, layers, ops

RIGHT = ("Attention", "SelfAttention", "Wrapped")
WRONG = {
    "Tutorial": "reads True in mask as: ignore this key",
    "Unscaled": "does not scale the logits",
    "Swapped": "key and value",
}


def _split(x, num_heads):
    return ops.transpose(ops.reshape(x, (*ops.shape(x)[:2], num_heads, -1)), (0, 2, 1, 3))


def _merged(x):
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (ops.shape(x)[0], ops.shape(x)[2], -1))


class Attention(Layer):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query_dense, self.key_dense = layers.Dense(d_model), layers.Dense(d_model)
        self.value_dense, self.combine_heads = layers.Dense(d_model), layers.Dense(d_model)

    def scores(self, q, k):
        return ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5

    def call(self, query, key, value, mask=None):
        q, k = _split(self.query_dense(query), self.num_heads), _split(self.key_dense(key), self.num_heads)
        scores = self.scores(q, k)
        if mask is not None:
            scores = ops.where(mask, scores, -float("inf"))
        heads = ops.matmul(ops.nan_to_num(ops.softmax(scores)), _split(self.value_dense(value), self.num_heads))
        return self.combine_heads(_merged(heads))


class Unscaled(Attention):
    def scores(self, q, k):
        return ops.matmul(q, ops.swapaxes(k, -1, -2))


class Swapped(Attention):
    def call(self, query, key, value, mask=None):
        return super().call(query, value, key, mask)


class SelfAttention(Layer):
    """Matrices instead of layers, and biases that belong to them."""

    def __init__(self, units, num_heads):
        super().__init__()
        self.units, self.num_heads = units, num_heads

    def build(self, shape):
        for part in "qkvo":
            setattr(self, f"W{part}", self.add_weight(shape=(shape[-1], self.units), name=f"W{part}"))
            setattr(self, f"b{part}", self.add_weight(shape=(self.units,), name=f"b{part}"))

    def call(self, inputs, mask=None):
        pairs = ((self.Wq, self.bq), (self.Wk, self.bk), (self.Wv, self.bv))
        q, k, v = (_split(ops.matmul(inputs, weight) + bias, self.num_heads) for weight, bias in pairs)
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = ops.where(mask, scores, -float("inf"))
        return ops.matmul(_merged(ops.matmul(ops.nan_to_num(ops.softmax(scores)), v)), self.Wo) + self.bo


class Wrapped(Layer):
    """A layer of Keras inside, whose kernels have an axis for the heads."""

    def __init__(self, embed_dim, num_heads, rate=0.1):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim // num_heads, dropout=rate)

    def call(self, query, value, key, attention_mask=None, training=False):
        return self.attention(query, value, key, attention_mask=attention_mask, training=training)


class Tutorial(Layer):
    """As a tutorial of TensorFlow has it: value first, a mask is required, and 1 hides a key."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.depth = num_heads, d_model // num_heads
        self.wq, self.wk, self.wv = layers.Dense(d_model), layers.Dense(d_model), layers.Dense(d_model)
        self.dense = layers.Dense(d_model)

    def call(self, v, k, q, mask):
        q, k, v = (_split(layer(x), self.num_heads) for layer, x in ((self.wq, q), (self.wk, k), (self.wv, v)))
        logits = tf.matmul(q, k, transpose_b=True) / tf.math.sqrt(tf.cast(self.depth, q.dtype))
        if mask is not None:
            logits += mask * -1e9
        weights = tf.nn.softmax(logits, axis=-1)
        return self.dense(_merged(tf.matmul(weights, v))), weights
