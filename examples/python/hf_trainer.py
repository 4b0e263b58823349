"""Trains a small Llama of transformers on a text with Trainer, on codes, and writes the file for an engine.

    python examples/python/hf_trainer.py --text book.txt --output run                  # int8, run/model.onnx
    python examples/python/hf_trainer.py --text book.txt --output run --preset q4_0    # run/model.gguf for llama.cpp

Repeat the command with --resume after an interruption: the run continues with the same bits.
"""
import argparse
import pathlib

import fakequant.torch as fqt
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments, default_data_collator

README = pathlib.Path(__file__).parents[2] / "README.md"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, default=README, help="text file in UTF-8")
    parser.add_argument("--preset", default="int8", help="q4_0 and q8_0 write GGUF, others ONNX")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, default=64, help="tokens of a sample")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("hf_trainer"), help="folder")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--no-export", action="store_true", help="write only the folder of transformers")
    return parser.parse_args()


def make_tokenizer(text):
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([text], vocab_size=512, special_tokens=["<|endoftext|>"], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def main():
    options = parse_arguments()
    torch.manual_seed(0)
    text = options.text.read_text(encoding="utf-8")
    tokenizer = make_tokenizer(text)
    tokens = torch.tensor(tokenizer(text)["input_ids"])
    rows = tokens[:len(tokens) // options.length * options.length].view(-1, options.length)
    samples = [{"input_ids": row, "labels": row} for row in rows]
    train, validation = samples[:-len(samples) // 10], samples[-len(samples) // 10:]

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=options.width, intermediate_size=2 * options.width, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=options.length, use_cache=False))
    batch = {"input_ids": rows[:8]}
    model = fqt.calibrate(fqt.quantize(model, options.preset, batch), [batch])

    arguments = TrainingArguments(
        output_dir=str(options.output), max_steps=options.steps, per_device_train_batch_size=8, learning_rate=3e-3, report_to=[],
        save_steps=max(options.steps // 3, 1), eval_strategy="steps", eval_steps=max(options.steps // 3, 1), save_total_limit=2,
        load_best_model_at_end=True, logging_steps=10, use_cpu=not torch.cuda.is_available())
    trainer = Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=validation, processing_class=tokenizer,
                      data_collator=default_data_collator)
    before = trainer.evaluate()["eval_loss"]
    trainer.train(resume_from_checkpoint=options.resume)
    print(f"loss {before:.4f} -> {trainer.evaluate()['eval_loss']:.4f}")
    trainer.save_model(str(options.output / "model"))
    if options.no_export:
        return
    model.eval()
    if options.preset in ("q4_0", "q8_0"):
        fqt.export(model, str(options.output / "model.gguf"), tokenizer=tokenizer)
    else:
        fqt.export(model, str(options.output / "model.onnx"))


if __name__ == "__main__":
    main()
