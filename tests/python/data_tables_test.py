"""fakequant.data: tables and texts, compared with numpy, csv and the package tokenizers."""
import csv
import gzip
import json
import pathlib
from collections import Counter

import h5py
import numpy as np
import pytest
from fakequant import data

TOKENIZERS = pathlib.Path(__file__).parents[1] / "data" / "tokenizers"


def arrays(path):
    with h5py.File(path) as file:
        return {f"{group}/{name}": file[group][name][...] for group in ("train", "val", "test") if group in file for name in file[group]}


def table(path, rows, header=("a", "b", "tree"), **more):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **more).writerows([header, *rows])
    return path


def test_reads_table_fields(tmp_path):
    random = np.random.default_rng(0)
    rows = [(random.normal(), int(random.integers(-9, 9)), "oak" if i % 3 else "ash, \"old\"\none") for i in range(9000)]
    expected = np.array([row[:2] for row in rows], np.float64).astype(np.float32)
    for number, more in enumerate(({}, {"quoting": csv.QUOTE_ALL}, {"delimiter": ";"}, {"lineterminator": "\n"})):
        path, report = data.from_csv(table(tmp_path / f"{number}.csv", rows, **more), tmp_path / "out.h5", label="tree", test=0)
        found = arrays(path)
        assert np.array_equal(found["train/x"], expected) and report["columns"] == ["a", "b"]
        assert report["class_names"] == ["ash, \"old\"\none", "oak"] and np.array_equal(found["train/y"], np.arange(9000) % 3 > 0)
        with h5py.File(path) as file:
            mean, deviation = (file["train/x"].attrs[name] for name in ("mean", "std"))
        assert np.allclose(mean, expected.mean(0, np.float64)) and np.allclose(deviation, expected.std(0, np.float64))


def test_encodes_text_columns_and_fills_gaps_with_the_mean(tmp_path):
    path = table(tmp_path / "t.csv", [("1", "red", "x"), ("", "blue", "y"), ("4", "red", "x")])
    _, report = data.from_csv(path, tmp_path / "out.h5", label="tree", test=0, one_hot="b", missing="mean", keep_values=True)
    assert report["columns"] == ["a", "b=blue", "b=red"]
    assert arrays(tmp_path / "out.h5")["train/x"].tolist() == [[1, 0, 1], [2.5, 1, 0], [4, 0, 1]]


@pytest.mark.parametrize("text, expected_text", [
    ("a,t\n1,x\n2\n", "line 3 has 1 fields, the first has 2"), ("a,t\nten,x\n", "'ten' in the column 'a', which is not a number"),
    ("a,t\n1_0,x\n", "'1_0'"), ("a,t\n\uff11,x\n", "not a number"), ("a,t\n1e999,x\n", "'1e999'"), ("a,t\n,x\n", "line 2 has no value"),
    ("a,t\n\"1,x\n", "line 2 opens a quote"), ("", "no records"), ("a,t\n1,x\n", None)])
def test_reports_the_line_of_an_invalid_table(tmp_path, text, expected_text):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    if expected_text is None:
        data.from_csv(path, tmp_path / "out.h5", label="t")
        return
    with pytest.raises(data.DataError, match=r"^\[from_csv\]") as error:
        data.from_csv(path, tmp_path / "out.h5", label="t")
    assert expected_text in str(error.value) and str(path) in str(error.value) and not (tmp_path / "out.h5").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_reads_parquet_like_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    whole = pyarrow.table({"a": values, "b": [[i, -i] for i in range(5000)], "t": ["yes" if i % 2 else "no" for i in range(5000)]})
    pyarrow.parquet.write_table(whole, tmp_path / "t.parquet")
    _, report = data.from_parquet(tmp_path / "t.parquet", tmp_path / "out.h5", label="t", test=0, keep_values=True)
    found = arrays(tmp_path / "out.h5")
    rows = np.arange(5000, dtype=np.float32)
    assert report["columns"] == ["a", "b[0]", "b[1]"] and np.array_equal(found["train/x"], np.stack([values, rows, -rows], 1))
    assert report["class_names"] == ["no", "yes"] and np.array_equal(found["train/y"], np.arange(5000) % 2)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-40] + b"PAR1")
    for name, expected_text in (("cut.parquet", "cannot be read"), ("none.parquet", "No such file")):
        with pytest.raises(data.DataError, match=expected_text):
            data.from_parquet(tmp_path / name, tmp_path / "x.h5", label="t")
    with pytest.raises(data.DataError, match="no column 'u': it has a, b, t"):
        data.from_parquet(tmp_path / "t.parquet", tmp_path / "x.h5", label="u")


