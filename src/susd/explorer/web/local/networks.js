// The networks of a run in plain JavaScript: the tanh-Gaussian actor, and phi as one small network per factor.

/** The float32 values that a base64 text holds, little-endian. */
export function floats(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

const ACTIVATIONS = {
  relu: (values) => { for (let i = 0; i < values.length; i++) if (values[i] < 0) values[i] = 0; },
  tanh: (values) => { for (let i = 0; i < values.length; i++) values[i] = Math.tanh(values[i]); },
};

const word = new Float32Array(1);
const bits = new Uint32Array(word.buffer);

/** A number rounded to bfloat16, half to even. */
function bfloat16(value) {
  word[0] = value;
  bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
  return word[0];
}

/** A multilayer perceptron: layers of [in, out] weights and biases; the last one is linear. */
export class Mlp {
  constructor({ sizes, activation, precision = "float32" }, values, at = 0) {
    this.sizes = sizes;
    this.activate = ACTIVATIONS[activation];
    this.rounded = precision === "bfloat16";
    this.layers = sizes.slice(1).map((width, k) => {
      const weight = values.subarray(at, (at += sizes[k] * width));
      const bias = values.subarray(at, (at += width));
      return { weight: this.rounded ? weight.map(bfloat16) : weight, bias, out: new Float32Array(width) };
    });
    this.end = at;
  }

  /** The outputs for one input. The array is reused by the next call. */
  run(input) {
    this.layers.forEach((layer, k) => {
      if (this.rounded) input = Float32Array.from(input, bfloat16);
      const { weight, bias, out } = layer;
      const width = out.length;
      out.set(bias);
      let i = 0;
      for (; i + 3 < input.length; i += 4) { // four inputs at a time: a quarter of the passes over the outputs
        const [a, b, c, d] = [input[i], input[i + 1], input[i + 2], input[i + 3]];
        if (a === 0 && b === 0 && c === 0 && d === 0) continue;
        for (let j = 0, p = i * width, q = p + width, r = q + width, s = r + width; j < width; j++) {
          out[j] += a * weight[p + j] + b * weight[q + j] + c * weight[r + j] + d * weight[s + j];
        }
      }
      for (; i < input.length; i++) for (let j = 0; j < width; j++) out[j] += input[i] * weight[i * width + j];
      if (k + 1 < this.layers.length) this.activate(out);
      input = out;
    });
    return input;
  }
}

/** pi(a | s, z): a tanh-squashed Gaussian, whose network gives mean and log-std; the skill is scaled. */
export class Actor {
  constructor({ network, values, minLogStd, maxLogStd }, skillScale = 1) {
    this.network = new Mlp(network, floats(values));
    this.scale = skillScale;
    this.limits = [minLogStd, maxLogStd];
    this.input = new Float32Array(network.sizes[0]);
    this.actions = network.sizes.at(-1) / 2;
  }

  /** Mean and log-std of the Gaussian before the tanh. */
  distribution(obs, skill) {
    this.input.set(obs);
    for (let i = 0; i < skill.length; i++) this.input[obs.length + i] = Math.fround(skill[i]) * this.scale;
    const out = this.network.run(this.input);
    const [low, high] = this.limits;
    const logStd = out.slice(this.actions).map((value) => Math.min(Math.max(value, low), high));
    return { mean: out.slice(0, this.actions), logStd };
  }

  /** The mean action, or with standard normal noise a sampled one. */
  act(obs, skill, noise = null) {
    const { mean, logStd } = this.distribution(obs, skill);
    return mean.map((value, i) => Math.tanh(noise ? value + Math.exp(logStd[i]) * noise[i] : value));
  }
}

/** phi(s): one network per factor with its own inputs, or one of the whole state; outputs are concatenated. */
export class Phi {
  constructor(networks, values) {
    let at = 0;
    this.parts = networks.map((network) => {
      const mlp = new Mlp(network, values, at);
      at = mlp.end;
      return { mlp, inputs: network.inputs, x: new Float32Array(network.inputs.length) };
    });
  }

  /** The embedding of an observation. */
  encode(obs) {
    return Float32Array.from(this.parts.flatMap(({ mlp, inputs, x }) => {
      inputs.forEach((index, i) => { x[i] = obs[index]; });
      return [...mlp.run(x)];
    }));
  }
}
