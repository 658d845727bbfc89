"""The explorer in headless Chromium, driven by Playwright."""

import re
import shutil
from urllib.parse import parse_qs

import numpy as np
import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.filterwarnings("ignore::diracflow.OutsideWarning"),  # in threads of the server
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path"),
]
# No sandbox is needed for our own page, and root has none; nothing is fetched from elsewhere.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
CERTIFICATE = {"t": [0.1, 0.3], "bound": [0.01, 0.02], "stderr": [0.001, 0.002]}


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, server, monkeypatch):
    """Return a function that opens the page; errors on the page fail the test at its end."""
    # The certificate has a separate test, and it takes long to compile.
    monkeypatch.setattr(server.explorer, "certificate", lambda query: CERTIFICATE)
    troubles, contexts = [], []

    def record(message):
        # The tests themselves send invalid queries and read pixels repeatedly.
        expected = re.search("status of 400|willReadFrequently", message.text)
        if message.type in ("error", "warning") and not expected:
            troubles.append(message.text)

    def watched(request):
        if not request.url.startswith((server.url, "data:")):
            troubles.append(request.url)

    def open_at(view="", **options):
        context = chromium.new_context(viewport={"width": 1300, "height": 800}, **options)
        context.set_default_timeout(60_000)  # a busy machine
        page = context.new_page()
        contexts.append(context)
        page.on("console", record)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", watched)
        page.goto(f"{server.url}#{view}")
        drawn(page)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not troubles


def drawn(page, text="t="):
    """Wait until the picture of a query that contains `text` is shown."""
    page.wait_for_selector(f'html[data-drawn*="{text}"]', state="attached")


def pixels(page, name="learned"):
    """Return the picture inside its axes, its box and the upper end of its colours."""
    found = page.evaluate(
        """(name) => {
          const canvas = document.getElementById(`canvas-${name}`);
          const area = canvas.dataset.area.split(",").map(Number);
          const data = canvas.getContext("2d").getImageData(...area).data;
          return { area, box: canvas.dataset.box, top: canvas.dataset.top, data: Array.from(data) };
        }""",
        name,
    )
    across, down = found["area"][2:]
    box = np.array(found["box"].split(","), float).reshape(2, 2)
    return np.reshape(found["data"], (down, across, 4))[..., :3], box, float(found["top"])


def test_pixels_are_those_of_the_density(visit, trained, benes):
    viridis = pytest.importorskip("matplotlib").colormaps["viridis"]
    page = visit("t=0.2&x0=0.3,-0.4&show=exact")
    for name, law in (("learned", trained), ("exact", benes.exact)):
        colours, box, top = pixels(page, name)
        down, across, _ = colours.shape
        i, j = np.meshgrid(np.arange(3, across, 7), np.arange(3, down, 7))
        x = box[0, 0] + (i + 0.5) / across * (box[0, 1] - box[0, 0])
        y = box[1, 1] - (j + 0.5) / down * (box[1, 1] - box[1, 0])
        values = np.asarray(law.prob(np.stack([x, y], axis=-1), 0.2, [0.3, -0.4]))
        expected = 255 * viridis(values / top)[..., :3]
        # The mark of the start and its handle cover part of the picture.
        away = np.hypot(x - 0.3, y + 0.4) > 0.25
        # The colour map is sampled at sixteenths, which costs 6 of 255; rounding and bilinear
        # interpolation cost a few more.
        assert away.mean() > 0.9
        assert np.abs(colours[j, i] - expected)[away].max() < 10
        assert values.max() > 0.9 * top


