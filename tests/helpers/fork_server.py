"""Python programs as copies of one process, which has imported torch and rlframe already: a start takes 0.1 s instead of 2 s.

``Copy`` is a ``subprocess.Popen`` of such a copy. Run as a script, this file is the process that is copied (``serve``), or
stands for one copy (``stand_for_copy``): it has the copy's standard streams, lives as long as it, and ends as it does.
Nothing but Python itself is imported here at first, because stand-ins have to start quickly.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

PRELOADED = (
    *('torch', 'torch.nn', 'torch.optim', 'numpy', 'gymnasium', 'gymnasium.envs.classic_control'),
    *('rlframe.entry.train', 'rlframe.pipeline', 'rlframe.pipeline.resume', 'rlframe.pipeline.checkpoints'),
    *(
        'rlframe.policy.dqn',
        'rlframe.policy.ppo',
        'rlframe.policy.sac',
        'rlframe.policy.sac_discrete',
        'rlframe.envs.gym_env',
        'rlframe.worker',
    ),
    *('rlframe.worker.collector.serial_collector', 'rlframe.data.trajectory', 'rlframe.backend.base'),
)
NEEDED_BY_RAY = ('google.protobuf.descriptor_pb2', 'jsonschema', 'psutil', 'pydantic', 'requests', 'yaml')
"""Imported if they are there. Not ray itself: it reads the environment when it is imported."""
READ_EARLY = ('PYTHON', 'LANG', 'LC_', 'LD_', 'MALLOC_', 'OMP_', 'MKL_', 'OPENBLAS_', 'TORCH_')
"""Starts of the names of variables that Python and libraries read when they start; a copy cannot have others."""
ADDRESS = 'RLFRAME_TESTS_FORK_SERVER'
"""Variable with the socket of the server, for processes of Ray."""
_server: list[tuple[subprocess.Popen[bytes], str]] = []
_in_use: list[dict[str, str]] = []
"""The early variables that copies have, where ``popen`` is to make copies."""


def start() -> str:
    """Starts the server unless this process has one, and returns the path of its socket."""
    if not _server:
        import tempfile

        path, pipe = os.path.join(tempfile.mkdtemp(prefix='rlframe-tests-'), 'socket'), subprocess.PIPE
        words = [sys.executable, __file__, 'serve', path]
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True)
        assert process.stdout is not None
        if process.stdout.readline() != b'ready\n':
            raise RuntimeError('the server did not start')
        _server.append((process, path))
    return _server[0][1]


def server_ids() -> set[int]:
    """Returns the process id of this process's server, which serves all tests, if it has one."""
    return {process.pid for process, _ in _server}


@contextmanager
def copying() -> Iterator[None]:
    """Lets ``popen`` make copies; the server, once started, serves until ``end``."""
    before = _early_variables(os.environ)
    start()
    _in_use.append(before)
    try:
        yield
    finally:
        _in_use.pop()


def popen(words: list[str], **options: Any) -> subprocess.Popen[str]:
    """Starts a Python program: as a copy within ``copying``, if its environment is one that a copy can have.

    Args:
        words: As of ``Copy``.
        options: Arguments of ``Popen``, ``text`` and ``env`` among them.
    """
    if _in_use and _early_variables(options['env']) == _in_use[-1]:
        return Copy(_server[0][1], words, **options)
    return subprocess.Popen([sys.executable, *words], **options)


def end() -> None:
    """Ends the server, if this process has one."""
    while _server:
        process, path = _server.pop()
        process.communicate(b'')
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def _early_variables(environment: Any) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(READ_EARLY) and k != 'PYTHONPATH'}


class Copy(subprocess.Popen[str]):
    """A Python program that runs in a copy; arguments of ``Popen`` follow. Signals go to the copy itself.

    Args:
        words: Arguments of the interpreter: ``-m`` and a module, ``-c`` and a program, or a file, then those of the program.
    """

    def __init__(self, path: str, words: list[str], **options: Any) -> None:
        receiver, sender = os.pipe()
        with open(receiver, encoding='ascii') as told:
            try:
                command = [sys.executable, '-S', '-E', __file__, 'copy', str(sender), path, *words]
                super().__init__(command, pass_fds=[sender], **options)
            finally:
                os.close(sender)
            self.copy_pid = int(told.readline())

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            try:
                os.kill(self.copy_pid, number)
            except ProcessLookupError:  # it has just ended
                return


# the stand-in


