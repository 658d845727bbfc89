"""The answers of the explorer's server, and its access rules."""

import json
import socket

import jax.random as jr
import numpy as np
import pytest
from explore_answers import fields, unmoved, unpacked
from scipy.stats import gaussian_kde

import diracflow as df
from diracflow.explore.explorer import Explorer
from diracflow.explore.server import MAX_ADDRESS, Server

QUERY = "t=0.2&x0=0.3,-0.4"


def test_the_page_needs_nothing_from_elsewhere(ask, server):
    status, headers, body = ask("")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store"
    names = [path for path in server.page if path != "/"]
    assert {"/index.html", "/main.js", "/style.css", "/icon.svg"} <= set(names)
    for path in names:
        status, headers, body = ask(path[1:])
        assert status == 200
        assert headers["X-Content-Type-Options"] == "nosniff"
        text = body.decode().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http:" not in text
        assert "https:" not in text
        assert "style=" not in text, "the policy forbids inline styles"


def test_only_this_machine_is_served(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "evil.example:{}"])
def test_foreign_hosts_are_refused(ask, server, host):
    status, _, body = ask("api/model", host=host.format(server.server_port))
    assert status == 403
    assert "only served as" in json.loads(body)["error"]


def test_our_own_names_are_served(ask, server):
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert ask("api/model", host=f"{name}:{server.server_port}")[0] == 200


