"""Choices of a deck: what `perf/study/plan sweep` varies on one number of ranks.

Reads --vary KEY=VALUE,VALUE,..., and gives the combinations the names of their cells. A choice is a tuple of settings
KEY=VALUE. Whether a deck may have them is left to the program.
"""
import itertools
import re

from lib.program import Refused
from study.folder import WRITTEN, is_one_line

FORM = "must be KEY=VALUE,VALUE,...; a value may bring further keys: VALUE+KEY=VALUE"
SETTING = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.+)")
FIXED = {"batch.global", "batch.accumulation", "comm.expected_ranks"}  # the study sets them
LONGEST_NAME = 100  # of a cell: file systems allow 255, and more is added


def places_outside(text):
    """Places of the letters that are inside no brackets and no quotes. None if one of these has no other end."""
    places, depth, quote, escaped = [], 0, "", False
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and quote == '"' and not escaped
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif depth == 0:
            places.append(place)
        if depth < 0:
            return None
    return None if quote or depth else places


def cut(text, separator):
    """Parts between the matches of a pattern of one letter that are inside no brackets and no quotes."""
    places = places_outside(text)
    if places is None:
        raise Refused(f"--vary: {text}: every bracket and quote must have its other end")
    cuts = [place for place in places if re.compile(separator).match(text, place)]
    return [text[begin:end].strip() for begin, end in zip([0, *(place + 1 for place in cuts)], [*cuts, len(text)])]


def key_of(setting):
    return setting.partition("=")[0]


def keys_of(choices):
    """In their order, each once."""
    return list(dict.fromkeys(key_of(setting) for choice in choices for setting in choice))


def mesh_options(ranks):
    """The --vary of every shape of the mesh: tensor ranks and stages that divide the ranks, alone."""
    divisors = ",".join(str(number) for number in range(1, ranks + 1) if ranks % number == 0)
    return [f"parallel.tensor={divisors}", f"parallel.pipeline={divisors}"]


def check_choice(option, choice):
    """Raises Refused unless it has settings of different keys that a study may vary."""
    for setting in choice:
        if not SETTING.fullmatch(setting) or not is_one_line(setting):
            raise Refused(f"--vary {option}: {FORM}")
        key = key_of(setting)
        if key in FIXED or key in WRITTEN or key.startswith("checkpoint."):
            raise Refused(f"--vary {option}: {key} is not varied: a sweep keeps the ranks and the tokens of a step, and every "
                          "run has files of its own")
    if len(keys_of([choice])) < len(choice):
        raise Refused(f"--vary {option}: {text_of(choice)} has a key twice")


def choices_of(option):
    """Of one --vary, in its order."""
    key, _, values = option.partition("=")
    found = []
    for value in cut(values, ","):
        first, *more = cut(value, r"\+(?=[A-Za-z_])")  # 1e+3 is a number
        choice = (f"{key}={first}", *more)
        check_choice(option, choice)
        if choice in found:
            raise Refused(f"--vary {option}: {value} is there twice")
        found.append(choice)
    return found


def combinations(options):
    """The product of all --vary, in their order."""
    lists = [choices_of(option) for option in options]
    for one, other in itertools.combinations(map(keys_of, lists), 2):
        if both := sorted({*one} & {*other}):
            raise Refused(f"--vary: {', '.join(both)} in two of them; all values of a key belong into one")
    return [tuple(itertools.chain(*choices)) for choices in itertools.product(*lists)]


def text_of(choice):
    return " ".join(choice)


def cell_names(ranks, choices):
    """Names that folders may have, all different, made of the values: n4-2-interleaved-2."""
    names = []
    for choice in choices:
        words = [re.sub(r"[^A-Za-z0-9._]+", "-", setting.partition("=")[2]).strip("-") for setting in choice]
        plain = "-".join([f"n{ranks}", *filter(None, words)])[:LONGEST_NAME]
        numbered = (f"{plain}-{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([plain], numbered) if name not in names))
    return names
