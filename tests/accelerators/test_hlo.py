"""What is read from a program: that bytes are those of the definition, and that faults are seen."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import hlo

ROWS, SIZE = 64, 4096


def module_of(turn, *carry):
    """A loop of ten turns, compiled here."""
    looped = jax.jit(
        lambda *carry: jax.lax.fori_loop(0, 10, lambda i, state: turn(i, *state), carry)
    )
    return hlo.parse(looped.lower(*carry).compile().as_text())


def bytes_of_a_turn(module):
    return hlo.moved(module, hlo.body_of(hlo.main_loop(module)), lambda _: 1.0).all


def buffer():
    return jnp.zeros((ROWS, SIZE))


def row_written(number, rows, row):
    return rows.at[number].set(row + rows[number]), row


def test_a_row_moves_as_many_bytes_as_it_has_and_is_no_copy():
    module = module_of(row_written, buffer(), jnp.ones(SIZE))
    row = 4 * SIZE
    assert 3 * row <= bytes_of_a_turn(module) < 6 * row  # two read, one written, one between them
    assert not hlo.whole_copies(module, {(ROWS, SIZE)})


def test_a_buffer_that_is_turned_over_is_seen():
    module = module_of(lambda i, rows: (rows.T.reshape(rows.shape),), buffer())
    assert hlo.whole_copies(module, {(ROWS, SIZE)})
    assert bytes_of_a_turn(module) >= 2 * 4 * ROWS * SIZE
    assert not hlo.whole_copies(module, {(ROWS, SIZE + 1)})


def test_a_choice_between_branches_is_looked_into():
    def turn(number, rows):
        return (jax.lax.cond(number > 3, lambda x: x.T.reshape(x.shape), lambda x: x, rows),)

    assert hlo.whole_copies(module_of(turn, buffer()), {(ROWS, SIZE)})


def test_a_callback_is_seen():
    def turn(number, row):
        form = jax.ShapeDtypeStruct(row.shape, row.dtype)
        return (jax.pure_callback(lambda x: np.asarray(x) + 1, form, row),)

    assert hlo.host_transfers(module_of(turn, jnp.zeros(8)))
    assert not hlo.host_transfers(module_of(lambda i, row: (row + 1,), jnp.zeros(8)))


@pytest.mark.usefixtures("float64")
def test_numbers_of_64_bits_are_seen():
    assert hlo.wide_types(module_of(lambda i, row: (row + 1,), jnp.zeros(8, jnp.float64)))
    narrow = hlo.wide_types(module_of(lambda i, row: (row * 2,), jnp.zeros(8, jnp.float32)))
    assert not [told for told in narrow if "f64" in told]


def test_trips_are_those_of_the_program():
    module = module_of(lambda i, row: (jnp.sin(row),), jnp.zeros(8))
    assert hlo.known_trips(module, hlo.main_loop(module)) == 10


TILED = """HloModule padded

%body (p: (s32[], f32[4,1024,10])) -> (s32[], f32[4,1024,10]) {
  %p = (s32[], f32[4,1024,10]{2,1,0:T(8,128)}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %rows = f32[4,1024,10]{LAYOUT} get-tuple-element(%p), index=1
  %moved = f32[4,1024,10]{LAYOUT} negate(%rows)
  ROOT %t = (s32[], f32[4,1024,10]{2,1,0:T(8,128)}) tuple(%i, %moved)
}

ENTRY %main (a: f32[4,1024,10]) -> f32[4,1024,10] {
  %a = f32[4,1024,10]{2,1,0:T(8,128)} parameter(0)
  %w = (s32[], f32[4,1024,10]{2,1,0:T(8,128)}) while(%a), condition=%none, body=%body
  ROOT %r = f32[4,1024,10]{2,1,0:T(8,128)} get-tuple-element(%w), index=1
}
"""


@pytest.mark.parametrize(
    ("layout", "numbers"),
    [("2,1,0:T(8,128)", 4 * 1024 * 128), ("1,2,0:T(8,128)", 4 * 16 * 1024), ("2,1,0", 40960)],
)
def test_what_a_layout_pads_is_counted(layout, numbers):
    module = hlo.parse(re.sub("LAYOUT", layout, TILED))
    assert hlo.moved(module, "body", lambda _: 1.0).all == 2 * 4 * numbers


def test_vector_memory_is_significant():
    module = hlo.parse(re.sub("LAYOUT", "2,1,0:T(8,128)S(1)", TILED))
    assert hlo.moved(module, "body", lambda _: 1.0).main == 0


SENT = """HloModule sent

%none (q: (s32[], f32[16,8])) -> pred[] {
  %q = (s32[], f32[16,8]{1,0}) parameter(0)
  ROOT %unknown = pred[] custom-call(%q), custom_call_target="unknown"
}

%body (p: (s32[], f32[16,8])) -> (s32[], f32[16,8]) {
  %p = (s32[], f32[16,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %rows = f32[16,8]{1,0} get-tuple-element(%p), index=1
  %half = bf16[16,8]{1,0} convert(%rows)
  %gathered = (bf16[16,8]{1,0}, bf16[64,8]{1,0}) all-gather-start(%half), dimensions={0}
  %whole = bf16[64,8]{1,0} all-gather-done(%gathered)
  %turned = f32[16,8]{1,0} all-to-all(%rows), dimensions={0}
  %summed = f32[16,8]{1,0} all-reduce(%turned), to_apply=%add
  ROOT %t = (s32[], f32[16,8]{1,0}) tuple(%i, %summed)
}

ENTRY %main (a: f32[16,8]) -> f32[16,8] {
  %a = f32[16,8]{1,0} parameter(0)
  %w = (s32[], f32[16,8]{1,0}) while(%a), condition=%none, body=%body
  ROOT %r = f32[16,8]{1,0} get-tuple-element(%w), index=1
}
"""


def test_what_travels_is_counted_as_it_arrives():
    module, row = hlo.parse(SENT), 4 * 16 * 8
    once = {"all-gather": (1, 2 * 64 * 8), "all-to-all": (1, row), "all-reduce": (1, 2 * row)}
    assert hlo.travels(module, "body", lambda _: 1.0) == once
    three_times = hlo.travels(module, "main", lambda _: 3.0)
    assert three_times == {kind: (3, 3 * size) for kind, (_, size) in once.items()}
    assert hlo.largest(module) == 2 * 64 * 8
