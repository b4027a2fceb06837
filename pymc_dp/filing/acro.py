"""A record for output checking, in the format of ACRO, which SACRO Viewer reads."""

import datetime
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = "0.4.0"  # the format's version that SACRO Viewer writes itself; it refuses older ones


def write_acro(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> None:
    """Write a record, and checksums of the files that are to be released.

    An officer decides: a private result is for review, and one without a guarantee fails.
    """
    text = json.dumps({"version": VERSION, "results": _result(record, files)}, indent=4)
    path.write_text(text + "\n", encoding="utf-8")
    folder = path.parent / "checksums"
    folder.mkdir(exist_ok=True)
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        (folder / f"{file.name}.txt").write_text(digest, encoding="utf-8")


def check_files(path: Path, files: tuple[Path, ...]) -> None:
    """Refuse a record that names no file, or one that is not there."""
    if not files:
        raise ValueError(
            f"{path.name!r} is a record for output checking, which names the files that are to be "
            "released: files=['result.nc'], in the same folder."
        )
    for file in files:
        if not file.is_file() or file.resolve().parent != path.resolve().parent:
            raise ValueError(f"files= names {str(file)!r}, which is no file beside {str(path)!r}.")


def _result(record: Mapping[str, Any], files: tuple[Path, ...]) -> dict[str, Any]:
    proved = record["proved"]
    guarantee, method = proved["guarantee"], proved["fit"]["method"]
    private = guarantee["epsilon"] is not None
    claim = (
        (
            f"({guarantee['epsilon']:.4g}, {guarantee['delta']:g})-differential privacy per "
            f"{guarantee['privacy_unit']}"
        )
        if private
        else f"NOT PRIVATE: {guarantee['kind']}"
    )
    status = "review" if private else "fail"
    output = {
        "uid": "output_0",
        "status": status,
        "type": "custom",
        "properties": {"method": method, **record},
        "files": [{"name": file.name, "sdc": {}} for file in files],
        "outcome": {},
        "command": f"pymc_dp.fit(method={method!r})",
        "summary": f"{status}; {claim}",
        "timestamp": datetime.datetime.now().isoformat(timespec="seconds"),
        "comments": [record["report"], *record["declared"].values()],
        "exception": record["declared"].get("justification", ""),
    }
    return {"output_0": output}
