// Drawings of environments: from the state where the page knows how, else its own image, else plots of the factors.
import { themeColours, visible, withAlpha } from "./ui.js";

const SIDE = 4.99;
const AIM = Math.PI / 10;
const QUARTET = ["#d65248", "#2c7bb6", "#eca22c", "#3c9660"];
const ZONE_CELLS = [[1, 1], [1, 3], [3, 1], [3, 3]];
const AMMO_CELLS = [
  [[0, 3], [2, 1], [4, 3]], [[1, 2], [3, 0], [3, 4]], [[0, 1], [2, 3], [4, 1]], [[1, 0], [1, 4], [3, 2]],
];
const CORNERS = [[SIDE, 0], [SIDE, SIDE], [0, 0], [0, SIDE]];
const NEAR = 0.6;

// Environment coordinates (y up) in a square of the canvas.
export class View {
  constructor(context, width, height, low, high, margin = 0.055) {
    this.context = context;
    const size = Math.min(width, height);
    this.low = low;
    this.scale = (size * (1 - 2 * margin)) / (high - low);
    this.left = (width - size) / 2 + size * margin;
    this.bottom = (height + size) / 2 - size * margin;
    this.unit = size / 100; // one per cent of the drawing, for the width of lines
  }

  at(x, y) {
    return [this.left + (x - this.low) * this.scale, this.bottom - (y - this.low) * this.scale];
  }

  from(px, py) {
    return [this.low + (px - this.left) / this.scale, this.low + (this.bottom - py) / this.scale];
  }

