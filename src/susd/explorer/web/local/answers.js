// What the backends of an atlas share: how messages are answered, and measures of trajectories.

const SLOW = ["influence", "gallery", "maps"];

/** A backend whose method `answer(message)` gives the answer to a request, or throws an error with a sentence. */
export class Answers {
  constructor(hello) {
    this.hello = hello;
    this.closed = false;
    this.onmessage = () => {};
    this.onclose = () => {};
    queueMicrotask(() => this.deliver(hello));
  }

  deliver(message) {
    if (!this.closed) this.onmessage(message);
  }

  /** Answered later, like a message from a server; slow requests after what the page is doing. */
  send(message) {
    const later = SLOW.includes(message.type) ? setTimeout : queueMicrotask;
    later(async () => {
      try {
        this.deliver({ ...(await this.answer(message)), id: message.id });
      } catch (error) {
        this.deliver({ type: "error", id: message.id ?? null, message: error.message });
      }
    });
  }

  close() {
    this.closed = true;
  }
}

/** For every factor: how far trajectories are from a reference, as a share of how far unrelated ones are from theirs. */
export function shares(hello, varied, other, reference) {
  return hello.env.factors.map(({ indices, own }) => {
    const mean = (paths) => {
      let [sum, count] = [0, 0];
      paths.forEach((path, k) => path.slice(1).forEach((obs, t) => {
        const base = reference(k)[t + 1];
        sum += Math.hypot(...(own ?? indices).map((i) => obs[i] - base[i]));
        count += 1;
      }));
      return sum / count;
    };
    const whole = mean(other);
    return whole > 1e-5 ? mean(varied) / whole : 0;
  });
}

/** Trajectories as the gallery draws them: in the planes of the environment, and in the first two dimensions of phi. */
export function drawn(hello, paths, phi) {
  const pair = (x, y, t) => [x, y ?? t];
  const { planes } = hello.env;
  return {
    paths: paths.map((path) => planes.map(({ x, y }) => path.map((obs, t) => pair(obs[x], x === y ? null : obs[y], t)))),
    phi: phi && phi.map((path) => hello.parts.map(({ at, dim }) => path.map((z, t) => pair(z[at], dim > 1 ? z[at + 1] : null, t)))),
  };
}
