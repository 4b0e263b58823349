"""float32 arrays of a GPU that are exchanged by DLPack's C exchange table, like torch's, without torch."""
import ctypes as c


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("byte_offset", c.c_uint64)]


class _Managed(c.Structure):
    pass


_Deleter = c.CFUNCTYPE(None, c.POINTER(_Managed))
_Managed._fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", _Deleter),
                     ("flags", c.c_uint64), ("tensor", _Tensor)]
_FromObject = c.CFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.POINTER(_Managed)))
_ToObject = c.CFUNCTYPE(c.c_int, c.POINTER(_Managed), c.POINTER(c.c_void_p))
_CurrentStream = c.CFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))


class _Table(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("older", c.c_void_p), ("allocate", c.c_void_p),
                ("from_object", _FromObject), ("to_object", _ToObject), ("view", c.c_void_p), ("current_stream", _CurrentStream)]


CUDA, _FLOAT, _NAME = 2, 2, b"dlpack_exchange_api"
lent = {}  # arrays that the library holds
_new_capsule = c.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]


@_Deleter
def _given_back(managed):
    del lent[c.addressof(managed.contents)]


def _strides(shape):
    out, step = [], 1
    for size in reversed(shape):
        out.insert(0, step)
        step *= size
    return out


def give_table(kind, current_stream, device=0):
    """Gives a class its table. Arrays have `pointer` and `shape`; kind(pointer, shape, free) makes one of memory of the library's,
    which `free()` gives back. current_stream() is the address of a stream."""
    @_FromObject
    def from_object(array, out):
        sizes, steps = (c.c_int64 * len(array.shape))(*array.shape), (c.c_int64 * len(array.shape))(*_strides(array.shape))
        managed = _Managed(1, 1, None, _given_back, 0, _Tensor(array.pointer, CUDA, device, len(sizes), _FLOAT, 32, 1, sizes, steps, 0))
        lent[c.addressof(managed)] = managed, array, sizes, steps
        out[0] = c.pointer(managed)
        return 0

    @_ToObject
    def to_object(managed, out):
        own = c.cast(managed, c.c_void_p).value
        tensor = managed.contents.tensor
        assert (tensor.device_type, tensor.device_id, tensor.bits) == (CUDA, device, 32)
        free = lambda: (lambda kept: kept.contents.deleter(kept))(c.cast(own, c.POINTER(_Managed)))  # noqa: E731
        array = kind(tensor.data, tuple(tensor.shape[:tensor.ndim]), free)
        c.pythonapi.Py_IncRef(c.py_object(array))
        out[0] = id(array)
        return 0

    @_CurrentStream
    def stream(kind, index, out):
        out[0] = current_stream()
        return 0
    kind._table = _Table(1, 3, None, None, from_object, to_object, None, stream)
    kind.__dlpack_c_exchange_api__ = _new_capsule(c.addressof(kind._table), _NAME, None)
    kind.__module__ = "torch"  # so that results are of its kind
