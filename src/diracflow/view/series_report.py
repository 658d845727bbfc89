"""An HTML page about a series: what the filter found, the forecast, and checks of predictions."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float
from matplotlib.figure import Figure

from ..evaluate.predictive import PredictiveCheck
from ..hidden.filtering import Filtered
from ..hidden.forecasts import Forecast
from .axes import panels, style
from .one_panel import one_panel
from .over_time import filter_bands, forecast_fan
from .report import definitions, element, page, picture, table

# Below this p-value the page says that the model is rejected. Most rows of the forecast's table.
# So few predictions are not tested.
_REJECTED, _ROWS, _FEWEST = 0.01, 12, 3
_MEANINGS = {
    "uniform": "transforms are uniform (Kolmogorov–Smirnov)",
    "independent": "normal scores are independent (Ljung–Box)",
    "variance": "their squares are independent (Ljung–Box)",
}


def series_report(
    filtered: Filtered,
    forecast: Forecast | None = None,
    check: PredictiveCheck | None = None,
    observations: Float[ArrayLike, "n k"] | None = None,
    *,
    name: str = "a series",
    path: str | os.PathLike | None = None,
) -> str:
    """Return a self-contained HTML page, without scripts and external requests.

    **Arguments:**

    - `filtered`: the result of `diracflow.filter`.
    - `forecast`: the result of `diracflow.forecast`.
    - `check`: the result of `diracflow.evaluate.filter_check` or `path_check`.
    - `observations`: observed values of the components, with NaN for those not observed.
    - `name`: the name of the series, in the title.
    - `path`: if given, the page is also written to this file.

    **Returns:** the page as text.
    """
    blocks = [element("h1", f"Filter and forecast of {name}"), *_filter(filtered, observations)]
    if forecast is not None:
        blocks += _forecast(forecast, filtered, observations)
    if check is not None:
        blocks += _check(check)
    return page(name, blocks, path)


def _filter(filtered: Filtered, observations: Any) -> Iterator[str]:
    times = np.asarray(filtered.times)
    yield definitions(
        {
            "times": f"{len(times)}, from {times[0]:g} to {times[-1]:g}",
            "log-evidence": f"{filtered.log_evidence:.6g}",
            "smallest effective sample size": f"{float(filtered.effective_shares.min()):.1%}",
            "largest share outside the start law": f"{float(filtered.outside.max()):.1%}",
        }
    )
    caption = "The state given the observations up to each time."
    yield picture("filter", filter_bands(filtered, observations), caption)


def _forecast(forecast: Forecast, filtered: Filtered, observations: Any) -> Iterator[str]:
    yield element("h2", "Forecast")
    drawn = forecast_fan(forecast, filtered, observations)
    yield picture("forecast", drawn, "Quantiles of the state after the last observation.")
    levels = np.asarray(forecast.levels)
    rows = np.unique(np.linspace(0, len(forecast.times) - 1, _ROWS).astype(int))
    for component in range(forecast.means.shape[1]):
        cells = [
            (f"{float(forecast.times[i]):.4g}", *(f"{q:.4g}" for q in quantiles))
            for i in rows
            for quantiles in [np.asarray(forecast.quantiles)[i, :, component]]
        ]
        yield element("p", f"Quantiles of component {component + 1}:", "soft")
        yield table(("t", *(f"{100 * level:g} %" for level in levels)), *cells)


def _check(check: PredictiveCheck) -> Iterator[str]:
    yield element("h2", "One-step predictions")
    count = len(check.times)
    score = float(np.mean(check.log_scores))
    yield definitions({"predictions": count, "mean log predictive density": f"{score:.4g}"})
    if count <= _FEWEST:
        yield element("p", "These are too few for tests.")
        return
    tests = check.tests(lags=min(10, count // 4))
    smallest = min(float(test.p.min()) for test in tests.values())
    words = "The model is rejected" if smallest < _REJECTED else "The model is not rejected"
    kind = "bad" if smallest < _REJECTED else "good"
    yield element("p", f"{words}: the smallest p-value is {smallest:.2g}.", kind)
    rows = [
        (f"{_MEANINGS[name]}, component {i + 1}", f"{statistic:.4g}", f"{p:.2g}")
        for name, test in tests.items()
        for i, (statistic, p) in enumerate(zip(*test, strict=True))
    ]
    yield table(("hypothesis", "statistic", "p-value"), *rows)
    yield picture("transforms", _histogram(check), "Probability integral transforms.")


@style()
def _histogram(check: PredictiveCheck) -> Figure:
    figure, [[axis]] = panels(4.6, 3.0)
    one_panel(check, axis)
    return figure
