"""The timeline through the API: rank 0 writes a trace that any JSON reader takes."""

import json
import re
import time
from pathlib import Path

import pytest
from util_launch import launch

SCRIPT = """
import sys
import numpy as np
import horovod.numpy as hvd

hvd.init()
for path in sys.argv[1:]:
    hvd.start_timeline(path, mark_cycles=True)
    hvd.allreduce(np.ones(3), name="traced")
    hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.barrier()  # or else another rank's next submission may be in the trace
hvd.allreduce(np.ones(3), name="at last")
if hvd.rank() == 0:
    try:
        hvd.start_timeline("/no/such/directory/timeline.json") if sys.argv[1:] else None
    except ValueError as error:
        print("refused:", error)
"""


def test_from_init_to_the_end(tmp_path: Path) -> None:
    script, trace = tmp_path / "train.py", tmp_path / "trace.json"
    script.write_text(SCRIPT)
    outcome = launch(2, script, timeout=120, HOROVOD_TIMELINE=str(trace))
    assert outcome.code == 0, outcome.output
    text = trace.read_text()
    assert "allreduce.at last" in text and json.loads(text)


def test_started_and_stopped(tmp_path: Path) -> None:
    script, traces = tmp_path / "train.py", [tmp_path / "first.json", tmp_path / "second.json"]
    script.write_text(SCRIPT)
    begin = time.time()
    outcome = launch(2, script, *traces, timeout=120, HOROVOD_TIMELINE="DYNAMIC")
    assert outcome.code == 0, outcome.output
    assert "refused:" in outcome.output and "/no/such/directory" in outcome.output
    for trace in traces:
        text = trace.read_text()
        first = json.loads(text)[0]
        assert first["ph"] == "M" and first["pid"] == 0
        assert begin <= first["args"]["start_time_since_epoch_in_micros"] / 1e6 <= time.time()
        assert "allreduce.traced" in text and "at last" not in text
        for word in ("NEGOTIATE_ALLREDUCE", '"ALLREDUCE"', "CYCLE_START"):
            assert word in text, word


WATCHED = """
import json, sys, time
import numpy as np
import horovod.numpy as hvd

hvd.init()
hvd.start_timeline(sys.argv[1], mark_cycles=True)
if hvd.rank() == 0:
    assert json.load(open(sys.argv[1])) is not None
hvd.allreduce(np.ones(3), name="test_allreduce")
words = ["allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", '"ALLREDUCE"', "CYCLE_START"]
begin = time.monotonic()
while hvd.rank() == 0:
    text = open(sys.argv[1]).read()
    json.loads(text)  # whole at any time
    if all(word in text for word in words):
        print("there after", time.monotonic() - begin)
        break
    assert time.monotonic() < begin + 20, text
hvd.barrier()
"""


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """Scripts for the original look 0.1 s after an operation; a busy machine may need longer."""
    (tmp_path / "train.py").write_text(WATCHED)
    for _ in range(15):
        outcome = launch(
            2, tmp_path / "train.py", tmp_path / "trace.json", timeout=120, HOROVOD_TIMELINE="DYNAMIC"
        )
        assert outcome.code == 0, outcome.output
        (seconds,) = re.findall(r"there after (\S+)", outcome.output)
        if float(seconds) < 0.1:
            return
    raise AssertionError(f"the last one of fifteen took {seconds} s")


def test_a_path_that_can_not_be_written(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    outcome = launch(1, script, timeout=120, HOROVOD_TIMELINE="/no/such/directory/timeline.json")
    assert outcome.code != 0 and "HOROVOD_TIMELINE" in outcome.output, outcome.output


AGAIN = """
import sys
import numpy as np
import horovod.numpy as hvd

hvd.init()
for name in ("before", "after"):
    hvd.start_timeline(sys.argv[1])
    hvd.allreduce(np.ones(3), name=name)
hvd.stop_timeline()
"""


def test_started_again_with_the_same_path_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AGAIN)
    trace = tmp_path / "trace.json"
    outcome = launch(1, tmp_path / "train.py", trace, timeout=120, HOROVOD_TIMELINE="DYNAMIC")
    assert outcome.code == 0, outcome.output
    events = json.loads(trace.read_text())
    heads = [event["args"] for event in events if event.get("name") == "process_name"]
    names = [head["name"] for head in heads if "name" in head]
    assert names == ["allreduce.before", "allreduce.after"]


FULL = """
import numpy as np
import horovod.numpy as hvd

hvd.init()
for _ in range(5):
    handles = [hvd.allreduce_async(np.ones(3), name=f"x{i}") for i in range(1000)]
    for handle in handles:
        hvd.synchronize(handle)
print("left out:", int(hvd.metrics()["trace_dropped_total"]))
"""


@pytest.mark.parametrize(("buffer", "all_fit"), [("4096", False), (None, True)])
def test_what_does_not_fit_is_counted(tmp_path: Path, buffer: str | None, all_fit: bool) -> None:
    (tmp_path / "train.py").write_text(FULL)
    env = {"HOROVOD_TIMELINE": str(tmp_path / "t.json")}
    if buffer is not None:
        env["HOROVOD_TIMELINE_BUFFER"] = buffer
    outcome = launch(1, tmp_path / "train.py", timeout=120, **env)
    assert outcome.code == 0, outcome.output
    left_out = re.search(r"left out: (\d+)", outcome.output)
    assert left_out and (int(left_out[1]) == 0) == all_fit, outcome.output
    assert json.loads((tmp_path / "t.json").read_text())
