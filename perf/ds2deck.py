#!/usr/bin/env python3
"""Turns a DeepSpeed ds_config into a Trainstone deck, and lists every key that the deck cannot honour.

usage: perf/ds2deck.py DS_CONFIG.json [--model gpt2 | --base DECK.toml] [--steps N] [--ranks N] [--set KEY=VALUE]...
                       [--out DECK.toml]

A ds_config says nothing about model and data: --base takes them, and all else that it does not decide, from a deck; without
it the deck has the preset --model and synthetic data. --ranks checks the batch as DeepSpeed does. --set puts a key into the
deck, as for "auto" values. The deck goes to standard output or --out; what is not honoured to standard error, and into the
deck's head, with the reason and the nearest thing there is.
Exit 0: everything is honoured; 3: something is listed; 64: the input is not usable, and there is no deck.
"""
import argparse
import json
import os
import pathlib
import re
import sys
import tomllib

from ds_mapping import Mapping, Unusable, leaves_of

HONOURED, LISTED, UNUSABLE = 0, 3, 64
FILES = ("data.files", "data.validation_files", "model.load")  # relative to the deck's folder
# Strings are matched first, so that what looks like a comment in them stays.
STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.S)
STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')


def refuse_duplicates(pairs):
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise Unusable(f'key "{name}" is there twice')
    return dict(pairs)


def refuse_constant(name):
    raise Unusable(f"{name} is no number")


def read_config(path):
    """DeepSpeed takes comments and a comma after the last entry, too."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise Unusable(f"{path}: {failure}") from failure
    for pattern in (STRING_OR_COMMENT, STRING_OR_LAST_COMMA):
        text = pattern.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    try:
        config = json.loads(text, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant)
    except json.JSONDecodeError as failure:
        raise Unusable(f"{path}:{failure.lineno}: no JSON: {failure.msg}") from failure
    if not isinstance(config, dict):
        raise Unusable(f"{path}: no JSON object")
    return config


def read_base(arguments):
    """Keys of the base deck; names of files are made relative to the folder of the new one."""
    if not arguments.base:
        return {"model.preset": arguments.model or "gpt2", "data.source": "synthetic", "data.steps": 100}
    path = pathlib.Path(arguments.base)
    try:
        base = dict(leaves_of(tomllib.loads(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as failure:
        raise Unusable(f"{path}: {failure}") from failure
    folder = pathlib.Path(arguments.out or "deck").parent
    moved = lambda name: os.path.relpath(path.parent / name, folder) if name else name
    for key in FILES:
        if key in base:
            base[key] = [moved(name) for name in base[key]] if isinstance(base[key], list) else moved(base[key])
    if arguments.model:
        base = {key: value for key, value in base.items()
                if key not in ("model.layers", "model.heads", "model.channels", "model.context", "model.vocab")}
        base["model.preset"] = arguments.model
    if arguments.steps:
        base.pop("data.epochs", None)
    return base


def read_assignments(assignments):
    """Values in TOML, strings also without quotes, as --set of the program takes them."""
    given = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise Unusable(f"--set {assignment}: must be KEY=VALUE")
        try:
            given[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            given[key] = text
    return given


def to_toml(value):
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


def listing(mapping):
    """A line per name that is another one here, and per key that is not honoured."""
    return mapping.renamed + [
        f"NOT HONOURED {path} = {json.dumps(mapping.leaves[path])}: {reason}"
        + ("" if nearest == "none" else f"; {nearest}" if nearest.startswith("did you") else f"; nearest: {nearest}")
        for path, (reason, nearest) in mapping.listed.items()]


def deck_text(mapping, name):
    lines = [f"# From {name} by perf/ds2deck.py: {len(mapping.honoured)} of its {len(mapping.leaves)} keys are honoured."]
    lines += [f"# {line}" for line in listing(mapping)]
    lines += [f"# honoured {path} = {json.dumps(mapping.leaves[path])}: {how}" for path, how in mapping.honoured.items()]
    section = None
    for key in sorted(mapping.deck, key=lambda key: key.partition(".")[0]):  # stable: else in their order
        if key.partition(".")[0] != section:
            section = key.partition(".")[0]
            lines += ["", f"[{section}]"]
        lines.append(f"{key[len(section) + 1:]} = {to_toml(mapping.deck[key])}".ljust(40) + f" # {mapping.origin[key]}")
    return "\n".join(lines) + "\n"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(UNUSABLE, f"ds2deck: {message}\n")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="DS_CONFIG.json")
    parser.add_argument("--model", metavar="PRESET")
    parser.add_argument("--base", metavar="DECK.toml")
    parser.add_argument("--steps", type=int, metavar="N")
    parser.add_argument("--ranks", type=int, metavar="N")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", metavar="DECK.toml")
    arguments = parser.parse_args()
    for name in ("steps", "ranks"):
        if getattr(arguments, name) is not None and getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    try:
        given = read_assignments(arguments.set)
        if arguments.steps:
            given["data.steps"] = arguments.steps
        mapping = Mapping(read_config(arguments.config), read_base(arguments), given, arguments.ranks)
    except Unusable as problem:
        parser.exit(UNUSABLE, f"ds2deck: {problem}\n")
    text = deck_text(mapping, pathlib.Path(arguments.config).name)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    for line in listing(mapping):
        print(line, file=sys.stderr)
    sys.exit(LISTED if mapping.listed else HONOURED)


if __name__ == "__main__":
    main()
