"""Writes the pages of the course, ``docs/course``, as notebooks.

usage: python docs/make_notebooks.py FOLDER

Text becomes cells of Markdown, and a block of Python a cell of code; one below ``<!-- file: NAME -->`` writes that file.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

COURSE = Path(__file__).parent / 'course'
BLOCK = re.compile(r'^(?:<!-- file: (\S+) -->\n)?```python\n(.*?)^```\n', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'\]\((?!https?:|#)([^)#\s]+)')


def pages() -> list[Path]:
    """Returns the lessons, in order."""
    return sorted(COURSE.glob('[0-9]*.md'))


def notebook(page: Path, folder: Path) -> dict[str, Any]:
    """Returns a lesson as a notebook (nbformat 4.5).

    Args:
        page: The lesson.
        folder: Where the notebook will be; links of the page lead to the same files from there.
    """
    start = os.path.relpath(page.parent, folder)
    text = page.read_text(encoding='utf-8')
    title, body = text.split('\n', 1)
    text = f'{title}\n\n*Made from docs/course/{page.name}.*\n{body}'
    cells: list[dict[str, Any]] = []
    before = 0
    for block in [*BLOCK.finditer(text), None]:
        said = text[before : block.start() if block else None].strip()
        if said:
            source = LINK.sub(lambda found: f']({os.path.normpath(os.path.join(start, found[1]))}', said)
            cells.append({'cell_type': 'markdown', 'source': source})
        if block:
            head = f'%%writefile {block[1]}\n' if block[1] else ''
            code = head + block[2].strip()
            cells.append({'cell_type': 'code', 'source': code, 'outputs': [], 'execution_count': None})
            before = block.end()
    for number, cell in enumerate(cells):
        cell |= {'id': f'cell-{number}', 'metadata': {}}
    kernel = {'name': 'python3', 'display_name': 'Python 3', 'language': 'python'}
    return {'nbformat': 4, 'nbformat_minor': 5, 'metadata': {'kernelspec': kernel}, 'cells': cells}


def main() -> None:
    """Writes the notebooks into the folder."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages():
        file = folder / f'{page.stem}.ipynb'
        file.write_text(
            json.dumps(notebook(page, folder), indent=1, ensure_ascii=False) + '\n', encoding='utf-8'
        )
        print(file)


if __name__ == '__main__':
    main()
