# SPDX-License-Identifier: MIT
"""A kernel that must not run twice with its own arguments, which its name does not say.

It writes where the kernel before it said and says where nobody may write; a program that knows it
clears that in between. Launched twice in a row it ends in an illegal access, and the program with it.
"""
import torch
import triton
import triton.language as tl


@triton.jit
def hand_on(place, data):
    at = tl.load(place)
    tl.store(data + at, 1.0)
    tl.store(place, at + (1 << 40))


def main():
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    place = torch.zeros(1, dtype=torch.int64, device="cuda")
    data = torch.zeros(1, device="cuda")
    for _ in range(3000):
        for _ in range(10):
            a @ b
        place.zero_()
        hand_on[(1,)](place, data)
        torch.cuda.synchronize()
    print("done", data.item())


main()
