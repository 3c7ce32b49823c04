"""
The behaviours of hostile adapters, as data: where the behaviour happens, its code, and what it may cost.

place: import (when the file is loaded), declare, call (inside the framework call) or evidence. All except import happen
only in the case with batch size 13. costs: the verdict of that call; empty if the adapter never starts.
"""

from dataclasses import dataclass
from typing import Literal

Place = Literal["import", "declare", "call", "evidence"]


@dataclass(frozen=True)
class Behaviour:
    """
    One behaviour of an adapter.

    costs: the verdict, several allowed verdicts, or "" if the adapter never starts. spills: it changes the worker's own
    code, which also serves the later calls: these may have any verdict, but each has one.
    """

    place: Place
    code: str
    costs: str
    spills: bool = False


def _each(place: Place, costs: str, /, *, spills: bool = False, **codes: str) -> dict[str, Behaviour]:
    return {name: Behaviour(place, code, costs, spills) for name, code in codes.items()}


BEHAVIOURS: dict[str, Behaviour] = {
    **_each(
        "call",
        "crash",
        exits="os._exit(3)",
        exits_with_zero="os._exit(0)",
        exits_with_255="os._exit(255)",
        segfault="ctypes.string_at(0)",
        abort="os.abort()",
        sigkill="os.kill(os.getpid(), signal.SIGKILL)",
        sigterm="os.kill(os.getpid(), signal.SIGTERM)",
        sigpipe="signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGPIPE)",
        kills_its_group="os.killpg(0, signal.SIGKILL)",
        real_time_signal="os.kill(os.getpid(), signal.SIGRTMIN + 3)",
        exits_in_a_thread="threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(30)",
        forks_and_dies="os.fork() and os._exit(1); time.sleep(3600)",
        forks_away_and_dies="os.fork() and os._exit(1); os.setsid(); time.sleep(3600)",
        forks_twice_and_dies="os.fork() and os._exit(1); os.setsid(); os.fork() and os._exit(0); time.sleep(3600)",
        closes_everything="os.closerange(3, 256)",
        prints_on_the_protocol="say(b'hello')",
        prints_newlines_on_the_protocol="say(b'\\n' * 4096)",
        prints_zeros_on_the_protocol="say(bytes(64))",
        prints_half_a_frame="say(b'ACW1' + bytes(3)); os._exit(0)",
        announces_much="say(b'ACW1' + (9).to_bytes(4, 'little') + (2**60).to_bytes(8, 'little'))",
        stack_overflow="sys.setrecursionlimit(10**9); threading.stack_size(1 << 16); f = lambda g: g(g); ctypes.string_at(1)",
        replaces_the_process="os.execv('/bin/true', ['true'])",
        becomes_a_shell="os.execv('/bin/sh', ['sh', '-c', 'echo hello >&2; exit 7'])",
    ),
    **_each(
        "call",
        "crash error",
        address_space="resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)); bytearray(1 << 28)",
        no_files="resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0)); open('/dev/null')",
    ),
    **_each(
        "call",
        "crash timeout",
        cpu_limit="resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); exec('while True: pass')",
        alarm="signal.alarm(1); time.sleep(30)",
        stops_itself="os.kill(os.getpid(), signal.SIGSTOP)",
    ),
    **_each(
        "call",
        "timeout",
        hangs="time.sleep(3600)",
        hangs_in_a_loop="exec('while True: pass')",
        hangs_and_ignores_signals="[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 10, 12, 15)]; time.sleep(3600)",
        hangs_holding_the_gil="ctypes.PyDLL(None).sleep(3600)",
        hangs_flooding="exec('while True: os.write(2, b\"x\" * 65536)')",
        waits_for_a_child="os.waitpid(os.fork() or time.sleep(3600), 0)",
        waits_for_a_lock="lock = threading.Lock(); lock.acquire(); lock.acquire()",
    ),
    **_each(
        "call",
        "error",
        raises="raise ValueError('no')",
        raises_half_a_character="raise ValueError('cannot open caf\\udce9')",
        raises_controls="raise ValueError('\\x1b]0;title\\x07\\x1b[31m\\x00 ::error::x')",
        raises_nothing="raise ValueError",
        raises_system_exit="sys.exit('done')",
        raises_keyboard_interrupt="raise KeyboardInterrupt",
        raises_generator_exit="raise GeneratorExit",
        raises_a_group="raise ExceptionGroup('many', [ValueError(n) for n in range(500)])",
        raises_much="raise ValueError('no ' * 10**6)",
        raises_odd_name="raise type('\\udce9\\n::error::', (Exception,), {})('x')",
        raises_without_text="raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()",
        raises_without_repr="raise type('Mute', (Exception,), {'__str__': lambda self: None, '__repr__': lambda self: None})()",
        raises_with_a_long_cause="raise ValueError('x') from chain(300)",
        recurses="f = lambda f: f(f); f(f)",
        returns_none="return None",
        returns_a_list="return [result['output']]",
        returns_nothing="return {}",
        returns_other_names="return {'outptu': result['output']}",
        returns_numbers_as_names="return {0: result['output']}",
        returns_objects="return {'output': np.array([object()])}",
        returns_a_text="return {'output': 'no array'}",
        returns_a_ragged_list="return {'output': [[1, 2], [3]]}",
        returns_complex="return {'output': result['output'] * 1j}",
        returns_dates="return {'output': np.zeros(3, 'datetime64[s]')}",
        returns_a_generator="return {'output': (n for n in range(3))}",
        returns_too_much="return {'output': np.zeros(1 << 24)}",
        returns_a_mask="return {'output': np.ma.masked_all(result['output'].shape, 'float32')}",
        returns_masked="return {'output': np.ma.masked}",
        returns_what_raises="return {'output': type('Odd', (), {'__array__': lambda self, *a, **k: 1 / 0})()}",
        names_raise="return type('Odd', (dict,), {'__contains__': lambda self, name: 1 / 0})()",
        memory="np.empty(1 << 58)",
        declines_late="raise Unsupported('I have seen it')",
        warns_as_error="import warnings; warnings.simplefilter('error'); np.float32(1) / np.float32(0)",
    ),
    **_each(
        "call",
        "fail",
        returns_nan="result['output'][:] = np.nan",
        returns_infinity="result['output'][:] = np.inf",
        returns_zeros="result['output'][:] = 0",
        returns_another_shape="return {'output': result['output'][..., :1]}",
        returns_another_rank="return {'output': result['output'].ravel()}",
        returns_a_number="return {'output': np.float32(1)}",
        returns_an_empty_array="return {'output': np.zeros((0, 3), 'float32')}",
        returns_no_elements="return {'output': np.zeros((13, 2, 5, 0), 'float32')}",
        returns_booleans="return {'output': result['output'] > 0}",
        returns_integers="return {'output': result['output'].astype('int64')}",
        returns_half="return {'output': result['output'].astype('float16')}",
        returns_big_endian="return {'output': result['output'].astype('>f4') * 2}",
        returns_other_memory="return {'output': np.frombuffer(os.urandom(result['output'].nbytes), 'float32').reshape(result['output'].shape)}",
    ),
    **_each(
        "call",
        "pass",
        returns_more="return {**result, 'never_asked_for': np.zeros(3), 5: None}",
        returns_a_view="return {'output': np.broadcast_to(result['output'], result['output'].shape)}",
        prints="print('::error::no', file=sys.stdout); print('\\x1b[31m', file=sys.stderr)",
        floods_stderr="os.write(2, b'x' * (1 << 22))",
        floods_stdout="os.write(1, b'x' * (1 << 22))",
        binary_on_stderr="os.write(2, bytes(range(256)) * 100)",
        reads_stdin="sys.stdin.read()",
        closes_stdout="os.closerange(1, 2)",
        closes_stderr="os.closerange(2, 3)",
        leaves_a_thread="threading.Thread(target=time.sleep, args=(3600,)).start()",
        leaves_a_daemon_thread="threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()",
        leaves_a_child="subprocess.Popen(['sleep', '3600'])",
        leaves_a_grandchild="subprocess.Popen(['sleep', '3600'], start_new_session=True)",
        leaves_an_orphan="subprocess.run(['sh', '-c', 'setsid sleep 3600 & exit 0'])",
        leaves_an_orphan_without_environment="subprocess.run(['sh', '-c', 'setsid env -i sleep 3600 & exit 0'])",
        exit_handler_hangs="atexit.register(time.sleep, 3600)",
        exit_handler_raises="atexit.register(lambda: 1 / 0)",
        exit_handler_dies="atexit.register(os._exit, 9)",
        changes_folder="os.chdir('/')",
        clears_the_environment="os.environ.clear()",
        no_output_limit="sys.set_int_max_str_digits(0)",
        removes_its_folder="shutil.rmtree(HOME, ignore_errors=True)",
        ignores_children="signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        writes_into_inputs="call.query.bits.setflags(write=True)",
    ),
    **_each(
        "call",
        "pass crash error fail",
        spills=True,
        patched_json="import json; json.dumps = lambda *a, **k: '{\"kind\": 1}'",
        patched_struct="from conformance.bridge import wire; wire.MAGIC = b'XXXX'",
        patched_array="np.asarray = None",
        patched_clock="time.perf_counter = lambda: float('nan')",
        patched_clock_backwards="time.process_time = lambda n=iter(range(10**6, 0, -1)): float(next(n))",
        patched_serving="from conformance.bridge import serving; serving.evidence_of = lambda adapter: {'ran_on': 5}",
        patched_reply="from conformance.bridge import worker; worker.answer = lambda adapter, request: None",
        patched_messages="from conformance.bridge import worker; worker.answer_message = lambda answer: None",
        patched_peak="from conformance.bridge import worker; worker._peak = lambda: 'much'",
        patched_tensor="from conformance.bridge.tensor import STORAGE; STORAGE['float32'] = 'float64'",
        exits_later="threading.Timer(0.05, os._exit, [9]).start()",
        freezes_the_collector="import gc; gc.disable(); gc.freeze()",
    ),
    **_each(
        "declare",
        "error",
        declares_nothing="return None",
        declares_a_mapping="return {'profile': 'float32'}",
        declares_raising="raise LookupError('no such kernel')",
        declares_no_decision="return Declaration(PROFILE, (Deviation('no_such_decision', 'x', 'https://example.org'),))",
        declares_no_way="return Declaration(PROFILE, (Deviation('scale', 'no_such_way', 'https://example.org'),))",
        declares_a_bracket="return Declaration(PROFILE, (Deviation('polarity[', ']', 'https://example.org'),))",
        declares_an_odd_slot="return Declaration(PROFILE, (Deviation('polarity[\\n]', 'inverted', 'https://example.org'),))",
        declares_an_odd_profile="return Declaration(Profile.uniform('float33'))",
        declares_a_number_for_a_type="return Declaration(Profile.uniform('float32').but(store=3))",
        declares_a_text_for_a_number="return Declaration(Profile.uniform('float32').but(exp_ulp='float32'))",
        declares_nan_for_a_number="return Declaration(Profile.uniform('float32').but(exp_ulp=float('nan')))",
        declares_a_far_shift="return Declaration(PROFILE, (Deviation('causal_alignment', 'shifted_1e300', 'x'),))",
        declares_half_a_shift="return Declaration(PROFILE, (Deviation('causal_alignment', 'shifted_0.5', 'x'),))",
    ),
    **_each(
        "declare",
        "error crash",
        declares_numbers="return Declaration(PROFILE, (Deviation(3, [4], 'https://example.org'),))",
        declares_a_text_as_dialect="return Declaration(PROFILE, 'abc')",
        declares_half_a_character="return Declaration(PROFILE, (), 'caf\\udce9')",
        declares_no_profile="return Declaration(None)",
        declares_evidence_as_list="return Declaration(PROFILE, (), ['x'])",
        declares_an_object="return Declaration(PROFILE, (), object())",
        declares_a_deep_name="return Declaration(PROFILE, (Deviation('logit_limit', '1e-320', 'x' * 10**7),))",
    ),
    **_each(
        "declare",
        "pass dialect fail error inconclusive",
        declares_a_huge_factor="return Declaration(PROFILE, (Deviation('scale', 'times_1e308', 'x'),))",
        declares_a_large_factor="return Declaration(PROFILE, (Deviation('scale', 'times_1e60', 'x'),))",
        declares_a_huge_error="return Declaration(PROFILE.but(exp_ulp=1e300))",
        declares_zero="return Declaration(PROFILE, (Deviation('scale', 'is_0', 'x'),))",
        declares_infinity="return Declaration(PROFILE, (Deviation('scale', 'times_inf', 'x'),))",
        declares_nan="return Declaration(PROFILE, (Deviation('scale', 'times_nan', 'x'),))",
    ),
    **_each(
        "declare",
        "crash",
        declares_and_exits="os._exit(5)",
    ),
    **_each(
        "declare",
        "timeout",
        declares_forever="time.sleep(3600)",
    ),
    **_each(
        "evidence",
        "error crash",
        evidence_raises="raise ValueError('no')",
        evidence_is_a_list="return ['x']",
        evidence_is_an_object="return {'x': object()}",
        evidence_has_numbers_as_names="return {1: 2}",
        evidence_has_half_a_character="return {'x': '\\udce9'}",
        evidence_has_a_name_of_half_a_character="return {'\\udce9': 1}",
        evidence_is_deep="return {'x': nested(200)}",
        evidence_is_deeper="return {'x': nested(5000)}",
        evidence_is_itself="loop = {}; loop['x'] = loop; return loop",
        evidence_is_long="return {'x': 'y' * 10**7}",
        evidence_has_a_huge_number="return {'x': 10**5000}",
        evidence_says_odd_devices="return {'ran_on': 5}",
        evidence_says_odd_libraries="return {'libraries': 5}",
        evidence_says_odd_environment="return {'environment': [1]}",
        evidence_says_odd_nodes="return {'nodes': {'cpu': 5}}",
        evidence_says_odd_versions="return {'versions': {'x': 1}}",
    ),
    **_each(
        "evidence",
        "pass",
        evidence_is_empty="return {}",
        evidence_has_nan="return {'x': float('nan'), 'y': float('inf')}",
        evidence_has_controls="return {'x': '\\x1b]0;t\\x07\\x00', '::error::': 1}",
    ),
    **_each(
        "import",
        "",
        import_exits="os._exit(3)",
        import_exits_with_zero="os._exit(0)",
        import_segfault="ctypes.string_at(0)",
        import_raises="raise ImportError('libframework.so.7')",
        import_raises_half_a_character="raise ImportError('caf\\udce9')",
        import_raises_much="raise ImportError('x' * 10**7)",
        import_system_exit="sys.exit(0)",
        import_prints_on_the_protocol="say(b'hello')",
        import_closes_everything="os.closerange(3, 256)",
        import_hangs="time.sleep(3600)",
        import_replaces_the_process="os.execv('/bin/true', ['true'])",
        import_evidence_half_a_character="globals().__setitem__('SAID', {'x': '\\udce9'})",
        import_evidence_odd="globals().__setitem__('SAID', {'libraries': [5]})",
        import_forks_away="os.fork() and os._exit(1); os.setsid(); time.sleep(3600)",
    ),
}

