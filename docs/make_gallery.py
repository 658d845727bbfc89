"""Draw the pictures of the gallery by running the code of `gallery.md`.

Densities are kept in `runs/gallery` and read from there the next time.

Run: python docs/make_gallery.py
"""

import re
from collections.abc import Callable
from pathlib import Path

import matplotlib

import diracflow as df
from diracflow.view.axes import style

DOCS = Path(__file__).parent
KEPT = DOCS.parent / "runs" / "gallery"
# The code before the first picture, and each picture with its code.
_BLOCK = re.compile(r"(?:\((images/\S+)\)\n\n)?```python\n(.*?)```", flags=re.DOTALL)


def kept(learn: Callable) -> Callable:
    """Return a function that learns as `learn` does, and keeps what it has learned."""
    count = iter(range(100))

    def learned(sde, *args, **settings):
        path = KEPT / f"{next(count)}.dflow"
        if not path.exists():
            learn(sde, *args, **settings).save(path)
        return df.load(path, sde=sde)

    return learned


@style()
def main() -> None:
    matplotlib.rcParams["figure.constrained_layout.use"] = True
    KEPT.mkdir(parents=True, exist_ok=True)
    df.learn, names = kept(df.learn), {}
    for path, code in _BLOCK.findall((DOCS / "gallery.md").read_text("utf-8")):
        exec(code, names)
        if path:
            figure = names["picture"].figure
            figure.set_size_inches(3.6, 2.9)
            figure.savefig(DOCS / path, dpi=100)


if __name__ == "__main__":
    matplotlib.use("Agg")
    main()
