"""Fits on a Dask cluster, for tables that one machine does not hold.

Users find it as ``onebit.dask``.

Examples
--------
>>> from onebit.completers.clustered import fit
>>> from onebit import LogisticCompleter
>>> fit(None, "answers/*.parquet", LogisticCompleter())
Traceback (most recent call last):
TypeError: client must be a distributed.Client, got None
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sklearn.exceptions import ConvergenceWarning

from onebit import __version__
from onebit.completers.archive import fit_identity
from onebit.completers.cluster_work import Wanted, Work, check_recipe
from onebit.completers.parameters import check_parameters
from onebit.data.tables.answers import Vocabulary
from onebit.data.tables.columns import Layout, choose
from onebit.data.tables.encoding import as_text
from onebit.data.tables.problems import TableError
from onebit.engine.checkpoint import checkpoint as checkpointed
from onebit.engine.checkpoint import is_kept
from onebit.engine.cluster.client import PATIENCE, Cluster, ClusterError
from onebit.engine.cluster.intake import Source, taken_in
from onebit.engine.cluster.reading import opened, parquet_files, parquet_pieces
from onebit.engine.cpu.threads import thread_count
from onebit.engine.crew import Callback
from onebit.engine.gpu import device as gpus

# Within the folder of a checkpoint.
_WORK = "onebit-cluster-work"
_ON_THIS_MACHINE = ("127.0.0.1", "localhost", "::1", None)


def fit(
    client: Any,
    source: Any,
    completer: Any,
    *,
    row: str | None = None,
    column: str | None = None,
    answer: str | None = None,
    weight: str | None = None,
    threshold: float | None = None,
    yes: Sequence[str] | None = None,
    no: Sequence[str] | None = None,
    blank: Sequence[str] | None = None,
    certify: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callback | None = None,
    patience: float = PATIENCE,
    blocks: int | None = None,
) -> Any:
    """Fit a completer on a Dask cluster, and return it as an ordinary model on this machine.

    The result has the same bits for any number of workers, any order of the files and whatever happens
    to workers on the way. It does depend on ``blocks``, by rounding.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    source : path, sequence of paths or Dask dataframe
        Parquet files, a folder of them or a pattern such as ``answers/*.parquet``, which all workers see;
        or a frame.
    completer : LogisticCompleter, HingeCompleter or AutoCompleter
        What to fit, with its parameters. AutoCompleter searches on a sample and fits
        what it found on all answers.
    row, column, answer : str, optional
        The columns. Left out, those of files are guessed, and those of a frame are its first ones.
    weight : str, optional
        A column of weights.
    threshold : float, optional
        Answers are numbers, and those above it mean yes.
    yes, no, blank : sequence of str, optional
        The words for yes, no and for blanks, where they are none of the usual ones.
    certify : float, optional
        Share of the answers to hold out, as ``LogisticCompleter.fit`` does.
    checkpoint : path, optional
        A folder that this machine and all workers see, for a fit that another client may go on with. On
        a cluster of this machine alone a temporary one does.
    callback : callable, optional
        Called with a ``Progress`` record after every round.
    patience : float
        Seconds without any task done after which the fit gives up.
    blocks : int, optional
        Into how many blocks answers are cut: of up to four million answers each, and at least eight,
        unless given. No more workers than blocks have work.

    Returns
    -------
    completer
        Fitted. It keeps no answers, as if loaded from a file without them.
    """
    _check_client(client)
    given, names = source_and_columns(source, row, column, answer, weight)
    words = Vocabulary(threshold, listed(yes), listed(no), listed(blank))
    wanted = Wanted(certify, callback, checkpoint, patience, blocks)
    return _fitted(completer, client, given, names, words, wanted)


def source_and_columns(
    source: Any, row: str | None, column: str | None, answer: str | None, weight: str | None
) -> tuple[Any, tuple[str, ...]]:
    """Return a frame or a list of files, and the columns that are read of it."""
    given = [name for name in (row, column, answer, weight) if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"column {name!r} cannot hold two things at once")
    if is_frame(source):
        if weight is not None and weight not in source.columns:
            raise ValueError(f"the frame has no column {weight!r} for weights")
        names = _frame_columns(source, row, column, answer) + (() if weight is None else (weight,))
        frame = source[list(source.columns)]
        frame.columns = [str(name) for name in source.columns]
        return frame[list(names)], names
    if not isinstance(source, (str, os.PathLike, list, tuple)) or not source:
        raise TypeError(
            "source must be a path, a pattern, a list of paths or a Dask dataframe, got "
            f"{type(source).__name__}"
        )
    files = parquet_files(source)
    return files, _file_columns(files[0], Layout(row, column, answer, False), weight)


def check_early(model: Any, source: Any, settings: dict[str, Any]) -> str:
    """Refuse what can be refused before there is a cluster; say which columns are taken."""
    _check_model(model)
    names = source_and_columns(source, settings["row"], settings["column"], settings["answer"], None)[1]
    return ", ".join(
        f"{what} {name!r}" for what, name in zip(("rows", "columns", "answers"), names, strict=True)
    )


def listed(words: str | Sequence[str] | None) -> Sequence[str] | None:
    """Return a single word as a list of one."""
    return [words] if isinstance(words, str) else words


@contextmanager
def local_client(
    workers: int | None = None, threads: int = 1, memory_limit: str | int = "auto"
) -> Iterator[Any]:
    """Yield a Dask client of this machine alone, for the length of a ``with`` block.

    Work stealing is off: every block stays with the worker that has read it, and nothing but the states
    of the smaller side travels.

    Parameters
    ----------
    workers : int, optional
        Processes; as many as there are cores unless given.
    threads : int
        Threads of each.
    memory_limit : str or int
        What each may use, as Dask takes it: "4GiB", a share below one, "auto".
    """
    import dask

    from distributed import Client, LocalCluster

    count = thread_count(-1) if workers is None else workers
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(
            n_workers=count,
            threads_per_worker=threads,
            processes=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=memory_limit,
            silence_logs=logging.CRITICAL,  # what matters reaches the client as an error
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def is_frame(source: Any) -> bool:
    """Say whether something is a Dask dataframe."""
    kind = type(source)
    return kind.__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(source, "to_delayed")


def fit_frame(model: Any, X: Any, y: Any, sample_weight: Any, wanted: Wanted) -> Any:
    """Fit a completer to a Dask dataframe, with the client that is there."""
    from distributed import default_client

    try:
        client = default_client()
    except ValueError:
        raise ValueError(
            "X is a Dask dataframe and there is no Dask client; make one first, for example "
            "distributed.Client(), or call fit(X.compute(), ...)"
        ) from None
    if not hasattr(X, "columns"):
        raise ValueError(f"X is a Dask {type(X).__name__}; give a Dask dataframe")
    names = [str(name) for name in X.columns]
    if len(names) < (2 if y is not None else 3):
        raise ValueError(
            f"a Dask dataframe has row ids, column ids and answers as its first columns, or y holds the "
            f"answers; got the columns {', '.join(names)}"
        )
    frame = X[list(X.columns[: 2 if y is not None else 3])]
    frame.columns = chosen = names[: len(frame.columns)]
    for name, more in (("y", y), ("sample_weight", sample_weight)):
        if more is not None:
            if not is_frame(more) or more.npartitions != frame.npartitions:
                raise ValueError(
                    f"{name} must be a Dask series with the partitions of X ({frame.npartitions}), such "
                    f"as a column of the same frame; got {type(more).__name__}"
                )
            free = name if name not in chosen else f"{name} of onebit"
            chosen = [*chosen, free]
            frame = frame.map_partitions(_beside, more, free, align_dataframes=False)
    return _fitted(model, client, frame, tuple(chosen), Vocabulary(), wanted)


def _beside(part: Any, more: Any, name: str) -> Any:
    """Put a column beside a partition, line by line, whatever their indexes say."""
    if len(part) != len(more):
        raise ValueError(f"a partition of X has {len(part)} lines, and {len(more)} in {name}")
    return part.assign(**{name: more.to_numpy()})


def _check_model(model: Any) -> None:
    """Refuse what is no completer, and what does not run on a cluster."""
    if isinstance(model, type) or not hasattr(model, "_checks"):
        raise TypeError(f"completer must be a completer such as LogisticCompleter(), got {model!r}")
    check_parameters(model, model._checks)
    if not hasattr(model, "_on_cluster"):
        raise ValueError(
            f"{type(model).__name__} does not run on a cluster; use LogisticCompleter, HingeCompleter or "
            "AutoCompleter (--model logistic, hinge or auto)"
        )
    if hasattr(model, "_recipe"):
        check_recipe(model._recipe())


def _check_client(client: Any) -> None:
    if not hasattr(client, "scheduler_info"):
        raise TypeError(f"client must be a distributed.Client, got {client!r}")
    if client.status != "running":
        raise ClusterError(f"the Dask client is {client.status}; make a new one")


def _frame_columns(frame: Any, *given: str | None) -> tuple[str, ...]:
    names = [str(name) for name in frame.columns]
    for name in given:
        if name is not None and name not in names:
            raise ValueError(f"the frame has no column {name!r}; it has {', '.join(names)}")
    free = [name for name in names if name not in given]
    chosen = [name or (free.pop(0) if free else None) for name in given]
    if None in chosen:
        raise ValueError(f"the frame needs row ids, column ids and answers; it has {', '.join(names)}")
    return tuple(str(name) for name in chosen)


def _file_columns(path: str, layout: Layout, weight: str | None) -> tuple[str, ...]:
    """Choose the columns of Parquet files by the first of them."""
    with opened(path) as file:
        names = file.schema_arrow.names
        first = next(file.iter_batches(batch_size=1000), None)
    sample = [[""] for _ in names]
    if first is not None:
        sample = [[(value or b"").decode("utf-8", "replace") for value in as_text(column).to_pylist()]
                  for column in first.columns]  # fmt: skip
    if weight is not None and weight not in names:
        raise TableError(f"{path} has no column {weight!r} for weights; it has {', '.join(names)}")
    chosen = tuple(names[place] for place in choose(names, sample, layout, path).places)
    return chosen if weight is None else (*chosen, weight)


def _token(source: Any) -> Any:
    """Return what tells one source of answers from another."""
    if is_frame(source):
        from dask.base import tokenize

        return tokenize(source)
    return [[name, os.stat(name).st_size, os.stat(name).st_mtime_ns] for name in source]


def _fitted(
    model: Any, client: Any, source: Any, names: tuple[str, ...], words: Vocabulary, wanted: Wanted
) -> Any:
    """Fit a model on a cluster and bring it home."""
    with begun(model, client, source, names, words, wanted) as work:
        found = work.bring_home()
    for text in found:
        warnings.warn(f"{type(model).__name__}: {text}", ConvergenceWarning, stacklevel=3)
    return model


@contextmanager
def begun(
    model: Any, client: Any, source: Any, names: tuple[str, ...], words: Vocabulary, wanted: Wanted
) -> Iterator[Work]:
    """Yield the work on answers that are in blocks on a cluster."""
    _check_client(client)
    _check_model(model)
    wanted.check(len(names) > 3)
    with _workplace(model, client, source, names, words, wanted) as cluster:
        if is_frame(source):
            pieces: list[Any] = client.compute(source.to_delayed(), retries=2)
            given = Source("the frame", pieces, names, words)
        else:
            given = Source(_named(source), list(parquet_pieces(source)), names, words)
        yield Work(model, taken_in(cluster, given, wanted.blocks), wanted)


def _named(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} files in {os.path.dirname(files[0])}"


@contextmanager
def _workplace(
    model: Any, client: Any, source: Any, names: tuple[str, ...], words: Vocabulary, wanted: Wanted
) -> Iterator[Cluster]:
    """Yield a cluster with a folder that all of its workers see; the folder goes when all is done."""
    if wanted.checkpoint is None:
        host = urlsplit(client.scheduler.address).hostname
        if not client.scheduler.address.startswith("inproc") and host not in _ON_THIS_MACHINE:
            raise ValueError(
                "a cluster of several machines needs a folder that this machine and all workers see: "
                "checkpoint=FOLDER (--checkpoint FOLDER)"
            )
        with tempfile.TemporaryDirectory(prefix="onebit-") as folder:
            advice = "Start the fit again."
            yield _checked(Cluster(client, Path(folder), wanted.patience, advice, model.device))
        return
    if not os.fspath(wanted.checkpoint):
        raise ValueError("checkpoint is empty; name a folder")
    identity = fit_identity(model, wanted.certify) | {
        "blocks": wanted.blocks,
        "columns": list(names),
        "meaning of answers": words.settings(),
        "answers": _token(source),
    }
    place = Path(wanted.checkpoint).resolve()
    work = place / _WORK
    if work.exists() and not is_kept(place):
        raise FileExistsError(f"{work} is not of a fit that was stopped; name another folder")
    if not is_frame(source) and any(work in Path(name).parents for name in source):
        raise ValueError(f"the answers lie in {work}, which is removed in the end; name another folder")
    with checkpointed(place, identity) as kept:
        work.mkdir(exist_ok=True)
        advice = f"What was done is in {kept.folder}: the same fit goes on from there."
        yield _checked(Cluster(client, work, wanted.patience, advice, model.device))
        shutil.rmtree(work)


def _sees(path: str, device: str) -> tuple[str, bool, str]:
    """Say which version a worker has, whether it sees a file, and why it has no GPU if it needs one."""
    lacks = ""
    if device not in ("cpu", "auto"):
        try:
            gpus.find(device)
        except gpus.DeviceError as error:
            lacks = str(error)
    return __version__, os.path.exists(path), lacks


def _checked(cluster: Cluster) -> Cluster:
    """Return a cluster whose workers have this version, and see its folder."""
    try:
        cluster.client.wait_for_workers(1, timeout=cluster.patience)
    except TimeoutError:
        raise ClusterError(f"no worker came within {cluster.patience:g} s; start some") from None
    token = cluster.folder / "seen"
    token.touch()
    try:
        device = cluster.device
        seen = cluster.ask(
            lambda: cluster.client.run(_sees, str(token), device), "looking at the workers"
        )
    except ModuleNotFoundError as error:
        raise ClusterError(f"a worker lacks {error.name}; install onebit {__version__} there") from None
    for worker, (version, there, lacks) in seen.items():
        if version != __version__:
            raise ClusterError(f"{worker} has onebit {version}, not {__version__}; install the same one")
        if not there:
            raise ClusterError(
                f"{worker} does not see {cluster.folder}; name a folder that all workers see"
            )
        if lacks:
            raise ClusterError(f"{worker}: {lacks}")
    return cluster
