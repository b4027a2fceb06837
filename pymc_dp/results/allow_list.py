"""What a fit released: the list that a result carries, and what may be saved by it."""

import json

import xarray as xr


def released_names(groups: dict[str, xr.Dataset]) -> dict[str, list[str]]:
    """Name every variable and attribute of every group of a fresh result."""
    names = {name: [*map(str, (*group.variables, *group.attrs))] for name, group in groups.items()}
    names["privacy"].append("released")
    return names


def privacy_of(idata: xr.DataTree) -> xr.Dataset:
    """Return the ``privacy`` group of a result; refuse anything else."""
    if not isinstance(idata, xr.DataTree):
        given = type(idata).__name__
        raise TypeError(f"A result of pymc_dp.fit is needed, before any model, not {given}.")
    group = idata["privacy"].to_dataset() if "privacy" in idata.children else xr.Dataset()
    if not {"guarantee", "epsilon", "delta", "released"} <= group.attrs.keys():
        raise ValueError("This tree has no `privacy` group of a fit: it was not made by pymc_dp.")
    return group


def released_part(idata: xr.DataTree) -> xr.DataTree:
    """Return the part of a tree that its fit released; all else is dropped."""
    groups = {}
    for name, names in listed(idata).items():
        if name in idata.children:
            group = idata[name].to_dataset()
            kept = group.drop_vars([x for x in group.variables if x not in names])
            attrs = {k: v for k, v in group.attrs.items() if k in names}
            groups[name] = kept.drop_attrs().drop_encoding().assign_attrs(attrs)
    return xr.DataTree.from_dict(groups)


def listed(idata: xr.DataTree) -> dict[str, set[str]]:
    """Return the names of variables and attributes that a fit released, by group."""
    listed = json.loads(privacy_of(idata).attrs["released"])
    return {name: set(names) for name, names in listed.items()}
