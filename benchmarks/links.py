"""Allreduce between hosts whose network has a given rate: how much of it is used, how many bytes are sent.

    python benchmarks/links.py              # needs root; prints a table
    python benchmarks/links.py --write      # and puts it into docs/benchmarks.md

The hosts are network namespaces of this machine (tests/cluster/cluster_hosts.py), each with one port of a
switch that passes only so many bits in either direction.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flags import above_zero, circumstances, new_parser
from section import Section

from horovod.bench.options import positive

ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "support")]

from cluster_hosts import Hosts, why_not  # noqa: E402
from cluster_job import ClusterJob  # noqa: E402

SECTION = Section(
    "links",
    """
## Between hosts

`python benchmarks/links.py --write` (root): hosts are network namespaces on one machine, each connected
through a port that passes 1 Gbit/s in either direction (`tc tbf`). A host has to send 2(h-1)/h of the tensor
on h hosts; *of the link* is that divided by the time and the rate, *sent* what the interface counted, headers
and acknowledgements included, in multiples of it.
""",
)
LINK_TARGET, BYTES_TARGET = 0.90, 1.05
MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """What was measured on `hosts` with `ranks` each."""

    hosts: int
    ranks: int
    size: int
    seconds: list[float]
    sent: list[int]  # by repetition, of the host that sent most
    rate: float  # bytes a second

    @property
    def least(self) -> float:
        """Bytes that every host has to send."""
        return 2 * (self.hosts - 1) / self.hosts * self.size

    @property
    def use(self) -> float:
        return self.least / statistics.median(self.seconds) / self.rate

    @property
    def excess(self) -> float:
        return max(self.sent) / self.least


def measure(
    fixture: Hosts,
    hosts: int,
    ranks: int,
    options: argparse.Namespace,
    env: dict[str, str] | None = None,
    connection: float = 0,
) -> Line:
    """One job. SystemExit with its output if it fails. `connection` Gbit/s are the most of one."""
    where = ",".join(f"host{host}:{ranks}" for host in range(1, hosts + 1))
    program = ROOT / "tests" / "cluster" / "cluster_traffic.py"
    size = options.mib * MIB
    words = [sys.executable, program, "eth0", str(size), str(options.repetitions)]
    if connection > 0:
        words.append(str(round(connection * 1e9 / 8)))
    job = ClusterJob(fixture, "-np", str(hosts * ranks), "-H", where, *words, env=env)
    result = job.finish(300)
    if result.returncode != 0:
        raise SystemExit(f"the job on {where} failed:\n{result.stdout}\n{result.stderr}")
    line = next(line for line in result.stdout.splitlines() if "measured " in line)
    found = json.loads(line.partition("measured ")[2])
    sent = [max(each.values()) for each in found["sent"]]
    return Line(hosts, ranks, size, found["seconds"], sent, options.gbit * 1e9 / 8)


def table(lines: list[Line]) -> str:
    rows = [
        "| hosts | ranks on each | allreduce | runs | p50 | of the link | target | sent | target | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        passed = line.use >= LINK_TARGET and line.excess <= BYTES_TARGET
        rows.append(
            f"| {line.hosts} | {line.ranks} | {line.size // MIB} MiB | {len(line.seconds)} "
            f"| {statistics.median(line.seconds) * 1e3:.0f} ms | {line.use:.1%} | ≥ {LINK_TARGET:.0%} "
            f"| {line.excess:.3f} | ≤ {BYTES_TARGET:g} | {'pass' if passed else 'MISS'} |"
        )
    return "\n".join(rows)


def links_parser(description: str) -> argparse.ArgumentParser:
    parser = new_parser(description)
    parser.add_argument("--gbit", type=above_zero, default=1.0, help="rate of each host's link in Gbit/s")
    parser.add_argument("--mib", type=positive, default=64, help="size of the tensor")
    parser.add_argument("--repetitions", type=positive, default=7, help="allreduces of each job")
    return parser


def measure_on_hosts(
    count: int, section: Section, options: argparse.Namespace, table_of: Callable[[Hosts], str]
) -> int:
    """Makes that many hosts, prints the table that is measured on them and, with --write, keeps it."""
    reason = why_not()
    if reason is not None:
        print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
        return 1
    load = circumstances(f"{options.gbit:g} Gbit/s, all hosts on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory:
        fixture = Hosts(count, Path(directory))
        try:
            text = f"{load}\n\n{table_of(fixture)}"
        finally:
            fixture.close()
    print(text)
    if options.write:
        section.write(text)
    return 0


def main() -> int:
    """Entry point."""
    options = links_parser("Measures allreduce over links of a given rate.").parse_args()

    def measured(fixture: Hosts) -> str:
        fixture.limit(f"{options.gbit * 1000:g}mbit")
        return table([measure(fixture, hosts, ranks, options) for hosts in (2, 3) for ranks in (1, 2)])

    return measure_on_hosts(3, SECTION, options, measured)


if __name__ == "__main__":
    sys.exit(main())
