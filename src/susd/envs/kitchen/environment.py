"""Kitchen: a UR5e arm with a gripper, a pot, butter, a meatball, a button, a stove and a target, in parallel."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from susd.envs.base import EnvSpec, HostStep, Plane, Scaling, own_dimensions
from susd.envs.kitchen import controller as control
from susd.envs.kitchen.model import TABLE, compiled
from susd.envs.kitchen.observation import (
    BUTTER_IN_POT,
    BUTTON_ANGLE,
    GRIP,
    LAYOUTS,
    MEATBALL_IN_POT,
    OWN,
    SIZE,
    START,
    TOUCHED,
    Snapshot,
    align_signs,
    cross,
    observe,
    scaling,
)
from susd.envs.kitchen.starts import draw
from susd.envs.mujoco import physics
from susd.envs.mujoco.camera import check_index
from susd.envs.options import (
    MOST_ENVS,
    MOST_THREADS,
    FactorOption,
    boolean,
    factorization,
    non_negative_integer,
    one_of,
    positive_integer,
)
from susd.errors import UserError

SUBSTEPS = 25  # physics steps of 2 ms per action: 20 Hz
REACH = 0.05  # how far the goal of one action is from the gripper, per axis
LOW, HIGH = np.array([-0.4, -0.5, 0.81]), np.array([0.4, 0.5, 1.10])  # where the gripper may be sent
SQUEEZE = 0.01  # how far the gripper's command moves in a physics step, of a range from -1 (open) to 1 (closed)
FINGER_MIDDLE, FINGER_HALF = 0.0046665, 0.0161665  # of the right finger's commands; the left one's are mirrored
DISCOVERY = 50  # control steps of an episode
DERIVED = ("site_xpos", "site_xmat", "xpos", "xquat", "cdof", "subtree_com", "qfrc_bias", "M", "sensordata")


class Facts(NamedTuple):
    """The true state that task rewards depend on, at the end of the last control step."""

    button_on: np.ndarray  # [W] bool, as are all but the two positions
    butter_in_pot: np.ndarray
    butter_was_in_pot: np.ndarray  # one control step earlier
    meatball_in_pot: np.ndarray
    pot_on_stove: np.ndarray
    pot_touched: np.ndarray  # by any part of the gripper
    pot: np.ndarray  # [W, 3]
    target: np.ndarray  # [W, 3]

    @property
    def flags(self) -> np.ndarray:
        """[W, 4] button on, butter in pot, meatball in pot, pot on stove."""
        return np.stack([self.button_on, self.butter_in_pot, self.meatball_in_pot, self.pot_on_stove], axis=1)


class Kitchen:
    """Parallel environments that never terminate. Equal seeds and actions give equal values with every engine."""

    def __init__(
        self,
        num_envs: int = 16,
        layout: str = "released",
        quaternions: str = "canonical",
        factors: FactorOption = 7,
        scaled: bool = False,
        sleeping: bool = False,
        engine: str = "auto",
        controller: str = "auto",
        threads: int = 0,
    ) -> None:
        self._num_envs = positive_integer("num_envs", num_envs, MOST_ENVS)
        self._layout = LAYOUTS[one_of("layout", layout, LAYOUTS)]
        self._continuous = one_of("quaternions", quaternions, ("canonical", "continuous")) == "continuous"
        self._factors = factorization(factors, SIZE, {7: self._layout.factors})
        order = self._layout.order.tolist()
        self._scaling = Scaling(*(tuple(x[i] for i in order) for x in (scaling().mean, scaling().std)))
        self._scaled = boolean("scaled", scaled)
        self._control = control.choose(one_of("controller", controller, ("auto", "numba", "numpy")))
        engine = one_of("engine", engine, ("auto", "batch", "plain"))
        model = compiled(boolean("sleeping", sleeping))
        self.physics = physics.start(
            model, self._num_envs, engine, non_negative_integer("threads", threads, MOST_THREADS), DERIVED
        )
        self._where = control.mass_indices(model)
        self._site = [model.site(name).id for name in ("grip", "handle", "disc")]
        self._body = [model.body(name).id for name in ("base", "hand", "pot", "butter", "meatball")]
        self._movable = [model.body(name).id for name in ("button", "stove")]
        self._fixture_rotations = np.array([[0.0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]])
        self._grip = np.zeros(self._num_envs)
        self._fixtures = np.zeros((self._num_envs, 3, 3))
        self._status = np.zeros((self._num_envs, 2))
        self._flags = np.zeros((self._num_envs, 3), bool)  # butter in pot, meatball in pot, pot on stove
        self._raw = np.zeros((self._num_envs, SIZE))
        self._started = False  # before the first reset the arm is in a singular pose, which cannot be controlled
        self._camera: Any = None
        self.facts: Facts | None = None  # of the last step

    @property
    def num_envs(self) -> int:
        """How many environments are stepped together."""
        return self._num_envs

    @cached_property
    def spec(self) -> EnvSpec:
        """Sizes, horizon and factors of the selected layout."""
        at = self._layout.find
        bodies = {"gripper": GRIP, **{name: START[name] for name in ("pot", "butter", "meatball")}}
        planes = tuple(Plane(name, at(index), at(index + 1), -0.5, 0.5) for name, index in bodies.items())
        landmarks = {"butter_in_pot": at(BUTTER_IN_POT), "meatball_in_pot": at(MEATBALL_IN_POT)}
        landmarks["button_on"] = at(BUTTON_ANGLE)
        landmarks |= {f"{name}_touched": at(index) for name, index in TOUCHED.items()}
        scale = self._scaling if self._scaled else None
        own = own_dimensions(self._factors, map(at, OWN))
        sizes = (SIZE, 4, DISCOVERY)
        return EnvSpec("kitchen", *sizes, self._factors, planes, landmarks, scaling=scale, own=own, ends_early=False)

    @property
    def raw(self) -> np.ndarray:
        """[W, 142] the last observations in the simulator's order and in double precision."""
        return self._raw

    @property
    def fixtures(self) -> np.ndarray:
        """[W, 3, 3] positions of button, stove and target."""
        return self._fixtures

    def reset(self, seed: int) -> np.ndarray:
        """Reset all environments, as a function of the seed alone; [W, 142] observations."""
        self.facts, self._started = None, True
        ids = np.arange(self._num_envs)
        starts = [draw(non_negative_integer("seed", seed), index) for index in ids.tolist()]
        self._fixtures[:] = np.stack([start.fixtures for start in starts])
        self._status[:] = np.stack([start.status for start in starts])
        self._grip[:], self._flags[:] = 0.0, False
        self.physics.reset(ids, self._movable, self._fixtures[:, :2])
        self.physics.qpos[:] = np.stack([start.qpos for start in starts])
        self.physics.forward(ids)
        self._update_raw(self._snapshot(), None)
        return self._observation()

    def step(self, actions: np.ndarray) -> HostStep:
        """One control step: three directions for the gripper, and a sign that closes (+) or opens it (-)."""
        self.advance(actions)
        reached = self._observation()
        never = np.zeros(self._num_envs, bool)
        return HostStep(reached, reached.copy(), never, never.copy())

    def advance(self, actions: np.ndarray) -> None:
        """The physics of one control step."""
        wanted = physics.checked_actions(actions, (self._num_envs, 4))
        if not self._started:
            raise UserError("the Kitchen has no state yet; call reset first")
        sim, now = self.physics, self.physics.derived
        held = self._raw[:, GRIP : GRIP + 3]  # the original clips by a position that is 2 ms old
        move = np.clip(np.clip(wanted[:, :3], (LOW - held) / REACH, (HIGH - held) / REACH), -1.0, 1.0)
        base, grip = self._body[0], self._site[0]
        position, frame, centre = now["site_xpos"][:, grip], now["site_xmat"][:, grip], now["subtree_com"][:, base]
        goal = position + REACH * move
        squeeze = SQUEEZE * np.sign(wanted[:, 3])
        for substep in range(SUBSTEPS):
            self._grip = np.clip(self._grip + squeeze, -1.0, 1.0)
            sim.ctrl[:, 6] = FINGER_MIDDLE + FINGER_HALF * self._grip
            sim.ctrl[:, 7] = -FINGER_MIDDLE - FINGER_HALF * self._grip
            self._control(
                goal, position, frame, now["cdof"], centre, now["qfrc_bias"], now["M"], self._where, sim.qvel, sim.ctrl
            )
            if substep == SUBSTEPS - 1:
                seen = self._snapshot()
            sim.step()
        self._update_raw(seen, self._raw.copy())
        before, self._flags = self._flags, seen.contacts.copy()
        self.facts = Facts(
            sim.qpos[:, 0] >= 0.0,
            *(seen.contacts[:, 0], before[:, 0], seen.contacts[:, 1], seen.contacts[:, 2]),
            seen.touches[:, 0, 1],
            seen.positions[:, 0],
            self._fixtures[:, 2].copy(),
        )

    def restore(
        self,
        qpos: np.ndarray,
        qvel: np.ndarray,
        warm: np.ndarray,
        grip: np.ndarray,
        fixtures: np.ndarray,
        held: np.ndarray | None = None,
        flags: np.ndarray | None = None,
        status: np.ndarray | None = None,
    ) -> np.ndarray:
        """Set all environments to a recorded state, fixtures [W, 3, 3] in the table's frame; [W, 142] raw observations.

        `held` is the earlier position of the gripper that clips the next action, `flags` the contacts of the previous step.
        """
        self.facts, self._started = None, True
        ids = np.arange(self._num_envs)
        self._fixtures[:] = fixtures + np.array([0.0, 0.0, TABLE])
        self._grip = np.array(grip, np.float64)
        self._flags[:] = False if flags is None else flags
        self._status[:] = 0.0 if status is None else status
        self.physics.reset(ids, self._movable, self._fixtures[:, :2])
        self.physics.qpos[:], self.physics.qvel[:], self.physics.qacc_warmstart[:] = qpos, qvel, warm
        self.physics.forward(ids)
        self._update_raw(self._snapshot(), None)
        if held is not None:
            self._raw[:, GRIP : GRIP + 3] = held
        return self._raw

    def render(self, index: int = 0, size: int = 400) -> np.ndarray:
        """One environment as an RGB image, uint8 [size, size, 3]; needs a GL, such as MUJOCO_GL=egl without a display."""
        from susd.envs.kitchen.camera import KitchenCamera

        check_index(index, self._num_envs)
        if self._camera is None or self._camera.size != size:
            self._camera = KitchenCamera(size)
        image: np.ndarray = self._camera.render(self.physics.qpos[index], self._fixtures[index])
        return image

    def _snapshot(self) -> Snapshot:
        """A copy of the Cartesian quantities."""
        now, (base, hand, *loose) = self.physics.derived, self._body
        sites, sensors = now["site_xpos"][:, self._site], now["sensordata"] > 0
        touches = sensors[:, 3:].reshape(-1, 4, 3)
        grasped = touches[:, :, 0] & touches[:, :, 1]
        axes, offset = now["cdof"][:, 1:7], (now["xpos"][:, hand] - now["subtree_com"][:, base])[:, None]
        fixed = np.broadcast_to(self._fixture_rotations, (self._num_envs, 3, 4))
        return Snapshot(
            grip=sites[:, 0],
            hand=now["xquat"][:, hand].copy(),
            lever=axes[..., 3:] + cross(axes[..., :3], offset),
            positions=np.concatenate([now["xpos"][:, loose], self._fixtures], axis=1),
            rotations=np.concatenate([now["xquat"][:, loose], fixed], axis=1),
            points=sites[:, 1:],
            touches=np.stack([grasped, touches[:, :, 2]], axis=-1),
            contacts=sensors[:, :3],
        )

    def _update_raw(self, seen: Snapshot, before: np.ndarray | None) -> None:
        """Update the raw observations; `before` are those of the previous step, or None after a reset."""
        raw = observe(seen, self.physics.qpos, self.physics.qvel, self._status, self._flags[:, :2])
        if self._continuous:
            align_signs(raw, before)
        self._raw[:] = raw

    def _observation(self) -> np.ndarray:
        obs = self._raw[:, self._layout.order].astype(np.float32)
        return np.asarray(self._scaling.normalise(obs), np.float32) if self._scaled else obs
