"""Entry point of scripts/crash for runs: half of the moments in float training, half in quantized training."""

import sys

from command import DIGITS, TINY, run
from crash import kill_and_resume

moments = int(sys.argv[1])
common = ["--data", DIGITS, "--set", "save_every=5", "--seed", "1", "--augment", "shift=0.6,rotate=7.5,cutout=2"]
kills = kill_and_resume(["train", *TINY, *common, "--epochs", "20", "--ema", "0.99", "--val-fraction", "0.2"],
                        moments - moments // 2, log=print)
run("train", *TINY, *common, "--epochs", "2", "-o", "float.h5")
kills += kill_and_resume(["qat", "float.h5", "--preset", "int8", "--amax", "running", "--set", "freeze_amax_after=200",
                          *common, "--epochs", "15", "--lr", "0.001"], moments // 2, seed=1, log=print)
assert kills > 0 or moments == 0, f"every run ended before it was killed, {moments} times: nothing was compared"
print(f"{kills} kills in {moments} moments: the same bits as undisturbed")
