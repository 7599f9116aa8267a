"""Files written whole or not at all, and locks that end with the process which holds them."""

from __future__ import annotations

import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# On Windows a lock bars others from the bytes it covers: one far behind what is ever written.
_LOCKED_BYTE = 2**30
# Somebody who clears away may take a new file for a left one, in the moment before it is locked.
_TRIES = 100


class InUse(OSError):
    """A lock that another process holds."""


def locked(file: int) -> bool:
    """Take the lock of an open file: False if another holds it. The end of its process frees it.

    Where a file system has no locks, nobody is kept out.
    """
    try:
        if sys.platform == "win32":
            os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            os.lseek(file, 0, os.SEEK_SET)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _has_name(file: int, path: Path) -> bool:
    """Say whether an open file is still the one of this name."""
    try:
        there = path.lstat()
    except OSError:
        return False
    mine = os.fstat(file)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _opened_lock(path: Path) -> int:
    """Open a lock file, or make one; what is no lock file is refused, for its content would be lost."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if path.is_symlink():
            raise OSError(f"{path} is a link, where a lock file has to be; remove it") from None
        raise error
    state = os.fstat(file)
    held = os.pread(file, 32, 0) if hasattr(os, "pread") else b""
    own = stat.S_ISREG(state.st_mode) and state.st_nlink <= 1 and re.fullmatch(rb"[0-9]*\s*", held)
    if not own:
        os.close(file)
        raise OSError(f"{path} is no lock file, and one has to be there; move it away")
    return file


@contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path`` within the block, and remove it at the end.

    Raises ``InUse`` if a living process holds it: ``what`` is in use.
    """
    for _ in range(_TRIES):
        file = _opened_lock(path)
        if not locked(file):
            owner = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            by = f"process {owner}" if owner.isdigit() else "another process"
            raise InUse(f"{what} is in use by {by}; wait for it or name another folder")
        if _has_name(file, path):
            break
        os.close(file)
    else:
        raise InUse(f"{what} is in use; wait or name another folder")
    try:
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode("ascii"))
        yield
    finally:
        if sys.platform == "win32":  # an open file cannot be removed there
            os.close(file)
            with suppress(OSError):
                path.unlink()
        else:
            path.unlink(missing_ok=True)
            os.close(file)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a new file to write to, which takes the place of ``path`` at the end, or nothing does.

    A link stays a link, and what it points at is replaced. A device or a pipe has no place that could be
    taken: it is written to. A process that is killed leaves a hidden ``.part`` file behind; the next one
    that writes the same file removes it.
    """
    if is_special(path):
        try:
            yield path
        except OSError as error:
            if error.errno is not None:
                error.filename = str(path)
            raise
        return
    target = Path(os.path.realpath(path))
    clear_parts(target.parent, target.name)
    temporary, file = _new_part(target)
    try:
        try:
            yield temporary
        finally:
            os.close(file)
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk does not say which file it had no room for
        raise


def is_special(path: Path) -> bool:
    """Say whether there is something that is neither a file nor a folder: a device, a pipe, a socket.

    Also an open stream by its name (/dev/stdout), wherever it leads: that is written on, not replaced.
    """
    if str(path).startswith(("/dev/", "/proc/")) and path.exists():
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def part_of(target: Path) -> Path:
    """Return a name beside ``target`` for what is being written of it, which nobody else takes."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")


def _new_part(target: Path) -> tuple[Path, int]:
    """Make a new file beside ``target``, held as long as it is open."""
    for _ in range(_TRIES):
        path = part_of(target)
        # What is replaced keeps its mode: a file that is for nobody else stays so, at every moment.
        mode = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
            if mode is not None and sys.platform != "win32":
                os.fchmod(file, mode)
        except OSError as error:
            error.filename = str(target)
            raise
        # Windows keeps an open file from being removed, and a lock would bar our own second handle.
        if sys.platform == "win32" or (locked(file) and _has_name(file, path)):
            return path, file
        os.close(file)
    raise OSError(f"{target} could not be written: something removes its temporary files")


def clear_parts(folder: Path, name: str) -> None:
    """Remove what killed processes have left of writing the file ``name``."""
    own = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}\.part")
    with suppress(OSError):
        for entry in os.scandir(folder):
            if own.fullmatch(entry.name):
                _remove_if_left(Path(entry.path))


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            path.unlink()
            return
        file = os.open(path, os.O_RDWR)
        try:
            # Without the lock of the writer there is no telling whether it lives.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(file)


def identity(path: str | os.PathLike[str]) -> tuple[object, ...]:
    """Return what two names of one file have in common, whether it exists or not."""
    try:
        found = os.stat(path)
    except OSError:
        return (os.path.normcase(os.path.realpath(path)),)
    return identity_of(found)


def identity_of(found: os.stat_result) -> tuple[object, ...]:
    """Return what all names of a file that exists have in common."""
    return (found.st_dev, found.st_ino)
