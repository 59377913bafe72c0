"""Redaction of secrets in text and JSON by rules. No I/O.

:class:`Redactor` has the rules: secret names of fields, headers, queries and tokens. :class:`EvidenceRedactor` also
remembers what it removed from the evidence of one call, to remove it wherever it occurs.

Recordings, the ``source`` of artifacts and the message log of failed tests follow the same rules. A replay applies them
to its requests, too, so that a call with any password matches a recording with another one.
"""

from __future__ import annotations

import html
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import unquote_plus

from .masking import KNOWN_SECRETS, KnownSecrets, is_placeholder, map_texts

if TYPE_CHECKING:
    from email.message import Message


REDACTED = "<redacted>"

#: Endings of names with secret values, in lower case and without punctuation: ``api_key``, ``clientSecret``.
_SECRET_NAMES = (
    "password",
    "passwords",
    "passwd",
    "passwordconfirmation",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "authorisation",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "sessionid",
)
#: Last words of names, such as ``cardPin``, with secret values if these are texts or numbers.
_SECRET_WORD = re.compile(r"(?:(?:^|[^A-Za-z])(?i:pin|otp|cvv|cvc)|(?<=[a-z])(?:Pin|PIN|Otp|OTP|Cvv|CVV|Cvc|CVC))$")
#: In the query of a URL, a signature grants access like a password, and short names have no other meaning.
_SECRET_IN_QUERIES = (*_SECRET_NAMES, "signature", "sig", "key", "auth", "code")
#: Headers that hold credentials.
_HEADER_NAME = r"(?:(?:proxy-)?(?:authorization|cookie|set-cookie)|x-[\w-]*(?:key|token|secret))"
_HEADER = re.compile(_HEADER_NAME, re.IGNORECASE)
#: Secrets in text. An app chooses the text, so matching must take linear time: no pattern may backtrack far.
_PATTERNS = (
    r"://(?P<secret>[^/\s@\"'<>]+)@",  # user info
    r"\bbearer\s++(?P<secret>(?=[^\s]*\d)[A-Za-z0-9._~+/=-]{8,})",  # RFC 6750
    r"\bbasic\s++(?P<secret>(?=[^\s]*[\d=])[A-Za-z0-9+/]{6,}={0,2})",  # RFC 7617
    rf"(?m)^[^\S\n]*+{_HEADER_NAME}\s*+:\s*+(?P<secret>\S.*)$",
    # within a line, only forms that cannot be prose
    r"(?<![\w-])(?:proxy-)?authorization\s*+:\s*+(?P<secret>(?:basic|bearer|token|apikey|negotiate|ntlm)\s++[^\s\"'<>,;]++)",
    r"(?<![\w-])(?:proxy-)?authorization\s*+:\s*+(?P<secret>(?:digest|aws4-hmac-sha256)\s[^\n]*)",
    r"(?<![\w-])(?:set-)?cookie\s*+:\s*+(?P<secret>[^\s=;:\"'<>]++=[^\s\"'<>]++(?:\s[^\s=;:\"'<>]++=[^\s\"'<>]++)*+)",
    r"(?<![\w-])x-[\w-]*(?:key|token|secret)\s*+:\s*+(?P<secret>[^\s\"'<>,;]++)",
)
_DOTTED = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+){2,}+")
_JWT_HEAD = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")
_NOT_PLAIN = re.compile(r"[^a-z0-9]")
_QUERY = re.compile(r"[?&;#]([\w.~%\\+\[\]-]+)=")
_QUERY_VALUE = re.compile(r"[^&#\s\"'<>]+")

