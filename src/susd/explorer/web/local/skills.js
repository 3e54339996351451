// The skill space: z = (z^1 .. z^N), one part of D dimensions per factor. The counterpart of susd/skills.py.

const REST = 0.25; // share of the parts of a `factor_ball` skill that are zero

const norm = (vector) => Math.hypot(...vector);

function unit(vector) {
  const length = norm(vector);
  return length > 1e-8 ? vector.map((x) => x / length) : vector.map((_, i) => (i ? 0 : 1));
}

function oneHot(vector) {
  const best = vector.indexOf(Math.max(...vector));
  return vector.map((_, i) => (i === best ? 1 : 0));
}

/** Skills of `parts` x `dim` dimensions; `prior` is one of those of Python's SkillSpace. */
export class SkillSpace {
  constructor({ prior, parts, dim }) {
    Object.assign(this, { prior, parts, dim, size: parts * dim });
    this.discrete = prior === "one_hot";
    this.paced = prior === "factor_ball";
  }

  /** A flat skill as a list of its parts. */
  split(skill) {
    return Array.from({ length: this.parts }, (_, i) => [...skill.slice(i * this.dim, (i + 1) * this.dim)]);
  }

  /** A random skill. */
  sample(random) {
    if (!this.paced) return this.project([...random.normal(this.size)]);
    return Array.from({ length: this.parts }, () => this.ball(random)).flat();
  }

  ball(random) {
    const length = random.uniform() < REST ? 0 : random.uniform() ** (1 / this.dim);
    return unit([...random.normal(this.dim)]).map((x) => length * x);
  }

  /** The nearest skill of the space. */
  project(vector) {
    if (this.prior === "gaussian") return [...vector];
    if (this.prior === "sphere") return unit([...vector]);
    const nearest = { factor_sphere: unit, one_hot: oneHot, factor_ball: (part) => part.map((x) => x / Math.max(norm(part), 1)) };
    return this.split(vector).flatMap(nearest[this.prior]);
  }

  /** The skill that moves every embedding along its step, in units of one time step; short steps slow a factor down. */
  towards(steps) {
    if (this.discrete) return this.project(steps.flat());
    const full = { sphere: this.parts ** -0.5, gaussian: this.dim ** 0.5 }[this.prior] ?? 1;
    return steps.flatMap((step) => step.map((x) => (full * x) / Math.max(norm(step), 1)));
  }

  /** The skill with one part redrawn and all others kept; the result is a skill of the space. */
  vary(random, skill, part) {
    const parts = this.split(skill);
    const drawn = [...random.normal(this.dim)];
    if (this.discrete) parts[part] = oneHot(drawn);
    else if (this.paced) parts[part] = this.ball(random);
    else if (this.prior === "gaussian") parts[part] = drawn;
    else parts[part] = unit(drawn).map((x) => x * norm(parts[part])); // a new direction with the old length
    return parts.flat();
  }

  /** The skill that leads from an embedding to a goal, both flat; `step` is how far a time step moves each part. */
  between(phi, goal, step) {
    const here = this.split(phi);
    return this.towards(this.split(goal).map((part, i) => part.map((x, d) => (x - here[i][d]) / step[i])));
  }
}
