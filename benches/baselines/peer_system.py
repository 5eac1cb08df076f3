"""What launches, graphs and allocations cost in torch. A run is one kernel of a chain, a replay, or one allocation with its release."""
import torch

from peer_timing import Host


def chain_eager(request):
    """Kernels that add 1 to `elements` (1024) numbers, one after another."""
    x = torch.zeros(int(request.get("elements", 1024)), device="cuda")

    def run(runs):
        for _ in range(runs):
            x.add_(1)

    return Host("torch", run)


def chain_graph(request):
    """The same in a graph of `kernels` (1000) of them. A run is a whole replay."""
    x = torch.zeros(int(request.get("elements", 1024)), device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(int(request.get("kernels", 1000))):
            x.add_(1)

    def run(runs):
        for _ in range(runs):
            graph.replay()

    return Host("torch", run)


def allocate_raw(request):
    """The caching allocator itself: `bytes` taken and given back."""
    size = int(request["bytes"])
    take, give = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete

    def run(runs):
        for _ in range(runs):
            give(take(size))

    return Host("torch raw", run)


def allocate_tensor(request):
    """A tensor of `bytes`, made and dropped."""
    size, empty, kind = int(request["bytes"]), torch.empty, torch.uint8

    def run(runs):
        for _ in range(runs):
            empty(size, device="cuda", dtype=kind)

    return Host("torch", run)


OPS = {
    "chain_eager": chain_eager,
    "chain_graph": chain_graph,
    "allocate_raw": allocate_raw,
    "allocate_tensor": allocate_tensor,
}
