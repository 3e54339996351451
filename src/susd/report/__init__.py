"""One page from recorded results. The module is also the function: `susd.report(["runs/gunner-susd"])`."""

from susd.callable import make_callable

make_callable(__name__, "susd.report.build:report")
