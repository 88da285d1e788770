"""A small UNet that predicts v, trained with min-SNR weights and averaged weights."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, INNER, TIME, STEPS = 2, (12, 16), 24, 50
GAMMA, DECAY = 5.0, 0.99


def timestep_embedding(timestep, dim):
    """Sines and cosines of the timestep."""
    half = dim // 2
    freqs = torch.exp(-math.log(1000.0) * torch.arange(half, dtype=torch.float32, device=timestep.device) / half)
    angles = timestep.float()[:, None] * freqs[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResnetBlock(nn.Module):
    """Two convolutions with the time added between them."""

    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.time_emb_proj = nn.Linear(TIME, cout)
        self.norm2 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1, bias=False) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_emb_proj(F.silu(emb))[:, :, None, None]
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    """Attention over all positions of a feature map."""

    def __init__(self, dim):
        super().__init__()
        self.group_norm = nn.GroupNorm(4, dim)
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.group_norm(x).flatten(2).transpose(1, 2)
        y = F.scaled_dot_product_attention(self.to_q(y), self.to_k(y), self.to_v(y))
        return x + self.to_out(y).transpose(1, 2).reshape(b, c, h, w)


class UNet(nn.Module):
    """Down, a middle with attention, and up again."""

    def __init__(self):
        super().__init__()
        a, b = INNER
        self.time_embedding = nn.Sequential(nn.Linear(TIME, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.conv_in = nn.Conv2d(CHANNELS, a, 3, padding=1)
        self.down_block = ResnetBlock(a, a)
        self.downsample = nn.Conv2d(a, b, 3, stride=2, padding=1)
        self.mid_block = ResnetBlock(b, b)
        self.mid_attention = Attention(b)
        self.upsample = nn.Conv2d(b, a, 3, padding=1)
        self.up_block = ResnetBlock(2 * a, a)
        self.conv_norm_out = nn.GroupNorm(4, a)
        self.conv_out = nn.Conv2d(a, CHANNELS, 3, padding=1)

    def forward(self, sample, timestep):
        emb = self.time_embedding(timestep_embedding(timestep, TIME))
        x = self.conv_in(sample)
        skip = self.down_block(x, emb)
        x = self.mid_attention(self.mid_block(self.downsample(skip), emb))
        x = self.upsample(F.interpolate(x, scale_factor=2, mode="nearest"))
        x = self.up_block(torch.cat([x, skip], dim=1), emb)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Diffusion(nn.Module):
    """The network that is trained, the moving average of its weights, and the noise levels."""

    def __init__(self):
        super().__init__()
        self.unet = UNet()
        for module in self.unet.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_uniform_(module.weight, a=1.0)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=0.1)
            if isinstance(module, nn.GroupNorm):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)
        self.ema = copy.deepcopy(self.unet).requires_grad_(False)
        angle = (torch.arange(STEPS, dtype=torch.float64) + 0.5) / STEPS * math.pi / 2
        self.register_buffer("alphas_cumprod", torch.cos(angle).square().float())

    def forward(self, sample, timestep):
        return self.unet(sample, timestep)

    def loss(self, clean, noise, timestep):
        """The weighted error of the predicted v."""
        level = self.alphas_cumprod[timestep][:, None, None, None]
        noisy = level.sqrt() * clean + (1 - level).sqrt() * noise
        target = level.sqrt() * noise - (1 - level).sqrt() * clean
        error = F.mse_loss(self.unet(noisy, timestep), target, reduction="none").mean(dim=(1, 2, 3))
        snr = (level / (1 - level)).flatten()
        return (error * snr.clamp(max=GAMMA) / (snr + 1)).mean()

    @torch.no_grad()
    def update_ema(self, step):
        """Move the average towards the trained weights."""
        decay = min(DECAY, (1 + step) / (10 + step))
        for mean, p in zip(self.ema.parameters(), self.unet.parameters(), strict=True):
            mean.lerp_(p, 1 - decay)


def build():
    """The model with its first weights."""
    torch.manual_seed(34)
    return Diffusion()


def training():
    """The model, its optimizer and one step."""
    model = build()
    optimizer = torch.optim.AdamW(model.unet.parameters(), lr=3e-4, betas=(0.9, 0.99), weight_decay=0.05)
    done = 0

    def step(batch):
        nonlocal done
        model.unet.train()
        optimizer.zero_grad()
        loss = model.loss(batch["clean"], batch["noise"], batch["timestep"].long())
        loss.backward()
        nn.utils.clip_grad_norm_(model.unet.parameters(), 0.2)
        optimizer.step()
        model.update_ema(done)
        done += 1
        return loss.detach()

    return {"model": model, "optimizer": optimizer, "step": step}
