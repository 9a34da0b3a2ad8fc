r"""Corrections: how samples of an older policy make a gradient of the present one.

With tokens y_t of sample i, r_t = pi_x / pi_behaviour the ratio of a token's probabilities (x is
what is differentiated, behaviour the version that drew it), pi_proximal the policy as the step
found it, A_i the advantage, and sums over the tokens of a sample, means over the B samples:

    none                  -mean_i A_i sum_t log pi_x(y_t)
    truncated_importance  -mean_i A_i sum_t stop(min(r_t, cap)) log pi_x(y_t)
    ppo_clip              -mean_i sum_t min(r_t A_i, clip(r_t, 1 - eps, 1 + eps) A_i)
    decoupled             -mean_i sum_t min(w_t, cap) min(u_t A_i, clip(u_t, 1 - eps, 1 + eps) A_i),
                          u = pi_x / pi_proximal, w = pi_proximal / pi_behaviour

Since E_behaviour[r g] = E_x[g], the second without a cap, its ratios those of whole samples, is
unbiased whoever drew the samples. Ratios token by token leave out how likely the tokens before
were; a cap is a bias that bounds the variance. Sums over tokens, and no mean: the gradient of the
expected reward, in which long samples have more. `effective_sample_size` is a factor of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from asyncjax.checks import real

Array = jax.Array
# (new[B, T], behaviour[B, T], proximal[B, T], advantage[B], length[B]) -> scalar
Correction = Callable[[Array, Array, Array, Array, Array], Array]


@dataclass(frozen=True)
class _Weighted:
    """REINFORCE with weights, up to `cap`; None: without."""

    cap: float | None
    whole_samples: bool = False

    def __call__(
        self, new: Array, behaviour: Array, proximal: Array, advantage: Array, length: Array
    ) -> Array:
        log_probs = _inside(new, length)
        if self.cap is not None:
            ratio = _ratio(new, behaviour, length, self.whole_samples)
            log_probs = jax.lax.stop_gradient(jnp.minimum(ratio, self.cap)) * log_probs
        return -jnp.mean(advantage * jnp.sum(log_probs, 1))


@dataclass(frozen=True)
class _Clipped:
    """PPO's clip about the proximal policy, with weights up to `cap`; None: about behaviour."""

    below: float
    above: float
    cap: float | None = None

    def __call__(
        self, new: Array, behaviour: Array, proximal: Array, advantage: Array, length: Array
    ) -> Array:
        center = behaviour if self.cap is None else jax.lax.stop_gradient(proximal)
        ratio, gain = _ratio(new, center, length), advantage[:, None]
        inside = jnp.clip(ratio, 1.0 - self.below, 1.0 + self.above)
        gain = jnp.minimum(ratio * gain, inside * gain)
        if self.cap is not None:
            gain = jnp.minimum(_ratio(center, behaviour, length), self.cap) * gain
        return -jnp.mean(jnp.sum(_inside(gain, length), 1))


def _effective(
    new: Array, behaviour: Array, proximal: Array, advantage: Array, length: Array
) -> Array:
    log_ratio = jnp.sum(_inside(new - behaviour, length), 1)
    # The largest weight is made 1, which the quotient does not see; nothing overflows.
    weight = jnp.exp(log_ratio - jnp.max(log_ratio))
    return jnp.sum(weight) ** 2 / (weight.size * jnp.sum(weight**2))


def none() -> Correction:
    """Samples are taken as if the present policy had made them: biased wherever it had not.

    Example:
        >>> new, old = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
        >>> loss = none()(new, old, new, jnp.array([2.0]), jnp.array([1]))
        >>> round(float(loss), 4)
        1.3863
    """
    return _Weighted(None)


