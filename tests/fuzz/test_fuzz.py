"""Damaged files of every kind give a result or one clear error, and run no code."""

from __future__ import annotations

import random
import sys

import pytest

from tests.fuzz.mutations import Target, campaign, mutate, unclear
from tsattn.errors import ConfigError


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGALRM")
@pytest.mark.parametrize("inputs", [390, pytest.param(3_900, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_no_unclear_failure(inputs):
    found = campaign(inputs)
    assert sum(ends.total() for ends in found.values()) == inputs
    assert unclear(found) == []
    assert all(ends["error"] for ends in found.values())


def test_the_campaign_sees_what_it_looks_for(tmp_path):
    def read(error):
        def fail(place):
            raise error

        return Target({"a": b"0123456789"}, "a", fail).one(tmp_path, random.Random(0))

    assert read(ConfigError("what, where, and the fix")) == "error"
    assert read(ConfigError("")) == "an error without words"
    assert read(KeyError("x")).startswith("KeyError: 'x'")
    assert read(SystemExit(1)) == "status 1"
    assert read(SystemExit(2)) == "error"


def test_mutations_change_something():
    data = bytes(range(200))
    changed = [mutate(data, random.Random(seed)) for seed in range(100)]
    assert sum(one != data for one in changed) > 90
    assert len(set(changed)) > 80
