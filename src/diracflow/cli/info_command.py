"""`diracflow info`: a description of a model file."""

from typing import Any

from ..density.formatting import ends_in_words, in_words, residuals_in_words
from ..planning.plan import Plan


def info_text(header: dict[str, Any], path: str) -> str:
    """Return the description of a model file from its header."""
    sde, history = header["sde"], header["history"]
    lines = {
        "file": path,
        "SDE": _equation(sde),
        **_domain(header),
        "starts": in_words(header["starts"]),
        **{f"  {law['name']}": in_words(law) for law in header["params"]},
        "start time": _start_time(header),
        "horizon": _horizon(header),
        "training": f"{len(history)} steps in {header['seconds']:.0f} s",
        "held-out residual": residuals_in_words([record["fresh_residual"] for record in history]),
        "key": str(header["key"]),
        "versions": ", ".join(f"{name} {value}" for name, value in header["versions"].items()),
    }
    width = max(map(len, lines))
    table = [f"{name:<{width}}  {value}" for name, value in lines.items()]
    parts = [*table, "", str(Plan(**header["plan"])), *_code(sde["text"])]
    return "\n".join([*parts, *_certificate(header), *_errors(header)])


def bound_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return the error bounds of a certificate as lines of text."""
    return [
        "Upper bounds on the total variation distance to the true density (standard error):",
        *(
            f"  t = {row['t']:<9.3g} from the {row['start']:<7}"
            f" {row['bound']:8.1e}  ({row['stderr']:.0e})"
            for row in rows
        ),
    ]


def _equation(sde: dict[str, Any]) -> str:
    name = "user-defined" if sde["model"] is None else f"built-in model {sde['model']}"
    return f"{name}, {sde['dim']} components, {sde['noise_dim']} noise columns"


def _domain(header: dict[str, Any]) -> dict[str, str]:
    """Return the domain and the result of Feller's test, or nothing for an unbounded domain."""
    if all(part["domain"] == "Real" for part in header["sde"]["domain"]):
        return {}
    lines = {"domain": " x ".join(in_words(part) for part in header["maps"])}
    return {**lines, "ends": ends_in_words(header["boundaries"])}


def _code(text: dict[str, str]) -> list[str]:
    return [line for name, code in text.items() for line in ("", f"{name}:", code)]


def _certificate(header: dict[str, Any]) -> list[str]:
    rows = header["certificate"]
    if not rows:
        return ["", "No error bound was computed; `diracflow check` computes one."]
    return ["", *bound_lines(rows)]


def _errors(header: dict[str, Any]) -> list[str]:
    rows = header["errors"]
    if not rows:
        return []
    return [
        "",
        "Errors against the exact density, means over starts: relative squared L2, total variation",
        *(
            f"  t = {row['t']:<9.3g} {row['squared_l2']:8.1e}  {row['total_variation']:8.1e}"
            for row in rows
        ),
    ]


def _start_time(header: dict[str, Any]) -> str:
    law = header["start_times"]
    return f"{header['start_time']:g}" if law is None else in_words(law)


def _horizon(header: dict[str, Any]) -> str:
    reach, horizon = header["reach"], header["horizon"]
    divided = f", in subintervals of {reach:g}" if reach < horizon else ""
    if header["status"] == "FINISHED":
        return f"{horizon:g}, reached{divided}"
    requested = header["plan"]["horizon"]
    return f"{horizon:g} of {requested:g} requested ({header['status']}){divided}"
