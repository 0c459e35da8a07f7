"""`make soak`: the mixture for long over every transport, one after the other; one line of result for each.

    python tests/mixture/soak.py --seconds 600 --configurations shm-3 tcp-2

Ends at the first failure, or where a configuration can't be run here.
Everything that the ranks print is in build/soak/<configuration>.log.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / each) for each in ("support", "cluster", "mpi"))

import mixture_configurations
import pytest
from cluster_hosts import Hosts, why_not
from mixture_configurations import Configuration

LOGS = Path(__file__).resolve().parents[2] / "build" / "soak"


def arguments() -> argparse.Namespace:
    names = [each.name for each in mixture_configurations.ALL]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="for each configuration")
    parser.add_argument("--configurations", nargs="*", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", default="new")
    parser.add_argument("--without", nargs="*", default=[], help="features: see program_mixture.py --help")
    return parser.parse_args()


def run(configuration: Configuration, options: argparse.Namespace, log: Path) -> tuple[bool, str]:
    """Whether it went well, and what there is to say about it."""
    words = ["--seconds", str(options.seconds), "--seed", options.seed, "--without", *options.without]
    with contextlib.ExitStack() as stack:
        hosts = None
        if configuration.hosts is not None:
            reason = why_not()
            if reason is not None:
                return False, f"left out: {reason}"
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            hosts = Hosts(configuration.host_count, Path(directory))
            stack.callback(hosts.close)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the log has it all
                outcome = configuration.run(options.seconds, *words, hosts=hosts)
        except pytest.skip.Exception as reason:
            return False, f"left out: {reason}"
        except AssertionError as error:  # it did not end
            log.write_text(str(error))
            return False, f"FAILED, see {log}"
    log.write_text(outcome.output)
    summary = [line for line in outcome.output.splitlines() if "results compared" in line]
    if outcome.code != 0 or not summary:
        return False, f"FAILED, see {log}"
    return True, summary[-1].rpartition(">:")[2]


def main() -> None:
    options = arguments()
    LOGS.mkdir(parents=True, exist_ok=True)
    for configuration in mixture_configurations.ALL:
        if options.configurations and configuration.name not in options.configurations:
            continue
        began = time.monotonic()
        well, text = run(configuration, options, LOGS / f"{configuration.name}.log")
        print(f"{configuration.name}: {text} ({time.monotonic() - began:.0f} s)", flush=True)
        if not well:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
