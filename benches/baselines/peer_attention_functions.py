"""Attention in bf16 with a score function or mask, by torch's FlexAttention, compiled.

Requests have program, batch, rows, heads, size, and the programs' numbers.
"""
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from peer_attention import operands
from peer_timing import Device


def score_of(request):
    if request["program"] == "alibi":
        slopes = torch.exp2(-8.0 * torch.arange(1, request["heads"] + 1, device="cuda") / request["heads"])
        return lambda score, b, h, i, j: score + (j - i) * slopes[h]
    if request["program"] == "soft_cap":
        cap = request["cap"]
        return lambda score, b, h, i, j: cap * torch.tanh(score / cap)
    return None


def mask_of(request):
    if request["program"] == "window":
        window = request["window"]
        return lambda b, h, i, j: (i >= j) & (i - j <= window)
    if request["program"] == "documents":
        starts = torch.tensor(request["starts"][1:-1], device="cuda")
        document = torch.bucketize(torch.arange(request["rows"], device="cuda"), starts, right=True)
        return lambda b, h, i, j: (i >= j) & (document[i] == document[j])
    return lambda b, h, i, j: i >= j


def flex(request):
    torch._dynamo.reset()
    rows = request["rows"]
    blocks = create_block_mask(mask_of(request), None, None, rows, rows, device="cuda")
    score = score_of(request)
    compiled = torch.compile(flex_attention, dynamic=False)

    def run(tensors):
        with torch.no_grad():
            compiled(*tensors, score_mod=score, block_mask=blocks)

    return Device("flex", [operands(request, 3)], run)


def flex_backward(request):
    torch._dynamo.reset()
    rows = request["rows"]
    blocks = create_block_mask(mask_of(request), None, None, rows, rows, device="cuda")
    *inputs, gradient = operands(request, 4)
    inputs = [x.detach().requires_grad_() for x in inputs]
    compiled = torch.compile(flex_attention, dynamic=False)
    output = compiled(*inputs, score_mod=score_of(request), block_mask=blocks)

    def run(_):
        torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    return Device("flex", [None], run)


OPS = {"flex": flex, "flex_backward": flex_backward}
