"""Train a tiny net with the Trainer of transformers, so that tests can read what it prints and the state it writes.

Needs transformers and accelerate. Arguments: folder, logging steps. Made with transformers 5.23.0 and 4.57.6:

    python train_hf.py run 2 >hf_stdout_5.log 2>&1; cp run/checkpoint-8/trainer_state.json hf_stdout_5_state.json
    python train_hf.py run 3 >hf_stdout_5_every_third.log 2>&1
"""

import sys

import torch
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.fc(x)
        return {"loss": torch.nn.functional.mse_loss(y[:, 0], labels), "logits": y}


if __name__ == "__main__":
    torch.manual_seed(0)
    net, weight = Net(), torch.tensor([1.0, -2.0, 0.5, 0.3])
    rows = [{"x": x, "labels": x @ weight} for x in torch.randn(32, 4)]
    arguments = TrainingArguments(
        sys.argv[1],
        per_device_train_batch_size=8,
        num_train_epochs=2,
        logging_steps=int(sys.argv[2]),
        learning_rate=0.05,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        seed=0,
        use_cpu=True,
    )
    Trainer(net, arguments, train_dataset=rows, eval_dataset=rows[:16]).train()
