"""Conformer encoder for speech recognition: convolutional subsampling, relative positions, frame-wise logits."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ConformerConfig:
    n_mels: int = 18
    d_model: int = 32
    n_heads: int = 4
    ff_mult: int = 2
    conv_kernel: int = 7
    n_layers: int = 2
    vocab_size: int = 24
    dropout: float = 0.1


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        inner = cfg.d_model * cfg.ff_mult
        self.layer_norm = nn.LayerNorm(cfg.d_model)
        self.linear1 = nn.Linear(cfg.d_model, inner)
        self.dropout = nn.Dropout(cfg.dropout)
        self.linear2 = nn.Linear(inner, cfg.d_model)

    def forward(self, x):
        x = F.silu(self.linear1(self.layer_norm(x)))
        return self.dropout(self.linear2(self.dropout(x)))


class RelPositionAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h, self.d_k = cfg.n_heads, cfg.d_model // cfg.n_heads
        self.linear_q = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.linear_k = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.linear_v = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.linear_out = nn.Linear(cfg.d_model, cfg.d_model)
        self.linear_pos = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(self.h, self.d_k))
        self.pos_bias_v = nn.Parameter(torch.empty(self.h, self.d_k))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    @staticmethod
    def rel_shift(x):
        b, h, t, n = x.shape
        x = F.pad(x, (1, 0)).view(b, h, n + 1, t)
        return x[:, :, 1:].reshape(b, h, t, n)[..., : n // 2 + 1]

    def forward(self, x, pos_emb, pad_mask):
        b, t, _ = x.shape
        q = self.linear_q(x).view(b, t, self.h, self.d_k)
        k = self.linear_k(x).view(b, t, self.h, self.d_k).transpose(1, 2)
        v = self.linear_v(x).view(b, t, self.h, self.d_k).transpose(1, 2)
        p = self.linear_pos(pos_emb).view(-1, self.h, self.d_k).transpose(0, 1)
        content = (q + self.pos_bias_u).transpose(1, 2) @ k.transpose(-2, -1)
        position = self.rel_shift((q + self.pos_bias_v).transpose(1, 2) @ p.transpose(-2, -1))
        scores = (content + position) / math.sqrt(self.d_k)
        scores = scores.masked_fill(pad_mask[:, None, None, :], -1e9)
        out = scores.softmax(-1) @ v
        return self.linear_out(out.transpose(1, 2).reshape(b, t, -1))


class ConvolutionModule(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.d_model
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise_conv = nn.Conv1d(d, d, cfg.conv_kernel, padding=cfg.conv_kernel // 2, groups=d)
        self.norm = nn.BatchNorm1d(d)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1)

    def forward(self, x, pad_mask):
        x = F.glu(self.pointwise_conv1(x.transpose(1, 2)), dim=1)
        x = x.masked_fill(pad_mask[:, None, :], 0.0)
        x = F.silu(self.norm(self.depthwise_conv(x)))
        return self.pointwise_conv2(x).transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.feed_forward1 = FeedForward(cfg)
        self.norm_self_att = nn.LayerNorm(cfg.d_model)
        self.self_attn = RelPositionAttention(cfg)
        self.norm_conv = nn.LayerNorm(cfg.d_model)
        self.conv = ConvolutionModule(cfg)
        self.feed_forward2 = FeedForward(cfg)
        self.norm_out = nn.LayerNorm(cfg.d_model)
        self.dropout = nn.Dropout(cfg.dropout)

    def forward(self, x, pos_emb, pad_mask):
        x = x + 0.5 * self.feed_forward1(x)
        x = x + self.dropout(self.self_attn(self.norm_self_att(x), pos_emb, pad_mask))
        x = x + self.dropout(self.conv(self.norm_conv(x), pad_mask))
        x = x + 0.5 * self.feed_forward2(x)
        return self.norm_out(x)


class ConvSubsampling(nn.Module):
    """Two convolutions of stride 2: a quarter of the frames."""

    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, cfg.d_model, 3, 2), nn.ReLU(), nn.Conv2d(cfg.d_model, cfg.d_model, 3, 2), nn.ReLU()
        )
        bins = ((cfg.n_mels - 1) // 2 - 1) // 2
        self.out = nn.Linear(cfg.d_model * bins, cfg.d_model)

    def forward(self, feats, lengths):
        x = self.conv(feats.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.out(x.transpose(1, 2).reshape(b, t, c * f))
        return x, ((lengths - 1) // 2 - 1) // 2


class Conformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.pre_encode = ConvSubsampling(cfg)
        self.layers = nn.ModuleList(ConformerLayer(cfg) for _ in range(cfg.n_layers))
        self.decoder = nn.Linear(cfg.d_model, cfg.vocab_size)

    def positions(self, t):
        """Sines and cosines of the distances t - 1 down to 1 - t."""
        distance = torch.arange(t - 1, -t, -1.0)[:, None]
        rate = torch.exp(torch.arange(0, self.cfg.d_model, 2.0) * (-math.log(10000.0) / self.cfg.d_model))
        table = torch.zeros(2 * t - 1, self.cfg.d_model)
        table[:, 0::2] = torch.sin(distance * rate)
        table[:, 1::2] = torch.cos(distance * rate)
        return table

    def forward(self, feats, lengths):
        x, lengths = self.pre_encode(feats, lengths)
        pos_emb = self.positions(x.shape[1])
        pad_mask = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
        for layer in self.layers:
            x = layer(x, pos_emb, pad_mask)
        return self.decoder(x)


def build(cfg=None):
    torch.manual_seed(311)
    model = Conformer(cfg or ConformerConfig())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.07)
        for m in model.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.running_mean.normal_(0, 0.15)
                m.running_var.uniform_(0.2, 0.9)
    return model.eval()