TEMPLATE = '''\
"""A hostile adapter: NAME_HERE."""

NAME = "hostile.NAME_HERE"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {}

import atexit, ctypes, os, resource, shutil, signal, subprocess, sys, threading, time
from contextlib import suppress

import numpy as np

from conformance.bridge import Call, Declaration, Deviation, Profile, Unsupported, framework_call

PROFILE = Profile.uniform("float32")
HOME = os.getcwd()
SAID = {}
LYING = False


def descriptors():
    """Every pipe that is open beside the standard ones: the protocol is among them."""
    for number in range(3, 64):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:"):
                yield number


def say(content):
    """Write to every pipe that can be written to."""
    for number in list(descriptors()):
        with suppress(OSError):
            os.write(number, content)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def chain(length):
    error = ValueError("the first")
    for number in range(length):
        later = ValueError(number)
        later.__cause__ = error
        error = later
    return error


IMPORT_HERE


def declare(facts):
    global LYING
    LYING = facts.sizes["batch"] == 13
    if LYING:
        DECLARE_HERE
    return Declaration(PROFILE, (), "the template")


def sdpa(call):
    with framework_call():
        logits = call.query.bits @ call.key.bits.swapaxes(-1, -2) * np.float32(call.query.shape[-1] ** -0.5)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        result = {"output": weights / weights.sum(-1, keepdims=True) @ call.value.bits}
        if LYING:
            CALL_HERE
    return result


def evidence():
    if LYING:
        EVIDENCE_HERE
    return SAID
'''


def adapter_text(name: str) -> str:
    """The adapter file of one behaviour."""
    behaviour = BEHAVIOURS[name]
    text = TEMPLATE.replace("NAME_HERE", name)
    for place in ("import", "declare", "call", "evidence"):
        text = text.replace(f"{place.upper()}_HERE", behaviour.code if place == behaviour.place else "pass")
    return text
