"""MetricWriter: the one writer of a run's metrics, which hands each record to all loggers of the config."""

from __future__ import annotations

import csv
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.film import Film, write_film
from rlframe.run.logger import LOGGERS, LoggedRun, Logger, Record
from rlframe.run.metrics import METRICS, cut_off, sizes_of
from rlframe.utils.files import whole_file

log = logging.getLogger('rlframe.logger')

TABLE = 'metrics.csv'
FIRST = ('envstep', 'train_iter', 'time')
"""Columns of every table; the others follow in the order of their first records."""
DI_NAMES = {
    'rollout/ep_rew_mean': 'collector_step/reward_mean',
    'time/fps': 'collector_step/avg_envstep_per_sec',
    'eval/mean_reward': 'evaluator_step/eval_episode_return_mean',
    'train/total_loss': 'learner_step/total_loss_avg',
    'train/learning_rate': 'learner_step/cur_lr_avg',
}
"""Maps rlframe's tags to those of DI-engine; other tags keep their name."""


def line_of(record: Record) -> dict[str, Any]:
    """Returns a record as one flat dict that JSON can hold; numbers that are not finite become None."""
    values = {tag: value if math.isfinite(value) else None for tag, value in record.values.items()}
    return {'envstep': record.envstep, **record.facts, **values, 'time': round(record.time, 3)}


@LOGGER_REGISTRY.register('jsonl')
class JsonLinesLogger(Logger):
    """Writes one JSON object per record to metrics.jsonl; every run has this logger."""

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._file = open(run.folder / METRICS, 'a', encoding='utf-8', buffering=1)  # noqa: SIM115  closed by close()

    def write(self, record: Record) -> None:
        self._file.write(json.dumps(line_of(record)) + '\n')

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@LOGGER_REGISTRY.register('csv')
class CsvLogger(Logger):
    """Writes the records to metrics.csv, a row each and a column per tag; cells without a number are empty.

    The table is made from ``metrics.jsonl`` when the run saves a checkpoint, and when it ends.
    """

    def write(self, record: Record) -> None:
        """Leaves the record to the file that the table is made from."""

    def flush(self) -> None:
        source = self._run.folder / METRICS
        columns = dict.fromkeys(FIRST)
        for row in _records(source):
            columns |= dict.fromkeys(row)
        with (
            whole_file(self._run.folder / TABLE, is_private=False) as draft,
            open(draft, 'w', encoding='utf-8', newline='') as file,
        ):
            table = csv.DictWriter(file, list(columns), restval='', lineterminator='\n')
            table.writeheader()
            table.writerows(_records(source))

    def close(self) -> None:
        self.flush()


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the records of a file, without a last line that is cut off."""
    if not path.exists():
        return
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            if line.endswith('\n') and isinstance(row := json.loads(line), dict):
                yield row


class MetricWriter:
    """Writes records of numbers to ``metrics.jsonl`` and to other loggers.

    Args:
        folder: Run folder.
        tag_style: ``sb3`` or ``di``: how tags are named in TensorBoard and on servers. Files always use rlframe's names.
        position: Result of ``state_dict()`` at the checkpoint of a resumed run: later output is cut off.
        loggers: Value of the option ``loggers``.
        config: The run's ``main_config`` and ``create_config`` as plain data, without secrets.
    """

    def __init__(
        self,
        folder: Path,
        tag_style: str = 'sb3',
        position: Mapping[str, Any] | None = None,
        loggers: Any = ('tensorboard',),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        repeated = 0 if position is None else cut_off(folder, position)
        run = LoggedRun(folder, config or {}, repeated)
        self._loggers: dict[str, Logger] = {'jsonl': JsonLinesLogger(None, run)}
        self.latest: dict[str, float] = {}
        """The last value of each tag."""
        self._styles = DI_NAMES if tag_style == 'di' else {}
        try:
            for name, cls, options in LOGGERS.classes(loggers):
                if name != 'jsonl':
                    self._open(name, cls, options, run)
        except BaseException:
            self.close()
            raise

    def _open(self, name: str, cls: type[Logger], options: Any, run: LoggedRun) -> None:
        try:
            self._loggers[name] = cls(options, run)
        except Exception as error:
            self._refuse_or_switch_off(name, cls, error)

    def _refuse_or_switch_off(self, name: str, cls: type[Logger], error: Exception) -> None:
        """Switches a logger of a server off, as training need not end with a server; other loggers must not fail.

        Raises:
            Exception: The error, for a logger that reaches no server.
        """
        if cls.reaches != 'network':
            raise error
        self._loggers.pop(name, None)
        told = ' '.join(f'{type(error).__name__}: {error}'.split())
        log.warning('the logger %r is switched off; metrics.jsonl has all records. It raised %s', name, told)

    def _tell(self, call: Callable[[Logger], object]) -> None:
        """Calls something of every logger."""
        for name, each in list(self._loggers.items()):
            try:
                call(each)
            except Exception as error:
                self._refuse_or_switch_off(name, type(each), error)

    @property
    def loggers(self) -> Mapping[str, Logger]:
        """The loggers that are at work, by name."""
        return self._loggers

    def write(self, values: Mapping[str, float], step: int, **facts: Any) -> None:
        """Hands one record to every logger.

        Args:
            values: Numbers by tag.
            step: Env steps.
            facts: Further facts, such as ``train_iter``.

        Raises:
            ConfigError: If a number has the name of another part of a record.
        """
        if taken := [tag for tag in values if tag in FIRST]:
            raise ConfigError(
                f'a metric cannot be named {taken[0]!r}: each record has that already', where='metrics'
            )
        numbers = {tag: float(value) for tag, value in values.items()}
        self.latest |= numbers
        own = styled = Record(step, numbers, facts, time())
        if self._styles:
            styled = own._replace(values={self._styles.get(tag, tag): numbers[tag] for tag in numbers})
        self._tell(lambda each: each.write(styled if each.follows_tag_style else own))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Writes a record of one number."""
        self.write({tag: value}, step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Hands an array, whose histogram is of interest, to every logger."""
        self._tell(lambda each: each.add_histogram(tag, values, step))

    def add_video(self, tag: str, video: Any, step: int, fps: int = 30) -> None:
        """Hands clips, uint8 [N, T, C, H, W], to every logger."""
        self._tell(lambda each: each.add_video(tag, video, step, fps))

    def add_films(self, films: Sequence[Film], step: int, fps: int) -> None:
        """Writes films of episodes to the folder ``films`` of the run."""
        for film in films:
            write_film(self._folder / 'films' / f'envstep_{step}_{film.name}', film.frames, fps)

    def state_dict(self) -> dict[str, int]:
        """Returns the size of each file, in bytes, after flushing all records."""
        self.flush()
        return sizes_of(self._folder)

    def flush(self) -> None:
        """Flushes all records."""
        self._tell(lambda each: each.flush())

    def close(self) -> None:
        """Closes the loggers; may be called twice."""
        self._tell(lambda each: each.close())
