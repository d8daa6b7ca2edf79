"""The lessons of the course run as notebooks, with the budgets that they have, and a cell that fails names its page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT
from error_texts import raises

LESSONS = sorted((ROOT / 'docs' / 'course').glob('[0-9]*.md'))
ON_RAY = '10_on_ray'
SECONDS = 300
"""Longest time of a cell."""
nbformat = pytest.importorskip('nbformat')


def made(folder: Path) -> dict[str, Any]:
    """Returns the notebooks by their names, as the command writes them."""
    command = [sys.executable, str(ROOT / 'docs' / 'make_notebooks.py'), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return {file.stem: nbformat.read(file, as_version=4) for file in folder.glob('*.ipynb')}


def run_lesson(book: Any, page: str) -> list[str]:
    """Runs the cells of a notebook in the working directory, and returns what they print.

    Raises:
        AssertionError: If a cell fails; the page, the cell and the error are named.
    """
    nbclient = pytest.importorskip('nbclient')
    pytest.importorskip('ipykernel')
    client = nbclient.NotebookClient(book, timeout=SECONDS, kernel_name='python3')
    client.create_kernel_manager().transport = 'ipc'  # files in the working directory
    try:
        client.execute()
    except (nbclient.exceptions.CellExecutionError, nbclient.exceptions.CellTimeoutError) as error:
        cell = [cell for cell in book.cells if cell.cell_type == 'code' and cell.execution_count is not None][
            -1
        ]
        raise AssertionError(f'a cell of {page} fails:\n\n{cell.source}\n\n{error}') from error
    outputs = [each for cell in book.cells if cell.cell_type == 'code' for each in cell.outputs]
    return [each.text for each in outputs if each.output_type == 'stream' and each.name == 'stdout']


def test_there_are_ten_lessons_and_each_is_a_valid_notebook_that_names_its_page(tmp_path: Path) -> None:
    books = made(tmp_path)
    assert len(books) == 10 and books.keys() == {page.stem for page in LESSONS}
    index = (ROOT / 'docs' / 'course' / 'index.md').read_text(encoding='utf-8')
    for page in LESSONS:
        nbformat.validate(books[page.stem])
        first, *_ = books[page.stem].cells
        assert f'docs/course/{page.name}' in first.source
        assert f'({page.name})' in index
        text = '\n'.join(cell.source for cell in books[page.stem].cells if cell.cell_type == 'markdown')
        assert '```' not in text, 'a block that is no cell'
        for link in re.findall(r'\]\((?!https?:)([^)#\s]+)', text):
            assert (tmp_path / link).exists(), f'{page.name}: {link}'


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize(
    'name',
    [pytest.param(page.stem, marks=[pytest.mark.ray] if page.stem == ON_RAY else []) for page in LESSONS],
)
def test_the_cells_of_a_lesson_run(name: str, cwd: Path) -> None:
    assert run_lesson(made(cwd)[name], f'docs/course/{name}.md')


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_a_cell_that_fails_names_its_page(cwd: Path) -> None:
    book = made(cwd)['04_own_env']
    book.cells = [nbformat.v4.new_code_cell(text) for text in ('cells = 10', 'print(cell)', 'print(cells)')]
    with raises(AssertionError):
        run_lesson(book, 'docs/course/04_own_env.md')
