"""Step sizes, table delays and aggregated gradients: the formulas in plain float64 NumPy."""

import math

import numpy as np


def windows(steps, delays):
    """Sum of the last min(tau_k, k) steps before each k, from prefix sums."""
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(steps, np.float64))])
    k = np.arange(len(delays))
    return sums[k] - sums[k - np.minimum(delays, k)]


def adaptive_1(delays, step_size=1.0, alpha=0.9):
    """gamma_k = alpha max(0, gamma' - window_k)."""
    sums = [0.0]
    for k, delay in enumerate(delays):
        window = sums[k] - sums[k - min(int(delay), k)]
        sums.append(sums[k] + alpha * max(0.0, step_size - window))
    return np.diff(sums)


def adaptive_2(delays, step_size=1.0, slack=1e-12):
    """gamma_k = gamma'/(tau_k + 1) if that is at most gamma' - window_k, else 0."""
    steps = []
    for k, delay in enumerate(delays):
        delay = min(int(delay), k)
        room = max(0.0, step_size - sum(steps[k - delay : k]))
        share = step_size / (delay + 1)
        steps.append(share if share <= room + slack * step_size else 0.0)
    return np.array(steps)


def deliveries(workers):
    """Own delays when each worker reads right after it delivered; all read version 0 at first."""
    read, delays = {}, []
    for k, worker in enumerate(workers):
        delays.append(k - read.get(int(worker), 0))
        read[int(worker)] = k + 1
    return np.array(delays)


def oldest_rows(workers, delays, n_workers):
    """tau_k = max_i (k - s_i), stamps kept one by one."""
    stamps, ages = [0] * n_workers, []
    for k, (worker, delay) in enumerate(zip(workers, delays, strict=True)):
        stamps[int(worker)] = k - int(delay)
        ages.append(max(k - stamp for stamp in stamps))
    return np.array(ages)


def soft_threshold(x, amount):
    """argmin_z amount |z| + (z - x)^2 / 2."""
    return np.where(x > amount, x - amount, np.where(x < -amount, x + amount, 0.0))


def piag(gradient, start, workers, *, n_workers, step_size, alpha, l1=0.0, full_start=True):
    """Aggregated gradient steps, one arrival at a time; returns all iterates, steps and ages."""
    x = [np.array(start, np.float64)]
    table = [gradient(i, x[0]) if full_start else np.zeros_like(x[0]) for i in range(n_workers)]
    stamps, read, steps, ages = [0] * n_workers, [0] * n_workers, [], []
    for k, worker in enumerate(workers):
        table[worker] = gradient(worker, x[read[worker]])
        stamps[worker] = read[worker]
        age = max(k - stamp for stamp in stamps)
        gamma = alpha * max(0.0, step_size - sum(steps[k - age : k]))
        mean = sum(table) / n_workers
        x.append(soft_threshold(x[k] - gamma * mean, gamma * l1))
        read[worker] = k + 1
        steps.append(gamma)
        ages.append(age)
    return np.array(x), np.array(steps), np.array(ages)


def prox_on_grid(function, x, step_size, grid):
    """argmin_z step_size * R(z) + (z - x)^2 / 2 over a grid, for a scalar x."""
    return grid[np.argmin(step_size * function(grid) + (grid - x) ** 2 / 2)]


def measured_factors(workers, times, n):
    """Own mean time over the mean of all, one factor a delivery.

    Who has not delivered has taken until now.
    """
    last, count, factors = [0.0] * n, [0] * n, []
    for worker, now in zip(workers, times, strict=True):
        last[worker], count[worker] = now, count[worker] + 1
        means = [last[i] / count[i] if count[i] else now for i in range(n)]
        factors.append(means[worker] / (sum(means) / n))
    return factors


def compensated_adaptively(gradients, x, reads, strength=2.0, decay=0.95, epsilon=1e-7):
    """g + strength / sqrt(s + epsilon) g^2 (x - read), s the moving average of g^2."""
    average, out = np.zeros_like(x), []
    for gradient, read in zip(gradients, reads, strict=True):
        average = decay * average + (1 - decay) * gradient**2
        out.append(gradient + strength / np.sqrt(average + epsilon) * gradient**2 * (x - read))
    return np.array(out)


def fadas(gradients, delays, *, rate, threshold, b1, b2, epsilon):
    """AMSGrad without bias correction; the rate is at most 1 / delay where the delay is long."""
    first = second = largest = np.zeros_like(gradients[0])
    moves = []
    for gradient, delay in zip(gradients, delays, strict=True):
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        largest = np.maximum(largest, second)
        step = rate if delay <= threshold else min(rate, 1 / delay)
        moves.append(-step * first / (np.sqrt(largest) + epsilon))
    return np.array(moves)


def ordered_momentum(gradients, delays, *, rates, beta, n_workers):
    """A gradient of bucket b gets the shares that b, b + 1, ... up to now would have given it."""
    momentum, moves, momenta = np.zeros_like(gradients[0]), [], []
    for t, (gradient, delay, rate) in enumerate(zip(gradients, delays, rates, strict=True)):
        bucket, origin = math.ceil(t / n_workers), math.ceil((t - delay) / n_workers)
        move = np.zeros_like(gradient)
        if bucket > math.ceil((t - 1) / n_workers):
            momentum = beta * momentum
            move = move - momentum
        part = rate * gradient
        for passed in range(origin, bucket + 1):
            part = beta * part if passed > origin else part
            move = move - part
        momentum = momentum + part
        moves.append(move)
        momenta.append(momentum)
    return np.array(moves), np.array(momenta)


def delayed_nesterov(gradients, *, rate, beta, every, share):
    """A momentum's step is spent in shares: `share` an arrival before the next, the rest now."""
    moves, momentum, block = [], 0.0 * gradients[0], []
    for gradient in gradients:
        block.append(gradient)
        spent = share
        if len(block) == every:
            momentum = beta * momentum + np.mean(block, axis=0)
            block, spent = [], 1 - (every - 1) * share
        moves.append(-rate * (gradient / every + spent * beta * momentum))
    return np.array(moves)


def delayed(gradients, delays):
    """The gradient given at update k - delays[k], zeros where that is before the first."""
    zero = np.zeros_like(gradients[0])
    return np.array(
        [gradients[k - d] if d <= k else zero for k, d in enumerate(delays[: len(gradients)])]
    )


def queued(gradient, start, delay, n_updates, change):
    """x_{k+1} = x_k + change(g(x_{k-d}), x_k, x_{k-d}); before anything arrives, of 0 and x_0."""
    x = [np.array(start, np.float64)]
    for k in range(n_updates):
        read = x[max(0, k - delay)]
        late = gradient(read) if k >= delay else np.zeros_like(read)
        x.append(x[k] + change(late, x[k], read))
    return np.array(x)


def compensated_change(rate, strength):
    """-rate (g + strength g g (x - read))."""
    return lambda g, x, read: -rate * (g + strength * g * g * (x - read))


def distant_change(rate, radius):
    """-rate g where ||x - read|| <= radius, else 0."""
    return lambda g, x, read: -rate * g * float(math.sqrt(np.sum((x - read) ** 2)) <= radius)


def mixed_change(mixing, scale):
    """mixing (read - scale g - x)."""
    return lambda g, x, read: mixing * (read - scale * g - x)
