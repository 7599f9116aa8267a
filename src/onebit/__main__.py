"""Run the command line: ``python -m onebit``."""

from onebit.cli import main

main()
