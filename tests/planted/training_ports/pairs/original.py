"""A two-tower contrastive model of images and captions with a learned temperature."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, DEPTH, EMBED = 32, 4, 2, 24
PATCH, GRID = 4, 4
VOCAB, LENGTH = 50, 10
MIN_SCALE, MAX_SCALE = math.log(10.0), math.log(100.0)


class QuickGELU(nn.Module):
    """A fast approximation of GELU."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Attention(nn.Module):
    """Self-attention; False in the mask hides a key."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask=None):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        if mask is not None:
            mask = mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(b, n, WIDTH))


class ResidualAttentionBlock(nn.Module):
    """One pre-norm block."""

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), QuickGELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, mask=None):
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class VisionTower(nn.Module):
    """Patches and a class token to one vector."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(WIDTH) * 0.1)
        self.positional_embedding = nn.Parameter(torch.randn(GRID * GRID + 1, WIDTH) * 0.1)
        self.ln_pre = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([ResidualAttentionBlock() for _ in range(DEPTH)])
        self.ln_post = nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.randn(WIDTH, EMBED) * WIDTH**-0.5)

    def forward(self, image):
        x = self.conv1(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], dim=1)
        x = self.ln_pre(x + self.positional_embedding)
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x[:, 0]) @ self.proj


class TextTower(nn.Module):
    """Tokens, 0 for padding, to one vector: the mean over the real tokens."""

    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.blocks = nn.ModuleList([ResidualAttentionBlock() for _ in range(DEPTH)])
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Linear(WIDTH, EMBED, bias=False)

    def forward(self, tokens):
        mask = tokens != 0
        x = self.token_embedding(tokens) + self.positional_embedding[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        x = self.ln_final(x) * mask[..., None]
        return self.text_projection(x.sum(dim=1) / mask.sum(dim=1, keepdim=True))


class ClipModel(nn.Module):
    """Both towers and the temperature; returns scores of images against texts and the reverse."""

    def __init__(self):
        super().__init__()
        self.visual = VisionTower()
        self.text = TextTower()
        self.logit_scale = nn.Parameter(torch.tensor(MIN_SCALE + 1.2e-3))

    def forward(self, image, tokens):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text(tokens), dim=-1)
        logits = self.logit_scale.exp() * image_features @ text_features.t()
        return logits, logits.t()


def build():
    """The model with its random weights."""
    torch.manual_seed(31)
    model = ClipModel()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".ln_" in name:
                p.normal_(1.0 if name.endswith("weight") else 0.0, 0.1)
            elif name.endswith("bias"):
                p.normal_(0.0, 0.05)
            elif "token_embedding" in name:
                p.normal_(0.0, 0.4)
    return model


def contrastive_loss(model, batch):
    """Symmetric cross entropy over the pairs of the batch."""
    per_image, per_text = model(batch["image"], batch["tokens"])
    labels = torch.arange(len(per_image))
    return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


def training():
    """Model, loss, optimizer and step."""
    model = build()
    linear = [m.weight for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    chosen = {id(p) for p in linear}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizer = torch.optim.Adam(
        [{"params": linear, "weight_decay": 1e-2}, {"params": rest}], lr=1e-3, betas=(0.9, 0.98), eps=1e-10
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=1e-5)

    def step(batch):
        loss = contrastive_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            model.logit_scale.clamp_(MIN_SCALE, MAX_SCALE)
        return loss

    return {"model": model, "loss": contrastive_loss, "optimizer": optimizer, "step": step}
