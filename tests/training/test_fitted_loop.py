"""Trainings by fits, against an exact density."""

import jax.numpy as jnp
import numpy as np
import pytest

import diracflow as df

MODEL = df.models.benes(dim=1)
HORIZON = 1.5
SMALL = {"layers": 2, "hidden": 2, "bumps": 4, "samples": 256, "certify": False}


def fitted(**changes):
    options = {"key": 0, "preset": "quick", "method": "fitted", **SMALL, **changes}
    return df.learn(MODEL.sde, MODEL.starts, HORIZON, **options)


@pytest.fixture(scope="module")
def whole():
    return fitted()


def total_variation(density, t, x0):
    x = np.linspace(-8.0, 8.0, 1601)[:, None]
    found, exact = (np.exp(law.log_prob(x, t, x0)) for law in (density, MODEL.exact))
    return 0.5 * np.sum(np.abs(found - exact)) * (x[1, 0] - x[0, 0])


def test_fits_reach_the_horizon_within_the_bound_that_they_give(whole):
    assert whole.status is df.Status.FINISHED
    assert whole.horizon == HORIZON
    history = whole.provenance.history
    bound = history[-1].bound
    # Knots at four short times, then eleven steps of a twelfth of the horizon.
    assert len(history) == 15
    for x0 in (np.array([0.0]), np.array([0.8])):
        for record in (history[3], history[8], history[-1]):
            # Points of a fit are drawn from the density over all starts; a single one may be
            # worse than the root mean square.
            assert total_variation(whole, record.time, x0) < 2 * record.bound
    assert 0 < bound < 0.1


def test_between_knots_the_density_is_as_good(whole):
    knots = [record.time for record in whole.provenance.history]
    middle = 0.5 * (knots[8] + knots[9])
    assert total_variation(whole, middle, np.array([0.3])) < 2 * whole.provenance.history[9].bound


def test_a_resumed_training_ends_in_the_same_bits(whole, tmp_path):
    with pytest.warns(UserWarning, match="The number of steps reached `max_steps`") as warned:
        fitted(checkpoint=tmp_path, max_steps=6)
    assert "likely cause" not in str(warned[0].message)
    found = fitted(checkpoint=tmp_path)
    last, expected = (density.provenance.history[-1] for density in (found, whole))
    assert last.error == expected.error
    x = np.linspace(-3.0, 3.0, 7)[:, None]
    for t in (0.01, 0.4, HORIZON):
        ours, theirs = (d.log_prob(x, t, jnp.zeros(1)) for d in (found, whole))
        np.testing.assert_array_equal(ours, theirs)


def test_a_file_keeps_a_fitted_density(whole, tmp_path):
    whole.save(tmp_path / "benes.dflow")
    again = df.load(tmp_path / "benes.dflow", sde=MODEL.sde)
    assert again.provenance.plan.method == "fitted"
    x = np.linspace(-3.0, 3.0, 7)[:, None]
    np.testing.assert_array_equal(*(d.log_prob(x, 1.0, jnp.zeros(1)) for d in (again, whole)))


def test_a_flow_that_cannot_follow_keeps_what_was_fitted():
    steep = df.SDE(lambda t, x: 20 * (x - x**3), [0.7])
    with pytest.raises(df.TrainingFailed) as caught:
        df.learn(steep, df.Normal(0.0, 1.0), 1.0, key=0, preset="quick", method="fitted", **SMALL)
    assert caught.value.status in (df.Status.FLOW_TOO_SMALL, df.Status.NOT_FINITE)
    assert 0 < caught.value.density.horizon < 1


def test_fits_need_coefficients_that_do_not_depend_on_time():
    driven = df.SDE(lambda t, x: jnp.sin(t) - x, lambda t, x: 0.5 * jnp.eye(1), 1)
    with pytest.raises(ValueError, match='Use `method="galerkin"`'):
        df.plan(driven, df.Normal(0.0, 1.0), 1.0, preset="quick", method="fitted")


def test_fits_need_coordinates_of_the_source():
    with pytest.raises(ValueError, match='needs `flow="monotone"`'):
        df.plan(MODEL.sde, MODEL.starts, 1.0, preset="paper", method="fitted")
