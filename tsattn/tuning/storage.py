"""Where a study lives: Optuna's journal file (default) or a database, and the lock of its workers."""

from __future__ import annotations

import contextlib
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.errors import ConfigError, TsattnError
from tsattn.locking import FileLock

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

DEFAULT_STORAGE = "tuning.journal"
_GRACE = 5  # seconds after which another tool's lock on a journal counts as left behind


class StorageError(TsattnError):
    """A study cannot be stored or read where it was asked for."""


def is_url(storage: str) -> bool:
    """Whether ``storage`` names a database; anything else is the path of a journal file."""
    return "://" in storage


def open_storage(storage: str) -> BaseStorage:
    """The storage called ``storage``: a database URL as SQLAlchemy writes it, or the path of a journal file.

    Raises StorageError when it cannot be written or its driver is missing.
    """
    try:
        return _database(storage) if is_url(storage) else _journal(Path(storage))
    except ImportError as error:
        raise StorageError(f"The storage {_hidden(storage)} needs a driver that is not installed: {error}") from None
    except OSError as error:
        raise StorageError(f"Cannot write the journal {storage!r}: {error.strerror or error}.") from None


def _journal(path: Path) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab"):  # refused here, with a clear message, rather than in the middle of the first trial
        pass
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=_journal_lock(path)))
    except (ValueError, KeyError) as error:
        raise StorageError(f"{str(path)!r} is no journal of Optuna: {error}") from None


def _database(url: str) -> BaseStorage:
    import sqlalchemy
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage

    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": 120}
    last: Exception | None = None
    for attempt in range(3):  # two workers that start on an empty server make its tables at the same time
        try:
            with _alone(url):
                return RDBStorage(url, engine_kwargs=options)
        except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise StorageError(f"{_hidden(url)} is no database URL that SQLAlchemy can read: {error}") from None
        except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, RuntimeError) as error:
            last = error
            if not any(words in str(error).lower() for words in ("already exists", "duplicate", "locked")):
                break
            time.sleep(0.5 * (attempt + 1))
    cause = str(getattr(last, "orig", last)).strip().splitlines()[0]
    raise StorageError(f"Cannot open the storage {_hidden(url)}: {cause}.") from None


@contextlib.contextmanager
def _alone(url: str) -> Iterator[None]:
    """One process at a time makes the tables of a SQLite file: to look for them and to make them are two steps."""
    from sqlalchemy import make_url

    read = make_url(url)
    with contextlib.ExitStack() as held:
        if read.get_backend_name() == "sqlite" and (file := _file_of(read)):
            with contextlib.suppress(OSError):  # of a folder that cannot be written: SQLite says so itself
                held.enter_context(FileLock(file)())
        yield


def _file_of(url: Any) -> Path | None:
    """The lock file beside a SQLite file; None for one in memory."""
    return Path(url.database + ".claims") if url.database and url.database != ":memory:" else None


def _hidden(url: str) -> str:
    """The URL without its password, for messages."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, login = head.partition("://")
    return repr(f"{scheme}{slashes}{login.split(':')[0]}:***{at}{tail}" if at and ":" in login else url)


def _journal_lock(path: Path) -> Any:
    """The lock of a journal's writers: ours first, then Optuna's.

    Optuna's lock outlives a killed process, and those who wait may then take it from one another. Ours does not, and
    lets one worker at a time wait for Optuna's, which still keeps the dashboard and the command ``optuna`` out.
    """
    from optuna.storages import journal

    class Both:
        def __init__(self) -> None:
            self._ours = FileLock(path.with_name(path.name + ".writer"))
            kind = journal.JournalFileOpenLock if sys.platform == "win32" else journal.JournalFileSymlinkLock
            self._theirs = kind(str(path), grace_period=_GRACE)
            self._held: Any = None

        def acquire(self) -> bool:
            held = contextlib.ExitStack()
            held.enter_context(self._ours())
            try:
                self._theirs.acquire()
            except BaseException:
                held.close()
                raise
            self._held = held
            return True

        def release(self) -> None:
            held, self._held = self._held, None
            try:
                self._theirs.release()
            finally:
                held.close()

    return Both()


def claim_lock(storage: str, opened: BaseStorage, study: str) -> Any:
    """A context manager factory: one worker of ``study`` at a time, on all machines that share the storage.

    A database server holds the lock itself (and frees it when the connection ends); a journal and SQLite have a lock
    file beside them.
    """
    if not is_url(storage):
        return FileLock(Path(storage).with_name(Path(storage).name + ".claims"))
    engine = getattr(opened, "engine", None)
    if engine is None:
        raise ConfigError(f"The storage {_hidden(storage)} has no database engine.")
    if engine.dialect.name == "sqlite":
        file = _file_of(engine.url)
        return contextlib.nullcontext if file is None else FileLock(file)
    return lambda: _server_lock(engine, f"tsattn:{study}")


@contextlib.contextmanager
def _server_lock(engine: Any, name: str) -> Iterator[None]:
    from sqlalchemy import text

    if engine.dialect.name == "postgresql":
        key = zlib.crc32(name.encode())
        take, free = f"SELECT pg_advisory_lock({key})", f"SELECT pg_advisory_unlock({key})"
    elif engine.dialect.name in ("mysql", "mariadb"):
        key_text = f"tsattn{zlib.crc32(name.encode())}"
        take, free = f"SELECT GET_LOCK('{key_text}', -1)", f"SELECT RELEASE_LOCK('{key_text}')"
    else:
        raise ConfigError(f"Studies are kept in SQLite, PostgreSQL or MySQL, not in {engine.dialect.name!r}.")
    with engine.connect() as connection:
        connection.execute(text(take))
        try:
            yield
        finally:
            connection.execute(text(free))
