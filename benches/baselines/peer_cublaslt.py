"""cuBLASLt through ctypes: up to 32 algorithms that its heuristic proposes, each timed, the fastest kept.

cuBLAS is column-major, so it computes the transpose of the row-major result: `C^T = op(B)^T op(A)^T`, B first. A residual is its C, with beta 1,
beside a result of its own; it is added before an activation, so only without one is it what the other peers compute.
"""
import ctypes
import time
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

import torch

CANDIDATES = 32
WORKSPACE_BYTES = 32 << 20
# Runs of each candidate that are timed, after one that is not.
TRIALS = 10
# Where the time of the search is limited: candidates that are timed in any case, and the part of that time from which one run is enough.
AT_LEAST = 4
LONG = 0.01
# cublasLt.h
TYPES = {"f32": 0, "tf32": 0, "f64": 1, "f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
SCALE_TYPE = TYPES["f32"]
DESC_TRANS_A, DESC_TRANS_B, DESC_EPILOGUE, DESC_BIAS, DESC_A_SCALE, DESC_B_SCALE, DESC_FAST_ACCUMULATION = 3, 4, 7, 8, 17, 18, 25
LAYOUT_BATCH, LAYOUT_BATCH_STRIDE = 5, 6
PREFERENCE_WORKSPACE = 1
EPILOGUES = {"none": 1, "relu": 2, "bias": 4, "bias_relu": 6, "gelu": 32, "bias_gelu": 36}


class Heuristic(ctypes.Structure):
    _fields_ = [("algo", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int), ("waves", c_float), ("reserved", c_int * 4)]


def library():
    torch.cuda.init()
    failures = []
    for name in ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            failures.append(str(error))
    raise RuntimeError("no cuBLASLt: " + "; ".join(failures))


def check(what, status):
    if status:
        raise RuntimeError("%s: cublasStatus %d" % (what, status))


class Matmul:
    """One problem: `shape` is (m, n, k, batch), `inputs` the dtypes of A and B."""

    handle = None

    def __init__(self, shape, inputs, out, trans_a, trans_b, epilogue, residual=None):
        if epilogue not in EPILOGUES:
            raise ValueError("cuBLASLt has no epilogue %s" % epilogue)
        self.lt = library()
        if Matmul.handle is None:
            handle = c_void_p()
            check("create", self.lt.cublasLtCreate(byref(handle)))
            Matmul.handle = handle
        m, n, k, batch = shape
        self.shape, self.narrow = shape, inputs[0] in ("e4m3", "e5m2")
        self.workspace = torch.empty(WORKSPACE_BYTES, device="cuda", dtype=torch.uint8)
        self.residual = residual
        self.alpha, self.beta, self.one = c_float(1), c_float(0 if residual is None else 1), torch.ones((), device="cuda")
        self.desc = c_void_p()
        compute = COMPUTE_32F_FAST_TF32 if inputs[0] == "tf32" else COMPUTE_32F
        check("descriptor", self.lt.cublasLtMatmulDescCreate(byref(self.desc), compute, SCALE_TYPE))
        # Row-major [k, n] is column-major n x k; the product wants n x k first: no transposition. So for A.
        self.attribute(DESC_TRANS_A, c_int(1 if trans_b else 0))
        self.attribute(DESC_TRANS_B, c_int(1 if trans_a else 0))
        self.attribute(DESC_EPILOGUE, c_int(EPILOGUES[epilogue]))
        if "bias" in epilogue:
            self.bias = torch.randn(n, device="cuda").to(torch.bfloat16 if out == "bf16" else torch.float16 if out == "f16" else torch.float32)
            self.attribute(DESC_BIAS, c_void_p(self.bias.data_ptr()))
        if self.narrow:
            self.attribute(DESC_A_SCALE, c_void_p(self.one.data_ptr()))
            self.attribute(DESC_B_SCALE, c_void_p(self.one.data_ptr()))
            self.attribute(DESC_FAST_ACCUMULATION, ctypes.c_int8(1))
        self.first = self.layout(inputs[1], *((k, n) if trans_b else (n, k)), batch)
        self.second = self.layout(inputs[0], *((m, k) if trans_a else (k, m)), batch)
        self.result = self.layout(out, n, m, batch)
        self.algo = None

    def attribute(self, which, value):
        check("attribute %d" % which,
              self.lt.cublasLtMatmulDescSetAttribute(self.desc, which, byref(value), c_size_t(ctypes.sizeof(value))))

    def layout(self, dtype, rows, columns, batch):
        layout = c_void_p()
        check("layout", self.lt.cublasLtMatrixLayoutCreate(byref(layout), TYPES[dtype], c_uint64(rows), c_uint64(columns), c_int64(rows)))
        if batch > 1:
            for which, value in ((LAYOUT_BATCH, ctypes.c_int32(batch)), (LAYOUT_BATCH_STRIDE, c_int64(rows * columns))):
                check("batch", self.lt.cublasLtMatrixLayoutSetAttribute(layout, which, byref(value), c_size_t(ctypes.sizeof(value))))
        return layout

    def candidates(self):
        preference, limit = c_void_p(), c_size_t(WORKSPACE_BYTES)
        check("preference", self.lt.cublasLtMatmulPreferenceCreate(byref(preference)))
        check("preference", self.lt.cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, byref(limit), c_size_t(ctypes.sizeof(limit))))
        results, found = (Heuristic * CANDIDATES)(), c_int()
        status = self.lt.cublasLtMatmulAlgoGetHeuristic(self.handle, self.desc, self.first, self.second, self.result, self.result,
                                                        preference, CANDIDATES, results, byref(found))
        self.lt.cublasLtMatmulPreferenceDestroy(preference)
        check("heuristic", status)
        return [result for result in results[:found.value] if result.state == 0]

    def run(self, operands):
        """Queues the product of a set of operands (A, B, C) on torch's stream."""
        a, b, c = operands
        c_pointer = c_void_p(c.data_ptr())
        added = c_pointer if self.residual is None else c_void_p(self.residual.data_ptr())
        check("matmul", self.lt.cublasLtMatmul(
            self.handle, self.desc, byref(self.alpha), c_void_p(b.data_ptr()), self.first, c_void_p(a.data_ptr()), self.second,
            byref(self.beta), added, self.result, c_pointer, self.result, self.algo, c_void_p(self.workspace.data_ptr()),
            c_size_t(WORKSPACE_BYTES), c_void_p(torch.cuda.current_stream().cuda_stream)))

    def timed(self, operands, trials):
        """Milliseconds of a run."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for trial in range(trials):
            self.run(operands[trial % len(operands)])
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / trials

    def search(self, operands, limit_ms=None):
        """Keeps the fastest candidate. Returns a note where the time was over before all were timed."""
        begun, best, note = time.perf_counter(), None, None
        candidates = self.candidates()
        for done, candidate in enumerate(candidates):
            if limit_ms and done >= AT_LEAST and best and 1e3 * (time.perf_counter() - begun) > limit_ms:
                note = "%d of %d algorithms timed in %d ms" % (done, len(candidates), 1e3 * (time.perf_counter() - begun))
                break
            self.algo = byref(candidate, Heuristic.algo.offset)
            try:
                self.run(operands[0])
                elapsed = self.timed(operands, 1) if limit_ms else 0
                if not limit_ms or elapsed < LONG * limit_ms:
                    elapsed = self.timed(operands, TRIALS)
            except RuntimeError:
                continue  # Proposed, but refuses this problem.
            if best is None or elapsed < best[0]:
                best = (elapsed, candidate)
        if best is None:
            raise RuntimeError("cuBLASLt proposes no algorithm for %s" % (self.shape,))
        # Kept with the object: `algo` points into it.
        self.kept = best[1]
        self.algo = byref(self.kept, Heuristic.algo.offset)
        return note

    def __del__(self):
        for layout in (getattr(self, name, None) for name in ("first", "second", "result")):
            if layout:
                self.lt.cublasLtMatrixLayoutDestroy(layout)
        if getattr(self, "desc", None):
            self.lt.cublasLtMatmulDescDestroy(self.desc)
