"""Replay recordings of the original environments: whole episodes from reset, everything recorded compared."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from susd.envs.gunner import LIMIT, STARTS, Gunner
from susd.envs.multi_particle import MultiParticle
from susd.errors import UserError
from susd.tasks import make_task
from susd.tasks.base import SKILL_STEPS, Task
from susd.tasks.multi_particle import REDRAW, FoodPoison, Sequential

TOLERANCE = 1e-5  # on observations and continuous state, over a whole episode
ROUNDING = 1e-6  # rewards are equal up to the rounding of a float32 such as -0.3
AGREEMENT = 0.95  # of the steps, for each flag of the Kitchen: another version of MuJoCo makes contact a step off at times


@dataclass(frozen=True)
class Kind:
    """What a recording is of: a world, a task or none, and whether observations are in the original's raw order."""

    world: Gunner | MultiParticle
    task: str | None = None
    raw_order: bool = False


KINDS: dict[str, Kind] = {
    "gunner": Kind(Gunner()),
    "gunner_overrange": Kind(Gunner()),
    "gunner_lim": Kind(Gunner(), "gunner-lim", raw_order=True),
    "gunner_nolim": Kind(Gunner(), "gunner-unlim", raw_order=True),
    "multi_particle": Kind(MultiParticle()),
    "multi_particle_raw50": Kind(MultiParticle(actions="five")),
    **{f"mp_seq_{level}": Kind(MultiParticle(), f"seq-{level}") for level in ("easy", "medium", "hard")},
    **{f"mp_fp_{level}": Kind(MultiParticle(), f"fp-{level}") for level in ("easy", "medium", "hard", "difficult")},
}
_FULL = {f"multi_particle_{kind.removeprefix('mp_')}": kind for kind in KINDS if kind.startswith("mp_")}
_NAMES = {**{kind: kind for kind in KINDS}, **_FULL, "gunner_unlim": "gunner_nolim"}
_NAMES["kitchen"] = "kitchen"
_SHORT = {kind.partition("_")[2]: kind for kind in KINDS if kind.startswith("mp_")}
_SHORT |= {"lim": "gunner_lim", "nolim": "gunner_nolim", "unlim": "gunner_nolim"}


def kind_name(name: str) -> str:
    """Which kind of recording a file's or a task's name speaks of: the longest known name inside it."""
    plain = name.lower().replace("-", "_")
    inside = [known for known in _NAMES if known in plain]
    if plain in _SHORT:
        return _SHORT[plain]
    if not inside:
        raise UserError(f"{name!r} does not say what is recorded; name one of: {', '.join(KINDS)}, kitchen")
    return _NAMES[max(inside, key=len)]


def replay(path: str | Path, as_name: str | None = None) -> dict[str, Any]:
    """Replay every episode of a recording; the result says how far from it we end and how often we disagree."""
    path = Path(path)
    name = kind_name(path.stem if as_name is None else as_name)
    if name == "kitchen":
        return _replay_kitchen(path)
    kind = KINDS[name]
    task: Any = None if kind.task is None else make_task(kind.task, env=kind.world)
    data = _load(path, kind, task)
    if isinstance(task, (Sequential, FoodPoison)):
        task = replace(task, agents=tuple(data["agents"].astype(int).tolist()))
    starts = [_start(kind.world, seed) for seed in data["reset_seed"].tolist()]
    num_envs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    actions = data["action"]
    if isinstance(kind.world, MultiParticle) and kind.world.actions == "five":
        actions = 2.0 * actions - 1.0  # the five slots of an agent are recorded in [0, 1]
    coins = data.get("indicator", np.zeros((*data["obs"].shape[:2], 1)))
    ours = _rollout(kind.world, task, num_envs, jnp.asarray(actions, jnp.float32), jnp.asarray(coins, jnp.float32))
    return {"name": name, "steps": int(data["reward"].size), **_compare(kind, data, jax.tree.map(np.asarray, ours))}


def ok(result: dict[str, Any]) -> bool:
    """Whether a replay agrees with its recording."""
    if result["name"] == "kitchen":
        return min(result["flags"].values()) >= AGREEMENT
    return result["max_obs_error"] <= TOLERANCE and not result["reward_mismatches"] and not result["flag_mismatches"]


def _start(world: Gunner | MultiParticle, seed: float) -> Any:
    """The state after a reset with a recorded seed."""
    if isinstance(world, Gunner):
        start = str(int(seed))
        world = replace(world, start=start if start in STARTS else "centre")
    else:
        world = replace(world, layout_seed=int(seed))
    return world.reset(jax.random.key(0))


