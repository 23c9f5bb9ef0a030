"""The program that the training workload runs: trains on one thread and prints its step times.

steps count=<steps since the last line> seconds=<time they took>
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

# Several steps a line, so that reading the log costs next to nothing.
_REPORT_S = 0.25


def network() -> nn.Module:
    """A small convolutional classifier for 3 x 32 x 32 images and 10 classes."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(batch_size: int, ready_file: Path) -> None:
    """Trains until it is ended from outside."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    batches = [(torch.randn(batch_size, 3, 32, 32), torch.randint(0, 10, (batch_size,))) for _ in range(8)]
    count, step, since = 0, 0, time.perf_counter()
    while True:
        images, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        loss_of(model(images), labels).backward()
        optimizer.step()
        step, count, now = step + 1, count + 1, time.perf_counter()
        if now - since >= _REPORT_S:
            print(f"steps count={count} seconds={now - since:.6f}", flush=True)
            ready_file.touch()
            count, since = 0, now


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    train(options.batch_size, options.ready_file)
