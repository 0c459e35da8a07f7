"""What HOROVOD_ENCRYPTION=data costs between two hosts: over a link of a given rate, and over one without.

    python benchmarks/encryption.py              # needs root; prints a table
    python benchmarks/encryption.py --write      # and puts it into docs/benchmarks.md

Hosts and links are those of links.py. Jobs with and without encryption take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from links import LINK_TARGET, MIB, Hosts, Line, links_parser, measure, measure_on_hosts
from section import Section

from horovod.bench.options import positive

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


def main() -> int:
    """Entry point."""
    parser = links_parser("Measures what encryption costs between hosts.")
    parser.add_argument("--runs", type=positive, default=4, help="jobs of each kind")
    parser.set_defaults(repetitions=5)
    options = parser.parse_args()

    def measured(fixture: Hosts) -> str:
        unlimited = measure_all(fixture, "", options)
        fixture.limit(f"{options.gbit * 1000:g}mbit")
        return table({**measure_all(fixture, f"{options.gbit:g} Gbit/s", options), **unlimited})

    return measure_on_hosts(2, SECTION, options, measured)


if __name__ == "__main__":
    sys.exit(main())
