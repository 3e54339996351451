// High-level policies: one network of the whole view, or one that is shared by all factors (susd/downstream/entity.py).

import { Actor, Mlp, floats } from "./networks.js";

/** The mean high-level action for a view, which is the observation and the extra observation of the task. */
export class HighLevelActor {
  constructor({ actor, tokens, embed, views }) {
    Object.assign(this, { actor: new Actor(actor), tokens, views, embed: embed && new Mlp(embed.network, floats(embed.values)) });
    this.widest = tokens && Math.max(...tokens.own.map((indices) => indices.length));
  }

  act(seen) {
    const view = this.views ? Array.from(seen, (x, i) => (x - this.views.mean[i]) / this.views.std[i]) : seen;
    if (!this.tokens) return this.actor.act(view, []);
    const tokens = this.tokens.own.map((_, factor) => this.token(view, factor));
    const context = this.embed ? this.context(tokens) : [];
    return Float32Array.from(tokens.flatMap((token) => [...this.actor.act([...token, ...context], [])]));
  }

  /** What a factor sees: its own dimensions, what all share, which factor it is, and whether it counts. */
  token(view, factor) {
    const { own, shared, counts } = this.tokens;
    const values = own[factor].map((index) => view[index]);
    const padding = Array(this.widest - values.length).fill(0);
    return [...values, ...padding, ...shared.map((index) => view[index]), ...own.map((_, i) => (i === factor ? 1 : 0)), counts[factor] ? 1 : 0];
  }

  /** The mean of all embedded tokens. */
  context(tokens) {
    const embedded = tokens.map((token) => [...this.embed.run(Float32Array.from(token))]);
    return embedded[0].map((_, d) => embedded.reduce((sum, one) => sum + Math.max(one[d], 0), 0) / tokens.length);
  }
}
