"""Slow plain NumPy twins of the problems whose answers are known: Quadratic(n, d), LogReg(n, m, d).

Indices are 0-based. Written from the formulas, one row and one worker at a time.
"""

import math

import numpy as np


def quadratic_data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a_ij = 1 + ((3i + 2j) mod 5)/4 and b_ij = ((5i + 3j) mod 7 - 3)/2."""
    curvature, linear = np.zeros((n, d)), np.zeros((n, d))
    for i in range(n):
        for j in range(d):
            curvature[i, j] = 1 + ((3 * i + 2 * j) % 5) / 4
            linear[i, j] = ((5 * i + 3 * j) % 7 - 3) / 2
    return curvature, linear


def quadratic_loss(curvature: np.ndarray, linear: np.ndarray, worker: int, x: np.ndarray) -> float:
    """Returns f_i(x) = sum_j (a_ij x_j^2 / 2 - b_ij x_j)."""
    total = 0.0
    for a, b, value in zip(curvature[worker], linear[worker], x, strict=True):
        total += a * value**2 / 2 - b * value
    return total


def quadratic_gradient(
    curvature: np.ndarray, linear: np.ndarray, worker: int, x: np.ndarray
) -> np.ndarray:
    """Returns the gradient of f_i."""
    return curvature[worker] * x - linear[worker]


def quadratic_objective(curvature: np.ndarray, linear: np.ndarray, x: np.ndarray) -> float:
    """Returns the mean of the f_i."""
    n = len(curvature)
    return sum(quadratic_loss(curvature, linear, i, x) for i in range(n)) / n


def logistic_data(n: int, m: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns features [n, m, d] and labels [n, m]: the skew of the labels grows with the worker.

    A_irj = (((7i + 5r + 3j + ir + 2rj) mod 11) - 5)/5, last column 1; the label is +1 if
    r n < i m + floor(m/2), else -1.
    """
    features, labels = np.zeros((n, m, d)), np.zeros((n, m))
    for i in range(n):
        for r in range(m):
            for j in range(d - 1):
                features[i, r, j] = (((7 * i + 5 * r + 3 * j + i * r + 2 * r * j) % 11) - 5) / 5
            features[i, r, d - 1] = 1.0
            labels[i, r] = 1.0 if r * n < i * m + m // 2 else -1.0
    return features, labels


def logistic_rows(m: int, job: int, batch: int | None) -> list[int]:
    """Returns the rows of a job: (job batch + 0..batch-1) mod m, or all of them."""
    if batch is None:
        return list(range(m))
    return [(job * batch + offset) % m for offset in range(batch)]


def logistic_loss(
    features: np.ndarray, labels: np.ndarray, x: np.ndarray, nonconvex: float = 0.1, l2: float = 0.0
) -> float:
    """Returns the mean of log(1 + exp(-y a.x)) over the rows given, plus the penalties."""
    total = 0.0
    for row, label in zip(features, labels, strict=True):
        total += math.log1p(math.exp(-label * float(row @ x)))
    penalty = sum(value**2 / (1 + value**2) for value in x)
    return total / len(labels) + nonconvex * penalty + 0.5 * l2 * float(x @ x)


def logistic_gradient(
    features: np.ndarray, labels: np.ndarray, x: np.ndarray, nonconvex: float = 0.1, l2: float = 0.0
) -> np.ndarray:
    """Returns the gradient of `logistic_loss`."""
    total = np.zeros_like(x)
    for row, label in zip(features, labels, strict=True):
        total -= label * row / (1 + math.exp(label * float(row @ x)))
    return total / len(labels) + nonconvex * 2 * x / (1 + x**2) ** 2 + l2 * x


def logistic_objective(
    features: np.ndarray, labels: np.ndarray, x: np.ndarray, nonconvex: float = 0.1
) -> float:
    """Returns the mean over the workers of their whole shards' losses."""
    n = len(features)
    return sum(logistic_loss(features[i], labels[i], x, nonconvex) for i in range(n)) / n


def logistic_hessian(
    features: np.ndarray, x: np.ndarray, nonconvex: float = 0.0, l2: float = 0.0
) -> np.ndarray:
    """Returns the dense Hessian of `logistic_loss`, a row at a time; the labels do not matter."""
    total = np.zeros((x.size, x.size))
    for row in features:
        chance = 1 / (1 + math.exp(-float(row @ x)))
        total += chance * (1 - chance) * np.outer(row, row)
    for j, value in enumerate(x):
        total[j, j] += len(features) * (l2 + nonconvex * (2 - 6 * value**2) / (1 + value**2) ** 3)
    return total / len(features)


def tf_idf(documents: list[list[str]], words: list[str]) -> np.ndarray:
    """Returns TF-IDF of lists of words, weights from the same documents, rows of length 1."""
    result = np.zeros((len(documents), len(words)))
    for r, document in enumerate(documents):
        for j, word in enumerate(words):
            holders = sum(1 for other in documents if word in other)
            result[r, j] = document.count(word) * math.log(1 + len(documents) / holders)
        length = math.sqrt(sum(value**2 for value in result[r]))
        if length > 0:
            result[r] /= length
    return result


