"""The kitchen as MuJoCo XML: a table with walls, stove and button, a UR5e arm with a parallel gripper, three loose objects.

Everything is made of primitives. Two shapes represent the arm in collisions, because in the original only the upper arm and
the first wrist link ever collide; there are no meshes. Lengths are in metres, angles in radians, masses in kilograms.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mujoco

TABLE = 0.775  # height of the table's centre, on which the positions of the fixtures are based
TABLE_TOP = 0.8
HEIGHTS = {"button": 0.795, "stove": 0.795, "target": 0.780}  # of the fixtures, constant
TIMESTEP = 0.002
OBJECTS = ("pot", "butter", "meatball", "button")  # objects that can be grasped and touched
FLAGS = (  # the contact sensors, one value each; grasping needs both pads
    *("butter_in_pot", "meatball_in_pot", "pot_on_stove"),
    *(f"{part}_{name}" for name in OBJECTS for part in ("left_pad", "right_pad", "gripper")),
)
FINGER_RANGE = (-0.0115, 0.020833)  # of the left finger's joint and, mirrored, of the right one's

OPTIONS = f"""
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}" gravity="0 0 -9.81" integrator="Euler" solver="Newton" iterations="100" tolerance="1e-8"
          cone="elliptic" impratio="20" density="1.2" viscosity="2e-5"><flag {{flags}}/></option>
  <default>
    <geom condim="3" friction="1 0.005 0.0001" solref="0.02 1" margin="0" rgba="0.75 0.75 0.78 1"/>
    <default class="arm">
      <joint type="hinge" axis="0 1 0" range="-6.28319 6.28319" damping="0.001" frictionloss="0.01"/>
      <geom rgba="0.22 0.24 0.28 1"/>
    </default>
    <default class="finger">
      <joint type="slide" axis="0 1 0" damping="100" frictionloss="1" armature="1"/>
      <geom type="box" friction="0 0 0" contype="0" conaffinity="1" rgba="0.55 0.57 0.60 1"/>
    </default>
    <default class="wall"><geom type="box" friction="0 0.005 0.0001" group="3"/></default>
    <default class="visual"><geom contype="0" conaffinity="0" mass="0" group="1"/></default>
  </default>"""

ROOM = """
    <geom name="floor" type="plane" size="3 3 0.125" rgba="0.86 0.84 0.80 1"/>
    <geom name="table" type="box" size="0.4 0.6 0.025" pos="0 0 0.775" friction="0.6 0.005 0.0001" rgba="0.72 0.56 0.40 1"/>
    <geom class="wall" size="0.5 0.01 0.075" pos="0 -0.5 0.85"/>
    <geom class="wall" size="0.5 0.01 0.075" pos="0 0.5 0.85"/>
    <geom class="wall" size="0.01 0.6 0.075" pos="0.4 0 0.85"/>
    <geom class="wall" size="0.01 0.6 0.075" pos="-0.4 0 0.85"/>
    <body name="button" pos="0 0.2 0.795" quat="0 0 0 1">
      <geom type="cylinder" size="0.04 0.02" rgba="0.30 0.30 0.33 1"/>
      <body name="switch">
        <joint name="button" type="hinge" axis="1 0 0" pos="0 0 0.03" range="-0.3 0.3" damping="0.1" frictionloss="0.1"/>
        <inertial mass="0.243455" pos="0.0296816 -0.00152345 0" quat="0.701071746 0 0 0.713090742"
                  diaginertia="0.0913751 0.0521615 0.043714"/>
        <geom type="box" size="0.025 0.007 0.025" pos="0 0 0.05" rgba="0.80 0.20 0.18 1"/>
        <geom type="cylinder" size="0.0325 0.0125" pos="0 0 0.08" quat="0 0 0.701071746 0.713090742"
              rgba="0.85 0.22 0.20 1"/>
        <site name="disc" pos="0 0 0.08"/>
      </body>
    </body>
    <body name="stove" pos="0.15 -0.15 0.795">
      <geom type="box" size="0.095 0.095 0.02" rgba="0.20 0.20 0.22 1"/>
      <geom name="burner" type="box" size="0.095 0.095 0.0005" pos="0 0 0.022" rgba="0.35 0.12 0.10 1"/>
    </body>"""

ROBOT = """
    <body name="base" pos="-0.56 0 0.912" childclass="arm">
      <geom type="box" size="0.11 0.2 0.265" pos="-0.325 0 -0.37"/>
      <geom type="box" size="0.385 0.35 0.155" pos="-0.1225 0 -0.748"/>
      <geom type="cylinder" size="0.18 0.31" pos="-0.02 0 -0.28"/>
      <body name="shoulder" pos="0 0 0.163">
        <inertial mass="3.7" pos="0 0 0" diaginertia="0.0102675 0.0102675 0.00666"/>
        <joint name="arm1" axis="0 0 1" armature="5"/>{shoulder}
        <body name="upper_arm" pos="0 0.138 0" quat="0.7071067811865476 0 0.7071067811865476 0">
          <inertial mass="8.393" pos="0 0 0.2125" diaginertia="0.133886 0.133886 0.0151074"/>
          <joint name="arm2" armature="2.5"/>
          <geom type="capsule" size="0.059 0.2125" pos="0 0 0.2125" contype="2" conaffinity="0"/>{upper_arm}
          <body name="forearm" pos="0 -0.131 0.425">
            <inertial mass="2.275" pos="0 0 0.196" diaginertia="0.0311796 0.0311796 0.004095"/>
            <joint name="arm3" range="-3.14159 3.14159" armature="1.6666666666666667"/>{forearm}
            <body name="wrist1" pos="0 0 0.392" quat="0.7071067811865476 0 0.7071067811865476 0">
              <inertial mass="1.219" pos="0 0.127 0" diaginertia="0.0025599 0.0025599 0.0021942"/>
              <joint name="arm4" armature="1.25"/>
              <geom type="cylinder" size="0.045 0.056" pos="0 0.127 0" contype="0" conaffinity="2"/>{wrist1}
              <body name="wrist2" pos="0 0.127 0">
                <inertial mass="1.219" pos="0 0 0.1" diaginertia="0.0025599 0.0025599 0.0021942"/>
                <joint name="arm5" axis="0 0 1" armature="1"/>{wrist2}
                <body name="wrist3" pos="0 0 0.1">
                  <inertial mass="0.1889" pos="0 0.0771683 0" quat="0.7071067811865476 0 0 0.7071067811865476"
                            diaginertia="0.000132134 9.90863e-05 9.90863e-05"/>
                  <joint name="arm6" armature="0.8333333333333334"/>
                  <geom type="box" size="0.005 0.005 0.005" pos="0 0.09 0"/>{wrist3}
                  <body name="hand" pos="0 0.098 0" quat="0.7071067811865476 -0.7071067811865476 0 0">
                    <body name="gripper">
                      <inertial mass="0.3" pos="0 0 0" quat="-0.5 0.5 0.5 0.5" diaginertia="3e-08 2e-08 2e-08"/>
                      <geom type="cylinder" size="0.029 0.05" pos="0.004 0 0.04"
                            quat="0 0 0.7071067811865476 0.7071067811865476"/>
                      <site name="grip" pos="0 0 0.109" quat="0.7071067811865476 0 0 -0.7071067811865476"/>{fingers}
                    </body>
                  </body>
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>"""

FINGER = """
                      <body name="{side}_finger" pos="0 {y} 0.0444" childclass="finger">
                        <inertial mass="0.02" pos="0 0 0" diaginertia="0.01 0.01 0.01"/>
                        <joint name="{side}_finger" range="{low} {high}"/>
                        <geom size="0.005 0.00675 0.0375" pos="0 {rod} 0.04"/>
                        <geom size="0.005 0.025 0.0085" pos="{foot} 0.0083"/>
                        <body name="{side}_tip" pos="0 {rod} 0.075">
                          <inertial mass="0.01" pos="0 0 0" diaginertia="0.01 0.01 0.01"/>
                          <geom size="0.004 0.004 0.0185" pos="0 {tip} -0.015"/>
                          <geom name="{side}_pad" size="0.0035 0.004 0.0165" pos="0 {pad} -0.017"/>
                        </body>
                      </body>"""

# The recorded pot falls like one of 0.868 kg with density 1000 throughout, to the last bit; a lighter handle would not.
LOOSE = """
    <body name="pot"><joint name="pot" type="free" damping="0.0005"/>
      <geom name="pot_bottom" type="box" size="0.05 0.05 0.005" pos="0 0 0.005"/>
      <geom type="box" size="0.07 0.01 0.03" pos="0 -0.06 0.03"/>
      <geom type="box" size="0.07 0.01 0.03" pos="0 0.06 0.03"/>
      <geom type="box" size="0.01 0.07 0.03" pos="0.06 0 0.03"/>
      <geom type="box" size="0.01 0.07 0.03" pos="-0.06 0 0.03"/>
      <geom type="box" size="0.04 0.015 0.01" pos="0 0.065 0.07" rgba="0.15 0.35 0.65 1"/>
      <geom type="box" size="0.04 0.015 0.01" pos="0 -0.065 0.07" rgba="0.15 0.55 0.35 1"/>
      <site name="handle" pos="0 -0.065 0.07"/>
    </body>
    <body name="butter"><freejoint name="butter"/>
      <geom name="butter" type="box" size="0.015 0.015 0.015" density="100" rgba="0.98 0.86 0.35 1"/></body>
    <body name="meatball"><freejoint name="meatball"/>
      <geom name="meatball" type="sphere" size="0.02" density="100" rgba="0.50 0.26 0.15 1"/></body>"""

VISUALS = {  # needed for rendering only: the links of the arm, a target plate, lights and a camera
    "shoulder": '<geom class="visual" type="capsule" size="0.06" fromto="0 -0.01 0 0 0.13 0"/>'
    '<geom class="visual" type="cylinder" size="0.06" fromto="0 0 -0.163 0 0 0"/>',
    "upper_arm": "",
    "forearm": '<geom class="visual" type="capsule" size="0.045" fromto="0 0 0 0 0 0.392"/>',
    "wrist1": '<geom class="visual" type="capsule" size="0.042" fromto="0 0 0 0 0.127 0" rgba="0.35 0.55 0.75 1"/>',
    "wrist2": '<geom class="visual" type="capsule" size="0.040" fromto="0 0 0 0 0 0.1" rgba="0.35 0.55 0.75 1"/>',
    "wrist3": '<geom class="visual" type="cylinder" size="0.038" fromto="0 0 0 0 0.098 0"/>',
}
STAGE = """
  <visual>
    <global offwidth="1280" offheight="1280"/>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.25 0.25 0.25" specular="0 0 0"/>
  </visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.92 0.95 0.98" rgb2="0.70 0.76 0.82" width="64" height="64"/>
  </asset>
  <worldbody>
    <light pos="0.6 -0.8 2.4" dir="-0.3 0.4 -1" diffuse="0.55 0.55 0.52"/>
    <camera name="front" pos="1.25 -0.85 1.75" xyaxes="0.519 0.855 0 -0.344 0.209 0.9156" fovy="42"/>
    <body name="target" pos="0.15 0.15 0.78"><geom class="visual" type="box" size="0.07 0.10 0.0015" pos="0 0 0.0215"
      rgba="0.85 0.12 0.12 1"/></body>
  </worldbody>"""


def xml(sleeping: bool = False, visual: bool = False) -> str:
    """The model's text: minimal for stepping, or with `visual` for rendering (the same joints, more geometry)."""
    low, high = FINGER_RANGE
    left = {"side": "left", "y": 0.01, "low": low, "high": high, "rod": 0.01725, "foot": "-0.005 -0.003"}
    right = {"side": "right", "y": -0.01, "low": -high, "high": -low, "rod": -0.01725, "foot": "0.005 0.003"}
    fingers = FINGER.format(**left, tip=-0.0045, pad=-0.0047) + FINGER.format(**right, tip=0.0045, pad=0.0047)
    links = VISUALS if visual else dict.fromkeys(VISUALS, "")
    body = ROOM + ROBOT.format(fingers=fingers, **links) + LOOSE
    flags = 'sleep="enable"' if sleeping else ""
    return f"""<mujoco model="kitchen">{OPTIONS.format(flags=flags)}{STAGE if visual else ""}
  <worldbody>{body}
  </worldbody>
  <actuator>{_actuators()}
  </actuator>
  <sensor>{_sensors()}
  </sensor>
</mujoco>"""


