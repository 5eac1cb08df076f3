"""Functions of rows and their gradients in torch, eager and compiled.

Requests have `shape`, rows and columns, `dtype`, `eps`, the `probability` of dropout, the `soft_cap` of logits, and `implementation`: `eager` or `compiled`. Gradients are those of an
earlier forward pass, of the rows and of what they share.
"""
import torch
import torch._functorch.config
import torch.nn.functional as F

from peer_timing import Device, random

# A retained graph is run many times.
torch._functorch.config.donated_buffer = False


def to_e4m3(y, scale):
    """`y` as scaled e4m3, and its largest magnitude."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    return (y.float() * scale).clamp(-largest, largest).to(torch.float8_e4m3fn), y.abs().max().float()


def functions(request):
    """The functions of `x`, a weight, a bias and a residual."""
    columns, eps = request["shape"][-1:], request["eps"]
    scale = torch.ones([], device="cuda")

    def after_dropout(x, w, b, r):
        sum = F.dropout(x, request["probability"]) + r
        return sum, F.layer_norm(sum, columns, w, b, eps)

    def dropout_to_e4m3(x, w, b, r):
        sum = F.dropout(x, request["probability"]) + r
        return sum, *to_e4m3(F.rms_norm(sum, columns, w, eps) + b, scale)

    return {
        "softmax": lambda x, w, b, r: F.softmax(x, -1),
        "log_softmax": lambda x, w, b, r: F.log_softmax(x, -1),
        "rms_norm": lambda x, w, b, r: F.rms_norm(x, columns, w, eps),
        "layer_norm": lambda x, w, b, r: F.layer_norm(x, columns, w, b, eps),
        "layer_norm_gelu": lambda x, w, b, r: F.gelu(F.layer_norm(x, columns, w, b, eps), approximate="tanh"),
        "residual_layer_norm": lambda x, w, b, r: (x + r, F.layer_norm(x + r, columns, w, b, eps)),
        "dropout_residual_layer_norm": after_dropout,
        "dropout_residual_rms_norm_to_e4m3": dropout_to_e4m3,
        "residual_rms_norm_to_e4m3": lambda x, w, b, r: (x + r, *to_e4m3(F.rms_norm(x + r, columns, w, eps) + b, scale)),
    }


def made(request, name):
    function = functions(request)[name]
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False) if request["implementation"] == "compiled" else function


def operands(request, needs_gradient):
    shape, dtype = list(request["shape"]), request["dtype"]
    made = [random(shape, dtype), random(shape[-1:], dtype), random(shape[-1:], dtype), random(shape, dtype)]
    return [x.requires_grad_(needs_gradient) for x in made]


def forward(name):
    def op(request):
        function = made(request, name)

        def run(given):
            with torch.no_grad():
                function(*given)

        return Device("torch " + request["implementation"], [operands(request, False)], run)

    return op


def backward(name, of_shared=True):
    def op(request):
        function = made(request, name)
        x, w, b, r = operands(request, True)
        y = function(x, w, b, r.detach())
        results = list(y) if isinstance(y, tuple) else [y]
        gradients = [random(list(request["shape"]), request["dtype"]) for _ in results]
        by = {"softmax": [x], "log_softmax": [x], "rms_norm": [x, w]}.get(name, [x, w, b]) if of_shared else [x]

        def run(_):
            torch.autograd.grad(results, by, gradients, retain_graph=True)

        return Device("torch " + request["implementation"], [None], run)

    return op


def capped_logits(request, logits):
    cap = request["soft_cap"]
    return cap * torch.tanh(logits / cap)


def cross_entropy(with_gradient, is_capped=False, of_probabilities=False):
    def op(request):
        rows, columns = request["shape"]
        logits = random([rows, columns], request["dtype"]).requires_grad_(with_gradient)
        if of_probabilities:
            targets = F.softmax(random([rows, columns], request["dtype"]), -1)
        else:
            targets = torch.randint(0, columns, (rows,), device="cuda")
        torch._dynamo.reset()

        def function():
            given = capped_logits(request, logits.float()) if is_capped else logits.float()
            return F.cross_entropy(given, targets.float() if of_probabilities else targets)

        if request["implementation"] == "compiled":
            function = torch.compile(function, dynamic=False)

        def run(_):
            if with_gradient:
                logits.grad = None
                function().backward()
            else:
                function()

        return Device("torch " + request["implementation"], [None], run)

    return op


def channels(name, with_gradient):
    """Norms of channels, of `shape` images by channels by positions, which are last in memory if `is_last`."""

    def op(request):
        count, dtype = request["shape"][1], request["dtype"]

        def images():
            x = random(list(request["shape"]), dtype)
            return x.contiguous(memory_format=torch.channels_last) if request["is_last"] else x

        x, w, b = [x.requires_grad_(with_gradient) for x in [images(), random([count], dtype), random([count], dtype)]]
        mean, variance = torch.randn(count, device="cuda"), torch.rand(count, device="cuda") + 0.5
        function = {
            "group_norm": lambda: F.group_norm(x, request["groups"], w, b, request["eps"]),
            "batch_norm": lambda: F.batch_norm(x, None, None, w, b, True, 0.1, request["eps"]),
            "batch_norm_infer": lambda: F.batch_norm(x, mean, variance, w, b, False, 0.1, request["eps"]),
        }[name]
        torch._dynamo.reset()
        if request["implementation"] == "compiled":
            function = torch.compile(function, dynamic=False)
        y, dy = function(), images()

        def run(_):
            if with_gradient:
                torch.autograd.grad(y, [x, w, b], dy, retain_graph=True)
            else:
                function()

        return Device("torch " + request["implementation"], [None], run)

    return op


OPS = {
    **{name: channels(name, False) for name in ["group_norm", "batch_norm", "batch_norm_infer"]},
    **{name + "_backward": channels(name, True) for name in ["group_norm", "batch_norm"]},
    **{name: forward(name) for name in ["softmax", "log_softmax", "rms_norm", "layer_norm", "layer_norm_gelu", "residual_layer_norm", "residual_rms_norm_to_e4m3",
                                        "dropout_residual_layer_norm", "dropout_residual_rms_norm_to_e4m3"]},
    **{name + "_backward": backward(name) for name in ["softmax", "log_softmax", "rms_norm", "layer_norm", "layer_norm_gelu", "residual_layer_norm"]},
    "layer_norm_backward_input": backward("layer_norm", of_shared=False),
    "cross_entropy": cross_entropy(True),
    "cross_entropy_loss": cross_entropy(False),
    "cross_entropy_capped": cross_entropy(True, is_capped=True),
    "cross_entropy_probabilities": cross_entropy(True, of_probabilities=True),
}
