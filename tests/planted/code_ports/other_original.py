"""More small models most of whose work is done by their code: states, graphs, chains, positions, feature maps."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Retained(nn.Module):
    """Attention that decays by distance instead of a softmax, with a norm for each head."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm = nn.GroupNorm(2, 16, eps=1e-3)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, 2, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
        decay = torch.log(1 - 2.0 ** (-1 - torch.arange(2).to(x.dtype)))
        apart = (torch.arange(t)[:, None] - torch.arange(t)[None, :]).to(x.dtype)
        kept = torch.exp(decay[:, None, None] * apart).masked_fill(apart < 0, 0.0)
        y = (q @ (k * 8**-0.5).transpose(-1, -2) * kept) @ v
        y = y.transpose(1, 2).reshape(b * t, 16)
        return self.o(self.norm(y).view(b, t, 16))


class Convex(nn.Module):
    """A field made larger, each new point a mean of nine old ones by weights that are learnt."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.flow = nn.Conv2d(3, 2, 3, padding=1)
        self.mask = nn.Conv2d(3, 36, 3, padding=1)
        self.last = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        mask = torch.softmax(0.25 * self.mask(x).view(b, 1, 9, 2, 2, h, w), dim=2)
        near = F.unfold(2 * self.flow(x), (3, 3), padding=1).view(b, 2, 9, 1, 1, h, w)
        y = (mask * near).sum(2).permute(0, 1, 4, 2, 5, 3)
        return self.last(y.reshape(b, 2, 2 * h, 2 * w))


class Relative(nn.Module):
    """Attention by content and by relative place, the places moved along the rows of the scores."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.p, self.o = (nn.Linear(16, 16) for _ in range(5))
        self.u, self.w = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(2, 8))

    def forward(self, x):
        b, t, _ = x.shape
        place = torch.arange(t - 1, -t, -1).to(x.dtype)
        angles = place[:, None] / 100.0 ** (torch.arange(8).to(x.dtype) / 8)
        p = self.p(torch.cat([angles.sin(), angles.cos()], -1)).view(2 * t - 1, 2, 8)
        q = self.q(x).view(b, t, 2, 8)
        k, v = (layer(x).view(b, t, 2, 8) for layer in (self.k, self.v))
        content = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        placed = torch.einsum("bihd,jhd->bhij", q + self.w, p)
        placed = F.pad(placed, (1, 0)).view(b, 2, 2 * t, t)[:, :, 1:].reshape(b, 2, t, 2 * t - 1)[..., :t]
        shares = ((content + placed) / math.sqrt(8)).softmax(-1)
        return self.o(torch.einsum("bhij,bjhd->bihd", shares, v).reshape(b, t, 16))


class Selective(nn.Module):
    """States that are kept by steps of unlike length, one token after the other."""

    def __init__(self):
        super().__init__()
        self.into, self.step, self.out = nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.made, self.read = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
        self.rate, self.skip = nn.Parameter(torch.randn(8, 4) * 0.5), nn.Parameter(torch.randn(8))

    def forward(self, x):
        u = F.silu(self.into(x))
        delta = F.softplus(self.step(u))
        a = -torch.exp(self.rate)
        made, read = self.made(u), self.read(u)
        state, outs = torch.zeros(x.shape[0], 8, 4), []
        for i in range(x.shape[1]):
            kept = torch.exp(delta[:, i, :, None] * a)
            state = kept * state + (delta[:, i] * u[:, i])[..., None] * made[:, i, None]
            outs.append((state * read[:, i, None]).sum(-1))
        return self.out(torch.stack(outs, 1) + u * self.skip)


class Levels(nn.Module):
    """Features that are rounded to some levels each."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 3), nn.Linear(3, 5)

    def forward(self, x):
        half = (torch.tensor([7.0, 5.0, 4.0]) - 1) * (1 - 1e-3) / 2
        offset = torch.tensor([0.0, 0.0, 0.5])
        z = torch.tanh(self.first(x) + (offset / half).atanh()) * half - offset
        return self.last(z.round() / torch.tensor([3.0, 2.0, 2.0]))


class Centred(nn.Module):
    """What tokens are apart from some centres, summed for each centre."""

    def __init__(self):
        super().__init__()
        self.assign = nn.Linear(16, 4)
        self.centres = nn.Parameter(torch.randn(4, 16))
        self.last = nn.Linear(64, 5)

    def forward(self, x):
        x = F.normalize(x, p=2, dim=-1)
        shares = F.softmax(self.assign(x), dim=-1)
        apart = x[:, :, None] - self.centres
        y = (shares[..., None] * apart).sum(1)
        y = F.normalize(y, p=2, dim=2).flatten(1)
        return self.last(F.normalize(y, p=2, dim=1))


class Graphed(nn.Module):
    """Means over neighbours, then attention to them."""

    kind = "graph"

    def __init__(self):
        super().__init__()
        self.mean, self.w, self.last = nn.Linear(16, 12), nn.Linear(12, 8, bias=False), nn.Linear(8, 5)
        self.near, self.far = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x, edges):
        a = edges.to(x.dtype) + torch.eye(edges.shape[-1])
        root = a.sum(-1).pow(-0.5)
        y = F.elu((root[:, :, None] * a * root[:, None, :]) @ self.mean(x))
        h = self.w(y)
        scores = F.leaky_relu((h @ self.near)[:, :, None] + (h @ self.far)[:, None, :], 0.2)
        shares = scores.masked_fill(a == 0, -1e9).softmax(-1)
        return self.last(F.elu(shares @ h))


class Squeezed(nn.Module):
    """Channels weighted by what the whole image says."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.less, self.more = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        y = F.hardswish(self.conv(x))
        scale = F.adaptive_avg_pool2d(y, 1)
        scale = F.hardsigmoid(self.more(F.relu(self.less(scale))))
        return self.last(F.max_pool2d(y * scale, 3, stride=2, padding=1))


