# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the tests that pyverbs has of its own on a device, unmodified: python3 suite.py DEVICE GID_INDEX FIGURES NAME...

A name is a module's, or that of a class or a test in it.

Each test has both ends on the one device. What it has found goes to the file FIGURES: how many tests passed, and why others
did not run.
"""

import collections
import gc
import gzip
import importlib
import pathlib
import signal
import sys
import types
import unittest

INSTALLED = pathlib.Path('/usr/share/doc/rdma-core/tests')
HERE = pathlib.Path('/tmp/pyverbs')
# What all tests have in common.
COMMON = ['args_parser', 'base', 'base_rdmacm', 'cuda_utils', 'irdma_base', 'rdmacm_utils', 'utils']
# Devices of others, which `utils` names. To load what Debian has for them takes longer than all tests.
OTHERS = ['pyverbs.providers.mlx5', 'pyverbs.providers.mlx5.mlx5dv', 'tests.mlx5_base', 'pyverbs.providers.efa',
          'pyverbs.providers.efa.efadv', 'tests.efa_base']
# Seconds after which a test hangs.
HANGS = 120
# Tests that do not run, because they ask for what the card has otherwise, and why.
KEYS = 'the card ignores keys of local memory: a process reaches all of its own'
GRANTS = 'madvise takes memory from a receive that the peer has a credit for, which ends the connection (decision 17)'
OTHERWISE = {
    'test_mr.MRTest.test_mr_rereg_addr': KEYS,
    'test_mr.MRTest.test_mr_rereg_pd': KEYS,
    'test_atomic.AtomicTest.test_atomic_invalid_lkey': KEYS,
} | {
    f'test_odp.OdpTestCase.test_odp_{name}': GRANTS
    for name in [
        'async_prefetch_rc_traffic', 'implicit_async_prefetch_rc_traffic', 'implicit_rc_traffic',
        'implicit_sync_prefetch_rc_traffic', 'prefetch_async_no_page_fault_rc_traffic',
        'prefetch_sync_no_page_fault_rc_traffic', 'rc_mixed_mr', 'rc_traffic', 'sync_prefetch_rc_traffic',
    ]
}


class Hangs(Exception):
    """Raised in a test that hangs."""


def hangs(_signal, _frame):
    raise Hangs(f'still running after {HANGS} s')


class Result(unittest.TestResult):
    """Counts the tests by what became of them."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.unsupported = collections.Counter()

    def startTest(self, test):
        super().startTest(test)
        print(test.id(), flush=True)
        signal.alarm(HANGS)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        # A test that failed has its objects in circles, with the device open; a process may open it a few times only.
        for name in [name for name in vars(test) if not name.startswith('_')]:
            delattr(test, name)
        gc.collect()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f'    skipped: {reason}')
        self.unsupported[reason] += 1


def load(device, gid, names):
    """Unpacks the modules of some tests, and answers the tests."""
    folder = HERE / 'tests'
    folder.mkdir(parents=True, exist_ok=True)
    for name in {*COMMON, *(name.split('.')[0] for name in names)}:
        plain, packed = INSTALLED / f'{name}.py', INSTALLED / f'{name}.py.gz'
        text = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
        (folder / f'{name}.py').write_bytes(text)
    (folder / '__init__.py').write_text('')
    sys.path[:0] = [str(HERE), str(folder)]
    for name in OTHERS:
        module = types.ModuleType(name)
        # Whatever is imported from it is a class that nothing is of.
        module.__getattr__ = lambda wanted: type(wanted, (), {})
        module.__path__ = []
        sys.modules[name] = module
    sys.argv[1:] = ['--dev', device, '--gid', gid]
    from args_parser import parser
    parser.parse_args()
    # A simulated card takes its time; a test that hangs is ended.
    importlib.import_module('tests.utils').POLL_CQ_TIMEOUT = HANGS
    return unittest.defaultTestLoader.loadTestsFromNames([f'tests.{name}' for name in names])


def each(suite):
    """The tests of a suite, one by one."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def name_of(test):
    """What a test is called here."""
    return test.id().removeprefix('tests.')


def main(device, gid, figures, *names):
    signal.signal(signal.SIGALRM, hangs)
    tests = list(each(load(device, gid, names)))
    result = Result()
    otherwise = [name for name in map(name_of, tests) if name in OTHERWISE]
    while tests:
        # A test that is over is freed.
        test = tests.pop(0)
        if name_of(test) not in OTHERWISE:
            test.run(result)
    failed = result.failures + result.errors
    lines = [f'{" ".join(names)}: {result.passed} passed, {len(failed)} failed, {len(otherwise)} expect otherwise, '
             f'{sum(result.unsupported.values())} skipped']
    lines += [f'{count} skipped: {" ".join(reason.split())}' for reason, count in result.unsupported.most_common()]
    for reason in dict.fromkeys(OTHERWISE[name] for name in otherwise):
        same = [name for name in otherwise if OTHERWISE[name] == reason]
        lines.append(f'{len(same)} expect otherwise: {reason}: {", ".join(same)}')
    pathlib.Path(figures).write_text('\n'.join(lines) + '\n', encoding='utf-8')
    for test, trace in failed:
        # Where it was, and what it said.
        said = [line.strip() for line in trace.strip().splitlines()]
        print(f'{name_of(test)}: {" | ".join(said[-5:])}')
    return bool(failed) or result.passed == 0


sys.exit(main(*sys.argv[1:]))
