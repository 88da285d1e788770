"""A small causal language model with a tied head, trained with accumulated micro-batches."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, LENGTH = 61, 32, 4, 3, 16
PAD = 0
MICRO = (4, 2, 1)
LR, WARMUP, TOTAL, FLOOR = 3e-3, 4, 40, 0.1


class CausalSelfAttention(nn.Module):
    """Causal attention with one projection for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(DIM, 3 * DIM, bias=False)
        self.c_proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for y in self.c_attn(x).split(DIM, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, DIM))


class MLP(nn.Module):
    """The feed-forward part of a block."""

    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(DIM, 4 * DIM)
        self.c_proj = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm."""

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(DIM)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(DIM)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """The whole model; the head shares the token embedding's weight."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(LENGTH, DIM)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, std=0.15 / math.sqrt(2 * LAYERS))
            if name.endswith("c_attn.weight"):
                nn.init.normal_(p, std=0.2)

    @staticmethod
    def _init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.08)
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, mean=1.0, std=0.1)
        if getattr(module, "bias", None) is not None:
            nn.init.normal_(module.bias, std=0.05)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def build():
    """The model with its first weights."""
    torch.manual_seed(11)
    return GPT()


def warmup_cosine(step):
    """The factor on the learning rate at a step."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = (step - WARMUP) / (TOTAL - WARMUP)
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))


def training():
    """The model, its optimizer and one step."""
    model = build()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
        lr=LR,
        betas=(0.9, 0.95),
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)

    def step(batch):
        model.train()
        tokens = batch["tokens"].long()
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        count = (targets != PAD).sum()
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for x, y in zip(inputs.split(MICRO), targets.split(MICRO), strict=True):
            logits = model(x)
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), y.reshape(-1), ignore_index=PAD, reduction="sum") / count
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 2.5)
        optimizer.step()
        scheduler.step()
        return total

    return {"model": model, "optimizer": optimizer, "step": step}
