"""``python -m experiments.studies.live_store``: a small run."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_publisher_and_readers_of_one_store(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "experiments.studies.live_store",
                "--facts",
                "2000",
                "--rate",
                "1000",
            ),
            *("--seconds", "3", "--readers", "1", "--pause", "0.001", "--retention", "1"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["publisher"]["publish_ms"]["n"] > 0
    (reader,) = result["readers"]
    # The number of facts never changes, and the facts of a batch carry one value.
    assert reader["wrong"] == []
    assert all(each["n"] > 0 for each in reader["reads_ms"].values())
    assert result["worker"]["minted_name_found"]
    assert list(tmp_path.iterdir()) == []
