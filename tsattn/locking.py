"""One process at a time: a lock on a file that the system frees when its process dies, however it dies."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


class FileLock:
    """Holds off every other process that locks the same file."""

    def __init__(self, path: Path, *, wait: bool = True) -> None:
        """Lock the file ``path``, which is made when it is not there.

        ``wait=False``: raise BlockingIOError instead of waiting for the one who holds it.
        """
        self.path, self.wait = path, wait

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the lock."""
        while True:
            with open(self.path, "ab") as file:
                _lock(file.fileno(), self.wait)
                try:
                    if not self._is_there(file.fileno()):
                        continue  # removed by the one who held it before us: a lock on it would hold off nobody
                    yield
                    return
                finally:
                    _unlock(file.fileno())

    def remove(self) -> None:
        """Remove the file, while holding it; where the system does not let go of open files, it stays."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(handle))
        except FileNotFoundError:
            return False


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int, wait: bool) -> None:
        while True:
            os.lseek(handle, 0, os.SEEK_SET)
            try:
                return msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            except OSError as error:  # with LK_LOCK it gives up after ten seconds
                if not wait:
                    raise BlockingIOError(str(error)) from None

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(handle: int, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
