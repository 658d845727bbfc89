import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.settings import settings_for
from diracflow.planning.subinterval_rule import context_rule, rotation
from helpers import problem_for, problem_of, shaped_for

LAW = df.Normal(0.0, 1.0)


def circular(rate, units=(1.0, 1.0)):
    """A circular motion, with states measured in some units."""
    scale = jnp.asarray(units)
    slopes = jnp.array([[0.0, -rate], [rate, 0.0]]) * scale[:, None] / scale[None, :]
    return df.SDE(lambda t, x: slopes @ x, lambda t, x: jnp.diag(scale), 2)


def context_of(model, preset="quick", **settings):
    return shaped_for(problem_of(model), preset, **{"context": "auto"} | settings).context


def test_a_rotation_turns_by_its_angle_in_any_units():
    assert rotation(problem_for(circular(0.7), LAW, 2.0)) == pytest.approx(1.4, rel=0.05)
    units = (1.0, 1000.0)
    law = df.Product(df.Normal(0.0, 1.0), df.Normal(0.0, 1000.0))
    # Sobol draws have standard deviations of 1 to a few per cent.
    assert rotation(problem_for(circular(0.7, units), law, 2.0)) == pytest.approx(1.4, rel=0.1)


def test_gradients_do_not_turn():
    sde = df.SDE(lambda t, x: -4 * x * (x @ x - 1), lambda t, x: jnp.eye(2), 2)
    assert rotation(problem_for(sde, LAW, 3.0)) < 0.2
    assert rotation(problem_for(df.models.benes().sde, LAW, 3.0)) < 0.2


def test_the_flow_follows_paths_that_turn():
    assert context_of(df.models.van_der_pol()) == "path"
    assert context_of(df.models.van_der_pol(), context="start") == "start"
    assert context_of(df.models.van_der_pol(), "paper") == "start"
    assert context_of(df.models.benes()) == "start"


def test_slopes_without_value_do_not_count():
    root = df.SDE(lambda t, x: jnp.sqrt(x[::-1]), lambda t, x: jnp.eye(2), 2)
    assert np.isfinite(rotation(problem_for(root, LAW)))


def test_the_papers_flow_cannot_follow_paths():
    with pytest.raises(ValueError, match='needs `flow="monotone"`'):
        settings_for("paper", context="path")


def test_degenerate_noise_is_given_the_start_unless_asked():
    model = df.models.langevin()
    noisy = df.SDE(model.sde.drift, lambda t, x: jnp.eye(2), 2)
    for sde, context in ((model.sde, "start"), (noisy, "path")):
        problem = problem_for(sde, model.starts, 2.0)
        assert rotation(problem) > 1
        assert context_rule(problem, settings_for("quick")).value == context
        assert shaped_for(problem, context="path").context == "path"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["van_der_pol", "langevin"])
def test_a_density_that_follows_paths_learns_and_comes_back(name, tmp_path):
    model = df.models.model(name)
    with pytest.warns(UserWarning, match="stopped"):
        density = df.learn(
            *(model.sde, model.starts, model.horizon),
            key=jr.key(0),
            **{"preset": "quick", "hidden": 2, "layers": 2, "samples": 256, "max_steps": 3},
            context="path",
            certify=False,  # certificates have tests of their own, and compile for seconds
        )
    assert density.provenance.plan.context == "path"
    density.save(tmp_path / "m.dflow")
    again = df.load(tmp_path / "m.dflow")
    x, x0, t = np.array([0.3, 0.2]), np.array([0.4, 0.1]), density.horizon * np.array([0.1, 1.0])
    np.testing.assert_array_equal(again.log_prob(x, t, x0), density.log_prob(x, t, x0))
    drawn = density.sample(jr.key(1), t[-1], x0, (64,))
    assert np.all(np.isfinite(density.log_prob(drawn, t[-1], x0)))
