"""The bodies of a MuJoCo environment as data: what a browser needs to draw them from the joints' positions alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from susd.envs.base import Environment, HostEnvironment

SHAPES = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box"}  # by MuJoCo's number of the type
JOINTS = {0: "free", 1: "ball", 2: "slide", 3: "hinge"}
SHOWN_GROUPS = 3  # geometry in higher groups is hidden, as in MuJoCo's own renderer


def has_bodies(env: Environment | HostEnvironment) -> bool:
    """Whether the bodies of an environment are known."""
    from susd.envs.kitchen import Kitchen
    from susd.envs.mujoco.bodies import Body

    return isinstance(env, (Kitchen, Body))


def positions(env: Any) -> np.ndarray:
    """[nq] the joints' positions of the first of the parallel environments."""
    return np.array(env.physics.qpos[0], np.float32)


def body_model(env: Any) -> dict[str, Any]:
    """The tree of bodies, their joints and shapes, and the camera, of an environment that was reset."""
    from susd.envs.kitchen import Kitchen

    if isinstance(env, Kitchen):
        from susd.envs.kitchen.camera import FIXTURES
        from susd.envs.kitchen.model import TABLE_TOP, compiled

        model = compiled(visual=True)
        tree = _tree(model) | {"camera": _fixed_camera(model, "front"), "ground": TABLE_TOP}
        for name, place in zip(FIXTURES, env.fixtures[0].tolist(), strict=True):
            tree["bodies"][model.body(name).id]["pos"] = _numbers(place)
        return tree
    from susd.envs.mujoco.bodies import load_model

    model = load_model(env.file, visual=True)
    distance, azimuth, elevation = env.view
    tracking = {"body": model.body("torso").id, "distance": distance, "azimuth": azimuth, "elevation": elevation}
    return _tree(model) | {"camera": {**tracking, "fovy": float(model.vis.global_.fovy)}, "ground": 0.0}


def _tree(model: Any) -> dict[str, Any]:
    bodies: list[dict[str, Any]] = [
        {
            "parent": int(model.body_parentid[body]),
            "pos": _numbers(model.body_pos[body]),
            "quat": _numbers(model.body_quat[body]),
            "fixed": bool(model.body_weldid[body] == 0),
            "joints": [_joint(model, j) for j in range(model.njnt) if model.jnt_bodyid[j] == body],
        }
        for body in range(model.nbody)
    ]
    shown = [g for g in range(model.ngeom) if int(model.geom_type[g]) in SHAPES and model.geom_group[g] < SHOWN_GROUPS]
    return {"bodies": bodies, "geoms": [_geom(model, geom) for geom in shown]}


def _joint(model: Any, joint: int) -> dict[str, Any]:
    at = int(model.jnt_qposadr[joint])
    return {
        "type": JOINTS[int(model.jnt_type[joint])],
        "at": at,
        "pos": _numbers(model.jnt_pos[joint]),
        "axis": _numbers(model.jnt_axis[joint]),
        "zero": float(model.qpos0[at]),
    }


def _geom(model: Any, geom: int) -> dict[str, Any]:
    material = int(model.geom_matid[geom])
    colour = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    return {
        "body": int(model.geom_bodyid[geom]),
        "shape": SHAPES[int(model.geom_type[geom])],
        "size": _numbers(model.geom_size[geom]),
        "pos": _numbers(model.geom_pos[geom]),
        "quat": _numbers(model.geom_quat[geom]),
        "colour": [round(255 * float(value)) for value in colour[:3]],
    }


def _fixed_camera(model: Any, name: str) -> dict[str, Any]:
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = model.camera(name)
    axes = data.cam_xmat[camera.id].reshape(3, 3).T
    frame = {"pos": _numbers(data.cam_xpos[camera.id]), "right": _numbers(axes[0]), "up": _numbers(axes[1])}
    return {**frame, "fovy": float(model.cam_fovy[camera.id])}


def _numbers(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in np.asarray(values).tolist()]
