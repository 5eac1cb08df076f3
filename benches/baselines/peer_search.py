"""Cosine top-k over a corpus of f16 vectors: normalise, matmul, topk.

Requests have queries, rows, dim and top. `topk` computes the norms of the corpus each time, `prepared` keeps them. Scores are
computed in parts of the corpus where [queries, rows] would not fit in memory, each part's top-k kept and merged.
"""
import torch
import torch.nn.functional as F

from peer_timing import Device, random

# Scores in memory at a time: 16 GiB of f16.
PART = 1 << 33


def inverse_norms(corpus):
    """One over the norm of each row, in parts so that the f32 copy stays small."""
    return torch.cat([1 / part.float().norm(dim=1) for part in corpus.split(1 << 18)]).half()


def search(corpus, queries, inverse, top):
    queries = F.normalize(queries, dim=1)
    rows = max(1, PART // len(queries))
    best = []
    for first in range(0, len(corpus), rows):
        scores = (queries @ corpus[first:first + rows].T) * inverse[None, first:first + rows]
        values, indices = scores.topk(top, dim=1)
        best.append((values, indices + first))
    if len(best) == 1:
        return best[0]
    values, indices = (torch.cat(parts, dim=1) for parts in zip(*best))
    values, order = values.topk(top, dim=1)
    return values, indices.gather(1, order)


class Corpora:
    """The corpus of the last request: 6 GB that several rows of a bench program share."""

    shape, corpus, inverse = None, None, None

    @classmethod
    def of(cls, rows, dim):
        if cls.shape != (rows, dim):
            cls.corpus = cls.inverse = None
            cls.corpus = random([rows, dim], "f16")
            cls.shape, cls.inverse = (rows, dim), inverse_norms(cls.corpus)
        return cls.corpus, cls.inverse


def op(prepared):
    def make(request):
        dim, top = int(request["dim"]), int(request["top"])
        corpus, inverse = Corpora.of(int(request["rows"]), dim)
        queries = random([int(request["queries"]), dim], "f16")

        def run(_):
            search(corpus, queries, inverse if prepared else inverse_norms(corpus), top)

        return Device("torch", [None], run)

    return make


OPS = {"topk": op(False), "prepared": op(True)}
