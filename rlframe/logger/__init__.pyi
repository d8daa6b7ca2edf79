from rlframe.logger.logger import LoggedRun as LoggedRun
from rlframe.logger.logger import Logger as Logger
from rlframe.logger.logger import Record as Record
from rlframe.logger.metric_writer import MetricWriter as MetricWriter
from rlframe.logger.remote_logger import RemoteLogger as RemoteLogger
