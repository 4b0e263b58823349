"""Trains LoRA adapters on a model whose weights are 4-bit codes (QLoRA), merges them, and saves the model.

    python examples/python/lora_sft.py --model Qwen/Qwen3-0.6B --text dialogs.txt --preset nvfp4
    python examples/python/lora_sft.py                                                  # a tiny Llama, offline

`--trl` trains with SFTTrainer of TRL instead of Trainer.
"""
import argparse
import pathlib

import fakequant.torch as fqt
import torch
import transformers
from peft import LoraConfig, get_peft_model
from tokenizers import ByteLevelBPETokenizer


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or name of a model of transformers")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "README.md")
    parser.add_argument("--preset", default="nvfp4")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, default=64, help="tokens of a sample")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("lora_sft"), help="folder")
    parser.add_argument("--trl", action="store_true")
    return parser.parse_args()


def load(options, text):
    """Returns a model and its tokenizer."""
    if options.model:
        return (transformers.AutoModelForCausalLM.from_pretrained(options.model, use_cache=False),
                transformers.AutoTokenizer.from_pretrained(options.model))
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([text], vocab_size=384, special_tokens=["<eos>"], show_progress=False)
    config = transformers.LlamaConfig(
        vocab_size=384, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=options.length, use_cache=False)
    return transformers.LlamaForCausalLM(config), transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, eos_token="<eos>", pad_token="<eos>")


def main():
    options = parse_arguments()
    torch.manual_seed(0)
    text = options.text.read_text(encoding="utf-8")
    model, tokenizer = load(options, text)
    tokens = torch.tensor(tokenizer(text)["input_ids"])
    rows = tokens[:len(tokens) // options.length * options.length].view(-1, options.length)
    batches = [{"input_ids": part} for part in rows[:64].split(8)]
    model = fqt.calibrate(fqt.quantize(model, options.preset, batches[0]), batches)
    model = get_peft_model(model, LoraConfig(r=options.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.print_trainable_parameters()

    settings = {"output_dir": str(options.output), "max_steps": options.steps, "per_device_train_batch_size": 8, "learning_rate": 1e-2,
                "report_to": [], "logging_steps": max(options.steps // 8, 1), "save_steps": max(options.steps // 2, 1), "bf16": False,
                "use_cpu": not torch.cuda.is_available()}
    if options.trl:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer
        trainer = SFTTrainer(model, args=SFTConfig(max_length=options.length, **settings), processing_class=tokenizer,
                             train_dataset=Dataset.from_dict({"input_ids": rows.tolist()}))
    else:
        samples = [{"input_ids": row, "labels": row} for row in rows]
        trainer = transformers.Trainer(model=model, args=transformers.TrainingArguments(**settings), train_dataset=samples,
                                       data_collator=transformers.default_data_collator)
    trainer.train()
    found = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    model.save_pretrained(str(options.output / "adapter"))
    merged = fqt.calibrate(model.merge_and_unload(), batches)  # the ranges of the merged weights
    merged.save_pretrained(str(options.output / "merged"))
    print(f"loss {float(found[0]):.4f} -> {float(found[-1]):.4f}, {100 * fqt.summary(merged).share:.0f} % of the multiply-adds on codes")


if __name__ == "__main__":
    main()
