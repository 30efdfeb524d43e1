"""Mistakes in texts: each has a message that says what is wrong, and where; edits at random never do worse."""

from __future__ import annotations

import re
from random import Random

import pytest
from tests.compiler.programs import BATCHES, batch, drawn
from tests.dialects.traced import traced

import serrate as sr
from serrate.dialects.from_text import program_of
from serrate.dialects.texts import TextError, parse
from serrate.dialects.to_text import module_of

RAGGED = sr.ragged([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], ragged_rank=1)
PLACE = re.compile(r"^\S+:\d+:\d+: ")


def text() -> str:
    def function(x: sr.Tensor) -> sr.Tensor:
        y = sr.softmax(x[:, :2] * 2.0, axis=1)
        return sr.sum(sr.concat([y, y], axis=2), axis=1)

    return str(module_of(traced(function, RAGGED)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("@p0 x 2", "@q7 x 2"), "the partition @q7 is not declared; there are @p0"),
        (('euop = "', 'euop = "no'), "has no euop no"),
        (('ebop = "multiply"', 'ebop = "multiplied"'), "has no ebop multiplied; there are multiply, "),
        (('rop = "sum", ', ""), "has no rop None; there are sum, prod"),
        (("axis = 1", "axes = 1"), "has no attribute axes; there are "),
        (("2 x f32", "2 x f33"), "there is no type of elements 'f33'"),
        (("2 x f32", "-2 x f32"), "a dimension is a number, a size or a partition, not -2"),
        (("n0 x", "* x"), "a tensor of unknown rank"),
        (('callee = "softmax", ', ""), "a call says what it calls"),
        (('"ptensor.reduce"', '"ptensor.reduces"'), "ptensor.reduces"),
        (("operand(1)", "operand(9)"), "refers to number 9 of"),
        (("func.return", "func.retrun"), "func.retrun"),
        (("name = @p0, ", ""), "a partition has a name"),
        (("components = n0", "many = n0"), "does not say how many components"),
        (("f32, device", "f32, devise"), "devise"),
    ],
    ids=lambda pair: pair[1] if isinstance(pair, tuple) else None,
)
def test_a_mistake_is_named_with_its_place(wrong: tuple[str, str], message: str) -> None:
    right = str(module_of(traced(sr.exp, RAGGED))) if wrong[0].startswith("euop") else text()
    if wrong[0].endswith("device"):
        right = right.replace("2 x f32>", '2 x f32, device = "cpu">')
    assert wrong[0] in right
    with pytest.raises(TextError) as caught:
        program_of(parse(right.replace(*wrong), "file.mlir"))
    assert message in str(caught.value)
    assert PLACE.match(str(caught.value)), caught.value


def test_tensors_on_different_devices_are_refused_with_both_sides() -> None:
    right = str(module_of(traced(lambda x: sr.add(x, x), RAGGED)))
    wrong = """
    func.func @main(%x: !ptensor.ptensor<3 x f32>, %y: !ptensor.ptensor<3 x f32, device = "cuda:1">) {
      %z = "ptensor.elementwise_binary_op"(%x, %y) {ebop = "add"}
        : (!ptensor.ptensor<3 x f32>, !ptensor.ptensor<3 x f32, device = "cuda:1">) -> !ptensor.ptensor<3 x f32>
      func.return
    }
    """
    with pytest.raises(TextError, match=r"different devices: operand 0 is on cpu, operand 1 on cuda:1"):
        parse(wrong)
    with pytest.raises(TextError, match="has a device, which only operations have that create tensors"):
        parse(right.replace('ebop = "add"', 'ebop = "add", device = "cuda:0"'))


def test_the_first_word_and_brackets_have_places_too() -> None:
    with pytest.raises(TextError, match=r"^file.mlir:1:1: Unexpected character"):
        parse("\x00func.func @main()", "file.mlir")
    with pytest.raises(TextError, match=r"^file.mlir:1:\d+: too many brackets stand inside of each other"):
        parse("func.func @main() attributes {x = " + "[" * 5_000, "file.mlir")
    with pytest.raises(TextError, match=r"^file.mlir:1:\d+: too many digits"):
        parse(f"func.func @main(%x: i{'9' * 30}) attributes {{x = 1 : i{'9' * 30}}}", "file.mlir")


@pytest.mark.parametrize("wrong", ['"', '"' + "a" * 10_000, '"\\', '"\\q' + "ab" * 5_000 + '"', '"a\nb"'])
def test_quotes_that_do_not_end_are_found_at_once(wrong: str) -> None:
    right = text()
    for place in (right.index("{"), right.index("rop"), len(right)):
        with pytest.raises(TextError, match=r"^file.mlir:\d+:\d+: a text in quotes does not end in its line"):
            parse(right[:place] + wrong + right[place:].replace('"', ""), "file.mlir")
    assert str(parse(f"// it's \"\n{right}")) == right


@pytest.mark.parametrize("seed", range(300))
def test_edits_at_random_give_a_program_or_an_error_with_a_place(seed: int) -> None:
    random = Random(seed)
    drawing = drawn(seed % 5, most=5)
    given = str(module_of(traced(drawing.function(), *batch(drawing, BATCHES[0]))))
    for _ in range(random.randint(1, 4)):
        given = edited(given, random)
    said = ""
    try:
        program_of(parse(given, "file.mlir"))
    except TextError as error:
        said = str(error)
    assert not said or PLACE.match(said) or "is expected in the module" in said, said


def edited(given: str, random: Random) -> str:
    """A text with one edit."""
    words = re.findall(r"[\w.@%#!\"]+|\S|\s+", given)
    place = random.randrange(len(words))
    what = random.choice(["leave out", "twice", "swap", "other", "number", "letters"])
    if what == "leave out":
        del words[place]
    elif what == "twice":
        words.insert(place, words[place])
    elif what == "swap":
        other = random.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    elif what == "other":
        words[place] = random.choice(words)
    elif what == "number":
        words[place] = random.choice(["0", "-1", "9999999999999999999999", "1.5e400", "0x", "nan"])
    else:
        words[place] = random.choice(["", "(" * 200, "[" * 2000, '"', "\\", "\x00", "é", "<", ">", "@", "//", "{"])
    return "".join(words)
