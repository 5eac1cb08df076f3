"""NCCL's collectives, by torch, on all devices of the machine: a process for each, which lives as long as this one.

Requests have `bytes`, those of the larger side of a rank, of `dtype` bf16. `graph` says whether runs are replayed from a CUDA graph.
Ops that end in a norm or in scaled gradients are NCCL's all-reduce in bf16 and the kernels of torch that follow it. They take means, so that values
stay finite from run to run. A worker holds one op, so a row has one peer.
"""
import torch
import torch.multiprocessing as multiprocessing

GROUP = 20
WIDTH = 4096
EPS = 1e-5
WORKERS = None
# How an op is called in the table, if it is more than NCCL's.
LABELS = {"all_reduce_norm": "NCCL + torch", "all_reduce_scaled": "NCCL + torch"}


def buffers(op, count, ranks):
    """What a rank gives, and where it gets."""
    full = torch.randn(count, device="cuda").to(torch.bfloat16)
    part = torch.randn(count // ranks, device="cuda").to(torch.bfloat16)
    if op in LABELS:
        return full, torch.randn_like(full)
    return {"all_reduce": (full, full), "broadcast": (full, full), "reduce_scatter": (full, part), "all_gather": (part, full)}[op]


def launch(op, given, gets):
    import torch.distributed as dist

    if op in LABELS:
        follow(op, given, gets)
    elif op == "all_reduce":
        dist.all_reduce(given)
    elif op == "broadcast":
        dist.broadcast(given, 0)
    elif op == "reduce_scatter":
        dist.reduce_scatter_tensor(gets, given)
    else:
        dist.all_gather_into_tensor(gets, given)


def follow(op, given, other):
    """An all-reduce with what follows it: rows with a residual, or gradients whose sum of squares is wanted."""
    import torch.distributed as dist

    dist.all_reduce(given, dist.ReduceOp.AVG)
    if op == "all_reduce_norm":
        width = min(WIDTH, given.numel())
        total = (given + other).view(-1, width)
        return torch.nn.functional.rms_norm(total, (width,), other[:width], EPS)
    return torch.linalg.vector_norm(given.float().mul_(0.5)).square()


class Prepared:
    def __init__(self, request, ranks):
        op = request["op"]
        given, gets = buffers(op, request["bytes"] // 2, ranks)
        self.once = lambda: launch(op, given, gets)
        self.group = 1
        self.once()
        torch.cuda.synchronize()
        if request["graph"]:
            self.graph = torch.cuda.CUDAGraph()
            once, self.group = self.once, GROUP
            with torch.cuda.graph(self.graph):
                for _ in range(GROUP):
                    once()
            self.once = self.graph.replay
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self, runs):
        groups = -(-runs // self.group)
        self.once()
        self.start.record()
        for _ in range(groups):
            self.once()
        self.end.record()
        self.end.synchronize()
        return groups * self.group, self.start.elapsed_time(self.end)


def work(rank, ranks, store, requests, answers):
    import ctypes
    import signal

    import torch.distributed as dist

    # `PR_SET_PDEATHSIG`: the process that asks is killed at the end, and tells nobody.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    held = None
    while True:
        request = requests.get()
        try:
            if "op" in request:
                held = None
                torch.cuda.empty_cache()
                held = Prepared(request, ranks)
                answer = {}
            else:
                answer = held.sample(request["runs"])
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, error)}
        if rank == 0:
            answers.put(answer)


class Workers:
    def __init__(self):
        import tempfile

        context, ranks = multiprocessing.get_context("spawn"), torch.cuda.device_count()
        if ranks < 2:
            raise RuntimeError("no second GPU")
        store = tempfile.mktemp()
        self.answers, self.requests = context.Queue(), [context.Queue() for _ in range(ranks)]
        for rank in range(ranks):
            context.Process(target=work, args=(rank, ranks, store, self.requests[rank], self.answers), daemon=True).start()

    def ask(self, request):
        for queue in self.requests:
            queue.put(request)
        answer = self.answers.get(timeout=120)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


class Op:
    def __init__(self, name, request):
        global WORKERS
        WORKERS = WORKERS or Workers()
        self.label = LABELS.get(name, "NCCL")
        WORKERS.ask({"op": name, "bytes": int(request["bytes"]), "graph": bool(request["graph"])})

    def sample(self, runs):
        return WORKERS.ask({"runs": runs})


OPS = {name: (lambda request, name=name: Op(name, request)) for name in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", *LABELS)}
