"""Writes the files of Paddle beside it, with what its model computes: python make_paddle_files.py.

Needs paddlepaddle 3.3.1 (CPU), which the tests do not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
from paddle import nn

FOLDER = Path(__file__).parent


class Net(nn.Layer):
    """A convolution, norms, linear layers with and without bias, and an embedding that looks like one of these."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2D(1, 2, 2), nn.BatchNorm2D(2)
        self.fc, self.norm = nn.Linear(8, 5), nn.LayerNorm(5)
        self.head, self.emb = nn.Linear(5, 3, bias_attr=False), nn.Embedding(6, 3)

    def forward(self, image, index):
        x = nn.functional.relu(self.bn(self.conv(image))).flatten(1)
        return self.head(self.norm(self.fc(x))) + self.emb(index)


def main():
    paddle.seed(0)
    net = Net()
    net.train()
    image = paddle.randn([4, 1, 3, 3])
    index = paddle.to_tensor([0, 2, 5, 1])
    net(image, index)  # moves the running statistics
    net.eval()
    paddle.save(net.state_dict(), str(FOLDER / "net.pdparams"))
    paddle.save(net.state_dict(), str(FOLDER / "net_protocol2.pdparams"), protocol=2)
    paddle.save({"model": net.state_dict(), "epoch": 3}, str(FOLDER / "nested.pdparams"))
    half = nn.Linear(2, 3)
    half.to(dtype="bfloat16")
    paddle.save(half.state_dict(), str(FOLDER / "half.pdparams"))
    out = net(image, index)
    np.savez(FOLDER / "paddle_outputs.npz", image=image.numpy(), index=index.numpy(), out=out.numpy())


if __name__ == "__main__":
    main()
