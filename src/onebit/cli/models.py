"""Which model a command asks for, and the options that say so."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onebit.cli import options as o
from onebit.cli.features import pattern_of
from onebit.cli.shell import WrongCommand

MODELS = ("auto", "logistic", "hinge", "gibbs", "nuclear")
INFERENCES = ("variational", "sampling")
SAMPLED = ("logistic", "hinge")


def new_model(
    name: str,
    rank: int | None,
    seed: int,
    threads: int | None,
    device: str,
    inference: str = "variational",
    samples: int | None = None,
    chains: int | None = None,
    sampling_seconds: float | None = None,
    pattern: str = "auto",
) -> Any:
    """Return an unfitted completer by its short name."""
    import onebit

    patterned = pattern_of(name, pattern)

    if inference not in INFERENCES:
        raise WrongCommand(f"unknown inference {inference!r}; choose one of {', '.join(INFERENCES)}")
    sampling: dict[str, Any] = {}
    if inference == "sampling":
        if name not in SAMPLED:
            raise WrongCommand(
                f"--inference sampling goes with --model {' or '.join(SAMPLED)}; auto decides by itself"
            )
        wanted = {"n_samples": samples, "n_chains": chains}
        sampling = {"inference": inference} | {k: v for k, v in wanted.items() if v is not None}
    elif samples is not None or chains is not None:
        raise WrongCommand("--samples and --chains go with --inference sampling")

    if name not in MODELS:
        raise WrongCommand(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    ranked: dict[str, Any] = {} if rank is None else {"rank": rank}
    if name == "nuclear" and device not in ("cpu", "auto"):
        raise WrongCommand("--model nuclear runs on the CPU only; leave --device out")
    machine: dict[str, Any] = {"n_jobs": o.threads_of(threads), "device": o.checked_device(device)}
    if name == "auto":
        if rank is not None:
            raise WrongCommand("--model auto finds the rank by itself; give --rank with another model")
        if sampling_seconds is not None:
            machine["sampling_seconds"] = sampling_seconds
        return onebit.AutoCompleter(random_state=seed, **machine, **patterned)
    if sampling_seconds is not None:
        raise WrongCommand("--sampling-seconds goes with --model auto; others take --samples")
    if name == "nuclear":
        return onebit.NuclearNormCompleter(**ranked, random_state=seed)
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
        help="auto (chooses by itself), logistic, hinge, gibbs, nuclear.",
        autocompletion=lambda: list(MODELS),
    ),
]
Rank = Annotated[int | None, typer.Option(min=0, help="The largest rank, of models other than auto.")]
Inference = Annotated[
    str,
    typer.Option(
        help="variational, or sampling: the exact posterior, of the models logistic and hinge.",
        autocompletion=lambda: list(INFERENCES),
    ),
]
Samples = Annotated[
    int | None, typer.Option(min=1, help="Draws of each chain, 200 unless given (sampling).")
]
SamplingSeconds = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="The most that auto may sample, reckoned for one core; 60 unless given, 0 never."
    ),
]
Chains = Annotated[int | None, typer.Option(min=1, help="Chains, 1 unless given (sampling).")]
