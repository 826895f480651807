#!/usr/bin/env python3
"""Tests the program as its users meet it: command line, decks, files, exit codes, printed lines and result files.

usage: program_test.py PROGRAM MPIEXEC [unittest options]

The claims stand in refusals.py, training.py, checkpoints.py, result_schema.py, communication.py, agreement.py, reference.py,
texts.py, classes.py, lecture.py, commbench.py, explain.py and report.py; support.py starts the program. Wants no more than
Python's standard library; result_schema.py also wants jsonschema, and is skipped without it.
"""
import sys

sys.dont_write_bytecode = True  # the sources may lie on a read-only disk

import unittest

import agreement
import checkpoints
import classes
import commbench
import communication
import explain
import lecture
import reference
import refusals
import report
import result_schema
import support
import texts
import training


def load_tests(loader, _tests, _pattern):
    modules = (refusals, training, checkpoints, result_schema, communication, agreement, reference, texts, classes, lecture,
               commbench, explain, report)
    return unittest.TestSuite(loader.loadTestsFromModule(module) for module in modules)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with support.set_up(program=sys.argv[1], mpiexec=sys.argv[2]):
        run = unittest.main(module=__name__, argv=[sys.argv[0], *sys.argv[3:]], exit=False)
    sys.exit(not run.result.wasSuccessful())
