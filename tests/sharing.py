"""Equal trainers, controllers and tasks share compiled programs: tracing a tiny program takes longer than running it."""

import dataclasses
from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any

PROGRAMS: dict[Hashable, Any] = {}


def shared(name: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """What was made for an equal key before; keys without a hash, such as some environments, share nothing."""
    try:
        known = (name, key) in PROGRAMS
    except TypeError:
        return make()
    if not known:
        PROGRAMS[name, key] = make()
    return PROGRAMS[name, key]


def share(owner: type, name: str, key: Callable[[Any], Hashable]) -> None:
    """From now on a cached property is made once for all equal owners."""
    make = owner.__dict__[name].func
    found = cached_property(lambda self: shared(f"{owner.__name__}.{name}", key(self), lambda: make(self)))
    found.__set_name__(owner, name)
    setattr(owner, name, found)


def install() -> None:
    """Share the programs that many tests compile. The key of each has everything that its program depends on."""
    from susd.downstream.controller import Controller
    from susd.downstream.vector import JaxVectorTask
    from susd.evaluation import online
    from susd.training.agent import Agent
    from susd.training.trainer import Trainer

    share(Trainer, "_epoch", _training)
    share(Trainer, "_compiled_act", _learning)
    share(Trainer, "_host_act", _learning)
    share(Trainer, "_host_learn", lambda trainer: (_learning(trainer), repr(trainer.env.spec)))
    share(Trainer, "start", lambda trainer: (_training(trainer), trainer.config.seed))
    for name in ("_train_fused", "_act"):
        share(Controller, name, _controlling)
    share(Controller, "_mean", lambda _: ())
    for name in ("_reset", "_step", "_expert"):
        share(JaxVectorTask, name, lambda vector: vector.task)
    for name in ("_encode", "_skill_between"):
        share(Agent, name, lambda agent: agent.trainer.learner.method)
    untrained = Agent.untrained_actor
    Agent.untrained_actor = lambda agent: shared(
        "Agent.untrained_actor", (_learning(agent.trainer), agent.seed), lambda: untrained(agent)
    )
    of_skills = online._of_skills
    online._of_skills = lambda trainer: shared("online", _training(trainer), lambda: of_skills(trainer))


def _learning(trainer: Any) -> Hashable:
    """What is learned, with any seed: seeds are arguments."""
    from susd.training.trainer import learning_hash

    others = (getattr(trainer, field.name) for field in dataclasses.fields(trainer) if field.name not in ("config", "env"))
    return learning_hash(dataclasses.replace(trainer.config, seed=0)), *others


def _training(trainer: Any) -> Hashable:
    return _learning(trainer), trainer.env


def _controlling(controller: Any) -> Hashable:
    """A controller; the policy of its skills is a function of their trainer."""
    interface, policy = controller.interface, getattr(controller.interface, "policy", None)
    if isinstance(policy, partial):
        interface = (type(interface), interface.duration, _learning(policy.func.__self__))
    return dataclasses.replace(controller, interface=None), interface
