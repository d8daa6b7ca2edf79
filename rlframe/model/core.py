"""Parts of networks: MLPs, noisy layers, and recurrent cores between an encoder and the heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.encoder import ACTIVATIONS, Flatten, Obs, make_reader

SIGMA = 0.5
"""Noise of a new layer, times the square root of its inputs."""
MOMENTUM, WARM_UP = 0.01, 100_000
"""Share of a batch in the running statistics of ``BatchRenorm``, and training passes until they correct a batch's own."""
MOST_SCALE, MOST_SHIFT = 3.0, 5.0
"""Bounds of that correction, in standard deviations."""
EPS = 1e-3
"""Added to a variance before its root."""
STATES_OF_CORE = {'gru': 1, 'lstm': 2}
"""Vectors in the recurrent state of each kind of core, P."""


def one_hot(index: torch.Tensor, count: int) -> torch.Tensor:
    """Returns classes [...], counted from 0, as float32 [..., count]; torch's own function waits for a device."""
    return (index[..., None] == torch.arange(count, device=index.device)).float()


class Draws:
    """The generator of a network's layers; copies of the network draw from the same one.

    Without a ``generator``, that of a policy, they draw from torch's global one.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = generator

    def __deepcopy__(self, memo: Any) -> Draws:
        return self

    def __reduce__(self) -> Any:
        return Draws, ()  # in another process, a policy gives its own generator

    @contextmanager
    def from_global(self) -> Iterator[None]:
        """Lets torch's global generator continue the policy's own within a block, and that continue it behind the block."""
        own = self.generator
        assert own is not None
        on_gpu = own.device.type != 'cpu'
        shared = torch.cuda.default_generators[own.device.index] if on_gpu else torch.default_generator
        before = shared.get_state()
        shared.set_state(own.get_state())
        self.generator = None
        try:
            yield
        finally:
            own.set_state(shared.get_state())
            shared.set_state(before)
            self.generator = own


def draw_from(network: nn.Module, generator: torch.Generator) -> Draws | None:
    """Lets the layers of a network that draw do so from a generator; None if it has none."""
    drawing: list[Any] = [layer for layer in network.modules() if getattr(layer, 'draws', None) is not None]
    draws = Draws(generator)
    for layer in drawing:
        layer.draws = draws
    return draws if drawing else None


class NoisyLinear(nn.Module):
    """A linear layer whose weights are sampled at every training pass, and are their means otherwise.

    Source:
        Fortunato et al., Noisy Networks for Exploration (2018), factorised Gaussian noise, eq. 10 and 11.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.draws = Draws()
        bound, sigma = 1 / math.sqrt(in_features), SIGMA / math.sqrt(in_features)
        self.weight_mean = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma))
        self.bias_mean = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, in_features] to [B, out_features]; one draw for the whole batch."""
        if not self.training:
            return nn.functional.linear(features, self.weight_mean, self.bias_mean)
        out_size, in_size = self.weight_mean.shape
        noise = torch.randn(in_size + out_size, generator=self.draws.generator, device=features.device)
        noise = noise.sign() * noise.abs().sqrt()
        of_in, of_out = noise[:in_size], noise[in_size:]
        weight = torch.addcmul(self.weight_mean, self.weight_sigma, torch.outer(of_out, of_in))
        return nn.functional.linear(features, weight, torch.addcmul(self.bias_mean, self.bias_sigma, of_out))


class MLP(nn.Module):
    """Hidden layers with an activation behind each and, with ``out_size``, a linear layer at the end.

    It reads observations of any space: those with parts field by field, classes one-hot, images by convolutions. An
    action mask among the fields is not read.

    Without ``out_size`` the last hidden layer is the output. ``conv_layers`` are channels, kernel size and stride of each
    convolution that reads images, see ``make_reader``; ``image_layout`` is the position of the channels in the shape of an
    image: ``'hwc'``, ``'chw'`` or ``'auto'``. ``head`` turns the output of the last layer into what a call returns.

    Raises:
        IncompatibleError: If the convolutions do not fit the space.
    """

    _steps: list[tuple[Any, Any]]

    def __init__(
        self,
        space: gymnasium.Space[Any],
        hidden_sizes: Sequence[int],
        activation: str,
        out_size: int | None = None,
        conv_layers: Sequence[Sequence[int]] | None = None,
        image_layout: str = 'auto',
        head: Callable[[torch.Tensor], Any] | None = None,
    ) -> None:
        super().__init__()
        self.read = make_reader(space, activation, conv_layers, image_layout)
        self._takes_vectors = isinstance(self.read, Flatten) and len(space.shape or ()) == 1
        sizes = [self.read.size, *hidden_sizes, *([] if out_size is None else [out_size])]
        self.layers = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))
        self.out_size = sizes[-1]
        """Width of the output."""
        self._activation = ACTIVATIONS[activation]
        self._activated = len(hidden_sizes)
        self._head = head
        self._parameters_of_layers()

    def trace_layers(self) -> None:
        """Makes each pass read the parameters from the layers, so that an export sees them as parameters."""
        self._steps = []

    def _parameters_of_layers(self) -> None:
        """Lists the very parameters of the layers: a small network spends a fifth of its time on calls of modules."""
        self._steps = [(layer.weight, layer.bias) for layer in self.layers]

    def _weights(self) -> list[tuple[Any, Any]]:
        return self._steps or [(layer.weight, layer.bias) for layer in self.layers]

    def _apply(self, fn: Any, recurse: bool = True) -> MLP:
        super()._apply(fn, recurse)
        self._parameters_of_layers()  # another device or dtype may have made new ones
        return self

    def forward(self, obs: Any) -> Any:
        """Maps [B, ...], or a dict of such, to float32 [B, out_size], or to the output of the head."""
        features = obs if self._takes_vectors and obs.dtype is torch.float32 else self.read(obs)
        for i, (weight, bias) in enumerate(self._steps or self._weights()):
            features = nn.functional.linear(features, weight, bias)
            if i < self._activated:
                features = self._activation(features)
        return features if self._head is None else self._head(features)

    def beside(self, features: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Maps vectors, [B, F], joined with each of their others, [B, K, O], to [B * K, out_size]; it multiplies them once."""
        (weight, bias), *behind = self._weights()
        size = features.shape[1]
        own = nn.functional.linear(features, weight[:, :size], bias)[:, None].expand(-1, others.shape[1], -1)
        joined = torch.addmm(own.flatten(0, 1), others.flatten(0, 1), weight[:, size:].t())
        for weight, bias in behind:
            joined = nn.functional.linear(self._activation(joined), weight, bias)
        return joined


