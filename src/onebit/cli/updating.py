"""``onebit update``: new answers for a model, without the old ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.predicting import loaded
from onebit.cli.reading import read
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    alone,
    check_distinct,
    checked_output,
    many,
    plain_errors,
)
from onebit.data import checked
from onebit.data.tables.problems import shown

# New ids are named where they are no more than so many: one may be a misspelt one.
_NAMED = 5

# A file with a larger share of answers that the model has is taken for one with the old answers in it.
MOSTLY = 0.5


def update(
    model: o.Model,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            show_default=False,
            help="New answers, in any format that `onebit fit` reads; - is standard input.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="The model file to write; may be MODEL itself."),
    ] = "",
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Take up the answers that `onebit serve --store` has kept there since the last time.",
        ),
    ] = None,
    forget: Annotated[
        float,
        typer.Option(
            help="Share of what was known of a row or column with new answers that still counts; below "
            "1 where people or things change."
        ),
    ] = 1.0,
    certify: Annotated[
        float | None,
        typer.Option(help="Share of the new answers to hold out, for a certificate of the new model."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Take up answers even if these very ones were taken up before."),
    ] = False,
    only_new: Annotated[
        bool,
        typer.Option(
            "--only-new",
            help="Leave out answers that the model has: the same one to the same pair. For files that "
            "hold the old answers too.",
        ),
    ] = False,
    delta: o.Delta = 0.05,
    row: o.Row = None,
    col: o.Col = None,
    answer: o.Answer = None,
    wide: o.Wide = False,
    drop: o.Drop = None,
    no_ids: o.NoIds = False,
    threshold: o.Threshold = None,
    yes: o.Yes = None,
    no: o.No = None,
    blank: o.Blank = None,
    format: o.Format = None,
    delimiter: o.Delimiter = None,
    no_header: o.NoHeader = False,
    skip_bad: o.SkipBad = False,
    threads: o.Threads = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Take up new answers of known and new rows and columns; the old answers are not needed.

    Rows and columns with new answers move, the others stay as they are. The model is written whole or not
    at all. What an update touches is no longer certified, unless --certify holds new answers out. A file
    is read with the fit's threshold, or its words for yes, no and blanks, and without the columns that it
    left out, unless others are given (a model of --dask keeps none of these: give them again).

    Examples:
      onebit update likes.onebit today.csv -o likes.onebit

      onebit update likes.onebit --store answers.db -o likes.onebit
    """
    with plain_errors():
        voice = Voice(quiet, as_json)
        if (file is None) == (store is None):
            raise WrongCommand("name a file of new answers, or a store of them with --store; not both")
        if not output:
            raise WrongCommand("name the model file to write with -o; it may be the same one")
        if only_new and (again or store is not None):
            raise WrongCommand("--only-new is for files, and not with --again")
        checked_output(output, stdout=False)
        check_distinct({"the new answers": file or store}, {"the model": output})
        with alone(output):
            _update(
                voice, model, file, output, store, forget, certify, again, only_new,
                threshold is None and not yes and not no, delta, threads,
                lambda path, fitted: read(
                    voice, path, row, col, answer, wide, *_as_fitted(voice, fitted, threshold, yes, no),
                    format, delimiter, no_header, skip_bad, drop or _listed(fitted, "drop"), no_ids,
                    blank or _listed(fitted, "blank"), may_lack=not drop,
                ),
            )  # fmt: skip


def _listed(fitted: Any, name: str) -> list[str]:
    """Return what the fit was told to leave out, or to take for a blank; nothing where no file says."""
    record = fitted.record_
    text = None if record is None else record.source.get(name)
    try:
        found = checked.parsed(text.encode()) if isinstance(text, str) else []
    except ValueError:
        return []
    whole = isinstance(found, list) and all(isinstance(part, str) for part in found)
    return found if whole else []


def _as_fitted(
    voice: Voice, fitted: Any, threshold: float | None, yes: Any, no: Any
) -> tuple[float | None, Any, Any]:
    """Return what is yes and no in a file: what was said, or else what was when the model was fitted."""
    from onebit.data.tables.answers import sign_of_word

    if threshold is not None or yes or no:
        return threshold, yes, no
    record = fitted.record_
    known = None if record is None else record.source.get("threshold")
    if known is not None:
        voice.note(f"numbers above {known:g} are yes, as in the fit (--threshold says otherwise)")
        return known, yes, no
    words = [str(word) for word in fitted.classes_]
    if fitted.classes_.dtype.kind in "iufb" or [sign_of_word(word) for word in words] == [-1, 1]:
        return threshold, yes, no
    voice.note(f"{words[1]!r} is yes and {words[0]!r} no, as in the fit (--yes, --no say otherwise)")
    return threshold, words[1:], words[:1]


