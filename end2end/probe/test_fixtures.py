"""The committed samples are what the probe writes today; the Rust reader's tests read the same files."""

import os
import shutil
import tempfile
import unittest

import fixtures


class Fixtures(unittest.TestCase):
    def test_the_samples_are_what_the_probe_writes(self):
        out = tempfile.mkdtemp(prefix="fixtures-")
        self.addCleanup(shutil.rmtree, out)
        for name in fixtures.write(out):
            with open(os.path.join(out, name), encoding="utf-8") as new:
                with open(os.path.join(fixtures.SAMPLES, name), encoding="utf-8") as committed:
                    self.assertEqual(
                        committed.read().splitlines(),
                        new.read().splitlines(),
                        "the format changed: if that is meant, run fixtures.py and look at the reader",
                    )


if __name__ == "__main__":
    unittest.main()