@partial(jax.jit, static_argnums=(0, 1))
def _rollout(
    world: Gunner | MultiParticle, task: Task | None, starts: Any, actions: jax.Array, coins: jax.Array
) -> dict[str, jax.Array]:
    """Everything a recording can hold, [E, T+1, ...] for states and [E, T, ...] for steps."""
    key = jax.random.key(0)  # nothing is random but the food-poison indicators, and those are injected

    def move(before: Any, action: jax.Array) -> Any:
        return world.apply(before, action) if isinstance(world, Gunner) else world.step(before, action, key)

    def describe(state: Any) -> dict[str, jax.Array]:
        here = state if task is None else state.world
        facts = {"obs": world.observe(here), **here._asdict()}
        if task is not None:
            facts |= {"extra": task.extra(state), **{k: v for k, v in state._asdict().items() if k != "world"}}
        if isinstance(task, Sequential):
            facts["target"] = task.target(state)
        return facts

    def advance(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, dict[str, jax.Array]]:
        action, coin = inputs
        if task is None:
            state = move(state, action)
            return state, {**describe(state), "reward": jnp.zeros(())}
        before, after = state, move(state.world, action)
        state, reward = task.score(state, after, key)
        facts = {"reward": reward}
        if isinstance(task, FoodPoison):
            facts["reward_vec"] = task.verdicts(before.indicator, after)
            state = state._replace(indicator=jnp.where(state.steps % REDRAW == 0, coin, state.indicator))
        return state, {**describe(state), **facts}

    def episode(start: Any, moves: jax.Array, coin: jax.Array) -> dict[str, jax.Array]:
        state = start if task is None else task.begin(start, key)
        if isinstance(task, FoodPoison):
            state = state._replace(indicator=coin[0])
        first = describe(state)
        _, rest = jax.lax.scan(advance, state, (moves, coin[1:]))
        return {k: jnp.concatenate([first[k][None], v]) if k in first else v for k, v in rest.items()}

    return jax.vmap(episode)(starts, actions, coins)


def _compare(kind: Kind, data: dict[str, np.ndarray], ours: dict[str, np.ndarray]) -> dict[str, Any]:
    """The three numbers of a replay's result."""
    episodes, length = data["reward"].shape
    near: list[tuple[np.ndarray, np.ndarray]] = []
    paid: list[tuple[np.ndarray, np.ndarray]] = [(ours["reward"], data["reward"])]
    flags: list[tuple[np.ndarray, np.ndarray]] = []
    order = data["perm"].astype(int) if kind.raw_order else np.arange(ours["obs"].shape[-1])
    obs = data["obs"][..., order]
    near.append((ours["obs"], obs))
    landmarks = list(kind.world.spec.landmarks.values())
    flags.append((ours["obs"][..., landmarks], obs[..., landmarks]))
    clock = np.broadcast_to(np.arange(length + 1), (episodes, length + 1))
    done = clock[:, 1:] >= LIMIT
    flags.append((done, data["done"]))
    if isinstance(kind.world, Gunner):
        hidden = np.concatenate([ours["agent"], ours["picker"], ours["grip"][..., None], ours["view"][..., None]], axis=-1)
        near.append((hidden, data["state"][..., :6]))
        flags += [(ours["ammo"], data["state"][..., 6:10]), (ours.get("steps", clock), data["state"][..., 10])]
    else:
        near += [(ours["position"], data["agent_pos"]), (ours["velocity"], data["agent_vel"])]
        near.append((ours["station"], np.repeat(data["station_pos"][:, None], length + 1, axis=1)))
    if "reward_vec" in ours:
        paid.append((ours["reward_vec"], data["reward_vec"]))
    flags += [(ours[k], data[k]) for k in ("target", "progress", "charge", "indicator") if k in ours]
    if kind.task is not None:
        decisions = length // SKILL_STEPS
        seen = np.concatenate([ours["obs"], ours["extra"]], axis=-1)[:, : decisions * SKILL_STEPS + 1 : SKILL_STEPS]
        recorded = data["hl_obs"]
        near.append((seen, np.concatenate([recorded[..., order], recorded[..., len(order) :]], axis=-1)))
        blocks = ours["reward"][:, : decisions * SKILL_STEPS].reshape(episodes, decisions, SKILL_STEPS)
        paid.append((blocks.mean(axis=-1), data["hl_reward"]))
        flags.append((done[:, SKILL_STEPS - 1 :: SKILL_STEPS], data["hl_done"]))
    return {
        "max_obs_error": float(max(np.max(np.abs(a - b)) for a, b in near)),
        "reward_mismatches": int(sum(np.sum(~np.isclose(a, b, rtol=ROUNDING, atol=ROUNDING)) for a, b in paid)),
        "flag_mismatches": int(sum(np.sum(a != b) for a, b in flags)),
    }


def _replay_kitchen(path: Path) -> dict[str, Any]:
    """All episodes side by side and open loop from their first states: how often flags agree, and how far bodies stray."""
    from susd.envs.kitchen import Kitchen
    from susd.envs.kitchen.observation import GRIP, TOUCHED

    found = _read(path)
    stored = {key.removeprefix("random_"): value for key, value in found.items()} | found  # with or without the prefix
    shapes: dict[str, tuple[str | int, ...]] = {
        "action": ("E", "T", 4),
        "qpos": ("E", "T+1", 30),
        "qvel": ("E", "T+1", 27),
        "warm": ("E", "T+1", 27),
        "grip": ("E", "T+1", 2),
        "flags": ("E", "T+1", 4),
        "fixture_pos": ("E", 3, 3),
        "obs_raw": ("E", "T+1", 142),
    }
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