def _update(
    voice: Voice,
    model: str,
    file: str | None,
    output: str,
    store: str | None,
    forget: float,
    certify: float | None,
    again: bool,
    only_new: bool,
    as_fitted: bool,
    delta: float,
    threads: int | None,
    reading_of: Callable[[str, Any], Any],
) -> None:
    """Load, take up, save."""
    fitted = loaded(model, threads)
    before = fitted.updates_, (len(fitted.rows_), len(fitted.columns_))
    was_certified = fitted.held_out_ is not None or fitted.held_rows_ is not None
    mark = None
    if file is not None:
        reading = reading_of(file, fitted)
        if reading.one_sided is not None and as_fitted:
            no, yes = reading.one_sided
            raise ValueError(
                f"the numbers of {file} are {no} and {yes}, both on one side of the fit's threshold; if "
                f"{yes} means yes, say --yes {yes} --no={no}, and if they are numbers like the fit's, "
                "--threshold once more"
            )
        seen = reading.observations
        if not again:
            seen = _fresh(voice, file, seen, model, fitted, only_new)
        new: tuple[Any, Any] | None = (seen, None) if seen.n else None
    else:
        assert store is not None
        new, mark = _from_store(voice, store, fitted)
    if new is None:
        voice.note(f"{file or store}: nothing new since the last update; {model} is left as it is")
        if Path(output).resolve() != Path(model).resolve():
            fitted.save(output)
            voice.note(f"{output} is a copy of it")
        voice.answer({"answers": 0, "updates": fitted.updates_.times})
        return
    began = time.perf_counter()
    with voice.warnings_as_notes():
        fitted.partial_fit(*new, forget=forget, certify=certify)
    if mark is not None:
        fitted.updates_ = fitted.updates_.taken_from(*mark)
    if fitted.record_ is not None and fitted.held_out_ is not None:
        fitted.record_ = fitted.record_.with_certificate(fitted.certify(delta))
    fitted.save(output)
    content = _told(fitted, before, time.perf_counter() - began, delta)
    new_ids = [
        index.labels[size:].tolist() if len(index) - size <= _NAMED else []
        for index, size in zip((fitted.rows_, fitted.columns_), before[1], strict=True)
    ]
    voice.answer(content, _words(content, output, new_ids, was_certified))


def _fresh(voice: Voice, file: str, seen: Any, model: str, fitted: Any, only_new: bool) -> Any:
    """Return the answers to take up, without those that the model has if these are to be left out.

    A file that is mostly known is one that holds the old answers too, whose answers would count twice.
    """
    from onebit.completers.updating import known_already

    known = known_already(fitted, seen)
    count, others = int(known.sum()), seen.n - int(known.sum())
    if only_new:
        if not fitted.answers_kept:
            raise ValueError(
                f"{model} does not hold the answers of its fit, so which answers are new cannot be told; "
                "leave --only-new out, and send new answers alone"
            )
        if count:
            voice.note(f"{file}: {many(count, 'answer')} left out that {model} has already")
        return seen.take(~known)
    if seen.fingerprint() in _taken(fitted):
        raise ValueError(
            f"the {seen.n:,} answers of {file} were taken up before by {model}; --again takes them up "
            "once more"
        )
    if count > MOSTLY * seen.n:
        raise ValueError(
            f"{count:,} of the {seen.n:,} answers of {file} are in {model} already, the same ones to the "
            f"same pairs, and would count twice; --only-new leaves them out ({many(others, 'answer')} "
            "left), --again takes up all"
        )
    if count:
        are = "is" if count == 1 else "are"
        voice.note(
            f"{file}: {many(count, 'answer')} {are} in {model} already, to count once more (--only-new "
            "leaves out what is known)"
        )
    return seen


def _taken(fitted: Any) -> set[str]:
    """Return the fingerprints of the answers that a model has learnt from: its fit's, its updates'."""
    found = set(fitted.updates_.batches)
    if fitted.record_ is not None:
        found.add(fitted.record_.fingerprint)
    if fitted.answers_kept:
        found.add(fitted.kept_answers().everything.fingerprint())
    return found


def _from_store(voice: Voice, store: str, fitted: Any) -> tuple[Any, Any]:
    """Return the new answers of a store, and how far they go; nothing where there are none.

    Answers whose ids are of another kind than the model's are left out, and counted.
    """
    import pandas as pd

    from onebit.data.store import Store

    kept = Store(store, create=False)
    try:
        found = kept.after(*fitted.updates_.stores.get(kept.id, (0, "")))
    finally:
        kept.close()
    good = [
        place
        for place, ids in enumerate(zip(found.rows, found.columns, strict=True))
        if fitted.rows_.misfit(ids[:1]) is None and fitted.columns_.misfit(ids[1:]) is None
    ]
    if len(good) < len(found.signs):
        left = len(found.signs) - len(good)
        voice.note(f"{store}: {left:,} answers left out: their ids are of another kind than the model's")
    if not good:
        return None, None
    pairs = pd.DataFrame(
        {"row": [found.rows[k] for k in good], "column": [found.columns[k] for k in good]}
    )
    return (pairs, [found.signs[k] for k in good]), (kept.id, found.last, found.mark)


def _told(fitted: Any, before: tuple[Any, tuple[int, int]], seconds: float, delta: float) -> Any:
    updates, shape = before
    now, held = fitted.updates_, fitted.held_out_
    return {
        "answers": now.answers - updates.answers,
        "held_out": len(held.wrong) if held is not None and held.whence == "update" else 0,
        "new_rows": len(fitted.rows_) - shape[0],
        "new_columns": len(fitted.columns_) - shape[1],
        "updates": now.times,
        "seconds": round(seconds, 3),
        "certificate": None if held is None else fitted.certify(delta).told(),
    }


def _words(content: Any, output: str, new_ids: list[list[Any]], was_certified: bool) -> str:
    held = f", {content['held_out']:,} held out" if content["held_out"] else ""
    new = [
        many(content[name], word) + (f" ({', '.join(shown(str(one)) for one in ids)})" if ids else "")
        for name, word, ids in zip(
            ("new_rows", "new_columns"), ("new row", "new column"), new_ids, strict=True
        )
    ]
    said = [
        f"{many(content['answers'], 'answer')} taken up{held}; {', '.join(new)}. Written to {output}.",
        content["certificate"]
        or f"Nothing of this model is certified{' any more' if was_certified else ''}; --certify 0.1 "
        "holds new answers out.",
    ]
    return "\n".join(said)