#: Words beside secret names in schemas, scripts and forms that are not secret values.
_WORDS = frozenset(
    ("string", "number", "integer", "boolean", "object", "undefined", "function", "required", "password")
)
#: ``name=value``, ``name: value``, ``"name": "value"`` in a line of text.
_PAIR = re.compile(r"(?<![\w.%\[\]-])([\w.%\[\]-]{2,64})[\"']?\s{0,4}[:=]\s{0,4}[\"']?([^\s\"',;&{}\[\]<>]{1,4096})")
#: Kinds of names. A "secret word" makes texts and numbers secret, but not objects and lists.
_NameKind: TypeAlias = Literal["harmless", "secret", "secret word", "never secret"]
#: Scheme and credentials of a header (RFC 9110 11.4).
_SCHEME = re.compile(r"(?:basic|bearer|token|apikey|negotiate|digest)\s+(\S+)", re.IGNORECASE)
#: Characters that the rules search at a time: a search holds the GIL, 0.2 s for a megabyte.
_PIECE = 1 << 16


class Redactor:
    """Removes secrets from texts and JSON. ``fields`` are additional endings of secret names. ``patterns`` are
    additional regular expressions, which ignore case; the group ``secret`` of a match is replaced, or the whole match
    without such a group. Redaction is idempotent."""

    def __init__(
        self, fields: Sequence[str] = (), patterns: Sequence[str] = (), *, secrets: KnownSecrets = KNOWN_SECRETS
    ) -> None:
        #: Known values, which are replaced as well.
        self.known = secrets
        more_names = tuple(_plain_name(name) for name in fields)
        self._names = (*_SECRET_NAMES, *more_names)
        self._in_queries = (*_SECRET_IN_QUERIES, *more_names)
        self._more_patterns = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]

    def replacement_for(self, value: object) -> str:
        """Return the text that stands in the place of a secret ``value``. All rules use this method."""
        return REDACTED

    def is_secret(self, name: str) -> bool:
        """Whether a field with this name holds a secret. Secret names are ``auth``, names that end with ``password``,
        ``token``, ``api_key`` and the like, in any case and punctuation, and names whose last word is ``pin``, ``otp``
        or the like."""
        return self._kind_of_name(name) in ("secret", "secret word")

    def _kind_of_name(self, name: str) -> _NameKind:
        # An app may choose very long names, which would fill the cache.
        max_cached_chars = 64
        if len(name) > max_cached_chars:
            return _kind_of_name.__wrapped__(name, self._names)
        return _kind_of_name(name, self._names)

    def redact_text(self, text: str) -> str:
        """Remove known values, credentials in URLs, header lines, bearer and basic credentials, and JSON web tokens."""
        return self.redact_text_by_rules(self.known.mask_text(text))

    def redact_text_by_rules(self, text: str) -> str:
        """Remove what :meth:`redact_text` removes, except for known values."""
        # The additional patterns come first, so that they match the original text.
        if self._more_patterns:
            text = self.redact_text_by_patterns(text)

        # Every match of a rule contains one of these marks. Most texts contain none, and need no search. The mark is
        # not "basic" but "bas", since a pattern that ignores case also matches the Turkish letters for "i", which
        # casefold() does not turn into "i".
        folded = text.casefold()
        has_mark = "=" in folded or "@" in folded or ":" in folded
        if not has_mark and "bas" not in folded and "bearer" not in folded and "eyj" not in folded:
            return text

        text = self._redact_queries(text)
        # The patterns are compiled here, at the first text that may hold secrets.
        for pattern in _PATTERNS:
            text = re.sub(pattern, self._redact_match, text, flags=re.IGNORECASE)
        return _DOTTED.sub(self._redact_jwt, text)

    def redact_text_by_patterns(self, text: str) -> str:
        for pattern in self._more_patterns:
            text = pattern.sub(self._redact_match, text)
        return text

    def redact_tree(self, node: object) -> object:
        """Remove secrets from JSON values. Values of other types (content) stay. Data that is nested too deeply to
        search, by hundreds of levels, is reduced to the fields of its first level, with objects and lists replaced."""
        try:
            return self.redact_tree_by_rules(self.known.mask_tree(node))
        except RecursionError:
            if not isinstance(node, dict):
                return REDACTED
            flat = dict(node)
            for key, value in node.items():
                if isinstance(value, dict | list | tuple):
                    flat[key] = REDACTED
            return self.redact_tree_by_rules(self.known.mask_tree(flat))

    def redact_tree_by_rules(self, node: object) -> object:
        """Remove secrets from JSON values, except for known values. Raises :class:`RecursionError` for data that is
        nested too deeply."""
        match node:
            case str():
                return self.redact_text_by_rules(self.redact_form(node))
            case dict():
                return self._redact_object(node)
            case [str() as name, str() as value] if _HEADER.fullmatch(name):
                # This is a pair in a list of headers.
                return [name, self._blank_values(value)]
            case list() | tuple():
                return [self.redact_tree_by_rules(item) for item in node]
            case _:
                return node

    def _redact_object(self, node: Mapping[object, object]) -> dict[object, object]:
        content_key = _content_member(node)
        redacted: dict[object, object] = {}
        for key, value in node.items():
            if key == content_key:
                redacted[key] = self.redact_text_by_patterns(str(value))
            else:
                redacted[key] = self._redact_field(key, value)

        # The field beside a value may name it, as in {"name": "password", "value": …}.
        if "value" in node:
            names = (node.get(key) for key in ("name", "key", "header"))
            if any(self.is_secret(name) for name in names if isinstance(name, str)):
                redacted["value"] = self._blank_values(node["value"])
        return redacted

    def _redact_field(self, name: object, value: object) -> object:
        """Return the value of a field without secrets. The name of the field decides how much is removed."""
        if not isinstance(name, str):
            return self.redact_tree_by_rules(value)
        kind = self._kind_of_name(name)
        if kind == "harmless":
            return self.redact_tree_by_rules(value)
        if kind == "never secret":
            # Texts are redacted by their form alone; names of fields do not count.
            return map_texts(value, self.redact_text_by_rules)

        # ``auth: {type, header | token}`` of a reference (docs/protocol.md 10.3).
        if _plain_name(name) == "auth" and isinstance(value, Mapping):
            return {key: item if key == "type" else self._blank_values(item) for key, item in value.items()}
        # An object named "pin", as on a map, is no secret.
        if isinstance(value, dict | list | tuple) and kind == "secret word":
            return self.redact_tree_by_rules(value)
        return self._blank_values(value)

    def _blank_values(self, value: object) -> object:
        """Replace texts and numbers and keep the structure. A descriptor of content stays, even as ``token``."""
        match value:
            case dict() if "mimeType" not in value:
                return {key: self._blank_values(item) for key, item in value.items()}
            case list() | tuple():
                return [self._blank_values(item) for item in value]
            case str() if value:
                return self.replacement_for(value)
            case int() | float() if not isinstance(value, bool):
                return self.replacement_for(value)
            case _:
                return value

    def is_secret_field(self, attributes: Mapping[str, str]) -> bool:
        """Whether a field in HTML with these attributes holds a secret."""
        if attributes.get("type", "").strip().lower() == "password":
            return True
        names = (attributes.get(key) for key in ("name", "id", "autocomplete"))
        return any(self.is_secret(name) for name in names if name)

    def redact_html(self, text: str) -> str:
        """Return HTML without the values of password fields and of fields with secret names. The rest stays."""
        pieces: list[str] = []
        position = 0
        for start, end in self._secret_spans(text):
            # The content of an element begins behind its tag. In an attribute without quotes, > would end the tag.
            is_element_content = text[start - 1] == ">"
            replacement = self.replacement_for(attribute_value(text[start:end]))
            pieces += (text[position:start], replacement if is_element_content else f'"{replacement}"')
            position = end
        pieces.append(text[position:])
        return "".join(pieces)

    def _secret_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of the secret values in HTML, with their quotes. Scripts, styles and other texts without tags
        are not searched, but comments are."""
        for tag, (begin, end) in _tags_with_raw_content(text):
            names = value_attributes(tag.element)
            if not names or not self.is_secret_field(tag.attributes):
                continue
            yield from sorted(tag.spans[name] for name in names if tag.attributes.get(name))
            if tag.element == "textarea" and end > begin:
                yield begin, end

    def redact_form(self, text: str) -> str:
        """Return a form without secret values. It may be URL-encoded, in several parts, or HTML. Any other text
        stays."""
        if "=" not in text and "<" not in text:
            return text
        if FORM.fullmatch(text):
            return "&".join(map(self._form_pair, text.split("&")))
        if re.match(r"\s*+<[A-Za-z!]", text):
            return self.redact_html(text)
        parts = form_data_parts(text)
        return with_contents(text, parts, map(self._form_content, parts))

    def _form_content(self, part: Part) -> str:
        if self.is_secret(field_name(part.headers()) or ""):
            return self.replacement_for(part.content)
        return part.content

    def _form_pair(self, pair: str) -> str:
        name, _, value = pair.partition("=")
        if value and self.is_secret(name):
            return f"{name}={self.replacement_for(value)}"
        return pair

    def _redact_queries(self, text: str) -> str:
        """Redact the queries of URLs, also of a URL within the query of another."""
        pieces: list[str] = []
        position = 0
        for field in _QUERY.finditer(text):
            name = field[1]
            is_secret = _plain_name(name).endswith(self._in_queries) or self.is_secret(name)
            value = _QUERY_VALUE.match(text, field.end())
            is_already_redacted = field.start() < position
            if is_secret and value is not None and not is_already_redacted:
                pieces += (text[position : field.end()], self.replacement_for(value[0]))
                position = value.end()
        pieces.append(text[position:])
        return "".join(pieces)

    def _redact_match(self, match: re.Match[str]) -> str:
        """Return a match with its group ``secret`` replaced, or without such a group the replacement of all of it."""
        if "secret" not in match.re.groupindex or match["secret"] is None:
            return self.replacement_for(match[0])
        before = match.string[match.start() : match.start("secret")]
        after = match.string[match.end("secret") : match.end()]
        return before + self.replacement_for(match["secret"]) + after

    def _redact_jwt(self, match: re.Match[str]) -> str:
        """Replace JSON web tokens (RFC 7519) in words joined by dots. One pattern for both would take quadratic
        time."""
        words = match[0].split(".")
        redacted: list[str] = []
        index = 0
        while index < len(words):
            header = _JWT_HEAD.search(words[index])
            # The claims follow the header, and then the signature, which may be empty.
            has_claims = index + 2 < len(words) and len(words[index + 1]) >= 8
            if header is not None and has_claims:
                token = ".".join((words[index][header.start() :], words[index + 1], words[index + 2]))
                redacted.append(words[index][: header.start()] + self.replacement_for(token))
                index += 3
            else:
                redacted.append(words[index])
                index += 1
        return ".".join(redacted)


def _content_member(node: Mapping[object, object]) -> str | None:
    """Return the name of the member that is a document, a script or a file, which redaction by guesses would break: the
    text of an MCP resource or the content of a descriptor (docs/protocol.md 9.2)."""
    if not isinstance(node.get("mimeType"), str):
        return None
    for name in ("text", "content", "blob", "data"):
        if isinstance(node.get(name), str):
            return name
    return None


@lru_cache(maxsize=1024)
def _kind_of_name(name: str, secret_endings: tuple[str, ...]) -> _NameKind:
    # The first is the id of a call, which an app returns with its progress. Schemas only describe values.
    if name in ("progressToken", "inputSchema", "outputSchema"):
        return "never secret"
    plain_name = _plain_name(name)
    if plain_name == "auth" or plain_name.endswith(secret_endings):
        return "secret"
    # The name may end with the number of a field: ``password2``, ``user.password[0]``.
    if plain_name.rstrip(string.digits).endswith(secret_endings):
        return "secret"
    # An app may choose a very long name, so only its end is searched. The secret words are short.
    max_word_chars = 16
    if _SECRET_WORD.search(_unescape_name(name)[-max_word_chars:]):
        return "secret word"
    return "harmless"


def _plain_name(name: str) -> str:
    return _NOT_PLAIN.sub("", _unescape_name(name).lower())


def _unescape_name(name: str) -> str:
    """Decode a name that is escaped up to three times: by percent-encoding, JavaScript or HTML."""
    if "%" not in name and "\\" not in name and "&" not in name:
        return name
    for _ in range(3):
        name = _ESCAPED.sub(lambda escape: chr(int(escape[1] or escape[2], 16)), unquote_plus(name))
        name = without_entities(name)
    return name


class EvidenceRedactor(Redactor):
    """Redaction of the evidence of one call, for one thread at a time. It remembers the values that it removes.
    :meth:`with_values` returns a redactor that removes these values also where no name says that they are secret."""

    def __init__(self, secrets: KnownSecrets = KNOWN_SECRETS) -> None:
        super().__init__(secrets=secrets)
        self._values: set[str] = set()
        #: Values that are removed wherever they occur.
        self._removed: Collection[str] = ()

    def with_values(self) -> EvidenceRedactor:
        redactor = EvidenceRedactor(self.known.with_values(self._values, REDACTED))
        redactor._removed = frozenset(self._values)
        return redactor

    def replacement_for(self, value: object) -> str:
        self.remember(str(value))
        return REDACTED

    def remember(self, value: str) -> None:
        """Remember a value, also in its percent-decoded form. Of the value of a header, also remember the credentials
        after ``Bearer`` and the like, and each cookie in ``name=value; name=value``."""
        if value in self._values:
            return
        for text in (value, unquote_plus(value)):
            parts = [text]
            scheme = _SCHEME.match(text.strip())
            if scheme is not None:
                parts.append(scheme[1])

            # The name of a cookie is short. In base64 only the end has a "=".
            max_name_chars = 64
            may_be_cookies = "=" in text[:max_name_chars]
            if may_be_cookies:
                parts += (cookie.partition("=")[2] for cookie in text.split(";"))

            for part in parts:
                self._add_value(part.strip())
                self._add_value(unquote_plus(part).strip())

    def _add_value(self, value: str) -> None:
        # An app may send any number of values.
        max_values = 200
        # A shorter value is part of too many words, and is removed only beside its name. A longer value is content.
        min_chars, max_chars = 6, 4096
        if len(self._values) >= max_values or not min_chars <= len(value) <= max_chars:
            return
        if not is_placeholder(value) and value != REDACTED and value.lower() not in _WORDS:
            self._values.add(value)

    def _blank_values(self, value: object) -> object:
        blanked = super()._blank_values
        if isinstance(value, dict) and {"name", "value"} <= value.keys() and "mimeType" not in value:
            # This is a cookie. Its other fields are replaced together with its value, but not remembered as secrets.
            harmless = {"name", "domain", "path", "expires", "sameSite"}
            return {key: REDACTED if key in harmless else blanked(item) for key, item in value.items()}
        return blanked(value)

    def redact_text_by_rules(self, text: str) -> str:
        return "".join(map(super().redact_text_by_rules, _split_into_pieces(text)))

    def redact_pairs(self, text: str) -> str:
        """Redact as :meth:`redact_text`, and also pairs of a secret name and its value outside of URLs."""
        return self._without_pairs(text, self.replacement_for)

    def redact_line(self, text: str) -> str:
        """Redact a line as :meth:`redact_pairs` does, but do not remember the values: they may be words of a
        sentence."""
        return self._without_pairs(text, lambda _: REDACTED)

    def _without_pairs(self, text: str, hide: Callable[[str], str]) -> str:
        def replace(pair: re.Match[str]) -> str:
            if not self.is_secret(pair[1]):
                return pair[0]
            return pair.string[pair.start() : pair.start(2)] + hide(pair[2])

        return self.redact_text_by_rules(_PAIR.sub(replace, self.known.mask_text(text)))

    def redact_tree(self, node: object, keep: Callable[[str], bool] | None = None) -> object:
        """Remove secrets from JSON values. Values of keys for which ``keep`` is true stay. With ``keep``, a key that
        equals a remembered value stays as well, since it is a field name of the format. Raises :class:`RecursionError`
        for data that is nested too deeply to search, and so must not be stored."""
        names = () if keep is None else self._removed
        return self.redact_tree_by_rules(self.known.mask_tree(node, keep=keep, names=names, mask_files=False))


def _split_into_pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that are searched one by one. If possible, they end with a line or with a word."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            cut = text.rfind("\n", start, end)
            if cut < 0:
                cut = text.rfind(" ", start, end)
            if cut > start:
                end = cut + 1
        yield text[start:end]
        start = end


#: A form, such as ``a=1&b=2``.
FORM = re.compile(r"[^\s=&<>{}]{1,256}=[^\s&]*+(?:&[^\s=&]{1,256}=[^\s&]*+)*+")
_HEAD_END = re.compile(r"\r?\n\r?\n")
#: The beginning of a start tag or of a comment.
_OPENING = re.compile(r"<(?:(!--)|([A-Za-z][^\s/>]*+))")
#: One attribute of a tag (HTML 13.2.5.32): its name, and its value with quotes. A quote that is left open ends with the
#: text, which may be cut.
_ATTRIBUTE = re.compile(r"""[\s/]*+(=?[^\s/>=]++|=)(?:\s*+=\s*+("[^"]*+"?|'[^']*+'?|[^\s>"'][^\s>]*+))?""")
#: A numeric reference in HTML, without its leading zeros.
_NUMBER = re.compile(r"&#0*([0-9]+)")
#: Elements whose content is text without tags.
_RAW_TEXT_ELEMENTS = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "title", "textarea"))
#: Attributes with the value of a field, by the name of the element; the second is that of Playwright's snapshots.
_VALUE_ATTRIBUTES = {
    "input": ("value", "__playwright_value_"),
    "textarea": ("value", "__playwright_value_"),
    "button": ("value",),
    "meta": ("content",),
}


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a multipart body: its head with the empty line after it, its content, and where the content begins."""

    head: str
    content: str
    start: int

    def headers(self) -> Message:
        """Parse the head. Half of a surrogate pair becomes ``?``, since the parser would take it for a byte."""
        from email.parser import HeaderParser  # late: few texts are forms, and the parser takes long to load

        # The head begins with the line break of its boundary, which the parser would take for the end of the headers.
        return HeaderParser().parsestr(self.head.lstrip("\r\n").encode(errors="replace").decode())


def multipart_parts(text: str) -> list[Part] | None:
    """Return the parts of a multipart body (RFC 2046 5.1.1). An empty text has no parts; for any other text return
    ``None``."""
    start = 0
    if not text.startswith("--"):
        start = text.find("\n--") + 1
        if start == 0:
            return None if text.strip() else []
    boundary, _, _ = text[start:].partition("\n")
    separator = f"\n{boundary.rstrip()}"

    parts: list[Part] = []
    # The first separator begins with the added line break.
    position = start - 1 + len(separator)
    for piece in f"\n{text[start:]}".split(separator)[1:]:
        # The last boundary is followed by two dashes.
        if piece.startswith("--"):
            break
        head_end = _HEAD_END.search(piece)
        if head_end is None:
            return None
        head, content = piece[: head_end.end()], piece[head_end.end() :]
        parts.append(Part(head, content.removesuffix("\r"), position + len(head)))
        position += len(piece) + len(separator)
    return parts or None


def with_contents(text: str, parts: Sequence[Part], contents: Iterable[str]) -> str:
    """Return a multipart body with other ``contents`` of its parts."""
    pieces: list[str] = []
    position = 0
    for part, content in zip(parts, contents, strict=True):
        pieces += (text[position : part.start], content)
        position = part.start + len(part.content)
    pieces.append(text[position:])
    return "".join(pieces)


def form_data_parts(text: str) -> list[Part]:
    """Return the parts of a form (RFC 7578), whatever its declared type. For any other text the list is empty."""
    if "--" not in text or "content-disposition" not in text.casefold():
        return []
    parts = multipart_parts(text) or []
    if not any(field_name(part.headers()) for part in parts):
        return []
    return parts


def field_name(headers: Message) -> str | None:
    from email.utils import collapse_rfc2231_value

    name = headers.get_param("name", header="content-disposition")
    if name is None:
        return None
    return collapse_rfc2231_value(name)


def value_attributes(element: str) -> tuple[str, ...]:
    return _VALUE_ATTRIBUTES.get(element.lower(), ())


def _tags_with_raw_content(text: str) -> Iterator[tuple[_StartTag, tuple[int, int]]]:
    """Yield the start tags of HTML, also those in comments. Each comes with the span of its content if that is raw
    text, otherwise with an empty span."""
    position = 0
    # Tags are read up to this limit: the end of the text, or of a comment. An open comment extends to the end.
    limit = len(text)
    is_in_comment = False
    while True:
        opening = _OPENING.search(text, position, limit)
        if opening is None:
            if limit == len(text):
                return
            # The comment has no more tags. Go on after its end.
            position, limit = limit, len(text)
            is_in_comment = False
            continue

        position = opening.end()
        begins_comment = bool(opening[1])
        if begins_comment:
            comment_end = -1 if is_in_comment else text.find("-->", position)
            if comment_end >= 0:
                limit = comment_end
            is_in_comment = True
            continue

        tag = _read_start_tag(opening, limit)
        content = (tag.end, tag.end)
        if tag.element in _RAW_TEXT_ELEMENTS:
            content = _raw_content_span(text, tag, limit)
        yield tag, content
        position = content[1]


@dataclass(frozen=True, slots=True)
class _StartTag:
    """A start tag in HTML, up to its ``>``. ``spans`` are the places of the values of its attributes, with quotes."""

    element: str
    attributes: Mapping[str, str]
    spans: Mapping[str, tuple[int, int]]
    end: int


def _read_start_tag(opening: re.Match[str], limit: int) -> _StartTag:
    text, position = opening.string, opening.end()
    attributes: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    while attribute := _ATTRIBUTE.match(text, position, limit):
        name = attribute[1].lower()
        position = attribute.end()
        # The first attribute of a name counts.
        attributes.setdefault(name, attribute_value(attribute[2] or ""))
        spans.setdefault(name, attribute.span(2))
    return _StartTag(opening[2].lower(), attributes, spans, position)


def _raw_content_span(text: str, tag: _StartTag, limit: int) -> tuple[int, int]:
    """Return the span of the content of an element such as ``<script>``: it ends at the closing tag, or at
    ``limit``."""
    begin = text.find(">", tag.end, limit) + 1
    if begin == 0:
        begin = limit
    closing = re.compile(rf"</{tag.element}(?=[\s/>])", re.IGNORECASE).search(text, begin, limit)
    end = limit if closing is None else closing.start()
    return begin, end


def attribute_value(written: str) -> str:
    """Return the value of an attribute as it is ``written`` in HTML, without quotes and entities."""
    if written[:1] in ("'", '"'):
        written = written[1:].removesuffix(written[0])
    return without_entities(written)


def without_entities(text: str) -> str:
    if "&" not in text:
        return text
    # The numbers of characters have seven digits at most. int(), which html.unescape() uses, refuses very long numbers.
    max_digits = 8
    return html.unescape(_NUMBER.sub(lambda reference: f"&#{reference[1][:max_digits]}", text))
