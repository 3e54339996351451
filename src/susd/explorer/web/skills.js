// Skills: the nearest one of the prior, random ones, and how they are written.

export function partOf(hello, skill, part) {
  const { at, dim } = hello.parts[part];
  return skill.slice(at, at + dim);
}

export function lengthOf(values) {
  return Math.hypot(...values);
}

function unitVector(values) {
  const length = lengthOf(values);
  return length > 1e-8 ? values.map((x) => x / length) : values.map((_, i) => (i === 0 ? 1 : 0));
}

function projectPart(prior, values) {
  if (prior === "factor_sphere") return unitVector(values);
  if (prior === "factor_ball") return values.map((x) => x / Math.max(1, lengthOf(values)));
  if (prior === "one_hot") {
    const best = values.indexOf(Math.max(...values));
    return values.map((_, i) => (i === best ? 1 : 0));
  }
  return values;
}

// Values that fit into a link without loss: four decimals are finer than a pixel.
export function roundSkill(values) {
  return values.map((x) => Math.round(x * 1e4) / 1e4);
}

// The nearest skill of the prior.
export function project(hello, skill) {
  if (hello.prior === "sphere") return unitVector(skill);
  return hello.parts.flatMap((_, part) => projectPart(hello.prior, partOf(hello, skill, part)));
}

export function normalSample() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

// Other values for one part; the whole skill stays one of the prior.
export function randomPart(hello, skill, part) {
  const { at, dim } = hello.parts[part];
  let fresh = Array.from({ length: dim }, normalSample);
  if (hello.prior === "factor_ball") fresh = unitVector(fresh).map((x) => x * Math.sqrt(Math.random()));
  return project(hello, [...skill.slice(0, at), ...fresh, ...skill.slice(at + dim)]);
}

export function withPart(hello, skill, part, values) {
  const { at, dim } = hello.parts[part];
  return project(hello, [...skill.slice(0, at), ...values, ...skill.slice(at + dim)]);
}

// A skill of the first run for another one: parts of the same name, the same vector where it fits, else the selected part.
export function translate(from, to, skill, selected) {
  const names = from.parts.map((part) => part.name);
  const size = to.parts.length * to.parts[0].dim;
  if (to.parts.every((part) => names.includes(part.name) && from.parts[names.indexOf(part.name)].dim === part.dim)) {
    return project(to, to.parts.flatMap((part) => partOf(from, skill, names.indexOf(part.name))));
  }
  if (skill.length === size) return project(to, skill);
  const chosen = partOf(from, skill, selected);
  return project(to, Array.from({ length: size }, (_, i) => chosen[i % chosen.length] * (i < chosen.length || to.parts.length > 1 ? 1 : 0)));
}

export function degrees(values) {
  return ((Math.atan2(values[1], values[0]) * 180) / Math.PI + 360) % 360;
}

export function describePart(part, values) {
  if (part.kind === "buttons") return `skill ${values.indexOf(Math.max(...values)) + 1}`;
  if (part.kind === "ring") return `${Math.round(degrees(values))}°`;
  if (part.kind === "disc") {
    const pace = lengthOf(values);
    return pace < 0.005 ? "at rest" : `${Math.round(degrees(values))}° · ${pace.toFixed(2)}`;
  }
  return values.map((x) => x.toFixed(2)).join(", ");
}
