#!/usr/bin/env python3
"""Tests the program as its users meet it: command line, decks, files, exit codes, printed lines and result files.

usage: program_test.py PROGRAM MPIEXEC [--group training|files|texts|float64] [unittest options]

The claims stand in the modules of GROUPS; support.py starts the program. The group "training" depends on how the program was
built. The groups "files" and "texts" do not: results, choices of algorithms, decks, messages, tables and reports are the same
with every Kokkos. The group "float64" wants NumPy; the others want no more than Python's standard library; result_schema.py also wants
jsonschema, and is skipped without it.
"""
import sys

sys.dont_write_bytecode = True  # the sources may lie on a read-only disk

import unittest

import advice
import agreement
import checkpoints
import classes
import commbench
import communication
import explain
import float64
import grid
import lecture
import measured
import memory
import offload
import outputs
import products
import reference
import refusals
import report
import result_schema
import strategies
import support
import texts
import training


GROUPS = {
    "training": (training, checkpoints, communication, strategies, agreement, reference, commbench, memory, offload,
                 grid, products),
    "files": (outputs, classes, measured),
    "texts": (refusals, result_schema, texts, lecture, explain, report, advice),
    "float64": (float64,),
}
chosen = list(GROUPS)


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(loader.loadTestsFromModule(module) for group in chosen for module in GROUPS[group])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    options = sys.argv[3:]
    if options[:1] == ["--group"]:
        chosen, options = [options[1]], options[2:]
    with support.set_up(program=sys.argv[1], mpiexec=sys.argv[2]):
        run = unittest.main(module=__name__, argv=[sys.argv[0], *options], exit=False)
    sys.exit(not run.result.wasSuccessful())