class BatchRenorm(nn.Module):
    """Normalises each feature: in training by the batch, corrected towards running statistics, otherwise by these alone.

    A training pass changes nothing but ``batch``; ``update_norms`` lets the running statistics follow, so that a loss stays
    a function without effects, which may be compiled, or be done again.

    Source:
        Ioffe, Batch Renormalization (2017), algorithm 1; momentum, warm-up and bounds: Bhatt et al., CrossQ (2024),
        appendix A.
    """

    mean: torch.Tensor
    var: torch.Tensor
    passes: torch.Tensor
    batch: tuple[torch.Tensor, torch.Tensor] | None = None
    """Variance and mean of the last training pass that is not in the running statistics."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer('mean', torch.zeros(size))
        self.register_buffer('var', torch.ones(size))
        self.register_buffer('passes', torch.zeros(()))

    def forward(self, features: torch.Tensor, is_training: bool = False) -> torch.Tensor:
        """Maps [B, size] to float32 of the same shape."""
        features = features.float()
        if not is_training:
            scale = self.weight * torch.rsqrt(self.var + EPS)
            return torch.addcmul(self.bias - self.mean * scale, features, scale)
        weight: torch.Tensor = self.weight
        bias: torch.Tensor = self.bias
        with torch.no_grad():
            mean, var = torch.batch_norm_update_stats(features, None, None, 0.0)
        self.batch = var, mean
        if not self._is_known_cold:
            ratio, shift = self._correction(mean, var)
            bias = torch.addcmul(bias, weight, shift)
            weight = weight * ratio
        return torch.nn.functional.batch_norm(features, None, None, weight, bias, True, 0.0, EPS)

    @property
    def _is_known_cold(self) -> bool:
        """Whether there is nothing to correct yet; compiled code and GPUs are not asked: they would have to wait."""
        return not torch.compiler.is_compiling() and self.passes.is_cpu and self.passes.item() < WARM_UP

    @torch.no_grad()
    def _correction(self, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the factor and the summand that correct what a batch of this mean and variance normalised, [size] each."""
        is_cold = self.passes < WARM_UP
        spread = torch.sqrt(self.var + EPS)
        ratio = (torch.sqrt(var + EPS) / spread).clamp(1 / MOST_SCALE, MOST_SCALE)
        shift = ((mean - self.mean) / spread).clamp(-MOST_SHIFT, MOST_SHIFT)
        return ratio.masked_fill(is_cold, 1.0), shift.masked_fill(is_cold, 0.0)


