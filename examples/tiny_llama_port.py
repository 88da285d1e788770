"""The MindSpore port of tiny_llama.py, with a key/value cache that it takes and returns as `past_key_values`."""

from __future__ import annotations

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as ms
from tiny_llama import EPSILON, GROUPS, HEADS, INNER, LAYERS, THETA, VOCABULARY, WIDTH


def build():
    """The port, with random weights."""
    return Llama()


class Llama(nn.Cell):
    """The language model: logits of every token, and the cache."""

    def __init__(self):
        super().__init__()
        self.model = Decoder()
        self.lm_head = nn.Dense(WIDTH, VOCABULARY, has_bias=False)

    def construct(self, input_ids, past_key_values=None):
        """Logits (sequences, tokens, vocabulary), and keys and values of all tokens so far, layer by layer."""
        before = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        places = self.places(before, input_ids.shape[1])
        hidden = np.arange(before + len(places)) > np.arange(before, before + len(places))[:, None]
        mask = Tensor(np.where(hidden, -np.inf, 0.0), ms.float32)
        x, cache = self.model(input_ids, past_key_values, places, mask)
        return self.lm_head(x), cache

    def places(self, before, count):
        """Where the new tokens stand in the text."""
        return np.arange(before, before + count)


class Decoder(nn.Cell):
    """Embedding, blocks, norm."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.CellList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm()

    def construct(self, ids, past, places, mask):
        """The last hidden states, and the cache."""
        speeds = THETA ** (-np.arange(0, WIDTH // HEADS, 2, dtype=np.float32) * HEADS / WIDTH)
        angles = np.tile(np.outer(places, speeds), 2).astype(np.float32)
        wave = Tensor(np.cos(angles)), Tensor(np.sin(angles))
        x, cache = self.embed_tokens(ids), []
        for layer, own in zip(self.layers, past or [None] * LAYERS, strict=True):
            x, kept = layer(x, wave, mask, own)
            cache.append(kept)
        return self.norm(x), cache


class Block(nn.Cell):
    """Attention and feed-forward, each behind a norm and beside a shortcut."""

    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm()
        self.self_attn = Attention()
        self.post_attention_layernorm = RMSNorm()
        self.mlp = FeedForward()

    def construct(self, x, wave, mask, past):
        """The hidden states after this block, and its part of the cache."""
        seen, cache = self.self_attn(self.input_layernorm(x), wave, mask, past)
        x = x + seen
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Attention(nn.Cell):
    """Causal attention with rotary positions, whose heads share keys and values in groups."""

    def __init__(self):
        super().__init__()
        shared = WIDTH * GROUPS // HEADS
        self.q_proj = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.k_proj = nn.Dense(WIDTH, shared, has_bias=False)
        self.v_proj = nn.Dense(WIDTH, shared, has_bias=False)
        self.o_proj = nn.Dense(WIDTH, WIDTH, has_bias=False)

    def construct(self, x, wave, mask, past):
        """What each token gathers from those before it."""
        q, k, v = (self.split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, wave), rotate(k, wave)
        if past is not None:
            k, v = ops.cat((past[0], k), 2), ops.cat((past[1], v), 2)
        keys, values = (ops.repeat_interleave(one, HEADS // GROUPS, 1) for one in (k, v))
        scores = ops.matmul(q, keys.swapaxes(2, 3)) / (WIDTH // HEADS) ** 0.5
        mixed = ops.matmul(ops.softmax(scores + mask, -1), values)
        return self.o_proj(mixed.swapaxes(1, 2).reshape(x.shape)), (k, v)

    def split(self, x):
        """Heads before tokens."""
        return x.reshape(*x.shape[:2], -1, WIDTH // HEADS).swapaxes(1, 2)


class FeedForward(nn.Cell):
    """Two projections, one of which gates the other."""

    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Dense(WIDTH, INNER, has_bias=False)
        self.up_proj = nn.Dense(WIDTH, INNER, has_bias=False)
        self.down_proj = nn.Dense(INNER, WIDTH, has_bias=False)

    def construct(self, x):
        """Each token by itself."""
        return self.down_proj(ops.silu(self.gate_proj(x)) * self.up_proj(x))


class RMSNorm(nn.Cell):
    """Division by the root mean square."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(WIDTH, np.float32)))

    def construct(self, x):
        """Scale to a root mean square of 1, then by the weights."""
        return self.weight * (x * ops.rsqrt(x.square().mean(-1, keep_dims=True) + EPSILON))


def rotate(x, wave):
    """Turn each pair of features by the angle of its place."""
    cos, sin = wave
    half = WIDTH // HEADS // 2
    return x * cos + ops.cat((-x[..., half:], x[..., :half]), -1) * sin
