"""`python -m susd.cli`."""

from susd.cli.main import main

main()
