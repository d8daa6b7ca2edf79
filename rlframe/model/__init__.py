"""Networks: encoders and heads, registered by name so that a config can choose them.

A model is any ``torch.nn.Module`` whose constructor takes ``spec`` and the options of the config's ``model`` section.
"""
