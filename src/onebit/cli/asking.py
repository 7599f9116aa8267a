"""``onebit ask``: an interview in the terminal, or from a file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.members import Level, named_ids
from onebit.cli.predicting import checked_format, loaded, typed_codes
from onebit.cli.shell import (
    Voice,
    WrongCommand,
    check_distinct,
    checked_output,
    many,
    plain,
    plain_errors,
)
from onebit.data.files import is_special

QUESTIONS = 10
_HEAD = ("question", "answer", "yes", "gain", "chance", "share", "share_low", "share_high")


def ask(
    model: o.Model,
    answers: Annotated[
        str | None,
        typer.Option(
            "--answers",
            metavar="FILE",
            help="Answer from this file (column, answer) in place of the terminal; only what it holds is "
            "asked.",
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option("--known", metavar="FILE", help="Answers that are there before (column, answer)."),
    ] = None,
    upcoming: Annotated[
        int | None,
        typer.Option("--next", min=1, help="Only say the next so many questions, and ask none."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("-n", min=1, help=f"Questions, {QUESTIONS} unless --width says when.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="Stop once the interval of the share is at most so wide, such as 0.1."),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="mean: the share of yes over all columns, unless given; row: all of the row's answers."
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="COLUMN", help="Learn these answers instead; may be repeated."),
    ] = None,
    explore: Annotated[
        float,
        typer.Option(
            help="0: always the best question. Above: drawn at random, so that at the end there is an "
            "interval that assumes no model; this share uniformly, 0.1 is good."
        ),
    ] = 0.0,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Table of questions and answers to write; - is stdout."),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option("--output-format", help="csv, tsv, jsonl, parquet or arrow; else by the name."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Who is asked: -o begins each line with it, as update wants it."
        ),
    ] = None,
    level: Level = 0.9,
    seed: o.Seed = 0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Ask somebody new the questions that tell most, one after the other.

    After each answer it says what is known now: the share of yes over all columns with a credible
    interval, which takes the row to be one of a population like the fitted rows. Answer y or n, s to
    skip, q to end. That is said beside the result, on standard error; with --json what is known in the
    end is the result.

    Examples:
      onebit ask exam.onebit

      onebit ask benchmark.onebit --answers new_model.csv -n 100 --explore 0.1 -o asked.csv

      onebit ask survey.onebit --known so_far.csv --next 3
    """
    with plain_errors():
        voice = Voice(quiet, as_json)
        if as_json and upcoming is not None:
            output_format = "jsonl"
        elif as_json and output == "-":
            raise WrongCommand("--json and -o - both write to standard output: name a file with -o")
        if goal not in (None, "mean", "row"):
            raise WrongCommand(f"--goal is mean or row, not {goal!r}; columns are named with --for")
        if name is not None and (output is None or upcoming is not None):
            raise WrongCommand("--as names who is asked in the table that -o writes: say -o FILE")
        if goal is not None and target:
            raise WrongCommand("--for names what is to be learnt: leave --goal out")
        if upcoming is not None and (answers is not None or n is not None or width is not None):
            raise WrongCommand("--next asks nothing: leave --answers, -n and --width out")
        asked = upcoming is None and answers is None
        if sys.stdin is None and (asked or "-" in (answers, known)):
            option = "--known" if known == "-" and not asked else "--answers"
            raise ValueError(f"standard input is closed; name a file with {option}")
        if answers == "-" and known == "-":
            raise WrongCommand("--answers and --known cannot both be standard input")
        if output is not None:
            checked_output(output)
            checked_format(output, output_format, False)
        inputs = {"the model": model, "the answers": answers, "the known answers": known}
        check_distinct(inputs, {"the table": output})
        fitted = loaded(model, None)
        if name is not None:
            _check_new(fitted, name)
        told = _read(known, fitted, voice) if known is not None else {}
        script = _read(answers, fitted, voice) if answers is not None else None
        if script is not None and not script:
            raise ValueError(f"{answers} holds no answer about a column that the model knows")
        among = None if script is None else [column for column in script if column not in told]
        if among is not None and not among:
            raise ValueError(f"every answer in {answers} is known before")
        if n is None and width is None and script is None:
            n = QUESTIONS
        wanted = named_ids(fitted, 1, target)
        if wanted:  # they are what is to be learnt without being asked
            rest = fitted.columns_.labels if among is None else among
            among = [column for column in rest if column not in set(wanted)]
            if not among:
                raise ValueError("every column that could be asked is named with --for")
        interview = fitted.interview(
            told,
            goal=wanted or goal or "mean",
            among=among, explore=explore, n=n, width=width, level=level, random_state=seed,
        )  # fmt: skip
        if upcoming is not None:
            questions = [
                {"column": str(q.column), "yes": q.yes, "gain": q.gain, "chance": q.chance}
                for q in interview.questions(upcoming)
            ]
            _write(questions, output or "-", output_format)
            return
        # What a person has answered is written as it comes, and whole each time: nothing ends it badly.
        lines: list[dict[str, Any]] = []
        by_hand = script is None and output is not None and not is_special(Path(output)) and output != "-"
        try:
            for lines in _interviewed(voice, interview, fitted, script, name):
                if by_hand:
                    _write(lines, str(output), output_format)
            if output is not None and not (by_hand and lines):
                _write(lines, output, output_format)
        except OSError:
            _rescue(lines)
            raise
        known_now = _conclude(voice, interview, explore)
        known_now["yes"] = {
            str(column): float(told[column] > 0) if column in told else float(chance)
            for column, chance in zip(wanted or [], interview.probability(wanted or []), strict=True)
        }
        for column, chance in known_now["yes"].items():
            voice.note(f"{column}: yes with probability {chance:.2f}")
        voice.answer(known_now)


