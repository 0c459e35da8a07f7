"""Trains with 1, 2 and 4 processes and draws how the speed grows:

    python examples/scaling_plot.py --output scaling

What you see is this machine: more processes than cores cannot be faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "common"))
PROGRAMS = {
    "tf2_hvd_mnist": HERE / "tensorflow2" / "tf2_hvd_mnist.py",
    "keras_mnist": HERE / "keras" / "keras_mnist.py",
    "keras_mnist_advanced": HERE / "keras" / "keras_mnist_advanced.py",
    "practice": HERE / "keras" / "practice.py",
}


def counts(text: str) -> list[int]:
    """A type for argparse: `1,2,4`."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers above 0, such as 1,2,4")
    return found


def measure(processes: int, options: argparse.Namespace, directory: Path) -> float:
    """Images per second; exits with the program's last words if it fails."""
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(processes), sys.executable]
    command += [
        str(PROGRAMS[options.program]),
        "--epochs",
        str(options.epochs),
        "--summary-dir",
        str(directory),
    ]
    if options.limit:
        command += ["--limit", str(options.limit)]
    directory.mkdir()
    # Relative files of the program, such as its checkpoints, go there as well.
    package = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": package},
            capture_output=True,
            text=True,
            timeout=options.timeout,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{processes} processes did not finish in {options.timeout} s: raise --timeout")
    if done.returncode != 0:
        sys.exit(f"{processes} processes: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return float(json.loads((directory / "summary.json").read_text())["images_per_second"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Draws images/s over the number of processes",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--processes", type=counts, default=[1, 2, 4], help="numbers, such as 1,2,4")
    parser.add_argument("--program", choices=sorted(PROGRAMS), default="tf2_hvd_mnist", help="what to run")
    parser.add_argument("--epochs", type=int, default=4, help="for each number; the first is not counted")
    parser.add_argument("--limit", type=int, help="use only so many digits")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each number")
    parser.add_argument("--output", metavar="DIR", default="scaling", help="where to write the pictures")
    options = parser.parse_args()
    if options.epochs < 1 or options.timeout <= 0:
        parser.error("--epochs and --timeout must be above 0")
    return options


def main() -> None:
    """Entry point."""
    options = parse()
    try:
        from training_charts import Chart, Line, write_page
    except ImportError:
        sys.exit("The pictures are drawn with matplotlib, which is not installed: pip install matplotlib")
    output = Path(options.output)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"--output {output}: {error.strerror}")
    speeds = []
    with tempfile.TemporaryDirectory() as directory:
        for number in options.processes:
            speeds.append(measure(number, options, Path(directory) / str(number)))
            print(f"{number} process(es): {speeds[-1]:,.0f} images/s", flush=True)
    per_process = speeds[0] / options.processes[0]
    ideal = [per_process * number for number in options.processes]
    numbers = [float(number) for number in options.processes]
    chart = Chart(
        "scaling",
        "Images per second",
        numbers,
        [Line("measured", speeds), Line("ideal", ideal, guide=True)],
        x_title="Processes",
        from_zero=True,
    )
    shares = [speed / best for speed, best in zip(speeds, ideal, strict=True)]
    tiles = [("Processes", str(options.processes[-1])), ("Images per second", f"{speeds[-1]:,.0f}")]
    tiles += [("Of the ideal", f"{shares[-1]:.0%}"), ("Cores here", str(os.cpu_count()))]
    rows = [
        [str(number), f"{speed:,.0f}", f"{share:.0%}"]
        for number, speed, share in zip(options.processes, speeds, shares, strict=True)
    ]
    try:
        page = write_page(
            output,
            f"Scaling of {options.program}",
            tiles,
            [chart],
            ["Processes", "Images/s", "Of the ideal"],
            rows,
        )
    except OSError as error:
        sys.exit(f"--output {output}: {error.strerror or error}")
    print(f"Report: {page}")


if __name__ == "__main__":
    main()
