"""Small models most of whose work is done by their code, as published models have it: one class a kind of code."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Router(nn.Module):
    """Experts chosen for each token, weighted by their shares among all."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.gate = nn.Linear(16, 6, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 8) for _ in range(6))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(x)
        shares = F.softmax(self.gate(x), dim=-1)
        top, index = shares.topk(2, dim=-1)
        weights = torch.zeros_like(shares).scatter(-1, index, top)
        made = torch.stack([one(x) for one in self.experts], dim=-2)
        return self.head((weights.unsqueeze(-1) * made).sum(-2))


class Spectrogram(nn.Module):
    """Logarithms of a spectrogram's power."""

    kind = "wave"

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32), persistent=False)
        self.fc = nn.Linear(17, 8)

    def forward(self, x):
        spectrum = torch.stft(x, 32, 16, window=self.window, center=True, return_complex=True)
        power = spectrum.abs() ** 2
        return self.fc(torch.log(power + 1e-3).transpose(1, 2))


class Packed(nn.Module):
    """A recurrent layer over sequences of unlike lengths."""

    kind = "lengths"

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        mask = (torch.arange(x.shape[1])[None] < lengths[:, None]).to(x.dtype)
        mean = (out * mask[..., None]).sum(1) / lengths[:, None]
        return self.head(mean)


class Resized(nn.Module):
    """An image made smaller, with a filter, and larger again."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.mix = nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        y = F.interpolate(self.conv(x), size=(5, 6), mode="bilinear", align_corners=False, antialias=True)
        y = F.relu(self.mix(y))
        y = F.interpolate(y, size=(10, 12), mode="bilinear", align_corners=False)
        return self.last(y)


class Warped(nn.Module):
    """A feature map read at other places."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.flow = nn.Conv2d(4, 2, 3, padding=1)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        y = self.conv(x)
        h, w = y.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([(columns + 0.5) * 2 / w - 1, (rows + 0.5) * 2 / h - 1], -1).to(x.dtype)
        grid = grid + 0.3 * torch.tanh(self.flow(y)).permute(0, 2, 3, 1)
        return self.last(F.grid_sample(y, grid, mode="bilinear", padding_mode="zeros", align_corners=False))


def slopes(heads):
    """The slopes of linear biases, for any number of heads."""
    near = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 / near * (i + 1)) for i in range(near)]
    return first + [2 ** (-4 / near * (i + 1)) for i in range(0, 2 * (heads - near), 2)]


class Biased(nn.Module):
    """Causal attention with linear biases for six heads."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(48 if i == 3 else 16, 16 if i == 3 else 48) for i in range(4))
        self.register_buffer("slopes", torch.tensor(slopes(6))[:, None, None], persistent=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, 6, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        place = torch.arange(t)
        scores = scores + self.slopes * (place[None, :] - place[:, None]).to(x.dtype)
        scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        y = scores.softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, 48))


class Grouped(nn.Module):
    """Attention with rotary positions whose queries share keys in groups."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 32), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(32, 16)

    def turned(self, x):
        t, d = x.shape[-2:]
        inverse = 1.0 / 100.0 ** (torch.arange(0, d, 2).to(x.dtype) / d)
        angles = torch.outer(torch.arange(t).to(x.dtype), inverse)
        angles = torch.cat([angles, angles], -1)
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

    def forward(self, x):
        b, t, _ = x.shape
        q = self.turned(self.q(x).view(b, t, 4, 8).transpose(1, 2))
        k = self.turned(self.k(x).view(b, t, 2, 8).transpose(1, 2))
        v = self.v(x).view(b, t, 2, 8).transpose(1, 2)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, 32))


