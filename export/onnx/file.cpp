#include "fakequant/export/onnx/file.h"
