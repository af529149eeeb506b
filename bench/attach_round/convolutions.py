# SPDX-License-Identifier: MIT
"""A convolutional network in PyTorch, trained as many are: cuDNN's benchmark mode, autocast with scaled losses,
channels last, processes that load data, evaluations and checkpoints. It knows nothing of kdvfs.

Between its kernels, of 10 us each, the GPU mostly waits for the host.
"""
import argparse
import tempfile
import time

import torch
import torch.nn.functional as functional
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        random = torch.Generator().manual_seed(place)
        return torch.randn(3, 128, 128, generator=random), place % 100


class Block(nn.Module):
    def __init__(self, channels, middle, out, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, out, 1, bias=False), nn.BatchNorm2d(out))
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x):
        return functional.relu(self.layers(x) + self.shortcut(x))


def network():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for middle, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Block(channels, middle, 4 * middle, stride if block == 0 else 1))
            channels = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--loaders", type=int, default=1)
    settings = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = network().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    scaler = torch.amp.GradScaler()
    loader = DataLoader(Pictures(64 * settings.steps), 64, num_workers=settings.loaders, pin_memory=True)
    began, begin_at = 0.0, min(40, settings.steps // 2)
    for step, (pictures, kinds) in enumerate(loader):
        if step == begin_at:
            torch.cuda.synchronize()
            began = time.monotonic()
        pictures = pictures.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(pictures), kinds.cuda(non_blocking=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 100 == 99:
            model.eval()
            with torch.no_grad():
                for _ in range(5):
                    model(pictures)
            model.train()
            with tempfile.TemporaryFile() as checkpoint:
                torch.save(model.state_dict(), checkpoint)
    torch.cuda.synchronize()
    print(f"{1e3 * (time.monotonic() - began) / (settings.steps - begin_at):.1f} ms a step")


if __name__ == "__main__":
    main()