def test_sliders_change_the_picture(visit):
    # The axes are held fixed. Otherwise they adapt, and at short times densities change in scale
    # only.
    page = visit("t=0.2&x0=0,0&box=-3,3,-3,3&show=")
    assert page.evaluate("'coarse' in document.documentElement.dataset")  # it came first
    before, _, _ = pixels(page)
    page.locator("#t").evaluate(
        "(slider) => { slider.value = 500; slider.dispatchEvent(new Event('input')); }"
    )
    page.wait_for_selector("#timing:not(:empty)")
    assert re.match(r"Drawn \d+ ms after the move", page.inner_text("#timing"))
    assert page.locator("#t-number").input_value() != "0.2"
    after, _, _ = pixels(page)
    assert np.abs(after - before).max() > 50


def test_everything_is_reached_by_keyboard(visit):
    page = visit("t=0.2&x0=0,0&show=")
    page.focus("#t")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#timing:not(:empty)")
    t = float(page.locator("#t-number").input_value())
    assert 0.2 < t < 0.21
    assert page.get_attribute("#t", "aria-valuetext") == f"{t:g}"
    reached = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"t-number", "x0-1", "x0-2", "show-exact", "show-bridges", "hold", "share"} <= reached
    page.locator(".handle.start").focus()
    page.keyboard.press("Shift+ArrowRight")
    drawn(page, "x0=0.")
    assert float(page.locator("#x0-1-number").input_value()) > 0


def test_views_are_shared_by_their_address(visit):
    page = visit("t=0.2&x0=0,0&show=")
    page.fill("#x0-1-number", "0.35")
    drawn(page, "x0=0.35")
    page.check("#show-samples")
    page.wait_for_url(re.compile("show=samples"))
    address = page.url.partition("#")[2]
    assert parse_qs(address)["x0"] == ["0.35,0"]
    other = visit(address)
    assert other.locator("#x0-1-number").input_value() == "0.35"
    assert other.is_checked("#show-samples")
    np.testing.assert_array_equal(pixels(other)[0], pixels(page)[0])


def test_starts_outside_are_grey(visit):
    page = visit("t=0.2&x0=3.75,0&show=")
    page.get_by_role("alert").wait_for()
    assert "Outside the training law" in page.inner_text("#message")
    assert "outside" in page.get_attribute("#figure", "class")
    page.fill("#x0-1-number", "0")
    page.wait_for_selector("#figure:not(.outside)")
    assert not page.is_visible("#message")


def test_bad_queries_are_said_on_the_page(visit):
    page = visit("t=0.2&x0=0,0&show=")
    status = page.evaluate("async () => (await fetch('/api/picture?t=nan&x0=0,0')).status")
    assert status == 400
    page.fill("#t-number", "9")
    page.get_by_role("alert").wait_for()
    assert "(0, 0.3]" in page.inner_text("#message")
    page.fill("#t-number", "0.1")
    page.wait_for_selector("#message", state="hidden")


def test_two_browsers_at_once(visit):
    pages = [visit("t=0.2&x0=0,0&show="), visit("t=0.2&x0=0,0&show=", color_scheme="dark")]
    for step in range(1, 6):
        for page, sign in zip(pages, ("", "-"), strict=True):
            page.fill("#x0-2-number", f"{sign}0.{step}")
    for page, value in zip(pages, ("0,0.5", "0,-0.5"), strict=True):
        drawn(page, f"x0={value.replace(',', '%2C')}")
    boxes = [pixels(page)[1] for page in pages]
    assert boxes[0][1].mean() > boxes[1][1].mean()


def test_a_phone_shows_all_of_it(visit):
    page = visit("show=", is_mobile=True, has_touch=True)
    page.set_viewport_size({"width": 390, "height": 800})
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]


@pytest.mark.slow
def test_bridges_are_drawn_between_the_handles(visit):
    page = visit("t=0.2&x0=0,0&show=")
    before, _, _ = pixels(page)
    page.check("#show-bridges")
    page.wait_for_selector("html[data-bridged]", state="attached", timeout=200_000)
    page.locator(".handle.end").wait_for()
    assert "effective sample size" in page.inner_text("#guidance")
    assert not np.array_equal(pixels(page)[0], before)
