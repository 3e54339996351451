"""The bodies of a MuJoCo simulation as data: shapes, camera and poses, which a browser draws.

Shapes and camera are sent once, the poses of the bodies with every frame. A recording has the positions of the joints
instead, which are fewer, and the tree of bodies from which the page computes the poses.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from susd.envs.base import Environment, HostEnvironment
from susd.envs.gymnasium.adapter import GymnasiumVector

SHAPES = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh"}  # by MuJoCo's number
JOINTS = {0: "free", 1: "ball", 2: "slide", 3: "hinge"}
SHOWN_GROUPS = 3  # geometry in higher groups is hidden, as in MuJoCo's own renderer
TRANSPARENT = 0.05  # alpha below which a shape is not drawn
HULL_DIRECTIONS = 40  # of a mesh: its convex hull has at most as many corners
AZIMUTH, ELEVATION = 120.0, -22.0  # degrees: the view of a model that says nothing about it


class Bodies:
    """The bodies of one simulation. `update` copies its state to the data that poses are computed from."""

    def __init__(self, model: Any, update: Callable[[Any], None], camera: dict[str, Any], ground: float | None) -> None:
        import mujoco

        self.model, self.camera, self.ground = model, camera, ground
        self._update, self._kinematics = update, mujoco.mj_kinematics
        self._data = mujoco.MjData(model)

    def poses(self) -> np.ndarray:
        """[7 * bodies] position and quaternion of every body now."""
        self._update(self._data)
        self._kinematics(self.model, self._data)
        return np.concatenate([self._data.xpos, self._data.xquat], axis=1).ravel()

    def joints(self) -> np.ndarray:
        """[nq + 7 * mocap bodies] the positions of the joints, and the poses that were set from outside."""
        self._update(self._data)
        data = self._data
        return np.concatenate([data.qpos, np.concatenate([data.mocap_pos, data.mocap_quat], axis=1).ravel()])

    def geometry(self) -> dict[str, Any]:
        """What the page draws in every pose."""
        model = self.model
        shown = [g for g in range(model.ngeom) if _is_shown(model, g)]
        return {"geoms": [_geom(model, geom) for geom in shown], "camera": self.camera, "ground": self.ground}

    def tree(self) -> list[dict[str, Any]]:
        """From the positions of the joints to poses: the parent, the place in it and the joints of every body."""
        model = self.model
        return [
            {
                "parent": int(model.body_parentid[body]),
                "pos": _numbers(model.body_pos[body]),
                "quat": _numbers(model.body_quat[body]),
                "joints": _joints(model, body),
            }
            for body in range(model.nbody)
        ]


def find_bodies(env: Environment | HostEnvironment) -> Bodies | None:
    """The bodies of the first of parallel environments that were reset; None where there are none in this process."""
    from susd.envs.kitchen import Kitchen
    from susd.envs.mujoco.bodies import Body

    if isinstance(env, Kitchen):
        return _kitchen(env)
    if isinstance(env, Body):
        return _body(env)
    return _simulation(env) if isinstance(env, GymnasiumVector) and "mujoco" in sys.modules else None


def _kitchen(env: Any) -> Bodies:
    """The fixtures are where the reset has put them."""
    from susd.envs.kitchen.camera import FIXTURES
    from susd.envs.kitchen.model import TABLE_TOP, compiled

    model = copy.copy(compiled(visual=True))
    moved = [model.body(name).id for name in FIXTURES]

    def update(data: Any) -> None:
        model.body_pos[moved] = env.fixtures[0]
        data.qpos[:] = env.physics.qpos[0]

    found = Bodies(model, update, _named_camera(model, "front", (0.0, 0.0, TABLE_TOP)), TABLE_TOP)
    found.poses()  # the tree has the fixtures of this reset
    return found


def _body(env: Any) -> Bodies:
    """Ant and HalfCheetah."""
    from susd.envs.mujoco.bodies import load_model

    model = load_model(env.file, visual=True)
    distance, azimuth, elevation = env.view

    def update(data: Any) -> None:
        data.qpos[:] = env.physics.qpos[0]

    torso = model.body("torso").id
    camera = _orbit(model, torso, model.body_pos[torso], distance, azimuth, elevation)
    return Bodies(model, update, camera, 0.0)


def _simulation(env: GymnasiumVector) -> Bodies | None:
    """An environment of the user with a model and data of MuJoCo, such as Gymnasium's MujocoEnv."""
    import mujoco

    first = env.unwrapped()
    model, theirs = getattr(first, "model", None), getattr(first, "data", None)
    if not isinstance(model, mujoco.MjModel) or not isinstance(theirs, mujoco.MjData):
        return None

    def update(data: Any) -> None:
        now: Any = env.unwrapped()  # another one after a failure
        for name in ("qpos", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = getattr(now.data, name)

    level = [g for g in range(model.ngeom) if SHAPES.get(int(model.geom_type[g])) == "plane" and model.geom_bodyid[g] == 0]
    return Bodies(model, update, _own_camera(first, model), float(model.geom_pos[level[0], 2]) if level else None)


# --- cameras ----------------------------------------------------------------------------------------------------------


def _orbit(model: Any, body: int | None, at: Any, distance: float, azimuth: float, elevation: float) -> dict[str, Any]:
    """A camera that turns about a point, or about a body that it follows; angles in degrees."""
    angles = {"distance": float(distance), "azimuth": float(azimuth), "elevation": float(elevation)}
    return {"body": body, "lookat": _numbers(at), **angles, "fovy": float(model.vis.global_.fovy)}


def _named_camera(model: Any, name: str, near: tuple[float, float, float]) -> dict[str, Any]:
    """One of the model, turning about the point of its view that is nearest to the given one."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = model.camera(name)
    place, forward = data.cam_xpos[camera.id], -data.cam_xmat[camera.id].reshape(3, 3)[:, 2]
    distance = float(np.dot(np.array(near) - place, forward))
    azimuth, elevation = np.degrees([np.arctan2(forward[1], forward[0]), np.arcsin(forward[2])])
    return _orbit(model, None, place + distance * forward, distance, azimuth, elevation) | {
        "fovy": float(model.cam_fovy[camera.id])
    }


def _own_camera(env: Any, model: Any) -> dict[str, Any]:
    """What the environment tells Gymnasium's renderer; else the whole model, following a body that moves freely."""
    given = dict(getattr(getattr(env, "mujoco_renderer", None), "default_cam_config", None) or {})
    body = int(given.get("trackbodyid", _free_body(model)))
    followed = body if 0 < body < model.nbody else None
    at = given.get("lookat", model.stat.center if followed is None else model.body_pos[followed])
    distance = given.get("distance", 1.5 * model.stat.extent if followed is None else model.stat.extent)
    return _orbit(model, followed, at, distance, given.get("azimuth", AZIMUTH), given.get("elevation", ELEVATION))


def _free_body(model: Any) -> int:
    """The first body with a free joint, or with joints that let it slide along two axes; 0: none."""
    for body in range(1, model.nbody):
        kinds = [JOINTS[int(model.jnt_type[j])] for j in range(model.njnt) if model.jnt_bodyid[j] == body]
        if "free" in kinds or kinds.count("slide") >= 2:
            return body
    return 0


# --- bodies and shapes ------------------------------------------------------------------------------------------------


def _joints(model: Any, body: int) -> list[dict[str, Any]]:
    """Of a body; one that is placed from outside has a free joint whose values follow those of the others."""
    if (mocap := int(model.body_mocapid[body])) >= 0:
        return [{"type": "free", "at": model.nq + 7 * mocap}]
    return [_joint(model, j) for j in range(model.njnt) if model.jnt_bodyid[j] == body]


def _joint(model: Any, joint: int) -> dict[str, Any]:
    at = int(model.jnt_qposadr[joint])
    return {
        "type": JOINTS[int(model.jnt_type[joint])],
        "at": at,
        "pos": _numbers(model.jnt_pos[joint]),
        "axis": _numbers(model.jnt_axis[joint]),
        "zero": float(model.qpos0[at]),
    }


def _is_shown(model: Any, geom: int) -> bool:
    known = int(model.geom_type[geom]) in SHAPES and model.geom_group[geom] < SHOWN_GROUPS
    return known and float(_colour(model, geom)[3]) >= TRANSPARENT


def _colour(model: Any, geom: int) -> np.ndarray:
    """[4] of the shape itself unless it has the default one, then of its material."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    colour: np.ndarray = own if material < 0 or not np.allclose(own, [0.5, 0.5, 0.5, 1.0]) else model.mat_rgba[material]
    return colour


def _geom(model: Any, geom: int) -> dict[str, Any]:
    colour = _colour(model, geom)
    shape = SHAPES[int(model.geom_type[geom])]
    found = {
        "body": int(model.geom_bodyid[geom]),
        "shape": shape,
        "size": _numbers(model.geom_size[geom]),
        "pos": _numbers(model.geom_pos[geom]),
        "quat": _numbers(model.geom_quat[geom]),
        "colour": [round(255 * float(value)) for value in colour[:3]],
        "alpha": round(float(colour[3]), 2),
        "fixed": bool(model.body_weldid[model.geom_bodyid[geom]] == 0),
    }
    return found | (_hull(model, int(model.geom_dataid[geom])) if shape == "mesh" else {})


def _hull(model: Any, mesh: int) -> dict[str, Any]:
    """The convex hull of a mesh, from its furthest points in some directions: corners and triangles."""
    from scipy.spatial import ConvexHull

    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    points = np.asarray(model.mesh_vert[first : first + count], np.float64)
    turn = np.pi * (1 + 5**0.5) * np.arange(HULL_DIRECTIONS)
    height = 1 - (2 * np.arange(HULL_DIRECTIONS) + 1) / HULL_DIRECTIONS
    level = np.sqrt(1 - height**2)
    directions = np.stack([level * np.cos(turn), level * np.sin(turn), height])
    corners = points[np.unique((points @ directions).argmax(axis=0))]
    hull = ConvexHull(corners, qhull_options="QJ")
    return {"corners": [_numbers(corner) for corner in corners], "triangles": hull.simplices.tolist()}


def _numbers(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(values).tolist()]
