"""Makes the tokenizers here from a text, and ids.json: the ids of the package tokenizers 0.23.3 for some texts.

python3 tests/data/tokenizers/generate.py TEXT     e.g. of tinyshakespeare.txt
"""
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
TEXTS = [
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
    "",
    " ",
    "   two  blanks   in front and behind   ",
    "I'll, you're, he'd, we've, it's, I'm, don't 'tis 'S 'LL",
    "tabs\tand\r\nlines \n\n \n end",
    "1234567890 3rd 2nd 0x7f ½ ² Ⅷ ٣٤ 一二",
    "Größe naïve café Ελληνικά русский עברית العربية हिन्दी ไทย 中文字 日本語 한국어",
    "e\u0301 zero\u200bwidth nbsp\u00a0blank thin\u2009blank ideographic\u3000blank line\u2028end",
    "emoji 😀👩‍👩‍👧 flags 🇩🇪 math 𝔘𝔫𝔦 \U0001d7d8",
    "!!! ... --- ,,, ??? @#$%^&*()_+[]{}|\\;':\"<>/`~",
    "a<|endoftext|>b <|endoftext|> c<|endoftext|><|endoftext|>",
    "x <mask>  y<mask>z",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<unk> <s> </s> <0x0A> ▁ ▁▁a▁b",
    "\n",
    "\x00\x01\x7f\u0085",
    "I'LL you'Re he'\u017f 'ſt 'tIS don'T''s 12345678 ٣٤٥٦ a1b22c333d4444 x\u00b2\u00b3\u00b9\u2074",
    "\r\n\r\n  \n\t x \n\n\n  y!?\n\n z  ...\r\n\u2028\n \u3000\n\u00a0w\t\tword \n",
    "(word) _under_ \"quoted\" $100.50 #tag @at …dots—dash\u200dword e\u0301t\u0303 \u00a0nbsp",
]


def byte_level(text):
    it = Tokenizer(models.BPE())
    it.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    it.decoder = decoders.ByteLevel()
    it.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=384, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    it.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=False)])
    return it


LLAMA3, QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+" for numbers in (r"\p{N}{1,3}", r"\p{N}"))


def split(text, pattern):
    """As files of Llama 3 and Qwen 2 have it: words by a regular expression, then bytes."""
    it = Tokenizer(models.BPE())
    it.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    it.decoder = decoders.ByteLevel()
    it.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return it


def llama3(text):
    return split(text, LLAMA3)


def qwen2(text):
    return split(text, QWEN2)


SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def llama(text):
    """A tokenizer like Llama's in transformers: no pre-tokenizer, blanks by the normalizer, bytes for unknown characters."""
    it = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    it.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    it.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL + BYTES, show_progress=False))
    it = json.loads(it.to_str())
    it["pre_tokenizer"] = None
    it["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    it["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    it["added_tokens"] = [token for token in it["added_tokens"] if token["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(it))


def metaspace(text):
    """As transformers writes it with legacy off: the pre-tokenizer marks the first word alone."""
    it = json.loads(llama(text).to_str())
    it["normalizer"] = None
    it["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return Tokenizer.from_str(json.dumps(it))


def unigram(text):
    it = Tokenizer(models.Unigram())
    it.normalizer = normalizers.Replace("\n", " ")
    it.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    it.decoder = decoders.Metaspace(prepend_scheme="always")
    it.train_from_iterator([text], trainers.UnigramTrainer(
        vocab_size=384, special_tokens=["<pad>", "<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    return it


def main():
    text = Path(sys.argv[1]).read_text(encoding="utf-8")[:300_000]
    predictions = {}
    for make in (byte_level, llama, metaspace, unigram, llama3, qwen2):
        it = make(text)
        (HERE / f"{make.__name__}.json").write_text(
            json.dumps(json.loads(it.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        predictions[make.__name__] = []
        for sample in TEXTS:
            ids = it.encode(sample, add_special_tokens=False).ids
            predictions[make.__name__].append(
                {"text": sample, "ids": ids, "back": it.decode(ids, skip_special_tokens=False)})
    lines = (json.dumps({name: entries}) [1:-1] for name, entries in predictions.items())
    (HERE / "ids.json").write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


main()
