from rlframe.entry.utils import random_collect as random_collect
from rlframe.pipeline.training import serial_pipeline as serial_pipeline
