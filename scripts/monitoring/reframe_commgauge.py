"""A ReFrame check (ReFrame 4) that measures a suite with commgauge, judges it, and hands every row to ReFrame as a performance value.

    reframe -C SITE.py -c scripts/monitoring/reframe_commgauge.py --list
    reframe -C SITE.py -c scripts/monitoring/reframe_commgauge.py -S suite=qualify -S machine=h100-nvswitch-ndr -S ranks=512 -r

ReFrame asks the scheduler for the nodes and starts `commgauge run` once, on the first of them; that starts the ranks itself, with srun or
mpirun as the allocation says. References for rows of your own stand in a class of your own, by the names that the first run reports:

    from reframe_commgauge import CommgaugeCheck

    @rfm.simple_test
    class Nightly(CommgaugeCheck):
        suite = 'quick'
        reference = {'mysystem:gpu': {'world_all_reduce_sum_float32_1048576_out_of_place_streaming_busbw': (350.0, -0.05, None, 'GB/s')}}
"""

import difflib
import json
import os
import re

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError


class CommgaugeCheck(rfm.RunOnlyRegressionTest):
    """A suite, its verdict, and a performance value for each quantity of each row. Set by `-S NAME=VALUE`."""

    # What commgauge is called, where it is not on PATH.
    program = variable(str, value='commgauge')
    # The suite: a file, or the name of a shipped one.
    suite = variable(str, value='quick')
    # Machine file, or the name of a shipped one, whose [[expect]] rows judge the run; without it nothing is judged.
    machine = variable(str, value='')
    # Ranks; 0 leaves them to commgauge, which asks the allocation.
    ranks = variable(int, value=0)
    # Further flags of `commgauge run`, such as --backend nccl.
    flags = variable(str, value='')
    # Exit codes of `commgauge judge` that count as sane; 3 is inconclusive.
    accepted = variable(typ.List[int], value=[0])

    valid_systems = ['*']
    valid_prog_environs = ['*']

    @run_before('run')
    def commands(self):
        """One process of commgauge, which launches the ranks; then the rows and the verdict."""
        self.job.launcher = getlauncher('local')()
        if self.ranks:
            self.num_tasks = self.ranks
        count = ['-n', str(self.ranks)] if self.ranks else []
        machine = ['--machine', self.machine] if self.machine else []
        self.executable = self.program
        self.executable_opts = ['run', self.suite, '--record', 'run.jsonl', *count, *machine, *self.flags.split()]
        self.prerun_cmds = ['rm -f run.jsonl rows.json judge.txt codes.txt']
        self.postrun_cmds = [
            'echo "run $?" >codes.txt',
            f'{self.program} report run.jsonl --format json -o rows.json',
        ]
        if self.machine:
            self.postrun_cmds += [
                f'{self.program} judge run.jsonl --machine {self.machine} >judge.txt 2>&1',
                'echo "judge $?" >>codes.txt',
            ]
        self.keep_files = ['run.jsonl', 'rows.json', 'codes.txt'] + (['judge.txt'] if self.machine else [])

    @sanity_function
    def measured_and_judged(self):
        """The run ended well, and its verdict is one of the accepted ones."""
        run = sn.extractsingle(r'^run (\d+)$', 'codes.txt', 1, int)
        sane = [sn.assert_eq(run, 0, 'commgauge run ended with {0}: docs/reference/exit-codes.md says what that is')]
        if self.machine:
            judged = sn.extractsingle(r'^judge (\d+)$', 'codes.txt', 1, int)
            sane.append(sn.assert_in(judged, self.accepted, 'commgauge judge ended with {0}; judge.txt says why'))
        return sn.all(sane)

    @run_before('performance')
    def rows(self):
        """A performance value for the latency and the bus bandwidth of every row that has one."""
        with open(os.path.join(self.stagedir, 'rows.json'), encoding='utf-8') as file:
            report = json.load(file)
        for row in report['rows']:
            name = re.sub(r'[^A-Za-z0-9]+', '_', row['case']['name']).strip('_')
            for key, quantity, factor, unit in QUANTITIES:
                value = row.get(key)
                if value is not None:
                    self.perf_variables[f'{name}_{quantity}'] = sn.make_performance_function(
                        sn.defer(value * factor), unit)
        self.refuse_references_to_nothing()

    def refuse_references_to_nothing(self):
        """ReFrame passes a reference of which there is no value, as where the suite was changed or the name has a typing error."""
        scopes = getattr(self.reference, 'data', {})
        here = self.current_partition.fullname
        names = {name for scope, names in scopes.items() if scope in ('*', here, here.split(':')[0]) for name in names}
        missing = sorted(names - set(self.perf_variables))
        if missing:
            known = difflib.get_close_matches(missing[0], self.perf_variables, n=1)
            near = f'; did you mean {known[0]}?' if known else ''
            raise PerformanceError(f'{len(missing)} reference(s) without a measured value, first {missing[0]}{near}')


# A key of a row in the report's JSON, what it is called here, and its unit there.
QUANTITIES = (
    ('latency_seconds_median', 'latency', 1e6, 'us'),
    ('busbw_bytes_per_second', 'busbw', 1e-9, 'GB/s'),
)


@rfm.simple_test
class Commgauge(CommgaugeCheck):
    """The suite as the command line says it."""
