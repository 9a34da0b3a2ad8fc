"""Training on rollouts sample by sample, in NumPy, with every version of the policy kept.

The policy is a table x[s, a] of the scores of token a after token s; row A is the start, token 0
the end. The reward of a sample is how many of its tokens are the prompt's, over T. Keys and random
numbers are JAX's, all else is written from the definitions.
"""

import jax
import numpy as np


def log_softmax(scores):
    shifted = scores - scores.max()
    return shifted - np.log(np.exp(shifted).sum())


def states(tokens, n_tokens):
    """The token before each token."""
    return [n_tokens, *tokens[:-1]]


def wanted(key, n_tokens):
    """The token that a prompt asks for."""
    return int(jax.random.randint(key, (), 0, n_tokens))


def policy_of_token(trace, i, t, longest):
    """The version that draws token t of sample i."""
    versions, begins = trace.versions_of(i)
    chosen = int(versions[0])
    for version, begin in zip(versions[1:], begins[1:], strict=True):
        share = (begin - trace.start[i]) / (trace.end[i] - trace.start[i])
        if t >= np.floor(share * min(np.ceil(trace.length[i]), longest) + 1e-6):
            chosen = int(version)
    return chosen


def draw(versions, trace, key, i, longest):
    """Tokens, and the log-probability of each under its version."""
    n_tokens = versions[0].shape[1]
    stream = jax.random.fold_in(jax.random.fold_in(key, 1), i)
    tokens, log_probs, before = [], [], n_tokens
    for t in range(longest):
        x = versions[policy_of_token(trace, i, t, longest)]
        chances = log_softmax(x[before])
        luck = np.asarray(jax.random.gumbel(jax.random.fold_in(stream, t), (n_tokens,)))
        before = int(np.argmax(chances + luck))
        tokens.append(before)
        log_probs.append(chances[before])
        if before == 0:
            break
    return tokens, np.array(log_probs)


def log_probs_of(x, tokens):
    """Log-probability of each token of a sample under a policy."""
    before = states(tokens, x.shape[1])
    return np.array([log_softmax(x[s])[a] for s, a in zip(before, tokens, strict=True)])


def compared(name, rewards, prompts):
    """Advantages, from the definitions."""
    out = []
    for i, reward in enumerate(rewards):
        others = [j for j in range(len(rewards)) if j != i]
        peers = [j for j in range(len(rewards)) if prompts[j] == prompts[i]]
        group = {
            "plain": [],
            "batch_mean": range(len(rewards)),
            "leave_one_out": others,
            "group_mean": peers,
            "group_others": [j for j in peers if j != i],
        }[name]
        out.append(reward - (np.mean([rewards[j] for j in group]) if len(group) else 0.0))
    return np.array(out)


def factors(correction, new, behaviour, proximal, advantage):
    """The factor of grad log pi of each token of one sample, minus the loss's gradient."""
    name, *numbers = correction
    if name == "none":
        return np.full(len(new), advantage)
    if name == "tokens":
        return np.minimum(np.exp(new - behaviour), numbers[0]) * advantage
    if name == "whole":
        return np.full(len(new), min(np.exp(np.sum(new - behaviour)), numbers[0]) * advantage)
    old = behaviour if name == "clip" else proximal
    weight = np.ones(len(new))
    if name == "decoupled":
        weight = np.minimum(np.exp(proximal - behaviour), numbers[1])
    out = []
    for ratio, scale in zip(np.exp(new - old), weight, strict=True):
        low, high = 1 - numbers[0], 1 + numbers[0]
        is_flat = (advantage > 0 and ratio > high) or (advantage < 0 and ratio < low)
        out.append(0.0 if is_flat else scale * ratio * advantage)
    return np.array(out)


def effective(new, behaviour):
    """Effective sample size, as a share, of lists of log-probabilities."""
    weights = np.array(
        [np.exp(np.sum(one - other)) for one, other in zip(new, behaviour, strict=True)]
    )
    return weights.sum() ** 2 / (len(weights) * (weights**2).sum())


def train(
    x,
    trace,
    key,
    *,
    longest,
    step_size,
    correction=("none",),
    advantage="leave_one_out",
    epochs=1,
    minibatches=1,
    scaled=False,
):
    """The final table, and of every step the mean reward, length, and effective sample size."""
    versions, told, n_tokens = [np.array(x, np.float64)], [], x.shape[1]
    for members in trace.members.tolist():
        samples = [draw(versions, trace, key, i, longest) for i in members]
        prompts = [i // trace.group for i in members]
        asked = [
            wanted(jax.random.fold_in(jax.random.fold_in(key, 0), q), n_tokens) for q in prompts
        ]
        rewards = [
            sum(token == goal for token in tokens) / longest
            for (tokens, _), goal in zip(samples, asked, strict=True)
        ]
        gain = compared(advantage, rewards, prompts)
        x = versions[-1]
        proximal = [log_probs_of(x, tokens) for tokens, _ in samples]
        told.append(
            (
                np.mean(rewards),
                np.mean([len(tokens) for tokens, _ in samples]),
                effective(proximal, [log for _, log in samples]),
            )
        )
        size = len(members) // minibatches
        for number in range(epochs * minibatches):
            first = (number % minibatches) * size
            part = range(first, first + size)
            direction = np.zeros_like(x)
            for k in part:
                tokens, behaviour = samples[k]
                new = log_probs_of(x, tokens)
                factor = factors(correction, new, behaviour, proximal[k], gain[k])
                before = states(tokens, n_tokens)
                for s, a, f in zip(before, tokens, factor, strict=True):
                    score = -np.exp(log_softmax(x[s]))
                    score[a] += 1
                    direction[s] += f * score / size
            scale = 1.0
            if scaled:
                new = [log_probs_of(x, samples[k][0]) for k in part]
                scale = effective(new, [samples[k][1] for k in part])
            x = x + scale * step_size * direction
        versions.append(x)
    return versions[-1], np.array(told)
