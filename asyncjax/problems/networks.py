r"""Networks as flax linen modules, and what a module must be to be the model of a problem.

.. math:: z = \mathrm{model}(x, a), \qquad x_0 = \mathrm{init}(\mathrm{key})

A model has parameters and nothing else (no batch statistics, no dropout): then the loss of a row
depends on that row and the parameters alone.

Asynchronous training computes many gradients at once, each at a model of its own, which is a
`vmap` over the parameters. A convolution then becomes a grouped one, for which XLA has no fast
path; here a convolution is a matrix product on stacked neighbourhoods, which stays a batched
matrix product under `vmap`. So do the LSTM, with all four gates from one product,

.. math:: (i, f, g, o) = W e_t + U h_{t-1} + c, \qquad
          s_t = \sigma(f) s_{t-1} + \sigma(i) \tanh(g), \qquad h_t = \sigma(o) \tanh(s_t)

and the transformer, twice per block :math:`v \leftarrow v + F(\mathrm{norm}(v))`, with F causal
attention over heads, then a two-layer network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import whole
from asyncjax.problems.problem import PyTree

_SMALL = nn.initializers.normal(0.02)  # scores start near 0: the first loss is near log vocabulary
Activation = Callable[[jax.Array], jax.Array]


class MLP(nn.Module):
    """A multi-layer perceptron; rows of more than one axis are flattened.

    Attributes:
        hidden: Widths of the hidden layers; an empty tuple makes a linear model.
        classes: Outputs a row.
        activation: The nonlinearity, such as `nn.relu` or `nn.tanh` (smooth).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> model = problems.MLP(hidden=(32,), classes=10)
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 64)))
        >>> model.apply(variables, jnp.zeros((5, 64))).shape
        (5, 10)
    """

    hidden: tuple[int, ...] = (32,)
    classes: int = 10
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes]."""
        values = features.reshape(features.shape[0], -1)
        for width in self.hidden:
            values = self.activation(nn.Dense(width)(values))
        return nn.Dense(self.classes)(values)


class LeNet(nn.Module):
    """LeNet-5: two 5 x 5 convolutions with 6 and 16 channels, then layers of 120 and 84.

    Images of 28 x 28 get a frame of two zeros, so both kinds come to 16 maps of 5 x 5. Pooling
    takes the largest of 2 x 2 pixels. With 10 classes there are 61706 parameters for one channel
    and 62006 for three.

    Attributes:
        classes: Outputs a row.
        activation: The nonlinearity.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> images = jnp.zeros((5, 28, 28, 1))
        >>> start = problems.LeNet().init_with_output
        >>> scores, variables = jax.eval_shape(start, jax.random.key(0), images)
        >>> scores.shape, sum(leaf.size for leaf in jax.tree.leaves(variables))
        ((5, 10), 61706)

    Note:
        The network of 1998 had sparse connections between the two convolutions, trained mean
        pooling and a scaled tanh; this is its common form today.

    Reference:
        LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition,
        Proceedings of the IEEE 86, 1998.
    """

    classes: int = 10
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes] of images float[rows, H, W, C]."""
        frame = ((32 - features.shape[1]) // 2,) * 2
        values = jnp.pad(features, ((0, 0), frame, frame, (0, 0)))
        for width in (6, 16):
            values = self.activation(nn.Dense(width)(_neighbourhoods(values, 5)))
            values = _blocks(values).max(axis=(2, 4))
        values = values.reshape(values.shape[0], -1)
        for width in (120, 84):
            values = self.activation(nn.Dense(width)(values))
        return nn.Dense(self.classes)(values)


class ForecastMLP(nn.Module):
    """A multi-layer perceptron that predicts one number a row.

    Attributes:
        widths: Of the hidden layers; an empty tuple makes a linear autoregression.
        activation: The nonlinearity.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> model = problems.ForecastMLP(widths=(64, 64, 64))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 12)))
        >>> model.apply(variables, jnp.zeros((5, 12))).shape
        (5,)
    """

    widths: tuple[int, ...] = (64, 64, 64)
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the predictions float[rows] of windows float[rows, lags]."""
        values = features.reshape(features.shape[0], -1)
        for width in self.widths:
            values = self.activation(nn.Dense(width)(values))
        return nn.Dense(1)(values)[:, 0]


def _neighbourhoods(images: jax.Array, size: int) -> jax.Array:
    """Returns float[rows, H - size + 1, W - size + 1, size^2 C]: every whole neighbourhood."""
    height, width = images.shape[1] - size + 1, images.shape[2] - size + 1
    across = jnp.concatenate([images[:, :, start : start + width] for start in range(size)], -1)
    return jnp.concatenate([across[:, start : start + height] for start in range(size)], -1)


