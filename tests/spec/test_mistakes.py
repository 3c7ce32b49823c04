"""Every mistake in a case file is reported with its line and column, together with all others."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.spec.loader import load
from conformance.spec.mistakes import CaseFileErrors, Mistake

Mistakes = Callable[..., tuple[Mistake, ...]]
Write = Callable[[dict[str, str]], Path]

MARK = "«"

HEAD = """\
format: 1
suite: t
summary: One.
defaults: {operator: mha, batch: 3, num_heads: 2, head_dim: 8, seq_len_q: 5, seq_len_k: 7}
cases:
"""


def places(text: str) -> list[tuple[int, int]]:
    """Return the line and column of every mark, counted from 1, in the text without marks."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        found += [(number, hit.start() - count + 1) for count, hit in enumerate(re.finditer(MARK, line))]
    return found


def entry(text: str) -> str:
    """Return the text of a suite with one case that has these further lines."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"{HEAD}  - name: one\n{lines}"


def test_six_mistakes_in_one_file_are_all_reported_with_line_and_column(mistakes: Mistakes) -> None:
    text = f"""\
{HEAD}  - name: first
    dtype: «flaot32
    num_kv_heads: «3
    masks: [{{kind: key_padding, «lenghts: [7, 4, 1]}}]
  - name: second
    batch: «"3"
    masks: [{{kind: attention, pattern: holes}}, {{kind: «casual}}]
    matrix:
      «masks.5.seed: [1, 2]
