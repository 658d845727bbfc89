import numpy as np
import pytest

from diracflow.training.regularisation import Regularisation


def settle(residual, enough=0.0, steps=60):
    """Let a choice follow a known residual curve."""
    choice = Regularisation(None)
    for _ in range(steps):
        choice.choose(residual(choice.spread()), enough)
    return choice.value


def test_goes_to_the_smallest_fresh_residual():
    for best in (1e-7, 1e-4):
        found = settle(lambda v, best=best: 1e-3 * (1 + np.log(v / best) ** 2))
        # Values are a factor of four apart.
        assert abs(np.log(found / best)) <= np.log(4)


def test_takes_the_largest_that_is_good_enough():
    # The residual falls with the value; 1e-6 is as much as is needed.
    found = settle(lambda v: v**0.5, enough=1e-3)
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
    assert choice.spread() == np.array([value])
    assert choice.choose(np.array([0.5]), 1.0) == 0.5
    assert choice.value == value


def test_residuals_that_are_not_finite_teach_nothing():
    choice = Regularisation(None)
    choice.choose(np.array([0.1, np.nan, 0.2]), 1.0)
    assert choice.value == Regularisation(None).value


@pytest.mark.parametrize("best", [1e-3, 1e-6])
def test_implicit_steps_judge_the_strength_in_force(best):
    choice = Regularisation(None)
    for _ in range(60):
        choice.settle()
        assert choice.spread()[1] == choice.value == choice.strength
        choice.choose(1e-3 * (1 + np.log(choice.spread() / best) ** 2), 0.0)
    choice.settle()
    # Less than 1e-4 is not for implicit steps.
    assert abs(np.log(choice.strength / max(best, 1e-4))) <= np.log(4)


def test_a_fixed_value_is_not_settled():
    choice = Regularisation(1e-6)
    choice.settle()
    assert choice.value == 1e-6
