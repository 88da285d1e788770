"""Contrastive image and text model: two pre-norm transformers of one width and a common embedding space."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TowerConfig:
    width: int = 32
    layers: int = 2
    heads: int = 4
    mlp_ratio: int = 3


@dataclass
class Config:
    image_size: int = 24
    patch_size: int = 6
    vocab_size: int = 48
    context_length: int = 17
    embed_dim: int = 32
    vision: TowerConfig = field(default_factory=TowerConfig)
    text: TowerConfig = field(default_factory=TowerConfig)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x, causal):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.proj(x.transpose(1, 2).reshape(b, n, d))


class ResidualBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.width)
        self.attn = Attention(cfg.width, cfg.heads)
        self.ln_2 = nn.LayerNorm(cfg.width)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.width, cfg.width * cfg.mlp_ratio),
            nn.GELU(),
            nn.Linear(cfg.width * cfg.mlp_ratio, cfg.width),
        )

    def forward(self, x, causal):
        x = x + self.attn(self.ln_1(x), causal)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, cfg, causal):
        super().__init__()
        self.causal = causal
        self.resblocks = nn.ModuleList(ResidualBlock(cfg) for _ in range(cfg.layers))

    def forward(self, x):
        for block in self.resblocks:
            x = block(x, self.causal)
        return x


class VisionTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg.vision.width
        self.conv1 = nn.Conv2d(3, width, cfg.patch_size, cfg.patch_size, bias=False)
        self.class_embedding = nn.Parameter(width**-0.5 * torch.randn(width))
        patches = (cfg.image_size // cfg.patch_size) ** 2
        self.positional_embedding = nn.Parameter(0.3 * torch.randn(patches + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(cfg.vision, causal=False)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(width**-0.5 * torch.randn(width, cfg.embed_dim))

    def forward(self, image):
        x = self.conv1(image).flatten(2).transpose(1, 2)
        cls = self.class_embedding.expand(x.shape[0], 1, -1)
        x = self.ln_pre(torch.cat([cls, x], dim=1) + self.positional_embedding)
        return self.ln_post(self.transformer(x)[:, 0]) @ self.proj


class TwoTowers(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg.text.width
        self.visual = VisionTower(cfg)
        self.token_embedding = nn.Embedding(cfg.vocab_size, width)
        self.positional_embedding = nn.Parameter(0.3 * torch.randn(cfg.context_length, width))
        self.transformer = Transformer(cfg.text, causal=True)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(width**-0.5 * torch.randn(width, cfg.embed_dim))
        self.logit_scale = nn.Parameter(torch.tensor(1.8))

    def encode_text(self, text):
        x = self.token_embedding(text) + self.positional_embedding[: text.shape[1]]
        x = self.ln_final(self.transformer(x))
        # the end of the text has the largest number of all tokens
        return x[torch.arange(x.shape[0]), text.argmax(dim=-1)] @ self.text_projection

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.encode_text(text), dim=-1)
        logits = self.logit_scale.exp() * image_features @ text_features.t()
        return image_features, text_features, logits


def build(cfg=None):
    torch.manual_seed(127)
    model = TwoTowers(cfg or Config())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.15 if p.dim() < 2 else 0.05))
    return model.eval()
