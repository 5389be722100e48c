# SPDX-License-Identifier: Apache-2.0
"""How many drawn digits a classifier of the real ones recognises.

    ./mxtree sample runs/flux_tiny -o out/digits.png --count 10
    trees/default.venv/bin/python benchmarks/recognise_digits.py out/digits.png

Columns of the picture are the digits 0 to 9. The classifier is a support-vector machine trained on
the pictures that the run trained on; it recognises 99 % of those kept for validation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.svm import SVC

from mxflux.data.digits import SIDE, load_digits, validation_mask
from mxflux.sampling.pictures import GAP

DIGITS = 10


def cut(path: Path) -> np.ndarray:
    """Drawn pictures [rows, 10, 8, 8] in [-1,1], averaged down to the size of the real ones."""
    with Image.open(path) as opened:
        sheet = np.asarray(opened.convert("L"), dtype=np.float32) / 127.5 - 1
    side = (sheet.shape[1] - GAP) // DIGITS - GAP
    rows = (sheet.shape[0] - GAP) // (side + GAP)
    starts = [GAP + index * (side + GAP) for index in range(max(rows, DIGITS))]
    block = side // SIDE
    return np.stack(
        [
            sheet[top : top + side, left : left + side]
            .reshape(SIDE, block, SIDE, block)
            .mean((1, 3))
            for top in starts[:rows]
            for left in starts[:DIGITS]
        ]
    ).reshape(rows, DIGITS, SIDE, SIDE)


def main() -> None:
    """Print the share recognised, real pictures first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    drawn = cut(parser.parse_args().picture)
    pictures, labels = load_digits()
    flat, mask = pictures.numpy().reshape(len(labels), -1), validation_mask(len(labels))
    classifier = SVC(C=10).fit(flat[~mask], labels[~mask])
    print(f"real, not trained on: {classifier.score(flat[mask], labels[mask]):.1%}")
    guess = classifier.predict(drawn.reshape(-1, SIDE * SIDE)).reshape(-1, DIGITS)
    right = guess == np.arange(DIGITS)
    print(f"drawn: {int(right.sum())} of {right.size}")
    for digit in range(DIGITS):
        wrong = sorted({int(value) for value in guess[:, digit] if value != digit})
        taken = f", taken for {wrong}" if wrong else ""
        print(f"  {digit}: {int(right[:, digit].sum())} of {len(right)}{taken}")


if __name__ == "__main__":
    main()
