"""Elementwise, reduction, conversion and data-movement ops in torch eager.

Requests have dtype (f32) and `shape`, a list of lengths. Ops with two operands may have `other`, the second one's shape, which is
broadcast; reductions may have `axis` (all of them); conversions have `to`; gathers have `indices`, the number of rows. `view` may say
which of the elements take part: all but the first, in one row (`shifted`), or those of every other column (`every_other`).
"""
import torch
import torch._functorch.config
import torch.nn.functional as F

from peer_timing import DTYPES, Device, random, sets

# A retained graph is run many times.
torch._functorch.config.donated_buffer = False


def describe(request):
    return list(request["shape"]), request.get("dtype", "f32")


VIEWS = {
    None: lambda x: x,
    "shifted": lambda x: x.view(-1)[1:],
    "every_other": lambda x: x[:, ::2],
}


def unary(function):
    """`function(x, out)` writes to `out`, of the shape and dtype of `x`, and dense."""

    def op(request):
        shape, dtype = describe(request)
        view = VIEWS[request.get("view")]

        def make():
            x = view(random(shape, dtype))
            return x, torch.empty(x.shape, device="cuda", dtype=x.dtype)

        return Device("torch", sets(request, make), lambda operands: function(*operands))

    return op


def binary(function):
    """`function(x, y, out)` writes to `out`, of the shape and dtype of `x`, and dense."""

    def op(request):
        shape, dtype = describe(request)
        other = list(request.get("other", shape))
        view = VIEWS[request.get("view")]

        def make():
            x = view(random(shape, dtype))
            return x, view(random(other, dtype)), torch.empty(x.shape, device="cuda", dtype=x.dtype)

        return Device("torch", sets(request, make), lambda operands: function(*operands))

    return op


def rotary(with_gradient):
    """`shape` is [rows, heads, columns]; as models write it, compiled. The gradient is that of an earlier forward pass."""

    def op(request):
        shape, dtype = describe(request)
        rows, _, columns = shape
        frequencies = 10000.0 ** (-torch.arange(0, columns, 2, device="cuda") / columns)
        angles = torch.outer(torch.arange(rows, device="cuda"), frequencies).repeat(1, 2)
        cosines, sines = (table.to(DTYPES[dtype])[:, None] for table in (angles.cos(), angles.sin()))

        @torch.compile
        def turned(x):
            first, second = x.chunk(2, dim=-1)
            return x * cosines + torch.cat((-second, first), dim=-1) * sines

        if not with_gradient:
            return Device("torch compiled", [random(shape, dtype)], turned)
        x = random(shape, dtype).requires_grad_()
        y = turned(x)
        return Device("torch compiled", [random(shape, dtype)], lambda dy: torch.autograd.grad(y, [x], dy, retain_graph=True))

    return op


def reading(function):
    """`function(x, request)` makes its own, smaller result."""

    def op(request):
        shape, dtype = describe(request)
        return Device("torch", sets(request, lambda: random(shape, dtype)), lambda x: function(x, request))

    return op


def compare(function):
    """`function(x, y, out)` writes bools."""

    def op(request):
        shape, dtype = describe(request)

        def make():
            return random(shape, dtype), random(shape, dtype), torch.empty(shape, device="cuda", dtype=torch.bool)

        return Device("torch", sets(request, make), lambda operands: function(*operands))

    return op


def over(function):
    """A reduction over the request's axis, or all."""
    return reading(lambda x, request: function(x) if request.get("axis") is None else function(x, dim=request["axis"]))


def convert(request):
    shape, dtype = describe(request)

    view = VIEWS[request.get("view")]

    def make():
        x = view(random(shape, dtype))
        return x, torch.empty(x.shape, device="cuda", dtype=DTYPES[request["to"]])

    return Device("torch", sets(request, make), lambda operands: operands[1].copy_(operands[0]))