def _actuators() -> str:
    torques = [150, 150, 150, 28, 28, 28]
    arm = [f'<motor joint="arm{i + 1}" ctrlrange="{-limit} {limit}"/>' for i, limit in enumerate(torques)]
    # The command ranges mirror the joint ranges: closing commands exceed what the fingers can do, opening ones stay below.
    low, high = FINGER_RANGE
    servo = '<position joint="{}" kp="1000" forcerange="-20 20" ctrlrange="{} {}"/>'
    return "".join([*arm, servo.format("right_finger", low, high), servo.format("left_finger", -high, -low)])


def _sensors() -> str:
    """In the order of FLAGS. A contact counts as soon as the shapes overlap."""
    pairs = [('geom1="butter"', 'geom2="pot_bottom"'), ('geom1="meatball"', 'geom2="pot_bottom"')]
    pairs.append(('geom1="burner"', 'geom2="pot_bottom"'))
    for name in OBJECTS:
        whole = f'subtree2="{name}"'
        pairs += [('geom1="left_pad"', whole), ('geom1="right_pad"', whole), ('subtree1="gripper"', whole)]
    texts = [f'<contact name="{flag}" {a} {b} data="found" num="1"/>' for flag, (a, b) in zip(FLAGS, pairs, strict=True)]
    return "".join(texts)


@cache
def compiled(sleeping: bool = False, visual: bool = False) -> mujoco.MjModel:
    """The compiled model, shared: copy it before changing it."""
    import mujoco

    return mujoco.MjModel.from_xml_string(xml(sleeping, visual))
