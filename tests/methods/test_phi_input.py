"""Own dimensions: what every method sees, the parts of its skill, and what it ignores."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from reference import fast, random_like, random_transitions
from susd.config import configure
from susd.envs.base import EnvSpec, own_dimensions
from susd.errors import UserError
from susd.factors import Factorization
from susd.methods.base import Method
from susd.methods.registry import build_method
from susd.methods.susd import Params

FACTORS = Factorization.from_mapping({"hand": [0, 4], "cup": [5, 1, 2], "table": [3]}, 6)
OWN = {"cup": (5, 2), "hand": (4,)}  # the table has nothing that moves; the order is that of the factors
SPEC = EnvSpec("desk", 6, 2, 10, FACTORS, (), {}, own=OWN)
SEEN = [4, 5, 2]
KEY = jax.random.key(0)
NAMES = ("susd", "susd-wf", "susd-paced", "susd-discrete", "metra", "lsd", "csd", "diayn", "diayn-discrete", "dusdi")
TINY = {"hidden": 4, "phi_hidden": 5, "phi_input": "own"}


def built(name: str, **changes: Any) -> Method:
    return build_method(configure("desk", **{"method": name, **TINY, **changes}), SPEC)


@pytest.mark.parametrize("name", NAMES)
def test_only_own_dimensions_are_seen(name: str) -> None:
    method = built(name)
    params, batch = random_like(method.init), random_transitions(method.skills, 6)

    def learn(batch: Any) -> Any:
        gradient, (_, before, _) = jax.grad(method.loss, has_aux=True)(params, method.init_stats(params), batch, KEY)
        return gradient, method.reward(params, before, batch).total, method.encode(params, batch.next_obs)

    compiled = fast(learn)
    gradient, reward, code = compiled(batch)
    hidden = [index for index in range(6) if index not in SEEN]
    other = np.array(batch.next_obs)
    other[:, hidden] += 1.0
    changed = compiled(batch._replace(next_obs=other))
    for one, same in zip(jax.tree.leaves((gradient, reward, code)), jax.tree.leaves(changed), strict=True):
        np.testing.assert_array_equal(one, same)
    for index in SEEN:
        other = np.array(batch.next_obs)
        other[:, index] += 1.0
        assert np.abs(np.asarray(compiled(batch._replace(next_obs=other))[1]) - reward).max() > 1e-3


@pytest.mark.parametrize("name", ["susd", "dusdi", "susd-paced"])
def test_factors_without_own_dimensions_have_no_part(name: str) -> None:
    method = built(name)
    assert (method.skills.parts, method.skills.names) == (2, ("hand", "cup"))
    assert built(name, phi_input="factor").skills.names == ("hand", "cup", "table")


def test_chosen_factors_have_a_part() -> None:
    """phi, the curiosity weight and the skill have the factors that are named, in the order of the environment."""
    method = built("susd", phi_input="factor", skill_factors="table,hand")
    assert method.skills.names == ("hand", "table")
    params, obs = random_like(method.init), random_transitions(method.skills, 6).obs
    code = np.asarray(method.encode(params, obs))
    for index in range(6):
        other = np.array(obs)
        other[:, index] += 1.0
        changed = np.abs(np.asarray(method.encode(params, other)) - code).max() > 1e-4
        assert changed == (index in FACTORS.indices[0] + FACTORS.indices[2])
    assert built("susd", skill_factors="cup").skills.names == ("cup",)
    with pytest.raises(UserError, match="--skill-factors is 'table'; choose among hand, cup, each once"):
        built("susd", skill_factors="table")  # it has nothing of its own


def test_one_part_of_everything() -> None:
    for name in ("metra", "lsd", "csd", "diayn"):
        assert built(name).skills.names == ("all",)
    state = built("susd-wf", skill_dim=3)
    assert (state.skills.parts, state.skills.dim, state.skills.names) == (1, 6, ("all",))  # D for each factor that moves


def test_density_model_sees_everything() -> None:
    """It predicts the changes of own dimensions from the whole state, so that a hidden hand explains a moving cup."""
    params = jax.eval_shape(built("susd").init, KEY)
    assert isinstance(params, Params)
    assert params.density is not None
    assert params.density.nets.weights[0].shape[-2] == 6
    assert params.density.nets.weights[-1].shape[-1] == 3
    assert params.phi.indices == ((0,), (1, 2))


def test_environments_without_own_dimensions() -> None:
    with pytest.raises(UserError, match="--phi-input is 'own', but desk declares no own dimensions; choose factor, or set"):
        build_method(configure("desk", **TINY), dataclasses.replace(SPEC, own=None))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"lid": (1,)}, "own dimensions of 'lid': desk has the factors hand, cup, table"),
        ({"cup": (5, 0)}, "own dimensions of 'cup': index 0 is not one of the factor's"),
        ({"cup": ()}, r"own dimensions of 'cup' are \[\]; name at least one"),
        ({"cup": (5, 5)}, r"own dimensions of 'cup' are \[5, 5\]; name at least one, and each once"),
    ],
)
def test_invalid_declarations(own: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(SPEC, own=own)


def test_own_dimensions_of_other_factors() -> None:
    assert own_dimensions(FACTORS, [2, 4, 5]) == {"hand": (4,), "cup": (5, 2)}
    coarse = Factorization.from_mapping({"left": [0, 1, 2], "right": [3, 4, 5]}, 6)
    assert own_dimensions(coarse, [2, 4, 5]) == {"left": (2,), "right": (4, 5)}
    assert own_dimensions(Factorization.from_boundaries((0, 3, 6), ("a", "b")), [0]) == {"a": (0,)}
