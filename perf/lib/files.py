"""Files that are there whole or not at all. Knows neither decks nor results."""
import json
import os
import secrets


def make_durable(folder):
    """What was made or renamed in the folder is so on the medium, too, where its file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems cannot do it for folders, and need not
    finally:
        os.close(descriptor)


def write_text(path, text):
    """Under a name that nobody else has, then renamed when it is on the medium: who is interrupted leaves what was there before,
    and two who write at a time do not mix. Makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name[:200]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "x", encoding="utf-8") as file:  # x: a link of that name is not followed
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    make_durable(path.parent)


def write_json(path, value):
    """\\throws ValueError, and writes nothing, if there is a value that JSON has not (nan, inf)"""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