class Gated(nn.Module):
    """A block with a norm by the root of the mean square, and a gate."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.gain = nn.Parameter(torch.rand(16) + 0.5)
        self.up = nn.Linear(16, 48)
        self.down = nn.Linear(24, 16)

    def forward(self, x):
        x = 0.05 * self.first(x)
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.gain
        gate, value = self.up(y).chunk(2, -1)
        return x + self.down(F.gelu(gate) * value)


class Dilated(nn.Module):
    """Two convolutions, of which one is given what is padded already."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(3, 4, 3, dilation=2)
        self.near = nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        y = F.relu(self.wide(F.pad(x, (2, 2, 2, 2))))
        return self.last(F.relu(self.near(y)))


class Windows(nn.Module):
    """Attention in windows that are moved."""

    kind = "map"

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.table = nn.Parameter(torch.randn(49, 2))
        self.proj = nn.Linear(16, 16)
        places = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None, :] + 3
        self.register_buffer("index", apart[0] * 7 + apart[1], persistent=False)

    def forward(self, x):
        b, h, w, c = x.shape
        x = torch.roll(x, (-2, -2), (1, 2))
        x = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(x).view(-1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * 8**-0.5 + self.table[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)
        y = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c))
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, (2, 2), (1, 2))


class Pooled(nn.Module):
    """The mean of what is no padding, of length one, compared with the others of its batch."""

    kind = "masked"

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 24)
        self.proj = nn.Linear(24, 12, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, x, attention_mask):
        y = torch.tanh(self.embed(x))
        mask = attention_mask.unsqueeze(-1).to(x.dtype)
        y = self.proj((y * mask).sum(1) / mask.sum(1).clamp(min=1e-9))
        y = F.normalize(y, dim=-1)
        return self.scale.exp() * y @ y.t()


class Pixels(nn.Module):
    """An image in patches, and back."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 16)
        self.out = nn.Conv2d(16, 12, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        y = F.unfold(x, 2, stride=2).transpose(1, 2)
        y = F.silu(self.embed(y))
        y = self.out(y.transpose(1, 2).reshape(b, 16, h // 2, w // 2))
        return F.pixel_shuffle(y, 2)


class Normed(nn.Module):
    """A convolution with standardised weights, and a norm in groups."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.gain, self.bias = nn.Parameter(torch.rand(8) + 0.5), nn.Parameter(torch.randn(8))
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        flat = self.weight.flatten(1)
        weight = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 1e-5)
        y = F.conv2d(x, weight.view_as(self.weight), padding=1)
        y = F.group_norm(y, 4, self.gain, self.bias, eps=1e-3)
        return self.last(F.relu(y))


class Timed(nn.Module):
    """Features that are moved by the time of a step."""

    kind = "times"

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first = nn.Linear(16, 16)
        self.last = nn.Linear(16, 5)

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(1000.0) * torch.arange(8).to(x.dtype) / 8)
        angles = t[:, None].to(x.dtype) * frequencies[None]
        made = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        scale, shift = made[:, None].chunk(2, -1)
        y = F.layer_norm(self.first(x), (16,), eps=1e-6)
        return self.last(y * (1 + scale) + shift)


class Scanned(nn.Module):
    """Linear attention over what was before."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 16)

    def forward(self, x):
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        states = torch.einsum("btd,bte->btde", k, v).cumsum(1)
        sums = k.cumsum(1)
        y = torch.einsum("btd,btde->bte", q, states) / ((q * sums).sum(-1, keepdim=True) + 1e-6)
        return self.o(y)


class Boxes(nn.Module):
    """Boxes from anchors and what is added to them, with their scores."""

    def __init__(self):
        super().__init__()
        self.deltas, self.scores = nn.Linear(16, 4), nn.Linear(16, 3)
        self.register_buffer("anchors", torch.rand(12, 4) + torch.tensor([0.0, 0.0, 1.0, 2.0]))

    def forward(self, x):
        dx, dy, dw, dh = self.deltas(x).unbind(-1)
        left, top, right, bottom = self.anchors.unbind(-1)
        w, h = right - left, bottom - top
        cx, cy = left + 0.5 * w + dx * w, top + 0.5 * h + dy * h
        w, h = w * dw.clamp(max=0.5).exp(), h * dh.clamp(max=0.5).exp()
        boxes = torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], -1)
        return boxes, torch.sigmoid(self.scores(x)).max(-1).values


class Handmade(nn.Module):
    """A norm and a smooth function written out."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 5)
        self.gain, self.shift = nn.Parameter(torch.rand(24) + 0.5), nn.Parameter(torch.randn(24))

    def forward(self, x):
        y = self.first(x)
        mean = y.mean(-1, keepdim=True)
        y = (y - mean) / (((y - mean) ** 2).mean(-1, keepdim=True) + 1e-3).sqrt()
        y = y * self.gain + self.shift
        return self.last(y * torch.sigmoid(1.702 * y))


