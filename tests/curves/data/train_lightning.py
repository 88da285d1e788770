"""Train a tiny net with Lightning's CSVLogger, so that tests can read what it writes.

Needs lightning. Argument: `steps` or `epochs`, which makes `lightning_rates.csv` or `lightning_epochs.csv` (2.6.6).
"""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger


class Net(lightning.LightningModule):
    def __init__(self, on_step: bool) -> None:
        super().__init__()
        self.fc, self.on_step = torch.nn.Linear(4, 1), on_step

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.fc(batch[0])[:, 0], batch[1])

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss, on_step=self.on_step, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val_loss", self._loss(batch))

    def configure_optimizers(self) -> tuple[list[object], list[object]]:
        optimizer = torch.optim.SGD(self.parameters(), 0.05)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), "interval": "step"}]


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    rows = torch.utils.data.TensorDataset(x, x @ torch.tensor([1.0, -2.0, 0.5, 0.3]))
    batches = torch.utils.data.DataLoader(rows, 4)
    trainer = lightning.Trainer(
        max_epochs=2,
        logger=CSVLogger("lightning"),
        callbacks=[LearningRateMonitor()],
        log_every_n_steps=2,
        accelerator="cpu",
    )
    trainer.fit(Net(sys.argv[1] == "steps"), batches, batches)
