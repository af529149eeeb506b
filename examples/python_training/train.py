# SPDX-License-Identifier: MIT
"""A GPT in plain PyTorch, its energy measured by name.

    python3 train.py [--steps 200]

Needs PyTorch with an NVIDIA GPU. No clock is ever set. The lines with `gpu` are all that kdvfs adds.
"""

import argparse

import torch
from torch import nn

import kdvfs


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, gpu: kdvfs.Gpu) -> torch.Tensor:
        batch, length, width = x.shape
        with gpu.scope("attention"):
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in self.qkv(self.norms[0](x)).chunk(3, -1)
            )
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        with gpu.scope("mlp"):
            return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, gpu: kdvfs.Gpu) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x, gpu)
        with gpu.scope("head"):
            return self.head(x)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=200)
    steps = options.parse_args().steps

    torch.manual_seed(1)
    model = Gpt(vocabulary=32000, width=1024, heads=16, layers=12, length=1024).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(32000, (8, 1025), device="cuda")

    with kdvfs.measure("nvidia", torch.cuda.current_device(), meter_every=1) as gpu:
        for _ in range(steps):
            gpu.next_iteration()
            with gpu.phase("forward"), torch.autocast("cuda", torch.bfloat16):
                logits = model(tokens[:, :-1], gpu)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            with gpu.scope("backward"):
                loss.backward()
            with gpu.scope("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        torch.cuda.synchronize()
        print(f"loss {loss.item():.4f}")
        print(f"{'scope':<12} {'calls':>6} {'time s':>8} {'energy J':>10} {'+- J':>7} {'MHz':>6}")
        for row in gpu.report()["rows"]:
            energy = row["energy"]
            joules = "unresolved" if energy["joules"] is None else f"{energy['joules']:.1f}"
            half = "" if energy["joules"] is None else f"{energy['half_width_95']:.1f}"
            print(
                f"{row['kernel']:<12} {row['calls']:>6} {row['time_s']:>8.3f} {joules:>10} {half:>7} "
                f"{row['measured_core_mhz'] or 0:>6.0f}"
            )


if __name__ == "__main__":
    main()
