"""How long after the move of a slider is the explorer's picture redrawn?

In Chromium, with learned and exact density and their difference; needs the extra `browser`.

Run: diracflow explore runs/benes/model.dflow --port 8321 --no-browser &
     python benchmarks/bench_explore.py http://127.0.0.1:8321/
"""

import json
import re
import shutil
import sys

from playwright.sync_api import Page, sync_playwright

_MOVES = 41
_MOVE = "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }"


def milliseconds(page: Page, place: int) -> int:
    """From the event of the slider to the end of drawing, by the page's own clock."""
    page.evaluate("document.getElementById('timing').textContent = ''")
    page.locator("#t").evaluate(_MOVE, place)
    page.wait_for_selector("#timing:not(:empty)")
    found = re.search(r"\d+", page.inner_text("#timing"))
    assert found is not None
    return int(found.group())


def bench(url: str) -> dict:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(url)
        page.locator("#bound", has_text="at most").wait_for(timeout=120_000)
        times = sorted(milliseconds(page, 400 + 12 * i) for i in range(_MOVES))
        browser.close()
    return {"moves": _MOVES, "median_ms": times[_MOVES // 2], "least_ms": times[0]}


if __name__ == "__main__":
    print(json.dumps(bench(sys.argv[1])))
