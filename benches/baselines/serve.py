"""What a user would pick instead, served to a bench program that times it sample by sample beside its own kernels.

The bench program starts `python3 serve.py` and writes one JSON object a line to its standard input; each is answered by one line.

    {"prepare": "gemm.torch", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "sets": 2}  ->  {"id": 0, "label": "torch"}
    {"sample": 0, "runs": 10}                                                               ->  {"runs": 10, "milliseconds": 1.84}
    {"drop": 0}                                                                             ->  {}
    {"facts": true}                                                                         ->  {"facts": "PyTorch 2.11.0; .."}

What goes wrong is answered as {"error": "why"}, and the next request works. `prepare` names a topic and one of its ops: the module
`peer_TOPIC.py` has a dict `OPS` of functions, which take the request and return an object with `label` and `sample(runs)`,
and may have a `note`, which the answer has too and the bench program prints;
the latter returns how many runs it made and the milliseconds that they took. `sets` says through how many sets of operands the
runs rotate, so that none is found in the L2 cache. Inputs are random, seeded by nothing: nobody compares results here.
"""
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def prepare(request):
    topic, _, name = request["prepare"].partition(".")
    try:
        ops = importlib.import_module("peer_" + topic).OPS
    except ModuleNotFoundError as error:
        raise LookupError("topic `%s`: %s" % (topic, error)) from error
    if name not in ops:
        raise LookupError("topic `%s` has no op `%s`, only %s" % (topic, name, ", ".join(sorted(ops))))
    return ops[name](request)


def facts():
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch %s sees no CUDA device" % torch.__version__)
    return "%s; PyTorch %s" % (torch.cuda.get_device_name(), torch.__version__)


class Server:
    """The ops that are prepared, by number."""

    def __init__(self):
        self.ops, self.next = {}, 0

    def answer(self, request):
        if "prepare" in request:
            op = prepare(request)
            self.ops[self.next] = op
            self.next += 1
            note = getattr(op, "note", None)
            return {"id": self.next - 1, "label": op.label, **({"note": note} if note else {})}
        if "sample" in request:
            runs, milliseconds = self.ops[request["sample"]].sample(max(1, int(request["runs"])))
            return {"runs": runs, "milliseconds": milliseconds}
        if "drop" in request:
            del self.ops[request["drop"]]
            release()
            return {}
        if "facts" in request:
            return {"facts": facts()}
        raise LookupError("a request is one of prepare, sample, drop, facts")


def release():
    """Gives dropped operands back to the device: the bench program needs the memory too."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def main():
    # Answers go to the real standard output; what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server()
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # Whatever an op or a library throws is an answer, not the end.
            answer = {"error": "%s: %s" % (type(error).__name__, error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
