from rlframe.parallel.pipeline import parallel_pipeline as parallel_pipeline
from rlframe.pipeline.serial import SerialPipeline as SerialPipeline
from rlframe.pipeline.training import serial_pipeline as serial_pipeline
