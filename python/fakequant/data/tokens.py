"""Text as token ids: bytes, words, characters, or the pieces of a tokenizer.json."""
import json
import re
from collections import Counter

import numpy as np

from .common import DataError, Stream, check_packages, printable

UNITS = ("bytes", "words", "characters", "pieces")
_MOST_WORDS = 1 << 24
_MOST_TOKENIZER = 64 << 20  # bytes of a tokenizer.json
_WORD = re.compile(rb"[A-Za-z0-9'\x80-\xff]+|[!-~]")


def words_of(text):
    """Letters, digits and apostrophes together, ASCII letters in lower case; any other character but blanks alone."""
    return _WORD.findall(text.lower())


def escaped(token):
    """A token as the name of a class: blanks and control characters as "\\x0a"."""
    return f"\\x{token[0]:02x}" if len(token) == 1 and token[0] <= 0x20 else printable(token)


def decode_utf8(text, path, way=""):
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} has a byte 0x{text[error.start]:02x} at offset {error.start}, which is no UTF-8: save it as UTF-8"
                        f"{way}") from None


class Bytes:
    """Each byte is a token: byte + 1."""

    unit, size, filling = "bytes", 257, 0

    def class_names(self):
        return ["<pad>", *(escaped(bytes([byte])) for byte in range(256))]

    def ids(self, text, path):
        return np.frombuffer(text, np.uint8).astype(np.int32) + 1

    def options(self):
        return dict(tokens=self.unit)


class Words:
    """Words of a vocabulary (bytes): 0 fills, 1 is any other word."""

    unit, filling = "words", 0

    def __init__(self, vocabulary):
        self.vocabulary, self.size = vocabulary, len(vocabulary)
        self.numbers = {word: i for i, word in enumerate(vocabulary)}

    @classmethod
    def of(cls, counts, most):
        """The most frequent words of a Counter; of equally frequent ones the first in the alphabet."""
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([b"<pad>", b"<unk>", *words][:most])

    def class_names(self):
        return [escaped(word) for word in self.vocabulary]

    def ids(self, text, path):
        return np.array([self.numbers.get(word, 1) for word in words_of(text)], np.int32)

    def options(self):
        return dict(tokens=self.unit, vocabulary=b"".join(word + b"\n" for word in self.vocabulary))


class Characters:
    """Characters of a vocabulary (a sorted text), for windows."""

    unit, filling = "characters", 0

    def __init__(self, vocabulary):
        self.vocabulary, self.size = vocabulary, len(vocabulary)

    @classmethod
    def of(cls, text, path):
        return cls("".join(sorted(set(decode_utf8(text, path, ", or give --tokens bytes")))))

    def class_names(self):
        return [escaped(character.encode()) for character in self.vocabulary]

    def ids(self, text, path):
        codes = np.frombuffer(decode_utf8(text, path, ", or give --tokens bytes").encode("utf-32-le"), np.uint32)
        known = np.array([ord(character) for character in self.vocabulary], np.uint32)
        numbers = np.full(max(int(known.max(initial=0)), int(codes.max(initial=0))) + 1, -1, np.int32)
        numbers[known] = np.arange(len(known), dtype=np.int32)
        ids = numbers[codes]
        if (ids < 0).any():
            at = int(np.argmax(ids < 0))
            offset = len(text.decode()[:at].encode())
            raise DataError(f"{path} has '{escaped(chr(codes[at]).encode())}' at offset {offset}, which is none of the {self.size} "
                            "characters of the vocabulary")
        return ids

    def options(self):
        return dict(tokens=self.unit, vocabulary=self.vocabulary.encode())


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
                raise ValueError("it is no object with a \"model\"")
            self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        except Exception as error:  # the package raises Exception itself
            raise DataError(f"{path} is no tokenizer.json: {printable(' '.join(str(error).split()))}") from None
        _check_growth(content, path)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")
        numbers = self.tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = sorted(numbers, key=numbers.get)
        self.size = len(self.vocabulary)
        if sorted(numbers.values()) != list(range(self.size)):
            raise DataError(f"{path} has a vocabulary with holes: {self.size} tokens with ids up to {max(numbers.values(), default=0)}")
        padding = content.get("padding") or {}
        self.filling = padding.get("pad_id")
        if self.filling is None:
            self.filling = next((numbers[name] for name in ("<pad>", "[PAD]", "<|pad|>") if name in numbers), None)
        elif not isinstance(self.filling, int) or not 0 <= self.filling < self.size:
            raise DataError(f"{path} has the \"pad_id\" {self.filling}, of {self.size} tokens")
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
            raise DataError(f"{path} cannot be encoded by {self.path}: {printable(' '.join(str(error).split()))}") from None
        return np.array(found, np.int32)

    def _check_characters(self, text, path):
        """Raises DataError for a character that the model BPE would leave out without notice."""
        added = set(self.tokenizer.get_added_tokens_decoder()) and {
            token.content for token in self.tokenizer.get_added_tokens_decoder().values()}
        known = set(self.vocabulary) - added
        normalizer, splitter = self.tokenizer.normalizer, self.tokenizer.pre_tokenizer
        for character in sorted(set(text)):
            normal = normalizer.normalize_str(character) if normalizer else character
            pieces = [piece for piece, _ in splitter.pre_tokenize_str(normal)] if splitter and normal else [normal]
            for one in "".join(pieces):
                if one not in known and not any(character in token for token in added):
                    raise DataError(f"{path} has '{printable(character)}', which is none of the tokens of {self.path}, and there is none "
                                    "for what is unknown")

    def options(self):
        return dict(tokens=self.unit, tokenizer=self.text)