def test_other_sites_may_not_ask(ask):
    assert ask("api/model", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask("api/model", **{"Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_only_get_is_answered(ask, method):
    status, headers, _ = ask("", method=method)
    assert status == 405
    assert headers["Allow"] == "GET"


@pytest.mark.parametrize("path", ["nothing", "api/nothing", "../server.py", "%2e%2e/server.py"])
def test_unknown_paths(ask, path):
    status, _, body = ask(path)
    assert status == 404
    assert json.loads(body)["error"]


def test_long_addresses_are_refused(ask):
    assert ask("api/picture?x0=" + "1" * MAX_ADDRESS)[0] == 414
    assert ask("api/picture?x0=" + "1" * 2**17)[0] == 414


MISTAKES = {
    "nothing": ("", "`t` is missing"),
    "not a query": ("picture", "name=value"),
    "beyond the horizon": ("t=0.4&x0=0,0", "(0, 0.3]"),
    "at the start": ("t=0&x0=0,0", "point mass"),
    "nan": ("t=nan&x0=0,0", "finite"),
    "infinite start": ("t=0.1&x0=inf,0", "finite"),
    "word": ("t=soon&x0=0,0", "must be a number; got 'soon'"),
    "too short": ("t=0.1&x0=0", "2 numbers"),
    "too long": ("t=0.1&x0=0,0,0", "2 numbers"),
    "no start": ("t=0.1", "`x0` is missing"),
    "unknown field": (f"{QUERY}&colour=red", "Unknown field 'colour'"),
    "unknown parameter": (f"{QUERY}&p.rate=1", "Unknown field 'p.rate'"),
    "start time": (f"{QUERY}&s=1", "start_time"),
    "twice": (f"{QUERY}&t=0.1", "once"),
    "same components": (f"{QUERY}&pair=1,1", "two different components"),
    "no such component": (f"{QUERY}&pair=1,3", "from 1 to 2"),
    "kind": (f"{QUERY}&kind=cake", "section, marginal"),
    "box": (f"{QUERY}&box=1,0,0,1", "lower and an upper end"),
}


@pytest.mark.parametrize("query, message", MISTAKES.values(), ids=MISTAKES)
def test_bad_queries_say_what_is_wrong(ask, query, message):
    status, headers, body = ask(f"api/picture?{query}")
    assert status == 400
    assert headers["Content-Type"] == "application/json"
    assert message in json.loads(body)["error"]


def test_our_own_errors_are_not_told(ask, server, monkeypatch, capsys):
    monkeypatch.setattr(server.explorer, "picture", lambda query: 1 / 0)
    status, _, body = ask(f"api/picture?{QUERY}")
    assert status == 500
    assert b"ZeroDivision" not in body
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_pictures_hold_the_density(ask, trained, benes):
    box, learned, exact = fields(ask(f"api/picture?{QUERY}")[2])
    sides = [np.linspace(low, high, n) for (low, high), n in zip(box, learned.shape, strict=True)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, 2)
    for found, law in ((learned, trained), (exact, benes.exact)):
        values = np.asarray(law.prob(points, 0.2, [0.3, -0.4])).reshape(found.shape)
        # The only error is rounding to float32.
        np.testing.assert_allclose(found, values, rtol=1e-6, atol=1e-30)
        # Little mass lies beyond the axes, and sums of smooth functions over a grid are accurate.
        cell = np.prod((box[:, 1] - box[:, 0]) / (np.array(found.shape) - 1))
        assert abs(found.sum() * cell - 1) < 0.02


def test_the_order_of_the_pair_is_that_of_the_axes(ask):
    box, learned, _ = fields(ask(f"api/picture?{QUERY}&pair=1,2")[2])
    turned_box, turned, _ = fields(ask(f"api/picture?{QUERY}&pair=2,1")[2])
    np.testing.assert_array_equal(turned_box, box[::-1])
    np.testing.assert_array_equal(turned, learned.T)


def test_axes_stay_while_little_moves_and_can_be_held(ask):
    boxes = [fields(ask(f"api/picture?t={t}&x0=0.3,-0.4")[2])[0] for t in (0.2, 0.201)]
    np.testing.assert_array_equal(*boxes)
    held = fields(ask("api/picture?t=0.01&x0=0.3,-0.4&box=-2,2,-3,3")[2])[0]
    np.testing.assert_array_equal(held, [[-2, 2], [-3, 3]])


@pytest.mark.filterwarnings("ignore::diracflow.OutsideWarning")
def test_validity_goes_with_every_picture(ask, trained):
    inside = unpacked(ask(f"api/picture?{QUERY}")[2])[0]
    assert not inside["outside"]
    assert inside["coverage"] == pytest.approx(float(trained.coverage([0.3, -0.4])))
    # Five standard deviations of the start law away.
    outside = unpacked(ask("api/picture?t=0.2&x0=3.75,0")[2])[0]
    assert outside["outside"]


def test_controls_cover_the_law_and_a_little_more(ask, trained):
    model = json.loads(ask("api/model")[2])
    assert model["exact"]
    assert model["controls"]["t"]["high"] == trained.horizon
    ends = [[row[end] for row in model["controls"]["x0"]] for end in ("low", "high")]
    centre = [row["value"] for row in model["controls"]["x0"]]
    assert bool(np.all(trained.outside(np.array(ends))))
    assert not bool(trained.outside(np.array(centre)))


def test_a_port_in_use_is_said(server, trained):
    with pytest.raises(OSError, match="--port 0"):
        Server(server.explorer, server.server_port)


def test_half_a_request_keeps_nobody_waiting(ask, server):
    with socket.create_connection(server.server_address) as silent:
        silent.sendall(b"GET / HT")
        assert ask("api/model")[0] == 200


@pytest.fixture(scope="module")
def family():
    """A density over parameters, without training: the source is exact."""
    return Explorer(unmoved(df.models.ornstein_uhlenbeck_family(), 0.2))


def test_parameters_are_controls_and_fields(family):
    rows = family.model()["controls"]["params"]
    assert [(row["name"], row["low"], row["high"]) for row in rows] == [
        ("rate", 0.5, 2.0),
        ("level", -0.5, 0.5),
        ("noise", 0.3, 1.0),
    ]
    query = "t=0.1&x0=0.2&p.rate=1.5&p.level=0.1&p.noise=0.4"
    box, learned, exact = fields(family.picture(query))
    assert learned.shape == (401,)
    points = np.linspace(*box[0], 401)[:, None]
    values = family.density.prob(points, 0.1, [0.2], {"rate": 1.5, "level": 0.1, "noise": 0.4})
    np.testing.assert_allclose(learned, np.asarray(values), rtol=1e-6, atol=1e-30)
    # The source of a linear SDE is exact.
    np.testing.assert_allclose(learned, exact, rtol=1e-5, atol=1e-9)
    with pytest.raises(ValueError, match=r"\[0.5, 2\]"):
        family.picture(query.replace("1.5", "2.5"))
    with pytest.raises(ValueError, match=r"`p.noise` is missing"):
        family.picture("t=0.1&x0=0.2&p.rate=1.5&p.level=0.1")


def test_a_coarse_picture_is_a_kernel_estimate(family):
    query = "t=0.1&x0=0.2&p.rate=1.5&p.level=0.1&p.noise=0.4&coarse=1"
    header, numbers = unpacked(family.picture(query))
    (count,), draws = header["shape"], numbers[header["shape"][0] :]
    points = np.linspace(*header["box"][0], count)
    expected = gaussian_kde(draws)(points)  # SciPy's width is Scott's, too
    # Draws are sent in single precision.
    np.testing.assert_allclose(numbers[:count], expected, rtol=1e-4, atol=1e-6)
    assert not header["exact"]
    with pytest.raises(ValueError, match="`coarse` must be 0 or 1"):
        family.picture(query.replace("coarse=1", "coarse=2"))


@pytest.mark.slow
def test_sections_and_marginals_of_more_components():
    model = df.models.brownian(3)
    explorer = Explorer(unmoved(model, 1.0))
    query = "t=0.5&x0=0.1,0.2,0.3&pair=3,1"
    header, _ = unpacked(explorer.picture(query))
    assert list(header["rest"]) == ["2"]
    box, section, exact = fields(explorer.picture(query))
    np.testing.assert_allclose(section, exact, rtol=1e-5, atol=1e-9)
    # Components of a Brownian motion are independent: a section is the marginal times a number.
    held = (header["rest"]["2"] - 0.2) ** 2 / (2 * 0.5)
    factor = np.exp(-held) / np.sqrt(2 * np.pi * 0.5)
    box, marginal, _ = fields(explorer.picture(f"{query}&kind=marginal"))
    assert marginal.shape == (40, 40)
    cell = np.prod((box[:, 1] - box[:, 0]) / 39)
    assert abs(marginal.sum() * cell - 1) < 0.02
    # The largest of some hundred counts near the peak exceeds it by a few standard errors.
    peak = section.max() / factor
    assert abs(marginal.max() - peak) < 5 * np.sqrt(peak / (2**14 * cell))


@pytest.mark.slow
def test_certificates_hold_for_all_times_of_a_start(ask, trained):
    found = json.loads(ask(f"api/certificate?{QUERY}")[2])
    values = trained.certificate(jr.key(0), np.array(found["t"]), [0.3, -0.4], 32)
    np.testing.assert_allclose(found["bound"], values.bound)
    assert found["t"][-1] == trained.horizon
    assert json.loads(ask("api/certificate?t=0.1&x0=0.3,-0.4")[2]) == found


@pytest.mark.slow
def test_bridges_join_their_ends(ask):
    status, _, body = ask(f"api/bridge?{QUERY}&x1=0.5,0.5")
    header, numbers = unpacked(body)
    paths = numbers.reshape(header["shape"])
    assert status == 200
    np.testing.assert_allclose(paths[:, 0], np.tile([0.3, -0.4], (12, 1)), rtol=1e-6)
    np.testing.assert_allclose(paths[:, -1], 0.5, rtol=1e-6)
    assert header["effective_share"] > 0.5
    assert ask(f"api/bridge?{QUERY}")[0] == 400
