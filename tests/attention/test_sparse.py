"""Local and ProbSparse attention against full attention and a slow loop."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tsattn.attention import attend, causal_mask, local_attend, local_mask, prob_sparse_attend
from tsattn.errors import ConfigError


@pytest.mark.parametrize(("queries", "keys"), [(10, 10), (1, 1), (7, 12), (12, 7), (50, 50), (3, 40)])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 0), (2, 4), (100, 100)])
@pytest.mark.parametrize("block", [1, 4, 128])
def test_local_attention_is_attention_under_the_local_mask(queries, keys, before, after, block):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 5)
    observed = torch.rand(2, 1, 1, keys) > 0.2
    window = local_mask(queries, keys, before=before, after=after)
    for extra in (None, observed, torch.rand(queries, keys) > 0.3):
        near = local_attend(query, key, value, before=before, after=after, block=block, mask=extra, weights=True)
        whole = attend(query, key, value, mask=window if extra is None else window & extra, weights=True)
        torch.testing.assert_close(near.output, whole.output, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(near.weights, whole.weights)


def test_local_attention_with_another_score_and_normaliser():
    torch.manual_seed(0)
    tokens = torch.randn(2, 30, 4)
    options = {"score": "dot", "normaliser": "sparsemax"}
    near = local_attend(tokens, tokens, tokens, before=5, block=7, **options)
    torch.testing.assert_close(
        near.output, attend(tokens, tokens, tokens, mask=local_mask(30, before=5), **options).output
    )
    assert near.weights is None
    with pytest.raises(ConfigError, match="before and after are at least 0"):
        local_attend(tokens, tokens, tokens, before=-1)


def slow_prob_sparse(
    query: Tensor, key: Tensor, value: Tensor, factor: float, mask: Tensor
) -> tuple[Tensor, list[int]]:
    """One head, query by query: which stand out over the sampled keys, and what each reads."""
    queries, keys = len(query), len(key)
    sampled = max(1, min(keys, math.ceil(factor * math.log(max(keys, 2)))))
    selected = max(1, min(queries, math.ceil(factor * math.log(max(queries, 2)))))
    measure = []
    for j in range(queries):
        sample = [(s * keys // sampled + j) % keys for s in range(sampled)]
        scores = [float(query[j] @ key[i]) / query.shape[1] ** 0.5 for i in sample if mask[j, i]]
        measure.append(max(scores) - sum(scores) / len(scores) if scores else -math.inf)
    rows = sorted(sorted(range(queries), key=lambda j: -measure[j])[:selected])
    output = torch.zeros(queries, value.shape[1])
    for j in range(queries):
        seen = [i for i in range(keys) if mask[j, i]]
        if j in rows and seen:
            weights = torch.tensor([float(query[j] @ key[i]) / query.shape[1] ** 0.5 for i in seen]).softmax(0)
            output[j] = weights @ value[seen]
        elif seen:
            output[j] = value[seen].mean(0)
    return output, rows


@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(20, 20, False), (20, 20, True), (8, 30, True), (30, 9, False)]
)
def test_prob_sparse_agrees_with_the_loop(queries, keys, causal):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 2, queries, 4), torch.randn(2, 2, keys, 4), torch.randn(2, 2, keys, 3)
    observed = torch.rand(2, 1, keys) > 0.2
    read = prob_sparse_attend(query, key, value, factor=1.5, causal=causal, observed=observed, weights=True)
    assert read.rows.shape[-1] < queries
    for b in range(2):
        for n in range(2):
            mask = observed[b, 0].expand(queries, keys)
            mask = mask & causal_mask(queries, keys) if causal else mask
            output, rows = slow_prob_sparse(query[b, n], key[b, n], value[b, n], 1.5, mask)
            assert read.rows[b, n].tolist() == rows
            torch.testing.assert_close(read.output[b, n], output, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(read.weights[b, n] @ value[b, n], output[rows], atol=1e-5, rtol=1e-5)
            assert (read.weights[b, n][~mask[rows]] == 0).all()


def test_prob_sparse_gives_the_same_twice():
    torch.manual_seed(0)
    tokens = torch.randn(2, 40, 4)
    first, again = (prob_sparse_attend(tokens, tokens, tokens, factor=1.0, weights=True) for _ in range(2))
    assert torch.equal(first.output, again.output)
    assert torch.equal(first.rows, again.rows)
    without = prob_sparse_attend(tokens, tokens, tokens, factor=1.0)
    assert torch.equal(without.output, first.output)
    assert without.weights is None


def test_prob_sparse_never_reads_the_future():
    torch.manual_seed(0)
    tokens = torch.randn(1, 40, 4)
    changed = tokens.clone()
    changed[:, 25:] = 50.0
    options = {"factor": 100.0, "causal": True}  # every query is selected: the choice cannot depend on the future
    before, after = (prob_sparse_attend(x, x, x, **options).output for x in (tokens, changed))
    assert torch.equal(before[:, :25], after[:, :25])


def test_selecting_every_query_is_full_attention():
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 12, 4), torch.randn(2, 3, 12, 4)
    read = prob_sparse_attend(query, key, key, factor=100.0, causal=True, weights=True)
    whole = attend(query, key, key, mask=causal_mask(12), weights=True)
    torch.testing.assert_close(read.output, whole.output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read.weights, whole.weights)


_PEAK = """
import resource, sys, torch
from tsattn.attention import attend
torch.set_num_threads(1)
query, key, value = torch.randn(3, 1, 8, 4096, 16)
mask = torch.arange(4096) > 100 if sys.argv[2] == "masked" else None
rows = {"no": False, "some": torch.arange(0, 4096, 512), "all": True}[sys.argv[1]]
attend(query[:, :, :64], key[:, :, :64], value[:, :, :64])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read = attend(query, key, value, mask=mask, weights=rows)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in Linux's units")
def test_some_rows_of_a_long_attention_cost_little_memory():
    """4,096 queries and keys in 8 heads: the whole map is 512 MiB; eight rows of it are 1 MiB."""

    def peak(rows: str, mask: str) -> float:
        command = [sys.executable, "-c", _PEAK, rows, mask]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
        return int(done.stdout) / 1024  # MiB

    whole = peak("all", "plain")
    assert whole > 512  # the measure sees the map
    for mask in ("plain", "masked"):
        assert peak("some", mask) < 64, mask