def quantize(request):
    """e4m3 with a factor for each block of `height` rows and 128 columns, which are whole; `implementation` is `eager` or `compiled`."""
    (rows, columns), dtype = describe(request)
    height = min(int(request["height"]), rows)
    largest = torch.finfo(torch.float8_e4m3fn).max

    def quantized(x):
        parts = x.view(rows // height, height, columns // 128, 128).float()
        factors = parts.abs().amax((1, 3), keepdim=True) / largest
        factors = torch.where(factors == 0, 1.0, factors)
        numbers = (parts / factors).to(torch.float8_e4m3fn).view(rows, columns)
        factors = factors.view(rows // height, columns // 128)
        return numbers, factors.t().contiguous() if height == 1 else factors

    how = request["implementation"]
    if how == "compiled":
        torch._dynamo.reset()
        quantized = torch.compile(quantized, dynamic=False)
    return Device("torch " + how, sets(request, lambda: random([rows, columns], dtype)), quantized)


def transpose(request):
    (rows, columns), dtype = describe(request)

    def make():
        return random([rows, columns], dtype), torch.empty([columns, rows], device="cuda", dtype=DTYPES[dtype])

    return Device("torch", sets(request, make), lambda operands: operands[1].copy_(operands[0].T))


def rows_by_index(function):
    """`function(table, indices, rows)` for rows of the table chosen at random, each at most once."""

    def op(request):
        (count, width), dtype = describe(request)
        chosen = int(request["indices"])

        def make():
            indices = torch.randperm(count, device="cuda")[:chosen]
            return random([count, width], dtype), indices, random([chosen, width], dtype)

        return Device("torch", sets(request, make), lambda operands: function(*operands))

    return op


def embedding_backward(request):
    """The gradient of a table of `rows` rows; tokens are even, or their frequencies go with one over their rank (`zipf`)."""
    (tokens, width), dtype = describe(request)
    rows = int(request["rows"])

    def make():
        unit = torch.rand(tokens, device="cuda", dtype=torch.float64)
        drawn = rows ** unit - 1 if request["zipf"] else rows * unit
        return random([tokens, width], dtype), drawn.long().clamp(0, rows - 1)

    def run(operands):
        return torch.ops.aten.embedding_dense_backward(operands[0], operands[1], rows, -1, False)

    return Device("torch", sets(request, make), run)


OPS = {
    "copy": unary(lambda x, out: out.copy_(x)),
    "exp": unary(lambda x, out: torch.exp(x, out=out)),
    "neg": unary(lambda x, out: torch.neg(x, out=out)),
    "gelu": reading(lambda x, _: F.gelu(x, approximate="tanh")),
    "silu": reading(lambda x, _: F.silu(x)),
    "dropout": reading(lambda x, _: F.dropout(x, 0.125)),
    "rotary": rotary(False),
    "rotary_backward": rotary(True),
    "embedding_backward": embedding_backward,
    "relu": reading(lambda x, _: torch.relu(x)),
    "fill": unary(lambda x, out: out.fill_(1)),
    "arange": unary(lambda x, out: torch.arange(out.numel(), out=out.view(-1))),
    "uniform": unary(lambda x, out: out.uniform_()),
    "add": binary(lambda x, y, out: torch.add(x, y, out=out)),
    "pow": binary(lambda x, y, out: torch.pow(x, y, out=out)),
    "mul": binary(lambda x, y, out: torch.mul(x, y, out=out)),
    "lt": compare(lambda x, y, out: torch.lt(x, y, out=out)),
    "saxpy": binary(lambda x, y, out: y.add_(x, alpha=0.5)),
    "sum": over(torch.sum),
    "mean": over(torch.mean),
    "amax": over(torch.amax),
    "max": reading(lambda x, _: torch.max(x)),
    "argmax": over(torch.argmax),
    "convert": convert,
    "quantize": quantize,
    "transpose": transpose,
    "gather": rows_by_index(lambda table, indices, rows: torch.index_select(table, 0, indices, out=rows)),
    "scatter": rows_by_index(lambda table, indices, rows: table.index_copy_(0, indices, rows)),
    "scatter_add": rows_by_index(lambda table, indices, rows: table.index_add_(0, indices, rows)),
}
