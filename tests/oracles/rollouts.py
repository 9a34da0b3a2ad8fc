"""Rollouts event by event, written from the definitions of the rules; slow on purpose.

Every decision scans all samples that there ever were.
"""

import math


def simulate(
    length,
    duration,
    training,
    slots,
    batch,
    n_steps,
    rule,
    parameter=None,
    *,
    transfer=0.0,
    pause=0.0,
    in_flight=False,
    group=1,
):
    """All samples, as a list of dictionaries, and all steps (begin, end, members, published).

    length(i): tokens of sample i. duration(tokens, slot): of its generation, pauses left out.
    training(tokens): of a step. rule: a name, with its parameter; None where nothing more will ever
    happen.
    """
    samples, steps, publications = [], [], []  # publications: when, version
    pauses = []  # begin, end
    now, version, weights, trainer_until = 0.0, 0, 0, None

    def world_end(sample):
        """When a sample ends: its duration, without the pauses after its start."""
        left, at = sample["needs"], sample["start"]
        for begin, end in pauses:
            if end <= at:
                continue
            ran = max(0.0, begin - at)
            if ran >= left:
                return at + left
            left, at = left - ran, max(at, end)
        return at + left

    def prompt(i):
        return [s for s in samples if s["number"] // group == i // group]

    def can_be_trained(s):
        peers = prompt(s["number"])
        complete = len(peers) == group and all(o["fate"] != "running" for o in peers)
        return s["fate"] == "waiting" and complete

    def age(s):
        return version - s["version"]

    def untrained():
        return [s for s in samples if s["fate"] in ("running", "waiting")]

    def ready():
        """Those that can be trained, in the order in which they became so."""
        found = [s for s in samples if can_be_trained(s)]
        return sorted(
            found,
            key=lambda s: (
                max(o["ended_as"] for o in prompt(s["number"]) if o["ended_as"] is not None),
                s["number"],
            ),
        )

    def may_start():
        started = len([s for s in samples if s["fate"] != "evicted"])
        ahead = {
            "synchronous": 1,
            "one step off": 2,
            "budget": 1 + (parameter if rule == "budget" else 0),
            "first finished": 1 + (parameter if rule == "first finished" else 0),
            "in order": 1 + (parameter if rule == "in order" else 0),
            "windowed": 1 + (parameter[0] if rule == "windowed" else 0),
            "withhold": 1 + (parameter if rule == "withhold" else 0),
        }
        if rule in ("ready first", "discard"):
            most = parameter if rule == "ready first" else parameter[1]
            return most is None or len(ready()) < most
        return started < (weights + ahead[rule]) * batch

    def chosen():
        there = ready()
        if len(there) < batch:
            return None
        if rule in ("synchronous", "one step off", "in order"):
            first = untrained()[:batch]
            return first if all(can_be_trained(s) for s in first) else None
        if rule == "budget":
            return sorted(there, key=lambda s: s["number"])[:batch]
        if rule == "windowed":
            # One by one: the oldest that can be trained, at most so far from the oldest left.
            left, taken = untrained(), []
            while len(taken) < batch:
                end = left[0]["number"] + parameter[1] if left else 0
                can = [s for s in left if can_be_trained(s) and s["number"] < end]
                if not can:
                    return None
                taken.append(can[0])
                left.remove(can[0])
            return taken
        if rule == "withhold":
            taken = []
            for late in range(parameter + 1):
                due = [s for s in untrained() if s["version"] + parameter <= version + late]
                lacking = len([s for s in due if s not in taken]) - late * batch
                can = [s for s in due if can_be_trained(s) and s not in taken]
                if lacking > len(can):
                    return None
                taken += can[: max(0, lacking)]
            return taken + [s for s in there if s not in taken][: batch - len(taken)]
        return there[:batch]

    ended = 0
    while True:
        # what the rule says
        if rule == "discard":
            for s in untrained():
                if age(s) > parameter[0]:
                    if s["fate"] == "running":
                        s["end"], s["ended_as"], ended = now, ended, ended + 1
                        s["end_version"] = weights if in_flight else s["end_version"]
                    s["fate"] = "evicted"
        if trainer_until is None and version < n_steps:
            members = chosen()
            if members is not None:
                for s in members:
                    s["fate"], s["step"] = "trained", len(steps)
                trainer_until = now + training(sum(s["length"] for s in members))
                numbers = [s["number"] for s in members]
                steps.append([now, trainer_until, numbers, math.nan])
        if not pauses or now >= pauses[-1][1]:
            busy = {s["slot"] for s in samples if s["fate"] == "running"}
            for slot in sorted(set(range(slots)) - busy):
                if may_start():
                    i = len(samples)
                    samples.append(
                        {
                            "number": i,
                            "start": now,
                            "length": length(i),
                            "needs": duration(length(i), slot),
                            "slot": slot,
                            "version": weights,
                            "end_version": weights,
                            "fate": "running",
                            "step": -1,
                            "end": math.nan,
                            "ended_as": None,
                        }
                    )
        if version == n_steps:
            break
        # what happens next
        events = [(world_end(s), 0, s["number"]) for s in samples if s["fate"] == "running"]
        if trainer_until is not None:
            events.append((trainer_until, 1, 0))
        events += [(when, 2, number) for when, number in publications]
        events += [(end, 3, 0) for _, end in pauses if end > now]
        if not events:
            return None
        now, kind, which = min(events)
        if kind == 0:
            s = samples[which]
            s["fate"], s["end"], s["ended_as"], ended = "waiting", now, ended, ended + 1
            s["end_version"] = weights if in_flight else s["end_version"]
        elif kind == 1:
            version, trainer_until = version + 1, None
            publications.append((now + transfer, version))
        elif kind == 2:
            publications.remove((now, which))
            weights, steps[which - 1][3] = which, now
            if pause:
                begin = max([now] + [end for _, end in pauses])
                pauses.append((begin, begin + pause))
    for s in samples:
        if in_flight and s["fate"] == "running":
            s["end_version"] = weights
    return samples, steps