def load_pieces(path):
    """The tokenizer of a tokenizer.json, plain or in gzip."""
    return Pieces(Stream.open(path).rest(_MOST_TOKENIZER), path)


def read_tokenizer(path):
    """How the texts of a data set became tokens."""
    from .like import open_data_set, texts
    with open_data_set(path) as file:
        kind = (texts(file, "tokens") or [""])[0]
        if kind not in UNITS:
            raise DataError(f"{path} is no data set of text, by fakequant dataset from-text")
        if kind == "bytes":
            return Bytes()
        name = "tokenizer" if kind == "pieces" else "vocabulary"
        data = file[name][...] if name in file else None
        if data is None or data.ndim != 1 or data.dtype != "u1" or not data.size:
            raise DataError(f"{path} has a damaged {name}")
    data = data.tobytes()
    if kind == "pieces":
        return Pieces(data, path)
    if kind == "characters":
        return Characters.of(data, path)
    words = data.split(b"\n")[:-1]
    if len(words) < 2:
        raise DataError(f"{path} has a vocabulary of fewer than 2 words")
    return Words(words)


def given_tokenizer(flags):
    """The tokenizer of --tokenizer or --like; None without both."""
    like = None
    if flags.given("like"):
        path = flags.text("like")
        like = read_tokenizer(path)
        if flags.given("tokens") and flags.text("tokens") != like.unit:
            raise DataError(f"--like {path} has {like.unit} as tokens: leave --tokens out")
    if not flags.given("tokenizer"):
        return like
    for other in ("tokens", "vocabulary"):
        if flags.given(other):
            raise DataError(f"--tokenizer says what tokens are: leave --{other} out")
    own = load_pieces(flags.text("tokenizer"))
    if like and (like.unit != "pieces" or like.vocabulary != own.vocabulary):
        raise DataError(f"--like {flags.text('like')} has {like.size} {like.unit}, --tokenizer {flags.text('tokenizer')} {own.size} "
                        "others: leave one out")
    return own


def chosen_unit(flags, fallback):
    """The value of --tokens, or `fallback`."""
    return flags.choice("tokens", UNITS[:3]) if flags.given("tokens") else fallback


def count_words(counts, text):
    """Adds the words of a text to a Counter."""
    counts.update(words_of(text))
    if len(counts) > _MOST_WORDS:
        raise DataError(f"the text has more than {_MOST_WORDS} different words: give --tokens bytes")


def most_frequent(flags, all_texts):
    """The vocabulary of words of texts, by --vocabulary."""
    counts = Counter()
    for text in all_texts:
        count_words(counts, text)
    return Words.of(counts, flags.integer("vocabulary", 3, 1 << 24))
