import numpy as np
import pytest

from diracflow.training.regularisation import Regularisation


def chosen(residual, enough=0.0, steps=60):
    """Return the value that is chosen for a known residual curve."""
    choice = Regularisation(None)
    for _ in range(steps):
        choice.choose(residual(choice.candidates()), enough)
    return choice.value


def test_finds_the_smallest_held_out_residual():
    for best in (1e-7, 1e-4):
        found = chosen(lambda v, best=best: 1e-3 * (1 + np.log(v / best) ** 2))
        # Values are a factor of four apart.
        assert abs(np.log(found / best)) <= np.log(4)


def test_takes_the_largest_that_is_good_enough():
    # The residual decreases with the value, and 1e-6 is good enough.
    found = chosen(lambda v: v**0.5, enough=1e-3)
    assert 1e-6 / 4 <= found <= 1e-6 * 4


def test_noise_alone_does_not_move_it():
    rng = np.random.default_rng(0)
    choice, moves = Regularisation(None), 0
    for _ in range(100):
        before = choice.value
        choice.choose(1e-3 * np.exp(0.05 * rng.normal(size=3)), 0.0)
        moves += choice.value != before
    assert moves <= 2


@pytest.mark.parametrize("value", [1e-5, 1e-10, 0.5])  # the search stays within 1e-8 and 1e-2
def test_a_fixed_value_stays(value):
    choice = Regularisation(value)
    assert choice.candidates() == np.array([value])
    assert choice.choose(np.array([0.5]), 1.0) == 0.5
    assert choice.value == value


def test_residuals_that_are_not_finite_are_ignored():
    choice = Regularisation(None)
    choice.choose(np.array([0.1, np.nan, 0.2]), 1.0)
    assert choice.value == Regularisation(None).value


@pytest.mark.parametrize("best", [1e-3, 1e-6])
def test_implicit_steps_evaluate_the_strength_in_use(best):
    choice = Regularisation(None)
    for _ in range(60):
        choice.prepare_implicit()
        assert choice.candidates()[1] == choice.value == choice.strength
        choice.choose(1e-3 * (1 + np.log(choice.candidates() / best) ** 2), 0.0)
    choice.prepare_implicit()
    # The strength of implicit steps is at least 1e-4.
    assert abs(np.log(choice.strength / max(best, 1e-4))) <= np.log(4)


def test_a_fixed_value_is_not_raised_for_implicit_steps():
    choice = Regularisation(1e-6)
    choice.prepare_implicit()
    assert choice.value == 1e-6
