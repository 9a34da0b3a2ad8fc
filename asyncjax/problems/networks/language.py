r"""Small networks that score every next token, as flax linen modules.

LSTM, with all four gates from one product:

.. math:: (i, f, g, o) = W e_t + U h_{t-1} + c, \qquad
          s_t = \sigma(f) s_{t-1} + \sigma(i) \tanh(g), \qquad h_t = \sigma(o) \tanh(s_t)

Transformer, twice per block :math:`v \leftarrow v + F(\mathrm{norm}(v))`, with F causal attention

.. math:: F(v)_t = \sum_{s \le t} \mathrm{softmax}_s\left(\frac{q_t \cdot k_s}{\sqrt{d}}\right) u_s

over heads, then a two-layer network. Everything is a product of matrices, so a `vmap` over the
parameters, a model for every late gradient, stays a batched product.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import whole

_SMALL = nn.initializers.normal(0.02)  # scores start near 0: the first loss is near log vocabulary


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

    def __post_init__(self) -> None:
        """Refuses fields of another kind."""
        whole("vocabulary", self.vocabulary)
        whole("width", self.width)
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Returns the scores float[rows, T, vocabulary] of tokens int32[rows, T].

        Raises:
            ValueError: If the tokens have not two axes.
        """
        _check_tokens(tokens)
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
        """Refuses fields of another kind, and heads that do not divide the width."""
        whole("vocabulary", self.vocabulary)
        whole("width", self.width)
        whole("depth", self.depth, 0)
        whole("heads", self.heads)
        whole("length", self.length)
        if self.width % self.heads:
            raise ValueError(
                f"heads must divide width, got {self.heads} heads and width {self.width}"
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Returns the scores float[rows, T, vocabulary] of tokens int32[rows, T].

        Raises:
            ValueError: If the tokens have not two axes, or a row is longer than `length`.
        """
        _check_tokens(tokens)
        if tokens.shape[1] > self.length:
            raise ValueError(
                f"tokens must have at most {self.length} in a row, the model's length, "
                f"got {tokens.shape[1]}"
            )
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


def _check_tokens(tokens: jax.Array) -> None:
    """Refuses what are no rows of tokens."""
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have two axes [rows, T], got shape {tokens.shape}")