@torch.no_grad()
def update_norms(norms: Iterable[BatchRenorm]) -> None:
    """Lets the running statistics of norms follow their last training passes, unless a feature of these was not finite."""
    trained = [norm for norm in norms if norm.batch is not None]
    if not trained:
        return
    batch = [part for norm in trained for part in norm.batch or ()]
    running = [part for norm in trained for part in (norm.var, norm.mean)]
    torch._foreach_add_([norm.passes for norm in trained], 1)
    for norm in trained:
        norm.batch = None
    found = batch[0].new_zeros((), dtype=torch.float32)  # division by 1 changes nothing
    torch._amp_foreach_non_finite_check_and_unscale_(batch, found, torch.ones_like(found))
    is_bad = found.bool()  # nothing waits for it
    batch = [torch.where(is_bad, old, new) for old, new in zip(running, batch, strict=True)]
    torch._foreach_lerp_(running, batch, MOMENTUM)


@torch.no_grad()
def to_unit_rows(weights: Sequence[torch.Tensor]) -> None:
    """Divides each row of some matrices by its norm."""
    norms = [weight.norm(dim=1, keepdim=True).clamp_(min=1e-12) for weight in weights]
    torch._foreach_div_(list(weights), norms)


class NormedMLP(MLP):
    """Hidden layers that are normalised, or drop some of their units in training.

    Args:
        space: Space of the input.
        hidden_sizes: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        out_size: Width of the last layer; see ``MLP``.
        norm: 'batch': the input and every hidden layer, behind its nonlinearity; 'layer': every hidden layer, in front
            of it.
        dropout: Probability of dropping a unit in training, in front of the norm.
        unit_layers: First layers in which the weights of every unit have norm 1, so that only the norm behind them sets
            its scale. With norm 'batch', norms are in front of nonlinearities then, and hidden layers have no biases,
            which those norms would take out again.
        options: Further arguments of ``MLP``.

    Source:
        'batch': Bhatt et al., CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
        Simplicity (2024), section 4. 'layer' with dropout: Hiraoka et al., Dropout Q-Functions for Doubly Efficient
        Reinforcement Learning (2022), figure 2. Weights of norm 1: Palenicek et al., XQC: Well-conditioned Optimization
        Accelerates Deep Reinforcement Learning (2026), section 4.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        hidden_sizes: Sequence[int],
        activation: str,
        out_size: int | None = None,
        norm: str | None = None,
        dropout: float = 0.0,
        unit_layers: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(space, hidden_sizes, activation, out_size, **options)
        self._dropout = dropout
        self._is_batch = norm == 'batch'
        self._unit_layers = unit_layers
        self._is_behind = self._is_batch and not unit_layers
        self.draws = Draws() if dropout else None
        sizes = list(hidden_sizes) if norm else []
        if self._is_batch:
            sizes = [self.read.size, *hidden_sizes]
        self.norms = nn.ModuleList(map(BatchRenorm if self._is_batch else nn.LayerNorm, sizes))
        if unit_layers:
            for layer in self.layers[: self._activated] if self._is_batch else ():
                layer.register_parameter('bias', None)
            self._parameters_of_layers()
            to_unit_rows(self.unit_rows)

    @property
    def unit_rows(self) -> list[torch.Tensor]:
        """Weights whose rows have norm 1; an optimizer keeps it so."""
        layers: Any = self.layers[: self._unit_layers]
        return [layer.weight for layer in layers]

    def forward(self, obs: Obs, is_training: bool = False) -> Any:
        """Maps [B, ...], or a dict of such, as ``MLP`` does; ``is_training``: by batch statistics, with dropout."""
        features = self.read(obs)
        norms = list(self.norms)
        if self._is_batch:
            features = norms.pop(0)(features, is_training)
        for i, (weight, bias) in enumerate(self._weights()):
            features = nn.functional.linear(features, weight, bias)
            if i == self._activated:
                break
            if self.draws is not None and is_training:
                features = dropped(features, self._dropout, self.draws)
            if self._is_behind:
                features = norms[i](self._activation(features), is_training)
            elif self._is_batch:
                features = self._activation(norms[i](features, is_training))
            else:
                features = self._activation(norms[i](features) if norms else features)
        return features if self._head is None else self._head(features)


def dropped(features: torch.Tensor, probability: float, draws: Draws) -> torch.Tensor:
    """Sets features to 0 with a probability and scales the others up, as ``torch.nn.functional.dropout`` does."""
    kept = 1 - probability
    return features * torch.empty_like(features).bernoulli_(kept, generator=draws.generator).div_(kept)


class ResidualBlock(nn.Module):
    """Adds to features the output of two layers after a layer norm; the hidden layer is four times as wide."""

    def __init__(self, size: int, activation: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.widen, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self._activation = ACTIVATIONS[activation]

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, size] to float32 of the same shape."""
        return features + self.narrow(self._activation(self.widen(self.norm(features))))


