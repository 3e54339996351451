"""A loaded run as all sessions share it: networks, compiled functions, and the slow computations of the page."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from susd.collect import rollout_skills
from susd.config import Config
from susd.envs.base import Environment, EnvSpec, HostEnvironment
from susd.envs.vector import is_functional
from susd.errors import UserError
from susd.evaluation.control import measured_factors
from susd.explorer.describe import layouts_of, shown_planes
from susd.explorer.messages import Sizes
from susd.explorer.own_tasks import NONE, OwnTasks
from susd.methods.registry import method as find_method
from susd.networks import Actor
from susd.skills import SkillSpace
from susd.training.agent import Agent
from susd.training.goals import GoalSpace
from susd.training.trainer import build_env, subkey
from susd.types import Transition

SHOWN = 48  # skills of the gallery
LONGEST_PATH = 200  # steps of a trajectory in the gallery
PARALLEL = 16  # host environments that run together
REDRAWN, AHEAD = 32, 10  # influence: how many skills are compared, for how many steps; in a host environment PARALLEL


class Inputs(NamedTuple):
    """What decides an action besides the observation; all shapes are fixed, so that it is compiled once."""

    skill: Any  # [N * D]
    towards: Any  # [N] parts that a goal replaces
    goal: Any  # [N, D] in the space of phi
    sampled: Any  # []
    raw: Any  # [A]
    is_raw: Any  # []


class Weights(NamedTuple):
    """All that was learned, and the scale of goals."""

    actor: Actor
    params: Any
    goals: GoalSpace


class Model:
    """One run. Its methods may be called from any thread."""

    def __init__(self, agent: Agent, path: Path | None = None, own_tasks: OwnTasks = NONE) -> None:
        self.agent = agent
        self.path = path
        self.own_tasks = own_tasks
        self.config: Config = agent.trainer.config
        self.method = agent.trainer.learner.method
        self.space: SkillSpace = self.method.skills
        self.spec: EnvSpec = agent.trainer.env.spec
        self.embeds = not find_method(self.config.method).without_goals
        self.stopped = False  # set when the program ends: rollouts in host environments end, too
        self._lock, self._host_lock = threading.Lock(), threading.Lock()
        self._goals: GoalSpace | None = None
        parts, dim = self.space.parts, self.space.dim
        idle = GoalSpace(jnp.zeros((parts, dim)), jnp.ones((parts, dim)), jnp.ones(parts))
        self.weights = Weights(agent.actor, agent.params, idle)  # with a placeholder while no goal was asked for

    @property
    def sizes(self) -> Sizes:
        """Of the vectors in requests."""
        return Sizes(self.space.parts, self.space.dim, self.spec.action_size)

    def goals(self) -> GoalSpace:
        """The box of phi and the length of its steps; measured once.

        In a host environment, where steps take time, from the skills of the gallery.
        """
        with self._lock:
            if self._goals is None:
                agent = self.agent
                if self.functional:
                    self._goals = GoalSpace.measure(agent.trainer, agent.trainer.env, agent.actor, agent.params)
                else:
                    self._goals = GoalSpace.of_states(self.method, agent.params, self._sampled(0, 0))
                self.weights = self.weights._replace(goals=self._goals)
            return self._goals

    # --- environments -------------------------------------------------------------------------------------------------

    def environment(self, layout: str = "") -> Environment | HostEnvironment:
        """A new environment for one session, in the given layout."""
        options = dict(self.config.env_options)
        if layout:
            entry = layouts_of(self.config)
            if entry is None:
                raise UserError(f"the layout is {layout!r}, but {self.spec.name} has no layouts")
            options |= entry.layout_options(layout)
        return build_env(dataclasses.replace(self.config, env_options=options, episodes=1))

    @cached_property
    def _parallel(self) -> Environment | HostEnvironment:
        """The environment in which many skills run; whoever steps a host environment holds `_host_lock`."""
        env = self.agent.trainer.env
        return env if self.functional else build_env(dataclasses.replace(self.config, episodes=PARALLEL))

    @property
    def functional(self) -> bool:
        """Whether the environment is pure JAX."""
        return is_functional(self.agent.trainer.env)

    @lru_cache(maxsize=32)  # noqa: B019 (models live as long as the program)
    def starter(self, layout: str) -> Callable[[int], Any]:
        """From a seed to the first state of a functional environment in a layout, compiled."""
        env = self.environment(layout)
        assert is_functional(env)
        reset = jax.jit(env.reset)
        return lambda seed: reset(jax.random.key(seed))

    # --- one step -----------------------------------------------------------------------------------------------------

    def _decide(self, weights: Weights, obs: jax.Array, inputs: Inputs, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The action [A] and the skill [N * D] that acts."""
        skill = self.space.project(inputs.skill)
        if self.embeds:
            phi = self.method.encode(weights.params, obs[None])[0]
            there = weights.goals.skill(self.space, phi, inputs.goal)
            skill = jnp.where(jnp.repeat(inputs.towards, self.space.dim), there, skill)
        x = self.agent.trainer.learner.policy_input(obs[None], skill[None])
        action = jnp.where(inputs.sampled, weights.actor.sample(x, key)[0], weights.actor.mode(x)[0])
        return jnp.where(inputs.is_raw, inputs.raw, action), skill

    @cached_property
    def decide(self) -> Callable[..., tuple[jax.Array, jax.Array]]:
        """`_decide` compiled, with the key of an episode and the time."""
        return jax.jit(
            lambda weights, obs, inputs, key, time: self._decide(weights, obs, inputs, jax.random.fold_in(key, time))
        )

    @cached_property
    def encode(self) -> Callable[[Any], np.ndarray]:
        """phi of observations [B, S], compiled for each B."""
        encode = jax.jit(self.method.encode)
        return lambda obs: np.asarray(encode(self.agent.params, jnp.asarray(obs, jnp.float32)))

    def stepper(self, task: Any) -> Callable[..., Any]:
        """One compiled step of a functional environment, or of a task in it: all that a frame needs in one call."""
        env: Any = self.agent.trainer.env

        def step(
            weights: Weights, state: Any, obs: jax.Array, inputs: Inputs, key: jax.Array, time: int
        ) -> tuple[Any, ...]:
            k_policy, k_env = jax.random.split(jax.random.fold_in(key, time))
            action, skill = self._decide(weights, obs, inputs, k_policy)
            if task is None:
                state = env.step(state, action, k_env)
                reached, reward, extra = env.observe(state), jnp.zeros(()), jnp.zeros(0)
            else:
                state, rewards = task.step_parts(state, action, k_env)
                reached, reward, extra = task.observe(state), rewards[0], task.extra(state)
            phi = self.method.encode(weights.params, reached[None])[0] if self.embeds else skill
            return state, reached, action, skill, phi, reward, extra

        return jax.jit(step)

    # --- what else moved? ---------------------------------------------------------------------------------------------

    def influence(self, state: Any, skill: np.ndarray, part: int, seed: int, layout: str) -> list[float]:
        """What redrawing one part of a skill changes in every factor, as a share of what another skill changes.

        From a state of a functional environment; in a host environment, whose state cannot be copied, from its start.
        """
        key = jax.random.key(0)  # the same skills every time: the bars move because the state or the skill does
        count = REDRAWN if self.functional else PARALLEL
        base = jnp.broadcast_to(self.space.project(jnp.asarray(skill)), (count, self.space.size))
        if self.functional:
            return _rounded(self._influence(self.weights, state, base, part, key))
        k_vary, k_other = jax.random.split(key)
        choices = (base, self.space.vary(k_vary, base, part), self.space.sample(k_other, count))
        reference, varied, other = (_path(self._host_rollout(skills, seed, AHEAD)) for skills in choices)
        return _rounded(self._shares(varied, other, reference))

    @cached_property
    def _influence(self) -> Callable[..., jax.Array]:
        env: Any = self.agent.trainer.env

        def influence(weights: Weights, state: Any, base: jax.Array, part: jax.Array, key: jax.Array) -> jax.Array:
            k_vary, k_other = jax.random.split(key)
            skills = jnp.concatenate([base[:1], self.space.vary(k_vary, base, part), self.space.sample(k_other, REDRAWN)])
            paths = self._paths(env, weights, state, skills, AHEAD)[1:]
            return self._shares(paths[:, 1 : REDRAWN + 1], paths[:, REDRAWN + 1 :], paths[:, :1])

        return jax.jit(influence)

    def _shares(self, varied: Any, other: Any, reference: Any) -> jax.Array:
        """[N] mean distances of trajectories [T, B, S], as in the control matrix; factors with nothing own change by 0."""
        spec = self.spec
        names, membership = measured_factors(spec.factorization, spec.own)

        def distance(paths: Any) -> jax.Array:
            return jnp.sqrt((jnp.asarray(paths) - reference) ** 2 @ membership.T).mean(axis=(0, 1))

        whole = distance(other)
        shares = jnp.where(whole > 1e-5, distance(varied) / jnp.maximum(whole, 1e-5), 0.0)
        return jnp.stack([shares[names.index(n)] if n in names else jnp.zeros(()) for n in spec.factorization.names])

    def _paths(self, env: Any, weights: Weights, state: Any, skills: jax.Array, steps: int) -> jax.Array:
        """Observations [T + 1, B, S] of skills from one state, with mean actions."""
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(skills), *x.shape)), state)
        observe = jax.vmap(env.observe)

        def one(carry: tuple[Any, jax.Array], key: jax.Array) -> tuple[tuple[Any, jax.Array], jax.Array]:
            states, obs = carry
            action = weights.actor.mode(self.agent.trainer.learner.policy_input(obs, skills))
            states = jax.vmap(env.step)(states, action, jax.random.split(key, len(skills)))
            reached = observe(states)
            return (states, reached), reached

        first = observe(states)
        _, rest = jax.lax.scan(one, (states, first), jax.random.split(jax.random.key(0), steps))
        return jnp.concatenate([first[None], rest])

    def _host_rollout(self, skills: Any, seed: int, steps: int) -> Transition:
        """The same in a host environment, from its start; for parallel environments whose starts differ by the seed."""
        policy = self.agent.trainer.policy(self.agent.actor, sampled=False)
        with self._host_lock:
            return rollout_skills(self._parallel, policy, skills, steps, jax.random.key(seed), self._check)

    def _check(self, _: HostEnvironment) -> None:
        """Called before every step of a rollout."""
        if self.stopped:
            raise UserError("the program ends")

    # --- the gallery and the maps -------------------------------------------------------------------------------------

    def gallery(self, seed: int, layout: str, start: int = 0) -> dict[str, Any]:
        """Trajectories of random skills from the start, in the planes of the environment and in phi."""
        skills = self._gallery_skills(seed)
        if self.functional:
            obs = np.asarray(self._gallery_paths(self.weights, self.starter(layout)(start), skills))
        else:
            with self._lock:
                obs = _path(self._sampled(seed, start))
        raw = self.spec.raw(obs)
        time = np.broadcast_to(np.arange(len(raw))[:, None], raw.shape[:2])
        paths = [np.stack([raw[..., p.x], time if p.is_line else raw[..., p.y]], axis=-1) for p in shown_planes(self.spec)]
        return {
            "type": "gallery",
            "skills": _rounded(skills),
            "paths": _rounded(np.stack(paths).transpose(2, 0, 1, 3) if paths else np.zeros((SHOWN, 0, 0, 2))),
            "phi": self._phi_paths(obs),
        }

    def _gallery_skills(self, seed: int) -> jax.Array:
        return self.space.sample(subkey(jax.random.key(seed), "gallery"), SHOWN)

    @lru_cache(maxsize=8)  # noqa: B019 (as above)
    def _sampled(self, seed: int, start: int) -> Transition:
        """What the skills of the gallery do in a host environment; whoever asks holds `_lock`, so that it is done once."""
        return self._host_rollout(self._gallery_skills(seed), start, min(self.spec.horizon, LONGEST_PATH))

    @cached_property
    def _gallery_paths(self) -> Callable[..., jax.Array]:
        steps, env = min(self.spec.horizon, LONGEST_PATH), self.agent.trainer.env
        return jax.jit(lambda weights, state, skills: self._paths(env, weights, state, skills, steps))

    def _phi_paths(self, obs: np.ndarray) -> list[Any] | None:
        """[48][parts][T + 1][2] the first two dimensions of phi, or its value and the time."""
        if not self.embeds:
            return None
        times, count = obs.shape[:2]
        phi = self.encode(obs.reshape(-1, obs.shape[-1])).reshape(times, count, self.space.parts, self.space.dim)
        if self.space.dim == 1:
            clock = np.broadcast_to(np.arange(times, dtype=np.float32)[:, None, None, None], phi.shape)
            phi = np.concatenate([phi, clock], axis=-1)
        return _rounded(phi[..., :2].transpose(1, 2, 0, 3))

    def maps(self) -> dict[str, Any]:
        """The box of phi that skills reach, for every part."""
        if not self.embeds:
            return {"type": "maps", "parts": [None] * self.space.parts}
        goals = self.goals()
        centre, half = np.asarray(goals.centre), np.asarray(goals.half)
        boxes = zip(_rounded(centre - half), _rounded(centre + half), strict=True)
        return {"type": "maps", "parts": [{"low": low, "high": high} for low, high in boxes]}


def _path(seen: Transition) -> np.ndarray:
    """[T + 1, B, S] the observations of trajectories."""
    return np.concatenate([np.asarray(seen.obs)[:1], np.asarray(seen.next_obs)])


def _rounded(values: Any) -> list[Any]:
    """As lists of numbers with five significant digits or so: what a page can show."""
    array = np.asarray(values, np.float64)
    return np.round(array, 4).tolist()
