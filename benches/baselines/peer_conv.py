"""cuDNN's convolutions, and torch's pooling, by way of torch: channels last, the fastest of its algorithms.

Requests have `x` and `filters` as Ironwarp has them, `[images, height, width, channels]` and `[filters, height, width, channels]`, `stride` and
`padding` along both, `groups`, `dtype`, and `pass`: `forward`, `input` or `filters` (the gradients of these).
"""
import torch

from peer_timing import Graph, random, sets


def last(shape, dtype):
    """A tensor of torch's shape whose channels lie side by side."""
    return random(list(shape), dtype).permute(0, 3, 1, 2)


def conv2d(request):
    torch.backends.cudnn.benchmark = True
    stride, padding = list(request["stride"]), list(request["padding"])
    groups, which = int(request["groups"]), request["pass"]

    def forward(x, filters):
        return torch.ops.aten.convolution(x, filters, None, stride, padding, [1, 1], False, [0, 0], groups)

    def make():
        x, filters = last(request["x"], request["dtype"]), last(request["filters"], request["dtype"])
        return x, filters, torch.randn_like(forward(x, filters))

    mask = [which == "input", which == "filters", False]

    def run(operands):
        x, filters, gradient = operands
        if which == "forward":
            forward(x, filters)
        else:
            torch.ops.aten.convolution_backward(
                gradient, x, filters, None, stride, padding, [1, 1], False, [0, 0], groups, mask)

    return Graph("cudnn", sets(request, make), run, at_least=8)


def max_pool2d(request):
    """3 x 3 by 2, with padding of 1, of `x`."""
    x = last(request["x"], request["dtype"])
    y, places = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    gradient = torch.randn_like(y)

    def run(_):
        if request["pass"] == "forward":
            torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
        else:
            torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)

    return Graph("torch", [None], run, at_least=8)


def avg_pool2d(request):
    """The same of averages, which count the padding."""
    x = last(request["x"], request["dtype"])
    window = [3, 3], [2, 2], [1, 1], False, True, None
    gradient = torch.randn_like(torch.ops.aten.avg_pool2d(x, *window))

    def run(_):
        if request["pass"] == "forward":
            torch.ops.aten.avg_pool2d(x, *window)
        else:
            torch.ops.aten.avg_pool2d_backward(gradient, x, *window)

    return Graph("torch", [None], run, at_least=8)


OPS = {"conv2d": conv2d, "max_pool2d": max_pool2d, "avg_pool2d": avg_pool2d}
