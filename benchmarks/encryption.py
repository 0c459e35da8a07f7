"""What HOROVOD_ENCRYPTION=data costs between two hosts: over a link of a given rate, and over one without.

    python benchmarks/encryption.py              # needs root; prints a table
    python benchmarks/encryption.py --write      # and puts it into docs/benchmarks.md

Hosts and links are those of links.py. Jobs with and without encryption take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from links import LINK_TARGET, MIB, Hosts, Line, circumstances, measure, why_not
from section import Section

SECTION = Section(
    "encryption",
    """
## Encryption

`python benchmarks/encryption.py --write` (root): `HOROVOD_ENCRYPTION=data` between two hosts as above, and
the same without it, job by job in turns. *Best run* and *worst run* are medians of the allreduces of one job;
*of the link* is that of the worst. Without a limit on the link the processors are one: they do the work of
both hosts and of the network between them.
""",
)
ENCRYPTIONS = ("none", "data")
Measured = dict[tuple[str, int, str], list[Line]]  # by link, ranks on each host, and encryption


def measure_all(fixture: Hosts, link: str, options: argparse.Namespace) -> Measured:
    """All jobs over a link, in turns."""
    found: Measured = {}
    for _ in range(options.runs):
        for ranks in (1, 2):
            for encryption in ENCRYPTIONS:
                line = measure(fixture, 2, ranks, options, {"HOROVOD_ENCRYPTION": encryption})
                found.setdefault((link, ranks, encryption), []).append(line)
    return found


def table(measured: Measured) -> str:
    rows = [
        "| link | ranks on each | allreduce | encryption | runs | best run | worst run | of the link "
        "| target | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (link, ranks, encryption), lines in measured.items():
        times = [statistics.median(line.seconds) for line in lines]
        judged = ["", "", ""]
        if link:
            use = min(line.use for line in lines)
            judged = [f"{use:.1%}", f"≥ {LINK_TARGET:.0%}", "pass" if use >= LINK_TARGET else "MISS"]
        rows.append(
            f"| {link or 'no limit'} | {ranks} | {lines[0].size // MIB} MiB | {encryption} "
            f"| {len(lines)} of {len(lines[0].seconds)} | {min(times) * 1e3:.0f} ms "
            f"| {max(times) * 1e3:.0f} ms | {' | '.join(judged)} |"
        )
    return "\n".join(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures what encryption costs between hosts.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--gbit", type=float, default=1.0, help="rate of each host's link in Gbit/s")
    parser.add_argument("--mib", type=int, default=64, help="size of the tensor")
    parser.add_argument("--runs", type=int, default=4, help="jobs of each kind")
    parser.add_argument("--repetitions", type=int, default=5, help="allreduces of each job")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if options.gbit <= 0 or min(options.mib, options.runs, options.repetitions) < 1:
        parser.error("--gbit must be above 0, --mib, --runs and --repetitions at least 1")
    return options


def main() -> int:
    """Entry point."""
    options = parse()
    reason = why_not()
    if reason is not None:
        print(f"encryption.py: {reason}", file=sys.stderr)
        return 1
    load = circumstances(options.gbit)
    with tempfile.TemporaryDirectory() as directory:
        fixture = Hosts(2, Path(directory))
        try:
            measured = measure_all(fixture, "", options)
            fixture.limit(f"{options.gbit * 1000:g}mbit")
            measured = {**measure_all(fixture, f"{options.gbit:g} Gbit/s", options), **measured}
        finally:
            fixture.close()
    text = f"{load}\n\n{table(measured)}"
    print(text)
    if options.write:
        SECTION.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
