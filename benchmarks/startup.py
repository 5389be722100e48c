# SPDX-License-Identifier: Apache-2.0
"""`./mxtree --help` against an interpreter that does nothing, alternately in one run.

Wall time counts for people, processor time for comparing runs on a machine that is busy.

    python benchmarks/startup.py [--rounds 15] [--out docs/results/startup.md]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: The time in seconds that `./mxtree --help` may take.
BUDGET_S = 0.25


def main() -> int:
    """Measure, print the table, write it where asked; status 1 when over the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # Makes the environment where it is missing; the interpreter in it is the floor.
    wrapper = [str(ROOT / "mxtree"), "--help"]
    subprocess.run(wrapper, stdout=subprocess.DEVNULL, check=True)
    python = str(ROOT / ".venv" / "bin" / "python")
    commands = {
        "`python -I -c pass` (floor)": [python, "-I", "-c", "pass"],
        "`python -I -m mxtree --help`": [python, "-I", "-m", "mxtree", "--help"],
        "`./mxtree --help`": wrapper,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            times[name].append(_timed(command))
    table = _table(times)
    print(table)
    if options.out:
        options.out.write_text(table, encoding="utf-8")
    return int(min(wall for wall, _ in times["`./mxtree --help`"]) > BUDGET_S)


def _timed(command: list[str]) -> tuple[float, float]:
    """Return wall and processor seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _table(times: dict[str, list[tuple[float, float]]]) -> str:
    lines = [
        "| command | wall s, best | wall s, median | processor s, best |",
        "|---|---|---|---|",
    ]
    for name, measured in times.items():
        walls, processor = [wall for wall, _ in measured], [used for _, used in measured]
        row = f"{min(walls):.3f} | {statistics.median(walls):.3f} | {min(processor):.3f}"
        lines.append(f"| {name} | {row} |")
    return "\n".join([*lines, "", f"Budget of `./mxtree --help`: {BUDGET_S} s.", ""])


if __name__ == "__main__":
    sys.exit(main())
