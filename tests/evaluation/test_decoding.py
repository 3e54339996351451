"""Decoding of codes whose content is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.two_points import TwoPoints
from susd.envs.gunner import Gunner
from susd.envs.multi_particle import MultiParticle
from susd.errors import UserError
from susd.evaluation import decoding
from susd.factors import Factorization

FACTORS = Factorization.from_mapping({"seen": [0, 2], "hidden": [1, 3, 4]}, 5)


def data(num_envs: int = 40, steps: int = 50) -> np.ndarray:
    """Random states [W, T, S]; the hidden factor has variance 4."""
    return np.random.default_rng(0).normal(size=(num_envs, steps, 5)) * np.array([1.0, 2.0, 1.0, 2.0, 2.0])


@pytest.mark.slow
def test_only_factors_in_the_code_are_decoded() -> None:
    obs = data()
    code = obs[..., [0, 2]] @ np.array([[3.0, 1.0], [-1.0, 2.0]]) + 7.0  # a linear code of the first factor alone
    result = decoding.decode(code, obs, FACTORS, (4, 24), seed=0, epochs=1500)
    assert result["per_factor"]["seen"] < 0.05
    assert result["per_factor"]["hidden"] == pytest.approx(4.0, rel=0.2)  # its variance, the best that is possible
    assert result["error"] == pytest.approx(
        sum(result["per_factor"].values()) / 2
    )  # factors count the same, not dimensions
    assert result["error_of_the_mean"] == pytest.approx((1.0 + 4.0) / 2, rel=0.1)
    assert result["hidden"] == 24
    assert result["validation"]["24"] < result["validation"]["4"]
    assert (result["inputs"], result["states"]) == (2, 2000)


def test_split_by_trajectory() -> None:
    trajectories = np.arange(20)
    code = np.broadcast_to(trajectories[:, None, None], (20, 3, 1)).astype(float)
    shares = decoding.split(code, code, seed=0)
    found = [set(np.asarray(share.obs).ravel().astype(int).tolist()) for share in shares]
    assert [len(f) for f in found] == [16, 2, 2]
    assert set.union(*found) == set(trajectories.tolist())
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]
    train = np.asarray(shares[0].code)
    assert train.mean() == pytest.approx(0.0, abs=1e-5)
    assert train.std() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.slow
def test_widths_are_trained_independently() -> None:
    obs = data(10, 20).astype(np.float32)
    train = decoding.Split(jnp.asarray(obs.reshape(-1, 5)[:, :2]), jnp.asarray(obs.reshape(-1, 5)))
    key = jax.random.key(1)
    run = jax.jit(lambda sizes: decoding.train_decoders(train, sizes, key, 3, batch=50)(train.code), static_argnums=0)
    np.testing.assert_allclose(run((3, 8))[0], run((3,))[0], atol=1e-5)


def test_facts_and_tables() -> None:
    result = {"phi": decoding.decode(data()[..., :2], data(), FACTORS, (4,), seed=0, epochs=1)}
    facts = {(subject, metric): (step, value) for subject, step, metric, value in decoding.facts(result)}
    assert facts["phi", "error"] == (2000, result["phi"]["error"])
    assert facts["phi>hidden", "factor_error"] == (2000, result["phi"]["per_factor"]["hidden"])
    assert facts["phi", "inputs"] == (2000, 2)
    (table,) = decoding.tables({"results": [{"seed": 3, "epoch": 1, **result}]})
    assert table.columns == ("read from", "dimensions", "hidden", "error", "of the mean", "seen", "hidden")
    assert table.rows[0][:3] == ("phi", "2", "4")


def test_ten_trajectories_are_needed() -> None:
    with pytest.raises(UserError, match="--steps is 1800; decoding needs at least 2000, ten trajectories to split"):
        decoding.check_steps(1800)
    decoding.check_steps(2000)


def test_explained_variance_does_not_depend_on_scale() -> None:
    """The seen factor is exact, the hidden one no better than its mean; a constant dimension says nothing."""
    obs = data(200, 20) * 100.0
    obs[..., 4] = 5.0
    result = decoding.explained(obs[..., [0, 2]], obs, FACTORS, seed=0)
    assert result["per_factor"]["seen"] > 0.95
    assert result["per_factor"]["hidden"] == pytest.approx(0.0, abs=0.1)
    constant = np.array(obs)
    constant[..., [1, 3]] = 0.0
    assert set(decoding.explained(obs[..., [0, 2]], constant, FACTORS, seed=0, epochs=1)["per_factor"]) == {"seen"}


def test_common_states_are_the_same_for_all_runs() -> None:
    env = Gunner()
    uniform = decoding.uniform_states(env, 4000)
    assert uniform is not None
    low, high = env.bounds
    assert (uniform >= low - 1e-5).all()
    assert (uniform <= high + 1e-5).all()
    span = uniform.max(axis=(0, 1)) - uniform.min(axis=(0, 1))
    assert (span > 0.97 * (high - low)).all()  # the whole range of every dimension
    np.testing.assert_array_equal(uniform, decoding.uniform_states(Gunner(), 4000))
    one, other = (decoding.reference_states(MultiParticle(), 500) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (10, 50, 70)
    assert decoding.uniform_states(TwoPoints()) is None


def test_facts_of_explained_variance() -> None:
    shares = {"mean": 0.5, "per_factor": {"seen": 0.9, "hidden": 0.1}, "states": 7}
    result = {"phi": decoding.decode(data()[..., :2], data(), FACTORS, (4,), seed=0, epochs=1)}
    result["explained"] = {"uniform": {"phi": shares}}
    facts = {(subject, metric): (step, value) for subject, step, metric, value in decoding.facts(result)}
    assert facts["uniform>phi", "explained"] == (7, 0.5)
    assert facts["uniform>phi>seen", "factor_explained"] == (7, 0.9)
    tables = decoding.tables({"results": [{"seed": 3, "epoch": 1, **result}]})
    assert tables[1].rows == [("uniform", "phi", "50%", "90%", "10%")]
