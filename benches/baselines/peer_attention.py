"""Attention in bf16, forward, backward and for one query a sequence, by one of torch's back ends.

Requests have batch, rows, heads, size and causal, and may have another size of values, and a probability of dropout. Operands are `[batch, rows, heads, size]`, seen as torch wants them.
Those for one query have keys in place of rows, and kv_heads, which heads share.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from peer_timing import Device, Graph, random, sets


def operands(request, count):
    """Queries, keys and values; then the gradient of the result, which is as long as values."""
    sides = [int(request[side]) for side in ("batch", "rows", "heads")]
    size = int(request["size"])
    values = int(request.get("values", size))
    return [random(sides + [each], "bf16").transpose(1, 2) for each in (size, size, values, values)[:count]]


def forward(label, backend):
    def make(request):
        def run(tensors):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(*tensors, is_causal=request["causal"], dropout_p=request.get("dropout", 0.0))

        return Device(label, [operands(request, 3)], run)

    return make


def backward(label, backend):
    def make(request):
        *inputs, gradient = operands(request, 4)
        inputs = [x.detach().requires_grad_() for x in inputs]
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(*inputs, is_causal=request["causal"], dropout_p=request.get("dropout", 0.0))

        def run(_):
            torch.autograd.grad(output, inputs, gradient, retain_graph=True)

        return Device(label, [None], run)

    return make


def decode(label, backend):
    def make(request):
        batch, keys, heads, kv_heads, size = (
            int(request[side]) for side in ("batch", "keys", "heads", "kv_heads", "size"))

        def operands():
            sides = [[batch, 1, heads, size]] + 2 * [[batch, keys, kv_heads, size]]
            return [random(each, "bf16").transpose(1, 2) for each in sides]

        def run(tensors):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(*tensors, enable_gqa=heads != kv_heads)

        return Graph(label, sets(request, operands), run)

    return make


def layer(request):
    batch, rows, heads, size = (int(request[side]) for side in ("batch", "rows", "heads", "size"))
    hidden = heads * size
    sides = [[batch, rows, hidden], [batch, rows, hidden], [3 * hidden, hidden], [3 * hidden], [hidden, hidden], [hidden]]

    def run(tensors):
        x, residual, qkv, qkv_bias, out, out_bias = tensors
        parts = F.linear(x, qkv, qkv_bias).view(batch, rows, 3, heads, size).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        F.linear(mixed.transpose(1, 2).reshape(batch, rows, hidden), out, out_bias) + residual

    return Device("torch", [[random(each, "bf16") for each in sides]], run)


OPS = {
    "cudnn": forward("cudnn", SDPBackend.CUDNN_ATTENTION),
    "flash": forward("flash", SDPBackend.FLASH_ATTENTION),
    "cudnn_backward": backward("cudnn", SDPBackend.CUDNN_ATTENTION),
    "flash_backward": backward("flash", SDPBackend.FLASH_ATTENTION),
    "layer": layer,
    "cudnn_decode": decode("cudnn", SDPBackend.CUDNN_ATTENTION),
    "flash_decode": decode("flash", SDPBackend.FLASH_ATTENTION),
}
