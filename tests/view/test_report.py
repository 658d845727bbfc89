"""The report is one self-contained page, for any content of a model file."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest

import diracflow as df

HOSTILE = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>&amp;"
CERTIFICATE = tuple(
    {"t": t, "start": start, "x0": [0.0, 0.0], "bound": 0.02 * t, "stderr": 1e-3 * t}
    for t in (0.03, 0.3)
    for start in ("centre", "edge", HOSTILE)
)
FIELDS = ("squared_l2", "squared_l2_low", "squared_l2_high", "source_squared_l2")
ERRORS = tuple(
    {"t": t, **dict.fromkeys((*FIELDS, "kl", "total_variation"), 1e-4 * t)} for t in (0.03, 0.3)
)


class Read(HTMLParser):
    """A parser that collects elements with their attributes, and text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "elements must nest"

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def told(trained):
    """The shared density with all optional provenance."""
    return trained.with_provenance(
        certificate=CERTIFICATE,
        errors=ERRORS,
        plan=dataclasses.replace(
            trained.provenance.plan, preset=HOSTILE, reasons={"source": HOSTILE}
        ),
        versions={HOSTILE: HOSTILE},
    )


@pytest.fixture(scope="module")
def written(told, benes, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    text = df.view.report(told, benes.exact, file=f"{HOSTILE}.dflow", path=path)
    assert path.read_text("utf-8") == text
    return text


@pytest.fixture(scope="module")
def read(written):
    return Read(written)


def test_text_of_files_stays_text(read):
    assert not {"script", "img", "iframe", "object", "link", "a"} & {
        tag for tag, _ in read.elements
    }
    assert not [name for _, held in read.elements for name in held if name.startswith("on")]
    whole = "".join(read.text)
    assert f"preset{HOSTILE}" in whole
    assert f"{HOSTILE} {HOSTILE}" in whole, "versions"
    assert not read.open, "all elements are closed"


def test_nothing_is_fetched(read, written):
    links = [
        value
        for _, held in read.elements
        for name, value in held.items()
        if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:image/png"))
    ]
    assert not links
    assert "@import" not in written
    assert not re.search(r"url\((?!#)", written)
    policies = [held["content"] for _, held in read.elements if "http-equiv" in held]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_identifiers_of_figures_do_not_mix(read, written):
    names = [held["id"] for _, held in read.elements if "id" in held]
    assert len(names) == len(set(names))
    wanted = re.findall(r'(?:url\(#|href="#)([^)"]+)', written)
    assert set(wanted) <= set(names)


def test_it_says_what_one_asks(read, told):
    figures = [held["aria-label"] for tag, held in read.elements if tag == "svg"]
    # Three times, difference, spread; certificate, errors; training.
    assert len(figures) == 6
    whole = "".join(read.text)
    for word in ("Normal(", "_benes_drift", "horizon", "0.3", "tolerance", "df.load("):
        assert word in whole
    for field in ("layers", "max_seconds", "regularisation"):
        assert field in whole
    assert f"{len(told.provenance.history)} accepted" in whole
    # Bound plus three standard errors at the end: 6e-3 + 9e-4.
    assert "6.9e-03 from the centre" in whole


def test_light_dark_phone_and_paper(written):
    for rule in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print"):
        assert rule in written
    assert 'name="viewport"' in written
    # Colours follow the theme: black lines would be invisible on a dark page.
    drawn = re.findall(r"<svg .*?</svg>", written, flags=re.DOTALL)
    assert not any("#000000" in svg for svg in drawn)


def test_a_training_that_stopped_says_why(trained):
    plan = dataclasses.replace(trained.provenance.plan, horizon=3.0)
    stopped = trained.with_provenance(status=df.Status.STEP_LIMIT, plan=plan)
    from diracflow.view.report import _head

    words = "".join(Read("".join(_head(stopped, "model.dflow", "x"))).text)
    assert "STEP_LIMIT" in words
    assert "of 3" in words
    assert "max_steps" in words
