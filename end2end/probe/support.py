"""What the tests of the probe share: a fresh probe per test, and its log read back."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.path.join(HERE, "..", "..", "public", "rankscope_probe.py")
TOLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


def load():
    """The probe as a module of its own, whose state is new."""
    spec = importlib.util.spec_from_file_location("rankscope_probe", PROBE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class ProbeTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="probe-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        for name in list(os.environ):
            if name in TOLD or name.startswith(("RANKSCOPE", "SLURM_", "OMPI_", "PMI_")):
                del os.environ[name]
        os.environ["RANK"], os.environ["WORLD_SIZE"] = "0", "2"
        self.probe = load()
        self.addCleanup(self.probe.close)
        self.stderr = io.StringIO()
        redirect = contextlib.redirect_stderr(self.stderr)
        redirect.__enter__()
        self.addCleanup(redirect.__exit__, None, None, None)

    def start(self, **arguments):
        self.probe.start(directory=self.directory, **arguments)

    def files(self):
        return sorted(name for name in os.listdir(self.directory) if name.endswith(".jsonl"))

    def log(self, name="rankscope_job_rank0.jsonl"):
        """The records, after the probe has ended."""
        self.probe.close()
        self.assertEqual("", self.stderr.getvalue())
        found = records(os.path.join(self.directory, name))
        self.assertEqual(list(range(len(found))), [record["seq"] for record in found])
        return found

    def steps(self):
        return [record for record in self.log() if record["type"] == "step"]
