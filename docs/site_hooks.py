"""Lets pages of the site link to files outside ``docs``: each linked file becomes a page of the site.

MkDocs calls these functions while it builds the site (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r'\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)')
FILE_NAME = re.compile(r'\[([\w./]+\.md)\]\(([^)#\s]+)(#[^)]*)?\)')
WIDE = ('config.md', 'support.md', 'how_to/from_')
"""Beginnings of pages that are too wide for a table of contents at their side."""
KINDS = {'.py': 'python', '.txt': 'text', '.toml': 'toml', '.yml': 'yaml'}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for every file outside ``docs`` that a page links to, and that those pages link to."""
    waiting = [
        (file.src_uri, Path(file.abs_src_path or '').read_text(encoding='utf-8'))
        for file in files.documentation_pages()
    ]
    while waiting:
        page, text = waiting.pop()
        for link, _ in LINK.findall(text):
            target = _outside(page, link)
            if target and not files.get_file_from_path(uri := _uri(target)):
                content = _content(target)
                files.append(File.generated(config, uri, content=content))
                waiting.append((uri, content))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Points links to files outside ``docs`` to their pages, and names linked pages by their titles."""
    here = page.file.src_uri
    if here == 'index.md':
        page.meta['hide'] = ['navigation']  # the tabs above show it
    elif here.startswith(WIDE):
        page.meta['hide'] = ['toc']

    if here.startswith('source/'):
        page.meta['search'] = {'exclude': True}
    elif here == 'config.md':
        page.meta['search'] = {'boost': 3}

    def titled(found: re.Match[str]) -> str:
        file = files.get_file_from_path(posixpath.normpath(posixpath.join(posixpath.dirname(here), found[2])))
        is_named = file is not None and file.name == Path(found[1]).stem
        title = re.search('^# (.*)$', file.content_string, re.MULTILINE) if file and is_named else None
        return f'[{title[1]}]({found[2]}{found[3] or ""})' if title else found[0]

    def relink(found: re.Match[str]) -> str:
        target = _outside(here, found[1])
        if not target:
            return found[0]
        return f']({posixpath.relpath(_uri(target), posixpath.dirname(here))}{found[2] or ""})'

    return FILE_NAME.sub(titled, LINK.sub(relink, markdown))


def _outside(page: str, link: str) -> str:
    """Returns the path within the repository of a link that leaves ``docs``, and else an empty string."""
    target = posixpath.normpath(posixpath.join('docs', posixpath.dirname(page), link))
    is_outside = not target.startswith(('docs/', '..')) or target.endswith('.py')
    return target if is_outside and (ROOT / target).exists() else ''


def _uri(target: str) -> str:
    return f'source/{target.removesuffix(".md")}.md'


def _content(target: str) -> str:
    """Returns the Markdown of a file or folder; links of a page are made to start at its new place."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(file for file in path.rglob('*.py'))
        return f'# {target}\n\n' + '\n'.join(f'- `{name.relative_to(ROOT)}`' for name in names) + '\n'
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.md':
        return LINK.sub(lambda found: f']({_moved(target, found[1])}{found[2] or ""})', text)
    return f'# {target}\n\n```{KINDS.get(path.suffix, "text")}\n{text}```\n'


def _moved(target: str, link: str) -> str:
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(target), link))
    start = posixpath.join('docs', posixpath.dirname(_uri(target)))
    return posixpath.relpath(whole, start)
