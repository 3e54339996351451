"""Tasks learned over frozen skills."""

from susd.callable import make_callable

make_callable(__name__, "susd.downstream.config:downstream")
