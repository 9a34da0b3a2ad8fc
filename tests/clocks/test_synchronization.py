"""The time model of local steps: its closed form, what a fit gives back."""

import numpy as np
import pytest

from asyncjax import clocks, storage
from asyncjax.__main__ import main
from asyncjax.clocks import synchronization as sync
from tests.oracles import links as plain

HEAD = (
    "algorithm,local_steps,link_mbit_per_s,repeat,step,outer,"
    "compute_ms,sync_blocked_ms,optimizer_ms,loader_ms"
)
# The truth of the table below: 1 MB over 2 workers, so a ring takes 8e6 / (e L) seconds.
COMPUTE, OTHER, UNEVEN = 20.0, 1.0, 0.05  # milliseconds, and a share
EFFICIENCY, SET_UP = {100: 0.8, 1000: 0.9}, {100: 400.0, 1000: 100.0}
CELLS = [
    (name, h, speed)
    for name, h in (("diloco", 1), ("diloco", 4), ("diloco", 64), ("local_sgd", 64))
    for speed in SET_UP
]


def made_rows(cells=CELLS, warm_up=10, steps=150):
    """Runs that the model describes without noise."""
    rows = [HEAD]
    for name, every, speed in cells:
        for step in range(warm_up, steps):
            outer = (step + 1) % every == 0
            blocked = 8e3 / (EFFICIENCY[speed] * speed) + UNEVEN * every * COMPUTE
            blocked += SET_UP[speed] * (step + 1 == every)
            times = f"{COMPUTE},{blocked * outer},0.25,0.75"
            rows.append(f"{name},{every},{speed},0,{step},{int(outer)},{times}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(made_rows())
    return path


@pytest.mark.parametrize("fragments", [1, 2, 4, 8])
@pytest.mark.parametrize("overlap", [0, 1, 3, 8, 16])
@pytest.mark.parametrize("transfer", [0.0, 0.7, 2.5, 9.0, 40.0])
def test_utilisation_is_that_of_a_plain_loop(fragments, overlap, transfer):
    ways = {"fragments": fragments, "overlap": overlap}
    got = clocks.utilisation(compute=1.0, transfer=transfer, local_steps=16, **ways)
    slow = plain.streaming(1.0, transfer, 16, fragments, overlap, periods=200)
    assert got == pytest.approx(slow, rel=2e-3)


def test_a_fit_gives_back_what_made_the_runs(table):
    measured = sync.read_runs(table)
    fit = sync.fit_runs(measured, nbytes=1e6, n_workers=2)
    assert fit.compute == pytest.approx(COMPUTE / 1e3)
    assert fit.other == pytest.approx(OTHER / 1e3)
    assert fit.uneven == pytest.approx(UNEVEN, rel=1e-6)
    np.testing.assert_allclose(fit.efficiency, list(EFFICIENCY.values()), rtol=1e-6)
    np.testing.assert_allclose(1e3 * np.array(fit.first), list(SET_UP.values()), rtol=1e-4)
    for one in measured:
        answer = fit.predict(one.cell)
        assert answer.share == pytest.approx(one.share, rel=1e-4)
        assert answer.low < one.share < answer.high
    long = sync.Cell("diloco", 16, 1e8)
    assert fit.predict(long).share == pytest.approx(fit.utilisation(16, 1e8))


def test_steps_of_several_runs_have_a_first_synchronisation_each(table):
    fit = sync.fit_runs(sync.read_runs(table), nbytes=1e6, n_workers=2)
    one = fit.predict(sync.Cell("diloco", 64, 1e8, 140, 2))
    three = fit.predict(sync.Cell("diloco", 64, 1e8, 420, 6))
    assert three.share == pytest.approx(one.share)
    unending = fit.predict(sync.Cell("diloco", 64, 1e8, 64_000, 1000))
    assert unending.share > one.share


def test_a_faster_link_takes_no_longer(table):
    fit = sync.fit_runs(sync.read_runs(table), nbytes=1e6, n_workers=2)
    times = [fit.transfer(speed) for speed in np.geomspace(1e6, 1e12, 200)]
    assert (np.diff(times) <= 0).all()


def test_one_cell_alone_is_enough(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text(made_rows([("diloco", 4, 1000)]))
    fit = sync.fit_runs(sync.read_runs(path), nbytes=1e6, n_workers=2)
    cell, wide = sync.Cell("diloco", 4, 1e9), sync.Cell("diloco", 4, 1e8)
    assert fit.predict(cell).share == pytest.approx(fit.utilisation(4, 1e9))
    near, far = fit.predict(cell), fit.predict(wide)
    assert far.low < far.share < far.high
    assert far.high / far.low > near.high / near.low


def test_200_cells_take_no_time(table):
    fit = sync.fit_runs(sync.read_runs(table), nbytes=1e6, n_workers=2)
    shares = [
        fit.utilisation(h, speed, fragments=parts, overlap=late, compression=factor)
        for h in (8, 16, 32, 64, 128)
        for speed in (1e7, 1e8, 1e9, 1e10, 1e11)
        for parts, late in ((1, 0), (4, 0), (4, 2), (8, 1))
        for factor in (1.0, 4.0)
    ]
    assert len(shares) == 200
    assert 0 < min(shares) <= max(shares) <= 1


def asked(folder, *words):
    return main(["links", str(folder / "measured.csv"), "--parameters", "2.5e5", *words])


def test_the_command_answers_in_the_order_of_the_rows(table, capsys):
    folder = table.parent
    cells = folder / "cells.csv"
    cells.write_text(
        "link_mbit_per_s,algorithm,local_steps,steps,outer\n"
        "1000,LocalSGD,64,140,2\n100,diloco,1,,\n300,local-sgd,8,140,17\n"
    )
    out = folder / "out.json"
    words = ("--workers", "2", "--predict", str(cells), "--json", str(out))
    assert asked(folder, *words) == 0
    told = capsys.readouterr()
    assert "efficiency 0.80" in told.out
    assert not told.err
    answers = storage.load_json(out)["cells"]
    assert [one["algorithm"] for one in answers] == ["LocalSGD", "diloco", "local-sgd"]
    assert [one["local_steps"] for one in answers] == [64, 1, 8]
    assert [one["link_mbit_per_s"] for one in answers] == [1000, 100, 300]
    truth = {one.cell[:3]: one.share for one in sync.read_runs(table)}
    assert answers[0]["share_computing"] == pytest.approx(truth["local_sgd", 64, 1e9], rel=1e-4)
    assert answers[1]["share_computing"] == pytest.approx(truth["diloco", 1, 1e8], rel=1e-4)
    assert all(0 < one["low"] < one["share_computing"] < one["high"] < 1 for one in answers)


def test_the_command_says_what_one_cell_and_none_stand_for(table, capsys):
    table.write_text(made_rows([("diloco", 4, 1000)]))
    assert asked(table.parent, "--workers", "2") == 0
    assert "warning: one cell alone is measured" in capsys.readouterr().err
    given = ["--parameters", "30.8e6", "--workers", "4", "--link", "1e9", "--step-ms", "25"]
    assert main(["links", *given]) == 0
    told = capsys.readouterr().out
    assert "nothing is measured" in told
    line = next(line for line in told.splitlines() if line.startswith("1,000 Mbit/s"))
    expected = 8 * 25 / (8 * 25 + 1e3 * 1.5 * 8 * 4 * 30.8e6 / 1e9)
    assert f"{expected:.3f}" in line


ROW = "diloco,4,1000,0,0,1,20,100,0.1,0.1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have the columns algorithm, local_steps"),
        (HEAD + "\n", "must have a row at least, got none"),
        (HEAD.replace("outer,", "") + "\n", "must have the columns outer, got algorithm"),
        (
            f"{HEAD}\n{ROW.replace('diloco', 'fedavg')}",
            "algorithm must be one of diloco, local_sgd",
        ),
        (f"{HEAD}\n{ROW.replace('diloco,4', 'diloco,0')}", "local_steps must be at least 1"),
        (f"{HEAD}\n{ROW.replace('diloco,4', 'diloco,2.5')}", "local_steps must be an integer"),
        (f"{HEAD}\n{ROW.replace('diloco', 'ddp')}", "local_steps must be 1 for ddp"),
        (f"{HEAD}\n{ROW.replace('1000', '-1000')}", "link_mbit_per_s must be positive and finite"),
        (
            f"{HEAD}\n{ROW.replace('20', 'nan')}",
            "compute_ms must be at least 0 and finite, got nan",
        ),
        (f"{HEAD}\n{ROW.replace(',20,', ',much,')}", "compute_ms must be a number, got 'much'"),
        (f"{HEAD}\n{ROW[:-8]}", "optimizer_ms must be a number, got None"),
        (f"{HEAD}\n{ROW.replace('0,0,1', '0,0,2')}", "outer must be in [0, 1], got 2"),
        (f"{HEAD}\n{ROW.replace('0,0,1', '0,0,0')}", "outer must be 1 at a step at least"),
        (f"{HEAD}\n{ROW.replace(',100,', ',0,')}", "sync_blocked_ms must be positive where outer"),
        (f"{HEAD}\n{ROW.replace(',20,', ',0,')}", "compute_ms must be positive somewhere"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(table, capsys, text, words):
    table.write_text(text)
    assert asked(table.parent, "--workers", "2") == 2
    said = capsys.readouterr().err
    assert said.startswith("asyncjax.links: ")
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["--parameters", "0", "--workers", "2", "--link", "1e9", "--step-ms", "1"],
            "--parameters",
        ),
        (["--parameters", "x", "--workers", "2"], "--parameters must be a number, got 'x'"),
        (["--parameters", "9", "--workers", "1"], "--workers must be an integer of at least 2"),
        (["--parameters", "9", "--workers", "2"], "give the FILE of measured runs, or --link"),
        (["--parameters", "9", "--workers", "2", "--link", "-1", "--step-ms", "1"], "--link must"),
        (["--parameters", "9", "--workers", "2", "--link", "1", "--step-ms", "nan"], "--step-ms"),
        (["none.csv", "--parameters", "9", "--workers", "2"], "none.csv: no such file"),
        (["none.csv", "--parameters", "9", "--workers", "2", "--link", "1"], "must be left out"),
        (["--parameters", "9", "--workers", "2", "--json", "a.json"], "--json must come with"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(tmp_path, monkeypatch, capsys, given, words):
    monkeypatch.chdir(tmp_path)
    assert main(["links", *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_bad_cells_are_refused_in_a_sentence(table, capsys):
    table.write_text(made_rows([("diloco", 4, 1000)]))
    cells = table.parent / "cells.csv"
    head = "algorithm,local_steps,link_mbit_per_s,steps,outer\n"
    for row, words in (
        ("diloco,4,1000,10,11", "outer must be at most steps, got 11 of 10 (line 2"),
        ("diloco,4,inf,10,1", "link_mbit_per_s must be positive and finite, got inf"),
        ("diloco,4,1000,0,0", "steps must be at least 1"),
        ("sgd,4,1000,9,1", "algorithm must be one of diloco, local_sgd, ddp, got 'sgd'"),
    ):
        cells.write_text(head + row)
        assert asked(table.parent, "--workers", "2", "--predict", str(cells)) == 2
        assert words in capsys.readouterr().err
