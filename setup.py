"""Package metadata; the settings of tools are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

VERSION = (
    Path('rlframe/_version.py').read_text(encoding='utf-8').partition("__version__ = '")[2].partition("'")[0]
)

FEATURES = {
    'atari': ['gymnasium[atari]', 'opencv-python-headless'],  # Gymnasium resizes frames with OpenCV
    'box2d': ['gymnasium[box2d]'],
    'mujoco': ['gymnasium[mujoco]'],
    'minigrid': ['minigrid'],
    'minatar': ['minatar'],
    'pettingzoo': ['pettingzoo', 'pygame-ce'],  # some of its games need more: pettingzoo[classic]
    'envpool': ['envpool'],
    'http': ['flask', 'waitress'],
    'video': ['moviepy'],
    'plot': ['matplotlib'],
    'tune': ['ray[tune] >= 2.52', 'optuna', 'scikit-learn', 'matplotlib'],
    'onnx': ['onnx', 'onnxscript'],
    'wandb': ['wandb'],
    'mlflow': ['mlflow'],
}
"""Extra to the packages that its feature needs and rlframe itself does not."""
SITE = ['mkdocs-material', 'mkdocstrings[python]']
EXTRAS = {
    **FEATURES,
    'all': sorted({package for packages in FEATURES.values() for package in packages}),
    'docs': [*SITE, 'matplotlib'],
    'test': [
        *SITE,
        'build',
        'setuptools >= 77',
        'pytest',
        'pytest-cov',
        'pytest-timeout',
        'pytest-xdist',
        'hypothesis',
        'ruff',
        'mypy',
        'matplotlib',
        'moviepy',
        'pyyaml',
        'gymnasium[box2d]',
        'gymnasium[atari]',
        'opencv-python-headless',
        'minigrid',
        'minatar',
        'pettingzoo',
        'pygame-ce',
        'tensorboard',
        'optuna',
        'scikit-learn',
        'flask',
        'waitress',
        'wandb',
        'mlflow-skinny',
        'nbclient',
        'ipykernel',
    ],
    'bench': ['stable-baselines3', 'tianshou', 'cpprb; python_version < "3.13"'],
}

setup(
    name='rlframe',
    version=VERSION,
    description='Reinforcement learning from components that a config file puts together',
    long_description=Path('README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE'],
    python_requires='>=3.11',
    packages=[*find_packages(include=['rlframe', 'rlframe.*']), 'rlframe.configs'],
    package_dir={'rlframe.configs': 'configs'},
    package_data={'': ['*.pyi'], 'rlframe': ['py.typed'], 'rlframe.configs': ['*.py', '*.json', '*.yaml']},
    install_requires=[
        'torch >= 2.10',
        'numpy',
        'easydict',
        'gymnasium[classic-control]',
        'ray[tune] >= 2.52',
        'tensorboardX',
        'safetensors',
        'numba',
        'rich',
    ],
    extras_require=EXTRAS,
    entry_points={'console_scripts': ['rlframe = rlframe.entry.__main__:main']},
    classifiers=[
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3 :: Only',
        'Programming Language :: Python :: 3.11',  # newer ones are allowed, but no test runs on them
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Typing :: Typed',
    ],
)
