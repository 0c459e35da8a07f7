"""Several connections between two hosts (HOROVOD_STREAMS_PER_PEER) where one alone can't fill the link.

    python benchmarks/streams.py              # needs root; prints a table
    python benchmarks/streams.py --write      # and puts it into docs/benchmarks.md

Hosts and links are those of links.py. What some networks do to a connection its own TCP does here.
"""

from __future__ import annotations

import statistics
import sys

from flags import above_zero
from links import MIB, Hosts, Line, links_parser, measure, measure_on_hosts
from section import Section

SECTION = Section(
    "streams",
    """
## Several connections between two hosts

`python benchmarks/streams.py --write` (root): one rank on each of two hosts as above, where one connection
carries 0.2 Gbit/s at most (`SO_MAX_PACING_RATE`), and where each may fill the link. *At most* is what the
connections together could have of the link.
""",
)
STREAMS = (1, 2, 4, 8)


def table(measured: dict[tuple[float, int], Line], link: float) -> str:
    rows = [
        "| one connection | `HOROVOD_STREAMS_PER_PEER` | allreduce | runs | p50 | of the link | at most |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (connection, streams), line in measured.items():
        most = min(1.0, streams * connection / link) if connection > 0 else 1.0
        limit = f"{connection:g} Gbit/s" if connection > 0 else "no limit"
        rows.append(
            f"| {limit} | {streams} | {line.size // MIB} MiB | {len(line.seconds)} "
            f"| {statistics.median(line.seconds) * 1e3:.0f} ms | {line.use:.1%} | {most:.0%} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Entry point."""
    parser = links_parser("Measures what several connections between two hosts gain.")
    parser.add_argument("--connection-gbit", type=above_zero, default=0.2, help="the most of one connection")
    parser.set_defaults(mib=32)
    options = parser.parse_args()

    def measured(fixture: Hosts) -> str:
        fixture.limit(f"{options.gbit * 1000:g}mbit")
        found = {}
        for connection in (options.connection_gbit, 0.0):
            for streams in STREAMS:
                env = {"HOROVOD_STREAMS_PER_PEER": str(streams)}
                found[connection, streams] = measure(fixture, 2, 1, options, env, connection)
        return table(found, options.gbit)

    return measure_on_hosts(2, SECTION, options, measured)


if __name__ == "__main__":
    sys.exit(main())
