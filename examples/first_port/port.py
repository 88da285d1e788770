"""The port of original.py to MindSpore, with three faults of kinds that real ports have: `align run` finds them."""

from mindspore import nn, ops


class Residual(nn.Cell):
    """Two convolutions around a sum."""

    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(width)

    def construct(self, x):
        """Images [N, width, H, W] in and out."""
        inner = ops.relu(self.bn1(self.conv1(x)))
        return ops.relu(x + self.bn2(self.conv2(inner)))


class Net(nn.Cell):
    """Images [N, 3, 16, 16] to logits [N, 10]."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.layers = [Residual(16) for _ in range(3)]
        self.classifier = nn.Dense(16, 10)

    def construct(self, images):
        """The logits."""
        x = self.embed(images)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean((2, 3)))


def model():
    """The port, with the values that MindSpore draws."""
    return Net()


def training():
    """The port, its loss and its optimizer."""
    net = model()
    optimizer = nn.Adam(net.trainable_params(), learning_rate=1e-3, weight_decay=0.05)
    return net, nn.CrossEntropyLoss(), optimizer
