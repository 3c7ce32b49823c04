"""Which part of an exception is shown, and when two exceptions count as one failure."""

from conformance.verdicts.verdict import MAX_CHARACTERS, gist, root

ORT = (
    "Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Attention node. Name:'node_1' "
    "Status Message: /onnxruntime_src/attention_helper.h:{} Status ComputeOutputShape(const Tensor*, const Tensor*, "
    "const Tensor*, const Tensor*, const Tensor*, bool, float, int) past_key != nullptr was false. "
    "past_key and past_value must be both present or both absent"
)
KERAS = (
    "Exception encountered when calling MultiHeadAttention.call().\n\n\x1b[1mvalue shape should be [2, 7]: but got "
    "(2, 8)\x1b[0m\n\nArguments received by MultiHeadAttention.call():\n  • query=Tensor(shape=(2, 5, 16))"
)


def test_of_a_long_message_the_end_is_shown() -> None:
    said = gist(ORT.format(68))
    assert said.startswith("… ")
    assert said.endswith("past_key and past_value must be both present or both absent")
    assert len(said) <= MAX_CHARACTERS


def test_what_a_framework_wraps_around_a_message_is_left_out() -> None:
    assert gist(KERAS) == "value shape should be [2, 7]: but got (2, 8)"
    jax = "no dot_general on CPU\n--------------------\nFor simplicity, JAX has removed its internal frames"
    assert gist(jax) == "no dot_general on CPU"
    assert gist("one line\nand another") == "one line and another"
    assert gist("") == ""


def test_one_root_has_one_name_whatever_the_class_the_code_and_the_numbers() -> None:
    assert root(ORT.format(68)) == root(ORT.format(91).replace("1 : FAIL", "6 : RUNTIME_EXCEPTION"))
    assert root("RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : no kernel") == root("no kernel")
    assert root("shape (3, 4) at 0xdeadbeef") == root("shape (5, 12) at 0x1f")
    assert root("mask is c10::Half and query float") == root("mask is c10::BFloat16 and query double")
    assert root("expected torch.float64") == root("expected torch.bfloat16") != root("expected torch.int64")


def test_other_messages_have_other_roots() -> None:
    assert root("ValueError: query is too long") != root("ValueError: key is too long")
    assert root(KERAS) != root(ORT)
