// Random numbers from a seed, the same in every browser.

/** A generator of uniform and normal numbers (mulberry32, Box-Muller), as a function of some integers. */
export class Random {
  constructor(...seeds) {
    this.state = seeds.reduce((state, seed) => Math.imul(state ^ seed, 0x9e3779b1) ^ (state >>> 15), 0x2545f491) >>> 0;
  }

  /** Uniform in [0, 1). */
  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let word = this.state;
    word = Math.imul(word ^ (word >>> 15), word | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return ((word ^ (word >>> 14)) >>> 0) / 4294967296;
  }

  /** `count` standard normal numbers. */
  normal(count) {
    return Float32Array.from({ length: count }, () => {
      const length = Math.sqrt(-2 * Math.log(1 - this.uniform()));
      return length * Math.cos(2 * Math.PI * this.uniform());
    });
  }
}
