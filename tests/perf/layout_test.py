"""perf/ keeps its rules: every command is perf/FAMILY/COMMAND without ending, says how it is called, and is in its family's README
and in the index; what texts of the repository call perf/... exists.

usage: layout_test.py [unittest options]
"""
import ast
import os
import re
import subprocess
import sys
import unittest

from commands import PERF, ROOT

FAMILIES = sorted(path.parent.name for path in PERF.glob("*/README.md"))
COMMANDS = sorted(path.relative_to(PERF).as_posix() for family in FAMILIES for path in (PERF / family).iterdir()
                  if path.is_file() and os.access(path, os.X_OK))
PAGE = 120  # lines of a family's README
# Texts that call files of perf/ by name; data and history of other folders are left out.
TEXTS = [*ROOT.glob("*.md"), *(path for folder in ("ci", "inputs", "miniapp", "perf") for path in (ROOT / folder).rglob("*")
                               if path.is_file() and "data" not in path.parts and "__pycache__" not in path.parts)]
NAMED = re.compile(r"(?<![\w./-])perf/[\w.*-]+(?:/[\w.*-]+)*")
# of the changelog, which says what they are called now
OLD = {f"perf/{name}" for name in ("gate.py", "make_job", "compare_pytorch.py", "compare_llmc.py", "ds2deck.py", "device_report",
                                   "pack_programs", "overlap", "portability_tax.py", "reference")}
PLACEHOLDERS = {"perf/FAMILY/COMMAND", "perf/study/COMMAND"}


def missing_names(text, exists):
    """What the text calls perf/... and is not there."""
    names = {name.rstrip(".") for name in NAMED.findall(text)} - PLACEHOLDERS
    return sorted(name for name in names if not exists(name))


class Layout(unittest.TestCase):
    def test_the_families_are_those_that_have_commands(self):
        self.assertEqual(FAMILIES, ["compare", "deepspeed", "device", "gate", "kernels", "study"])
        self.assertEqual({command.partition("/")[0] for command in COMMANDS}, {*FAMILIES})
        self.assertEqual([path.name for path in PERF.iterdir() if path.is_file() and os.access(path, os.X_OK)], [])

    def test_what_can_be_executed_has_no_ending_and_all_else_has_one(self):
        for folder in (*FAMILIES, "lib"):
            for path in (PERF / folder).iterdir():
                if path.is_file():
                    self.assertEqual("." in path.name, not os.access(path, os.X_OK), path)

    def test_every_command_says_how_it_is_called(self):
        for command in COMMANDS:
            with self.subTest(command):
                said = ast.get_docstring(ast.parse((PERF / command).read_text(encoding="utf-8")))
                self.assertIn(f"usage: perf/{command} ", said)
                ended = subprocess.run([sys.executable, "-B", PERF / command, "--help"], capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 0, ended)
                self.assertIn(f"usage: perf/{command} ", ended.stdout)

    def test_every_command_is_in_its_readme_and_in_the_index(self):
        index = (PERF / "README.md").read_text(encoding="utf-8")
        for command in COMMANDS:
            family, _, name = command.partition("/")
            readme = (PERF / family / "README.md").read_text(encoding="utf-8")
            self.assertTrue(re.search(rf"perf/{command}\b", readme), f"{command} is not in the README of {family}")
            self.assertTrue(f"`perf/{command}`" in index or f"`{name}`" in index, f"{command} is not in the index")

    def test_a_readme_of_a_family_is_a_page(self):
        for family in FAMILIES:
            lines = (PERF / family / "README.md").read_text(encoding="utf-8").count("\n")
            self.assertLessEqual(lines, PAGE, family)

    def test_families_do_not_use_each_other_and_the_library_uses_none(self):
        for folder in (*FAMILIES, "lib"):
            allowed = {folder, "lib"}
            for path in (PERF / folder).iterdir():
                if not path.is_file() or not (path.suffix == ".py" or os.access(path, os.X_OK)):
                    continue
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    names = [node.module] if isinstance(node, ast.ImportFrom) else \
                        [name.name for name in node.names] if isinstance(node, ast.Import) else []
                    for name in names:
                        first = name.partition(".")[0]
                        self.assertTrue(first in allowed or first not in (*FAMILIES, "lib"), f"{path} imports {name}")


class Names(unittest.TestCase):
    def test_what_texts_name_exists(self):
        for path in TEXTS:
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            old = OLD if path.name == "CHANGELOG.md" else set()
            missing = missing_names(text, lambda name, old=old: name in old or any(ROOT.glob(name)))
            self.assertEqual(missing, [], path)

    def test_a_name_that_is_not_there_is_found(self):
        there = {"perf/a/b", "perf/c.md"}
        self.assertEqual(missing_names("see `perf/a/b`, perf/c.md. (perf/FAMILY/COMMAND) out/perf/x", there.__contains__), [])
        self.assertEqual(missing_names("perf/a/gone and perf/b.py.", there.__contains__), ["perf/a/gone", "perf/b.py"])


if __name__ == "__main__":
    unittest.main()
