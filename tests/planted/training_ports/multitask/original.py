"""A frozen convolutional trunk with three heads, their losses weighted by learned uncertainties."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, PARTS, IGNORED = 7, 4, 255


class ConvBlock(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class ClassHead(nn.Module):
    """Logits of the image's class."""

    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, 20)
        self.norm = nn.LayerNorm(20)
        self.fc2 = nn.Linear(20, CLASSES)

    def forward(self, x):
        return self.fc2(self.norm(F.gelu(self.fc1(x))))


class BoxHead(nn.Module):
    """Four numbers of a box."""

    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, 12)
        self.fc2 = nn.Linear(12, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class MaskHead(nn.Module):
    """Logits of the part at every place."""

    def __init__(self, dim):
        super().__init__()
        self.block = ConvBlock(dim, 12, 1)
        self.predict = nn.Conv2d(12, PARTS, 1)

    def forward(self, x):
        x = F.interpolate(self.block(x), size=(8, 8), mode="bilinear", align_corners=False)
        return self.predict(x)


class MultiTask(nn.Module):
    """Trunk, heads and the logarithms of the heads' variances."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(ConvBlock(3, 8, 1), ConvBlock(8, 12, 2), ConvBlock(12, 16, 1), ConvBlock(16, 24, 2))
        self.trunk.requires_grad_(False)
        self.cls_head = ClassHead(24)
        self.box_head = BoxHead(24)
        self.mask_head = MaskHead(24)
        self.log_vars = nn.Parameter(torch.tensor([0.3, -0.4, 0.2]))

    def train(self, mode=True):
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, image):
        features = self.trunk(image)
        pooled = features.mean(dim=(2, 3))
        return self.cls_head(pooled), self.box_head(pooled), self.mask_head(features)


def build():
    """The model with its first weights, set to evaluation."""
    torch.manual_seed(41)
    model = MultiTask()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=0.1)
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                nn.init.normal_(module.weight, mean=1.0, std=0.1)
                nn.init.normal_(module.bias, std=0.1)
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.2)
                nn.init.uniform_(module.running_var, 0.7, 1.6)
    return model.eval()


def criterion(model, batch):
    """The sum of the three losses, each weighted by its uncertainty."""
    logits, box, mask = model(batch["image"])
    losses = (
        F.cross_entropy(logits, batch["label"].long(), label_smoothing=0.1),
        0.5 * F.smooth_l1_loss(box, batch["box"], beta=0.5),
        F.cross_entropy(mask, batch["mask"].long(), ignore_index=IGNORED),
    )
    total = 0.0
    for loss, log_var in zip(losses, model.log_vars, strict=True):
        total = total + torch.exp(-log_var) * loss + 0.5 * log_var
    return total


def training():
    """The model, its optimizer and one step."""
    model = build()
    heads = [p for name, p in model.named_parameters() if p.requires_grad and name != "log_vars"]
    optimizer = torch.optim.SGD(
        [
            {"params": heads, "lr": 0.02, "weight_decay": 0.01},
            {"params": [model.log_vars], "lr": 0.005, "weight_decay": 0.0},
        ],
        lr=0.02,
        momentum=0.9,
        nesterov=True,
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2], gamma=0.5)

    def step(batch):
        model.train()
        optimizer.zero_grad()
        loss = criterion(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 2.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return {"model": model, "optimizer": optimizer, "step": step}
