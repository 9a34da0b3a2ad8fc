"""Logs that were read wrongly, through the command: what it prints, and the page it writes."""

import gzip
import io
import os
import re
import subprocess
import sys
import tracemalloc

import pytest

from asyncjax import storage, traces
from asyncjax.__main__ import main as door
from asyncjax.whatif import command

RUNS = [f"rank-{rank} - step_time" for rank in range(8)]


class Told:
    """What the command said of a table, and what it wrote."""

    def __init__(self, status, out, err, folder):
        self.status, self.out, self.err = status, out, err
        pages = list(folder.glob("**/whatif.html"))
        self.page = pages[0].read_text(encoding="utf-8") if pages else ""
        figures = folder / "numbers.json"
        self.log = storage.load_json(figures)["log"] if figures.exists() else None


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Runs the command on a table, `--quick`."""
    monkeypatch.chdir(tmp_path)

    def asked(table, *options, name="log.csv"):
        content = table if isinstance(table, bytes) else table.encode()
        (tmp_path / name).write_bytes(content)
        status = command.main([name, "--quick", "--json", "numbers.json", *options])
        return Told(status, *capsys.readouterr(), tmp_path)

    return asked


@pytest.fixture
def reads(ask, monkeypatch):
    """As `ask`, and what is done with a log that was read is left out: it takes most of the time.

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

    monkeypatch.setattr(command, "answer", Answer)
    monkeypatch.setattr(command, "seconds_of", lambda log: 0.0)  # it refuses one worker
    return ask


def export(*, axis="Step", extremes=("__MIN", "__MAX"), n_rows=4):
    """The chart of step times as a tracker exports it, all fields in quotes."""
    heads = [axis, *(run + end for run in RUNS for end in ("", *extremes))]
    lines = [",".join(f'"{head}"' for head in heads)]
    for row in range(n_rows):
        times = [0.5 + 0.1 * rank + 0.01 * row for rank in range(8)]
        fields = [row * 10, *(time for time in times for _ in range(1 + len(extremes)))]
        lines.append(",".join(f'"{field}"' for field in fields))
    return "\n".join(lines) + "\n"


def rows(*durations, header="worker,step,ms", quote=True):
    """A table of two workers; each duration as it is written."""
    lines = [header]
    for step, written in enumerate(durations):
        field = f'"{written}"' if quote else written
        lines += [f"{name},{step},{field}" for name in "ab"]
    return "\n".join(lines) + "\n"


def one_sentence(told, *words):
    assert told.status == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert told.err.startswith("asyncjax.whatif: ")
    assert "Traceback" not in told.err
    for word in words:
        assert word in told.err


# A tracker's chart export.


def test_smallest_and_largest_values_of_a_tracker_are_no_workers(reads):
    told = reads(export())
    assert told.status == 0
    assert [line.split(":")[0] for line in told.out.splitlines()[:9]] == [*RUNS, ""]


def test_it_says_that_they_were_left_out(reads):
    told = reads(export())
    assert "note: 16 columns that end in __MIN or __MAX" in told.out
    assert "not workers" in told.out


def test_a_name_that_only_ends_so_is_a_worker(reads):
    told = reads("step,a__MIN,a__MAX\n0,1,2\n1,1.5,2.5\n")
    assert told.out.startswith("a__MAX: [2.0, 2.5]\na__MIN: [1.0, 1.5]\n")


@pytest.mark.parametrize("axis", ["Step", "Relative Time (Process)", "trainer/global_step"])
def test_what_a_chart_counts_by_is_no_worker(reads, axis):
    told = reads(export(axis=axis))
    assert len(re.findall(r"^rank-", told.out, re.MULTILINE)) == 8
    assert axis + ": [" not in told.out


def test_columns_that_are_the_same_are_told(reads):
    told = reads("step,a,b,c\n0,1,1,2\n1,1.5,1.5,2.5\n")
    assert "note: workers 'a' and 'b' have the same durations throughout:" in told.out
    assert "'c'" not in told.out.split("note:")[1]


def test_rows_of_workers_that_are_the_same_are_told(reads):
    told = reads(rows("1", "2.5", "3"))
    assert "note: workers 'a' and 'b' have the same durations throughout:" in told.out
    assert "the same durations" not in reads("worker,s\na,1\na,2\nb,1\nb,3\n").out


def test_the_same_durations_in_memory_are_noted():
    log = traces.read_log({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0, 2.0], "d": [1.0]})
    (note,) = log.notes
    assert "workers 'a' and 'b' have the same durations throughout, and 1 more" in note


# Commas, underscores, rows of one step.


def test_a_comma_that_may_be_two_things_is_refused(reads):
    told = reads(rows("1,500", "980"))
    one_sentence(told, "column 'ms'", "'1,500'", "line 2 of log.csv", "write 1500 or 1.500")


