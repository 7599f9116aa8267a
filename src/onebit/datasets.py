"""Public data sets that the project uses and may not pass on."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onebit.files import written_whole

MOVIELENS_100K = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
_RATINGS_SHA256 = "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"
_LARGEST_ARCHIVE = 20_000_000
_LIKED_ABOVE = 3.5


class DatasetError(OSError):
    """A data set is not there, or is not what it should be."""


@dataclass(frozen=True)
class Answers:
    """Pairs of ids and their yes/no answers."""

    pairs: NDArray[np.int64]
    answers: NDArray[np.int8]


def cache_folder() -> Path:
    """Return where downloads are kept: ``$ONEBIT_CACHE``, else ``~/.cache/onebit``."""
    return Path(os.environ.get("ONEBIT_CACHE") or Path.home() / ".cache" / "onebit")


def load_movielens_100k(folder: str | os.PathLike[str] | None = None) -> Answers:
    """Return MovieLens 100k as answers: a user likes a film that he gives four or five stars.

    Parameters
    ----------
    folder : path, optional
        A folder with the file ``u.data`` (or with ``ml-100k/u.data``). Without it, the cache folder is
        looked into, and else the data is downloaded from GroupLens (5 MB) and kept there.

    Returns
    -------
    Answers
        100,000 pairs (user, film) and answers in {-1, 1}.

    Raises
    ------
    DatasetError
        When the file is not there and cannot be downloaded, or is not MovieLens 100k.

    Notes
    -----
    The data is GroupLens's (Harper and Konstan, 2015), free for research, not to be redistributed.
    """
    if folder is not None:
        return _read_ratings(_ratings_in(Path(folder)))
    path = cache_folder() / "ml-100k" / "u.data"
    if not path.is_file():
        content = _downloaded_ratings()
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    return _read_ratings(path)


def _ratings_in(folder: Path) -> Path:
    for path in (folder / "u.data", folder / "ml-100k" / "u.data"):
        if path.is_file():
            return path
    raise DatasetError(
        f"there is no u.data in {folder} (nor in {folder / 'ml-100k'}); "
        f"unpack {MOVIELENS_100K} there, or leave the folder out to download it"
    )


def _read_ratings(path: Path) -> Answers:
    content = path.read_bytes()
    if hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest() != _RATINGS_SHA256:
        raise DatasetError(
            f"{path} is not MovieLens 100k's u.data (its checksum differs); "
            "delete it and try again, or unpack the archive anew"
        )
    table = np.loadtxt(BytesIO(content), dtype=np.int64)
    return Answers(table[:, :2], np.where(table[:, 2] > _LIKED_ABOVE, 1, -1).astype(np.int8))


def _downloaded_ratings() -> bytes:
    advice = (
        f"download {MOVIELENS_100K} yourself, unpack it, and give the folder "
        f"(load_movielens_100k(folder), or --movielens FOLDER)"
    )
    try:
        with urllib.request.urlopen(MOVIELENS_100K, timeout=60) as answer:
            archive = answer.read(_LARGEST_ARCHIVE)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise DatasetError(f"MovieLens 100k could not be downloaded ({error}); {advice}") from error
    try:
        with zipfile.ZipFile(BytesIO(archive)) as files:
            content = files.read("ml-100k/u.data")
    except (zipfile.BadZipFile, KeyError) as error:
        raise DatasetError(f"what GroupLens sent is not the expected archive; {advice}") from error
    if hashlib.sha256(content).hexdigest() != _RATINGS_SHA256:
        raise DatasetError(f"the downloaded ratings have another checksum than expected; {advice}")
    return content