def _check_new(fitted: Any, name: str) -> None:
    """Say that somebody is no new row, or has a name that an update would refuse, where that is so."""
    labels = fitted.rows_.labels
    if labels.dtype.kind in "iu" and not name.strip().removeprefix("-").isdecimal():
        raise ValueError(
            f"the model's row ids are whole numbers, and {name!r} is none: an update would refuse it; "
            f"choose a number with --as, such as {int(labels.max()) + 1}"
        )
    if typed_codes(fitted.rows_, [name])[0] >= 0:
        raise ValueError(
            f"the model has the row {name!r} already, whose answers an interview would not use, and "
            "might ask for again: ask is for somebody new; choose another name with --as"
        )


def _interviewed(
    voice: Voice, interview: Any, fitted: Any, script: Any, name: str | None
) -> Iterator[list[dict[str, Any]]]:
    """Ask until it is over; yield all that was asked, answered and learnt after each answer."""
    lines: list[dict[str, Any]] = []
    voice.note(f"before the first question: {_standing(interview)}")
    for question in interview:
        if script is not None:
            sign: int | str | None = script[question.column]
        else:
            sign = _answered(len(lines) + 1, question, _Words(fitted))
        if sign == "q":
            break
        if sign == "s":
            interview.skip()
            continue
        interview.answer(bool(sign == 1))
        low, high = _ends(interview)
        lines.append(
            ({} if name is None else {"row": name})
            | {
                "question": str(question.column),
                "answer": str(fitted.classes_[int(sign == 1)]),
                "yes": question.yes, "gain": question.gain, "chance": question.chance,
                "share": interview.share, "share_low": low, "share_high": high,
            }
        )  # fmt: skip
        if script is None:
            voice.note(f"   ({100 * question.yes:.0f} % yes expected) now {_standing(interview)}")
        yield lines