TEXT = "To be, or not: it's caf\u00e9 \u4e2d\n" * 40


def test_encodes_texts_as_bytes_and_words(tmp_path):
    lines = ["Good film, GOOD!", "bad", "", "caf\u00e9"]
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    data.from_text(tmp_path / "t.txt.gz", tmp_path / "out.h5", length=8, test=0)
    expected = [[byte + 1 for byte in line.encode()[:8]] for line in lines]
    assert arrays(tmp_path / "out.h5")["train/x"].tolist() == [ids + [0] * (8 - len(ids)) for ids in expected]
    data.from_text(tmp_path / "t.txt.gz", tmp_path / "words.h5", length=4, test=0, tokens="words", vocabulary=5)
    with h5py.File(tmp_path / "words.h5") as file:
        assert bytes(file["vocabulary"][...]) == b"<pad>\n<unk>\ngood\n!\n,\n"
    assert arrays(tmp_path / "words.h5")["train/x"].tolist() == [[2, 1, 4, 2], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]


def test_windows_contain_the_text_and_the_next_tokens(tmp_path):
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    _, report = data.from_text(tmp_path / "t.txt", tmp_path / "out.h5", windows=16, test=0)
    vocabulary = sorted(Counter(TEXT))
    ids = np.array([vocabulary.index(character) for character in TEXT])
    found, count = arrays(tmp_path / "out.h5"), (len(ids) - 1) // 16
    assert np.array_equal(found["train/x"].ravel(), ids[:16 * count]) and np.array_equal(found["train/y"].ravel(), ids[1:16 * count + 1])
    assert report["vocabulary"] == len(vocabulary) and report["class_names"][:2] == ["\\x0a", "\\x20"]
    with pytest.raises(data.DataError, match="0xff at offset 2"):
        (tmp_path / "bad.txt").write_bytes(b"ab\xff" * 9)
        data.from_text(tmp_path / "bad.txt", tmp_path / "x.h5", windows=4)


def test_matches_every_tokenizer_of_the_package(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    words = sorted(set(TEXT.split()) | set(TEXT.replace(":", " ").replace(",", " ").split()))
    vocabulary = {token: i for i, token in enumerate(["[UNK]", ":", ",", "'", *words])}
    piece = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    piece.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    piece.save(str(tmp_path / "wordpiece.json"))
    paths = [tmp_path / "wordpiece.json", *(path for path in sorted(TOKENIZERS.glob("*.json")) if path.name != "ids.json")]
    for path in paths:
        expected = tokenizers.Tokenizer.from_file(str(path)).encode(TEXT, add_special_tokens=False).ids
        _, report = data.from_text(tmp_path / "t.txt", tmp_path / "out.h5", windows=8, test=0, tokenizer=path)
        x = arrays(tmp_path / "out.h5")["train/x"]
        assert report["tokens"] == len(expected) and x.ravel().tolist() == expected[:x.size], path
        with h5py.File(tmp_path / "out.h5") as file:
            assert json.loads(bytes(file["tokenizer"][...])) == json.loads(path.read_text(encoding="utf-8"))


def test_rejects_a_character_without_a_token(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [])).save(str(tmp_path / "ab.json"))
    (tmp_path / "t.txt").write_text("abba?" * 9)
    with pytest.raises(data.DataError, match="has '\\?', which is not a token"):
        data.from_text(tmp_path / "t.txt", tmp_path / "x.h5", windows=4, tokenizer=tmp_path / "ab.json")
