"""Local and ProbSparse attention against full attention and a slow loop."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tsattn.attention import attend, attention_weights, causal_mask, local_attend, local_mask, prob_sparse_attend
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


def test_causal_rows_read_no_key_beyond_their_own_position():
    """Which queries are selected is decided among all of them; what a row reads, selected or not, is its past alone."""
    torch.manual_seed(0)
    tokens = torch.randn(1, 40, 4)
    changed = tokens.clone()
    changed[:, 25:] = 3 * torch.randn(1, 15, 4)
    before, after = (prob_sparse_attend(x, x, x, factor=3.0, causal=True) for x in (tokens, changed))
    first, second = (set(read.rows[0].tolist()) for read in (before, after))
    same = [row for row in range(25) if (row in first) == (row in second)]
    assert {True, False} == {row in first for row in same}  # of both kinds
    torch.testing.assert_close(before.output[:, same], after.output[:, same], atol=1e-6, rtol=1e-5)


def test_prob_sparse_under_autocast_and_in_half_precision():
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 30, 8), torch.randn(2, 40, 8), torch.randn(2, 40, 8)
    exact = prob_sparse_attend(query, key, value, factor=2.0, causal=True, weights=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = prob_sparse_attend(query, key, value, factor=2.0, causal=True, weights=True)
    assert torch.equal(cast.rows, exact.rows)
    torch.testing.assert_close(cast.output.float(), exact.output, atol=0.03, rtol=0)
    half = prob_sparse_attend(query.bfloat16(), key.bfloat16(), value.bfloat16(), factor=2.0)
    assert half.output.dtype == torch.bfloat16
    assert prob_sparse_attend(query[:, :0], key, value).output.shape == (2, 0, 8)


def test_sparse_attention_reaches_the_gradients():
    """Selected and other rows: as the explicit weights would give it."""
    torch.manual_seed(0)
    tensors = [torch.randn(1, 20, 4, requires_grad=True) for _ in range(3)]
    read = prob_sparse_attend(*tensors, factor=1.0, causal=True)
    rows = read.rows[0]
    read.output.square().sum().backward()
    found = [tensor.grad.clone() for tensor in tensors]
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    mask = causal_mask(20)
    even = mask / mask.sum(-1, keepdim=True)
    chosen = (torch.arange(20)[:, None] == rows).any(-1)
    weights = torch.where(chosen[:, None], attention_weights(copies[0], copies[1], mask=mask), even)
    (weights @ copies[2]).square().sum().backward()
    for gradient, tensor in zip(found, copies, strict=True):
        torch.testing.assert_close(gradient, tensor.grad, atol=1e-5, rtol=1e-4)


def test_without_keys_zeros_are_read():
    query, key, value = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 0, 4), torch.randn(2, 3, 0, 5)
    read = prob_sparse_attend(query, key, value, weights=True)
    assert torch.equal(read.output, torch.zeros(2, 3, 6, 5))
    assert read.weights.shape == (2, 3, 6, 0)


def test_no_queries():
    tokens = torch.randn(2, 6, 4)
    assert local_attend(tokens[:, :0], tokens, tokens, before=2).output.shape == (2, 0, 4)


def test_selecting_every_query_is_full_attention():
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 12, 4), torch.randn(2, 3, 12, 4)
    read = prob_sparse_attend(query, key, key, factor=100.0, causal=True, weights=True)
    whole = attend(query, key, key, mask=causal_mask(12), weights=True)
    torch.testing.assert_close(read.output, whole.output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read.weights, whole.weights)


_PEAK = """
import contextlib, sys, torch
from tsattn.attention import attend, causal_mask, local_attend, prob_sparse_attend
torch.set_num_threads(1)

def work(length, heads):
    query, key, value = torch.randn(3, 1, heads, length, 16)
    rows, hidden = torch.arange(0, length, length // 8), torch.arange(length) > length // 8
    wide = torch.randn(1, heads, length, 32)
    return {
        "all": lambda: attend(query, key, value, weights=True),
        "none": lambda: attend(query, key, value),
        "some": lambda: attend(query, key, value, weights=rows),
        "masked": lambda: attend(query, key, value, mask=hidden, weights=rows),
        "biased": lambda: attend(query, key, value, bias=torch.randn(heads, 1, length), weights=rows),
        "wide": lambda: attend(query, key, wide, mask=hidden, weights=rows),
        "narrow": lambda: attend(query, key, value[..., :8], weights=rows),
        "causal_mask": lambda: causal_mask(length),
        "local": lambda: local_attend(query, key, value, before=24, mask=hidden),
        "prob_sparse": lambda: prob_sparse_attend(query, key, value, observed=hidden, causal=True),
    }[sys.argv[1]]

def high_water():  # of this process; ru_maxrss would start at what its parent once held
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

work(64, 8)()
call = work(4096, 8)
with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")  # the high water is what is held now, not what making the inputs took
before = high_water()
read = call()
print(high_water() - before)
"""


_LIMITS = {  # MiB; the whole map is 512, eight rows of it are 1
    "none": 32,
    "some": 32,
    "masked": 32,
    "biased": 32,
    "wide": 48,
    "narrow": 48,
    "causal_mask": 24,  # itself: 16
    "local": 32,
    "prob_sparse": 256,  # its sample: 43 keys of width 16 for each query of each head, 86, and its product
}


def peak(kind: str) -> float:
    """MiB that a call needs beyond its inputs: 4,096 queries and keys in 8 heads."""
    command = [sys.executable, "-c", _PEAK, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in Linux's units")


@linux
@pytest.mark.slow
def test_the_measure_of_memory_sees_the_whole_map():
    assert 500 < peak("all") < 800  # the map, and what its softmax takes on the way


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", _LIMITS)
def test_long_attention_costs_little_memory(kind):
    assert peak(kind) < _LIMITS[kind]
