"""Every example runs, and shows what it says."""

import pathlib
import runpy

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def test_euler_is_biased_where_the_density_is_not():
    example = runpy.run_path(str(EXAMPLES / "coarse_ou.py"))
    found, true = example["main"](), example["TRUE"]
    for name, value in true.items():
        # Four standard errors: exceeded by one of three efficient estimates for one path in 5000.
        error = found["density"].standard_errors[name]
        assert abs(found["density"].params[name] - value) < 4 * error
    for name in ("rate", "noise"):
        # Euler's limits are (1 - exp(-1.2)) = 0.70 and 0.49: many standard errors away.
        error = found["Euler"].standard_errors[name]
        assert abs(found["Euler"].params[name] - true[name]) > 8 * error


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path
