"""Training loops of other libraries with quantized models: Trainer, accelerate, TRL, Lightning, timm and torchvision.

As a script it trains with Trainer until a step at which it kills itself: torch_loops_test.py FOLDER PRESET STEP.
"""
import os
import signal
import subprocess
import sys
import warnings

import pytest

if os.environ.get("FAKEQUANT_TORCH_SITE"):
    sys.path.append(os.environ["FAKEQUANT_TORCH_SITE"])
torch = pytest.importorskip("torch", reason="there is no torch: FAKEQUANT_TORCH_SITE can name a folder that has it")
transformers = pytest.importorskip("transformers", reason="there are no transformers beside torch")
pytest.importorskip("accelerate", reason="there is no accelerate, which Trainer needs")
import fakequant as fq  # noqa: E402
import fakequant.torch as fqt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
PRESETS = ["int8", "w4a4"]
TEXT = "the quick brown fox jumps over the lazy dog. " * 30
LONGEST = 24  # tokens of a sample


class Texts(torch.utils.data.Dataset):
    """Pieces of a text, a token for each character."""

    def __init__(self, count=32, seed=0):
        codes = torch.tensor([ord(letter) % 96 for letter in TEXT])
        starts = torch.randint(0, len(codes) - LONGEST, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
        self.rows = [codes[start:start + LONGEST] for start in starts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, use_cache=False))


