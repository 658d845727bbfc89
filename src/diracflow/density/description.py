"""Facts and tables about a density, for `diracflow info` and for HTML reports.

Both come from the header of a model file, which can be read without the user's SDE.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .summary import format_boundaries, format_law, format_residuals

# Of each column of a table: the heading, the name of its values in a row, and their format.
Columns = Sequence[tuple[str, str, str]]
WHERE: Columns = (("t", "t", ".3g"), ("start", "start", ""))
BOUNDS: Columns = (*WHERE, ("bound", "bound", ".1e"), ("standard error", "stderr", ".0e"))
ERRORS: Columns = (
    ("t", "t", ".3g"),
    *(("relative squared L2", "squared_l2", ".1e"), ("(source)", "source_squared_l2", ".1e")),
    *(("KL (nats)", "kl", ".1e"), ("(source)", "source_kl", ".1e")),
    *(("total variation", "total_variation", ".1e"), ("(source)", "source_total_variation", ".1e")),
)


def cells(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return the texts of a table, the headings first; missing values are empty."""
    values = [[(row.get(name), style) for _, name, style in columns] for row in rows]
    texts = [["" if v is None else format(v, style) for v, style in line] for line in values]
    return [[heading for heading, _, _ in columns], *texts]


def problem_facts(header: Mapping[str, Any]) -> dict[str, str]:
    """Return what was learned, and up to which time."""
    sde, law, horizon = header["sde"], header["start_times"], header["horizon"]
    name = "user-defined" if sde["model"] is None else f"built-in model {sde['model']}"
    facts = {"SDE": f"{name}, {sde['dim']} components, {sde['noise_dim']} noise columns"}
    if any(part["domain"] != "Real" for part in sde["domain"]):
        facts["domain"] = " x ".join(format_law(part) for part in header["maps"])
        facts["its ends"] = format_boundaries(header["boundaries"]) or "not tested"
    facts["start law"] = format_law(header["starts"])
    facts |= {f"parameter {part['name']}": format_law(part) for part in header["params"]}
    facts["start time"] = f"{header['start_time']:g}" if law is None else format_law(law)
    reached = f"{horizon:g}, reached"
    if header["status"] != "FINISHED":
        reached = f"{horizon:g} of {header['plan']['horizon']:g} requested ({header['status']})"
    if header["reach"] < horizon:
        reached += f", in subintervals of {header['reach']:g}"
    return {**facts, "horizon": reached}


def training_facts(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the course of the training."""
    history, seconds = header["history"], header["seconds"]
    rejected = sum(record["rejected"] for record in history)
    each = f", {seconds / len(history):.2g} s per step" if history else ""
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    return {
        "steps": f"{len(history)} accepted, {rejected} rejected",
        "time": f"{seconds:.1f} s{each}",
        "parameters": str(header["plan"]["parameters"]),
        "held-out residual": format_residuals([record["fresh_residual"] for record in history]),
        "preset": header["plan"]["preset"],
        "random key": str(header["key"]),
        "versions": versions or "not recorded",
    }
