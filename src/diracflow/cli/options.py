"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON only.")]
ModelFile = Annotated[Path, typer.Argument(help="A model file, such as runs/benes/model.dflow.")]
Time = Annotated[float, typer.Option("--t", help="Time since the start.")]
Start = Annotated[str, typer.Option("--x0", help="The start: numbers divided by commas.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random keys.")]
Data = Annotated[
    Path, typer.Argument(help="Times and values: columns of a .csv, or times, states of an .npz.")
]
Figure = Annotated[Path | None, typer.Option(help="Draw it: a .png, .pdf, ...")]
Table = Annotated[Path | None, typer.Option("--out", "-o", help="Write a .csv or .npz file.")]
Equation = Annotated[
    str | None, typer.Option("--sde", help="FILE.py:NAME, for models of your own SDEs.")
]
Single = Annotated[
    bool, typer.Option("--float32", help="Evaluate in float32: faster, some digits fewer.")
]
Params = Annotated[
    str | None, typer.Option("--params", help="Parameters of the SDE: '{\"rate\": 1.5, ...}'.")
]
Began = Annotated[
    float | None,
    typer.Option("--start-time", help="When the process starts, for models that depend on it."),
]
Threads = Annotated[
    int | None, typer.Option(help="Cores to compute on, at most; else all that are allowed.")
]
Memory = Annotated[
    float | None,
    typer.Option("--memory-limit", help="Refuse to take more gigabytes; else all that there are."),
]
Devices = Annotated[
    int | None, typer.Option(help="Devices of JAX to divide the points over [all].")
]
Chunk = Annotated[
    int | None,
    typer.Option(help="Rows that a device holds at once [all, if memory allows]."),
]
Coordinator = Annotated[
    str | None, typer.Option(help="HOST:PORT of the process number 0, if there are several.")
]
Processes = Annotated[int | None, typer.Option(help="How many processes there are.")]
ProcessId = Annotated[int | None, typer.Option(help="Which of them this is, from 0 on.")]
Distributed = Annotated[
    bool,
    typer.Option("--distributed", help="Be one of several processes; the launcher says which."),
]
Preset = Annotated[str, typer.Option(help="quick, accurate or paper.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Keep the training in this directory; the same command goes on from there."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Refuse to start afresh if `--checkpoint` has nothing to resume."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting of the preset: --set tolerance=1e-4."),
]
