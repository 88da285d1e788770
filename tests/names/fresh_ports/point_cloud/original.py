"""Points to a class and to a part for every point, after a learned transform of the coordinates."""

import torch
import torch.nn.functional as F
from torch import nn


class STN3d(nn.Module):
    """Predicts the 3 x 3 transform of a cloud."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 24, 1)
        self.conv2 = nn.Conv1d(24, 32, 1)
        self.conv3 = nn.Conv1d(32, 64, 1)
        self.fc1 = nn.Linear(64, 48)
        self.fc2 = nn.Linear(48, 24)
        self.fc3 = nn.Linear(24, 9)

        self.bn1 = nn.BatchNorm1d(24)
        self.bn2 = nn.BatchNorm1d(32)
        self.bn3 = nn.BatchNorm1d(64)
        self.bn4 = nn.BatchNorm1d(48)
        self.bn5 = nn.BatchNorm1d(24)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)))
        x = x.amax(dim=2)
        x = F.relu(self.bn4(self.fc1(x)))
        x = F.relu(self.bn5(self.fc2(x)))
        x = self.fc3(x).view(-1, 3, 3)
        return x + torch.eye(3, dtype=x.dtype)


class PointNetEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stn = STN3d()
        self.conv1 = nn.Conv1d(3, 24, 1)
        self.conv2 = nn.Conv1d(24, 32, 1)
        self.conv3 = nn.Conv1d(32, 64, 1)
        self.bn1 = nn.BatchNorm1d(24)
        self.bn2 = nn.BatchNorm1d(32)
        self.bn3 = nn.BatchNorm1d(64)

    def forward(self, points):
        transform = self.stn(points)
        x = torch.bmm(points.transpose(1, 2), transform).transpose(1, 2)
        x = F.relu(self.bn1(self.conv1(x)))
        local = x
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return x.amax(dim=2), local


class PointNet(nn.Module):
    def __init__(self, num_classes=9, num_parts=9, dropout=0.3):
        super().__init__()
        self.feat = PointNetEncoder()
        self.cls_head = nn.Sequential(
            nn.Linear(64, 48),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Linear(48, 24),
            nn.Dropout(dropout),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Linear(24, num_classes),
        )
        self.seg_head = nn.Sequential(
            nn.Conv1d(24 + 64, 48, 1),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Conv1d(48, 24, 1),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Conv1d(24, num_parts, 1),
        )

    def forward(self, points):
        glob, local = self.feat(points)
        spread = glob.unsqueeze(2).expand(-1, -1, points.shape[2])
        parts = self.seg_head(torch.cat([local, spread], dim=1))
        return self.cls_head(glob), parts.transpose(1, 2)


def build():
    torch.manual_seed(77)
    model = PointNet()
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.weight.uniform_(0.6, 1.6)
                m.bias.normal_(0.1, 0.4)
            elif isinstance(m, (nn.Conv1d, nn.Linear)):
                m.weight.normal_(0, m.weight.shape[1] ** -0.5)
                m.bias.normal_(0, 0.5)
        model.feat.stn.fc3.weight.mul_(0.3)
        # the running statistics of a trained model fit its data
        model.train()
        for _ in range(40):
            model(torch.randn(16, 3, 20))
        for m in model.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.running_mean.add_(0.1 * torch.randn_like(m.running_mean))
                m.running_var.mul_(torch.empty_like(m.running_var).uniform_(0.7, 1.4))
    return model.eval()
