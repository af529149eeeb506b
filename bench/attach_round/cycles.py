# SPDX-License-Identifier: MIT
"""Counts the GPU's core cycles at a place in the stream."""
import triton
import triton.language as tl


@triton.jit
def store(out):
    """out: the cycles of a multiprocessor so far, and its number."""
    cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64,
                                       is_pure=False, pack=1)
    number = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32,
                                       is_pure=False, pack=1)
    tl.store(out, cycles)
    tl.store(out + 1, number.to(tl.int64))