def numerical_gradient(function, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Returns central differences of a scalar function of a vector."""
    result = np.zeros_like(x)
    for j in range(x.size):
        shift = np.zeros_like(x)
        shift[j] = step
        result[j] = (float(function(x + shift)) - float(function(x - shift))) / (2 * step)
    return result


def lenet(params: dict, image: np.ndarray) -> np.ndarray:
    """Returns LeNet-5's scores of one 32 x 32 image, a pixel at a time; tanh, largest of 2 x 2."""
    values = image
    for layer in ("Dense_0", "Dense_1"):
        kernel, bias = params[layer]["kernel"], params[layer]["bias"]
        size = values.shape[0] - 4
        maps = np.zeros((size, size, bias.size))
        for row in range(size):
            for column in range(size):
                part = values[row : row + 5, column : column + 5]
                maps[row, column] = np.tanh(part.reshape(-1) @ kernel + bias)
        half = size // 2
        values = np.zeros((half, half, bias.size))
        for row in range(half):
            for column in range(half):
                part = maps[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                values[row, column] = part.max(axis=(0, 1))
    values = values.reshape(-1)
    for layer in ("Dense_2", "Dense_3"):
        values = np.tanh(values @ params[layer]["kernel"] + params[layer]["bias"])
    return values @ params["Dense_4"]["kernel"] + params["Dense_4"]["bias"]


def lstm_scores(params: dict, tokens: np.ndarray) -> np.ndarray:
    """Returns the scores of one row of tokens, a token at a time; gates in the order i, f, g, o."""

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    width = params["recurrent"].shape[0]
    hidden, cell, scores = np.zeros(width), np.zeros(width), []
    for token in tokens:
        drive = params["Embed_0"]["embedding"][token] @ params["Dense_0"]["kernel"]
        drive = drive + params["Dense_0"]["bias"] + hidden @ params["recurrent"]
        enter, forget, value, leave = (drive[k * width : (k + 1) * width] for k in range(4))
        cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(value)
        hidden = sigmoid(leave) * np.tanh(cell)
        scores.append(hidden @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"])
    return np.array(scores)


def transformer_scores(params: dict, tokens: np.ndarray, heads: int, depth: int) -> np.ndarray:
    """Returns the scores of one row of tokens, every position's past gathered by hand."""

    def norm(value: np.ndarray, number: int) -> np.ndarray:
        layer = params[f"LayerNorm_{number}"]
        spread = math.sqrt(value.var() + 1e-6)
        return (value - value.mean()) / spread * layer["scale"] + layer["bias"]

    def dense(value: np.ndarray, number: int) -> np.ndarray:
        return value @ params[f"Dense_{number}"]["kernel"] + params[f"Dense_{number}"]["bias"]

    def gelu(value: np.ndarray) -> np.ndarray:
        return 0.5 * value * (1 + np.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))

    embedding = params["Embed_0"]["embedding"]
    width = embedding.shape[1]
    size = width // heads
    stream = [embedding[token] + params["positions"][t] for t, token in enumerate(tokens)]
    for block in range(depth):
        parts = [dense(norm(value, 2 * block), 4 * block) for value in stream]
        mixed = []
        for t in range(len(tokens)):
            heads_out = []
            for head in range(heads):
                at = slice(head * size, (head + 1) * size)
                query = parts[t][:width][at]
                logits = [query @ parts[s][width : 2 * width][at] for s in range(t + 1)]
                shares = np.exp(np.array(logits) / math.sqrt(size))
                shares /= shares.sum()
                contents = [parts[s][2 * width :][at] for s in range(t + 1)]
                heads_out.append(sum(a * b for a, b in zip(shares, contents, strict=True)))
            mixed.append(dense(np.concatenate(heads_out), 4 * block + 1))
        stream = [value + change for value, change in zip(stream, mixed, strict=True)]
        for t, value in enumerate(stream):
            inner = gelu(dense(norm(value, 2 * block + 1), 4 * block + 2))
            stream[t] = value + dense(inner, 4 * block + 3)
    return np.array([norm(value, 2 * depth) @ embedding.T for value in stream])


def token_loss(scores: np.ndarray, targets: np.ndarray) -> float:
    """Returns the mean over a row's tokens of log(sum of exp) minus the target's score."""
    total = 0.0
    for row, target in zip(scores, targets, strict=True):
        total += math.log(sum(math.exp(value) for value in row)) - row[target]
    return total / len(targets)


def series_rows(series: list[list[float]], lags: int, horizons: list[int]) -> tuple[list, list]:
    """Returns (lags, next value, series) for training and test, one value at a time."""
    train, test = [], []
    for number, (values, horizon) in enumerate(zip(series, horizons, strict=True)):
        known = len(values) - horizon
        if known <= lags:
            continue
        scale = sum(abs(value) for value in values[:known]) / known
        for t in range(lags, len(values)):
            row = ([v / scale for v in values[t - lags : t]], values[t] / scale, number)
            (train if t < known else test).append(row)
    return train, test


def quadratic_optimum(curvature, linear, weights=None):
    """The minimum of a weighted sum of the workers' quadratics, where a biased order ends."""
    weights = np.ones(len(curvature)) if weights is None else np.asarray(weights)
    return weights @ np.asarray(linear) / (weights @ np.asarray(curvature))
