"""``benchmarks/gpu_check.py`` on an accelerator where there is one, and without one to see that its checks work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from gpu_check import CHECKS


def name(check):
    return check.__name__


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS, ids=name)
def test_on_the_accelerator(check):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    assert check(torch.device("cuda"))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=name)
def test_the_check_itself(check):
    assert check(torch.device("cpu"))
