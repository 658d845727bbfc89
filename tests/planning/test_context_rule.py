import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import diracflow as df
from diracflow.planning.settings import settings_for
from diracflow.planning.subinterval_rule import settled_context, turn

LAW = df.Normal(0.0, 1.0).expand(2)


def rotation(rate, units=(1.0, 1.0)):
    """A circular motion, with states measured in some units."""
    scale = jnp.asarray(units)
    slopes = jnp.array([[0.0, -rate], [rate, 0.0]]) * scale[:, None] / scale[None, :]
    return df.SDE(lambda t, x: slopes @ x, lambda t, x: jnp.diag(scale), 2)


def context_of(model, preset="quick", **settings):
    chosen = settings_for(preset, **settings)
    return settled_context(chosen, model.sde, model.starts.expand(2), 0.0, model.horizon).context


def test_a_rotation_turns_by_its_angle_in_any_units():
    assert turn(rotation(0.7), LAW, 0.0, 2.0) == pytest.approx(1.4, rel=0.05)
    units = (1.0, 1000.0)
    law = df.Product(df.Normal(0.0, 1.0), df.Normal(0.0, 1000.0))
    # Sobol draws have standard deviations of 1 to a few per cent.
    assert turn(rotation(0.7, units), law, 0.0, 2.0) == pytest.approx(1.4, rel=0.1)


def test_gradients_do_not_turn():
    sde = df.SDE(lambda t, x: -4 * x * (x @ x - 1), lambda t, x: jnp.eye(2), 2)
    assert turn(sde, LAW, 0.0, 3.0) < 0.2
    assert turn(df.models.benes().sde, LAW, 0.0, 3.0) < 0.2


def test_the_flow_follows_paths_that_turn():
    assert context_of(df.models.van_der_pol()) == "path"
    assert context_of(df.models.van_der_pol(), context="start") == "start"
    assert context_of(df.models.van_der_pol(), "paper") == "start"
    assert context_of(df.models.benes()) == "start"


def test_slopes_without_value_do_not_count():
    root = df.SDE(lambda t, x: jnp.sqrt(x[::-1]), lambda t, x: jnp.eye(2), 2)
    assert np.isfinite(turn(root, LAW, 0.0, 1.0))


def test_the_papers_flow_cannot_follow_paths():
    with pytest.raises(ValueError, match='needs `flow="monotone"`'):
        settings_for("paper", context="path")


def test_degenerate_noise_is_given_the_start_unless_asked():
    model = df.models.langevin()
    problem = model.sde, model.starts.expand(2), 0.0, 2.0
    assert turn(*problem) > 1
    for degenerate, context in ((True, "start"), (False, "path")):
        chosen = settled_context(settings_for("quick"), *problem, degenerate)
        assert chosen.context == context


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
    assert density.facts.settings.context == "path"
    density.save(tmp_path / "m.dflow")
    again = df.load(tmp_path / "m.dflow")
    x, x0, t = np.array([0.3, 0.2]), np.array([0.4, 0.1]), density.horizon * np.array([0.1, 1.0])
    np.testing.assert_array_equal(again.log_prob(x, t, x0), density.log_prob(x, t, x0))
    drawn = density.sample(jr.key(1), t[-1], x0, (64,))
    assert np.all(np.isfinite(density.log_prob(drawn, t[-1], x0)))
