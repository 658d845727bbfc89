"""Model files gone wrong: by accident, and on purpose with a checksum that fits.

Accidents change bytes and leave the checksum behind; such a file must never load. Forgeries change
the header or the arrays and sign them anew; they are refused, or load as a density that answers.
"""

import functools
import hashlib
import io
import json
import pickle
import zipfile

import numpy as np

from diracflow.storage import container

KIND = "diracflow"


def unpacked(content):
    """Header and arrays of a good file."""
    return tuple(container.unpacked(content, KIND))


def signed(header, arrays):
    """A file with a checksum that fits; the header may be a text."""
    text = header if isinstance(header, str) else json.dumps(header)
    return container.packed(KIND, text, arrays)


# Accidents: functions of a generator of random numbers and the content of a good file.


def truncated(rng, content):
    return content[: rng.integers(len(content))]


def extended(rng, content):
    return content + rng.bytes(rng.integers(1, 100))


def flipped(rng, content):
    changed = bytearray(content)
    for place in rng.choice(len(content), rng.integers(1, 9), replace=False):
        changed[place] ^= 1 << rng.integers(8)
    return bytes(changed)


def flipped_table(rng, content):
    changed = bytearray(content)
    changed[rng.integers(8 + int.from_bytes(content[:8], "little"))] ^= 1 << rng.integers(8)
    return bytes(changed)


def overwritten(rng, content):
    begin = rng.integers(len(content))
    junk = rng.bytes(rng.integers(1, 64))
    return content[:begin] + junk + content[begin + len(junk) :]


def zeroed(rng, content):
    begin = rng.integers(len(content))
    count = min(4096, len(content) - begin)
    return content[:begin] + bytes(count) + content[begin + count :]


def cut_out(rng, content):
    begin, end = sorted(rng.integers(len(content), size=2))
    return content[:begin] + content[end + 1 :]


def repeated(rng, content):
    begin, end = sorted(rng.integers(len(content), size=2))
    return content[: end + 1] + content[begin:]


def other_length(rng, content):
    length = int.from_bytes(content[:8], "little")
    choices = (0, 1, length - 1, length + 1, length + 8, 2**24 + 1, 2**31, 2**63, 2**64 - 1)
    return int(choices[rng.integers(len(choices))]).to_bytes(8, "little") + content[8:]


def other_digit(rng, content):
    length = int.from_bytes(content[:8], "little")
    places = [i for i in range(8, 8 + length) if chr(content[i]).isdigit()]
    changed, place = bytearray(content), places[rng.integers(len(places))]
    changed[place] = ord("0") + (changed[place] - ord("0") + rng.integers(1, 10)) % 10
    return bytes(changed)


def other_space(rng, content):
    length = int.from_bytes(content[:8], "little")
    white = b" \t\n\r"[rng.integers(4)]
    places = [i for i in range(8, 8 + length) if content[i] in b" ,:"]
    changed, place = bytearray(content), places[rng.integers(len(places))]
    changed[place : place + (changed[place] == 32)] = bytes([white])
    return bytes(changed)


ACCIDENTS = (
    *(truncated, extended, flipped, flipped_table, overwritten, zeroed, cut_out, repeated),
    *(other_length, other_digit, other_space),
)


# Files of another kind.


class Payload:
    """What a pickle would run."""

    def __reduce__(self):
        return exec, ("raise SystemExit('a file was executed')",)


