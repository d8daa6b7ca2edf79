"""The texts of errors in ``tests/errors``: each belongs to a test, and one that differs says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_texts import EXPECTED, Expected, without_places


@pytest.fixture
def expected(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Expected:
    """The texts of a test with two entries."""
    made = Expected(rewrite=False)
    monkeypatch.setattr(made, '_entries', lambda: ['got 0, expected 1', '<any> GiB are free'])
    made.begin(request.node)
    return made


def test_every_entry_belongs_to_a_test() -> None:
    assert EXPECTED.strangers() == [], 'delete these entries'


def test_a_text_fits_its_entry_whatever_stands_in_its_gap(expected: Expected) -> None:
    expected.check('got 0, expected 1')
    expected.check('12.5 GiB are free')
    expected.end()


def test_a_text_that_differs_shows_both_and_the_remedy(expected: Expected) -> None:
    with pytest.raises(pytest.fail.Exception, match=r'(?s)another text.*\+ got 2, .*--rewrite-errors'):
        expected.check('got 2, expected 1')


def test_a_text_without_an_entry_and_an_entry_without_a_text_fail(expected: Expected) -> None:
    expected.check('got 0, expected 1')
    with pytest.raises(pytest.fail.Exception, match=r"did not use: .'<any> GiB are free'"):
        expected.end()
    expected.check('1 GiB are free')
    with pytest.raises(
        pytest.fail.Exception, match=r'(?s)no entry for this text:.one more.*--rewrite-errors'
    ):
        expected.check('one more')


def test_folders_addresses_progress_and_usage_are_left_out(expected: Expected, tmp_path: Path) -> None:
    progress, usage = '0:01 | env steps 12 | loss 1.2\n', 'usage: rlframe train [-h]\n    [--env ID]\n'
    text = f'{usage}{progress}rlframe: {tmp_path}/run: <X at 0x7f0012345678>'
    assert without_places(text, expected.item) == 'rlframe: <tmp>/run: <X at 0x<address>>'
