// Forward kinematics of a recording: from the positions of the joints to the poses of the bodies.
import { add, multiply, rotate, scale, subtract, unit } from "../vectors.js";

const turn = (axis, angle) => [Math.cos(angle / 2), ...scale(axis, Math.sin(angle / 2))];

/** Position and rotation of every body, seven numbers each. */
export function kinematics(tree, joints) {
  const frames = [];
  tree.forEach((body, number) => {
    if (number === 0) return frames.push({ pos: [0, 0, 0], quat: [1, 0, 0, 0] });
    const above = frames[body.parent];
    let pos = add(above.pos, rotate(above.quat, body.pos));
    let quat = multiply(above.quat, body.quat);
    for (const joint of body.joints) {
      const q = joints.slice(joint.at);
      if (joint.type === "free") {
        pos = q.slice(0, 3);
        quat = unit(q.slice(3, 7));
        continue;
      }
      const anchor = add(pos, rotate(quat, joint.pos));
      if (joint.type === "slide") pos = add(pos, scale(rotate(quat, joint.axis), q[0] - joint.zero));
      else {
        quat = multiply(quat, joint.type === "ball" ? unit(q.slice(0, 4)) : turn(joint.axis, q[0] - joint.zero));
        pos = subtract(anchor, rotate(quat, joint.pos)); // it turns about its anchor
      }
    }
    return frames.push({ pos, quat });
  });
  return frames.flatMap(({ pos, quat }) => [...pos, ...quat]);
}
