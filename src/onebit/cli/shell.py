"""How the command line speaks: results to standard output, everything else to standard error.

Exit codes: 0 done, 1 the work failed or a value was refused, 2 options that are unknown or do not go
together, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from onebit.data.files import InUse, identity, identity_of, is_special, lock, part_of
from onebit.engine.checkpoint import own_name
from onebit.engine.gpu.device import DeviceError

FAILED, WRONG, STOPPED = 1, 2, 130
# Parameters as the library spells them, which are options here; calls of Python stay as they are.
_SPELT = re.compile(
    r'\w+Completer\([^)]*\)|\b(certify|certify_rows|pattern|inference)="?(\d+(?:\.\d+)?|None|[a-z]+(?="))"?'
)

Tell = Callable[[int, int, object], None]


def plain(text: Any) -> str:
    """Return text with nothing in it that moves a terminal's cursor: ids and names may hold anything."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(text)
    )


def many(count: int, word: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


class WrongCommand(ValueError):
    """Options that do not go together, or that name what does not exist."""


@contextmanager
def plain_errors(stopped: str = "Stopped. Nothing was left half-written.") -> Iterator[None]:
    """Turn errors that a user can mend into one line, and Ctrl-C into a clean end."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\n{stopped}", err=True)
        raise typer.Exit(STOPPED) from None
    except BrokenPipeError:  # whoever read the output has seen enough
        with suppress(OSError):
            sys.stdout.close()
        raise typer.Exit(FAILED) from None
    except MemoryError as error:
        typer.echo(f"onebit: not enough memory{f': {error}' if str(error) else ''}", err=True)
        raise typer.Exit(FAILED) from None
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, DeviceError) as error:
        typer.echo(plain(f"onebit: {_message(error)}"), err=True)
        raise typer.Exit(WRONG if isinstance(error, WrongCommand) else FAILED) from None


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name == "pyarrow":
        return "files are read with pyarrow, which is not installed: pip install pyarrow"
    return _SPELT.sub(
        lambda found: f"--{found[1].replace('_', '-')} {found[2].lower()}" if found[1] else found[0],
        str(error),
    )


class Voice:
    """What a command says while it works, and what it answers in the end."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.terminal = Console(stderr=True)
        self.console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)

    def note(self, text: str) -> None:
        """Say something to the user, beside the result."""
        if not self.quiet:
            typer.echo(plain(text), err=True)

    def answer(self, content: Any, text: str | Table | None = None) -> None:
        """Give the result: as JSON if asked for, else as text or a table."""
        if self.as_json:
            utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            typer.echo(json.dumps(content, ensure_ascii=not utf8, allow_nan=False))
        elif isinstance(text, Table):
            self.console.print(text)
        elif text is not None:
            typer.echo(plain(text))

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """Say the library's warnings in one line each."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for warning in caught:
            self.note(f"note: {warning.message}")

    @contextmanager
    def bar(self, what: str, unit: str = "count") -> Iterator[Tell]:
        """Yield a callback (done, total, anything) that moves a bar, where there is a terminal."""
        if self.quiet or not self.terminal.is_terminal:
            yield lambda done, total, _: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn() if unit == "share" else MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # The pieces differ in length: the speed is taken over the last ten minutes.
        with Progress(
            *columns, console=self.terminal, speed_estimate_period=600, transient=True
        ) as progress:
            bar = progress.add_task(what, total=None)

            def tell(done: int, total: int, more: object) -> None:
                text = f"{what}: {more}" if isinstance(more, str) and more else what
                progress.update(bar, completed=done, total=total or None, description=text)

            yield tell

    @contextmanager
    def reading(self, path: str, what: str = "reading") -> Iterator[Callable[[int], None]]:
        """Yield a callback that is told of the bytes read from a file."""
        size = Path(path).stat().st_size if path != "-" and Path(path).is_file() else 0
        with self.bar(f"{what} {Path(path).name if path != '-' else 'standard input'}", "share") as tell:
            done = [0]

            def advance(count: int) -> None:
                done[0] += count
                tell(done[0], size, None)

            yield advance

    @contextmanager
    def fitting(self, what: str) -> Iterator[Callable[[Any], None]]:
        """Yield a callback for ``fit``: rounds of a fit, or trials of a search."""
        with self.bar(what) as tell:

            def callback(progress: Any) -> None:
                if progress.max_rounds:
                    words = getattr(progress, "words", "rounds, objective")
                    more = f"at most {progress.max_rounds} {words} {progress.objective:.4f}"
                else:
                    more = f"trial {progress.round}, held-out log-loss {progress.objective:.4f}"
                tell(progress.round, progress.max_rounds, more)

            yield callback


def lines_or_bar(voice: Voice, what: str) -> Any:
    """Return a bar, or where there is no terminal a line at every twentieth of a long piece of work."""
    return voice.bar(what) if voice.terminal.is_terminal else _lines(what)


@contextmanager
def _lines(what: str) -> Iterator[Tell]:
    said = [-1]

    def tell(done: int, total: int, _: object) -> None:
        step = 20 * done // total
        if step > said[0]:
            said[0] = step
            typer.echo(f"{what}: {done} of {total}", err=True)

    yield tell


def command_line() -> str:
    """Return the command as it was typed, without the folders of this machine."""
    words = ["onebit"]
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(option + equals + (Path(value).name if Path(value).is_absolute() else value))
    return " ".join(f'"{word}"' if " " in word or not word else word for word in words)


def checked_output(path: str, *, stdout: bool = True) -> str:
    """Refuse an output that cannot be written, before the work begins."""
    if path == "-":
        if not stdout:
            raise ValueError("this is written to a file, not to standard output")
        return path
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file in it")
    if is_special(target):
        if not os.access(target, os.W_OK):
            raise PermissionError(f"cannot write {path}: it is read-only")
        return path
    folder = Path(os.path.realpath(target)).parent  # of a link, that of what it points at
    if not folder.is_dir() or not target.parent.is_dir():  # "no folder/.." is none
        folder = folder if target.is_symlink() else target.parent
        raise FileNotFoundError(f"cannot write {path}: the folder {folder} does not exist")
    if not _writable(folder):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} is read-only")
    try:
        os.lstat(part_of(Path(os.path.realpath(target))))
    except FileNotFoundError:
        pass
    except OSError as error:  # the name that it has while it is written is longer than its own
        raise OSError(f"cannot write {path}: {error.strerror}; choose a shorter name") from None
    return path


def check_distinct(
    read: Mapping[str, str | None], written: Mapping[str, str | None], checkpoint: str | None = None
) -> None:
    """Refuse an output that is also an input, or another output, before the work begins.

    Files go by what they are for; one file may have several names.
    """
    taken = {_same(path): what for what, path in read.items() if path not in (None, "-")}
    if "-" in read.values():
        taken |= dict.fromkeys(_piped_file(), "what is read from standard input")
    if checkpoint is not None:
        if _same(checkpoint) in taken:
            raise WrongCommand(f"{checkpoint} is {taken[_same(checkpoint)]}; name a folder of its own")
        taken[_same(checkpoint)] = "the folder of the checkpoint"
    for what, path in written.items():
        if path is None or (path != "-" and _is_device(path)):
            continue
        if _same(path) in taken:
            raise WrongCommand(f"{what} would overwrite {taken[_same(path)]}, {path}; name another file")
        inside = checkpoint is not None and _same(os.path.dirname(path) or ".") == _same(checkpoint)
        if inside and own_name(Path(path)):
            raise WrongCommand(f"{path} is a name that the checkpoint uses; name another file")
        taken[_same(path)] = what


def _piped_file() -> list[tuple[object, ...]]:
    """Return the identity of the file that standard input is, if it is one."""
    try:
        found = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):  # there is none, or none of the system's
        return []
    return [identity_of(found)] if stat.S_ISREG(found.st_mode) else []


def _same(path: str | None) -> tuple[object, ...]:
    assert path is not None
    return ("-",) if path == "-" else identity(path)


def _is_device(path: str) -> bool:
    """Say whether something takes whatever is written and keeps nothing, such as /dev/null."""
    with suppress(OSError):
        return stat.S_ISCHR(os.stat(path).st_mode)
    return False


def _writable(folder: Path) -> bool:
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def alone(output: str) -> Iterator[None]:
    """Keep a second command that changes the same file from writing over what the first one has."""
    target = Path(os.path.realpath(output))
    try:
        with lock(target.with_name(f".{target.name}.lock"), output):
            yield
    except InUse as error:
        raise ValueError(f"{str(error).split(';')[0]}, which changes it; wait for it") from None