def stand_for_copy(address: str, words: list[str], tell: int | None = None) -> NoReturn:
    """Has the server make a copy with the streams, folder and environment of this process, and ends as it does."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = json.dumps({'words': words, 'environment': dict(os.environ), 'folder': os.getcwd()}).encode()
    socket.send_fds(connection, [len(request).to_bytes(8, 'big')], [0, 1, 2])
    connection.sendall(request)
    answers = connection.makefile()
    pid = answers.readline()
    if tell is not None:
        os.write(tell, pid.encode())
        os.close(tell)
    _end_by(int(answers.readline() or 1))


# the server


def serve(path: str) -> dict[str, Any]:
    """Makes a copy for each request, until the standard input ends; returns the request in each copy."""
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(64)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        os.write(1, b'ready\n')
        while True:
            key, _ = selector.select()[0]  # one at a time: it may unregister others
            if key.fd == 0:
                os._exit(0)
            elif key.fileobj is not listener:
                key.data()
            elif (request := _accept(listener, selector)) is not None:
                return request


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> dict[str, Any] | None:
    """Makes a copy; returns what it is to do in the copy, and nothing in the server."""
    connection, _ = listener.accept()
    head, streams, *_ = socket.recv_fds(connection, 8, 3)
    with connection.makefile('rb') as incoming:
        request: dict[str, Any] = json.loads(incoming.read(int.from_bytes(head, 'big')))
    pid = os.fork()
    if pid == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        return request
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(pid)

    def tell(what: int) -> None:
        with suppress(OSError):  # the stand-in is gone
            connection.sendall(f'{what}\n'.encode())

    def stand_in_is_gone() -> None:
        selector.unregister(connection)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(ended, signal.SIGKILL)

    def copy_is_gone() -> None:
        selector.unregister(ended)
        tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if connection in selector.get_map():
            selector.unregister(connection)
        os.close(ended)
        connection.close()

    tell(pid)
    selector.register(ended, selectors.EVENT_READ, copy_is_gone)
    selector.register(connection, selectors.EVENT_READ, stand_in_is_gone)
    return None


# the copy


def run(words: list[str]) -> None:
    """Runs a program as the interpreter does."""
    import runpy

    first, *rest = words
    if first == '-m':
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name='__main__', alter_sys=True)
    elif first == '-c':
        sys.argv[:] = ['-c', *rest[1:]]
        sys.modules['__main__'] = main = ModuleType('__main__')
        exec(compile(rest[0], '<string>', 'exec'), vars(main))
    else:
        sys.argv[:] = words
        runpy.run_path(first, run_name='__main__')


def run_to_the_end(words: list[str]) -> NoReturn:
    """Runs a program and ends this process, but without what costs most at the end of Python: to take down each module."""
    code: Any = 0
    try:
        run(words)
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does: waits for threads, then for exit handlers
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    _end_by(code or 0)


def _end_by(code: int) -> NoReturn:
    """Ends this process by an exit code, or, where it is negative, by that signal."""
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def begin_anew(request: dict[str, Any], import_path: list[str]) -> None:
    """Gives this copy an environment, a folder, streams, an import path and randomness of its own."""
    import numpy as np
    import torch

    os.setpgid(0, 0)  # Ray signals the whole group of a worker
    os.closerange(3, 2**16)
    os.environ.clear()
    os.environ.update(request['environment'])
    os.chdir(request['folder'])
    for number, name in enumerate(('stdin', 'stdout', 'stderr')):
        stream = _stream(number)
        setattr(sys, name, stream)
        setattr(sys, f'__{name}__', stream)
    first = request['words'][0]
    own = os.path.dirname(first) if first.endswith('.py') else '' if first == '-c' else os.getcwd()
    before = [word for word in os.environ.get('PYTHONPATH', '').split(os.pathsep) if word]
    sys.path[:] = [own, *before, *import_path]
    importlib.invalidate_caches()
    np.random.seed()  # noqa: NPY002  # the global generator is the one that a new process seeds by chance
    torch.seed()


def _stream(number: int) -> TextIO:
    """Returns a standard stream, buffered as the interpreter does it."""
    if number == 0:
        return open(0, closefd=False)  # it lives as long as the process
    at_once = number == 2 or os.isatty(number) or bool(os.environ.get('PYTHONUNBUFFERED'))
    errors = 'backslashreplace' if number == 2 else 'strict'
    return open(number, 'w', 1 if at_once else -1, errors=errors, closefd=False)


def main(task: str, *words: str) -> None:
    if task == 'copy':
        stand_for_copy(words[1], list(words[2:]), int(words[0]))
    own = [str(Path(__file__).parent), *os.environ.get('PYTHONPATH', '').split(os.pathsep)]
    import_path = [place for place in sys.path if place not in own]
    sys.path[:] = [str(Path(__file__).parents[2]), *import_path]
    for name in PRELOADED:
        importlib.import_module(name)
    for name in NEEDED_BY_RAY:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # copies do not visit these objects, and so share their memory
    request = serve(words[0])
    begin_anew(request, import_path)
    run_to_the_end(request['words'])


if __name__ == '__main__':
    main(*sys.argv[1:])
