"""Optimisers of torch, and its norm of gradients.

Requests have `tensors`, how many of `shape` there are, and `dtype` (f32). `implementation` is `fused` or `foreach`; `moments` of
another type than the parameters' torch does not have.
"""
import torch

from peer_timing import Device, random


def parameters(request):
    made = []
    for _ in range(int(request["tensors"])):
        parameter = torch.nn.Parameter(random(list(request["shape"]), request.get("dtype", "f32")))
        parameter.grad = random(list(request["shape"]), request.get("dtype", "f32"))
        made.append(parameter)
    return made


def optimizer(make):
    """A step of `make(parameters, how)`, clipped by `max_norm` first if the request has one."""

    def op(request):
        how = request["implementation"]
        held = parameters(request)
        stepping = make(held, {how: True})
        max_norm = request.get("max_norm")

        def run(_):
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(held, max_norm, foreach=True)
            stepping.step()

        return Device(f"torch {how}", [None], run)

    return op


def clip(request):
    held = parameters(request)
    return Device("torch", [None], lambda _: torch.nn.utils.clip_grad_norm_(held, request["max_norm"], foreach=True))


def muon(request):
    held = []
    for shape, count in request["shapes"]:
        held += parameters({"tensors": count, "shape": shape, "dtype": request["dtype"]})
    stepping = torch.optim.Muon(held, lr=1e-6)
    return Device("torch", [None], lambda _: stepping.step())


OPS = {
    "adamw": optimizer(lambda held, how: torch.optim.AdamW(held, lr=1e-6, weight_decay=0.1, **how)),
    "sgd": optimizer(lambda held, how: torch.optim.SGD(held, lr=1e-6, momentum=0.9, nesterov=True, **how)),
    "adafactor": optimizer(lambda held, how: torch.optim.Adafactor(held, lr=1e-6, **how)),
    "clip": clip,
    "muon": muon,
}
