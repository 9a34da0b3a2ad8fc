"""Logs that were read wrongly, through the command: what it prints, and the page it writes."""

import gzip
import io
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from asyncjax import storage, traces
from asyncjax.__main__ import main as door
from asyncjax.whatif import command

RUNS = [f"rank-{rank} - step_time" for rank in range(8)]
ESCAPE = "\x1b[31m\x9b2J\x07"
CONTROLS = r"[\x00-\x09\x0b-\x1f\x7f-\x9f]"


class Told:
    """What the command said of a table, and what it wrote."""

    def __init__(self, status, out, err, folder):
        self.status, self.out, self.err = status, out, err
        pages = list(folder.glob("**/whatif.html"))
        self.page = pages[0].read_text(encoding="utf-8") if pages else ""
        figures = folder / "numbers.json"
        self.log = storage.load_json(figures)["log"] if figures.exists() else None


@pytest.fixture
def reads(tmp_path, monkeypatch, capsys):
    """Runs the command on a table, `--quick`, without what is done with a log that was read.

    What the log says stands where the answer would, so that only reading is looked at.
    """

    class Answer:
        def __init__(self, log, **settings):
            self.log, self.comparison = log, ()

        def text(self):
            rows = zip(self.log.workers, self.log.durations, strict=True)
            return "\n".join(f"{name}: {row.tolist()}" for name, row in rows)

        def save(self, path):
            return path

    def asked(table, *options, name="log.csv"):
        content = table if isinstance(table, bytes) else table.encode()
        (tmp_path / name).write_bytes(content)
        status = command.main([name, "--quick", "--json", "numbers.json", *options])
        return Told(status, *capsys.readouterr(), tmp_path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "answer", Answer)
    monkeypatch.setattr(command, "seconds_of", lambda *_: 0.0)  # it refuses one worker
    return asked


def export(axis="Step", extremes=("__MIN", "__MAX")):
    """The chart of step times as a tracker exports it, all fields in quotes."""
    heads = [axis, *(run + end for run in RUNS for end in ("", *extremes))]
    lines = [",".join(f'"{head}"' for head in heads)]
    for row in range(4):
        times = [0.5 + 0.1 * rank + 0.01 * row for rank in range(8)]
        fields = [row * 10, *(time for time in times for _ in range(1 + len(extremes)))]
        lines.append(",".join(f'"{field}"' for field in fields))
    return "\n".join(lines) + "\n"


def rows(*durations):
    """A table of two workers; each duration as it is written, in quotes."""
    lines = [f'{name},{step},"{took}"' for step, took in enumerate(durations) for name in "ab"]
    return "\n".join(["worker,step,ms", *lines]) + "\n"


def cases():
    """The cases of `tables.txt`: tables, and by mark what is said of them."""
    text = Path(__file__).with_name("tables.txt").read_text()
    for case in text.split("\n== ")[1:]:
        name, *lines = case.rstrip().split("\n")
        table, said = [], {mark: [] for mark in ("$", "=>", "note:", "columns:", "error:")}
        for line in lines:
            mark, _, words = line.partition(" ")
            said.get(mark, table).append(words if mark in said else line)
        yield pytest.param("\n".join([*table, ""]) if table else "", said, id=name)


def one_sentence(told, *words):
    assert told.status == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("asyncjax.whatif: ")
    assert "Traceback" not in told.err
    for word in words:
        assert word in told.err


@pytest.mark.parametrize("axis", ["Step", "Relative Time (Process)", "trainer/global_step"])
def test_of_a_trackers_chart_only_runs_are_workers(reads, axis):
    told = reads(export(axis))
    assert [line.split(":")[0] for line in told.out.splitlines()[:9]] == [*RUNS, ""]
    assert "note: 16 columns that end in __MIN or __MAX" in told.out
    assert "not workers" in told.out


@pytest.mark.parametrize(("table", "said"), list(cases()))
def test_what_is_read_noted_and_refused(reads, table, said):
    told = reads(table, *" ".join(said["$"]).split())
    if said["error:"]:
        one_sentence(told, *said["error:"])
        assert "None" not in told.err
        assert not re.search(r"\b(worker|step|unit|duration)=", told.err)
        return
    assert told.out.startswith("\n".join(said["=>"]))
    lines = told.out.splitlines()
    notes = " ".join(line for line in lines if line.startswith("note: "))
    assert all(words in notes for words in said["note:"])
    assert "'c'" not in notes
    assert all(f"columns: {line}" in lines for line in said["columns:"])


TABLE = rows(*(f"{10 + step * 37 % 23}.{step % 10}" for step in range(40))).encode()


