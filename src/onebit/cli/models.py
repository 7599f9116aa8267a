"""Which model a command asks for, and the options that say so."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.features import pattern_of
from onebit.cli.shell import WrongCommand

MODELS = ("auto", "logistic", "hinge", "gibbs", "nuclear", "rasch", "2pl")
# Of the models of item response theory: what makes LogisticCompleter one of them. They are sampled, since
# abilities and difficulties are read with their standard errors: until what all rows share is known to a
# twentieth of its posterior standard deviation, with four hundred effective draws. The one factor of the
# two-parameter model is known to be there: the default prior, under which columns vanish that answers say
# little of, takes it away from small classes (20 students, 10 items).
IRT: dict[str, dict[str, Any]] = {
    "rasch": {"rank": 0, "pattern": None},
    "2pl": {"rank": 1, "effects": "columns", "pattern": None, "prior_scale": 0.1},
}
IRT_SAMPLING = {"inference": "sampling", "n_samples": 1000, "settle": 0.05}
LOSSES = ("logistic", "hinge", "gibbs")
EFFORTS = ("quick", "default", "thorough")
INFERENCES = ("variational", "sampling")
SAMPLED = ("logistic", "hinge", "rasch", "2pl")


def new_model(
    name: str,
    rank: int | None,
    seed: int,
    threads: int | None,
    device: str,
    inference: str | None = None,
    samples: int | None = None,
    chains: int | None = None,
    sampling_seconds: float | None = None,
    pattern: str = "auto",
    burn_in: int | None = None,
    effort: str | None = None,
    loss: list[str] | None = None,
) -> Any:
    """Return an unfitted completer by its short name."""
    import onebit

    if name not in MODELS:
        raise WrongCommand(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    patterned = pattern_of(name, pattern)
    if inference is not None and inference not in INFERENCES:
        raise WrongCommand(f"unknown inference {inference!r}; choose one of {', '.join(INFERENCES)}")
    wanted = {"n_samples": samples, "n_chains": chains, "n_burn_in": burn_in}
    chains_wanted: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    sampling: dict[str, Any] = {}
    if inference == "sampling":
        if name not in SAMPLED:
            raise WrongCommand(
                f"--inference sampling goes with --model {' or '.join(SAMPLED)}; auto decides by itself"
            )
        sampling = {"inference": inference} | chains_wanted
    elif chains_wanted and name != "auto" and name not in IRT:
        raise WrongCommand("--samples, --chains and --burn-in go with --inference sampling, or with auto")

    ranked: dict[str, Any] = {} if rank is None else {"rank": rank}
    if name == "nuclear" and device not in ("cpu", "auto"):
        raise WrongCommand("--model nuclear runs on the CPU only; leave --device out")
    machine: dict[str, Any] = {"n_jobs": o.threads_of(threads), "device": o.checked_device(device)}
    if name == "auto":
        if rank is not None:
            raise WrongCommand("--model auto finds the rank by itself; give --rank with another model")
        if effort is not None:
            if effort not in EFFORTS:
                raise WrongCommand(f"unknown effort {effort!r}; choose one of {', '.join(EFFORTS)}")
            machine["effort"] = effort
        if sampling_seconds is not None:
            machine["sampling_seconds"] = sampling_seconds
        if loss:
            if not set(loss) <= set(LOSSES) or LOSSES[0] not in loss:
                raise WrongCommand(
                    f"--loss {' --loss '.join(loss)}: choose from {', '.join(LOSSES)}, each after a "
                    f"--loss of its own, and --loss {LOSSES[0]} among them"
                )
            machine["losses"] = loss
        return onebit.AutoCompleter(random_state=seed, **machine, **chains_wanted, **patterned)
    for option, value in (("--sampling-seconds", sampling_seconds), ("--effort", effort)):
        if value is not None:
            raise WrongCommand(f"{option} goes with --model auto; others take --samples")
    if loss:
        raise WrongCommand(f"--loss goes with --model auto; --model {name} has its own")
    if name == "nuclear":
        return onebit.NuclearNormCompleter(**ranked, random_state=seed)
    if name in IRT:
        if rank is not None:
            raise WrongCommand(f"--model {name} has its rank by itself; leave --rank out")
        if inference == "variational":
            raise WrongCommand(
                f"--model {name} is sampled, for its standard errors; leave --inference out"
            )
        settings = IRT[name] | IRT_SAMPLING | chains_wanted
        if samples is not None:  # so many, settled or not
            settings["settle"] = None
        return onebit.LogisticCompleter(random_state=seed, **machine, **settings)
    kinds = {
        "logistic": onebit.LogisticCompleter,
        "hinge": onebit.HingeCompleter,
        "gibbs": onebit.GibbsCompleter,
    }
    return kinds[name](**ranked, random_state=seed, **machine, **sampling, **patterned)


ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="auto (chooses by itself), logistic, hinge, gibbs, nuclear; rasch and 2pl for tests.",
        autocompletion=lambda: list(MODELS),
    ),
]
Rank = Annotated[int | None, typer.Option(min=0, help="The largest rank, of models other than auto.")]
Inference = Annotated[
    str | None,
    typer.Option(
        help="variational, or sampling: the exact posterior, of the models logistic and hinge.",
        show_default="variational; sampling for rasch and 2pl",
        autocompletion=lambda: list(INFERENCES),
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Draws of each chain, settled or not: 100 with --inference sampling; auto, rasch and 2pl "
        "go on until their chains settle.",
    ),
]
Chains = Annotated[
    int | None,
    typer.Option(min=1, help="Chains: 4 unless given; auto makes 4, 2 or 1, as the effort allows."),
]
BurnIn = Annotated[
    int | None,
    typer.Option(min=0, help="Sweeps before the first draw, 20 unless given (sampling, auto)."),
]
Effort = Annotated[
    str | None,
    typer.Option(
        help="How long auto may sample: quick, default or thorough (20, 200, 2000 seconds of one core).",
        autocompletion=lambda: list(EFFORTS),
    ),
]
Losses = Annotated[
    list[str] | None,
    typer.Option(
        "--loss",
        help="A loss that auto may choose: logistic, hinge, gibbs; may be repeated, logistic among them. "
        "With logistic alone, what is read from log-odds is there: rows, ask, intervals.",
        show_default="all three",
        autocompletion=lambda: list(LOSSES),
    ),
]
SamplingSeconds = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="The most that auto may sample, reckoned for one core, in place of --effort; 0 never.",
    ),
]