class Convolved(nn.Module):
    """Each channel convolved over what was before, and gated."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 5)
        self.kernel = nn.Parameter(torch.randn(8, 4))

    def forward(self, x):
        y = self.first(x).transpose(1, 2)
        y = F.conv1d(F.pad(y, (3, 0)), self.kernel[:, None], groups=8)
        return self.last(F.silu(y.transpose(1, 2)) * self.gate(x).sigmoid())


class Buckets(nn.Module):
    """Attention with biases by the logarithm of the distance."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.bias = nn.Embedding(8, 2)

    def buckets(self, t):
        apart = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        side = (apart > 0).long() * 4
        apart = apart.abs()
        far = 2 + (torch.log(apart.clamp(min=1).float() / 2) / math.log(16 / 2) * 2).long()
        return side + torch.where(apart < 2, apart, far.clamp(max=3))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, 2, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) + self.bias(self.buckets(t)).permute(2, 0, 1)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, 16))


class Codes(nn.Module):
    """The nearest of some vectors for each token."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(16, 6), nn.Linear(6, 5)
        self.codes = nn.Parameter(torch.randn(10, 6))

    def forward(self, x):
        y = self.before(x)
        index = torch.cdist(y, self.codes[None].expand(len(y), -1, -1)).argmin(-1)
        return self.after(self.codes[index] + 0.1 * y)


class Shifted(nn.Module):
    """Some channels from the step before, some from the step behind."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x):
        y = self.first(x)
        moved = torch.zeros_like(y)
        moved[:, 1:, :4] = y[:, :-1, :4]
        moved[:, :-1, 4:8] = y[:, 1:, 4:8]
        moved[:, :, 8:] = y[:, :, 8:]
        pooled = F.max_pool1d(moved.transpose(1, 2), 2).transpose(1, 2)
        return self.last(pooled / pooled.norm(dim=-1, keepdim=True))


class Crossed(nn.Module):
    """Learnt queries that attend to what is no padding."""

    kind = "masked"

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(3, 16))
        self.kv, self.o = nn.Linear(16, 32), nn.Linear(16, 5)

    def forward(self, x, attention_mask):
        b, t, _ = x.shape
        k, v = self.kv(x).chunk(2, -1)
        q = self.queries.expand(b, -1, -1).view(b, 3, 4, 4).transpose(1, 2)
        k, v = (one.view(b, t, 4, 4).transpose(1, 2) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask[:, None, None].bool())
        return self.o(y.transpose(1, 2).flatten(2))


def build(name):
    """A model by the name of its class."""
    torch.manual_seed(0)
    return globals()[name]().eval()


def inputs(name):
    """What the model of a name is given."""
    rng = np.random.default_rng(1)
    shape = {"wave": (2, 256), "image": (2, 3, 10, 12), "map": (2, 8, 12, 16)}
    kind = getattr(globals()[name], "kind", "")
    given = {"x": rng.standard_normal(shape.get(kind, (3, 12, 16))).astype(np.float32)}
    if kind == "lengths":
        given["lengths"] = np.array([12, 7, 9])
    if kind == "masked":
        given["attention_mask"] = (np.arange(12) < np.array([[12], [7], [9]])).astype(np.int64)
    if kind == "times":
        given["t"] = np.array([3, 500, 71])
    return given
