"""Matrix products: torch.matmul, torch._scaled_mm, and cuBLASLt with its algorithms searched.

Requests have m, n, k, dtype (bf16, f16, tf32, f32, e4m3, e5m2), and may have batch (1), trans_a, trans_b (false), out (the dtype of the
result; that of the inputs, bf16 for 8-bit ones) and epilogue: none, or a bias, relu, gelu, silu or swiglu (of columns 2j and 2j + 1 one),
residual, in this order, as in bias_gelu. For cuBLASLt also `launches` of a graph, at least, and `search_ms`, the time of its search.
`A` is [m, k], or [k, m] with trans_a; `B` is [k, n], or [n, k] with trans_b.
"""
import torch
import torch.nn.functional as F

from peer_cublaslt import Matmul
from peer_timing import DTYPES, GRAPH_LAUNCHES, Device, Graph, random, sets

ACTIVATIONS = {"relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
               "swiglu": lambda x: swiglu(x)}


def shape(request):
    return int(request["m"]), int(request["n"]), int(request["k"]), int(request.get("batch", 1))


def out_dtype(request):
    default = "bf16" if request["dtype"] in ("e4m3", "e5m2") else request["dtype"]
    return request.get("out") or default


def stored(request):
    """A and B as they lie in memory."""
    m, n, k, batch = shape(request)
    a = [k, m] if request.get("trans_a") else [m, k]
    b = [n, k] if request.get("trans_b") else [k, n]
    outer = [batch] if batch > 1 else []
    # The tensor cores take no two e5m2 operands; the second is e4m3, as in training.
    second = "e4m3" if request["dtype"] == "e5m2" else request["dtype"]
    return random(outer + a, request["dtype"]), random(outer + b, second)


def swiglu(x):
    return F.silu(x[..., 0::2]) * x[..., 1::2]


def epilogue(request, m, n, out):
    """What follows the product in kernels of its own."""
    names = [name for name in (request.get("epilogue") or "none").split("_") if name != "none"]
    bias = random([n], out) if "bias" in names else None
    activation = next((ACTIVATIONS[name] for name in names if name in ACTIVATIONS), None)
    residual = random([m, n], out) if "residual" in names else None

    def apply(result):
        if bias is not None:
            result = result + bias
        result = activation(result) if activation else result
        return result if residual is None else result + residual

    return apply if names else None


def with_torch(request):
    m, n, _, batch = shape(request)
    out = out_dtype(request)
    if DTYPES[out] != DTYPES[request["dtype"]]:
        raise ValueError("torch.matmul gives %s for %s" % (request["dtype"], request["dtype"]))
    finish = epilogue(request, m, n, out)
    result = [batch, m, n] if batch > 1 else [m, n]
    # A setting of the whole process, which another op may have changed since.
    short = {"tf32": True, "f32": False}.get(request["dtype"])

    def make():
        a, b = stored(request)
        a = a.transpose(-2, -1) if request.get("trans_a") else a
        b = b.transpose(-2, -1) if request.get("trans_b") else b
        return a, b, torch.empty(result, device="cuda", dtype=DTYPES[out])

    def run(operands):
        a, b, c = operands
        if short is not None:
            torch.backends.cuda.matmul.allow_tf32 = short
        torch.matmul(a, b, out=c)
        if finish:
            finish(c)

    return Device("torch", sets(request, make), run)


def with_scaled_mm(request):
    m, n, _, _ = shape(request)
    out = out_dtype(request)
    if request.get("trans_a") or not request.get("trans_b"):
        raise ValueError("torch._scaled_mm wants trans_b and not trans_a")
    finish = epilogue(request, m, n, out)
    scale = torch.ones((), device="cuda")
    fast = bool(request.get("fast", True))

    def run(operands):
        a, b = operands
        result = torch._scaled_mm(a, b.T, scale_a=scale, scale_b=scale, out_dtype=DTYPES[out], use_fast_accum=fast)
        if finish:
            finish(result)

    return Device("torch", sets(request, lambda: stored(request)), run)


def with_cublaslt(request):
    m, n, k, batch = shape(request)
    out = out_dtype(request)

    def make():
        a, b = stored(request)
        return a, b, torch.empty([batch, m, n], device="cuda", dtype=DTYPES[out])

    operands = sets(request, make)
    a, b, _ = operands[0]
    names = {dtype: name for name, dtype in DTYPES.items() if name != "tf32"}
    inputs = [request["dtype"] if request["dtype"] == "tf32" else names[x.dtype] for x in (a, b)]
    terms = (request.get("epilogue") or "none").split("_")
    has_residual = terms[-1] == "residual"
    if has_residual and any(term in ACTIVATIONS for term in terms):
        raise ValueError("cuBLASLt adds a residual before the activation")
    epilogue = "_".join(terms[:-1] if has_residual else terms) or "none"
    residual = random([m, n], out) if has_residual else None
    matmul = Matmul((m, n, k, batch), inputs, out, bool(request.get("trans_a")), bool(request.get("trans_b")), epilogue, residual)
    note = matmul.search(operands, request.get("search_ms"))
    # Captured, so that what Python costs a call is not held against it.
    graph = Graph("cublaslt", operands, matmul.run, request.get("launches") or GRAPH_LAUNCHES)
    graph.note = note
    return graph


OPS = {"torch": with_torch, "scaled_mm": with_scaled_mm, "cublaslt": with_cublaslt}
