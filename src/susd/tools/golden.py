"""Replay recordings of the original environments: whole episodes from reset, compared with everything recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.gunner import LIMIT, STARTS, Gunner
from susd.envs.multi_particle import AGENTS, MultiParticle
from susd.errors import UserError
from susd.runs.npz import read_npz
from susd.tasks import make_task
from susd.tasks.base import SKILL_STEPS
from susd.tasks.multi_particle import REDRAW

TOLERANCE = 1e-5  # on observations and continuous state, over a whole episode
ROUNDING = 1e-6  # rewards are equal up to the rounding of a float32 such as -0.3
LARGEST, EPISODES = 1e9, 1000  # of all recorded values, and of a file
AGREEMENT = 0.95  # share of steps, for each flag of the Kitchen: another version of MuJoCo shifts some contacts by a step

Shape = tuple[str | int, ...]  # E episodes, T steps, H high-level actions, D observation, A action, N agents of a task
Arrays = dict[str, np.ndarray]
Pair = tuple[np.ndarray, np.ndarray]  # ours and recorded


@dataclass(frozen=True, eq=False)
class Recording(ABC):
    """What is recorded: an environment, perhaps a task, and whether observations are in the original's raw order."""

    env: Any
    task: str | None = None
    task_arrays: Mapping[str, Shape] = field(default_factory=dict)  # recorded in addition for this task
    raw_order: bool = False
    state_arrays: Mapping[str, Shape] = field(default_factory=dict)  # the hidden state
    smallest_seed: float = -np.inf

    @abstractmethod
    def start(self, seed: int) -> Any:
        """The state after a reset with a recorded seed."""

    def scale(self, actions: np.ndarray) -> np.ndarray:
        """The recorded actions as `move` takes them."""
        return actions

    def move(self, state: Any, action: jax.Array, key: jax.Array) -> Any:
        """One step."""
        return self.env.step(state, action, key)

    @abstractmethod
    def state_pairs(self, ours: Arrays, data: Arrays) -> tuple[list[Pair], list[Pair]]:
        """Continuous and discrete parts of the hidden state, ours and recorded."""


@dataclass(frozen=True, eq=False)
class GunnerRecording(Recording):
    """2D-Gunner, whose recorded actions are increments in arena units and radians."""

    env: Gunner = field(default_factory=Gunner)
    state_arrays: Mapping[str, Shape] = field(default_factory=lambda: {"state": ("E", "T+1", 11)})

    def start(self, seed: int) -> Any:
        """The seed is the name of a start position; others start in the centre."""
        return replace(self.env, start=str(seed) if str(seed) in STARTS else "centre").reset(jax.random.key(0))

    def move(self, state: Any, action: jax.Array, key: jax.Array) -> Any:
        """Without scaling and clipping."""
        return self.env.apply(state, action)

    def state_pairs(self, ours: Arrays, data: Arrays) -> tuple[list[Pair], list[Pair]]:
        """Agent, picker, grip and view; ammo and the clock."""
        hidden = np.concatenate([ours["agent"], ours["picker"], ours["grip"][..., None], ours["view"][..., None]], axis=-1)
        clock = ours.get("steps", _clock(data))
        discrete = [(ours["ammo"], data["state"][..., 6:10]), (clock, data["state"][..., 10])]
        return [(hidden, data["state"][..., :6])], discrete


@dataclass(frozen=True, eq=False)
class ParticleRecording(Recording):
    """Multi-Particle, whose five action slots per agent, if any, are recorded in [0, 1]."""

    env: MultiParticle = field(default_factory=MultiParticle)
    state_arrays: Mapping[str, Shape] = field(
        default_factory=lambda: {
            "agent_pos": ("E", "T+1", AGENTS, 2),
            "agent_vel": ("E", "T+1", AGENTS, 2),
            "station_pos": ("E", AGENTS, 2),
        }
    )
    smallest_seed: float = 0

    def start(self, seed: int) -> Any:
        """The seed is that of the layout."""
        return replace(self.env, layout_seed=seed).reset(jax.random.key(0))

    def scale(self, actions: np.ndarray) -> np.ndarray:
        """Slots are mapped to [-1, 1]."""
        return 2.0 * actions - 1.0 if self.env.actions == "five" else actions

    def state_pairs(self, ours: Arrays, data: Arrays) -> tuple[list[Pair], list[Pair]]:
        """Positions and velocities of the agents, positions of the stations."""
        station = np.repeat(data["station_pos"][:, None], ours["station"].shape[1], axis=1)
        agents = [(ours["position"], data["agent_pos"]), (ours["velocity"], data["agent_vel"])]
        return [*agents, (ours["station"], station)], []