def truncated_importance(cap: float = float("inf"), *, whole_samples: bool = False) -> Correction:
    """Returns importance weights, cut off at a cap, that are not differentiated.

    Args:
        cap: Largest weight, above 0; infinity: none is cut off.
        whole_samples: One weight a sample, the product over its tokens; False: each token has its
            own. Whole samples without a cap are unbiased.

    Note:
        The rho of V-trace is such a weight (Espeholt et al. 2018, arXiv 1802.01561, section 4.1).
        Today's frameworks have the same weights in front of PPO's loss: that is `decoupled`.

    Example:
        >>> new, old = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
        >>> rest = (old, new, jnp.array([2.0]), jnp.array([1]))
        >>> float(jax.grad(truncated_importance(1.5))(new, *rest)[0, 0])  # of 2
        -3.0
    """
    return _Weighted(real("cap", cap, above=0.0, finite=False), whole_samples)


def ppo_clip(epsilon: float = 0.2, upper: float | None = None) -> Correction:
    """Returns PPO's clipped ratio to the policy that drew the token.

    A token whose ratio has left the interval in the direction in which its advantage pushes has no
    gradient any more, also where it left before it was trained.

    Args:
        epsilon: How far below 1 a ratio may go, in [0, 1).
        upper: How far above 1, at least 0; None: `epsilon`.

    Reference:
        Schulman et al. 2017 (arXiv 1707.06347), equation 7; without its terms of value and entropy.

    Example:
        >>> new, old = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
        >>> rest = (old, new, jnp.array([-1.0]), jnp.array([1]))
        >>> float(jax.grad(ppo_clip(0.2))(new, *rest)[0, 0])
        2.0
    """
    return _Clipped(*_interval(epsilon, upper))


def decoupled(
    epsilon: float = 0.2, cap: float = float("inf"), upper: float | None = None
) -> Correction:
    """Returns PPO's clip about the policy as the step found it, weighted for who drew it.

    The clip keeps an update near the present policy; the weights correct for the samples' age. With
    one pass over the batch nothing is clipped: the gradient is that of `truncated_importance(cap)`.

    Args:
        epsilon: How far below 1 a ratio to the proximal policy may go, in [0, 1).
        cap: Largest weight, above 0; infinity: none is cut off.
        upper: How far above 1, at least 0; None: `epsilon`.

    Reference:
        Hilton, Cobbe, Schulman 2021 (arXiv 2110.00641), the decoupled policy objective; Fu et al.
        2025 (AReaL, arXiv 2505.24298) take the parameters before each step as proximal, as here.

    Example:
        >>> new, old = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
        >>> rest = (old, new, jnp.array([1.0]), jnp.array([1]))
        >>> float(jax.grad(decoupled(0.2, cap=1.5))(new, *rest)[0, 0])
        -1.5
    """
    return _Clipped(*_interval(epsilon, upper), real("cap", cap, above=0.0, finite=False))


def effective_sample_size() -> Correction:
    """A factor of the step: the share of the samples that their weights leave.

    (sum w)^2 / (B sum w^2) with w the ratio of a whole sample, in [1 / B, 1]. To be given as
    `step_scale`, which multiplies what the optimizer has made: one that divides by the gradients'
    size would not notice a factor of the loss.

    Reference:
        Kong 1992, of importance sampling; recalled.

    Example:
        >>> new = jnp.log(jnp.array([[0.5], [0.1]]))
        >>> old = jnp.log(jnp.array([[0.25], [0.2]]))  # weights 2 and 1/2
        >>> two = jnp.ones(2, int)
        >>> round(float(effective_sample_size()(new, old, new, two, two)), 4)
        0.7353
    """
    return _effective


def _interval(epsilon: float, upper: float | None) -> tuple[float, float]:
    epsilon = real("epsilon", epsilon, least=0.0, below=1.0)
    return epsilon, epsilon if upper is None else real("upper", upper, least=0.0)


def _inside(values: Array, length: Array) -> Array:
    """Values [B, T], 0 behind the end of a sample."""
    return jnp.where(jnp.arange(values.shape[1]) < length[:, None], values, 0)


def _ratio(new: Array, old: Array, length: Array, whole: bool = False) -> Array:
    """Ratio of the probabilities of each token [B, T], or of each sample [B, 1]."""
    log_ratio = _inside(new - old, length)
    return jnp.exp(jnp.sum(log_ratio, 1, keepdims=True) if whole else log_ratio)