def damaged():
    """Packed tables, each damaged in one way."""
    packed = gzip.compress(TABLE, mtime=0)
    yield "cut off", packed[: len(packed) // 2]
    yield "only its first bytes", packed[:6]
    yield "another way of packing", packed[:2] + b"\7" + packed[3:]
    yield "a block that is none", packed[:10] + b"\xff" + packed[11:]
    yield "a wrong checksum", packed[:-8] + bytes(4) + packed[-4:]
    yield "a wrong length", packed[:-4] + bytes(4)
    yield "more behind it", packed + b"more"
    for place in range(12, len(packed) - 8, len(packed) // 12):
        changed = bytearray(packed)
        changed[place] ^= 0x55
        yield f"byte {place}", bytes(changed)


@pytest.mark.parametrize("content", [pytest.param(one, id=name) for name, one in damaged()])
def test_a_damaged_file_is_told_in_a_sentence(reads, content):
    one_sentence(reads(content, name="log.csv.gz"), "must be a whole file", "log.csv.gz")


def test_a_packed_file_unpacks_to_at_most_200_times_its_size(reads):
    assert reads(gzip.compress(TABLE), name="log.csv.gz").status == 0
    text = b"worker,step,s\n" + b"a,0,1.5\nb,0,2\n" + (b"#" * 499 + b"\n") * 2000
    packed = gzip.compress(text)
    most = 200 * len(packed)
    assert most < len(text)
    told = reads(packed, name="log.csv.gz")
    one_sentence(told, f"at most {most} bytes, 200 times its packed size", "--max-unpacked allows")
    told = reads(packed, "--max-unpacked", f"{len(text)}", name="log.csv.gz")
    assert told.out.startswith("a: [1.5]\nb: [2.0]\n")
    told = reads(packed, "--max-unpacked", f"{len(text) - 1}", name="log.csv.gz")
    one_sentence(told, f"at most {len(text) - 1} bytes, got more in log.csv.gz", "--max-unpacked")
    one_sentence(reads(packed, "--max-unpacked", "0"), "--max-unpacked must be an integer", "got 0")


def test_unpacking_stops_before_it_takes_memory(tmp_path):
    path = tmp_path / "log.csv.gz"
    packed = gzip.compress(bytes(20_000_000))
    path.write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"must .* in .*log\.csv\.gz"):
            traces.read_log(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * 200 * len(packed) < 15_000_000
    finally:
        tracemalloc.stop()


def test_notes_speak_of_options_and_the_function_of_arguments(reads, tmp_path):
    table = "worker,step,time\n" + "".join(f"{n},{i},{2 * i}\n" for n in "ab" for i in range(12))
    assert "say --duration time" in reads(table).out
    log = traces.read_log(tmp_path / "log.csv")
    assert "say duration='time'" in " ".join(log.notes)
    with pytest.raises(ValueError, match=r"^worker must name a column of .*, got 'rank'"):
        traces.read_log(tmp_path / "log.csv", worker="rank")


def closed_pipe():
    """A file to write to whose reader has gone, as `head` does when it has seen enough."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["whatif", "--help"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(monkeypatch, arguments):
    err = io.TextIOWrapper(io.FileIO(os.dup(2), "w"), write_through=True)
    with closed_pipe() as pipe, err:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", err)
        assert door(arguments) == 141


@pytest.mark.slow
def test_head_of_a_whole_answer(tmp_path):
    demo = ["whatif", "--demo", "llm_slow_worker", "--quick", "--output", str(tmp_path)]
    with closed_pipe() as pipe:
        told = subprocess.run(
            [sys.executable, "-m", "asyncjax", *demo],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            timeout=300,
        )
    assert told.returncode == 141
    assert re.fullmatch(r"asyncjax.whatif: about \d+ seconds of .* jobs\n", told.stderr)
    assert (tmp_path / "whatif.html").exists()


def test_escape_characters_of_names_do_not_reach_the_terminal(reads, capsys):
    workers = reads(f"worker,step,s\nx{ESCAPE},0,1\nb,0,2\nb,1,1.5\nx{ESCAPE},1,1.1\n")
    columns = reads(f"wor{ESCAPE},step,s\na,0,1\n", "--worker", f"wor{ESCAPE}")
    wide = reads(f"step,a{ESCAPE},b\n1,2,3\n2,3,3\n")
    lines = reads('worker,step,s\n"x\ny",0,1\nb,0,2\n')
    for told in (workers, columns, wide, lines):
        assert told.status == 0
        assert not re.search(CONTROLS, told.out + told.err)
    assert r"x\x1b[31m\x9b2J\x07: [1.0, 1.1]" in workers.out
    assert r"worker: 'wor\x1b[31m\x9b2J\x07'" in columns.out
    assert r"x\ny: [1.0]" in lines.out
    name = f"log{ESCAPE}.csv"
    for told in (
        reads("", name=name),
        reads(f"worker,step,s\nx{ESCAPE},0,-1\n", name=name),
        reads(f"worker,a{ESCAPE},b\nx,y,z\n"),
        reads(rows("1"), "--output", name),
    ):
        one_sentence(told)
        assert not re.search(CONTROLS, told.err)
    assert command.main([f"none{ESCAPE}.csv"]) == 2
    with pytest.raises(SystemExit):
        command.main(["a.csv", f"b{ESCAPE}.csv"])
    assert r"unrecognized arguments: b\x1b[31m\x9b2J\x07.csv" in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_answer_shows_no_folders_and_no_escape_characters(tmp_path, capsys):
    folder = tmp_path / "secret-folder"
    (folder / "inner").mkdir(parents=True)
    path = folder / "inner" / f"log{ESCAPE}.csv"
    lines = [f"{n}{ESCAPE},{s},{1 + s / 8}" for n in "ab" for s in (3, 1, 2, 0)]
    path.write_text("worker,step,s\n" + "\n".join(lines) + "\n")
    given = [str(path), "--quick", f"--output={folder}/pages", "--json", f"{folder}/numbers.json"]
    told = Told(command.main(given), *capsys.readouterr(), folder)
    assert told.status == 0
    assert "log" in told.page
    for part in (str(folder), folder.name, "inner"):
        assert part not in told.page
    assert told.log["source"].startswith("log")
    assert re.fullmatch(r"asyncjax.whatif: about \d+ seconds of .* jobs\n", told.err)
    assert "rows of 2 workers were not in the order" in told.out
    assert not re.search(CONTROLS, told.out)


def test_a_note_names_the_file_alone(tmp_path):
    path = tmp_path / "inner.csv"
    path.write_text("worker,step,s\na,1,1\na,2,2\na,2,2\na,3,1\n")
    (note, *_) = traces.read_log(path).notes
    assert note.startswith("a row is there twice, first that in line 4 of inner.csv")
