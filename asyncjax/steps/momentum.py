r"""Momentum that knows of delays: complete optimizers, which flip the sign and take one gradient.

    ordered_momentum       b(t) = ceil(t / K),   t = 0, 1, ...  updates made before this one
        b(t) > b(t - 1):   x <- x - beta u,   u <- beta u                   (a new bucket begins)
        a = b(t) - b(s):   u <- u + beta^a eta g,                          s = t - delay
                           x <- x - (1 + beta + ... + beta^a) eta g

    delayed_nesterov       s <- s + g                                          (every arrival)
        N-th:              m <- beta m + s / N,  s <- 0,
                           x <- x - eta (g / N + (1 - (N - 1) c) beta m)
        others:            x <- x - eta (g / N + c beta m)

    closed_loop_momentum   v_t = mu_t v_{t-1} - eta g_t,    x_{t+1} = x_t + v_t
                           measured = median over entries of (v_r + eta g_t) / v_{r-1}
                           mu_{t+1} = clip(mu_t + gain (momentum - measured), least, momentum)

    heloco                 u = D / ||D||,  v = m / ||m||,  a = <u, v>,                     each leaf
                           w = ||D|| / (||D|| + caution ||m||)
        a >= keep          G = D
        0 <= a < keep      G = ||D|| h / ||h||,  h = (1 - l) u + l v,  l = min(1, turn (1 - a) w)
        a < 0              G = D - b a ||D|| v,  b = min(most, -shrink a w)
                           m <- beta m + (1 - beta) G,     x <- x - eta (G + beta m)

    fadas                  m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   h <- max(h, v)
                           x <- x - eta_t m / (sqrt(h) + eps)
                           eta_t = eta if delay <= tau_c else min(eta, 1 / delay)

Here g is the gradient that arrives, taken at x_r, r = t - delay, and D a pseudo-gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import is_traced, like, number
from asyncjax.buffers.rows import empty_rows, one_row, put_rows, take_rows
from asyncjax.checks import whole
from asyncjax.steps.transformation import Transformation, Updated, transformation
from asyncjax.steps.trees import cast, in_dtype, late, scalar, scale_tree, wide_dtype

_OF = "the parameters that init got"


class OrderedMomentumState(NamedTuple):
    """State of `ordered_momentum`."""

    momentum: optax.Updates  # u, tree like the parameters
    updates_made: jax.Array  # int32[], t, saturating
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def ordered_momentum(
    learning_rate: ArrayLike, momentum: ArrayLike, n_workers: ArrayLike
) -> Transformation:
    """OrMo: a late gradient enters as if it had come with the others of its time.

    Gradients lie in buckets by the version that they were taken at: 0, 1..K, K + 1..2K and so on.
    Momentum ages once a bucket, and a gradient that is a buckets late gets the share that it would
    have by now: so u and x are at any time those of heavy-ball SGD that takes a bucket a step, with
    what has arrived of each.

    Every `update` needs the extra `delay`. The rule is linear in the gradients, so any rule for
    step sizes may go in front of it, with a `learning_rate` of 1 behind a whole step size:
    `optax.chain(scale_by_concurrency_bound(eta, concurrency=2 * n, smoothness=L),
    ordered_momentum(1.0, beta, n))`. Source: Shi, Yang, Li 2024, arXiv 2407.19234.

    Args:
        learning_rate: eta, positive; a gradient moves x by eta / (1 - beta) in the end.
        momentum: beta, in [0, 1); 0 is plain SGD.
        n_workers: K, the number of workers, at least 1: how many updates make a bucket.

    Note:
        From memory of the paper; the factors of a late gradient were derived again. The delay is
        counted in updates of this optimizer: chain `drop_stale` or `picky_sgd` in front of it.

    Example:
        Two workers; the second gradient read version 0 too, and comes when the next bucket begins:

        >>> optimizer = ordered_momentum(1.0, 0.5, n_workers=2)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for delay in (0, 1):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params, delay=delay)
        ...     print(float(update), float(state.momentum))
        -1.0 1.0
        -2.0 1.0
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("n_workers", n_workers, least=1, integer=True)

    def init(params: optax.Params) -> OrderedMomentumState:
        return OrderedMomentumState(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def bucket(version: jax.Array) -> jax.Array:
        return -(-version // jnp.asarray(n_workers, jnp.int32))

    def update(updates: optax.Updates, state: OrderedMomentumState, *, delay: ArrayLike) -> Updated:
        like("updates", updates, state.momentum, _OF)
        dtype, now = wide_dtype(updates), state.updates_made
        rate, decay = in_dtype(dtype, learning_rate, momentum)
        read = now - jnp.clip(scalar("delay", delay), 0, now)
        begins = bucket(now) > bucket(now - 1)
        share = decay ** (bucket(now) - bucket(read))
        reach = (1 - decay * share) / (1 - decay)  # 1 + beta + ... + beta^a

        def moved(old: jax.Array, grad: jax.Array) -> jax.Array:
            return -_times(jnp.where(begins, decay, 0), old) - _times(rate * reach, grad)

        def aged(old: jax.Array, grad: jax.Array) -> jax.Array:
            return _times(jnp.where(begins, decay, 1), old) + _times(rate * share, grad)

        pair = list(in_dtype(dtype, state.momentum, updates))
        moves, moments = (cast(jax.tree.map(new, *pair), state.momentum) for new in (moved, aged))
        return moves, OrderedMomentumState(moments, jnp.asarray(optax.safe_increment(now)))

    return transformation(init, update)


def _times(factor: jax.Array, leaf: jax.Array) -> jax.Array:
    """The product; a factor of 0 gives 0, also of what is not finite."""
    return jnp.where(factor == 0, 0, factor * leaf)


class DelayedNesterovState(NamedTuple):
    """State of `delayed_nesterov`."""

    momentum: optax.Updates  # m, tree like the parameters
    waiting: optax.Updates  # s, the sum of the gradients since m was renewed
    arrivals: jax.Array  # int32[], since m was renewed, below N


def delayed_nesterov(
    learning_rate: ArrayLike, momentum: ArrayLike = 0.9, *, every: ArrayLike, share: ArrayLike = 0.0
) -> Transformation:
    """Nesterov momentum that is renewed at every N-th arrival and spent in between.

    Momentum that ages with every arrival forgets in a moment what N workers send in turn, and N
    steps of it in a row go far too far. So m ages once in N arrivals, as if these had come
    together, and its step is taken once, in shares: c at each of the N - 1 arrivals to come, the
    rest at once. No extra is needed.

    A gradient goes in with learning_rate / every, so N arrivals go as far as a step on their mean.
    Source: Liu et al. 2024, arXiv 2401.09135.

    Args:
        learning_rate: eta, positive.
        momentum: beta, in [0, 1).
        every: N, at least 1: how many arrivals renew the momentum; usually the number of workers.
            1 is Nesterov momentum as `optax.sgd(learning_rate, momentum, nesterov=True)` has it.
        share: c, in [0, 1 / N]: the part of the momentum's step that each arrival between takes.

    Note:
        The steps are those of the public code of HALoS (utnslab/halos, src/halos/opt.py), which
        names this paper as its source. With c = 0 every N-th model is that of Nesterov on means.

    Example:
        Two gradients of 1 renew the momentum to 1; half of its step goes with the third:

        >>> optimizer = delayed_nesterov(1.0, 0.5, every=2, share=0.5)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for _ in range(3):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params)
        ...     print(float(update), float(state.momentum))
        -0.5 0.0
        -0.75 1.0
        -0.75 1.0
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("every", every, least=1, integer=True)
    number("share", share, least=0)
    if not is_traced([share, every]):
        part, count = float(np.asarray(share)), int(np.asarray(every))
        if part * count > 1 + 1e-6:
            raise ValueError(f"share must be at most 1 / every, {1 / count:g}, got {part:g}")

    def init(params: optax.Params) -> DelayedNesterovState:
        zero = optax.tree.zeros_like(params)
        return DelayedNesterovState(zero, zero, jnp.zeros((), jnp.int32))

    def update(updates: optax.Updates, state: DelayedNesterovState) -> Updated:
        like("updates", updates, state.momentum, _OF)
        dtype, count = wide_dtype(updates), jnp.asarray(every, jnp.int32)
        rate, decay, later, n = in_dtype(dtype, learning_rate, momentum, share, count)
        renews = state.arrivals + 1 >= count
        part = jnp.where(renews, 1 - (n - 1) * later, later)

        def renewed(old: jax.Array, total: jax.Array) -> jax.Array:
            return jnp.where(renews, decay * old + total / n, old)

        def moved(moment: jax.Array, grad: jax.Array) -> jax.Array:
            return -rate * (grad / n + part * decay * moment)

        grads, waiting, old = in_dtype(dtype, updates, state.waiting, state.momentum)
        sums = jax.tree.map(jnp.add, waiting, grads)
        moments = jax.tree.map(renewed, old, sums)
        moves = jax.tree.map(moved, moments, grads)
        waiting = jax.tree.map(lambda total: jnp.where(renews, 0, total), sums)
        arrivals = jnp.where(renews, 0, state.arrivals + 1)
        moves, *new = (cast(tree, state.momentum) for tree in (moves, moments, waiting))
        return moves, DelayedNesterovState(*new, arrivals)

    return transformation(init, update)


class ClosedLoopState(NamedTuple):
    """State of `closed_loop_momentum`."""

    past_steps: optax.Updates  # tree of [max_delay + 2, ...], v; row t % (max_delay + 2) is v_t
    steps_made: jax.Array  # int32[], t, saturating
    own_momentum: jax.Array  # float[], mu, of the next step
    measured_momentum: jax.Array  # float[], what was measured last; `momentum` before
    delay_overflows: jax.Array  # int32[], delays above max_delay, which measured nothing
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def closed_loop_momentum(
    learning_rate: ArrayLike,
    momentum: ArrayLike = 0.9,
    *,
    max_delay: int,
    gain: ArrayLike = 0.01,
    least: ArrayLike = -0.9,
) -> Transformation:
    """Heavy-ball SGD whose momentum is lowered until, with that of asynchrony, it is as asked for.

    A gradient that comes late goes along steps that were meant long ago, which acts like momentum
    (Mitliagkas et al. 2016, arXiv 1605.09774: with n even workers about 1 - 1/n). The steps that
    the server took from x_r tell how much there is in all: with a total momentum m they are
    v_r = m v_{r-1} - eta g, where g is the gradient at x_r. So mu is lowered, below 0 if need be,
    until what is measured is the momentum that was asked for: the loop of YellowFin, for a given
    momentum and step size. Every `update` needs the extra `delay`. Source: Zhang, Mitliagkas 2019,
    arXiv 1706.03471.

    Args:
        learning_rate: eta, positive.
        momentum: What the momentum is to be in all, in [0, 1).
        max_delay: Longest delay at which something is measured, at least 0, static: max_delay + 2
            steps are kept, each as large as the parameters.
        gain: How much of the difference is corrected at an update, in [0, 1]; 0 is heavy-ball SGD.
        least: Lowest momentum of its own, in (-1, 0].

    Note:
        From memory of YellowFin, and derived again as above. Entries that did not move at step
        r - 1 do not vote. The median sorts all parameters once an update.

    Example:
        Without a delay nothing is corrected:

        >>> optimizer = closed_loop_momentum(0.5, 0.5, max_delay=4, gain=1.0)
        >>> params = jnp.float32(0.0)
        >>> state = optimizer.init(params)
        >>> for delay in (0, 0, 2):
        ...     update, state = optimizer.update(jnp.float32(1.0), state, params, delay=delay)
        ...     print(float(update), float(state.own_momentum))
        -0.5 0.5
        -0.75 0.5
        -0.875 0.5
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    rows = whole("max_delay", max_delay, 0) + 2
    number("gain", gain, least=0, most=1)
    number("least", least, above=-1, most=0)

    def init(params: optax.Params) -> ClosedLoopState:
        asked = jnp.asarray(momentum).astype(wide_dtype(params))
        zero = jnp.zeros((), jnp.int32)
        return ClosedLoopState(empty_rows(params, rows), zero, asked, asked, zero)

    def update(updates: optax.Updates, state: ClosedLoopState, *, delay: ArrayLike) -> Updated:
        like("updates", updates, one_row(state.past_steps), _OF)
        dtype, now = state.own_momentum.dtype, state.steps_made
        behind = scalar("delay", delay)
        rate, asked, part, lowest = in_dtype(dtype, learning_rate, momentum, gain, least)

        def step(last: jax.Array, grad: jax.Array) -> jax.Array:
            return state.own_momentum * last - rate * grad

        def ratio(grad: jax.Array, after: jax.Array, before: jax.Array) -> jax.Array:
            divisor = jnp.where(before != 0, before, 1)
            return jnp.ravel(jnp.where(before != 0, (after + rate * grad) / divisor, jnp.nan))

        last = take_rows(state.past_steps, (now - 1) % rows)
        grads, wide_last = in_dtype(dtype, updates, last)
        steps = cast(jax.tree.map(step, wide_last, grads), last)
        past = put_rows(state.past_steps, now % rows, steps)
        read = now - jnp.maximum(0, behind)
        pair = (take_rows(past, (read - back) % rows) for back in (0, 1))
        ratios = jax.tree.leaves(jax.tree.map(ratio, grads, *in_dtype(dtype, *pair)))
        middle = jnp.nanmedian(jnp.concatenate(ratios)) if ratios else jnp.asarray(jnp.nan, dtype)
        is_known = (behind <= rows - 2) & (read >= 1) & jnp.isfinite(middle)
        measured = jnp.where(is_known, middle, state.measured_momentum)
        lowered = jnp.clip(state.own_momentum + part * (asked - measured), lowest, asked)
        return steps, ClosedLoopState(
            past_steps=past,
            steps_made=jnp.asarray(optax.safe_increment(now)),
            own_momentum=jnp.where(is_known, lowered, state.own_momentum),
            measured_momentum=measured,
            delay_overflows=state.delay_overflows + (behind > rows - 2).astype(jnp.int32),
        )

    return transformation(init, update)


class HelocoState(NamedTuple):
    """State of `heloco`."""

    momentum: optax.Updates  # m, tree like the parameters


def heloco(
    learning_rate: ArrayLike,
    momentum: ArrayLike = 0.9,
    *,
    keep: ArrayLike = 0.5,
    turn: ArrayLike = 0.5,
    shrink: ArrayLike = 1.0,
    most: ArrayLike = 1.0,
    caution: ArrayLike = 1.0,
) -> Transformation:
    """HeLoCo: Nesterov momentum for pseudo-gradients, each corrected by its angle to the momentum.

    For asynchronous DiLoCo on unequal data. Of a late pseudo-gradient D the part against the
    momentum is shortened; one that lies across it is turned towards it and keeps its length. D is
    x_read - x_local or a multiple (`problems.local_steps`). Every leaf has an angle of its own. A
    leaf whose momentum or pseudo-gradient is zero is left as it is. Source: Al Asif et al.
    2026, arXiv 2606.00271.

    Args:
        learning_rate: eta, positive; a constant gradient moves x by (1 + beta) eta in the end.
        momentum: beta, in [0, 1).
        keep: Least cosine at which a leaf is left alone, in [-1, 1]; -1 is Nesterov momentum.
        turn: How far leaves with a cosine of 0 .. `keep` are turned, at least 0; 0: not.
        shrink: How much of the part against the momentum is removed, at least 0; 0: nothing.
        most: Largest share of that part that is removed, in [0, 1].
        caution: How much less is done where D is short beside the momentum, at least 0.

    Note:
        The formulas are those of a public catalogue of optimizers, which cites the paper. The
        defaults are this library's. A weight by delay or worker, which the paper lets follow the
        correction, goes in front here, in a chain.

    Example:
        The second one is opposite to the momentum, and loses a part of its length:

        >>> optimizer = heloco(1.0, 0.5, caution=0.0, most=0.75)
        >>> params = jnp.zeros(2)
        >>> state = optimizer.init(params)
        >>> for grad in ([1.0, 0.0], [-1.0, 0.0]):
        ...     update, state = optimizer.update(jnp.array(grad), state, params)
        ...     print(update.tolist(), state.momentum.tolist())
        [-1.25, -0.0] [0.5, 0.0]
        [0.1875, -0.0] [0.125, 0.0]
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("keep", keep, least=-1, most=1)
    number("turn", turn, least=0)
    number("shrink", shrink, least=0)
    number("most", most, least=0, most=1)
    number("caution", caution, least=0)

    def update(updates: optax.Updates, state: HelocoState) -> Updated:
        like("updates", updates, state.momentum, _OF)
        dtype = wide_dtype(updates)
        rate, decay, least = in_dtype(dtype, learning_rate, momentum, keep)
        turned, less, bound, wary = in_dtype(dtype, turn, shrink, most, caution)

        def corrected(grad: jax.Array, old: jax.Array) -> jax.Array:
            length, reach = _norm(grad), _norm(old)
            ahead, aim = _over(grad, length), _over(old, reach)
            cosine = jnp.sum(ahead * aim)
            trust = _over(length, length + wary * reach)
            part = jnp.minimum(1, turned * (1 - cosine) * trust)
            between = (1 - part) * ahead + part * aim
            bent = length * _over(between, _norm(between))
            removed = jnp.minimum(bound, -less * cosine * trust)
            shortened = grad - removed * cosine * length * aim
            is_kept = (cosine >= least) | (length == 0) | (reach == 0)
            return jnp.where(is_kept, grad, jnp.where(cosine < 0, shortened, bent))

        def average(old: jax.Array, grad: jax.Array) -> jax.Array:
            return decay * old + (1 - decay) * grad

        def moved(grad: jax.Array, moment: jax.Array) -> jax.Array:
            return -rate * (grad + decay * moment)

        grads, old = in_dtype(dtype, updates, state.momentum)
        grads = jax.tree.map(corrected, grads, old)
        moments = jax.tree.map(average, old, grads)
        moves = cast(jax.tree.map(moved, grads, moments), state.momentum)
        return moves, HelocoState(cast(moments, state.momentum))

    return transformation(lambda params: HelocoState(optax.tree.zeros_like(params)), update)


def _norm(leaf: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(leaf * leaf))


def _over(leaf: jax.Array, by: jax.Array) -> jax.Array:
    """The quotient, 0 where the divisor is."""
    return jnp.where(by > 0, leaf / jnp.where(by > 0, by, 1), 0)


class FadasState(NamedTuple):
    """State of `fadas`; the moments are trees like the parameters."""

    first_moment: optax.Updates
    second_moment: optax.Updates
    largest_second_moment: optax.Updates
    last_step_size: jax.Array  # float[], eta_t of the last update
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def fadas(
    learning_rate: ArrayLike,
    delay_threshold: ArrayLike,
    *,
    b1: ArrayLike = 0.9,
    b2: ArrayLike = 0.99,
    epsilon: ArrayLike = 1e-8,
) -> Transformation:
    """FADAS: AMSGrad on a server, whose step shrinks when a delay is extraordinary.

    Without bias correction, fed with the mean of the buffered pseudo-gradients of several workers;
    the extra `delay` is the largest of the buffer. Replay it on a trace with
    `collect=traces.buffered(M)` and `problems.local_steps` for the paper's setting. Source: Wang,
    Wang, Lu, Chen 2024, arXiv 2407.18365.

    Args:
        learning_rate: eta, positive. The bound 1 / delay only bites for a large eta.
        delay_threshold: tau_c, longest delay with a full step, at least 0, in updates.
        b1, b2: Decay of the first and the second moment, in [0, 1).
        epsilon: Added to the root of the second moment, at least 0.

    Example:
        >>> optimizer = fadas(0.5, delay_threshold=2, epsilon=0.0)
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> for delay in (2, 5):
        ...     update, state = optimizer.update(jnp.float32(4.0), state, params, delay=delay)
        ...     print(f"{update:.3f} {state.last_step_size:.1f}")
        -0.500 0.5
        -0.269 0.2
    """
    number("learning_rate", learning_rate, above=0)
    number("delay_threshold", delay_threshold, least=0, finite=False)
    number("b1", b1, least=0, below=1)
    number("b2", b2, least=0, below=1)
    number("epsilon", epsilon, least=0)

    def init(params: optax.Params) -> FadasState:
        zeros = optax.tree.zeros_like(params)
        return FadasState(zeros, zeros, zeros, jnp.zeros((), wide_dtype(params)))

    def average(decay: ArrayLike, old: optax.Updates, new: optax.Updates) -> optax.Updates:
        def mean(old: jax.Array, new: jax.Array) -> jax.Array:
            keep = jnp.asarray(decay, wide_dtype(old))
            return (keep * old + (1 - keep) * new).astype(old.dtype)

        return jax.tree.map(mean, old, new)

    def direction(mean: jax.Array, square: jax.Array) -> jax.Array:
        return mean / (jnp.sqrt(square) + jnp.asarray(epsilon, square.dtype))

    def update(updates: optax.Updates, state: FadasState, *, delay: ArrayLike) -> Updated:
        like("updates", updates, state.first_moment, _OF)
        dtype = state.last_step_size.dtype
        staleness = late(delay, dtype)
        full, threshold = in_dtype(dtype, learning_rate, delay_threshold)
        bounded = jnp.minimum(full, 1 / jnp.maximum(1, staleness))
        step = jnp.where(staleness <= threshold, full, bounded)
        first = average(b1, state.first_moment, updates)
        second = average(b2, state.second_moment, jax.tree.map(jnp.square, updates))
        largest = jax.tree.map(jnp.maximum, state.largest_second_moment, second)
        moved = scale_tree(jax.tree.map(direction, first, largest), -step)
        return moved, FadasState(first, second, largest, step)

    return transformation(init, update)