def _load(path: Path, kind: Kind, task: Task | None) -> dict[str, np.ndarray]:
    """The arrays of a recording as float64, checked against the shapes that its kind must have."""
    sizes = {"D": kind.world.spec.obs_size, "A": kind.world.spec.action_size}
    data = _fit(path, _read(path), _shapes(kind, task), sizes)
    _check_values(path, kind, data)
    return data


def _read(path: Path) -> dict[str, np.ndarray]:
    """Every array in a file."""
    if not path.is_file():
        raise UserError(f"no recording at {path}")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            stored = {key: archive[key] for key in archive.files} if isinstance(archive, np.lib.npyio.NpzFile) else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        stored = None
    if stored is None:
        raise UserError(f"{path} is not a recording: it cannot be read as an .npz file of plain numbers")
    return stored


def _fit(
    path: Path, stored: dict[str, np.ndarray], shapes: dict[str, tuple[str | int, ...]], sizes: dict[str, int]
) -> dict[str, np.ndarray]:
    """The arrays that are needed as float64; each must have its shape, in which letters stand for sizes."""
    data: dict[str, np.ndarray] = {}
    for key, axes in shapes.items():
        if key not in stored:
            raise UserError(f"{path}: the array {key!r} is missing")
        value = stored[key]
        if value.dtype.kind not in "biuf" or not np.all(np.isfinite(value)):
            raise UserError(f"{path}: the array {key!r} must hold finite numbers only")
        for axis, found in zip(axes, value.shape, strict=False):  # the first arrays fix E and T, the rest must follow
            if isinstance(axis, str):
                sizes.setdefault(axis, found)
        if "T" in sizes:
            sizes |= {"T+1": sizes["T"] + 1, "H": sizes["T"] // SKILL_STEPS, "H+1": sizes["T"] // SKILL_STEPS + 1}
        expected = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
        if value.ndim == len(axes) - 1 and axes[0] == "E":
            raise UserError(
                f"{path}: the array {key!r} has the shape {value.shape}; the axis of episodes before it is missing"
            )
        if value.shape != expected:
            raise UserError(f"{path}: the array {key!r} has the shape {value.shape}, expected {expected} ({axes})")
        if 0 in value.shape[: 1 + (key == "action")]:
            raise UserError(f"{path}: the array {key!r} has the shape {value.shape}; there is nothing to replay in it")
        data[key] = value.astype(np.float64)
    return data


def _shapes(kind: Kind, task: Task | None) -> dict[str, tuple[str | int, ...]]:
    """Every array a kind of recording must hold. E episodes, T steps, H decisions, D observation, A action, S agents."""
    shapes: dict[str, tuple[str | int, ...]] = {
        "action": ("E", "T", "A"),
        "obs": ("E", "T+1", "D"),
        "reward": ("E", "T"),
        "done": ("E", "T"),
        "reset_seed": ("E",),
    }
    if isinstance(kind.world, Gunner):
        shapes["state"] = ("E", "T+1", 11)
    else:
        shapes |= {"agent_pos": ("E", "T+1", 10, 2), "agent_vel": ("E", "T+1", 10, 2), "station_pos": ("E", 10, 2)}
    if kind.raw_order:
        shapes["perm"] = ("D",)
    if task is not None:
        extended = kind.world.spec.obs_size + task.extra_size
        shapes |= {"hl_obs": ("E", "H+1", extended), "hl_reward": ("E", "H"), "hl_done": ("E", "H")}
    if isinstance(task, Sequential):
        shapes |= {"agents": ("S",), "target": ("E", "T+1", 10), "progress": ("E", "T+1"), "charge": ("E", "T+1")}
    if isinstance(task, FoodPoison):
        shapes |= {"agents": ("S",), "indicator": ("E", "T+1", 10), "reward_vec": ("E", "T", 10)}
    return shapes


def _check_values(path: Path, kind: Kind, data: dict[str, np.ndarray]) -> None:
    """Index lists and seeds must be what they say they are."""
    if "perm" in data and sorted(data["perm"].tolist()) != list(range(kind.world.spec.obs_size)):
        raise UserError(f"{path}: 'perm' is not an order of the {kind.world.spec.obs_size} observation indices")
    if "agents" in data and not set(data["agents"].tolist()) <= set(range(10)):
        raise UserError(f"{path}: 'agents' holds {data['agents'].tolist()}; allowed are the agents 0 to 9")
    seeds = data["reset_seed"]
    if np.any(seeds != np.floor(seeds)) or (isinstance(kind.world, MultiParticle) and np.any(seeds < 0)):
        raise UserError(f"{path}: 'reset_seed' holds {seeds.tolist()}, not seeds")
