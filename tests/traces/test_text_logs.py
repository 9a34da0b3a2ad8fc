"""Text logs, profiles and what Slurm prints: the durations that NumPy finds in them."""

import gzip
import json
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from asyncjax import traces
from asyncjax.whatif.command import main as whatif

RNG = np.random.default_rng(0)
TOOK = RNG.uniform(0.2, 2.0, (3, 12)).round(3)  # seconds of 3 ranks in 12 steps
DATE = "2026-03-01 10:{:02d}:{:02d}"
ENDS = np.cumsum(TOOK.round() + 1, axis=1).astype(int)  # whole seconds, for dates


def date(second):
    return DATE.format(second // 60, second % 60)


# By kind: the lines of a rank and step, and by which worker names and durations are known.
LINES = {
    "torch": lambda r, s: f"[rank{r}]: epoch 0 step {s} loss 2.31 step time: {TOOK[r, s]}s",
    "lightning": lambda r, s: f"rank={r} global_step={s} train_step_timing in s: {TOOK[r, s]:.3f}",
    "megatron": lambda r, s: (
        f"[default{r}]: [{date(s)}] iteration {s + 1:8d}/ 500000 | consumed samples: {256 * s} |"
        f" elapsed time per iteration (ms): {1e3 * TOOK[r, s]:.1f} | lm loss: 7.1E+00 |"
    ),
    "imagenet": lambda r, s: f"rank {r} Epoch: [0][{s}/500]\tTime  {TOOK[r, s]} ( 0.5)\tLoss 7.0",
}


def written(folder, kind):
    lines = [LINES[kind](r, s) for s in range(12) for r in range(3)]
    path = folder / "train.log"
    path.write_text("loading, 8 workers\n" + "\n".join(lines) + "\ndone\n")
    return path


def agrees(log, workers=("0", "1", "2")):
    assert log.workers == workers
    np.testing.assert_allclose(log.durations, TOOK[: len(workers)], rtol=1e-12)


@pytest.mark.parametrize("kind", LINES)
def test_a_text_log_is_refused_with_a_pattern_that_reads_it(tmp_path, kind, capsys):
    path = written(tmp_path, kind)
    with pytest.raises(ValueError, match="looks like a text log; say pattern=r'") as refused:
        traces.read_log(path)
    pattern = re.search(r"pattern=r'(.*)'$", str(refused.value))[1]
    log = traces.read_log(path, pattern=pattern)
    agrees(log)
    assert "2 lines that the pattern does not match were passed over" in log.notes
    assert whatif([str(path)]) == 2
    assert f"say --pattern '{pattern}'" in capsys.readouterr().err


def test_a_line_that_only_dates_its_step_ends_a_job(tmp_path):
    lines = [f"[rank{r}]:[titan] {date(ENDS[r, s])},000 - root - INFO - step: {s}  loss: 8.0"
             for s in range(12) for r in range(3)]  # fmt: skip
    (tmp_path / "x.log").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="text log") as refused:
        traces.read_log(tmp_path / "x.log")
    pattern = re.search(r"pattern=r'(.*)'$", str(refused.value))[1]
    log = traces.read_log(tmp_path / "x.log", pattern=pattern)
    np.testing.assert_allclose(log.durations, np.diff(ENDS, axis=1), rtol=1e-6)


def test_a_wrong_pattern_is_refused(tmp_path):
    path = written(tmp_path, "torch")
    with pytest.raises(ValueError, match=r"^pattern must be a regular expression, got '\(': "):
        traces.read_log(path, pattern="(")
    with pytest.raises(ValueError, match=r"^pattern must name its groups, such as .*got '\\\\d'$"):
        traces.read_log(path, pattern=r"\d")
    with pytest.raises(ValueError, match=r"^pattern must match lines of .*first line is 'loading"):
        traces.read_log(path, pattern=r"(?P<step>\d+) of")
    with pytest.raises(
        ValueError, match=r"^pattern must be None where path is not a file, got 'x'"
    ):
        traces.read_log([("a", 1.0)], pattern="x")
    (tmp_path / "prose.txt").write_text("nothing here, 5 of it\n" * 9)
    with pytest.raises(ValueError, match=r"^path must") as refused:
        traces.read_log(tmp_path / "prose.txt")
    assert "say pattern" not in str(refused.value)


def torch_profile(rank):
    """What torch.profiler exports, as far as it is read: steps on the host and on the device."""
    starts = 1e6 * (np.cumsum(TOOK[rank]) - TOOK[rank] + 7.0)
    host = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{s}", "pid": 40, "tid": 1,
         "ts": starts[s], "dur": 1e6 * TOOK[rank, s]}
        for s in range(12)
    ]  # fmt: skip
    device = [{**e, "cat": "gpu_user_annotation", "pid": 0, "dur": 0.5 * e["dur"]} for e in host]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}
    name = {"ph": "M", "name": "process_name", "pid": 40, "args": {"name": "python"}}
    events = [name, *device, kernel, *host, {"ph": "i", "name": "marker", "ts": 1.0, "pid": 40}]
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}


