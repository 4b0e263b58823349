"""Text as token ids: bytes, words, characters, or the pieces of a tokenizer.json."""
import json
import re
from collections import Counter

import numpy as np

from .common import DataError, Stream, check_packages, printable
from .reader import open_data_set, texts

_MOST_WORDS = 1 << 24
_MOST_TOKENIZER = 64 << 20  # bytes of a tokenizer.json
_WORD = re.compile(rb"[A-Za-z0-9'\x80-\xff]+|[!-~]")


def split_words(text):
    """Returns the words of a text: runs of letters, digits and apostrophes, ASCII letters in lower case, and single other characters."""
    return _WORD.findall(text.lower())


def escaped(token):
    """Returns a token as the name of a class: blanks and control characters as "\\x0a"."""
    return "\\x20" if token == b" " else printable(token)


def decode_utf8(text, path, way=""):
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} has a byte 0x{text[error.start]:02x} at offset {error.start}, which is not UTF-8: save it as UTF-8"
                        f"{way}") from None


class Tokens:
    """Tokens of a fixed list: bytes, words or characters. The id is the position in the list, and 0 pads."""

    filling = 0

    def __init__(self, unit, tokens, stored=None):
        self.unit, self.tokens, self.size, self.vocabulary = unit, tokens, len(tokens), stored
        self.numbers = {token: i for i, token in enumerate(tokens)}

    def class_names(self):
        return [token if self.unit == "bytes" else escaped(token) for token in self.tokens]

    def stored(self):
        """Returns the attributes and arrays of the data set for the tokens."""
        return {"tokens": self.unit, "vocabulary": self.vocabulary}

    def ids(self, text, path):
        """Returns the ids of a text (bytes), i32."""
        if self.unit == "bytes":
            return np.frombuffer(text, np.uint8).astype(np.int32) + 1
        if self.unit == "words":
            return np.array([self.numbers.get(word, 1) for word in split_words(text)], np.int32)
        codes = np.frombuffer(decode_utf8(text, path, ", or give --tokens bytes").encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.vocabulary.decode().encode("utf-32-le"), np.uint32)  # sorted
        ids = np.searchsorted(known, codes).clip(0, max(len(known) - 1, 0))
        unknown = np.flatnonzero(known[ids] != codes) if len(known) else np.arange(len(codes))
        if len(unknown):
            offset = len(text.decode()[:unknown[0]].encode())
            raise DataError(f"{path} has '{escaped(chr(codes[unknown[0]]).encode())}' at offset {offset}, which is not one of the "
                            f"{self.size} characters of the vocabulary")
        return ids.astype(np.int32)


BYTES = Tokens("bytes", ["<pad>", *(escaped(bytes([byte])) for byte in range(256))])


def character_tokens(text, path):
    """Returns the tokens of a text: its characters, sorted."""
    characters = sorted(set(decode_utf8(text, path, ", or give --tokens bytes")))
    return Tokens("characters", [one.encode() for one in characters], "".join(characters).encode())


def word_tokens(words):
    """Returns the tokens of a vocabulary of words (bytes)."""
    return Tokens("words", words, b"".join(word + b"\n" for word in words))


def most_frequent(all_texts, size):
    """Returns the most frequent words of texts, equally frequent words in alphabetical order. 0 pads, 1 is any other word."""
    counts = Counter()
    for text in all_texts:
        counts.update(split_words(text))
        if len(counts) > _MOST_WORDS:
            raise DataError(f"the text has more than {_MOST_WORDS} different words: use --tokens bytes")
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return word_tokens([b"<pad>", b"<unk>", *words][:size])


def _growth(step):
    """Returns (factor, bytes): a step makes at most factor times the bytes of a text, plus these bytes."""
    kind = step.get("type") if isinstance(step, dict) else None
    factor, more = 1.0, 0
    if kind == "Sequence":
        for part in step.get("normalizers") or step.get("pretokenizers") or []:
            times, added = _growth(part)
            factor, more = factor * times, more * times + added
    elif kind == "Replace":
        content, pattern = len(step["content"].encode()), step["pattern"].get("String")
        factor = max(1.0, content / len(pattern.encode()) if pattern else content + 1)  # a regular expression may match one byte
    elif kind == "Prepend":
        more = len(step["prepend"].encode())
    elif kind in ("ByteLevel", "Metaspace"):
        factor = 3.0
    return factor, more


def _check_growth(content, path):
    """Raises DataError if the steps of a hostile file could multiply a text until memory is exhausted."""
    for name in ("normalizer", "pre_tokenizer"):
        factor, more = _growth(content.get(name))
        if factor > 64 or more > 64 << 10:
            raise DataError(f"{path}: the {name} may make more than 64 times the bytes of a text, or 64 KiB more. Use the tokenizer.json "
                            "that the network was trained with.")


