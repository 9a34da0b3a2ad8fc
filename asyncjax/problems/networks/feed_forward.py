r"""Small networks, as flax linen modules.

.. math:: z = W_L \, \sigma(W_{L-1} \cdots \sigma(W_1 a + c_1) \cdots) + c_L

Asynchronous training computes many gradients at once, each at a model of its own, which is a
`vmap` over the parameters. A convolution then becomes a grouped one, for which XLA has no fast
path; here a convolution is a matrix product on stacked neighbourhoods, which stays a batched
matrix product under `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import whole
from asyncjax.problems.networks.modules import a_nonlinearity, widths


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
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    def __post_init__(self) -> None:
        """Refuses fields of another kind."""
        widths("hidden", self.hidden)
        whole("classes", self.classes)
        a_nonlinearity("activation", self.activation)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes]."""
        values = features.reshape(features.shape[0], -1)
        for width in self.hidden:
            values = self.activation(nn.Dense(width)(values))
        return nn.Dense(self.classes)(values)


class SmallCNN(nn.Module):
    """A small convolutional network: 3 x 3 convolutions, each followed by 2 x 2 mean pooling.

    Attributes:
        channels: Channels of each convolution; every one halves the image (an odd last row or
            column is left out by the pooling).
        classes: Outputs a row.
        activation: The nonlinearity.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import problems
        >>> model = problems.SmallCNN(channels=(4, 8), classes=10)
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
        >>> model.apply(variables, jnp.zeros((5, 8, 8, 1))).shape
        (5, 10)
    """

    channels: tuple[int, ...] = (8, 16)
    classes: int = 10
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    def __post_init__(self) -> None:
        """Refuses fields of another kind."""
        widths("channels", self.channels)
        whole("classes", self.classes)
        a_nonlinearity("activation", self.activation)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes] of images float[rows, H, W, C].

        Raises:
            ValueError: If the images are not of that shape, or too small to be halved so often.
        """
        least = 2 ** len(self.channels)
        if features.ndim != 4 or min(features.shape[1:3]) < least:
            raise ValueError(
                f"features must be images [rows, H, W, C] with H and W at least {least} for "
                f"{len(self.channels)} convolutions, got shape {features.shape}"
            )
        values = features
        for width in self.channels:
            values = self.activation(nn.Dense(width)(_neighbourhoods(_framed(values, 1), 3)))
            values = _blocks(values).mean(axis=(2, 4))
        return nn.Dense(self.classes)(values.reshape(values.shape[0], -1))


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
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    def __post_init__(self) -> None:
        """Refuses fields of another kind."""
        whole("classes", self.classes)
        a_nonlinearity("activation", self.activation)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes] of images float[rows, H, W, C].

        Raises:
            ValueError: If the images are not 28 x 28 or 32 x 32.
        """
        if features.ndim != 4 or features.shape[1:3] not in ((28, 28), (32, 32)):
            raise ValueError(
                "features must be images [rows, H, W, C] of 28 x 28 or 32 x 32, "
                f"got shape {features.shape}"
            )
        values = _framed(features, (32 - features.shape[1]) // 2)
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
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    def __post_init__(self) -> None:
        """Refuses fields of another kind."""
        widths("widths", self.widths)
        a_nonlinearity("activation", self.activation)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the predictions float[rows] of windows float[rows, lags]."""
        values = features.reshape(features.shape[0], -1)
        for width in self.widths:
            values = self.activation(nn.Dense(width)(values))
        return nn.Dense(1)(values)[:, 0]


def _framed(images: jax.Array, width: int) -> jax.Array:
    """Returns the images within a frame of zeros."""
    return jnp.pad(images, ((0, 0), (width, width), (width, width), (0, 0)))


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
