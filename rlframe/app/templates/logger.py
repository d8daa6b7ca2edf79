"""A custom logger: it writes each evaluation as a line of text to the run folder.

    rlframe train -c cartpole_dqn "import_names=['new_logger']" "loggers=['tensorboard','new_logger']"

docs/logging.md says what else a logger may do: take histograms and films, and be resumed.
"""

from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.logger import Logger, Record
from rlframe.utils.field import Field


@LOGGER_REGISTRY.register('new_logger')
class NewLogger(Logger):
    """Appends the score of each evaluation to ``scores.txt``."""

    # an option: loggers=[dict(type='new_logger',tag='eval/std_reward')]
    config = dict(tag=Field('eval/mean_reward', doc='tag of the metric'))

    def write(self, record: Record) -> None:
        if self._cfg.tag in record.values:
            with open(self._run.folder / 'scores.txt', 'a', encoding='utf-8') as file:
                file.write(f'{record.envstep} env steps: {record.values[self._cfg.tag]:g}\n')
