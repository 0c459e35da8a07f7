"""Runs command lines that must fail early, in one process, and prints how each ended as JSON.

Arguments: a JSON list of command lines, [script, argument, ...]. Modules that are only imported are shared.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys

results = []
for command in json.loads(sys.argv[1]):
    sys.argv = command
    written = io.StringIO()
    code: object = 0
    with contextlib.redirect_stderr(written), contextlib.redirect_stdout(written):
        try:
            runpy.run_path(command[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
    # A text as exit code is printed by Python, and means 1.
    results.append([1, code] if isinstance(code, str) else [code or 0, written.getvalue()])
print("RESULTS", json.dumps(results))