class ResidualMLP(MLP):
    """Hidden layers, residual blocks behind them, and a layer norm in front of the last layer.

    The last hidden layer has no nonlinearity: the blocks begin with a linear embedding.

    There is at least one hidden layer; the blocks are as wide as the last. ``options`` are further arguments of ``MLP``.

    Source:
        Lee et al., SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning (2024), section 4;
        weights begin as torch's do.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        hidden_sizes: Sequence[int],
        activation: str,
        out_size: int,
        blocks: int,
        **options: Any,
    ) -> None:
        super().__init__(space, hidden_sizes, activation, out_size, **options)
        size = hidden_sizes[-1]
        self.blocks = nn.Sequential(*(ResidualBlock(size, activation) for _ in range(blocks)))
        self.norm = nn.LayerNorm(size)

    def forward(self, obs: Obs) -> Any:
        """Maps [B, ...], or a dict of such, as ``MLP`` does."""
        features = self.read(obs)
        for i, (weight, bias) in enumerate(self._weights()):
            if i == self._activated:
                features = self.norm(self.blocks(features))
            features = nn.functional.linear(features, weight, bias)
            if i < self._activated - 1:
                features = self._activation(features)
        return features if self._head is None else self._head(features)


class Unroll(NamedTuple):
    """Rows of several sequences as places in a padded block [L, B]: step ``step[r]`` of sequence ``sequence[r]``."""

    step: torch.Tensor
    """Step of each row within its sequence, int64 [R]."""
    sequence: torch.Tensor
    """Sequence of each row, int64 [R]."""
    length: int
    """Steps of the longest sequence, L."""
    state: torch.Tensor
    """Recurrent state before the first step of each sequence, float32 [B, P, H]."""


class Remembered(NamedTuple):
    """Some of the observations of sequences, for networks that go through all of these."""

    obs: Any
    """Observations of all steps of the sequences, tensors [R, ...]."""
    unroll: Unroll
    """Their places."""
    row: torch.Tensor
    """The chosen rows, int64 [K]."""


def cell_step(rnn: nn.LSTM | nn.GRU, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Returns recurrent states after one step, [B, P, H]; the first of the P vectors is the output.

    The cell alone is several times faster than the network for a sequence of one step.
    """
    weights = rnn.all_weights[0]
    if isinstance(rnn, nn.LSTM):
        return torch.stack(torch.lstm_cell(features, state.unbind(1), *weights), 1)
    return torch.gru_cell(features, state[:, 0], *weights).unsqueeze(1)