def test_in_a_table_with_a_column_a_worker_too(reads):
    told = reads('a,b\n"1,500",2\n980,3\n')
    one_sentence(told, "column 'a'", "'1,500'", "line 2", "write 1500 or 1.500")


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [
        (("1,500", "980.5"), [1.5, 0.9805]),
        (("1,500", "1,234,567"), [1.5, 1234.567]),
        (("1,500", "1,250.5"), [1.5, 1.2505]),
        (("1,500", "0,25"), [0.0015, 0.00025]),
        (("1,500", "0,980"), [0.0015, 0.00098]),
        (("12,5", "980"), [0.0125, 0.98]),
    ],
)
def test_other_numbers_of_the_column_say_what_a_comma_is(reads, durations, seconds):
    assert reads(rows(*durations)).out.startswith(f"a: {seconds}\n")


def test_commas_that_contradict_each_other_are_refused(reads):
    one_sentence(reads(rows("1,500", "0,25", "980.5")), "'1,500'", "line 2")


def test_between_semicolons_a_comma_is_a_decimal_one(reads):
    told = reads("worker;step;ms\na;0;1,500\na;1;2,500\nb;0;3\n")
    assert told.out.startswith("a: [0.0015, 0.0025]\n")


def test_an_underscore_makes_no_number(reads):
    told = reads(rows("1_0", "20", quote=False))
    one_sentence(told, "column 'ms' must be a positive number", "'1_0'", "line 2 of log.csv")


@pytest.mark.parametrize(
    "table",
    [
        "worker,step,s\n" + "".join(f"{n},1,{1 + k / 8}\n" for n in "ab" for k in range(10)),
        "worker,step,s\n"
        + "".join(f"{n},{s},{1 + k / 8}\n" for n in "ab" for s in range(3) for k in range(10)),
        "worker,step,start,end\n"
        + "".join(f"{n},{k // 5},{k},{k + 0.5}\n" for n in "ab" for k in range(10)),
        "step,a,b\n" + "".join(f"{k // 5},{1 + k / 8},{2 + k / 8}\n" for k in range(10)),
    ],
)
def test_several_rows_of_a_step_are_no_jobs(reads, table):
    told = reads(table)
    one_sentence(told, "column 'step' must number the jobs of a worker", "worker 'a'", "line 3")
    assert "sum the rows of a step" in told.err


def test_rows_of_a_step_that_are_the_same_count_once(reads):
    told = reads(
        "worker,step,layer,s\n"
        + "".join(f"{n},{s},{k},{1 + s}\n" for n in "ab" for s in range(2) for k in range(5))
    )
    assert told.out.startswith("a: [1.0, 2.0]\nb: [1.0, 2.0]\n")
    assert "note: 16 rows are of a worker, a step" in told.out
    assert "each step is counted once" in told.out


def test_a_step_that_was_done_again_is_noted(reads):
    steps = [0, 1, 2, 3, 3, 4, 5, 6]
    told = reads("worker,step,s\n" + "".join(f"a,{s},{1 + k / 8}\n" for k, s in enumerate(steps)))
    assert "1.5, 1.625" in told.out
    assert "note: column 'step' is the same in rows of a worker, 1 times, first 3" in told.out


@pytest.mark.parametrize(("name", "number"), [("epoch", "{0}"), ("batch", "32")])
def test_a_counter_that_numbers_no_jobs_is_noted(reads, name, number):
    lines = [f"a,{number.format(k // 4)},{1 + k / 8}\n" for k in range(8)]
    told = reads(f"worker,{name},s\n" + "".join(lines))
    assert "1.5, 1.625" in told.out
    assert f"note: column '{name}' has one number in several rows of a worker" in told.out


# Packed files.

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


def test_a_table_that_packs_no_better_is_read(reads):
    assert reads(gzip.compress(TABLE), name="log.csv.gz").status == 0


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


# What the console says, and how.


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            "gpu,took_ms,loss,iter\na,1,x,1\nb,2,x,1\n",
            "columns: worker: 'gpu'; time: 'iter'; duration: 'took_ms'; unit: ms",
        ),
        (
            "host,begin,finish\na,0,1\nb,0,2\n",
            "columns: worker: 'host'; time: start 'begin' and end 'finish'; duration: end less"
            " start; unit: not said",
        ),
        (
            "a,1,0.5\nb,1,0.75\n",
            "columns: worker: column 1; time: column 2; duration: column 3; unit: not said",
        ),
        (
            "step,a (s),b (s)\n1,2,3\n2,3,4\n",
            "columns: worker: each of 2, column 'a (s)' to column 'b (s)'; time: column 'step';"
            " duration: the numbers in them; unit: s",
        ),
    ],
)
def test_one_line_says_which_columns_were_read(reads, table, line):
    assert line in reads(table).out.splitlines()


