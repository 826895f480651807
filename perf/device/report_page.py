"""The page of a device report, in Markdown. Knows no part by name."""
from part_runner import FAILED


def cell(value):
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else str(value).replace("|", "\\|")
    return f"{value:.4g}"


def table(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if any(cell(row.get(name)) for row in rows)]
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names),
            *("| " + " | ".join(cell(row.get(name)) for name in names) + " |" for row in rows), ""]


def shown(outcome):
    return f"**{FAILED}**" if outcome == FAILED else outcome


def markdown(machine, parts):
    """\\param parts  of run_parts()"""
    lines = ["# Trainstone on this machine", "", *(line for text in machine for line in (text, "")),
             *table([{"part": name, "outcome": shown(part["outcome"]), "s": part["seconds"], "of": part["says"]}
                     for name, part in parts.items()])]
    for name, part in parts.items():
        for one in part["tables"]:
            title = name if one["name"] == name else f"{name}: {one['name']}"
            lines += [f"## {title}: {shown(one['outcome'])}", "", *([one["note"], ""] if one["note"] else [])]
            lines += table(one["rows"]) if one["rows"] else []
    return "\n".join(lines)
