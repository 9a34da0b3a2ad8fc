"""The toy study in a process of its own, so that it can be killed: FOLDER, ROWS, and an engine."""

import sys
from contextlib import nullcontext

from asyncjax import live, study
from tests.study.toy import SPACE


def rows_of(result):
    """Rows as bytes, without what the machine's pace decides."""
    from asyncjax.study.result import TIMES

    return result.rows.drop(columns=list(TIMES)).to_csv(index=False).encode()


def main(folder, rows, engine="here"):
    makers = {"processes": lambda: live.processes(2), "ray": lambda: live.ray(2)}
    with nullcontext() if engine == "here" else makers[engine]() as workers:
        counts = {"trials": 6, "instances": 4, "tuning_instances": 2}
        result = study.compare(
            "tests.study.toy", space=SPACE, path=folder, engine=workers, **counts
        )
    with open(rows, "wb") as file:
        file.write(rows_of(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
