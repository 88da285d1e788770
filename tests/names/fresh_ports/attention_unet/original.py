"""U-Net with additive attention gates on the skip connections, for segmentation."""

import torch
from torch import nn

DEFAULTS = {"in_channels": 3, "classes": 5, "widths": (16, 24, 40), "groups": 4}


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out, groups):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, padding=1),
            nn.GroupNorm(groups, c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1),
            nn.GroupNorm(groups, c_out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.block(x)


class AttentionGate(nn.Module):
    def __init__(self, channels, inter, groups):
        super().__init__()
        self.W_g = nn.Sequential(nn.Conv2d(channels, inter, 1), nn.GroupNorm(groups, inter))
        self.W_x = nn.Sequential(nn.Conv2d(channels, inter, 1), nn.GroupNorm(groups, inter))
        self.psi = nn.Conv2d(inter, 1, 1)

    def forward(self, g, x):
        alpha = torch.sigmoid(self.psi(torch.relu(self.W_g(g) + self.W_x(x))))
        return x * alpha


class UpBlock(nn.Module):
    def __init__(self, c_in, c_out, groups):
        super().__init__()
        self.up = nn.ConvTranspose2d(c_in, c_out, 2, stride=2)
        self.gate = AttentionGate(c_out, c_out // 2, groups)
        self.conv = ConvBlock(2 * c_out, c_out, groups)

    def forward(self, x, skip):
        x = self.up(x)
        return self.conv(torch.cat([self.gate(x, skip), x], dim=1))


class AttentionUNet(nn.Module):
    def __init__(self, in_channels, classes, widths, groups):
        super().__init__()
        self.encoders = nn.ModuleList()
        c = in_channels
        for w in widths[:-1]:
            self.encoders.append(ConvBlock(c, w, groups))
            c = w
        self.pool = nn.MaxPool2d(2)
        self.bottleneck = ConvBlock(c, widths[-1], groups)
        self.decoders = nn.ModuleList()
        c = widths[-1]
        for w in reversed(widths[:-1]):
            self.decoders.append(UpBlock(c, w, groups))
            c = w
        self.out_conv = nn.Conv2d(c, classes, 1)

    def forward(self, image):
        skips, x = [], image
        for encoder in self.encoders:
            x = encoder(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottleneck(x)
        for decoder in self.decoders:
            x = decoder(x, skips.pop())
        return self.out_conv(x)


def build(cfg=None):
    torch.manual_seed(57)
    model = AttentionUNet(**{**DEFAULTS, **(cfg or {})})
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.2 if p.dim() == 1 else 0.05))
    return model.eval()