"""
    found = mistakes(text)
    assert [(one.line, one.column) for one in found] == places(text)
    assert [one.message for one in found] == [
        "dtype: 'flaot32' is not valid; did you mean 'float32'?",
        "num_kv_heads 3 does not divide num_heads 2",
        "unknown key 'lenghts'; did you mean 'lengths'?",
        "batch: expected an integer, got '3'",
        "unknown kind 'casual'; did you mean 'causal'?",
        "matrix path 'masks.5.seed' does not exist: masks has 2 items, so index 5 is out of range",
    ]
    assert {one.file for one in found} == {"cases/t.yaml"}


def test_a_mistake_reads_like_a_compiler_message(mistakes: Mistakes) -> None:
    (found,) = mistakes(entry("dtype: flaot32"))
    assert str(found) == "cases/t.yaml:7:12: dtype: 'flaot32' is not valid; did you mean 'float32'?"


def test_the_exception_prints_one_mistake_a_line(write: Write) -> None:
    root = write({"t.yaml": entry("dtype: 3\nbatch: x")})
    with pytest.raises(CaseFileErrors) as caught:
        load([root], root)
    assert str(caught.value).splitlines() == [
        "cases/t.yaml:7:12: dtype: expected float64, float32, float16, bfloat16, got 3",
        "cases/t.yaml:8:12: batch: expected an integer, got 'x'",
    ]


FIELDS = {
    "biases: «no": "biases: expected true or false, got 'no'",
    "biases: [q, «x]": "biases.1: 'x' is not valid; expected one of q, k, v, o",
    "biases: «[]": "biases: expected at least one item, got []",
    "batch: «012": "batch: expected an integer, got '012'",
    "batch: «12:30": "batch: expected an integer, got '12:30'",
    "batch: «0": "batch: expected at least 1, got 0",
    "batch: «true": "batch: expected an integer, got true",
    "batch: «2.0": "batch: expected an integer, got 2.0",
    "«seq_lenk: 3": "unknown key 'seq_lenk'; did you mean 'seq_len_k'?",
    "«zzz: 3": "unknown key 'zzz'; expected one of name, summary",
    "«scale: 0.5": "scale is only valid with operator sdpa",
    "operator: sdpa\n«kdim: 3": "kdim is only valid with operator mha",
    "operator: sdpa\n«biases: true": "biases is only valid with operator mha",
    "operator: sdpa\n«dropout_p: 0.5": "dropout_p is only valid with operator mha",
    "dropout_p: «1.0": "dropout_p: expected less than 1, got 1",
    "operator: sdpa\n«zero_key: true": "zero_key is only valid with operator mha",
    "output_dim: «11\noutput_projection: false": "needs an output projection; without one, output_dim is 16",
    "output_dim: 11\nresidual: «true": "residual needs query and output of the same width, got 16 and 11",
    "softcap: «0.0": "softcap: expected more than 0, got 0",
    "softcap: «0.1": "softcap 0.1 is not exact in float32: implementations would round it",
    "batch: 1\ninputs: {layout: «expanded}": "it needs a batch of at least 2, got 1",
    "batch: 2\ninputs: {clean: false, layout: «expanded}": "large masked rows (clean: false) differ",
    "inputs: {layout: «diagonal}": "layout: 'diagonal' is not valid; expected one of contiguous, transposed",
    "operator: sdpa\nscale: «.nan": "scale: expected a finite number, got nan",
    "operator: sdpa\nscale: «1e999": "1e999 is too large for a float64; write infinity as .inf",
    "batch: «1000000000000": "(1000000000000, 7, 16) would have 112000000000000 elements; at most 16777216 (2**24)",
    "outputs: «[]": "outputs: expected at least one item",
    "outputs: [output, «output]": "output 'output' is listed twice",
    "outputs: [output, «present]": "output present needs the field past",
    "outputs: [output, «logits]": "output logits is only valid with operator sdpa",
    "past: 2\noutputs: [output, «present]": "output present is only valid with operator sdpa",
    "operator: sdpa\npast: «0": "past: expected at least 1, got 0",
    "operator: sdpa\npast: «7": "past 7 must be less than seq_len_k 7, so that the call itself has a key",
    "operator: sdpa\nseq_len_q: 7\npast: 2\ninputs: {alias: «qkv}": "alias qkv cannot be combined with past",
    "operator: sdpa\npast: 2\ninputs: {layout: «offset}": "layout offset cannot be combined with past",
    "operator: sdpa\npast: «2\noutputs: [gradients]": "output gradients is not supported with past: remove past",
    "«expect: error": "expect needs the field mistake, which says what is wrong with the call",
    "«mistake: key_width": "mistake needs expect: error",
    "expect: «numbers\nmistake: key_width": "expect: 'numbers' is not valid; expected one of error",
    "expect: error\nmistake: «key_with": "did you mean 'key_width'?",
    "expect: error\nmistake: «mask_keys": "mistake mask_keys needs a mask",
    "batch: 2\nexpect: error\nmistake: «key_batch": "it needs a batch of at least 3, got 2",
    "operator: sdpa\nexpect: error\nmistake: «query_width": "query_width is only valid with operator mha",
    "expect: error\nmistake: key_width\ninputs: {alias: «kv}": "needs separate query, key and value; alias kv",
    "operator: sdpa\nexpect: error\nmistake: key_width\n«past: 2": "past is not allowed with expect: error",
    "outputs: [«slopes]": "is not valid; expected one of output, weights, weights_mean, gradients",
    "tags: [«Smoke]": "expected lower-case letters, digits and underscores",
    "dtype: float32\n«dtype: float64": "duplicate key 'dtype', first on line 7",
}


def by_words(texts: dict[str, str]) -> list[tuple[str, str]]:
    return [(text, words) for text, words in texts.items() if text.count(MARK) == 1]


@pytest.mark.parametrize(("text", "words"), by_words(FIELDS))
def test_a_field(mistakes: Mistakes, text: str, words: str) -> None:
    check_one(mistakes, entry(text), words)


def check_one(mistakes: Mistakes, text: str, words: str) -> None:
    found = mistakes(text)
    assert [(one.line, one.column) for one in found] == places(text), found
    assert words in found[0].message


MASKS = {
    "«{knd: causal}": "a mask needs a kind; expected one of key_padding",
    "«{}": "a mask needs a kind",
    "«7": "masks.0: expected a mapping, got 7",
    "{kind: causal, offset: «middle}": "offset: expected start, end, past, lengths or an integer, got 'middle'",
    "{kind: causal, offset: «99999999999}": "offset: expected start, end, past, lengths or less than 2",
    "«{kind: window}": "a window needs left or right, or both",
    "{kind: causal, offset: «past}": "offset past needs the field past: the number of keys from earlier calls",
    "{kind: window, left: 1, offset: «past}": "offset past needs the field past",
    "{kind: window, left: 1, offset: «end}": "offset: 'end' is not valid; expected one of start, past, lengths",
    "{kind: causal, offset: «lengths}": "offset lengths needs one key_padding mask with lengths",
    "{kind: attention, pattern: all, short: «2}": "short 2: the mask must mask the last 2 keys",
    "{kind: attention, axes: [b], values: [1, 1, 1], short: «2}": "short 2 needs a mask over keys that is not verbatim",
    "{kind: window, left: «-1}": "left: expected at least 0",
    "«{kind: attention}": "the mask needs one of values, pattern or lengths",
    "«{kind: additive}": "the mask needs one of values, pattern or distribution",
    "{kind: attention, pattern: «diagnal}": "did you mean 'diagonal'?",
    "{kind: attention, axes: [q], pattern: «all}": "pattern all needs the axis k",
    "{kind: attention, axes: «[], pattern: all}": "axes []: expected some of b, h, q, k",
    "{kind: attention, axes: «[k, q], pattern: all}": "each once and in this order",
    "{kind: additive, axes: «[q], distribution: bell}": "axes [q]: an additive mask needs the axis k",
    "{kind: attention, axes: «[q, q, k], pattern: all}": "each once",
    "{kind: attention, axes: [«x, k], pattern: all}": "expected one of b, h, q, k",
    "{kind: attention, axes: [b, k], pattern: «diagonal}": "needs the axis q; the mask has [b, k]",
    "{kind: attention, pattern: «one_fully_masked_batch}": "needs the axis b; the mask has [q, k]",
    "{kind: key_padding, axes: «[q, k], pattern: all}": "has axes [b, k], not [q, k]; use kind attention",
    "{kind: key_padding, pattern: «block}": "needs the axis q; the mask has [b, k]",
    "{kind: key_padding, pattern: «leading}": "pattern leading needs lengths",
    "{kind: key_padding, pattern: holes, «lengths: [1, 2, 3]}": "pattern and lengths cannot be combined",
    "{kind: key_padding, lengths: «[7, 4]}": "lengths has 2 numbers; expected 3, one for each batch element",
    "{kind: key_padding, lengths: [7, «8, 1]}": "lengths: 8 is more than the 7 positions of the axis",
    "{kind: key_padding, lengths: [7, «-1, 1]}": "expected at least 0",
    "{kind: key_padding, «lengths_q: [1, 2, 3], lengths: [1, 2, 3]}": "unknown key 'lengths_q'",
    "{kind: attention, lengths: [7, 4, 1], lengths_q: [5, «6, 1]}": "lengths_q: 6 is more than the 5 positions",
    "{kind: attention, «lengths_q: [5, 5, 1]}": "lengths_q also needs lengths",
    "{kind: attention, axes: [q, k], lengths: «[5, 5, 1]}": "a mask with lengths needs the axis b",
    "{kind: attention, axes: [k], values: «[1, 1]}": "expected 7 items, got 2",
    "{kind: attention, axes: [k], values: [1, 1, 0, 0, «2, 1, 1]}": "expected 0, 1, true or false, got 2",
    "{kind: attention, axes: [k], values: [1, 1, 0, 0, «1.0, 1, 1]}": "expected 0, 1, true or false, got 1.0",
    "{kind: attention, axes: [b, k], values: [«1, [1, 1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]]}": "a list of 7",
    "{kind: additive, axes: [k], values: [1, 1, 0, 0, «.inf, 1, 1]}": "expected a number or -.inf, got inf",
    "{kind: additive, axes: [k], values: [1, 1, 0, 0, «.nan, 1, 1]}": "expected a number or -.inf, got nan",
    "{kind: additive, axes: [k], values: [1, 1, 0, 0, «1e39, 1, 1]}": "a number within the range of float32",
    "{kind: additive, element: «bool, pattern: all}": "element: 'bool' is not valid",
    "{kind: additive, verbatim: true, distribution: bell, true_means: «ignore}": "no meaning for numbers",
    "{kind: attention, true_means: «ignore, pattern: holes}": "needs literal values or verbatim: true",
    "{kind: attention, axes: [k], verbatim: true, true_means: «ignore, values: [1, 1, 1, 1, 1, 1, 0]}": "inverted",
    "{kind: attention, axes: [k], verbatim: true, element: int, values: [1, 1, 1, 1, 1, 1, «0.5]}": "a 32-bit integer",
}


@pytest.mark.parametrize(("text", "words"), by_words(MASKS))
def test_a_mask(mistakes: Mistakes, text: str, words: str) -> None:
    check_one(mistakes, entry(f"masks: [{text}]"), words)


INPUTS = {
    "distribution: «belly": "did you mean 'bell'?",
    "gain: «3": "gain 3 is not a power of two",
    "gain: «-2": "gain: expected more than 0",
    "gain: «170141183460469231731687303715884105728": "exceed the range of float32",
    "alias: «qkv": "alias qkv needs equal shapes, got query (3, 5, 16), key (3, 7, 16), value (3, 7, 16)",
    "key: «[1, 2]": "expected 3 items, got 2",
    "«sed: 1": "did you mean 'seed'?",
    "seed: «-1": "seed: expected at least 0",
    "poison: «nan": "poison: 'nan' is not valid",
    "poison: «nan_keys": "poison nan_keys needs a mask: it is placed where no query attends",
}


@pytest.mark.parametrize(("text", "words"), by_words(INPUTS))
def test_inputs(mistakes: Mistakes, text: str, words: str) -> None:
    check_one(mistakes, entry(f"inputs: {{{text}}}"), words)


# Two queries with the shape of the only case: every number is -60,000 in the first, and 0.5 in the second.
LARGE, SMALL = (str([[[number] * 16] * 5] * 3) for number in (-60000, 0.5))


def test_a_literal_query_and_its_gain_stay_in_range(mistakes: Mistakes, write: Write) -> None:
    text = "dtype: float16\ninputs: {query: %s, gain: «2}"
    check_one(mistakes, entry(text % LARGE), "gain 2 makes queries exceed the range of float16")
    root = write({"t.yaml": entry((text % SMALL).replace("«2", "65536"))})
    (case,) = load([root], root)
    assert case.inputs.gain == 65536


def test_a_ragged_query_with_a_gain_is_one_mistake(mistakes: Mistakes) -> None:
    check_one(mistakes, entry("inputs: {query: «[[[1], 2], 3], gain: 2}"), "expected 3 items, got 2")


def test_alias_kv_needs_equal_widths(mistakes: Mistakes) -> None:
    check_one(mistakes, entry("kdim: 3\ninputs: {alias: «kv}"), "alias kv needs equal shapes")


def test_gain_cannot_be_had_by_the_query_alone_where_it_is_the_key(mistakes: Mistakes) -> None:
    check_one(
        mistakes,
        entry("seq_len_q: 7\ninputs: {alias: qkv, gain: «2}"),
        "gain must be 1 with alias qkv: query and key are the same object",
    )


def test_gradients_are_by_finite_inputs_of_their_own(mistakes: Mistakes) -> None:
    check_one(
        mistakes,
        entry("outputs: [gradients]\ninputs: {alias: «kv}"),
        "output gradients needs separate query, key and value",
    )
    text = "outputs: [gradients]\nmasks: [{kind: causal}]\ninputs: {poison: «nan_keys}"
    check_one(mistakes, entry(text), "output gradients needs finite inputs, not poison")
    for field in ("bias_kv: «true", "zero_key: «true", "activation: «relu", "residual: «true"):
        name = field.partition(":")[0]
        check_one(mistakes, entry(f"outputs: [gradients]\n{field}"), f"output gradients is not supported with {name}")
    check_one(
        mistakes, entry("outputs: [gradients]\noutput_projection: «false"), "not supported with output_projection"
    )


def test_poison_stands_in_one_of_key_and_value(mistakes: Mistakes) -> None:
    text = "seq_len_q: 7\nmasks: [{kind: causal}]\ninputs: {alias: kv, poison: «nan_keys}"
    check_one(mistakes, entry(text), "needs separate arrays; alias kv makes key and value the same array")


def test_poison_needs_separate_arrays_of_query_key_and_value(mistakes: Mistakes) -> None:
    text = "seq_len_q: 7\nmasks: [{kind: causal}]\ninputs: {alias: qkv, poison: «nan_query}"
    check_one(mistakes, entry(text), "needs separate arrays; alias qkv makes query, key and value the same array")


def test_poison_is_not_for_verbatim_masks(mistakes: Mistakes) -> None:
    mask = "{kind: attention, verbatim: true, pattern: holes}"
    for poison in ("inf_values", "nan_attended_key"):
        check_one(
            mistakes,
            entry(f"masks: [{mask}]\ninputs: {{poison: «{poison}}}"),
            "poison is not allowed with verbatim masks",
        )


def test_one_array_is_spelled_out_once(mistakes: Mistakes) -> None:
    small = "operator: sdpa\nbatch: 1\nnum_heads: 1\nseq_len_k: 1\nhead_dim: 1\n"
    text = entry(small + "inputs: {alias: kv, key: [[[[1]]]], value: «[[[[1]]]]}")
    check_one(mistakes, text, "alias kv makes key and value the same array; give only one of them")


MATRICES = {
    "matrix: {dtype: «[]}": "expected a list of at least one value",
    "matrix: {dtype: «float32}": "expected a list of at least one value",
    "matrix: «[dtype]": "matrix: expected a mapping",
    "matrix: {«dtpye: [float32]}": "unknown key 'dtpye'; did you mean 'dtype'?",
    "matrix: {«inputs.sed: [1, 2]}": "unknown key 'sed'; did you mean 'seed'?",
    "matrix: {«dtype.x: [1, 2]}": "matrix path 'dtype.x' does not exist: dtype has no 'x'",
    "matrix: {«name: [one, two]}": "'name' cannot be varied by a matrix",
    "matrix: {dtype: [float32, «float23]}": "did you mean 'float32'?",
    "matrix: {inputs.gain: [1, 2, «3]}": "gain 3 is not a power of two",
    "matrix: «{dtype: [float32, float32]}": "expands to t/one[dtype=float32~2], which is the same case as t/one",
    "matrix: «{value_dim: [null, 8]}": "expands to t/one[value_dim=8], which is the same case as",
    "matrix: «{tags: [[smoke], []]}": "which is the same case as",
    "masks: [{kind: causal}]\nmatrix: {«masks.0.ofset: [start]}": "did you mean 'offset'?",
    "masks: [{kind: causal}]\nmatrix: {«masks.1.offset: [start]}": "masks has 1 item, so index 1 is out of range",
    "masks: [{kind: causal}]\nmatrix: {masks: [[], [{kind: «casual}]]}": "did you mean 'causal'?",
}


@pytest.mark.parametrize(("text", "words"), by_words(MATRICES))
def test_a_matrix(mistakes: Mistakes, text: str, words: str) -> None:
    check_one(mistakes, entry(text), words)


def test_a_huge_product_is_refused_before_it_is_expanded(mistakes: Mistakes) -> None:
    many = ", ".join(str(number) for number in range(1, 1001))
    text = entry(f"matrix: «{{inputs.seed: [{many}], batch: [{many}], seq_len_q: [{many}], seq_len_k: [{many}]}}")
    check_one(mistakes, text, "expands to 1000000000000 cases; at most 1024 are allowed")


SUITES = {
    "«[1, 2]\n": "the file: expected a mapping, got [1, 2]",
    "format: «2\nsuite: t\nsummary: x\ncases: [{name: a, operator: sdpa}]\n": "format: expected 1, got 2",
    "format: 1\nsuite: «u\nsummary: x\ncases: [{name: a}]\n": "suite 'u' is in the file cases/t.yaml",
    "format: 1\nsuite: t\nsummary: «''\ncases: [{name: a}]\n": "summary: expected a non-empty string",
    "format: 1\nsuite: t\nsummary: x\ncases: «[]\n": "cases: expected at least one item",
    "format: 1\nsuite: t\nsummary: x\ncases: [«5]\n": "cases.0: expected a mapping, got 5",
    "format: 1\nsuite: t\nsummary: x\ndefaults: «3\ncases: [{name: a}]\n": "defaults: expected a mapping",
    "format: 1\nsuite: t\nsummary: x\n«sumary: x\ncases: [{name: a}]\n": "did you mean 'summary'?",
}


@pytest.mark.parametrize(("text", "words"), by_words(SUITES))
def test_a_suite(mistakes: Mistakes, text: str, words: str) -> None:
    assert (words, *places(text)) in [
        (one.message if words not in one.message else words, (one.line, one.column)) for one in mistakes(text)
    ]


def test_what_is_missing_is_named_where_the_case_begins(mistakes: Mistakes) -> None:
    text = "format: 1\nsuite: t\nsummary: x\ncases:\n  - «name: a\n    operator: sdpa\n"
    found = mistakes(text)
    assert {(one.line, one.column) for one in found} == set(places(text))
    assert [one.message.split("'")[1] for one in found] == [
        "batch",
        "head_dim",
        "num_heads",
        "seq_len_k",
        "seq_len_q",
    ]


def test_a_mistake_in_the_defaults_is_reported_once_where_it_stands(mistakes: Mistakes) -> None:
    text = HEAD.replace("batch: 3", "«bacth: 3, batch: «x") + "  - name: one\n  - name: two\n"
    assert [(one.line, one.column) for one in mistakes(text)] == places(text)


def test_a_name_is_unique_and_not_a_default(mistakes: Mistakes) -> None:
    check_one(mistakes, HEAD + "  - name: one\n  - name: «one\n    dtype: float64\n", "already used on line 6")
    text = HEAD.replace("{operator", "{«name: x, operator") + "  - dtype: float32\n"
    check_one(mistakes, text, "defaults cannot contain a name")


def test_one_mistake_does_not_hide_another_of_the_same_case(mistakes: Mistakes) -> None:
    text = entry(
        "dtype: «half\nnum_kv_heads: «3\nscale_: 2\n".replace("scale_", "«scale_")
        + "inputs: {gain: «3}\noutputs: [output, «output]\n"
        + "masks: [{kind: «casual}, {kind: key_padding, lengths: [7, «8, 1]}, «{kind: window}]"
    )
    # gain is not checked: its check needs the dtype, which is itself invalid here
    expected = [place for place in places(text) if place[0] != 10]
    assert [(one.line, one.column) for one in mistakes(text)] == expected


def test_syntax_errors_hide_nothing_in_other_files(mistakes: Mistakes) -> None:
    found = mistakes(
        {
            "a.yaml": "format: 1\nsuite: a\n  x: 1\n",
            "b.yaml": entry("dtype: half").replace("suite: t", "suite: b"),
            "c.yaml": "",
        }
    )
    assert [(one.file, one.line) for one in found] == [
        ("cases/a.yaml", 3),
        ("cases/b.yaml", 7),
        ("cases/c.yaml", 1),
    ]


def test_a_suite_that_two_files_claim_is_refused(mistakes: Mistakes) -> None:
    found = mistakes({"t.yaml": entry(""), "u.yaml": entry("")})
    assert [one.message for one in found if one.file == "cases/u.yaml"] == [
        "suite name 't' is already used by cases/t.yaml",
        "suite 't' is in the file cases/u.yaml; expected suite 'u'",
    ]


HOSTILE = {
    "masks: [{kind: attention, values: «[[{a: 1}]]}]": "expected 5 items, got 1",
    "seq_len_q: 1\nseq_len_k: 1\nmasks: [{kind: attention, values: [[«{a: 1}]]}]": "true or false, got {'a': 1}",
    "masks: [{kind: attention, short: 2, values: «[[1], [1, 2]]}]": "expected 5 items, got 2",
    'inputs: {file: «"a\\0b.npz"}': "file 'a\\x00b.npz' cannot be opened: 'embedded null byte'",
    f"inputs: {{file: «{'a' * 5000}.npz}}": f"file '{'a' * 59}... cannot be opened: File name too long",
    "matrix: {inputs: [«5], inputs.seed: [1]}": "inputs: expected a mapping, got 5",
    "operator: sdpa\nscale: «1.0e+200": "scale: expected at most 1e+60, got 1e+200",
    "seq_len_k: 1000000000\nmasks: [{kind: attention, short: 2, pattern: holes}]": "would have 48000000000 elements",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_no_reader_expects_is_a_mistake(text: str, mistakes: Mistakes) -> None:
    found = mistakes(entry(text))
    assert HOSTILE[text] in found[0].message
    if MARK in text:
        assert (found[0].line, found[0].column) == places(entry(text))[0]


def test_a_name_of_5000_letters_is_a_mistake(mistakes: Mistakes) -> None:
    (found,) = mistakes(f"{HEAD}  - name: {'a' * 5000}\n")
    assert found.message == f"name: expected a string of at most 100 characters, got '{'a' * 59}..."


MANY = {
    "101 mistakes are listed; 19949 of 20000 entries were not checked": "".join(
        f"  - {{name: same, dtpe: {n}}}\n" for n in range(20_000)
    ),
    "30000 mistakes are listed": "  - name: one\n" + "".join(f"    k{n}: 1\n" for n in range(30_000)),
    "15000 mistakes are listed": "  - name: one\n" + "".join(f"    k{n % 15000}: 1\n" for n in range(30_000)),
}


@pytest.mark.parametrize("told", MANY)
def test_of_very_many_mistakes_the_first_are_told(told: str, mistakes: Mistakes) -> None:
    started = time.process_time()
    found = mistakes(HEAD + MANY[told])
    assert time.process_time() - started < 10
    assert f"only 100 of {told}" in [mistake.message for mistake in found]


def test_a_large_file_is_not_read(write: Write) -> None:
    root = write({"t.yaml": ""})
    with (root / "t.yaml").open("wb") as file:
        file.truncate(200 << 20)
    with pytest.raises(CaseFileErrors, match=r"t\.yaml:1:1: the file has 209715200 bytes; at most 1048576 are allowed"):
        load([root], root)


def test_a_byte_that_is_no_text_has_a_place(write: Write) -> None:
    root = write({"t.yaml": ""})
    (root / "t.yaml").write_bytes("a: é\nb: caf".encode() + b"\xe9\n")
    with pytest.raises(
        CaseFileErrors, match=r"t\.yaml:2:7: cannot be read: invalid UTF-8 byte 0xe9; save the file as UTF-8"
    ):
        load([root], root)


def test_links_that_lead_in_a_circle_are_a_mistake(write: Write) -> None:
    root = write({})
    root.mkdir()
    (root / "a.yaml").symlink_to("b.yaml")
    (root / "b.yaml").symlink_to("a.yaml")
    with pytest.raises(CaseFileErrors, match=r"a\.yaml:1:1: cannot be read: its symbolic links form a loop"):
        load([root], root)
    with pytest.raises(CaseFileErrors, match=r"a\.yaml:1:1: cannot be read: its symbolic links form a loop"):
        load([root / "a.yaml"], root)


def test_a_suite_of_too_many_cases_is_a_mistake(mistakes: Mistakes) -> None:
    numbers = list(range(1, 33))
    entries = "".join(f"  - name: a{n}\n    matrix: {{seq_len_q: {numbers}, seq_len_k: {numbers}}}\n" for n in range(6))
    (found,) = mistakes(HEAD + entries)
    assert (found.line, found.message) == (
        14,
        "the suite has more than 4096 cases, counted up to this entry; split the suite",
    )


def test_a_matrix_that_copies_too_much_is_a_mistake(mistakes: Mistakes) -> None:
    numbers = list(range(1, 33))
    more = "".join(f"    x-k{n}: 1\n" for n in range(500))
    (found,) = mistakes(f"{HEAD}  - name: a\n    matrix: {{seq_len_q: {numbers}, seq_len_k: {numbers}}}\n{more}")
    assert "keys and values in total; at most 131072" in found.message
