"""All problems by name, in the order of the groups."""

from benchmarks.truth import blocks, designs, outcomes, persons, real, simple, structures, tables
from benchmarks.truth.problem import Problem

MODULES = (simple, tables, designs, outcomes, structures, blocks, persons, real)
PROBLEMS: dict[str, Problem] = {p.name: p for module in MODULES for p in module.PROBLEMS}
GROUPS = {
    "a": "The simplest models",
    "b": "Predictors of real tables",
    "c": "Scales, correlations, rare predictors",
    "d": "Outcomes, groups, curves, mixtures",
    "e": "Latents of single persons",
    "r": "Real tables with their real outcomes, compared with the posterior of the same rows",
}
