"""Exit notes: an actor's process writes to its log how it ends, which Ray does not know; the driver reads them."""

from __future__ import annotations

import os
import re
import signal
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

OLD_WORDS = 2**16
"""Number of bytes at the end of a log that are searched for the exit note."""
MARK = 'rlframe: this process ends by '
WORDS = re.compile(
    rf'^{MARK}(?P<noted>.+)$'
    r'|^\*\*\* (?P<signal>SIG[A-Z]+) received at '  # of Ray
    r'|^Fatal Python error: (?P<crash>[A-Z][a-z -]+)$',  # of faulthandler, which Ray enables
    re.MULTILINE,
)
CRASHES = {
    'Segmentation fault': 'SIGSEGV',
    'Aborted': 'SIGABRT',
    'Bus error': 'SIGBUS',
    'Floating point exception': 'SIGFPE',
    'Illegal instruction': 'SIGILL',
}
"""Names of signals in faulthandler's output."""
FATAL = ('SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGALRM', 'SIGXCPU')
"""Signals that end a process but leave it time for an exit note."""


def note_ends() -> None:
    """Makes this actor's process write an exit note to its log; does nothing if the log is not Ray's."""
    try:
        log = os.readlink('/proc/self/fd/2')
    except OSError:  # a system without /proc
        return
    if not re.search(r'/logs/worker-[^/]*\.err$', log):
        return
    own, exit_at_once = os.getpid(), os._exit

    def note(how: str) -> None:
        if os.getpid() == own:  # and not one of its forks
            where = ''.join(traceback.format_stack()[:-2])
            os.write(2, f'\n{MARK}{how}\n{where}'.encode())

    def noted_exit(status: int) -> NoReturn:
        note(f'os._exit({status})')
        exit_at_once(status)

    def noted_signal(number: int, frame: FrameType | None) -> None:
        note(_named(signal.Signals(number).name))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    changeable: Any = os
    changeable._exit = noted_exit
    if threading.current_thread() is threading.main_thread():
        for name in FATAL:
            number = signal.Signals[name]
            # Ray makes SIGTERM a SystemExit
            if name == 'SIGTERM' or signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, noted_signal)


def last_words(log: Path) -> str:
    """Returns how a process ended according to its exit note; empty if there is none."""
    try:
        with log.open('rb') as file:
            file.seek(max(0, log.stat().st_size - OLD_WORDS))
            found = list(WORDS.finditer(file.read().decode('utf-8', 'replace')))
    except OSError:  # Ray has removed it
        return ''
    if not found:
        return ''
    words = found[-1].groupdict()
    if words['crash']:
        return _named(CRASHES.get(words['crash'], words['crash']))
    return words['noted'] or _named(words['signal'])


def _named(name: str) -> str:
    number = f' {signal.Signals[name].value}' if name in signal.Signals.__members__ else ''
    return f'signal{number} ({name})' if number else f'a crash ({name})'