class _Words:
    """The words that a model was fitted with, and others that mean yes or no."""

    def __init__(self, fitted: Any) -> None:
        words = [str(value) for value in fitted.classes_]
        self._own = dict(zip(words, (-1, 1), strict=True))
        # In any case, and with blanks around them, as long as that does not make them one.
        alike = [word.strip().lower() for word in words]
        self._alike = dict(zip(alike, (-1, 1), strict=True)) if len(set(alike)) == 2 else {}

    def own(self, text: str) -> int | None:
        """Return what one of the model's own words means."""
        return self._own.get(text, self._own.get(text.strip(), self._alike.get(text.strip().lower())))

    def sign(self, text: str) -> int | None:
        """Return what a word means, the model's own first; None where it means neither yes nor no."""
        from onebit.data.tables.answers import sign_of_word

        sign = self.own(text)
        return sign_of_word(text.strip().lower()) if sign is None else sign


def _answered(number: int, question: Any, words: _Words) -> int | str:
    """Ask a person, until the answer can be understood: the model's own words come first."""
    while True:
        # All of it on standard error: what is written to standard output may be a table.
        typer.echo(f"{number}. {plain(question.column)}  [y/n/s/q]: ", nl=False, err=True)
        try:
            text = sys.stdin.readline()
        except KeyboardInterrupt:
            text = ""
        if not text:  # Ctrl-C or the end of the input: what was answered is not lost
            typer.echo("", err=True)
            return "q"
        text = text.rstrip("\r\n")
        word, own = text.strip().lower(), words.own(text)
        if own is None and word in ("s", "skip", "q", "quit"):
            return word[0]
        sign = words.sign(text)
        if sign is not None:
            return sign
        typer.echo(f"   {text.strip()!r} is neither yes nor no: y, n, s to skip, q to end", err=True)


def _ends(interview: Any) -> tuple[float | None, float | None]:
    """Return the ends of the share's interval; a single answer is yes or no, with nothing between."""
    return (interview.low, interview.high) if interview.wanted > 1 else (None, None)


def _standing(interview: Any) -> str:
    if interview.wanted == 1:
        return f"the one wanted is yes with probability {100 * interview.share:.1f} %"
    return (
        f"{100 * interview.share:.1f} % yes over {interview.over}, {100 * interview.level:.4g} % "
        f"credible interval {100 * interview.low:.1f} to {100 * interview.high:.1f}"
    )


def _conclude(voice: Voice, interview: Any, explore: float) -> dict[str, Any]:
    """Say what is known in the end, and by which kind of interval; return it."""
    why = interview.finished
    known: dict[str, Any] = {
        "answered": interview.asked,
        "level": interview.level,
        "over": interview.wanted,
        "share": interview.share,
        "share_low": _ends(interview)[0],
        "share_high": _ends(interview)[1],
        "ended": why,
        "interval": "credible: it believes the model, and that the row is like the fitted ones",
        "no_model": None,
    }
    unjudged = ""
    if interview.wanted > 1 and not interview.judged_by:
        from onebit.completers.questions import FEWEST_KNOWN

        unjudged = (
            f"; no fitted row has the {FEWEST_KNOWN} answers, kept in the model, by which such intervals "
            "are judged"
        )
    voice.note(
        f"{interview.asked} answered{f' ({why})' if why else ''}: {_standing(interview)}; it believes "
        f"the model, and that this row is like those that were fitted{unjudged}"
    )
    if explore > 0.0 and interview.asked:
        try:
            found = interview.row_mean()
            if interview.asked == interview.askable and interview.unaskable:
                raise ValueError(
                    f"all {interview.askable:,} that could be asked were ({found.share:.1%} yes); "
                    f"of the other {interview.unaskable:,} columns nothing follows, unless these were "
                    "drawn at random (in Python: model.row_mean)"
                )
        except ValueError as error:
            voice.note(f"no interval that assumes no model: {error}")
            known["why_no_model"] = str(error)
            return known
        known["no_model"] = {
            "share": found.share, "share_low": found.low, "share_high": found.high,
            "over": interview.askable, "of": "the columns that could be asked", "kind": found.kind,
        }  # fmt: skip
        unlike = ""
        if explore < 1.0 and found.kind == "predictions":
            unlike = (
                "; by a normal approximation, which fails more often for a row that lacks what nearly "
                "all fitted ones have (--explore 1 asks evenly, and did not in made worlds)"
            )
        voice.note(
            f"assuming no model ({found.kind}): {100 * found.share:.1f} %, "
            f"{100 * interview.level:.4g} % confidence interval {100 * found.low:.1f} to "
            f"{100 * found.high:.1f}, over the {interview.askable:,} columns that could be asked{unlike}"
        )
    return known