  line(points, colour, width, dash = [], cap = "round") {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], i) => (i ? c.lineTo(...this.at(x, y)) : c.moveTo(...this.at(x, y))));
    c.strokeStyle = colour;
    c.lineWidth = width * this.unit;
    c.lineCap = cap;
    c.lineJoin = "round";
    c.setLineDash(dash.map((d) => d * this.unit));
    c.stroke();
    c.setLineDash([]);
  }

  disc(x, y, radius, fill, edge = null, width = 0.5) {
    const c = this.context;
    c.beginPath();
    c.arc(...this.at(x, y), radius * this.scale, 0, 2 * Math.PI);
    this.paint(fill, edge, width);
  }

  box(x, y, w, h, fill, edge = null, width = 0.5, round = 0) {
    const c = this.context, [left, top] = this.at(x, y + h);
    c.beginPath();
    c.roundRect(left, top, w * this.scale, h * this.scale, round * this.unit);
    this.paint(fill, edge, width);
  }

  polygon(points, fill, edge = null, width = 0.5) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], i) => (i ? c.lineTo(...this.at(x, y)) : c.moveTo(...this.at(x, y))));
    c.closePath();
    this.paint(fill, edge, width);
  }

  paint(fill, edge, width) {
    const c = this.context;
    if (fill) {
      c.fillStyle = fill;
      c.fill();
    }
    if (edge) {
      c.strokeStyle = edge;
      c.lineWidth = width * this.unit;
      c.stroke();
    }
  }

  label(x, y, text, colour, height) {
    const c = this.context;
    c.fillStyle = colour;
    c.font = `600 ${height * this.scale}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(text, ...this.at(x, y));
  }
}

function starPoints(x, y, radius) {
  return Array.from({ length: 10 }, (_, i) => {
    const r = i % 2 ? 0.45 * radius : radius, a = Math.PI / 2 + (i * Math.PI) / 5;
    return [x + r * Math.cos(a), y + r * Math.sin(a)];
  });
}

function drawGunnerFloor(view, theme, goal) {
  for (let i = 1; i < 5; i++) {
    view.line([[i, 0], [i, SIDE]], theme.line, 0.25);
    view.line([[0, i], [SIDE, i]], theme.line, 0.25);
  }
  ZONE_CELLS.forEach(([column, row], k) => {
    view.box(column, row, 1, 1, withAlpha(QUARTET[k], 0.2));
    view.box(column + 0.08, row + 0.08, 0.84, 0.84, null, withAlpha(QUARTET[k], 0.6), 0.4, 0.6);
  });
  AMMO_CELLS.forEach((cells, k) => cells.forEach(([column, row]) => {
    view.box(column, row, Math.min(1, SIDE - column), Math.min(1, SIDE - row), withAlpha(QUARTET[k], 0.06));
    for (const dx of [-0.16, 0, 0.16]) {
      view.box(column + 0.45 + dx, row + 0.34, 0.1, 0.26, withAlpha(QUARTET[k], 0.65), null, 0, 0.8);
    }
  }));
  view.box(0, 0, SIDE, SIDE, null, theme.pale, 0.4);
  if (goal >= 0) {
    const [column, row] = ZONE_CELLS[goal];
    view.box(column - 0.05, row - 0.05, 1.1, 1.1, null, theme.ink, 0.7, 1.2);
    view.disc(...CORNERS[goal], 0.36, null, theme.ink, 0.7);
  }
}

function drawGunner(view, obs, theme, task) {
  const goal = task ? Math.min(3, Math.floor((task.extra[0] * 1000 + 1) / 250)) : -1;
  drawGunnerFloor(view, theme, goal);
  const [x, y, px, py, grip, angle] = [obs[4], obs[5], obs[10], obs[11], obs[12], obs[17]];
  const targets = obs.slice(13, 17), ammo = obs.slice(6, 10);
  CORNERS.forEach(([cx, cy], k) => {
    const hit = targets[k] > 0.5;
    view.disc(cx, cy, 0.24, hit ? QUARTET[k] : theme.paper, QUARTET[k], 0.8);
    view.disc(cx, cy, 0.11, hit ? theme.paper : QUARTET[k]);
  });
  obs.slice(0, 4).forEach((on, k) => {
    if (on > 0.5) view.box(ZONE_CELLS[k][0] + 0.04, ZONE_CELLS[k][1] + 0.04, 0.92, 0.92, null, QUARTET[k], 1.2, 0.8);
  });
  const hit = targets.findIndex((on) => on > 0.5), aimed = hit >= 0 ? QUARTET[hit] : theme.ink;
  const cone = [-AIM, AIM].map((side) => [x + 0.85 * Math.sin(angle + side), y + 0.85 * Math.cos(angle + side)]);
  view.polygon([[x, y], ...cone], withAlpha(aimed, 0.12));
  view.line([[x, y], [x + Math.sin(angle), y + Math.cos(angle)]], aimed, 0.8);
  view.line([[x, y], [px, py]], theme.pale, 0.6);
  const gap = 0.1 + 0.1 * grip, held = ammo.findIndex((on) => on > 0.5);
  for (const sign of [-1, 1]) {
    const gx = px + sign * gap;
    view.line([[gx - sign * 0.07, py + 0.12], [gx, py + 0.12], [gx, py - 0.12], [gx - sign * 0.07, py - 0.12]], theme.ink, 0.9);
  }
  view.disc(px, py, 0.09, held >= 0 ? QUARTET[held] : theme.paper, theme.ink, 0.4);
  view.polygon(starPoints(x, y, 0.25), "#ffd646", theme.ink, 0.7);
}

function drawParticles(view, obs, theme, task, hello) {
  const marks = task ? task.extra.slice(0, 10) : [];
  const poison = task && task.name.includes("-fp-");
  const agents = Array.from({ length: 10 }, (_, i) => obs.slice(7 * i, 7 * i + 7));
  const colours = agents.map((_, i) => agentColour(hello, i));
  view.box(-1, -1, 2, 2, null, theme.pale, 0.4);
  agents.forEach(([distance, , , x, y, sx, sy], i) => {
    const near = distance < NEAR;
    view.disc(sx, sy, NEAR, null, withAlpha(colours[i], near ? 0.35 : 0.1), 0.25);
    view.line([[x, y], [sx, sy]], withAlpha(colours[i], near ? 0.7 : 0.25), near ? 0.5 : 0.3);
  });
  agents.forEach(([distance, , , , , sx, sy], i) => {
    const near = distance < NEAR;
    if (marks[i] > 0.5) view.disc(sx, sy, 0.115, null, poison ? "#c62f2f" : theme.ink, 0.7);
    view.box(sx - 0.058, sy - 0.058, 0.116, 0.116, near ? colours[i] : withAlpha(colours[i], 0.18), colours[i], 0.5, 0.6);
    view.label(sx, sy, String(i), near ? "#ffffff" : colours[i], 0.08);
  });
  agents.forEach(([, vx, vy, x, y], i) => {
    view.line([[x, y], [x + 0.15 * vx, y + 0.15 * vy]], theme.ink, 0.6);
    view.disc(x, y, 0.062, colours[i], theme.paper, 0.5);
    view.label(x, y, String(i), "#ffffff", 0.08);
  });
}

function agentColour(hello, agent) {
  const plane = hello.env.planes.find((one) => one.name === `agent_${agent}`);
  return plane ? hello.env.factors[plane.factor].colour : "#777777";
}

// Positions seen from above, for environments that have planes but are shown as images or plots.
export function planeBox(hello, trail) {
  const plane = hello.env.planes[0];
  if (!plane.open) return [plane.low, plane.high];
  const reach = Math.max(1.5, ...trail.map((obs) => Math.max(Math.abs(obs[plane.x]), Math.abs(obs[plane.y])))) * 1.15;
  return [-reach, reach];
}

// The factors over time: one strip for each, with a line for each of its dimensions.
function drawPlots(context, width, height, hello, trail, theme) {
  const factors = hello.env.factors, rows = trail.slice(-200), pad = 14;
  const strip = (height - 2 * pad) / factors.length;
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "top";
  factors.forEach((factor, row) => {
    const top = pad + row * strip, colour = visible(factor.colour, theme);
    const indices = factor.own && factor.own.length ? factor.own : factor.indices;
    const values = rows.flatMap((obs) => indices.map((i) => obs[i]));
    const low = Math.min(...values), high = Math.max(...values), span = Math.max(high - low, 1e-6);
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(pad, top + 18, width - 2 * pad, strip - 26);
    context.fillStyle = colour;
    context.textAlign = "left";
    context.fillText(factor.name, pad, top);
    context.fillStyle = theme.pale;
    context.textAlign = "right";
    if (rows.length) context.fillText(`${low.toPrecision(3)} to ${high.toPrecision(3)}`, width - pad, top);
    indices.forEach((index, number) => {
      context.beginPath();
      rows.forEach((obs, t) => {
        const x = pad + ((width - 2 * pad) * t) / 199, y = top + 18 + (strip - 26) * (0.94 - (0.88 * (obs[index] - low)) / span);
        if (t) context.lineTo(x, y);
        else context.moveTo(x, y);
      });
      context.strokeStyle = withAlpha(colour, 1 - (0.6 * number) / indices.length);
      context.lineWidth = 1.5;
      context.stroke();
    });
  });
}

// Past positions of every handle or plane, older ones paler.
function drawTrails(view, hello, trail, theme, selected) {
  const lines = hello.handles.length
    ? hello.handles.filter((h) => h.kind === "point").map((h) => ({ x: h.x, y: h.y, colour: hello.parts[h.part].colour, part: h.part }))
    : hello.env.planes.filter((p) => p.x !== p.y).map((p) => ({ x: p.x, y: p.y, colour: hello.env.factors[p.factor].colour, part: p.factor }));
  const many = lines.length > 4, pieces = 16;
  for (const line of lines) {
    const colour = visible(line.colour, theme), strength = many && line.part !== selected ? 0.25 : 0.7;
    for (let piece = 0; piece < pieces; piece++) {
      const [first, last] = [piece, piece + 1].map((k) => Math.floor(((trail.length - 1) * k) / pieces));
      const rows = trail.slice(first, last + 1).map((obs) => [obs[line.x], obs[line.y]]);
      if (rows.length > 1) view.line(rows, withAlpha(colour, strength * ((piece + 1) / pieces) ** 1.5), many ? 0.45 : 0.7, [], "butt");
    }
  }
}

// Trails and goals of a simulation, on its ground.
function drawOnGround(context, shown, theme, view, ground) {
  const { hello, obs, trail, goals, selected } = shown;
  const line = (points, colour, width) => {
    context.beginPath();
    let drawn = false;
    for (const [x, y] of points) {
      const seen = view.depth([x, y, ground]) > 0.05, at = view.project([x, y, ground]);
      if (seen && drawn) context.lineTo(at.x, at.y);
      else if (seen) context.moveTo(at.x, at.y);
      drawn = seen;
    }
    Object.assign(context, { strokeStyle: colour, lineWidth: width, lineJoin: "round" });
    context.stroke();
  };
  for (const plane of hello.env.planes) {
    const colour = visible(hello.env.factors[plane.factor].colour, theme), chosen = hello.parts[selected].factor;
    const strength = hello.env.planes.length > 1 && chosen !== null && chosen !== plane.factor ? 0.35 : 0.8;
    line([...trail, obs].map((row) => [row[plane.x], plane.x === plane.y ? 0 : row[plane.y]]), withAlpha(colour, strength), 2);
  }
  for (const handle of hello.handles) {
    const goal = goals[handle.part];
    if (!goal || !goal.to) continue;
    const [x, y] = handle.y === null ? [goal.to[0], 0] : goal.to, r = 0.02 * hello.scene.bodies.camera.distance;
    const colour = visible(hello.parts[handle.part].colour, theme), ring = Array.from({ length: 33 }, (_, i) => (2 * Math.PI * i) / 32);
    line(ring.map((a) => [x + r * Math.cos(a), y + r * Math.sin(a)]), colour, 3);
    line(ring.map((a) => [x + 2.2 * r * Math.cos(a), y + 2.2 * r * Math.sin(a)]), colour, 1.5);
  }
}

// What a click means: a place of the small map, or of the ground.
function drawBodies(context, width, height, shown, theme) {
  const { hello, painter, camera, poses } = shown, { ground } = hello.scene.bodies;
  const view = camera.view(poses, width, height, ground), known = hello.scene.ground && ground !== null;
  painter.draw(context, view, poses, theme.dark, known ? () => drawOnGround(context, shown, theme, view, ground) : null);
  const inset = hello.env.planes.length ? drawInset(context, width, height, shown, theme) : null;
  return { from: (x, y) => (inset && inset.from(x, y)) || (known && view.onGround(x, y, ground)) || null };
}

function drawGoals(view, hello, goals, obs, theme) {
  for (const handle of hello.handles) {
    const goal = goals[handle.part];
    if (!goal || !goal.to) continue;
    const colour = visible(hello.parts[handle.part].colour, theme), [x, y] = goal.to, r = 2.2 * view.unit / view.scale;
    view.disc(x, y, r, null, colour, 0.6);
    view.line([[x - 1.5 * r, y], [x + 1.5 * r, y]], colour, 0.4);
    view.line([[x, y - 1.5 * r], [x, y + 1.5 * r]], colour, 0.4);
    const from = handle.kind === "point" ? [obs[handle.x], obs[handle.y]] : handle.origin.map((i) => obs[i]);
    view.line([from, [x, y]], withAlpha(colour, 0.5), 0.35, [1, 1]);
  }
}

const SCENES = { gunner: [0, SIDE, drawGunner], multi_particle: [-1, 1, drawParticles] };

// Draw one frame. `shown` has hello, obs, trail, goals, selected, task, and an image or painter, camera and poses; the answer
// maps pixels to the environment.
export function drawScene(context, width, height, shown) {
  const theme = themeColours(), { hello, obs, trail } = shown;
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, width, height);
  const known = SCENES[hello.scene.kind];
  if (known) {
    const view = new View(context, width, height, known[0], known[1]);
    drawTrails(view, hello, trail, theme, shown.selected);
    known[2](view, obs, theme, shown.task, hello);
    drawGoals(view, hello, shown.goals, obs, theme);
    return view;
  }
  if (hello.scene.kind === "bodies") return drawBodies(context, width, height, shown, theme);
  if (hello.scene.kind === "image" && shown.image && shown.image.width) {
    const size = Math.min(width, height);
    context.drawImage(shown.image, (width - size) / 2, (height - size) / 2, size, size);
  } else if (hello.scene.kind !== "image") {
    drawPlots(context, width, height, hello, [...trail, obs], theme);
  }
  return hello.env.planes.length && hello.scene.kind === "image" ? drawInset(context, width, height, shown, theme) : null;
}

// Positions from above in a corner; its view is that of the whole drawing, null outside of the corner.
function drawInset(context, width, height, shown, theme) {
  const { hello, obs, trail } = shown, size = Math.min(width, height), side = size * 0.24, gap = size * 0.02;
  const [low, high] = planeBox(hello, [...trail, obs]);
  const left = hello.scene.kind === "bodies" ? width - side - gap : (width + size) / 2 - side - gap, top = (height - size) / 2 + gap;
  context.save();
  context.translate(left, top);
  context.fillStyle = withAlpha(theme.paper, 0.86);
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(0, 0, side, side, 6);
  context.fill();
  context.stroke();
  context.clip();
  const view = new View(context, side, side, low, high);
  view.unit = size / 130;
  for (const plane of hello.env.planes) {
    const colour = visible(hello.env.factors[plane.factor].colour, theme);
    const rows = [...trail, obs].map((row) => [row[plane.x], plane.x === plane.y ? 0 : row[plane.y]]);
    view.line(rows, withAlpha(colour, 0.6), 0.5);
    const [x, y] = rows[rows.length - 1];
    context.fillStyle = colour;
    context.beginPath();
    context.arc(...view.at(x, y), 3, 0, 2 * Math.PI);
    context.fill();
  }
  for (const handle of hello.handles) {
    const goal = shown.goals[handle.part];
    if (goal && goal.to) view.disc(goal.to[0], handle.y === null ? 0 : goal.to[1], (4 * view.unit) / view.scale, null, visible(hello.parts[handle.part].colour, theme), 1.2);
  }
  context.restore();
  const inside = (x, y) => x >= left && y >= top && x <= left + side && y <= top + side;
  return { from: (x, y) => (inside(x, y) ? view.from(x - left, y - top) : null) };
}
