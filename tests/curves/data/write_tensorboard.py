"""Write the fixture `tensorboard_styles.tfevents`: needs torch and tensorboard. Run: python write_tensorboard.py."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

HERE = Path(__file__).parent

with tempfile.TemporaryDirectory() as folder:
    writer = SummaryWriter(folder)
    writer.add_text("config", "lr 0.1")
    for step in range(0, 300, 50):
        writer.add_scalar("Loss/train", 1 / (step + 3), step)
        writer.add_scalar("Loss/val", 2 / (step + 3), step, new_style=True)
        writer.add_scalar("lr", 0.1 / (step + 3), step, new_style=True, double_precision=True)
    writer.add_histogram("weights", np.arange(10.0), 250)
    writer.add_scalar("Loss/train", float("nan"), 300)
    writer.add_scalars("acc", {"top1": 0.5, "top5": 0.75}, 300)
    writer.close()
    (written,) = Path(folder).glob("events.out.tfevents.*")
    shutil.copy(written, HERE / "tensorboard_styles.tfevents")