def _rescue(lines: list[dict[str, Any]]) -> None:
    """Show answers that could not be written, in the form that --known reads."""
    for line in [{"question": "question", "answer": "answer"}, *lines]:
        row = io.StringIO()
        csv.writer(row).writerow([plain(line["question"]), plain(line["answer"])])
        typer.echo(row.getvalue().strip(), err=True)


def _write(lines: list[dict[str, Any]], output: str, output_format: str | None) -> None:
    import pyarrow as pa

    from onebit.data.tables import table_writer

    names = list(lines[0]) if lines else list(_HEAD)
    table = pa.table({name: [line[name] for line in lines] for name in names})
    with table_writer(output, output_format) as write:
        write(table)


def _text(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return file.read()


def _read(path: str, fitted: Any, voice: Voice) -> dict[Any, int]:
    """Read one row's answers: a column id and an answer a line, with or without a line of names."""
    from onebit.data.tables.answers import is_blank

    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read().removeprefix("\ufeff") if path == "-" else _text(Path(path))
        # Line ends within a quoted id are the id's own.
        reader = csv.reader(io.StringIO(text, newline=""))
        numbered = [(reader.line_num, line) for line in reader]
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{name} is not a text file in UTF-8; give CSV: column,answer") from None
    numbered = [(number, line) for number, line in numbered if any(field.strip() for field in line)]
    lines = [line for _, line in numbered]
    if lines and len(lines[0]) > 2 and "answer" in lines[0] and {"question", "column"} & set(lines[0]):
        # What this command wrote itself.
        names = lines[0]
        places = names.index("question" if "question" in names else "column"), names.index("answer")
        lines = [[line[place] for place in places if place < len(line)] for line in lines]
    words = _Words(fitted)
    if lines and typed_codes(fitted.columns_, lines[0][:1])[0] < 0:
        # A first line that is about no known column has names, were they also words for yes or no.
        if len(lines[0]) == 2 and words.sign(lines[0][1]) is not None:
            voice.note(f"{name}: the first line is about no column of the model, and taken for names")
        lines[0] = ["", ""]
    found: dict[str, int] = {}
    for (number, _), line in zip(numbered, lines, strict=True):
        if len(line) != 2:
            raise ValueError(f"{name}, line {number}: {len(line)} fields; each line is column,answer")
        if words.own(line[1]) is None and is_blank(line[1]):
            continue
        sign = words.sign(line[1])
        if sign is None:
            raise ValueError(f"{name}, line {number}: {line[1]!r} is neither yes nor no")
        if found.get(line[0], sign) != sign:
            raise ValueError(f"{name}, line {number}: {line[0]!r} has two answers")
        found[line[0]] = sign
    texts = list(found)
    codes = typed_codes(fitted.columns_, texts)
    labels, unknown = fitted.columns_.labels, int((codes < 0).sum())
    if unknown:
        first = f"the first {texts[int((codes < 0).argmax())]!r}"
        own = ", ".join(repr(str(label)) for label in labels[:3])
        if unknown == len(texts):
            raise ValueError(f"{name}: the model knows none of its columns, {first}; it has {own}, ...")
        voice.note(
            f"{name}: {many(unknown, 'answer')} skipped, since the model does not know their columns, "
            f"{first}; it has {own}, ..."
        )
    return {labels[code]: found[text] for code, text in zip(codes, texts, strict=True) if code >= 0}
