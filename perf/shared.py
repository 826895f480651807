"""What the tools of perf/ have in common: how keys of a deck are given to a program, and files that are there whole or
not at all. Knows neither decks nor results.
"""
import json


def set_options(keys):
    """\\param keys  KEY=VALUE"""
    return [word for key in keys for word in ("--set", key)]


def write_text(path, text):
    """Under a temporary name, then renamed: who is interrupted leaves what was there before. Makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_json(path, value):
    """\\throws ValueError, and writes nothing, if there is a value that JSON has not (nan, inf)"""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
