"""``onebit fit --dask``: a fit on a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onebit.cli.shell import Voice, WrongCommand

LOCAL = "local"
MISSING = "--dask needs Dask: pip install 'onebit[dask]'"


def check_alone(given: Mapping[str, Any]) -> None:
    """Refuse options that do not go with ``--dask``."""
    for name, value in given.items():
        if value:
            raise WrongCommand(f"{name} does not go with --dask; leave it out")


@contextmanager
def client_of(address: str, voice: Voice, threads: int | None) -> Iterator[Any]:
    """Yield a client of the cluster at an address, or of this machine."""
    try:
        from distributed import Client
    except ImportError:
        raise WrongCommand(MISSING) from None
    from onebit.completers.clustered import local_client

    if address != LOCAL and threads is not None:
        raise WrongCommand("--threads goes with --dask local; a cluster has its workers already")
    if address == LOCAL:
        with local_client(threads) as client:
            yield client
        return
    try:
        found = Client(address, timeout=20)
    except (OSError, ValueError) as error:
        raise WrongCommand(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); give its address, such "
            "as tcp://10.0.0.1:8786, or local"
        ) from None
    with found as client:
        if client.dashboard_link:
            voice.note(f"dashboard: {client.dashboard_link}")
        yield client


def fit_there(
    address: str,
    voice: Voice,
    estimator: Any,
    source: str,
    output: str,
    threads: int | None,
    delta: float,
    **settings: Any,
) -> None:
    """Fit on a cluster, save the model here and say how it went."""
    from onebit.completers.clustered import check_early

    chosen = check_early(estimator, source, settings)
    voice.note(f"taking {chosen}")
    if settings.get("certify"):
        share = settings["certify"]
        voice.note(f"holding {share:.0%} of the answers out for the certificate (--certify 0 for none)")
    with client_of(address, voice, threads) as client:
        from onebit.completers import clustered

        begin = time.perf_counter()
        with voice.warnings_as_notes(), voice.fitting("fitting") as callback:
            clustered.fit(client, source, estimator, callback=callback, **settings)
        seconds = time.perf_counter() - begin
    estimator.save(output)
    rows, columns = len(estimator.rows_), len(estimator.columns_)
    certificate = estimator.certify(delta) if settings.get("certify") else None
    content = {
        "model": output,
        "rows": rows,
        "columns": columns,
        "answers": estimator.n_observations_,
        "held_out": 0 if certificate is None else len(estimator.held_out_.wrong),
        "rank": int(estimator.rank_),
        "seconds": round(seconds, 3),
        "error_at_most": None if certificate is None else certificate.bound,
        "delta": delta,
    }
    voice.note(f"{estimator.n_observations_:,} answers of {rows:,} rows and {columns:,} columns")
    text = f"{output}: fitted in {seconds:.1f} s, rank {estimator.rank_}"
    if certificate is not None:
        text += f"\n{certificate.told()}"
    voice.answer(content, text)
