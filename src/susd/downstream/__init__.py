"""Tasks learned over frozen skills. `susd.downstream(run, task)` is also the public function."""

from susd.callable import make_callable

make_callable(__name__, "susd.downstream.train:downstream")
