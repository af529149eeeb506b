# SPDX-License-Identifier: MIT
"""What the transformers of this round have in common."""
import torch.nn.functional as functional
from torch import nn


class Layer(nn.Module):
    """The weights of a layer; how it attends is its user's."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def queries_keys_values(self, x):
        batch, length, _ = x.shape
        return self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).unbind(2)

    def add_attention(self, x, mixed):
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))

    def add_mlp(self, x):
        return x + self.down(functional.gelu(self.up(self.norm2(x))))