def quantized(preset, model=None, calibrated=True):
    batch = {"input_ids": torch.stack(Texts().rows[:8])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model = fqt.quantize(llama() if model is None else model, preset, batch)
        return fqt.calibrate(model, [batch]) if calibrated else model


def trainer(folder, model, **options):
    given = {"output_dir": str(folder), "per_device_train_batch_size": 8, "max_steps": 8, "logging_steps": 1, "report_to": [], "use_cpu": True,
             "learning_rate": 1e-3, "save_strategy": "no", "disable_tqdm": True}
    args = transformers.TrainingArguments(**(given | options))
    return transformers.Trainer(model=model, args=args, train_dataset=Texts(), eval_dataset=Texts(8, seed=1))


def losses(trained):
    return [row["loss"] for row in trained.state.log_history if "loss" in row]


def assert_same_state(model, other):
    own, others = model.state_dict(), other.state_dict()
    assert own.keys() == others.keys()
    assert all(torch.equal(own[name], others[name]) for name in own)


class Kill(transformers.TrainerCallback):
    """Kills the process after a step."""

    def __init__(self, step):
        self._step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


SAVING = {"save_strategy": "steps", "save_steps": 3}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folders of runs that were killed after step 5, by their presets."""
    folders = {preset: tmp_path_factory.mktemp(preset) for preset in PRESETS}
    runs = {preset: subprocess.Popen([sys.executable, __file__, str(folder), preset, "5"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                     text=True) for preset, folder in folders.items()}
    for run in runs.values():
        _, errors = run.communicate()
        assert run.returncode == -signal.SIGKILL, errors
    return folders


@pytest.mark.parametrize("preset", PRESETS)
def test_killed_run_of_trainer_resumes_to_the_bit(killed, preset, tmp_path):
    assert [path.name for path in killed[preset].iterdir()] == ["checkpoint-3"]
    unbroken = trainer(tmp_path, quantized(preset), **SAVING)
    unbroken.train()
    resumed = trainer(killed[preset], quantized(preset, calibrated=False), **SAVING)
    resumed.train(resume_from_checkpoint=True)
    assert losses(resumed)[-5:] == losses(unbroken)[-5:]
    assert_same_state(resumed.model, unbroken.model)


@pytest.mark.parametrize("preset", PRESETS)
def test_trainer_loads_its_best_model_and_saves_a_folder(preset, tmp_path):
    run = trainer(tmp_path / "run", quantized(preset), eval_strategy="steps", eval_steps=3, load_best_model_at_end=True, **SAVING)
    run.train()
    assert losses(run)[-1] < losses(run)[0] - 0.2
    best = run.evaluate()["eval_loss"]
    run.save_model(str(tmp_path / "folder"))
    assert {"config.json", "model.safetensors"} <= {path.name for path in (tmp_path / "folder").iterdir()}
    again = quantized(preset, calibrated=False)
    safetensors = pytest.importorskip("safetensors.torch")
    again.load_state_dict(safetensors.load_file(str(tmp_path / "folder" / "model.safetensors")), strict=False)  # without tied weights
    assert trainer(tmp_path / "again", again).evaluate()["eval_loss"] == best


@pytest.mark.parametrize("options", [{"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
                                     {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
                                     {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, {"bf16": True},
                                     {"torch_compile": True, "torch_compile_backend": "eager"}],
                         ids=["reentrant", "checkpointing", "accumulation", "bf16", "compile"])
@pytest.mark.parametrize("preset", PRESETS)
def test_trainer_options_train_the_same_model(preset, options, tmp_path):
    plain, other = trainer(tmp_path, quantized(preset)), trainer(tmp_path, quantized(preset), **options)
    plain.train()
    other.train()
    if "gradient_checkpointing" in options:
        assert losses(other) == losses(plain)
    # sums in another order, and values rounded to bfloat16, move codes near a tie
    assert losses(other) == pytest.approx(losses(plain), abs=0.02)


@pytest.mark.parametrize("preset", PRESETS)
def test_accelerate_resumes_to_the_bit(preset, tmp_path):
    accelerate = pytest.importorskip("accelerate")

    def start():
        run = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = quantized(preset)
        optimizer = torch.optim.AdamW(fqt.parameter_groups(model, lr=1e-3))
        return run, *run.prepare(model, optimizer, torch.utils.data.DataLoader(Texts(), batch_size=8))

    def epoch(run, model, optimizer, loader):
        found = []
        for batch in loader:
            with run.accumulate(model):
                loss = model(**batch).loss
                run.backward(loss)
                run.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                found.append(loss.item())
        return found
    run, *unbroken = start()
    epoch(run, *unbroken)
    run.save_state(str(tmp_path / "state"))
    expected = epoch(run, *unbroken)
    run, *resumed = start()
    run.load_state(str(tmp_path / "state"))
    assert epoch(run, *resumed) == expected


# Libraries that may be missing.

def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    letters = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {chr(code): code - 29 for code in range(32, 123)}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="<unk>"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["SFT", "DPO"])
def test_trl_trains(kind, preset, lora, tmp_path):
    trl = pytest.importorskip("trl", reason="trl is missing")
    datasets = pytest.importorskip("datasets", reason="datasets is missing")
    options = {"output_dir": str(tmp_path), "per_device_train_batch_size": 4, "max_steps": 4, "logging_steps": 1, "report_to": [],
               "use_cpu": True, "save_steps": 4, "disable_tqdm": True, "learning_rate": 2e-2, "bf16": False}
    more = {"peft_config": pytest.importorskip("peft").LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")} if lora else {}
    if kind == "SFT":
        rows = {"text": [TEXT[i * 7:i * 7 + LONGEST] for i in range(16)]}
        run = trl.SFTTrainer(quantized(preset), args=trl.SFTConfig(max_length=LONGEST, **options), processing_class=tokenizer(),
                             train_dataset=datasets.Dataset.from_dict(rows), **more)
    else:
        rows = {"prompt": ["the quick "] * 16, "chosen": ["brown fox"] * 16, "rejected": ["zz zz zz"] * 16}
        more = more or {"ref_model": llama()}
        run = trl.DPOTrainer(quantized(preset), args=trl.DPOConfig(**options), processing_class=tokenizer(),
                             train_dataset=datasets.Dataset.from_dict(rows), **more)
    run.train()
    found = [float(loss) for loss in losses(run)]
    assert found[-1] < found[0]


def images(count=32):
    torch.manual_seed(1)
    return torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,))


def small_net(preset, calibrated=True):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10))
    net = fqt.quantize(net, preset, images()[0][:2])
    return fqt.calibrate(net, [images()[0]]) if calibrated else net


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("preset", PRESETS)
def test_lightning_resumes_to_the_bit(preset, precision, tmp_path):
    lightning = pytest.importorskip("lightning", reason="there is no lightning beside torch")

    class Module(lightning.LightningModule):
        def __init__(self, calibrated=True):
            super().__init__()
            self.model, self.found = small_net(preset, calibrated), []

        def training_step(self, batch, index):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.found.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(fqt.parameter_groups(self.model, lr=1e-3))

    def run(module, *callbacks, checkpoint=None):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*images()), batch_size=8)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        own = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, precision=precision, default_root_dir=str(tmp_path),
                                callbacks=list(callbacks), **quiet)
        own.fit(module, loader, ckpt_path=checkpoint)
        return module
    saver = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=str(tmp_path), save_top_k=-1, filename="{epoch}")
    unbroken = run(Module(), saver)
    resumed = run(Module(calibrated=False), checkpoint=str(tmp_path / "epoch=0.ckpt"))
    assert resumed.found == unbroken.found[4:] and unbroken.found[-1] < unbroken.found[0]
    assert_same_state(resumed.model, unbroken.model)
    averaged = run(Module(), lightning.pytorch.callbacks.EMAWeightAveraging(decay=0.9))
    assert torch.isfinite(averaged.model.eval()(images()[0].to(averaged.model[0].weight.dtype))).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_timm_trains_with_an_average(preset):
    timm = pytest.importorskip("timm", reason="there is no timm beside torch")
    from timm import optim, scheduler, utils
    x, y = images(8)
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=10)
    model = fqt.calibrate(fqt.quantize(model, preset, x[:2]), [x])
    optimizer = optim.create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
    schedule = scheduler.CosineLRScheduler(optimizer, t_initial=8)
    average, scaler, found = utils.ModelEmaV3(model, decay=0.5), utils.NativeScaler(device="cpu"), []
    for step in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model.train()(x).float(), y)
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        optimizer.zero_grad()
        schedule.step(step + 1)
        average.update(model, step=step)
        found.append(loss.item())
    assert found[-1] < found[0]
    assert torch.isfinite(average.module.eval()(x)).all() and not torch.equal(average.module(x), model.eval()(x))


@pytest.mark.parametrize("preset", PRESETS)
def test_torchvision_detector_trains(preset):
    torchvision = pytest.importorskip("torchvision", reason="there is no torchvision beside torch")
    torch.manual_seed(0)
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    pictures = [torch.rand(3, 200, 240), torch.rand(3, 160, 160)]
    targets = [{"boxes": torch.tensor([[20.0, 20.0, 100.0, 120.0]]), "labels": torch.tensor([label])} for label in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fq.FakequantWarning)
        model = fqt.calibrate(fqt.quantize(model, preset, (pictures,)), lambda own: own(pictures))
    assert fqt.summary(model).share > 0.99
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.01), []
    for _ in range(2):
        loss = sum(model.train()(pictures, targets).values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    assert found[1] < found[0]
    assert set(model.eval()(pictures)[0]) == {"boxes", "labels", "scores"}


if __name__ == "__main__":
    folder, preset, step = sys.argv[1:]
    run = trainer(folder, quantized(preset), **SAVING)
    run.add_callback(Kill(int(step)))
    run.train()
