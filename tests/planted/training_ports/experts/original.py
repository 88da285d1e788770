"""A small decoder with a mixture of experts: every token goes to its two best experts."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, DIM, HEADS, HIDDEN, EXPERTS, TOP_K, LAYERS = 61, 14, 32, 4, 40, 4, 2, 2
BALANCE = 0.02
MICRO_BATCHES = 2
MAX_NORM = 0.5


class RMSNorm(nn.Module):
    """Root mean square norm with a gain."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, DIM, bias=False)
        self.v_proj = nn.Linear(DIM, DIM, bias=False)
        self.o_proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            proj(x).view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, DIM))


class Expert(nn.Module):
    """One gated feed-forward network."""

    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN)
        self.w2 = nn.Linear(HIDDEN, DIM)
        self.w3 = nn.Linear(DIM, HIDDEN)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoe(nn.Module):
    """A router and its experts; each expert sees only the tokens sent to it."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, DIM)
        probs = F.softmax(self.router(x), dim=-1)
        weights, chosen = torch.topk(probs, TOP_K, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            if token.numel():
                out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        load = F.one_hot(chosen, EXPERTS).float().sum(dim=1).mean(dim=0) / TOP_K
        balance = EXPERTS * (load * probs.mean(dim=0)).sum()
        return out.view(shape), balance


class Block(nn.Module):
    """Attention and experts, each after a norm and around a residual."""

    def __init__(self):
        super().__init__()
        self.input_layernorm = RMSNorm(DIM)
        self.self_attn = Attention()
        self.post_attention_layernorm = RMSNorm(DIM)
        self.block_sparse_moe = SparseMoe()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        y, balance = self.block_sparse_moe(self.post_attention_layernorm(x))
        return x + y, balance


class MoeDecoder(nn.Module):
    """The language model; returns the logits and the balance loss, a mean over the layers."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.embed_positions = nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens) + self.embed_positions.weight[: tokens.shape[1]]
        balances = []
        for layer in self.layers:
            x, balance = layer(x)
            balances.append(balance)
        return self.lm_head(self.norm(x)), torch.stack(balances).mean()


def build():
    """The model with its random weights."""
    torch.manual_seed(11)
    model = MoeDecoder()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.normal_(1.0, 0.1)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.05)
            elif "embed" in name:
                p.normal_(0.0, 0.5)
            elif "router" in name:
                p.normal_(0.0, 0.3)
            else:
                nn.init.xavier_normal_(p)
    return model


def objective(model, tokens, mask):
    """Next-token cross entropy over the real tokens plus the balance loss."""
    logits, balance = model(tokens)
    labels = tokens[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
    ce = F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
    return ce + BALANCE * balance


def training():
    """Model, optimizer and the step over two micro-batches."""
    model = build()
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=2e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )

    def step(batch):
        optimizer.zero_grad()
        total = 0.0
        for tokens, mask in zip(batch["tokens"].chunk(MICRO_BATCHES), batch["mask"].chunk(MICRO_BATCHES), strict=True):
            loss = objective(model, tokens, mask) / MICRO_BATCHES
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        return total

    return {"model": model, "optimizer": optimizer, "step": step}
