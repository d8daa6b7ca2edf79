"""A headless Chromium, if one is installed, for tests of pages."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

QUIET = (
    *('--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'),
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',  # nothing leaves this machine
)
OWN = ('clients2.google.com', 'update.googleapis.com', 'accounts.google.com')
"""Hosts that the browser asks for itself."""


class Opened(NamedTuple):
    """What came of opening a page."""

    dom: str
    """The page after its scripts ran."""
    console: list[str]
    """Messages in the console of the browser."""
    requests: list[str]
    """Addresses that were asked for over the network."""


def open_page(url: str, folder: Path, milliseconds: int = 1000) -> Opened:
    """Opens a page; skips the test if there is no Chromium, or if it does not start here.

    Args:
        url: Its address.
        folder: For the browser's files.
        milliseconds: Time of the page, which the browser runs through without waiting.
    """
    browser = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
    if browser is None:
        pytest.skip('no Chromium is installed')
    log = folder / 'net.json'
    words = ['--headless', '--no-sandbox', '--disable-gpu', f'--user-data-dir={folder / "profile"}', *QUIET]
    words += ['--enable-logging=stderr', f'--log-net-log={log}', f'--virtual-time-budget={milliseconds}']
    done = subprocess.run([browser, *words, '--dump-dom', url], capture_output=True, text=True, timeout=60)
    if done.returncode or not log.exists():
        pytest.skip(f'Chromium does not start here: {done.stderr[-300:]}')
    events = json.loads(log.read_text(encoding='utf-8'))['events']
    urls = {event['params']['url'] for event in events if 'url' in event.get('params', {})}
    asked = {url for url in urls if urlsplit(url).hostname not in OWN}
    console = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
    return Opened(
        done.stdout, console, sorted(each for each in asked if not each.startswith(('file:', 'data:')))
    )