class Recurrent(nn.Module):
    """A gated cell written by hand."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(16, 24), nn.Linear(8, 24)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        h, outs = torch.zeros(x.shape[0], 8), []
        for i in range(x.shape[1]):
            xr, xz, xn = self.x(x[:, i]).chunk(3, -1)
            hr, hz, hn = self.h(h).chunk(3, -1)
            r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
            n = torch.tanh(xn + r * hn)
            h = (1 - z) * n + z * h
            outs.append(h)
        return self.last(torch.stack(outs, 1))


class Chained(nn.Module):
    """Shares of labels in a chain, by sums over all ways."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(16, 4)
        self.moves, self.start = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        e = self.scores(x)
        alpha, seen = self.start + e[:, 0], []
        for i in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.moves, dim=1) + e[:, i]
            seen.append(alpha)
        return torch.stack(seen, 1) - torch.logsumexp(alpha, -1)[:, None, None]


class Mixed(nn.Module):
    """Tokens mixed by a transform to frequencies, and a block of two layers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = self.norm(x + torch.fft.fft2(x).real)
        return y + self.down(F.gelu(self.up(y), approximate="tanh"))


class Placed(nn.Module):
    """Places that are counted over what is no padding, beside the tokens."""

    kind = "tokens"

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(20, 16, padding_idx=1), nn.Embedding(16, 16, padding_idx=1)
        self.norm, self.last = nn.LayerNorm(16, eps=1e-3), nn.Linear(16, 5)

    def forward(self, ids):
        mask = ids.ne(1).int()
        places = torch.cumsum(mask, dim=1).type_as(mask) * mask + 1
        y = self.norm(self.token(ids) * 4.0 + self.place(places.long()))
        y = y.masked_fill(mask[..., None] == 0, -1e4).amax(1)
        return self.last(torch.tanh(y))


class Pyramid(nn.Module):
    """Coarse features added to fine ones."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.a, self.b, self.last = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        fine = F.relu(self.fine(x))
        coarse = F.relu(self.coarse(fine))
        top = self.b(coarse)
        y = self.a(fine) + F.interpolate(top, size=fine.shape[-2:], mode="nearest")
        y = F.local_response_norm(y, 3, alpha=0.3, beta=0.75, k=1.0)
        return self.last(y)


class Sliding(nn.Module):
    """Attention to the four tokens before, with a sink that all see."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        apart = torch.arange(t)[:, None] - torch.arange(t)[None]
        seen = ((apart >= 0) & (apart < 4)) | (torch.arange(t)[None] == 0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=8**-0.5)
        return self.o(y.transpose(1, 2).reshape(b, t, 16))


class Anchored(nn.Module):
    """Boxes by the distances of their sides from points of a grid."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.conv, self.sides = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 4, 1)
        self.score = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        y = F.relu(self.conv(x))
        h, w = y.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        points = (torch.stack([columns, rows], -1).to(x.dtype) + 0.5) * 2
        sides = F.softplus(self.sides(y)).permute(0, 2, 3, 1)
        boxes = torch.cat([points - sides[..., :2], points + sides[..., 2:]], -1)
        return boxes.flatten(1, 2), self.score(y).sigmoid().flatten(1)


class Styled(nn.Module):
    """A norm of each channel of each image, moved by a style."""

    kind = "image"

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 2, 1)
        self.style = nn.Linear(3, 12)

    def forward(self, x):
        y = 0.1 * self.conv(x)
        gain, shift = self.style(x.mean((2, 3))).unsqueeze(-1).unsqueeze(-1).chunk(2, 1)
        y = F.instance_norm(y, eps=1e-3) * (1 + gain) + shift
        y = F.leaky_relu(y, 0.2)
        return self.last(y / y.pow(2).mean(1, keepdim=True).add(1e-8).sqrt())


class Lifted(nn.Module):
    """A wave made longer, with a snake for its activation."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(12, 8, 3, padding=1), nn.Conv1d(8, 4, 3)
        self.alpha = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x):
        y = F.interpolate(self.first(x), scale_factor=2, mode="linear", align_corners=False)
        alpha = self.alpha[:, None]
        y = y + torch.sin(alpha * y) ** 2 / (alpha + 1e-9)
        return torch.tanh(self.last(F.pad(y, (1, 1), mode="replicate")))


def build(name):
    """A model by the name of its class."""
    torch.manual_seed(0)
    return globals()[name]().eval()


def inputs(name):
    """What the model of a name is given."""
    rng = np.random.default_rng(2)
    kind = getattr(globals()[name], "kind", "")
    if kind == "tokens":
        ids = rng.integers(2, 20, (3, 12))
        few = np.array([[12], [2], [3]])  # so few that padding would be the largest
        return {"ids": np.where(np.arange(12) < few, ids, 1)}
    given = {"x": rng.standard_normal((2, 3, 10, 12) if kind == "image" else (3, 12, 16)).astype(np.float32)}
    if kind == "graph":
        edges = np.triu(rng.random((3, 12, 12)) < 0.3, 1)
        given["edges"] = (edges | edges.swapaxes(1, 2)).astype(np.int64)
    return given
