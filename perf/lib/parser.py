"""The command line of tools whose exit code for a wrong one is the program's."""
import argparse
import sys

from lib.program import USAGE


class Parser(argparse.ArgumentParser):
    """Shows the tool's docstring as it is; ends the tool with USAGE where argparse would end it with 2."""

    def __init__(self, prog, description, **options):
        super().__init__(prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")