_SEQUENTIAL: dict[str, Shape] = {
    "agents": ("N",),
    "target": ("E", "T+1", AGENTS),
    "progress": ("E", "T+1"),
    "charge": ("E", "T+1"),
}
_FOOD_POISON: dict[str, Shape] = {
    "agents": ("N",),
    "indicator": ("E", "T+1", AGENTS),
    "reward_vec": ("E", "T", AGENTS),
}
RECORDINGS: dict[str, Recording] = {
    "gunner": GunnerRecording(),
    "gunner_overrange": GunnerRecording(),
    "gunner_lim": GunnerRecording(task="gunner-lim", raw_order=True),
    "gunner_nolim": GunnerRecording(task="gunner-unlim", raw_order=True),
    "multi_particle": ParticleRecording(),
    "multi_particle_raw50": ParticleRecording(MultiParticle(actions="five")),
    **{
        f"mp_seq_{level}": ParticleRecording(task=f"seq-{level}", task_arrays=_SEQUENTIAL)
        for level in ("easy", "medium", "hard")
    },
    **{
        f"mp_fp_{level}": ParticleRecording(task=f"fp-{level}", task_arrays=_FOOD_POISON)
        for level in ("easy", "medium", "hard", "difficult")
    },
}
_FULL = {f"multi_particle_{kind.removeprefix('mp_')}": kind for kind in RECORDINGS if kind.startswith("mp_")}
_NAMES = {**{kind: kind for kind in RECORDINGS}, **_FULL, "gunner_unlim": "gunner_nolim", "kitchen": "kitchen"}
_SHORT = {kind.partition("_")[2]: kind for kind in RECORDINGS if kind.startswith("mp_")}
_SHORT |= {"lim": "gunner_lim", "nolim": "gunner_nolim", "unlim": "gunner_nolim"}


def recording_name(name: str) -> str:
    """The kind of recording that the name of a file or task contains: the longest known name in it."""
    plain = name.lower().replace("-", "_")
    if plain in _SHORT:
        return _SHORT[plain]
    inside = [known for known in _NAMES if known in plain]
    if not inside:
        raise UserError(f"{name!r} names no known recording; use one of: {', '.join(RECORDINGS)}, kitchen")
    return _NAMES[max(inside, key=len)]


def verify(path: str | Path, as_name: str | None = None) -> dict[str, Any]:
    """Replay every episode of a recording; the result has the largest error and the number of mismatches."""
    path = Path(path)
    name = recording_name(path.stem if as_name is None else as_name)
    if name == "kitchen":
        return _verify_kitchen(path)
    kind = RECORDINGS[name]
    task: Any = None if kind.task is None else make_task(kind.task, env=kind.env)
    data = _load(path, kind, task)
    if "agents" in kind.task_arrays:
        task = replace(task, agents=tuple(data["agents"].astype(int).tolist()))
    starts = [kind.start(int(seed)) for seed in data["reset_seed"].tolist()]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    coins = data.get("indicator", np.zeros((*data["obs"].shape[:2], 1)))
    actions, indicators = (jnp.asarray(array, jnp.float32) for array in (kind.scale(data["action"]), coins))
    ours = _rollout(kind, task, batch, actions, indicators)
    return {"name": name, "steps": int(data["reward"].size), **_compare(kind, data, jax.tree.map(np.asarray, ours))}


def agrees(result: dict[str, Any]) -> bool:
    """Whether a replay agrees with its recording."""
    if result["name"] == "kitchen":
        return min(result["flags"].values()) >= AGREEMENT
    return result["max_obs_error"] <= TOLERANCE and not result["reward_mismatches"] and not result["flag_mismatches"]


