"""What the commands of a study have in common on the command line: values of options, and exit codes of what is refused."""
import argparse
import os
import sys

from lib.program import USAGE, Refused


def rank_list(text):
    try:
        ranks = [int(word) for word in text.split(",")]
    except ValueError:
        ranks = []
    if not ranks or min(ranks) < 1 or len(set(ranks)) < len(ranks):
        raise argparse.ArgumentTypeError(f"{text} is no list of different numbers of ranks like 1,2,4")
    return sorted(ranks)


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


def share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number between 0 and 1")
    return value


def parser_of(text):
    """\\param text  of --help"""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
                                   prog=f"perf/study/{os.path.basename(sys.argv[0])}")


def add_program(parser):
    parser.add_argument("--program", default="trainstone", help="a command that this machine finds (default: %(default)s)")


def add_predict(parser):
    parser.add_argument("--predict", type=rank_list, default=[], help="numbers of ranks like 16,32 that are priced, too")


def end_by(parser, command):
    """Ends this program with the exit code of command()."""
    try:
        code = command()
    except Refused as reason:
        print(f"{parser.prog}: {reason}", file=sys.stderr)
        code = USAGE
    sys.exit(code)
