r"""Small networks, as flax linen modules.

.. math:: z = W_L \, \sigma(W_{L-1} \cdots \sigma(W_1 a + c_1) \cdots) + c_L

Asynchronous training computes many gradients at once, each at a model of its own, which is a
`vmap` over the parameters. A convolution then becomes a grouped one, for which XLA has no fast
path; here a convolution is a matrix product on stacked neighbourhoods, which stays a batched
matrix product under `vmap`.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp


class MLP(nn.Module):
    """A multi-layer perceptron; rows of more than one axis are flattened.

    Attributes:
        hidden: widths of the hidden layers; an empty tuple makes a linear model.
        classes: outputs a row.
        activation: the nonlinearity, such as `nn.relu` or `nn.tanh` (smooth).

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
        channels: channels of each convolution; every one halves the image (an odd last row or
            column is left out by the pooling).
        classes: outputs a row.
        activation: the nonlinearity.

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

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Returns the scores float[rows, classes] of images float[rows, H, W, C].

        Raises:
            ValueError: if the images are not of that shape, or too small to be halved so often.
        """
        least = 2 ** len(self.channels)
        if features.ndim != 4 or min(features.shape[1:3]) < least:
            raise ValueError(
                f"features must be images [rows, H, W, C] with H and W at least {least} for "
                f"{len(self.channels)} convolutions, got shape {features.shape}."
            )
        values = features
        for width in self.channels:
            values = self.activation(nn.Dense(width)(_neighbourhoods(values)))
            values = _halved(values)
        return nn.Dense(self.classes)(values.reshape(values.shape[0], -1))


def _neighbourhoods(images: jax.Array) -> jax.Array:
    """Returns float[rows, H, W, 9 C]: each pixel's 3 x 3 neighbourhood, zeros outside."""
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, down : down + height, right : right + width]
        for down in range(3)
        for right in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)


def _halved(images: jax.Array) -> jax.Array:
    """Returns the means of 2 x 2 blocks, float[rows, H // 2, W // 2, C]."""
    rows, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(rows, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4))