def _archive(name, data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _table(table, data=b""):
    text = table if isinstance(table, bytes) else json.dumps(table, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + data
    checksum = hashlib.sha256(content).hexdigest().encode()
    return content.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + checksum)


@functools.cache
def foreign():
    """Files that never were models, by name."""
    tensor = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    metadata = {KIND: "{}", "sha256": "0" * 64}
    deep = 1_000_000
    return {
        "empty": b"",
        "pickle": pickle.dumps(Payload()),
        "pickle in the table": _table(pickle.dumps(Payload())),
        "pickled array": _npz(a=np.array([Payload()], dtype=object)),
        "npz": _npz(thetas=np.zeros((3, 4))),
        "zip bomb": _archive("model", bytes(2**26)),
        "zip bomb in the table": _table(_archive("model", bytes(2**26))),
        "text": b"horizon = 1\n" * 100,
        "zeros": bytes(1000),
        "lists in lists": _table(b"[" * deep),
        "objects in objects": _table(b'{"a":' * deep),
        "lists in lists in an object": _table(b'{"a":' + b"[" * deep + b"]" * deep + b"}"),
        "a string without end": _table(b'{"' + b'\\"' * deep),
        "many values": _table(b'{"a":[' + b"[]," * 5_000_000 + b"[]]}"),
        "many names": _table(b"{" + b",".join(b'"%d":0' % i for i in range(200_000)) + b"}"),
        "a name twice": _table(b'{"__metadata__":{},"__metadata__":{}}'),
        "a long number": _table(b'{"a":' + b"9" * deep + b"}"),
        "a large number": _table(b'{"a":1e999}'),
        "not Unicode": _table(b'{"\xff\xfe":0}'),
        "half a pair": _table(b'{"__metadata__":{"diracflow":"\\ud800","sha256":""}}'),
        "a list": _table(b"[1,2]"),
        "no metadata": _table({"a": tensor}, bytes(8)),
        "other metadata": _table({"__metadata__": {"format": "pt"}, "a": tensor}, bytes(8)),
        "an empty header": _table({"__metadata__": metadata}),
        **{
            f"array {entry}": _table({"__metadata__": metadata, "a": {**tensor, **entry}}, bytes(8))
            for entry in (
                {"shape": [2**62]},
                {"shape": [2**40, 2**40]},
                {"shape": [-1]},
                {"shape": [0] * 1000},
                {"shape": "1"},
                {"shape": [1.0]},
                {"shape": [True]},
                {"dtype": "F99"},
                {"dtype": ["F64"]},
                {"data_offsets": [0, 2**63]},
                {"data_offsets": [8, 0]},
                {"data_offsets": []},
                {"data_offsets": None},
            )
        },
    }


# Forgeries: functions of a generator, a header and arrays.

STRANGE = (
    *(None, True, False, 0, 1, -1, 2, 7, 10**6, 10**15, 10**29, 2**63, -(2**63)),
    *(0.0, -0.0, 0.5, 1.5, 1e-320, 1e-8, 1e8, 1e100, 1e308, -1e308),
    *("", "1", "0.5", "NaN", "Infinity", "benes", "monotone", "FINISHED", "Normal", "closure"),
    *("\x1b[2J", "\ud800", "é", "a" * 100_000, "__class__", "../../etc/passwd"),
    *([], [1], [[1]], [1, "a"], [None], [0.1] * 5000, {}, {"a": 1}, {"law": "Normal"}),
    *({"float": "NaN"}, {"float": "1"}, {"list": []}, {"dict": {}}, {"sde": "given"}, {"sde": 1}),
    *({"array": "density.trajectory.thetas"}, {"array": "absent"}, {"array": None}),
    *({"class": "Status", "member": "FINISHED"}, {"class": "Status", "member": "__class__"}),
    *({"class": "os.system", "fields": {}}, {"class": "Real", "fields": {}}),
    *({"class": "Normal", "fields": {}}, {"class": "Real", "fields": {"__class__": 1}}),
    {"class": "Product", "fields": {"laws": [{"class": "Real", "fields": {}}] * 2000}},
    {"class": "Positive", "fields": {"power": 1e9, "scale": -1}},
)


def _with(value, place, change):
    """A copy in which `change` has been applied to the container of the last step of a place."""
    copied = json.loads(json.dumps(value))
    at = copied
    for name in place[:-1]:
        at = at[name]
    change(at, place[-1])
    return copied


def _any_place(rng, header):
    # Entries of an object count alike: there are many records of steps, and one horizon.
    place, at = (), header
    while isinstance(at, dict | list) and len(at) and (not place or rng.random() > 0.05):
        names = list(at) if isinstance(at, dict) else range(len(at))
        name = names[rng.integers(len(names))]
        place, at = (*place, name), at[name]
    return place or ("format",)


def _value_at(header, place):
    for name in place:
        header = header[name]
    return header


def strange_value(rng, header, arrays):
    value = STRANGE[rng.integers(len(STRANGE))]
    return _with(header, _any_place(rng, header), lambda at, name: _set(at, name, value)), arrays


def scaled_number(rng, header, arrays):
    place = _any_place(rng, header)
    value = _value_at(header, place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return strange_value(rng, header, arrays)
    factor = 10.0 ** rng.integers(-12, 12) * (-1) ** rng.integers(2)
    scaled = type(value)(value * factor + rng.integers(-1, 2))
    return _with(header, place, lambda at, name: _set(at, name, scaled)), arrays


def without_entry(rng, header, arrays):
    return _with(header, _any_place(rng, header), lambda at, name: at.pop(name)), arrays


def with_entry(rng, header, arrays):
    def insert(at, name):
        if isinstance(at, list):
            at.insert(name, at[name])
        else:
            at["further"] = STRANGE[rng.integers(len(STRANGE))]

    return _with(header, _any_place(rng, header), insert), arrays


def moved_entry(rng, header, arrays):
    value = _value_at(header, _any_place(rng, header))
    return _with(header, _any_place(rng, header), lambda at, name: _set(at, name, value)), arrays


def bare_token(rng, header, arrays):
    """Tokens that are not JSON, numbers beyond the largest, deep lists, names twice."""
    marked = _with(header, _any_place(rng, header), lambda at, name: _set(at, name, "@@"))
    tokens = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 5000, "[" * 40 + "]" * 40)
    tokens = (*tokens, '{"a":1,"a":2}', "nan", "'a'", "0x10", "")
    return json.dumps(marked).replace('"@@"', tokens[rng.integers(len(tokens))]), arrays


def other_format(rng, header, arrays):
    formats = (0, -1, 2, 11, 99, 10**6, 10**20, "1", 1.0, 1.5, True, None, [1])
    return {**header, "format": formats[rng.integers(len(formats))]}, arrays


def _any_array(rng, arrays):
    if not arrays:
        arrays["further"] = np.zeros(3)
    return list(arrays)[rng.integers(len(arrays))]


def strange_entries(rng, header, arrays):
    name = _any_array(rng, arrays)
    changed = np.array(arrays[name])
    if changed.size == 0 or changed.dtype != np.float64:
        return scaled_array(rng, header, arrays)
    value = (np.nan, np.inf, -np.inf, 1e308, -1e7, 1e3, 30.0, 0.0, -1.0)[rng.integers(9)]
    changed.flat[rng.integers(changed.size, size=rng.integers(1, 4))] = value
    return header, {**arrays, name: changed}


def scaled_array(rng, header, arrays):
    name = _any_array(rng, arrays)
    factor = 10.0 ** rng.integers(-3, 9) * (-1) ** rng.integers(2)
    with np.errstate(invalid="ignore"):
        return header, {**arrays, name: (arrays[name] * factor).astype(arrays[name].dtype)}


def shuffled_array(rng, header, arrays):
    name = _any_array(rng, arrays)
    return header, {**arrays, name: rng.permutation(np.atleast_1d(arrays[name]), axis=0)}


def other_shape(rng, header, arrays):
    name = _any_array(rng, arrays)
    array = np.atleast_1d(arrays[name])
    shapes = (
        *(array[:-1], array[:0], array[..., :-1], array[None], array.ravel(), np.float64(1.0)),
        *(np.concatenate([array, array]), np.zeros((0, 5)), np.zeros((1,) * 8), array.T),
    )
    return header, {**arrays, name: np.asarray(shapes[rng.integers(len(shapes))])}


def other_dtype(rng, header, arrays):
    name = _any_array(rng, arrays)
    dtype = (np.float32, np.int64, np.uint8, bool, np.uint32)[rng.integers(5)]
    with np.errstate(invalid="ignore"):
        return header, {**arrays, name: arrays[name].astype(dtype)}


def other_names(rng, header, arrays):
    name, others = _any_array(rng, arrays), dict(arrays)
    array = others.pop(name)
    names = ((), ("further",), ("\x1b",), (name, "further"), (name, "fingerprint.t"), ("a" * 5000,))
    return header, {**others, **dict.fromkeys(names[rng.integers(len(names))], array)}


def _set(at, name, value):
    at[name] = value


FORGERIES = (
    *(strange_value, scaled_number, without_entry, with_entry, moved_entry, bare_token),
    *(other_format, strange_entries, scaled_array, shuffled_array, other_shape, other_dtype),
    other_names,
)


def forged(rng, header, arrays):
    """One to three forgeries, one upon the other, signed; and their names."""
    names = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        forgery = FORGERIES[rng.integers(len(FORGERIES))]
        header, arrays = forgery(rng, header, arrays)
        names.append(forgery.__name__)
        if isinstance(header, str):
            break
    return signed(header, arrays), "+".join(names)
