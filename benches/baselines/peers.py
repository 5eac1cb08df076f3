"""What a user would pick instead: PyTorch's copy, saxpy, sum, max, transpose and f32 matmul.

    python3 peers.py [--out DIR] [--quick]

Prints a table and, with --out, writes every sample to DIR/peers.csv in the form of the bench programs' CSV. Medians of CUDA-event
times, random data, TF32 off. Run it in the same call as the bench programs: absolute figures move with clocks and power.
"""
import argparse
import datetime
import pathlib
import sys

import torch

SAMPLES, RUNS = 20, 5


def measure(rows, name, shape, work, unit, run):
    """Times RUNS calls a sample; the first sample warms up and is dropped."""
    samples = []
    for sample in range(SAMPLES + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(RUNS):
            run()
        end.record()
        torch.cuda.synchronize()
        if sample:
            samples.append(start.elapsed_time(end))
    rows.append((name, shape, work, unit, samples))


def basic(rows, n):
    x = torch.randn(n, device="cuda")
    y = torch.randn(n, device="cuda")
    measure(rows, "copy", n, 8 * n, "B", lambda: y.copy_(x))
    measure(rows, "saxpy", n, 12 * n, "B", lambda: y.add_(x, alpha=0.5))
    measure(rows, "reduce_sum", n, 4 * n, "B", lambda: torch.sum(x))
    measure(rows, "reduce_max", n, 4 * n, "B", lambda: torch.max(x))
    for side in [(16384, 16384), (8192, 32768), (10000, 20004), (16383, 16385)]:
        elements = side[0] * side[1]
        if elements > n:
            continue
        matrix, out = x[:elements].view(side), y[:elements].view(side[1], side[0])
        measure(rows, "transpose", "%dx%d" % side, 8 * elements, "B", lambda: out.copy_(matrix.T))


def gemm(rows, shapes):
    for m, n, k in shapes:
        # Sets of operands that together exceed the L2 cache.
        sets = max(1, min(16, (240 << 20) // (4 * (m * k + k * n + m * n))))
        operands = [(torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")) for _ in range(sets)]
        turn = iter(range(10**9))
        measure(rows, "gemm_f32", "%dx%dx%d" % (m, n, k), 2 * m * n * k, "flop",
                lambda: torch.mm(*operands[next(turn) % sets]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("peers.py: PyTorch sees no CUDA device")
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    basic(rows, 1 << (20 if options.quick else 28))
    shapes = [(512,) * 3, (1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3,
              (16384, 1024, 4096), (2048, 2048, 16384), (4097, 4099, 4101)]
    gemm(rows, shapes[:1] if options.quick else shapes)
    facts = "%s; PyTorch %s; %s; `%s`" % (torch.cuda.get_device_name(), torch.__version__,
                                          datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), " ".join(sys.argv))
    print(facts)
    for name, shape, work, unit, samples in rows:
        median = sorted(samples)[len(samples) // 2] / RUNS
        rate = work / median / (1e6 if unit == "B" else 1e9)
        print("%-12s %22s %11.4f ms %9.1f %s" % (name, shape, median, rate, "GB/s" if unit == "B" else "TFLOP/s"))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        lines = ["# " + facts, "program,name,shape,sample,runs,milliseconds,work_per_run,unit"]
        for name, shape, work, unit, samples in rows:
            lines += ["torch,%s,%s,%d,%d,%.6f,%d,%s" % (name, shape, i, RUNS, ms, work, unit) for i, ms in enumerate(samples)]
        (options.out / "peers.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
