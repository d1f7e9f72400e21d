"""The command line, as `python -m corral.cli`."""

from corral.cli import main

main()
