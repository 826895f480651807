"""Finds perf/: its modules can be imported after this one, and a command, which has no ending, is a module of load()."""
import importlib.machinery
import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True  # the sources may lie on a read-only disk
ROOT = pathlib.Path(__file__).resolve().parents[2]
PERF = ROOT / "perf"
sys.path.insert(0, str(PERF))


def load(command):
    """\\param command  FAMILY/NAME"""
    loader = importlib.machinery.SourceFileLoader(command.replace("/", "_command_"), str(PERF / command))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
