"""Options of policies with an actor and Q-critics, and the combinations of them that are refused."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.policy.base_policy import CollectConfig
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA, MemoryModel
from rlframe.policy.parts.options import (
    UPDATE_PER_COLLECT,
    Schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.td import TDConfig, TDLearn
from rlframe.utils.field import option

if TYPE_CHECKING:
    from rlframe.policy.qac import QACPolicy


class QACModel(MemoryModel):
    """Section ``model`` of every actor-critic with Q-functions."""

    encoder_hidden_size_list: list[int] = option(
        [256, 256], unit='units', doc='widths of the hidden layers of actor and critics', check=check_widths
    )
    twin_critic: bool = option(True, doc='whether to use two critics')


class QACLearn(TDLearn):
    """Section ``learn`` of every actor-critic with Q-functions."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(8))
    batch_size: int = option(
        256,
        range='[1, inf)',
        unit='transitions, or sequences with a core',
        doc='size of the batch of one update',
        may_change=True,
    )
    burn_in: int = option(BURN_IN)
    learning_rate_actor: Schedule = option(learning_rate(3e-4, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(3e-4, 'Adam for the critics'))
    target_theta: float = option(
        0.005,
        range='(0, 1]',
        doc='share of a soft update of the target networks, whenever the actor (or what target_follows names) is updated',
        may_change=True,
    )
    actor_update_freq: int = option(
        1,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between two updates of the actor',
        may_change=True,
    )
    grad_clip_norm: float | None = option(grad_clip_norm('the gradient of the actor, and of the critics'))


class ContinuousModel(QACModel):
    """Section ``model`` of actor-critics for continuous actions."""

    n_critic: int | None = option(
        None, range='[1, inf)', unit='critics', doc='number of critics; None: 2, or 1 without twin_critic'
    )
    norm: Literal[None, 'batch', 'layer'] = option(
        None,
        doc="norm of hidden layers: 'batch' (of actor and critics, as in CrossQ) or 'layer' (of critics, as in DroQ)",
    )
    dropout: float = option(
        0.0, range='[0, 1)', doc='probability of dropping a hidden unit of a critic in training'
    )
    weight_norm: bool = option(
        False,
        doc='whether the weights of each hidden unit in front of a norm have length 1 after each update, so that they do not grow',
    )
    residual_blocks: int = option(
        0,
        range='[0, inf)',
        unit='blocks',
        doc='residual blocks of actor and critics, as wide as the last hidden layer, behind it; each has a layer norm',
    )


class ContinuousLearn(QACLearn):
    """Section ``learn`` of actor-critics for continuous actions."""

    target_network: bool = option(
        True, doc='whether targets come from slow copies of the networks; False: from the networks themselves'
    )
    adam_beta1: float = option(
        0.9,
        range='[0, 1)',
        doc='decay of the mean of gradients in Adam, of actor and critics',
        may_change=True,
    )


class QACCollect(CollectConfig):
    """Section ``collect`` of every actor-critic with Q-functions."""

    noise_correlation: float = option(
        0.0,
        range='[0, 1)',
        doc="correlation of an env step's exploration noise with that of the step before",
        may_change=True,
    )


class QACConfig(TDConfig):
    """Options of every actor-critic with Q-functions."""

    priority_eta: float = option(PRIORITY_ETA)
    model: QACModel
    learn: QACLearn
    collect: QACCollect


def critic_num(model: Mapping[str, Any]) -> int:
    """Returns the number of critics that a section ``model`` asks for."""
    return model.get('n_critic') or (2 if model['twin_critic'] else 1)


DEFAULTS = {'norm': None, 'dropout': 0.0, 'weight_norm': False, 'residual_blocks': 0, 'n_atom': None}
"""Switches of critics, and what they are if they are off."""
SWITCHES = 'norm', 'dropout', 'weight_norm', 'residual_blocks'
"""Options of a section ``model`` that are arguments of a network only if they are set."""
OPTION_OF = {**dict(zip(SWITCHES, SWITCHES, strict=True)), 'quantiles': 'num_quantiles', 'atoms': 'n_atom'}
"""Such arguments, to their options."""


def check_critics(cls: type[QACPolicy], cfg: EasyDict) -> list[ConfigError]:
    """Refuses switches of critics that contradict each other, or the policy."""
    model, learn, errors = cfg.model, cfg.learn, []

    def refuse(where: str, message: str, got: Any, expected: str) -> None:
        errors.append(ConfigError(message, where=where, got=got, expected=expected))

    is_batch, has_unit_rows = model.get('norm') == 'batch', model.get('weight_norm', False)
    if (model.get('n_critic') or 1) > 1 and not model.twin_critic:
        refuse('model.n_critic', 'twin_critic=False is one critic', model.n_critic, 'None or 1')
    if is_batch and learn.target_network and 'actor' in cls.target_parts:
        message = (
            'batch norm needs one pass of this and the next state, and a target actor sees only the next one'
        )
        refuse('learn.target_network', message, True, 'False')
    elif is_batch and learn.target_network and not has_unit_rows:
        message = 'batch norm needs one pass of this and the next state through the same critics'
        refuse(
            'learn.target_network', message, True, 'False, as in CrossQ, or model.weight_norm=True, as in XQC'
        )
    if is_batch and learn.batch_size == 1:
        refuse('learn.batch_size', 'a batch of one transition has no spread to normalise by', 1, '2 or more')
    if has_unit_rows and not model.norm and not model.residual_blocks:
        message = 'only behind a norm does the length of weights not matter'
        refuse('model.weight_norm', message, True, "False, or model.norm='batch' or 'layer'")
    return errors


def check_arguments(kind: Any, given: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Checks that a network takes the switches of critics that are set.

    Args:
        kind: Class of the network.
        given: Arguments that it will be given.
        model: Section ``model`` of the policy.

    Raises:
        ConfigError: If it does not; the option is named.
    """
    takes = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        return
    for argument, key in OPTION_OF.items():
        if argument in given and argument not in takes:
            raise ConfigError(
                f'the network {model["type"]!r} has no argument {argument!r}',
                where=f'policy.model.{key}',
                got=model[key],
                expected='its default, or a network that takes it',
            )


def check_blocks(model: Mapping[str, Any]) -> list[ConfigError]:
    """Refuses residual blocks without a width, or beside other switches of hidden layers."""
    if not model.get('residual_blocks'):
        return []
    errors, instead = [], ', or model.residual_blocks=0'
    if not model['encoder_hidden_size_list']:
        message, where = (
            'residual blocks are as wide as the last hidden layer',
            'model.encoder_hidden_size_list',
        )
        errors.append(ConfigError(message, where=where, got=[], expected=f'at least one width{instead}'))
    for name in ('norm', 'dropout', 'weight_norm'):
        if got := model[name]:
            message = 'residual blocks have layer norms of their own, and no other switch'
            errors.append(
                ConfigError(message, where=f'model.{name}', got=got, expected=f'{DEFAULTS[name]}{instead}')
            )
    return errors


def check_memory(cfg: EasyDict) -> list[ConfigError]:
    """Refuses what networks with a core do not have, and sums of several rewards in their sequences."""
    model, errors = cfg.model, []
    if model.get('core') is None:
        return []
    if cfg.nstep != 1:
        message = 'with a core, the target of a step of a sequence has one reward'
        errors.append(ConfigError(message, where='nstep', got=cfg.nstep, expected='1'))
    for name in (*SWITCHES, 'n_atom'):
        if got := model.get(name):
            message = f'networks with a core (model.core={model.core!r}) have none'
            expected = f'{DEFAULTS[name]}, or model.core=None'
            errors.append(ConfigError(message, where=f'model.{name}', got=got, expected=expected))
    return errors
