"""Milliseconds of torch's first matrix product in a new process, from the device's context to the result."""

import sys
import time

import torch

m, n, k = (int(side) for side in sys.argv[1].split("x"))
torch.cuda.init()
torch.cuda.synchronize()
begun = time.perf_counter()
a = torch.zeros(m, k, dtype=torch.bfloat16, device="cuda")
b = torch.zeros(k, n, dtype=torch.bfloat16, device="cuda")
torch.matmul(a, b)
torch.cuda.synchronize()
print(1e3 * (time.perf_counter() - begun))
