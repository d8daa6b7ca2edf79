"""Package metadata; the settings of tools are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

VERSION = (
    Path('rlframe/_version.py').read_text(encoding='utf-8').partition("__version__ = '")[2].partition("'")[0]
)

FEATURES = {
    'atari': [
        'gymnasium[atari] >= 1.1',
        'opencv-python-headless >= 4.10',
    ],  # Gymnasium resizes frames with OpenCV
    'box2d': ['gymnasium[box2d] >= 1.1'],
    'mujoco': ['gymnasium[mujoco] >= 1.1'],
    'minigrid': ['minigrid >= 3.0'],
    'minatar': ['minatar >= 1.0.15'],
    'pettingzoo': [
        'pettingzoo >= 1.25',
        'pygame-ce >= 2.5',
    ],  # some of its games need more: pettingzoo[classic]
    'envpool': ['envpool >= 1.0'],
    'video': ['moviepy >= 2.0', 'gymnasium[classic-control] >= 1.1'],  # which draws with pygame
    'plot': ['matplotlib >= 3.8'],
    'tune': ['ray[tune] >= 2.52', 'optuna >= 4.0', 'matplotlib >= 3.8'],
    'onnx': ['onnx >= 1.17', 'onnxscript >= 0.5'],
    'wandb': ['wandb >= 0.18'],
    'mlflow': ['mlflow >= 3.1'],
    'data': ['minari[hdf5] >= 0.5.3', 'h5py >= 3.8', 'pillow >= 10.0', 'pyarrow >= 17.0'],
}
"""Extra to the packages that its feature needs and rlframe itself does not.

Each has a lower bound: without one, a resolver that is stuck takes a version of years ago, which cannot be imported.
"""
FAMILIES = {
    'highway': ['highway-env >= 1.10'],
    'robotics': [
        'gymnasium-robotics >= 1.3',
        'mujoco >= 2.2, < 3.11',
    ],  # its arms cannot be made by newer ones
    'popgym': ['popgym >= 1.0'],
    'mpe2': ['mpe2 >= 1.0'],
    'lbforaging': ['lbforaging >= 2.0'],
    'rware': ['rware >= 2.0'],
    'mo-gymnasium': ['mo-gymnasium >= 1.3'],
}
"""Extra to the packages of envs of others that the tests of families play."""
SITE = ['mkdocs-material >= 9.5', 'mkdocstrings[python] >= 0.26']
EXTRAS = {
    **FEATURES,
    **FAMILIES,
    'dm-control': ['shimmy[dm-control] >= 2.0'],
    'vizdoom': ['vizdoom >= 1.2'],
    'overcooked': ['overcooked >= 0.2', 'pygame >= 2.6'],
    'families': [
        'envpool >= 1.2',
        *sorted({package for packages in FAMILIES.values() for package in packages}),
    ],
    'all': sorted({package for packages in FEATURES.values() for package in packages}),
    'docs': [*SITE, 'matplotlib >= 3.8'],
    'test': [
        *SITE,
        'build >= 1.0',
        'setuptools >= 77',
        'pytest >= 8.2',
        'pytest-cov >= 5.0',
        'pytest-timeout >= 2.3',
        'pytest-xdist >= 3.6',
        'hypothesis >= 6.100',
        'ruff >= 0.9',
        'mypy >= 1.11',
        'matplotlib >= 3.8',
        'moviepy >= 2.0',
        'ray[tune] >= 2.52',
        'gymnasium[classic-control] >= 1.1',
        'pyyaml >= 6.0',
        'gymnasium[box2d] >= 1.1',
        'gymnasium[atari] >= 1.1',
        'opencv-python-headless >= 4.10',
        'minigrid >= 3.0',
        'minatar >= 1.0.15',
        'pettingzoo >= 1.25',
        'pygame-ce >= 2.5',
        'tensorboard >= 2.17',
        'optuna >= 4.0',
        'flask >= 3.0',
        'waitress >= 3.0',
        'wandb >= 0.18',
        'mlflow-skinny >= 3.1',
        'nbclient >= 0.10',
        'ipykernel >= 6.29',
        'minari[hdf5] >= 0.5.3',
        'h5py >= 3.8',
        'pillow >= 10.0',
        'pyarrow >= 17.0',
    ],
    'conformance': ['stable-baselines3 >= 2.9', 'sb3-contrib >= 2.9'],
    'bench': ['stable-baselines3 >= 2.4', 'tianshou >= 2.0', 'cpprb >= 11.0; python_version < "3.13"'],
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
    package_data={
        '': ['*.pyi'],
        'rlframe': ['py.typed'],
        'rlframe.app': ['report.html'],
        'rlframe.configs': ['*.py', '*.json', '*.yaml'],
    },
    install_requires=[
        'torch >= 2.10',
        'numpy',
        'easydict',
        'gymnasium >= 1.1',
        'ray >= 2.52',
        'tensorboardX',
        'safetensors',
        'numba',
        'rich',
    ],
    extras_require=EXTRAS,
    # by a path, not a finder: to a script beside the clone, a finder comes after the clone's folder, which has no __init__.py
    options={'editable_wheel': {'mode': 'compat'}},
    entry_points={'console_scripts': ['rlframe = rlframe.entry.__main__:main']},
    classifiers=[
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3 :: Only',
        'Programming Language :: Python :: 3.11',  # .ci/interpreters runs the fast tests on each
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Typing :: Typed',
    ],
)
