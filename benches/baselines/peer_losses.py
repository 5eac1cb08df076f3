"""Losses, and gradients of activations, in torch, eager and compiled.

Requests have `shape`, `dtype`, and `implementation`: `eager` or `compiled`. Losses run forward and backward.
"""
import torch
import torch._functorch.config
import torch.nn.functional as F

from peer_timing import Device, random

torch._functorch.config.donated_buffer = False


def made(request, function):
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False) if request["implementation"] == "compiled" else function


def with_gradients(request, function, operands, by):
    function = made(request, function)

    def run(_):
        torch.autograd.grad(function(*operands), by)

    return Device("torch " + request["implementation"], [None], run)


def linear_cross_entropy(request):
    rows, inputs, classes = request["shape"]
    x = random([rows, inputs], request["dtype"]).requires_grad_()
    weight = random([classes, inputs], request["dtype"]).requires_grad_()
    targets = torch.randint(0, classes, (rows,), device="cuda")
    return with_gradients(request, lambda x, w, t: F.cross_entropy((x @ w.t()).float(), t), [x, weight, targets], [x, weight])


def pair(function):
    def op(request):
        shape, dtype = list(request["shape"]), request["dtype"]
        x = random(shape, dtype).requires_grad_()
        return with_gradients(request, function, [x, random(shape, dtype)], [x])

    return op


def cosine_embedding(request):
    shape, dtype = list(request["shape"]), request["dtype"]
    a, b = random(shape, dtype).requires_grad_(), random(shape, dtype).requires_grad_()
    signs = torch.ones(shape[0], device="cuda")
    signs[1::2] = -1
    return with_gradients(request, F.cosine_embedding_loss, [a, b, signs], [a, b])


def backward(function, needs_bias, halves):
    def op(request):
        rows, columns = request["shape"]
        x = random([rows, columns], request["dtype"]).requires_grad_()
        bias = random([columns], request["dtype"]).requires_grad_()
        y = made(request, function)(x, bias)
        dy = random([rows, columns // halves], request["dtype"])
        by = [x, bias] if needs_bias else [x]

        def run(_):
            torch.autograd.grad(y, by, dy, retain_graph=True)

        return Device("torch " + request["implementation"], [None], run)

    return op


def each_mse(x, target):
    return F.mse_loss(x, target, reduction="none")


def each(request):
    shape, dtype = list(request["shape"]), request["dtype"]
    x, target, function = random(shape, dtype), random(shape, dtype), made(request, each_mse)

    def run(_):
        with torch.no_grad():
            function(x, target)

    return Device("torch " + request["implementation"], [None], run)


def each_backward(request):
    shape, dtype = list(request["shape"]), request["dtype"]
    x = random(shape, dtype).requires_grad_()
    losses, by = made(request, each_mse)(x, random(shape, dtype)), random(shape, dtype)

    def run(_):
        torch.autograd.grad(losses, [x], by, retain_graph=True)

    return Device("torch " + request["implementation"], [None], run)


def swiglu(x, _=None):
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


def swiglu_forward(request):
    x, function = random(list(request["shape"]), request["dtype"]), made(request, swiglu)

    def run(_):
        with torch.no_grad():
            function(x)

    return Device("torch " + request["implementation"], [None], run)


OPS = {
    "linear_cross_entropy": linear_cross_entropy,
    "loss_mse": pair(F.mse_loss),
    "loss_bce_with_logits": pair(F.binary_cross_entropy_with_logits),
    "loss_cosine_embedding": cosine_embedding,
    "losses_mse": each,
    "losses_mse_backward": each_backward,
    "activation_gelu_backward_bias": backward(lambda x, b: F.gelu(x + b, approximate="tanh"), True, 1),
    "activation_swiglu": swiglu_forward,
    "activation_swiglu_backward": backward(swiglu, False, 2),
}