@partial(jax.jit, static_argnums=(0, 1))
def _rollout(kind: Recording, task: Any, starts: Any, actions: jax.Array, coins: jax.Array) -> dict[str, jax.Array]:
    """Everything a recording can hold, [E, T+1, ...] for states and [E, T, ...] for steps."""
    key = jax.random.key(0)  # only the food-poison indicators are random, and those are injected
    has_target, has_indicator = "target" in kind.task_arrays, "indicator" in kind.task_arrays

    def describe(state: Any) -> dict[str, jax.Array]:
        inner = state if task is None else state.env_state
        facts = {"obs": kind.env.observe(inner), **inner._asdict()}
        if task is not None:
            facts |= {"extra": task.extra(state), **{k: v for k, v in state._asdict().items() if k != "env_state"}}
        if has_target:
            facts["target"] = task.target(state)
        return facts

    def advance(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
        action, coin = inputs
        if task is None:
            state = kind.move(state, action, key)
            return state, {**describe(state), "reward": jnp.zeros(())}
        before, after = state, kind.move(state.env_state, action, key)
        state, reward = task.score(state, after, key)
        facts = {"reward": reward}
        if has_indicator:
            facts["reward_vec"] = task.verdicts(before.indicator, after)
            state = state._replace(indicator=jnp.where(state.steps % REDRAW == 0, coin, state.indicator))
        return state, {**describe(state), **facts}

    def episode(start: Any, moves: jax.Array, coin: jax.Array) -> dict[str, jax.Array]:
        state = start if task is None else task.begin(start, key)
        if has_indicator:
            state = state._replace(indicator=coin[0])
        first = describe(state)
        _, rest = jax.lax.scan(advance, state, (moves, coin[1:]))
        return {k: jnp.concatenate([first[k][None], v]) if k in first else v for k, v in rest.items()}

    return jax.vmap(episode)(starts, actions, coins)


def _compare(kind: Recording, data: Arrays, ours: Arrays) -> dict[str, Any]:
    """The three values of a replay's result."""
    episodes, length = data["reward"].shape
    order = data["perm"].astype(int) if kind.raw_order else np.arange(ours["obs"].shape[-1])
    obs = data["obs"][..., order]
    landmarks = list(kind.env.spec.landmarks.values())
    done = _clock(data)[:, 1:] >= LIMIT
    continuous, discrete = kind.state_pairs(ours, data)
    continuous.append((ours["obs"], obs))
    discrete += [(ours["obs"][..., landmarks], obs[..., landmarks]), (done, data["done"])]
    discrete += [(ours[k], data[k]) for k in ("target", "progress", "charge", "indicator") if k in kind.task_arrays]
    rewards: list[Pair] = [(ours[k], data[k]) for k in ("reward", "reward_vec") if k in ours]
    if kind.task is not None:
        count = length // SKILL_STEPS  # high-level actions
        seen = np.concatenate([ours["obs"], ours["extra"]], axis=-1)[:, : count * SKILL_STEPS + 1 : SKILL_STEPS]
        recorded = data["hl_obs"]
        continuous.append((seen, np.concatenate([recorded[..., order], recorded[..., len(order) :]], axis=-1)))
        blocks = ours["reward"][:, : count * SKILL_STEPS].reshape(episodes, count, SKILL_STEPS)
        rewards.append((blocks.mean(axis=-1), data["hl_reward"]))
        discrete.append((done[:, SKILL_STEPS - 1 :: SKILL_STEPS], data["hl_done"]))
    return {
        "max_obs_error": float(max(np.max(np.abs(a - b)) for a, b in continuous)),
        "reward_mismatches": int(sum(np.sum(~np.isclose(a, b, rtol=ROUNDING, atol=ROUNDING)) for a, b in rewards)),
        "flag_mismatches": int(sum(np.sum(a != b) for a, b in discrete)),
    }


def _clock(data: Arrays) -> np.ndarray:
    """[E, T+1] the number of steps since the reset."""
    episodes, length = data["reward"].shape
    return np.broadcast_to(np.arange(length + 1), (episodes, length + 1))


def _verify_kitchen(path: Path) -> dict[str, Any]:
    """All episodes in parallel and open loop from their first states: how often flags agree, and how far bodies diverge."""
    from susd.envs.kitchen import Kitchen
    from susd.envs.kitchen.observation import GRIP, TOUCHED

    shapes: dict[str, Shape] = {
        "action": ("E", "T", 4),
        "qpos": ("E", "T+1", 30),
        "qvel": ("E", "T+1", 27),
        "warm": ("E", "T+1", 27),
        "grip": ("E", "T+1", 2),
        "flags": ("E", "T+1", 4),
        "fixture_pos": ("E", 3, 3),
        "obs_raw": ("E", "T+1", 142),
    }
    found = _read(path, [f"{prefix}{key}" for prefix in ("", "random_") for key in shapes])  # the prefix is optional
    stored = {key.removeprefix("random_"): value for key, value in found.items()} | found
    data = _fit(path, stored, shapes, {})
    qpos, qvel, warm = (data[key][:, 0] for key in ("qpos", "qvel", "warm"))
    env = Kitchen(num_envs=len(data["action"]))
    held, before = data["obs_raw"][:, 0, GRIP : GRIP + 3], data["flags"][:, 0, 1:] > 0
    env.restore(qpos, qvel, warm, data["grip"][:, 0, 0], data["fixture_pos"], held=held, flags=before)
    states, flags = [], []
    touched = list(TOUCHED.values())
    for actions in data["action"].swapaxes(0, 1):
        env.advance(actions)
        assert env.facts is not None
        states.append(env.physics.qpos.copy())
        flags.append(np.concatenate([env.facts.flags, env.raw[:, touched] > 0], axis=1))
    recorded = np.concatenate([data["flags"], data["obs_raw"][..., touched]], axis=-1)[:, 1:].swapaxes(0, 1) > 0
    equal = np.stack(flags) == recorded
    names = ["button_on", "butter_in_pot", "meatball_in_pot", "pot_on_stove", *(f"{name}_touched" for name in TOUCHED)]
    error = np.stack(states) - data["qpos"][:, 1:].swapaxes(0, 1)
    return {
        "name": "kitchen",
        "steps": int(equal.shape[0] * equal.shape[1]),
        "flags": dict(zip(names, equal.mean(axis=(0, 1)).tolist(), strict=True)),
        "episodes_with_equal_final_flags": float(equal[-1, :, :4].all(axis=-1).mean()),
        "max_arm_error": float(np.abs(error[..., 1:7]).max()),
        **{
            f"max_{body}_error": float(np.linalg.norm(error[..., at : at + 3], axis=-1).max())
            for body, at in (("pot", 9), ("butter", 16), ("meatball", 23))
        },
    }


def _load(path: Path, kind: Recording, task: Any) -> Arrays:
    """The arrays of a recording as float64, with the shapes and values that its kind must have."""
    sizes = {"D": kind.env.spec.obs_size, "A": kind.env.spec.action_size}
    shapes = _shapes(kind, task)
    data = _fit(path, _read(path, shapes), shapes, sizes)
    if "perm" in data and sorted(data["perm"].tolist()) != list(range(sizes["D"])):
        raise UserError(f"{path}: 'perm' is not a permutation of the {sizes['D']} observation indices")
    if "agents" in data and not set(data["agents"].tolist()) <= set(range(AGENTS)):
        raise UserError(f"{path}: 'agents' holds {data['agents'].tolist()}; allowed are the agents 0 to {AGENTS - 1}")
    seeds = data["reset_seed"]
    if np.any(seeds != np.floor(seeds)) or np.any(seeds < kind.smallest_seed):  # and at most LARGEST
        allowed = "integers" if kind.smallest_seed < 0 else "integers from 0 up"
        raise UserError(f"{path}: 'reset_seed' holds {seeds.tolist()}; seeds must be {allowed}")
    return data


def _shapes(kind: Recording, task: Any) -> dict[str, Shape]:
    """Every array that a recording of this kind must hold."""
    shapes: dict[str, Shape] = {
        "action": ("E", "T", "A"),
        "obs": ("E", "T+1", "D"),
        "reward": ("E", "T"),
        "done": ("E", "T"),
        "reset_seed": ("E",),
        **kind.state_arrays,
    }
    if kind.raw_order:
        shapes["perm"] = ("D",)
    if task is not None:
        extended = kind.env.spec.obs_size + task.extra_size
        shapes |= {"hl_obs": ("E", "H+1", extended), "hl_reward": ("E", "H"), "hl_done": ("E", "H")}
    return {**shapes, **kind.task_arrays}


def _read(path: Path, names: Iterable[str]) -> Arrays:
    """The arrays of these names in a file."""
    if not path.is_file():
        raise UserError(f"recording {path} does not exist")
    return read_npz(path, names)


def _fit(path: Path, stored: Arrays, shapes: Mapping[str, Shape], sizes: dict[str, int]) -> Arrays:
    """The required arrays as float64, checked for their shapes."""
    data: Arrays = {}
    for key, axes in shapes.items():
        if key not in stored:
            raise UserError(f"{path}: the array {key!r} is missing")
        value = stored[key]
        for axis, found in zip(axes, value.shape, strict=False):  # the first arrays determine E and T
            if isinstance(axis, str):
                sizes.setdefault(axis, found)
        if "T" in sizes:
            sizes |= {"T+1": sizes["T"] + 1, "H": sizes["T"] // SKILL_STEPS, "H+1": sizes["T"] // SKILL_STEPS + 1}
        expected = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
        if value.ndim == len(axes) - 1 and axes[0] == "E":
            raise UserError(
                f"{path}: the array {key!r} has the shape {value.shape}; the first axis, of episodes, is missing"
            )
        if value.shape != expected:
            raise UserError(f"{path}: the array {key!r} has the shape {value.shape}, expected {expected} ({axes})")
        if 0 in value.shape[: 1 + (key == "action")]:
            raise UserError(f"{path}: the array {key!r} has the shape {value.shape}; it is empty")
        if axes[0] == "E" and len(value) > EPISODES:
            raise UserError(f"{path}: the array {key!r} has {len(value)} episodes; at most {EPISODES} are replayed")
        data[key] = value.astype(np.float64)
        if not np.all(np.abs(data[key]) <= LARGEST):  # nor is NaN
            raise UserError(f"{path}: the array {key!r} must hold finite values only, of at most {LARGEST:g}")
    return data
