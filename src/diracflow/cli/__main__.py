"""Run the command line: `python -m diracflow.cli`."""

from .app import main

main()
