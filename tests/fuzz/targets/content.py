"""Content and what is said of it: base64, signatures, schemas, file names, texts with secrets."""

from __future__ import annotations

import base64 as standard
import unicodedata
from contextlib import suppress

from tests.support.spelled import SPELLED
from transports._internal.masking import KnownSecrets, why_guessable
from transports._internal.redaction import EvidenceRedactor, Redactor
from transports.errors import BadEncoding
from transports.playwright._evidence_secrets import clean_body, clean_entry, clean_event, read_lines
from transports.protocol._find_content import find
from transports.protocol._heuristics import Heuristics
from transports.protocol._media import contradicts, extension_for, is_binary_mime, normalise_mime, safe_filename, sniff
from transports.protocol._strict_json import decode_json
from transports.protocol.binary import (
    BinaryData,
    Encoded,
    base64_head,
    decode_data_url,
    is_base64,
    padded,
    sniff_base64,
)
from transports.protocol.schema import check_output, check_params

_EAGER = Heuristics(min_chars=16)
_EAGEREST = Heuristics(min_chars=16, require_magic_bytes=False, max_decode_bytes=2000)
_REDACTOR = Redactor(["pin"], [r"card (?P<secret>\d+)"])


def _text(data: bytes) -> str:
    """The input as text; bytes that are no UTF-8 become halves of surrogate pairs, as in headers and names of files."""
    return data.decode("utf-8", "surrogateescape")


def base64(data: bytes) -> None:
    """Text that stands for bytes. What is decoded is what the standard library makes of it."""
    text = _text(data)
    try:
        decoded = b"".join(Encoded(text, "base64").chunks())
    except BadEncoding:
        pass
    else:
        assert decoded == standard.b64decode(padded(text).replace("-", "+").replace("_", "/"), validate=True)
        assert is_base64(text) and base64_head(text).startswith(decoded[:4098])
    for encoded in (Encoded(memoryview(data), "base64"), Encoded(text, "utf-8"), decode_data_url(text)):
        if isinstance(encoded, Encoded):
            with suppress(BadEncoding):
                BinaryData(encoded, size=len(data)).read()
    sniff_base64(text)


def sniffing(data: bytes) -> None:
    """Content, as itself and as text that nothing declares; its first line as a declared type."""
    sniffed = sniff(data)
    assert sniffed is None or normalise_mime(sniffed) == sniffed
    for text in (data.decode("latin-1"), standard.b64encode(data).decode(), _text(data)):
        for heuristics in (_EAGER, _EAGEREST):
            recognised = heuristics.recognise(text)
            assert recognised is None or recognised.read() is not None
    declared = _text(data.partition(b"\n")[0])
    if sniffed is not None:
        contradicts(declared, sniffed)
    assert extension_for(declared).startswith(".")
    is_binary_mime(declared)


def schema(data: bytes) -> None:
    """A schema and a value, with a zero byte between them."""
    declared, _, value = data.partition(b"\0")
    rules, params = decode_json(declared), decode_json(value)
    if isinstance(rules, dict):
        places = [item.path for item in find(params)]
        if len(data) % 2:  # calls have one check before them and one after
            assert len(check_output(rules, params, places)) <= 5
        else:
            check_params("export.pdf", rules, params, places)


def filename(data: bytes) -> None:
    """A suggested name. The name that is made of it is harmless."""
    suggested, _, mime_type = _text(data).partition("\0")
    name = safe_filename(suggested, fallback="file", mime_type=mime_type)
    assert 0 < len(name.encode()) <= 120 and name[0] not in ".-~ " and name[-1] not in ". "
    assert not set(name) & set('/\\<>:"|?*') and unicodedata.is_normalized("NFC", name)
    assert not any(unicodedata.category(character)[0] == "C" for character in name)


def redaction(data: bytes) -> None:
    """A text, and JSON with names of secrets. Redacting twice changes nothing."""
    text = _text(data)
    once = _REDACTOR.redact_text(text)
    assert _REDACTOR.redact_text(once) == once
    tree = decode_json(data)
    assert _REDACTOR.redact_tree(_REDACTOR.redact_tree(tree)) == _REDACTOR.redact_tree(tree)


def spellings(data: bytes) -> None:
    """A value, a zero byte, and what stands around it in a spelling that the first byte chooses. No decoder finds it in
    what is shown, and what has none stays as it is."""
    secret, _, around = _text(data[1:]).partition("\0")
    secret = secret[:60]
    if any(map("\\%&".__contains__, secret)):  # it may read as nearly nothing, which is not searched for
        return
    # `html.unescape` drops control characters, and a file holds no surrogates.
    if why_guessable(secret) is not None or not data or not secret.isprintable():
        return
    secrets = KnownSecrets()
    secrets.add("FUZZ", secret)
    spelled = [*SPELLED.values()][data[0] % len(SPELLED)](secret)
    for text in (f"{around[:200]} {spelled} {around[:200]}", around):
        shown = secrets.mask_text(text)
        assert "${SECRET:FUZZ}" in shown or text is around, text
        assert secrets.mask_tree({"a": [text], text: 1}) == {"a": [shown], shown: 1}
        assert len(secrets.mask_file(content := text.encode("utf-8", "surrogatepass"))) == len(content)


def evidence(data: bytes) -> None:
    """A body of each type, an entry of a HAR, a line of a trace. What was found to be secret is nowhere in it."""
    text = _text(data)
    for mime_type in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/html"):
        first = EvidenceRedactor()
        clean_body(text, mime_type, first)
        redactor = first.with_values()
        cleaned = clean_body(text, mime_type, redactor)
        assert redactor.known.mask_text(cleaned) == cleaned
    for event in read_lines(data):
        first = EvidenceRedactor()
        clean_event(event, first)
        clean_event(event, first.with_values())
        with suppress(RecursionError):  # of what is nested too deeply the caller keeps nothing
            clean_entry(event, first)
            clean_entry(event, first.with_values())
