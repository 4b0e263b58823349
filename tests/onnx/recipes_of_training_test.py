"""ONNX Runtime computes the trained network after reestimated batch norm statistics and after training of adapters alone."""

from lib import DIGITS, assert_identical, result, trained, verified

for name, flags, recipe in (("anew", ("--keep-bn",), ("--set", "reestimate_bn=10")),
                            ("adapters", (), ("--lora", "4"))):
    result("calibrate", trained("resnet20"), "--data", DIGITS, "--preset", "w2a2", *flags, "-o", f"{name}_ptq.h5")
    result("qat", f"{name}_ptq.h5", "--data", DIGITS, "--epochs", "2", *recipe, "-o", f"{name}.h5")
    result("export", f"{name}.h5", "--format", "onnx", "-o", f"{name}.onnx")
    assert_identical(verified(f"{name}.h5", f"{name}.onnx"))
print("recipes of training: ok")
