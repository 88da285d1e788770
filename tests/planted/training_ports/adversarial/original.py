"""A class-conditional image generator and its discriminator, trained against one another."""

import torch
import torch.nn.functional as F
from torch import nn

LATENT, CLASSES, EMBED, WIDTH = 16, 5, 8, 12


class UpBlock(nn.Module):
    """Doubles the height and width, with a residual branch."""

    def __init__(self, cin, cout):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.skip = nn.Conv2d(cin, cout, 1, bias=False)

    def forward(self, x):
        y = F.interpolate(F.relu(self.bn1(x)), scale_factor=2, mode="nearest")
        y = self.conv2(F.relu(self.bn2(self.conv1(y))))
        return y + self.skip(F.interpolate(x, scale_factor=2, mode="nearest"))


class Generator(nn.Module):
    """Images of 16 x 16 from noise and a class."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CLASSES, EMBED)
        self.fc = nn.Linear(LATENT + EMBED, WIDTH * 16)
        self.blocks = nn.ModuleList([UpBlock(WIDTH, WIDTH), UpBlock(WIDTH, 8)])
        self.bn = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, noise, labels):
        x = self.fc(torch.cat([noise, self.embed(labels)], dim=1)).view(-1, WIDTH, 4, 4)
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(self.conv(F.relu(self.bn(x))))


class Discriminator(nn.Module):
    """A score for an image and its class, and the features before it."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 4, stride=2, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, 12)
        self.conv3 = nn.Conv2d(12, 16, 4, stride=2, padding=1, bias=False)
        self.norm3 = nn.GroupNorm(4, 16)
        self.fc = nn.Linear(16 * 4, 1)
        self.embed = nn.Embedding(CLASSES, 16)

    def forward(self, image, labels):
        x = F.leaky_relu(self.conv1(image), 0.2)
        x = F.leaky_relu(self.norm2(self.conv2(x)), 0.2)
        x = F.leaky_relu(self.norm3(self.conv3(x)), 0.2)
        features = x.flatten(1)
        projected = (self.embed(labels) * x.mean(dim=(2, 3))).sum(dim=1)
        return self.fc(features).squeeze(1) + projected, features


class GAN(nn.Module):
    """Both networks."""

    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()

    def forward(self, noise, labels):
        fake = self.generator(noise, labels)
        return fake, self.discriminator(fake, labels)[0]


def build():
    """Both networks with their first weights, set to evaluation."""
    torch.manual_seed(21)
    model = GAN()
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, a=0.2)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.5)
        if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.normal_(module.weight, mean=1.0, std=0.1)
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.6, 1.6)
    return model.eval()


def training():
    """Both networks, their optimizers and one step of each."""
    model = build()
    generator, discriminator = model.generator, model.discriminator
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.SGD(discriminator.parameters(), lr=0.02, momentum=0.5)
    bce = nn.BCEWithLogitsLoss()

    def step(batch):
        model.train()
        image, labels = batch["image"], batch["labels"].long()

        opt_d.zero_grad()
        fake = generator(batch["noise_d"], labels)
        real_score, _ = discriminator(image, labels)
        fake_score, _ = discriminator(fake.detach(), labels)
        loss_d = bce(real_score, torch.full_like(real_score, 0.9)) + bce(fake_score, torch.zeros_like(fake_score))
        loss_d.backward()
        opt_d.step()

        opt_g.zero_grad()
        fake = generator(batch["noise_g"], labels)
        fake_score, fake_features = discriminator(fake, labels)
        with torch.no_grad():
            _, real_features = discriminator(image, labels)
        matching = F.mse_loss(fake_features.mean(dim=0), real_features.mean(dim=0))
        loss_g = bce(fake_score, torch.ones_like(fake_score)) + 5.0 * matching
        loss_g.backward()
        opt_g.step()
        return (loss_d + loss_g).detach()

    return {"model": model, "optimizer": [opt_g, opt_d], "step": step}