class Pieces:
    """Tokens of a tokenizer.json, by the package tokenizers, without special tokens around a text."""

    unit = "pieces"

    def __init__(self, data, path):
        check_packages(["tokenizers"])
        import tokenizers
        self.path = path
        try:
            content = json.loads(data)
            if not isinstance(content, dict):
                raise ValueError("it is not a JSON object")
            self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        except Exception as error:  # the package raises Exception itself
            raise DataError(f"{path} is not a tokenizer.json: {printable(' '.join(str(error).split()))}") from None
        _check_growth(content, path)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")
        numbers = self.tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = sorted(numbers, key=numbers.get)
        self.size = len(self.vocabulary)
        if sorted(numbers.values()) != list(range(self.size)):
            raise DataError(f"{path} has a vocabulary with missing ids: {self.size} tokens, ids up to {max(numbers.values(), default=0)}")
        padding = content.get("padding") or {}
        self.filling = padding.get("pad_id")
        if self.filling is None:
            self.filling = next((numbers[name] for name in ("<pad>", "[PAD]", "<|pad|>") if name in numbers), None)
        elif not isinstance(self.filling, int) or not 0 <= self.filling < self.size:
            raise DataError(f"{path} has the \"pad_id\" {self.filling}, and {self.size} tokens")
        model = content.get("model") or {}
        self.lacks_unknown = model.get("type", "BPE") == "BPE" and model.get("unk_token") is None and not model.get("byte_fallback")

    def class_names(self):
        return self.vocabulary

    def ids(self, text, path):
        text = decode_utf8(text, path)
        if self.lacks_unknown:
            self._check_characters(text, path)
        try:
            found = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except Exception as error:  # the package raises Exception itself
            raise DataError(f"{path} cannot be encoded with {self.path}: {printable(' '.join(str(error).split()))}") from None
        return np.array(found, np.int32)

    def _check_characters(self, text, path):
        """Raises DataError for a character that the model BPE would drop silently."""
        added = {token.content for token in self.tokenizer.get_added_tokens_decoder().values()}
        known = set(self.vocabulary) - added
        normalizer, splitter = self.tokenizer.normalizer, self.tokenizer.pre_tokenizer
        for character in sorted(set(text)):
            normal = normalizer.normalize_str(character) if normalizer else character
            pieces = [piece for piece, _ in splitter.pre_tokenize_str(normal)] if splitter and normal else [normal]
            for one in "".join(pieces):
                if one not in known and not any(character in token for token in added):
                    raise DataError(f"{path} has '{printable(character)}', which is not a token of {self.path}, and the file has no "
                                    "token for unknown characters")

    def stored(self):
        return {"tokens": self.unit, "tokenizer": self.text}


def load_pieces(path):
    """Returns the tokenizer of a tokenizer.json, plain or gzip."""
    return Pieces(Stream.open(path).read_rest(_MOST_TOKENIZER), path)


def read_tokenizer(path):
    """Returns the tokenizer that a data set was made with."""
    with open_data_set(path) as file:
        unit = (texts(file, "tokens") or [""])[0]
        if unit == "bytes":
            return BYTES
        if unit not in ("words", "characters", "pieces"):
            raise DataError(f"{path} is not a data set of fakequant dataset from-text")
        name = "tokenizer" if unit == "pieces" else "vocabulary"
        data = file[name][...] if name in file else None
        if data is None or data.ndim != 1 or data.dtype != "u1" or not data.size:
            raise DataError(f"{path} has a damaged {name}")
    data = data.tobytes()
    if unit == "pieces":
        return Pieces(data, path)
    if unit == "characters":
        return character_tokens(data, path)
    words = data.split(b"\n")[:-1]
    if len(words) < 2:
        raise DataError(f"{path} has a vocabulary of fewer than 2 words")
    return word_tokens(words)


def given_tokenizer(flags):
    """Returns the tokenizer of --tokenizer or --like; None without both."""
    path, like = flags["like"], None
    if path:
        like = read_tokenizer(path)
        if flags["tokens"] not in (None, like.unit):
            raise DataError(f"--like {path} has {like.unit} as tokens: leave --tokens out")
    if not flags["tokenizer"]:
        return like
    for other in ("tokens", "vocabulary"):
        if flags.given(other):
            raise DataError(f"--tokenizer defines the tokens: leave --{other} out")
    own = load_pieces(flags["tokenizer"])
    if like and (like.unit != "pieces" or like.vocabulary != own.vocabulary):
        raise DataError(f"--like {path} has {like.size} {like.unit}, and --tokenizer {flags['tokenizer']} {own.size} other tokens: "
                        "leave one out")
    return own
