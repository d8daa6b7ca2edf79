"""Options of actor-critics with Q-functions, and the rules between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from easydict import EasyDict

from rlframe.errors import ConfigError
from rlframe.policy.base_policy import CollectConfig, LearnConfig
from rlframe.policy.c51 import check_atoms
from rlframe.policy.dqn import TDConfig
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA, MemoryModel
from rlframe.policy.parts.options import (
    UPDATE_PER_COLLECT,
    Schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
    refused,
)
from rlframe.utils.field import option


class QACModel(MemoryModel):
    """Section ``model`` of every actor-critic with Q-functions."""

    encoder_hidden_size_list: list[int] = option(
        [256, 256], unit='units', doc='widths of the hidden layers of actor and critics', check=check_widths
    )
    twin_critic: bool = option(True, doc='whether to use two critics')


class QACLearn(LearnConfig):
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


class ContinuousCollect(CollectConfig):
    """Section ``collect`` of actor-critics for continuous actions."""

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


def critic_num(model: Mapping[str, Any]) -> int:
    """Returns the number of critics that a section ``model`` asks for."""
    return model.get('n_critic') or (2 if model['twin_critic'] else 1)


CRITIC_SWITCHES = {'norm': None, 'dropout': 0.0, 'weight_norm': False, 'residual_blocks': 0}
"""Switches of the layers of critics, and what they are if they are off."""


def check_critics(target_parts: tuple[str, ...], cfg: EasyDict) -> list[ConfigError]:
    """Refuses switches of critics that contradict each other, or the target networks of the policy."""
    model, learn, errors = cfg.model, cfg.learn, []
    is_batch, has_unit_rows = model.get('norm') == 'batch', model.get('weight_norm', False)
    if (model.get('n_critic') or 1) > 1 and not model.twin_critic:
        errors.append(refused(cfg, 'model.n_critic', 'twin_critic=False is one critic', 'None or 1'))
    if is_batch and learn.target_network and 'actor' in target_parts:
        message = (
            'batch norm needs one pass of this and the next state, and a target actor sees only the next one'
        )
        errors.append(refused(cfg, 'learn.target_network', message, 'False'))
    elif is_batch and learn.target_network and not has_unit_rows:
        message = 'batch norm needs one pass of this and the next state through the same critics'
        expected = 'False, as in CrossQ, or model.weight_norm=True, as in XQC'
        errors.append(refused(cfg, 'learn.target_network', message, expected))
    if is_batch and learn.batch_size == 1:
        message = 'a batch of one transition has no spread to normalise by'
        errors.append(refused(cfg, 'learn.batch_size', message, '2 or more'))
    if has_unit_rows and not model.norm and not model.residual_blocks:
        message = 'only behind a norm does the length of weights not matter'
        errors.append(refused(cfg, 'model.weight_norm', message, "False, or model.norm='batch' or 'layer'"))
    return errors


def check_blocks(cfg: EasyDict) -> list[ConfigError]:
    """Refuses residual blocks without a width, or beside other switches of hidden layers."""
    model, errors, instead = cfg.model, [], ', or model.residual_blocks=0'
    if not model.get('residual_blocks'):
        return []
    message, expected = 'residual blocks are as wide as the last hidden layer', 'at least one width'
    widths = [name for name in ('encoder_hidden_size_list', 'critic_hidden_size_list') if model[name] == []]
    errors += [refused(cfg, f'model.{name}', message, expected + instead) for name in widths]
    message = 'residual blocks have layer norms of their own, and no other switch'
    for name, off in CRITIC_SWITCHES.items():
        if model[name] and name != 'residual_blocks':
            errors.append(refused(cfg, f'model.{name}', message, f'{off}{instead}'))
    return errors


def check_memory(cfg: EasyDict) -> list[ConfigError]:
    """Refuses what networks with a core do not have, and sums of several rewards in their sequences."""
    model, errors = cfg.model, []
    if model.get('core') is None:
        return []
    if cfg.nstep != 1:
        message = 'with a core, the target of a step of a sequence has one reward'
        errors.append(refused(cfg, 'nstep', message, '1'))
    message = f'networks with a core (model.core={model.core!r}) have none'
    for name, off in (CRITIC_SWITCHES | {'n_atom': None}).items():
        if model.get(name):
            errors.append(refused(cfg, f'model.{name}', message, f'{off}, or model.core=None'))
    return errors


def check_returns(cfg: EasyDict) -> list[ConfigError]:
    """Refuses descriptions of returns that contradict each other, of policies that have such options."""
    model, learn, errors = cfg.model, cfg.learn, []
    if 'num_quantiles' not in model:
        return []
    count, quantiles = critic_num(model), model.num_quantiles
    if model.n_atom is not None and quantiles > 1:
        message = 'a critic describes a return by atoms or by quantiles'
        errors.append(refused(cfg, 'model.num_quantiles', message, '1, or model.n_atom=None'))
    if learn.target_critics is not None and learn.target_critics > count:
        message = 'there are fewer critics'
        errors.append(refused(cfg, 'learn.target_critics', message, f'at most {count}'))
    if learn.dropped_quantiles and learn.dropped_quantiles >= quantiles:
        message = 'a critic has no quantiles' if quantiles == 1 else 'no quantile would be left'
        expected = f'fewer than model.num_quantiles={quantiles}'
        errors.append(refused(cfg, 'learn.dropped_quantiles', message, expected))
    return [*check_atoms(model), *errors]
