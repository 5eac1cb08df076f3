"""What launches, graphs and allocations cost in torch. A run is one kernel of a chain, or one allocation with its release."""
import time

import torch

from peer_timing import Host


def chain_eager(request):
    """Kernels that add 1 to `elements` (1024) numbers, one after another."""
    x = torch.zeros(int(request.get("elements", 1024)), device="cuda")

    def run(runs):
        for _ in range(runs):
            x.add_(1)

    return Host("torch", run)


class ChainGraph(Host):
    """The same in a graph of `kernels` (1000) of them: whole replays are timed."""

    def __init__(self, request):
        self.kernels = int(request.get("kernels", 1000))
        x = torch.zeros(int(request.get("elements", 1024)), device="cuda")
        x.add_(1)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(self.kernels):
                x.add_(1)
        super().__init__("torch", lambda _: self.graph.replay())

    def sample(self, runs):
        replays = -(-runs // self.kernels)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(replays):
            self.graph.replay()
        torch.cuda.synchronize()
        return replays * self.kernels, 1e3 * (time.perf_counter() - begun)


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
    "chain_graph": ChainGraph,
    "allocate_raw": allocate_raw,
    "allocate_tensor": allocate_tensor,
}
