"""Recurrent actor-critic: pictures, sensors and the last action in, policy logits and dueling action values out."""

import torch
import torch.nn.functional as F
from torch import nn


class ObservationNorm(nn.Module):
    """Running statistics of the sensors; updated by the collector, never by the optimiser."""

    def __init__(self, size, clip=5.0, eps=1e-5):
        super().__init__()
        self.clip, self.eps = clip, eps
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.register_buffer("count", torch.tensor(0, dtype=torch.int64))

    def forward(self, x):
        return ((x - self.running_mean) / torch.sqrt(self.running_var + self.eps)).clamp(-self.clip, self.clip)


class FrameEncoder(nn.Module):
    def __init__(self, out_features):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 16, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 24, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(24, 24, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.linear = nn.Linear(24 * 2 * 2, out_features)

    def forward(self, frames):
        return F.relu(self.linear(self.cnn(frames)))


def mlp(sizes, activation):
    first, hidden, last = sizes
    return nn.Sequential(nn.Linear(first, hidden), activation(), nn.Linear(hidden, last))


class ActorCritic(nn.Module):
    def __init__(self, num_actions=6, num_sensors=12, features=32, action_dim=16, hidden=40, num_layers=2):
        super().__init__()
        self.obs_rms = ObservationNorm(num_sensors)
        self.encoder = FrameEncoder(features)
        self.sensor_mlp = nn.Sequential(
            nn.Linear(num_sensors, features), nn.ReLU(), nn.Linear(features, features), nn.ReLU()
        )
        # one more row: no action yet
        self.action_embedding = nn.Embedding(num_actions + 1, action_dim)
        self.fuse = nn.Linear(2 * features + action_dim, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=num_layers)
        self.initial_h = nn.Parameter(torch.zeros(num_layers, hidden))
        self.initial_c = nn.Parameter(torch.zeros(num_layers, hidden))
        self.actor = mlp((hidden, 32, num_actions), nn.Tanh)
        self.value_stream = mlp((hidden, 32, 1), nn.ReLU)
        self.advantage_stream = mlp((hidden, 32, num_actions), nn.ReLU)

    def features(self, frames, sensors, prev_action):
        steps, batch = prev_action.shape
        image = self.encoder(frames.flatten(0, 1)).view(steps, batch, -1)
        body = self.sensor_mlp(self.obs_rms(sensors))
        joined = torch.cat([image, body, self.action_embedding(prev_action)], dim=-1)
        return torch.tanh(self.fuse(joined))

    def recur(self, x, first):
        h = self.initial_h.unsqueeze(1).expand(-1, x.shape[1], -1)
        c = self.initial_c.unsqueeze(1).expand(-1, x.shape[1], -1)
        start_h, start_c = h, c
        outputs = []
        for t in range(x.shape[0]):
            reset = first[t].view(1, -1, 1)
            h, c = h + reset * (start_h - h), c + reset * (start_c - c)
            y, (h, c) = self.rnn(x[t : t + 1], (h.contiguous(), c.contiguous()))
            outputs.append(y)
        return torch.cat(outputs), (h, c)

    def forward(self, frames, sensors, prev_action, first):
        x, state = self.recur(self.features(frames, sensors, prev_action), first)
        advantage = self.advantage_stream(x)
        q = self.value_stream(x) + advantage - advantage.mean(-1, keepdim=True)
        return self.actor(x), q, state


def build(seed=314):
    torch.manual_seed(seed)
    agent = ActorCritic()
    with torch.no_grad():
        for name, p in agent.named_parameters():
            if name.startswith("initial_"):
                p.normal_(0, 0.5)
            elif name.startswith("action_embedding"):
                p.normal_(0, 1.0)
            elif p.dim() == 1:
                p.normal_(0, 0.2)
            else:
                p.normal_(0, 1.3 / p[0].numel() ** 0.5)
        agent.value_stream[2].bias.fill_(0.4)
        agent.obs_rms.running_mean.normal_(0, 1.0)
        agent.obs_rms.running_var.uniform_(0.5, 4.0)
        agent.obs_rms.count.fill_(20480)
    return agent.eval()
