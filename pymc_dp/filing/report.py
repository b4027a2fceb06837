"""What a result guarantees, in words, and as a record that can be filed."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pymc as pm
import xarray as xr

from pymc_dp.auditing.audit import Audit
from pymc_dp.filing.acro import check_files, write_acro
from pymc_dp.filing.balance import ledger_state
from pymc_dp.filing.record import checked, record_of
from pymc_dp.filing.registry import registry_yaml
from pymc_dp.ledger.ledger import Ledger
from pymc_dp.results.allow_list import privacy_of
from pymc_dp.results.report import in_words
from pymc_dp.tables.public_table import PublicTable

ENDINGS = (".md", ".txt", ".json", ".yaml", ".yml")


def privacy_report(
    idata: xr.DataTree,
    path: str | os.PathLike[str] | None = None,
    *,
    model: pm.Model | None = None,
    metadata: PublicTable | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    audit: Audit | None = None,
    declare: Mapping[str, str] | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
) -> str:
    """Say in words what a result guarantees, for whom and under which assumptions.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    path : str or Path, optional
        A file to write a record to; what exists there is replaced. Its ending says which record:

        * ``.md``, ``.txt``: the report in words, with proofs and attack success
        * ``.json``: all fields
        * ``.yaml``, ``.yml``: an entry for the registry of deployments of differential privacy
        * ``acro.json`` at the end: for output checking by ACRO and SACRO Viewer, with checksums
          in the folder ``checksums`` beside it
    model : pymc.Model, optional
        The model that was fitted: single numbers in its priors and potentials that were taken on
        trust are then shown with their values. A result does not hold them, so that one which was
        computed from the data by mistake is not published with it: look before you publish.
    metadata : PublicTable, optional
        Of `read_csvw`: numbers of ``model`` that the file declares are then said to be declared
        there, and so are the number of records and the levels of groups.
    ledger : Ledger or path, optional
        The ledger that the fit was booked in: its terms and its balance are then part of the
        report. All fits count as planned, also those that ended early.
    audit : Audit, optional
        What `pymc_dp.audit` returned for the same method.
    declare : mapping of str to str, optional
        What people state and no program can check. It is kept apart from what the library
        proves, and fills in the fields of the registry: ``name``, ``curator``, ``curator_type``,
        ``description``, ``intended_use``, ``region``, ``sector``, ``publication_date``,
        ``data_domain``, ``unprotected``, ``preprocessing``, ``justification``, ``author``.
    files : iterable of str or Path, optional
        For ``acro.json`` alone: the files that are to be released, in the same folder.

    Returns
    -------
    str
        Paragraphs of plain text.

    Raises
    ------
    ValueError
        The tree is not a result of pymc_dp; ``metadata`` is given without ``model``; the path has
        another ending; the ledger or the audit is not of this fit; ``declare`` has an unknown
        name; a result without a guarantee is to be registered.

    Notes
    -----
    **Privacy.** Post-processing of what the fit released, and public settings. What was added to
    the tree since is named in the report, and its values are in no record.

    Examples
    --------
    >>> print(pymc_dp.privacy_report(idata))  # doctest: +SKIP
    >>> pymc_dp.privacy_report(idata, "report.json", ledger="survey.ledger")  # doctest: +SKIP
    """
    attrs = privacy_of(idata).attrs
    declared, released = checked(declare), tuple(map(Path, files))
    target = None if path is None else _target(Path(path), released)
    _check_audit(audit, attrs["method"])
    state = ledger_state(ledger, attrs)
    parts = [in_words(idata, model, metadata)]
    parts += [] if state is None else [str(state)]
    parts += [] if audit is None else [f"Audit: {audit}"]
    parts += [f"Declared, and not checked: {name}: {text}" for name, text in declared.items()]
    text = "\n\n".join(parts)
    if target is not None:
        record = record_of(idata, text, ledger=state, declare=declared, audit=audit)
        _write(record, target, released)
    return text


def _is_acro(path: Path) -> bool:
    return f".{path.name}".endswith(".acro.json")


def _target(path: Path, files: tuple[Path, ...]) -> Path:
    """Refuse a path whose record is unknown, before anything is written."""
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{str(path)!r} names no record: end it in one of {', '.join(ENDINGS)} or acro.json."
        )
    if _is_acro(path):
        check_files(path, files)
    elif files:
        raise ValueError(f"files= belongs to a record that ends in acro.json, not {str(path)!r}.")
    return path


def _check_audit(audit: Audit | None, method: str) -> None:
    if audit is None:
        return
    if not isinstance(audit, Audit):
        raise TypeError(f"audit={audit!r} must be what pymc_dp.audit returns.")
    if audit.method != method:
        raise ValueError(f"audit= attacked method={audit.method!r}; the result is of {method!r}.")


def _write(record: Mapping[str, Any], path: Path, files: tuple[Path, ...]) -> None:
    if _is_acro(path):
        write_acro(record, path, files)
        return
    if path.suffix == ".json":
        text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    elif path.suffix in {".yaml", ".yml"}:
        text = registry_yaml(record)
    else:
        text = _as_text(record)
    path.write_text(text, encoding="utf-8")


def _as_text(record: Mapping[str, Any]) -> str:
    proved = record["proved"]
    attack = proved["attack_success"]
    parts = [
        f"# Privacy report\n\n{record['report']}",
        proved["guarantee"]["unit_contributes"],
        f"Randomness: {proved['fit']['rng']}.",
        f"{proved['trust']} {proved['threat']}",
        f"Proofs: {proved['proofs']['in_words']}.",
        f"Attack success: {attack['in_words']}." if attack else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
