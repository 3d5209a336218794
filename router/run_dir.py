"""The folder of one start: ours alone, held by a lock, with an empty ``metrics/``."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from router.config import BadOption


@contextmanager
def held_run_dir(path: str | None, parent: str | None) -> Iterator[str]:
    """Holds ``path``, or a new folder in ``parent`` (None: the system's) that is removed at the end.

    BadOption if it cannot be had. Two routers in one folder would count each other's workers.
    """
    if path is None:
        with tempfile.TemporaryDirectory(
            prefix="llmgw-router-", dir=parent, ignore_cleanup_errors=True
        ) as folder:
            (Path(folder) / "metrics").mkdir(mode=0o700)
            yield folder
        return
    try:
        _own(Path(path))
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadOption(f"--run: {path} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadOption(
                f"--run: another router runs with {path}; give this one its own"
            ) from None
        metrics = Path(path) / "metrics"
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir(mode=0o700)
        yield os.path.abspath(path)
    finally:
        os.close(lock)


def _own(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise BadOption(
            f"--run: {folder} must belong to this user and be closed to others; "
            f"run: chmod 700 {folder}, or give a folder that does not exist yet"
        )
