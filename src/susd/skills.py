"""SkillSpace: the prior p(z) over skills z = (z^1 .. z^N), one part of D dimensions per factor."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from susd.errors import UserError, shown

PRIORS = ("sphere", "factor_sphere", "factor_ball", "gaussian", "one_hot")
LARGEST, MOST_SKILLS = 10**6, 10**6  # parts or dimensions of a skill; skills that are drawn together
REST = 0.25  # share of the parts of a `factor_ball` skill that are zero


def _unit(vector: jax.Array) -> jax.Array:
    """The direction of a vector; for the zero vector the first axis, so that the result is always on the sphere."""
    length = jnp.linalg.norm(vector, axis=-1, keepdims=True)
    first = jnp.zeros_like(vector).at[..., 0].set(1.0)
    return jnp.where(length > 1e-8, vector / jnp.maximum(length, 1e-8), first)


@dataclass(frozen=True)
class SkillSpace:
    """Skills of `parts` x `dim` dimensions, flattened to one vector.

    `sphere`: the whole vector has unit length; `factor_sphere`: every part has unit length; `factor_ball`: every part is
    uniform in the unit ball, or zero with probability REST; `gaussian`: standard normal; `one_hot`: every part is one of
    `dim` discrete skills.
    """

    prior: str
    parts: int
    dim: int
    names: tuple[str, ...] = ()  # of the parts: those of their factors, or `all` for one part of the whole state

    def __post_init__(self) -> None:
        if not isinstance(self.prior, str) or self.prior not in PRIORS:
            raise UserError(f"skill prior {shown(self.prior)} is unknown; choose one of {', '.join(PRIORS)}")
        for what, value in (("parts", self.parts), ("dim", self.dim)):
            if type(value) is not int or not 1 <= value <= LARGEST:
                raise UserError(f"{what} of a skill is {shown(value)}; it must be an integer from 1 to {LARGEST}")
        if self.discrete and self.dim < 2:
            raise UserError(f"a one-hot skill needs at least 2 values, not {self.dim}")
        if not isinstance(self.names, tuple) or not all(isinstance(name, str) for name in self.names):
            raise UserError(f"the names of a skill's parts are {shown(self.names)}; they must be a tuple of text")
        if self.names and len(self.names) != self.parts:
            raise UserError(f"a skill has {self.parts} parts, but {len(self.names)} names: {', '.join(self.names)}")

    @property
    def discrete(self) -> bool:
        """Whether every part is a discrete skill."""
        return self.prior == "one_hot"

    @property
    def paced(self) -> bool:
        """Whether the length of a part is how fast its factor should move, and zero is rest."""
        return self.prior == "factor_ball"

    @property
    def size(self) -> int:
        """Length of the flat skill vector, N * D."""
        return self.parts * self.dim

    @property
    def input_scale(self) -> float:
        """The factor that gives every dimension of z unit variance, which suits small networks; a one-hot skill is kept."""
        ball = (self.dim + 2) / (1 - REST)  # a point in the ball has a mean square of D / (D + 2)
        inverse = {"sphere": self.size, "factor_sphere": self.dim, "factor_ball": ball, "gaussian": 1, "one_hot": 1}
        return float(inverse[self.prior]) ** 0.5

    def sample(self, key: jax.Array, count: int) -> jax.Array:
        """Sample `count` skills, [count, N * D]. Of D normal values each is the largest equally often."""
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= MOST_SKILLS:
            raise UserError(f"count is {shown(count)}; it must be an integer from 0 to {MOST_SKILLS}")
        drawn = jax.random.normal(key, (count, self.size))
        if not self.paced:
            return self.project(drawn)
        k_rest, k_length = jax.random.split(jax.random.fold_in(key, 1))
        shape = (count, self.parts, 1)
        length = jax.random.uniform(k_length, shape) ** (1 / self.dim) * jax.random.bernoulli(k_rest, 1 - REST, shape)
        return (length * _unit(self.split(drawn))).reshape(drawn.shape)

    def project(self, vector: jax.Array) -> jax.Array:
        """The nearest skill, for high-level actions and user input. A discrete skill is that of the largest entry."""
        if self.prior == "sphere":
            return _unit(vector)
        if self.prior == "factor_sphere":
            parts = vector.reshape(*vector.shape[:-1], self.parts, self.dim)
            return _unit(parts).reshape(vector.shape)
        if self.paced:  # longer parts are brought to unit length, shorter ones are kept
            parts = self.split(vector)
            return (parts / jnp.maximum(jnp.linalg.norm(parts, axis=-1, keepdims=True), 1.0)).reshape(vector.shape)
        if self.discrete:
            index = jnp.argmax(self.split(vector), axis=-1)
            return jax.nn.one_hot(index, self.dim, dtype=vector.dtype).reshape(vector.shape)
        return vector

    def split(self, skill: jax.Array) -> jax.Array:
        """[..., N * D] to [..., N, D]."""
        return skill.reshape(*skill.shape[:-1], self.parts, self.dim)

    def direction(self, skill: jax.Array) -> jax.Array:
        """The direction in which each part rewards its embedding to move, [..., N, D]: z^i itself.

        For a paced skill it is z^i at unit length, or zero at rest: how fast is a matter of the policy, not of phi.
        For the discrete skill k it is the zero-mean vector that gives delta[k] - 1/(D-1) sum_{j != k} delta[j], so that
        moving all coordinates together has no reward (Appendix F of the paper, whose divisor is a misprint).
        """
        parts = self.split(skill)
        if self.paced:
            return parts / jnp.maximum(jnp.linalg.norm(parts, axis=-1, keepdims=True), 1e-8)
        return (self.dim * parts - 1.0) / (self.dim - 1) if self.discrete else parts

    def towards(self, steps: jax.Array) -> jax.Array:
        """The skill [..., N * D] that moves every embedding along `steps`, [..., N, D], in units of one time step.

        Longer vectors are brought to full length, shorter ones are kept, so that a factor that is almost there slows down.
        A discrete skill has no length: it is the one that points there best.
        """
        if self.discrete:
            return self.project(steps.reshape(*steps.shape[:-2], self.size))
        parts = steps / jnp.maximum(jnp.linalg.norm(steps, axis=-1, keepdims=True), 1.0)
        full = {"sphere": self.parts**-0.5, "gaussian": self.dim**0.5}.get(self.prior, 1.0)
        return (full * parts).reshape(*steps.shape[:-2], self.size)

    def vary(self, key: jax.Array, skill: jax.Array, part: jax.Array | int) -> jax.Array:
        """Resample one part of each skill and keep all others exactly; the result is a skill of the space."""
        old = self.split(skill)
        new = self.split(jax.random.normal(key, skill.shape))
        if self.discrete:
            new = self.split(self.project(new.reshape(skill.shape)))
        elif self.paced:
            new = self.split(self.sample(key, skill[..., 0].size)).reshape(old.shape)
        elif self.prior != "gaussian":  # a new direction with the old length stays on the sphere
            new = _unit(new) * jnp.linalg.norm(old, axis=-1, keepdims=True)
        chosen = jnp.arange(self.parts)[:, None] == part
        return jnp.where(chosen, new, old).reshape(skill.shape)
