"""What a user would pick instead: PyTorch's normalise + matmul + topk over 4 million f16 vectors of 768.

    python3 cosine.py [--out DIR] [--quick]

Two ways: norms of the corpus computed in the same call (`cosine_topk`), and kept from an earlier one (`cosine_prepared`). The
scores are computed in parts of the corpus where [queries, rows] would not fit in memory, each part's top-k kept and merged.
Prints a table and, with --out, writes every sample to DIR/cosine_torch.csv in the form of the bench programs' CSV. Run it in the
same call as the bench program: absolute figures move with clocks and power.
"""
import argparse
import datetime
import pathlib
import sys

import torch
import torch.nn.functional as F

DIM, K, SAMPLES = 768, 10, 10
# Scores in memory at a time: 16 GiB of f16.
PART = 1 << 33


def inverse_norms(corpus):
    """One over the norm of each row, in parts so that the f32 copy stays small."""
    return torch.cat([1 / part.float().norm(dim=1) for part in corpus.split(1 << 18)]).half()


def search(corpus, queries, inverse):
    queries = F.normalize(queries, dim=1)
    rows = max(1, PART // len(queries))
    best = []
    for first in range(0, len(corpus), rows):
        scores = (queries @ corpus[first:first + rows].T) * inverse[None, first:first + rows]
        values, indices = scores.topk(K, dim=1)
        best.append((values, indices + first))
    if len(best) == 1:
        return best[0]
    values, indices = (torch.cat(parts, dim=1) for parts in zip(*best))
    values, order = values.topk(K, dim=1)
    return values, indices.gather(1, order)


def measure(rows, name, shape, work, unit, run):
    """Times a call a sample; the first two warm up and are dropped."""
    samples = []
    for sample in range(SAMPLES + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if sample >= 2:
            samples.append(start.elapsed_time(end))
    rows.append((name, shape, work, unit, samples))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("cosine.py: PyTorch sees no CUDA device")
    torch.manual_seed(0)
    n = 100_000 if options.quick else 4_000_000
    rows = []
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    measure(rows, "copy", "%d B" % (4 * x.numel()), 8 * x.numel(), "B", lambda: y.copy_(x))
    del x, y
    corpus = torch.randn(n, DIM, device="cuda", dtype=torch.float16)
    inverse = inverse_norms(corpus)
    for count in (1, 8, 16, 64, 128, 1024):
        queries = torch.randn(count, DIM, device="cuda", dtype=torch.float16)
        shape = "%dx%dx%d k%d" % (count, n, DIM, K)
        work, unit = (2 * n * DIM, "B") if count <= 16 else (2 * count * n * DIM, "flop")
        measure(rows, "cosine_prepared", shape, work, unit, lambda: search(corpus, queries, inverse))
        measure(rows, "cosine_topk", shape, work, unit, lambda: search(corpus, queries, inverse_norms(corpus)))
    facts = "%s; PyTorch %s; %s; `%s`" % (torch.cuda.get_device_name(), torch.__version__,
                                          datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), " ".join(sys.argv))
    print(facts)
    for name, shape, work, unit, samples in rows:
        median = sorted(samples)[len(samples) // 2]
        rate = work / median / (1e6 if unit == "B" else 1e9)
        print("%-16s %22s %11.4f ms %9.1f %s" % (name, shape, median, rate, "GB/s" if unit == "B" else "TFLOP/s"))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        lines = ["# " + facts, "program,name,shape,sample,runs,milliseconds,work_per_run,unit"]
        for name, shape, work, unit, samples in rows:
            lines += ["torch,%s,%s,%d,1,%.6f,%d,%s" % (name, shape, i, ms, work, unit) for i, ms in enumerate(samples)]
        (options.out / "cosine_torch.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
