"""A record names pages that exist, and digests that stand on them."""

import re

import pytest

from pymc_dp.deployment_registry import CHECKS, EVERY_SUM, PAGES, pages_of, proofs_of
from pymc_dp.methods.registry import METHODS
from tests.docs.test_proofs import PAGES as TEXTS
from tests.docs.test_proofs import proofs as extension

ATTRS = {"pymc_dp_version": "0.2.0", "accountant_version": "dp-accounting 0.6.0"}


def test_every_private_method_has_its_pages():
    assert PAGES.keys() == METHODS.keys() - {"sep"}


def test_every_page_but_that_of_ledgers_is_named_by_some_result_and_exists():
    named = {*EVERY_SUM, *CHECKS, "units", "tune"}.union(*PAGES.values())
    assert named == TEXTS.keys() - {"ledger"}


@pytest.mark.parametrize(
    ("attrs", "page"),
    [
        ({"method": "vips"}, "closed_form"),
        ({"method": "dp_sep"}, "sites"),
        ({"method": "dp_advi", "unit": "person"}, "units"),
        ({"method": "dp_advi", "selected": "a"}, "tune"),
        ({"method": "proportions"}, "checks"),
    ],
)
def test_pages_are_those_of_the_method_and_its_terms(attrs, page):
    assert page in pages_of(attrs)
    assert page not in pages_of({"method": "dp_advi"})


def test_a_record_has_the_digest_of_every_file_on_its_pages():
    record = proofs_of(ATTRS | {"method": "dp_advi", "unit": "person"})
    for page in record["pages"]:
        name = re.fullmatch(r"docs/proofs/(\w+)\.md", page)[1]
        on_page = extension.files(TEXTS[name])
        assert on_page
        assert on_page.items() <= record["digests"].items()
