# SPDX-License-Identifier: MIT
"""Text generation by a transformer with random weights: prefill, then decode with a cache.

It knows nothing of kdvfs: ranges name what it does. A request is a set of prompts, one batch after
another, and the decoding of the last, so that either phase lasts for several moves of a counter of
100 ms; between requests it waits. Prints how many tokens each range was for.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as functional
from torch import nn

import transformer


class CachedLayer(transformer.Layer):
    def forward(self, x, cache, at, mask):
        length = x.shape[1]
        q, k, v = self.queries_keys_values(x)
        cache[0][:, :, at:at + length] = k.transpose(1, 2)
        cache[1][:, :, at:at + length] = v.transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), cache[0][:, :, :at + length], cache[1][:, :, :at + length],
            is_causal=length > 1)
        return self.add_mlp(self.add_attention(x, mixed))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prefills", type=int, default=2, help="batches of prompts a request")
    parser.add_argument("--requests", type=int, default=9, help="of each of two runs")
    parser.add_argument("--warm-up", type=int, default=4, help="requests before")
    options = parser.parse_args()
    torch.manual_seed(1)
    heads = options.width // 128
    vocabulary = 32768
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        layers = nn.ModuleList(CachedLayer(options.width, heads) for _ in range(options.layers))
        embedding = nn.Embedding(vocabulary, options.width)
        head = nn.Linear(options.width, vocabulary, bias=False)
        room = options.prompt + options.tokens
        caches = [[torch.zeros(options.batch, heads, room, 128) for _ in range(2)]
                  for _ in range(options.layers)]
        prompt = torch.randint(vocabulary, (options.batch, options.prompt))

    def forward(tokens, at):
        x = embedding(tokens)
        for layer, cache in zip(layers, caches):
            x = layer(x, cache, at, None)
        return head(x[:, -1:]).argmax(-1)

    def request(run):
        with torch.cuda.nvtx.range("request"):
            with torch.cuda.nvtx.range("prefill of the " + run + " run"):
                for _ in range(options.prefills):
                    token = forward(prompt, 0)
            with torch.cuda.nvtx.range("decode of the " + run + " run"):
                for i in range(options.tokens - 1):
                    token = forward(token, options.prompt + i)
        torch.cuda.synchronize()
        time.sleep(0.25)

    result = {}
    with torch.inference_mode():
        # Kernels are loaded and chosen at the first launch of each shape, and the board grows warm.
        for _ in range(options.warm_up):
            request("warm-up")
        for run in ("first", "second"):
            began = time.perf_counter()
            for _ in range(options.requests):
                request(run)
            result[run] = {
                "seconds": time.perf_counter() - began,
                "prefill_tokens":
                    options.requests * options.prefills * options.batch * options.prompt,
                "decode_tokens": options.requests * options.batch * (options.tokens - 1)}
    print(json.dumps(result))


main()