class Core(nn.Module):
    """A GRU or an LSTM of one layer.

    A recurrent state is float32 [B, P, H]: the hidden state and, of an LSTM, the cell state. It is zero before the
    first step of an episode.

    ``kind`` is 'gru' or 'lstm'; a step has ``in_size`` features.

    Source:
        Hochreiter & Schmidhuber, Long Short-Term Memory (1997); Cho et al., Learning Phrase Representations using RNN
        Encoder-Decoder (2014), section 2.3. Orthogonal weights, biases of 0: Huang et al., The 37 Implementation
        Details of Proximal Policy Optimization (2022), detail 2 of the LSTM.
    """

    def __init__(self, kind: str, in_size: int, hidden_size: int) -> None:
        super().__init__()
        self._is_lstm = kind == 'lstm'
        self.rnn = nn.LSTM(in_size, hidden_size) if self._is_lstm else nn.GRU(in_size, hidden_size)
        for name, parameter in self.rnn.named_parameters():
            if 'weight' in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)
        self.state_shape = (STATES_OF_CORE[kind], hidden_size)
        """Shape of the recurrent state of an episode, (P, H)."""

    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Does one step of each of several episodes.

        Args:
            features: float32 [B, F].
            state: Recurrent state before the step, float32 [B, P, H].

        Returns:
            The output, float32 [B, H], and the recurrent state after the step.
        """
        after = cell_step(self.rnn, features, state)
        return after[:, 0], after

    def unroll(self, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Goes through all steps of sequences.

        Args:
            features: float32 [L, B, F].
            state: Recurrent state before the first steps, float32 [B, P, H].

        Returns:
            Outputs, float32 [L, B, H].
        """
        parts: Any = state.transpose(0, 1).contiguous().split(1)  # P of [1, B, H]
        return self.rnn(features, parts if self._is_lstm else parts[0])[0]

    def forward(self, features: torch.Tensor, unroll: Unroll, state: torch.Tensor) -> torch.Tensor:
        """Goes through sequences of different lengths.

        The sequences are padded behind their ends, where nothing is read: padding has no influence.

        Given are the features of the rows, float32 [R, F], their places, and the recurrent states before the first steps,
        float32 [B, P, H].

        Returns:
            Outputs of the rows, float32 [R, H].
        """
        shape = unroll.length, len(state), features.shape[1]
        padded = features.new_zeros(shape).index_put((unroll.step, unroll.sequence), features)
        return self.unroll(padded, state)[unroll.step, unroll.sequence]


class RecurrentEncoder(nn.Module):
    """Hidden layers and a core behind them.

    ``core`` is 'gru' or 'lstm'; ``images`` are options of the encoder of images, see ``MLP``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: Sequence[int],
        activation: str,
        core: str,
        core_hidden_size: int,
        **images: Any,
    ) -> None:
        super().__init__()
        self.encoder = MLP(spec.observation_space, hidden_sizes, activation, None, **images)
        self.core = Core(core, self.encoder.out_size, core_hidden_size)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] and recurrent states to outputs, float32 [B, H], and the states after the step."""
        return self.core.step(self.encoder(obs), state)

    def forward(self, obs: Obs, unroll: Unroll, state: torch.Tensor) -> torch.Tensor:
        """Maps the observations of sequences, [R, ...], to float32 [R, H]; see ``Core``."""
        return self.core(self.encoder(obs), unroll, state)
