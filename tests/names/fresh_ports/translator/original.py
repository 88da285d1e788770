"""Sequence-to-sequence transformer for translation, pre-norm, output layer tied to the target embedding."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class PositionedEmbedding(nn.Module):
    def __init__(self, vocab, max_len, dim):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.zeros(max_len, dim))
        nn.init.normal_(self.tok.weight, std=dim**-0.5)
        nn.init.normal_(self.pos, std=0.3)

    def forward(self, ids):
        return self.tok(ids) * math.sqrt(self.tok.embedding_dim) + self.pos[: ids.shape[1]]


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, ff, dropout):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.linear1 = nn.Linear(dim, ff)
        self.linear2 = nn.Linear(ff, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, pad):
        y = self.norm1(x)
        x = x + self.dropout(self.self_attn(y, y, y, key_padding_mask=pad, need_weights=False)[0])
        return x + self.dropout(self.linear2(F.gelu(self.linear1(self.norm2(x)))))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, ff, dropout):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.multihead_attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.linear1 = nn.Linear(dim, ff)
        self.linear2 = nn.Linear(ff, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.norm3 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, causal, pad):
        y = self.norm1(x)
        x = x + self.dropout(self.self_attn(y, y, y, attn_mask=causal, need_weights=False)[0])
        y = self.norm2(x)
        y = self.multihead_attn(y, memory, memory, key_padding_mask=pad, need_weights=False)[0]
        x = x + self.dropout(y)
        return x + self.dropout(self.linear2(F.gelu(self.linear1(self.norm3(x)))))


class Translator(nn.Module):
    def __init__(self, vocab=61, max_len=16, dim=32, heads=4, ff=80, layers=2, dropout=0.1):
        super().__init__()
        self.src_embed = PositionedEmbedding(vocab, max_len, dim)
        self.tgt_embed = PositionedEmbedding(vocab, max_len, dim)
        self.encoder = nn.ModuleList(EncoderLayer(dim, heads, ff, dropout) for _ in range(layers))
        self.encoder_norm = nn.LayerNorm(dim)
        self.decoder = nn.ModuleList(DecoderLayer(dim, heads, ff, dropout) for _ in range(layers))
        self.decoder_norm = nn.LayerNorm(dim)
        self.generator = nn.Linear(dim, vocab)
        self.generator.weight = self.tgt_embed.tok.weight

    def forward(self, src, tgt):
        pad = src == PAD
        memory = self.src_embed(src)
        for layer in self.encoder:
            memory = layer(memory, pad)
        memory = self.encoder_norm(memory)
        n = tgt.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=tgt.device).triu(1)
        x = self.tgt_embed(tgt)
        for layer in self.decoder:
            x = layer(x, memory, causal, pad)
        return self.generator(self.decoder_norm(x))


def build():
    torch.manual_seed(83)
    model = Translator()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.15 if p.dim() == 1 else 0.06))
    return model.eval()