def test_the_unit_that_was_asked_for_is_said(reads):
    told = reads(rows("1", "2.5", header="rank,step,duration"), "--unit", "us")
    assert "columns: worker: 'rank'; time: 'step'; duration: 'duration'; unit: us" in told.out


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (rows("1"), ("--worker", "rank"), "--worker must name a column of log.csv, got 'rank'"),
        (rows("1"), ("--unit", "parsec"), "--unit must be one of"),
        ("a,0,1\nb,0,2\n", ("--step", "x"), "--step must be left out where columns have no names"),
        ("worker,loss\na,x\n", (), "such as --worker rank --duration took_ms"),
        ("worker,s\na,1\na,2\n", (), "FILE must have at least two workers"),
        ("", (), "FILE must be a table with rows"),
    ],
)
def test_errors_speak_of_options(ask, table, options, words):
    told = ask(table, *options)
    one_sentence(told, words)
    assert "None" not in told.err
    assert not re.search(r"\b(worker|step|unit|duration)=", told.err)


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


def headed(*arguments):
    """What a process of the command leaves behind whose reader has gone."""
    with closed_pipe() as pipe:
        return subprocess.run(
            [sys.executable, "-m", "asyncjax", *arguments],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            timeout=300,
        )


@pytest.mark.slow
def test_nothing_is_said_at_the_end_of_a_process():
    told = headed("whatif", "--help")
    assert (told.returncode, told.stderr) == (141, "")


@pytest.mark.slow
def test_head_of_a_whole_answer(tmp_path):
    told = headed("whatif", "--demo", "llm_slow_worker", "--quick", "--output", str(tmp_path))
    assert told.returncode == 141
    assert re.fullmatch(r"asyncjax.whatif: about \d+ seconds of .* jobs\n", told.stderr)
    assert (tmp_path / "whatif.html").exists()


ESCAPE = "\x1b[31m\x9b2J\x07"


def test_escape_characters_of_names_do_not_reach_the_terminal(reads):
    workers = reads(f"worker,step,s\nx{ESCAPE},0,1\nb,0,2\nb,1,1.5\nx{ESCAPE},1,1.1\n")
    columns = reads(f"wor{ESCAPE},step,s\na,0,1\n", "--worker", f"wor{ESCAPE}")
    wide = reads(f"step,a{ESCAPE},b\n1,2,3\n2,3,3\n")
    lines = reads('worker,step,s\n"x\ny",0,1\nb,0,2\n')
    for told in (workers, columns, wide, lines):
        assert told.status == 0
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told.out + told.err)
    assert r"x\x1b[31m\x9b2J\x07: [1.0, 1.1]" in workers.out
    assert r"worker: 'wor\x1b[31m\x9b2J\x07'" in columns.out
    assert r"x\ny: [1.0]" in lines.out


def test_nor_do_they_in_errors(reads):
    name = f"log{ESCAPE}.csv"
    for told in (
        reads("", name=name),
        reads(f"worker,step,s\nx{ESCAPE},0,-1\n", name=name),
        reads(f"worker,a{ESCAPE},b\nx,y,z\n"),
        reads(rows("1"), "--output", name),
    ):
        one_sentence(told)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told.err)
    assert command.main([f"none{ESCAPE}.csv"]) == 2


def test_nor_do_they_from_a_list_of_files(capsys):
    with pytest.raises(SystemExit):
        command.main(["a.csv", f"b{ESCAPE}.csv"])
    assert r"unrecognized arguments: b\x1b[31m\x9b2J\x07.csv" in capsys.readouterr().err


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """One answer of the command, of a packed table in folders of its own."""
    folder = tmp_path_factory.mktemp("secret-folder")
    (folder / "inner").mkdir()
    path = folder / "inner" / f"log{ESCAPE}.csv"
    lines = [f"{n}{ESCAPE},{s},{1 + s / 8}" for n in "ab" for s in (3, 1, 2, 0)]
    path.write_text("worker,step,s\n" + "\n".join(lines) + "\n")
    out, err = io.StringIO(), io.StringIO()
    given = [str(path), "--quick", f"--output={folder}/pages", "--json", f"{folder}/numbers.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = command.main(given)
    return folder, Told(status, out.getvalue(), err.getvalue(), folder)


@pytest.mark.slow
def test_the_page_shows_a_files_name_and_not_its_folders(answered):
    folder, told = answered
    assert told.status == 0
    assert "log" in told.page
    for part in (str(folder), folder.name, "inner"):
        assert part not in told.page
    assert told.log["source"].startswith("log")


@pytest.mark.slow
def test_a_whole_answer_has_no_escape_characters(answered):
    _, told = answered
    assert re.fullmatch(r"asyncjax.whatif: about \d+ seconds of .* jobs\n", told.err)
    assert "rows of 2 workers were not in the order" in told.out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told.out)


def test_a_note_names_the_file_alone(tmp_path):
    path = tmp_path / "inner.csv"
    path.write_text("worker,step,s\na,1,1\na,2,2\na,2,2\na,3,1\n")
    (note, *_) = traces.read_log(path).notes
    assert note.startswith("a row is there twice, first that in line 4 of inner.csv")
