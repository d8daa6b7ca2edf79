"""The arguments of ``RayCollector`` in Python, which are those of TorchRL's collector of that name."""