def test_profiles_of_torch_are_read_by_rank(tmp_path):
    for rank in range(3):
        text = json.dumps(torch_profile(rank), indent=1).encode()
        (tmp_path / f"host{9 - rank}.pt.trace.json.gz").write_bytes(gzip.compress(text))
    agrees(traces.read_log(tmp_path))
    agrees(traces.read_log(tmp_path / "host9.pt.trace.json.gz"), ("0",))


def test_processes_of_one_profile_are_workers(tmp_path):
    def event(pid, s):
        args = {"step_num": str(s)}
        took = 1e6 * TOOK[pid, s]
        return {
            "ph": "X",
            "name": "train",
            "pid": pid,
            "tid": 1,
            "ts": 3e6 * s,
            "dur": took,
            "args": args,
        }

    names = [{"ph": "M", "name": "process_name", "pid": p, "args": {"name": f"w{p}"}} for p in "01"]
    names = [{**n, "pid": int(n["pid"])} for n in names]
    events = [*names, *(event(pid, s) for s in range(12) for pid in range(2))]
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": events}))
    agrees(traces.read_log(tmp_path / "x.json"), ("w0", "w1"))


def test_a_profile_without_steps_or_a_folder_without_profiles_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^path must be a file, or a folder of profiles in JSON"):
        traces.read_log(tmp_path)
    (tmp_path / "x.json").write_text('{"traceEvents": []}')
    with pytest.raises(ValueError, match=r"^path must be a profile that says .*profiler\.step\(\)"):
        traces.read_log(tmp_path / "x.json")


def test_what_slurm_prints_is_read_without_steps_and_open_jobs(tmp_path):
    head = "JobID|JobName|NodeList|Start|End|Elapsed|State"
    rows, begin = [], 0
    for s in range(6):
        begin += 4000
        for r in range(2):
            took = int(1000 * TOOK[r, s])
            days = [datetime(2026, 3, 1) + timedelta(seconds=t) for t in (begin, begin + took)]
            times = [day.isoformat() for day in days]
            span = f"{times[0]}|{times[1]}|00:{took // 60:02d}:{took % 60:02d}"
            rows.append(f"{10 * s + r}|train|n{r}|{span}|COMPLETED")
            rows.append(f"{10 * s + r}.batch|batch|n{r}|{span}|COMPLETED")
    rows += [f"90|train|n0|{times[0]}|Unknown|1-00:10:00|RUNNING"]
    rows += [f"91|train|n1|{times[0]}|{times[1]}|00:00:07|CANCELLED by 1000"]
    rows += ["92|train|None assigned|Unknown|Unknown|00:00:00|PENDING"]
    (tmp_path / "jobs.txt").write_text("\n".join([head, *rows]))
    log = traces.read_log(tmp_path / "jobs.txt")
    assert log.workers == ("n0", "n1")
    assert log.unit == "seconds"
    np.testing.assert_array_equal(log.durations, (1000 * TOOK[:2, :6]).astype(int))
    assert "12 rows are steps of a job (a dot in JobID): left out" in log.notes
    assert (
        "jobs that were not completed are left out: 1 CANCELLED, 1 PENDING, 1 RUNNING" in log.notes
    )


def test_elapsed_times_of_slurm_have_days(tmp_path):
    (tmp_path / "x.csv").write_text("node,elapsed\nn1,1-02:03:04\nn1,00:00:05\n")
    assert traces.read_log(tmp_path / "x.csv").durations[0].tolist() == [93784.0, 5.0]


def test_lines_for_the_shell_make_tables(tmp_path):
    """Those of docs/howto/logs.md."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "logs.md"
    sed, grep, paste = re.findall(r"^\|[^|]*\| `(.*)` \|$", page.read_text(), re.MULTILINE)
    pairs = [(r, s) for s in range(12) for r in range(3)]
    log = tmp_path / "train.log"
    log.write_text("".join(f"[x] step={s} rank={r} took={TOOK[r, s]}s ok\n" for r, s in pairs))
    subprocess.run(sed, shell=True, check=True, cwd=tmp_path)
    agrees(traces.read_log(tmp_path / "times.csv"))
    rows = [json.dumps({"rank": r, "step": s, "took": TOOK[r, s]}) for r, s in pairs]
    log.write_text("hello\n" + "\n".join(rows))
    subprocess.run(grep, shell=True, check=True, cwd=tmp_path)
    agrees(traces.read_log(tmp_path / "times.jsonl"))
    for r in range(3):
        (tmp_path / f"rank{r}.txt").write_text("".join(f"{took}\n" for took in TOOK[r]))
    subprocess.run(paste, shell=True, check=True, cwd=tmp_path)
    log = traces.read_log(tmp_path / "times.csv")
    np.testing.assert_allclose(log.durations, TOOK, rtol=1e-12)
