"""The methods by name: what each maximises, which options it has, and where its defaults differ. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]

# Options of `Config` that only some methods have; every other option belongs to the shared learner.
FACTORED = frozenset({"factors", "critic"})
DUAL = frozenset({"lambda_init", "slack", "dual_learning_rate"})
DENSITY = frozenset({"density_hidden", "min_std"})
PER_FACTOR = frozenset({"constraint", "share_agent", "weight_scope", "critic"})  # what a single embedding has not
SUSD_OPTIONS = frozenset({"embedding", "weight"}) | FACTORED | PER_FACTOR | DUAL | DENSITY
FACTORS_NEEDED = SUSD_OPTIONS - {"embedding"}  # of variants that are none with one embedding of the state
METHOD_OPTIONS = SUSD_OPTIONS | {"distance", "disentangle", "features"}


@dataclass(frozen=True)
class Card:
    """One method, or a variant of one that fixes some of its options."""

    name: str
    summary: str
    source: str
    objective: str
    constraint: str
    weight: str
    reward: str
    options: frozenset[str]
    priors: tuple[str, ...]
    base: str = ""  # the method whose code a variant runs
    fixed: Values = field(default_factory=dict)  # what makes it the variant that it is
    paper: Values = field(default_factory=dict)  # its own defaults in the preset `paper`
    quick: Values = field(default_factory=dict)  # its own defaults in the preset `quick`, on top of the shared ones
    own: Mapping[str, Values] = field(default_factory=dict)  # and by environment, in `paper`
    quick_own: Mapping[str, Values] = field(default_factory=dict)  # and in `quick`

    @property
    def code(self) -> str:
        """The method whose code it runs."""
        return self.base or self.name

    @property
    def prior(self) -> str:
        """Where its skills come from, in words."""
        parts = (
            "one part per factor" if "factors" in self.options and self.fixed.get("embedding") != "state" else "one part"
        )
        return f"{parts}: {' or '.join(self.priors)}"


def _variant(of: Card, name: str, summary: str, fixed: Values, **changes: Any) -> Card:
    """A card like another, with some options fixed."""
    defaults = {key: {**getattr(of, key), **changes.get(key, {})} for key in ("paper", "quick")}
    return dataclasses.replace(of, name=name, summary=summary, base=of.name, fixed=fixed, **(changes | defaults))


CONTINUOUS = ("sphere", "gaussian")
TEMPORAL = "mean_d (phi(s') - phi(s))_d^2 <= 1, by dual descent on lambda"
STATE_OBJECTIVE = "max E[<phi(s') - phi(s), z>], one phi of the whole state"
STATE_REWARD = "<phi(s') - phi(s), z>"
SPHERE = {"prior": "sphere", "phi_hidden": 128}  # one network of the whole state is as wide as the actor
LONGER = {"gunner": {"discount": 0.85}}

SUSD = Card(
    "susd",
    "one embedding per factor, curiosity per factor",
    "Hosseini and Soleymani Baghshah, ICLR 2026",
    objective="max E[sum_i <phi_i(s'^i) - phi_i(s^i), z^i>], one phi_i per factor",
    constraint="mean square of phi_i(s'^i) - phi_i(s^i) <= 1, of all factors or of each, by dual descent on lambda",
    weight="w_i = sqrt(1/S sum_{d in factor i} kappa_d): the surprise of a density model q(delta s | s) about factor i",
    reward="sum_i w_i <phi_i(s'^i) - phi_i(s^i), z^i>",
    options=SUSD_OPTIONS,
    priors=("sphere", "factor_sphere", "gaussian", "one_hot"),
)
METRA = Card(
    "metra",
    "one embedding, temporal distance; the paper's SUSD-wf is this with D = 2",
    "Park, Rybkin and Levine, ICLR 2024",
    objective=STATE_OBJECTIVE,
    constraint=TEMPORAL,
    weight="none",
    reward=STATE_REWARD,
    options=DUAL,
    priors=CONTINUOUS,
    paper={"lambda_init": 30.0, "slack": 1e-3},
    quick=SPHERE,
    quick_own=LONGER,
)
LSD = Card(
    "lsd",
    "one embedding that is 1-Lipschitz in the state",
    "Park, Choi, Kim, Lee and Kim, ICLR 2022",
    objective=STATE_OBJECTIVE,
    constraint="||phi(s') - phi(s)|| <= ||s' - s|| by spectral normalisation of every layer",
    weight="none",
    reward=STATE_REWARD,
    options=frozenset(),
    priors=CONTINUOUS,
    quick=SPHERE,
    quick_own=LONGER,
)
CSD = Card(
    "csd",
    "one embedding, distance by how unlikely a transition is",
    "Park, Lee, Lee and Abbeel, ICML 2023",
    objective=STATE_OBJECTIVE,
    constraint="mean_d (phi(s') - phi(s))_d^2 <= mean_d kappa_d of a density q(delta s | s), by dual descent on lambda",
    weight="none; the surprise is in the constraint",
    reward=STATE_REWARD,
    options=DUAL | DENSITY | {"distance"},
    priors=CONTINUOUS,
    quick={**SPHERE, "distance": "mean"},
    quick_own=LONGER,
)
DIAYN = Card(
    "diayn",
    "skills that a discriminator recognises in the next state",
    "Eysenbach, Gupta, Ibarz and Levine, ICLR 2019",
    objective="max E[log q(z | s')], q a diagonal Gaussian or a softmax",
    constraint="none",
    weight="none",
    reward="log q(z | s'), with + log K for one_hot skills",
    options=frozenset({"min_std"}),
    priors=("gaussian", "one_hot"),
    paper={"prior": "gaussian"},
    quick={"prior": "gaussian", "phi_hidden": 128, "min_std": 0.1},
)
DUSDI = Card(
    "dusdi",
    "one choice per factor, recognised in that factor and in no other",
    "Hu, Wang, Stone and Martin-Martin, NeurIPS 2024",
    objective="max E[sum_i log q_i(z^i | x_i')], x_i what is seen of factor i; q_i(z^i | x_j, j != i) is fitted beside it",
    constraint="none",
    weight="none",
    reward="sum_i log q_i(z^i | x_i') + log K - beta (log q_i(z^i | x_j', j != i) + log K)",
    options=FACTORED | {"disentangle", "features"},
    priors=("one_hot",),
    paper={
        "prior": "one_hot",
        "skill_dim": 5,
        "critic": "decomposed",
        "disentangle": 0.1,
        "discount": 0.95,
        "adaptive_alpha": False,
    },
    quick={"prior": "one_hot", "adaptive_alpha": True},
    own={
        "multi_particle": {"alpha_init": 0.3},
        "ant": {"disentangle": 0.0},  # one factor: there is no other
        "half_cheetah": {"disentangle": 0.0},
    },
)
METHODS: dict[str, Card] = {
    card.name: card
    for card in (
        SUSD,
        _variant(SUSD, "susd-w", "SUSD without the curiosity weight", {"weight": "none"}, weight="none"),
        _variant(
            SUSD,
            "susd-wf",
            "SUSD with neither weight nor factors, skills of the same N * D dimensions: the clean ablation",
            {"weight": "none", "embedding": "state"},
            objective=STATE_OBJECTIVE,
            constraint=TEMPORAL,
            weight="none",
            reward=STATE_REWARD,
            priors=CONTINUOUS,
            quick=SPHERE,
            quick_own=LONGER,
        ),
        _variant(
            SUSD,
            "susd-shared",
            "SUSD with one weight for all factors",
            {"weight_scope": "state"},
            weight="w = sqrt(1/S sum_d kappa_d) for every factor: the distance of CSD",
            options=FACTORS_NEEDED,
        ),
        _variant(
            SUSD,
            "susd-discrete",
            "SUSD with one choice per factor",
            {"prior": "one_hot"},
            reward="sum_i w_i (delta_i[k] - 1/(D-1) sum_{j != k} delta_i[j]), delta_i = phi_i(s'^i) - phi_i(s^i)",
            options=FACTORS_NEEDED,
            priors=("one_hot",),
            paper={"skill_dim": 5},
        ),
        _variant(
            SUSD,
            "susd-q",
            "SUSD with one critic head per factor",
            {"critic": "decomposed"},
            options=FACTORS_NEEDED,
        ),
        METRA,
        LSD,
        CSD,
        DIAYN,
        _variant(
            DIAYN,
            "diayn-discrete",
            "DIAYN with a choice among K skills",
            {"prior": "one_hot"},
            objective="max E[log q(z | s')], q a softmax",
            reward="log q(z | s') + log K",
            priors=("one_hot",),
            paper={"skill_dim": 16},
        ),
        DUSDI,
    )
}


def options_of(values: Values) -> frozenset[str]:
    """The options of METHOD_OPTIONS that do something, given the method and the choices made so far."""
    card = METHODS[values["method"]]
    options = set(card.options)
    if values.get("weight") == "none":  # nothing asks for a density
        options -= DENSITY | {"weight_scope"} if card.code == "susd" else set()
    if values.get("embedding") == "state":
        options -= PER_FACTOR
    if card.code == "diayn" and values.get("prior") == "one_hot":
        options -= {"min_std"}
    return frozenset(options)


def having(option: str) -> str:
    """The methods that have an option, for a sentence."""
    cards = (card for card in METHODS.values() if option in options_of({"method": card.name, **card.fixed}))
    return ", ".join(card.name for card in cards if option not in card.fixed)