def _blocks(images: jax.Array) -> jax.Array:
    """Returns float[rows, H // 2, 2, W // 2, 2, C]; an odd last row or column is left out."""
    rows, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(rows, height // 2, 2, width // 2, 2, channels)


class WordLSTM(nn.Module):
    """A one-layer LSTM over tokens; its state starts at zero in every row.

    Attributes:
        vocabulary: Number of tokens.
        width: Of the embedding and of the state.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> model = problems.WordLSTM(vocabulary=50, width=8)
        >>> start, tokens = model.init_with_output, jnp.zeros((5, 6), int)
        >>> scores, variables = jax.eval_shape(start, jax.random.key(0), tokens)
        >>> scores.shape
        (5, 6, 50)

    Reference:
        Hochreiter, Schmidhuber, Long short-term memory, Neural Computation 9, 1997; with the
        forget gate of Gers, Schmidhuber, Cummins, 2000, whose bias starts at 1 here.
    """

    vocabulary: int
    width: int = 64

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Returns the scores float[rows, T, vocabulary] of tokens int32[rows, T]."""
        embedded = nn.Embed(self.vocabulary, self.width, embedding_init=_SMALL)(tokens)
        driven = nn.Dense(4 * self.width, bias_init=_open_forget_gate)(embedded)
        kernel = self.param(
            "recurrent", nn.initializers.lecun_normal(), (self.width, 4 * self.width)
        )
        kernel = kernel.astype(jnp.promote_types(kernel.dtype, driven.dtype))

        def step(
            carry: tuple[jax.Array, jax.Array], drive: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            hidden, cell = carry
            enter, forget, value, leave = jnp.split(drive + hidden @ kernel, 4, axis=-1)
            cell = nn.sigmoid(forget) * cell + nn.sigmoid(enter) * jnp.tanh(value)
            hidden = nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zero = jnp.zeros((tokens.shape[0], self.width), kernel.dtype)
        _, hidden = jax.lax.scan(step, (zero, zero), jnp.swapaxes(driven, 0, 1))
        return nn.Dense(self.vocabulary)(jnp.swapaxes(hidden, 0, 1))


class TinyGPT(nn.Module):
    """A small causal transformer: position t is scored from tokens 0..t alone.

    Layer norm before every part, GELU, learned positions, the embedding used again for the scores.

    Attributes:
        vocabulary: Number of tokens.
        width: Of the stream; a multiple of `heads`.
        depth: Blocks.
        heads: Of the attention.
        length: T, the longest row.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> model = problems.TinyGPT(vocabulary=50, width=8, depth=1, heads=2, length=6)
        >>> start, tokens = model.init_with_output, jnp.zeros((5, 6), int)
        >>> scores, variables = jax.eval_shape(start, jax.random.key(0), tokens)
        >>> scores.shape
        (5, 6, 50)

    Reference:
        Radford and others, Language models are unsupervised multitask learners, 2019 (the layout).
    """

    vocabulary: int
    width: int = 64
    depth: int = 2
    heads: int = 2
    length: int = 64

    def __post_init__(self) -> None:
        """Refuses sizes that are none (a depth of -1 would be one of 0) or do not fit."""
        for name in ("vocabulary", "width", "depth", "heads", "length"):
            whole(name, getattr(self, name), 0 if name == "depth" else 1)
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Returns the scores float[rows, T, vocabulary] of tokens int32[rows, T]."""
        embedding = nn.Embed(self.vocabulary, self.width, embedding_init=_SMALL)
        positions = self.param("positions", _SMALL, (self.length, self.width))
        values = embedding(tokens) + positions[: tokens.shape[1]]
        for _ in range(self.depth):
            values = values + self._attention(nn.LayerNorm()(values))
            inner = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(values)))
            values = values + nn.Dense(self.width)(inner)
        return embedding.attend(nn.LayerNorm()(values))

    def _attention(self, values: jax.Array) -> jax.Array:
        """Returns the causal attention of float[rows, T, width]."""
        rows, length, width = values.shape
        parts = nn.Dense(3 * width)(values).reshape(rows, length, 3, self.heads, -1)
        queries, keys, contents = parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
        scores = jnp.einsum("rthd,rshd->rhts", queries, keys) / (width // self.heads) ** 0.5
        past = jnp.tril(jnp.ones((length, length), bool))
        shares = nn.softmax(jnp.where(past, scores, jnp.finfo(scores.dtype).min), axis=-1)
        mixed = jnp.einsum("rhts,rshd->rthd", shares, contents)
        return nn.Dense(width)(mixed.reshape(rows, length, width))


def _open_forget_gate(
    key: jax.Array, shape: tuple[int, ...], dtype: type = jnp.float32
) -> jax.Array:
    """Returns the first biases of the gates: 1 for the second of the four, else 0."""
    return jnp.repeat(jnp.array([0.0, 1.0, 0.0, 0.0], dtype), shape[0] // 4)


def initial(model: nn.Module, key: jax.Array, inputs: jax.Array) -> tuple[PyTree, tuple[int, ...]]:
    """Returns the initial parameters, and the shape of the answer to one row of `inputs`."""
    row = jnp.zeros((1, *inputs.shape[1:]), inputs.dtype)
    answer, variables = jax.eval_shape(model.init_with_output, key, row)
    if set(variables) != {"params"}:
        raise ValueError(
            f"model must have parameters and nothing else, got the collections {set(variables)}"
        )
    params = _initialise(model, key, row)["params"]
    if jnp.issubdtype(inputs.dtype, jnp.floating):
        params = jax.tree.map(
            lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, inputs.dtype)), params
        )
    return params, getattr(answer, "shape", ())


@partial(jax.jit, static_argnums=0)
def _initialise(model: nn.Module, key: jax.Array, row: jax.Array) -> Any:
    """Returns the model's variables; compiled once for all equal models."""
    return model.init(key, row)
