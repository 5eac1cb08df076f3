"""Products of groups of rows, and with factors for blocks. Requests have n, k.

`torch`: torch._grouped_mm (e4m3: torch._scaled_grouped_mm, with a factor for each row of A and column of B) of the groups whose rows the request's
`offsets` say, into bf16. `loop`: a product for each group, whose sizes the host knows.
`blocks`: of m rows; torch._scaled_mm of e4m3 with a factor for each row and 128 elements of k of A, and for each 128 x 128 of B, into bf16.
"""
import torch

from peer_timing import Device, Graph, random, sets


def groups_of(request):
    """Offsets on the host, and A and B of all groups."""
    offsets, n, k = request["offsets"], int(request["n"]), int(request["k"])
    return offsets, lambda: (random([offsets[-1], k], request["dtype"]), random([len(offsets) - 1, n, k], request["dtype"]))


def with_torch(request):
    offsets, make = groups_of(request)
    ends = torch.tensor(offsets[1:], device="cuda", dtype=torch.int32)
    if request["dtype"] != "e4m3":
        return Device("torch", sets(request, make), lambda ab: torch._grouped_mm(ab[0], ab[1].transpose(-2, -1), offs=ends))
    scales = [torch.ones(shape, device="cuda") for shape in ([offsets[-1]], [len(offsets) - 1, int(request["n"])])]

    def run(operands):
        a, b = operands
        torch._scaled_grouped_mm(a, b.transpose(-2, -1), scales[0], scales[1], offs=ends, out_dtype=torch.bfloat16,
                                 use_fast_accum=True)

    return Device("torch", sets(request, make), run)


def with_loop(request):
    offsets, make = groups_of(request)
    if request["dtype"] == "e4m3":
        raise ValueError("torch.mm takes no 8-bit elements")
    out = torch.empty([offsets[-1], int(request["n"])], device="cuda", dtype=torch.bfloat16)

    def run(operands):
        a, b = operands
        for group, (begin, end) in enumerate(zip(offsets, offsets[1:])):
            torch.mm(a[begin:end], b[group].T, out=out[begin:end])

    return Graph("loop", sets(request, make), run)


def blocks_of(length):
    return -(-length // 128)


def factors(rows, columns):
    """Positive factors `[rows, columns]`, those of a column side by side."""
    return torch.rand([columns, rows], device="cuda").add_(0.5).T


def with_blocks(request):
    m, n, k = (int(request[side]) for side in ("m", "n", "k"))

    def make():
        # The library wants columns of B's factors to begin at multiples of 16 bytes.
        across = -(-blocks_of(k) // 4) * 4
        of_b = torch.rand([blocks_of(n), across], device="cuda").add_(0.5).T[:blocks_of(k)]
        return random([m, k], "e4m3"), random([n, k], "e4m3"), factors(m, blocks_of(k)), of_b

    def run(operands):
        a, b, of_a, of_b = operands
        torch._scaled_mm(a, b.T, scale_a=of_a, scale_b=of_b, out_dtype=torch.bfloat16)

    return Device("torch", sets(request, make), run)


OPS = {"torch": with_torch, "loop": with_loop, "blocks": with_blocks}
