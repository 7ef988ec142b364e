"""A file is written whole, or not at all."""

from __future__ import annotations

import os

import pytest

from tsattn.writing import write_whole


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    write_whole(file, b"old")
    monkeypatch.setattr(os, "fsync", lambda stream: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    monkeypatch.undo()
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]
