"""One holder at a time, also around a lock file that is removed."""

from __future__ import annotations

import pytest

from tsattn.locking import FileLock


def test_a_lock_that_was_removed_holds_off_the_next_one_all_the_same(tmp_path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock", wait=False)
    with first():
        with pytest.raises(BlockingIOError), second():
            pass
        first.remove()
        with second(), pytest.raises(BlockingIOError), FileLock(tmp_path / "lock", wait=False)():
            pass
    with second():
        assert (tmp_path / "lock").exists()
