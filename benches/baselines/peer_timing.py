"""How ops are timed: by the device's events, replayed from a CUDA graph, or by the host's clock. See serve.py.

As in the bench programs, one run before each sample belongs to none: it fills what the other process's kernels emptied.
"""
import time

import torch

# Launches of a graph, at least: the cost of starting one is spread over them.
GRAPH_LAUNCHES = 64
DTYPES = {"f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
          "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8}


def random(shape, dtype):
    """Standard normal elements; integers below 100."""
    kind = DTYPES[dtype]
    if not kind.is_floating_point:
        return torch.randint(0, 100, shape, device="cuda", dtype=kind)
    # In parts: f32 values of a large 8-bit operand need not all exist at once.
    out = torch.empty(shape, device="cuda", dtype=kind)
    flat = out.view(-1)
    for first in range(0, flat.numel(), 1 << 28):
        part = flat[first:first + (1 << 28)]
        part.copy_(torch.randn(part.shape, device="cuda"))
    return out


def sets(request, make):
    """As many sets of operands as the request asks for."""
    return [make() for _ in range(max(1, int(request.get("sets", 1))))]


class Device:
    """Times `run(operands)` between two events on the stream, one set of operands after another."""

    def __init__(self, label, operands, run):
        self.label, self.operands, self.run, self.turn = label, operands, run, 0
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.once()
        torch.cuda.synchronize()

    def once(self):
        self.turn = (self.turn + 1) % len(self.operands)
        self.run(self.operands[self.turn])

    def sample(self, runs):
        self.once()
        self.start.record()
        for _ in range(runs):
            self.once()
        self.end.record()
        self.end.synchronize()
        return runs, self.start.elapsed_time(self.end)


class Graph(Device):
    """The same, captured once and replayed: without what Python costs a launch. `launches` are what one `run` launches."""

    def __init__(self, label, operands, run, at_least=GRAPH_LAUNCHES):
        super().__init__(label, operands, run)
        rounds = -(-at_least // len(operands)) if len(operands) > 1 else 1
        self.captured = rounds * len(operands)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(self.captured):
                self.once()
        torch.cuda.synchronize()

    def sample(self, runs):
        replays = -(-runs // self.captured)
        self.graph.replay()
        self.start.record()
        for _ in range(replays):
            self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return replays * self.captured, self.start.elapsed_time(self.end)


class Host:
    """Times `run(runs)` by the host's clock, the device idle before and after."""

    def __init__(self, label, run):
        self.label, self.run = label, run
        run(1)

    def sample(self, runs):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        self.run(runs)
        torch.cuda.synchronize()
        return runs, 1e3 * (time.perf_counter() - begun)
