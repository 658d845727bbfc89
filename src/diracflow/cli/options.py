"""Options that several commands share, and dataclasses for those that belong together.

Help texts contain no square brackets, because Rich would read them as markup.

A command takes such a dataclass as a parameter; `expanded` shows its fields to Typer.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .tables import require_figure, require_writable, table_format, write_table
from .terminal import emit

if TYPE_CHECKING:
    from ..density.learned import LearnedDensity

Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON only.")]
ModelFile = Annotated[Path, typer.Argument(help="A model file, such as runs/benes/model.dflow.")]
Time = Annotated[float, typer.Option("--t", help="Time since the start.")]
Start = Annotated[str, typer.Option("--x0", help="Start point: comma-separated numbers.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random keys.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of draws.")]
Data = Annotated[
    Path,
    typer.Argument(
        help="Times and values: columns of a .csv or .parquet, or times, states of an .npz."
    ),
]
Components = Annotated[
    str | None, typer.Option(help="Observed components, such as 1,3; default the first ones.")
]
NetCDF = Annotated[Path, typer.Option("--out", "-o", help="A NetCDF file.")]
Figure = Annotated[Path | None, typer.Option(help="Write a figure: .png, .pdf, ...")]
Preset = Annotated[str, typer.Option(help="quick, accurate or paper.")]
Equation = Annotated[
    str | None, typer.Option("--sde", help="FILE.py:NAME, for models of your own SDEs.")
]
Params = Annotated[
    str | None, typer.Option("--params", help="Parameters of the SDE: '{\"rate\": 1.5, ...}'.")
]
Float32 = Annotated[
    bool, typer.Option("--float32", help="Compute in float32: faster, but less accurate.")
]


@dataclasses.dataclass(frozen=True)
class QueryOptions:
    """A model file and the values on which its density is conditioned."""

    model: ModelFile
    params: Params = None
    start_time: Annotated[
        float | None, typer.Option(help="Start time, for models that depend on it.")
    ] = None
    sde: Equation = None

    def load(self) -> tuple["LearnedDensity", dict[str, Any]]:
        """Return the density in the file, and parameters and start time as keywords of a query."""
        from .inputs import load_model, parse_params

        params = None if self.params is None else parse_params(self.params)
        density, _ = load_model(self.model, self.sde)
        return density, {"params": params, "start_time": self.start_time}


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """Output of a table: a file, CSV on the standard output, or JSON."""

    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a .csv or .npz file.")] = (
        None
    )
    as_json: Json = False

    def check(self, figure: Path | None = None) -> None:
        """Raise an error if table or figure cannot be written; called before the computation."""
        if self.out is not None:
            table_format(self.out)
            require_writable(self.out)
        require_figure(figure)

    def write(
        self,
        columns: Mapping[str, np.ndarray],
        arrays: Mapping[str, np.ndarray],
        text: str = "",
        **scalars: float,
    ) -> None:
        """Write `columns` as CSV, or `arrays` as NPZ or JSON; JSON also holds `scalars`.

        If there is a text, it is printed instead of CSV.
        """
        if self.out is not None or not (self.as_json or text):
            write_table(self.out, columns, arrays)
        if self.as_json:
            emit({**scalars, **arrays})
        elif text:
            emit(text)


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """Laws and horizon of an SDE. They replace those of a model."""

    starts: Annotated[
        str | None,
        typer.Option(help='Law of the start point: \'{"law": "Normal", "mean": 0, "std": 1}\'.'),
    ] = None
    horizon: Annotated[float | None, typer.Option(help="Longest time since the start.")] = None
    params: Annotated[
        str | None,
        typer.Option(help='Laws of the parameters: \'{"rate": {"law": "Uniform", ...}, ...}\'.'),
    ] = None
    start_time: Annotated[
        str | None, typer.Option(help="Start time of the process: a number or a law; default 0.")
    ] = None


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting of the preset: --set tolerance=1e-4."),
]


def changed_settings(settings: list[str] | None) -> dict[str, Any]:
    """Return the settings of `--set` options by name."""
    changes: dict[str, Any] = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"`--set` takes name=value; got {text!r}.")
        try:
            changes[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            changes[name.strip()] = value.strip()
    return changes


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Seed, settings, checkpoints and resources of a training."""

    seed: Seed = 0
    settings: Settings = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Save checkpoints in this directory; the same command resumes there."),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Fail if `--checkpoint` holds no training to resume.")
    ] = False
    threads: Annotated[
        int | None, typer.Option(help="Largest number of cores to use; default all.")
    ] = None
    memory_limit: Annotated[
        float | None, typer.Option(help="Largest memory to use, in gigabytes; default all.")
    ] = None
    devices: Annotated[
        int | None,
        typer.Option(help="Number of JAX devices to divide the points over; default all."),
    ] = None
    chunk: Annotated[
        int | None,
        typer.Option(help="Rows that a device holds at once; default all, if memory allows."),
    ] = None
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT of process 0, to train in several processes.")
    ] = None
    processes: Annotated[int | None, typer.Option(help="Number of processes.")] = None
    process_id: Annotated[int | None, typer.Option(help="Index of this process, from 0.")] = None
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Train in several processes; the launcher supplies the addresses."
        ),
    ] = False

    def prepare(self) -> None:
        """Check the checkpoint, limit the threads and join other processes, before JAX starts."""
        from ..training.checkpoint_file import holds_checkpoint

        if self.resume and self.checkpoint is None:
            raise ValueError("`--resume` needs `--checkpoint DIR`, the directory to resume from.")
        if self.resume and self.checkpoint is not None and not holds_checkpoint(self.checkpoint):
            raise ValueError(
                f"There is no training to resume in {self.checkpoint}. Leave out `--resume` to "
                "start one."
            )
        if self.threads is not None:
            from ..training.threads import limit_threads

            limit_threads(self.threads)
        address = (self.coordinator, self.processes, self.process_id)
        if self.distributed or address != (None, None, None):
            from ..training.multiprocess import join

            join(*address, automatic=self.distributed)

    def resources(self) -> dict[str, Any]:
        """Return checkpoint and resources as keywords of `learn`."""
        names = ("checkpoint", "memory_limit", "devices", "chunk")
        return {name: getattr(self, name) for name in names}


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function` with each dataclass parameter replaced by the fields of the dataclass."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += inspect.signature(groups[name]).parameters.values()
        else:
            parameters.append(parameter)

    @functools.wraps(function)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            fields = {field.name: values.pop(field.name) for field in dataclasses.fields(group)}
            values[name] = group(**fields)
        function(**values)

    # Keyword-only parameters may follow others that have defaults.
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in keywords}
    return call
