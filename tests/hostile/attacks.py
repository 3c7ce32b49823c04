"""
Messages that a fake worker sends instead of the correct ones, as data: when, and the code that sends them.

when: the message that is replaced: hello (the first one), began, answer (to the call with batch size 13), or bye (the
last one). The code can use `fields` and `tensors` of the honest message, `send(kind, fields, tensors)`, `header(text)`
(sends a frame with this header), `raw(bytes)` and `number` of the request.
"""

from dataclasses import dataclass
from typing import Literal

When = Literal["hello", "began", "answer", "bye"]


@dataclass(frozen=True)
class Attack:
    """
    One attack of a fake worker.

    costs: the verdict of the call, or several allowed verdicts. "" if every worker ends before the call begins: the
    tool then gives up on the worker, since no call is charged for what happens between two calls.
    """

    when: When
    code: str
    costs: str


def _each(when: When, costs: str, **codes: str) -> dict[str, Attack]:
    return {name: Attack(when, code, costs) for name, code in codes.items()}


OUTPUT = "tensors['output']"

ATTACKS: dict[str, Attack] = {
    **_each(
        "answer",
        "crash",
        no_frame="raw(b'hello, I am a framework')",
        zeros="raw(bytes(256))",
        other_magic="raw(b'ACW2' + bytes(12))",
        header_too_long="raw(PREFIX.pack(MAGIC, 2**31, 0))",
        body_too_long="raw(PREFIX.pack(MAGIC, 2, 2**62))",
        body_longer_than_asked="send('reply', fields, {'output': Tensor.of(np.zeros(1 << 22, 'float32'))})",
        half_a_prefix="raw(b'ACW1'); os._exit(0)",
        half_a_header="raw(PREFIX.pack(MAGIC, 100, 0) + b'{'); os._exit(0)",
        half_a_body="raw(PREFIX.pack(MAGIC, 2, 100) + b'{}'); os._exit(0)",
        no_json="header('hello')",
        empty_header="header('')",
        nan_in_json='header(\'{"kind": "reply", "fields": {"x": NaN}, "tensors": []}\')',
        huge_float='header(\'{"kind": "reply", "fields": {"x": 1e999}, "tensors": []}\')',
        huge_integer='header(\'{"kind": "reply", "fields": {"x": \' + \'9\' * 5000 + \'}, "tensors": []}\')',
        twice_a_key='header(\'{"kind": "reply", "kind": "reply", "fields": {}, "tensors": []}\')',
        deep_json="header('[' * 100000)",
        not_utf8="raw(PREFIX.pack(MAGIC, 2, 0) + b'\\xff\\xfe')",
        a_list_as_header="header('[]')",
        other_parts='header(\'{"kind": "reply"}\')',
        kind_is_a_number='header(\'{"kind": 1, "fields": {}, "tensors": []}\')',
        unknown_kind="send('praise', fields, tensors)",
        hello_again="send('hello', {'protocol': 1}, {})",
        failed_now="send('failed', {'type': 'x', 'message': 'y'}, {})",
        bye_now="send('bye', {'peak': 1}, {})",
        began_again="send('began', {'number': number}, {})",
        no_fields="send('reply', {}, tensors)",
        no_number="del fields['number']; send('reply', fields, tensors)",
        other_number="send('reply', fields | {'number': number + 1}, tensors)",
        number_of_none="send('reply', fields | {'number': None}, tensors)",
        number_of_text="send('reply', fields | {'number': str(number)}, tensors)",
        number_of_true="send('reply', fields | {'number': True}, tensors)",
        number_beyond="send('reply', fields | {'number': 10**400}, tensors)",
        missing_output="send('reply', fields, {})",
        misnamed_output=f"send('reply', fields, {{'outptu': {OUTPUT}}})",
        extra_output=f"send('reply', fields, {{**tensors, 'weights': {OUTPUT}}})",
        odd_named_output=f"send('reply', fields, {{'\\udce9': {OUTPUT}}})",
        no_declaration="send('reply', fields | {'declaration': None}, tensors)",
        declaration_of_a_list="send('reply', fields | {'declaration': []}, tensors)",
        declaration_without_profile="send('reply', fields | {'declaration': {'dialect': [], 'evidence': ''}}, tensors)",
        profile_of_text="send('reply', declared(profile='float32'), tensors)",
        profile_with_more="send('reply', declared(profile=profile | {'more': 1}), tensors)",
        profile_with_less="send('reply', declared(profile={'exp_ulp': 1}), tensors)",
        profile_of_other_types="send('reply', declared(profile=profile | {'store': 3}), tensors)",
        profile_with_nan="send('reply', declared(profile=profile | {'exp_ulp': 'nan'}), tensors)",
        profile_beyond="send('reply', declared(profile=profile | {'exp_ulp': 10**400}), tensors)",
        profile_flag="send('reply', declared(profile=profile | {'ftz': 'yes'}), tensors)",
        dialect_of_numbers="send('reply', declared(dialect=[{'decision': 1, 'name': [], 'source': {}}]), tensors)",
        dialect_of_text="send('reply', declared(dialect='abc'), tensors)",
        dialect_with_more="send('reply', declared(dialect=[{'decision': 'scale', 'name': 'none', 'source': '', 'x': 1}]), tensors)",
        half_a_character="send('reply', declared(evidence='caf\\udce9'), tensors)",
        evidence_of_a_list="send('reply', fields | {'evidence': [['a', 'b']]}, tensors)",
        evidence_half_a_character="send('reply', fields | {'evidence': {'\\udce9': 1}}, tensors)",
        evidence_deep="send('reply', fields | {'evidence': {'x': nested(400)}}, tensors)",
        evidence_odd_devices="send('reply', fields | {'evidence': {'ran_on': 'cpu'}}, tensors)",
        seconds_of_a_list="send('reply', fields | {'seconds': []}, tensors)",
        seconds_of_text="send('reply', fields | {'seconds': {'call': 'long'}}, tensors)",
        seconds_of_nan="send('reply', fields | {'seconds': {'call': 'nan'}}, tensors)",
        seconds_below_none="send('reply', fields | {'seconds': {'call': -1}}, tensors)",
        seconds_beyond="send('reply', fields | {'seconds': {'cpu': 10**400}}, tensors)",
        seconds_of_others="send('reply', fields | {'seconds': {'judge': 1}}, tensors)",
        peak_of_text="send('reply', fields | {'peak': 'much'}, tensors)",
        peak_below_none="send('reply', fields | {'peak': -1}, tensors)",
        reply_with_an_error="send('reply', fields | {'error': dict.fromkeys(('type', 'message', 'traceback', 'stage'), 'x')}, tensors)",
        error_without_one="send('error', fields, {})",
        error_with_less="send('error', fields | {'error': {'type': 'x'}}, {})",
        error_of_numbers="send('error', fields | {'error': {'type': 1, 'message': 2, 'traceback': 3, 'stage': 4}}, {})",
        error_of_another_stage="send('error', fields | {'error': dict.fromkeys(('type', 'message', 'traceback', 'stage'), 'x')}, {})",
        error_half_a_character="send('error', fields | {'error': {'type': 'x', 'message': '\\udce9', 'traceback': '', 'stage': 'adapter'}}, {})",
        error_with_outputs="send('error', fields | {'error': {'type': 'x', 'message': 'y', 'traceback': '', 'stage': 'adapter'}}, tensors)",
        declined_without_reason="send('unsupported', fields, {})",
        declined_with_a_list="send('unsupported', fields | {'reason': ['x']}, {})",
        tensor_twice="frame([['output', 'float32', [1]], ['output', 'float32', [1]]], bytes(68))",
        tensor_without_name="frame([[None, 'float32', [1]]], bytes(4))",
        tensor_of_no_type="frame([['output', 'float33', [1]]], bytes(4))",
        tensor_below_none="frame([['output', 'float32', [-1]]], bytes(4))",
        tensor_of_true="frame([['output', 'float32', [True]]], bytes(4))",
        tensor_of_many_axes="frame([['output', 'float32', [1] * 65]], bytes(4))",
        tensor_beyond="frame([['output', 'float32', [10**30, 10**30]]], bytes(4))",
        tensor_of_nothing_beyond="frame([['output', 'float32', [0, 10**30]]], b'')",
        tensor_of_nothing_wide="frame([['output', 'float32', [0, 2**40, 2**40]]], b'')",
        tensor_longer_than_body="frame([['output', 'float32', [1000]]], bytes(4))",
        tensor_shorter_than_body="frame([['output', 'float32', [1]]], bytes(400))",
        bool_of_two="frame([['output', 'bool', [4]]], bytes([0, 1, 2, 3]))",
    ),
    **_each("answer", "crash timeout", closes_its_side="os.close(answers.fileno()); time.sleep(60)"),
    **_each(
        "answer",
        "timeout",
        silence="time.sleep(60)",
        half_a_frame_and_silence="raw(b'ACW1'); time.sleep(60)",
        slow_drip="[(raw(b'A'), time.sleep(30)) for _ in range(9)]",
    ),
    **_each(
        "began",
        "crash",
        floods_with_beginnings="[send('began', {'number': number}, {}) for _ in range(5000)]",
    ),
    **_each(
        "began",
        "",
        answers_what_had_not_begun="send('reply', {**EMPTY, 'number': number}, {}); os._exit(0)",
        begins_what_there_is_not="send('began', {'number': 999}, {}); os._exit(0)",
        begins_text="send('began', {'number': 'x'}, {}); os._exit(0)",
        begins_nothing="send('began', {}, {}); os._exit(0)",
    ),
    **_each(
        "bye",
        "pass",
        bye_without_peak="send('bye', {}, {})",
        bye_of_text="send('bye', {'peak': 'much'}, {})",
        bye_beyond="send('bye', {'peak': 10**400}, {})",
        no_bye="pass",
        garbage_at_the_end="raw(b'x' * 10000)",
        answers_at_the_end="send('reply', {**EMPTY, 'number': 1}, {})",
        floods_at_the_end="[send('bye', {'peak': 1}, {}) for _ in range(5000)]",
        floods_for_ever='exec(\'while True: send("bye", {"peak": 1}, {})\')',
        silence_at_the_end="time.sleep(60)",
    ),
    **_each(
        "hello",
        "",
        hello_of_another_version="send('hello', fields | {'protocol': 2}, {})",
        hello_without_fields="send('hello', {'protocol': 1}, {})",
        hello_of_odd_evidence="send('hello', fields | {'evidence': 5}, {})",
        hello_of_odd_versions="send('hello', fields | {'versions': {'x': 1}}, {})",
        hello_of_half_a_character="send('hello', fields | {'python': '\\udce9'}, {})",
        hello_of_text_for_cpu="send('hello', fields | {'cpu': 'much'}, {})",
        hello_of_peak_beyond="send('hello', fields | {'peak': 1.5}, {})",
        failed_of_numbers="send('failed', {'type': 1, 'message': [2]}, {})",
        failed_of_half_a_character="send('failed', {'type': 'x', 'message': '\\udce9'}, {})",
        failed_of_nothing="send('failed', {}, {})",
        reply_before_hello="send('reply', {}, {})",
        no_hello="raw(b'hello')",
        large_hello="raw(PREFIX.pack(MAGIC, 2, 2**40))",
        silent_start="time.sleep(600)",
    ),
}
