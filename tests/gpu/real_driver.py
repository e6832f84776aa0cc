# The driver of CUDA with a device, as tests/training/bindings/device.py uses the one without:
# functions of the same names. It finds no mistakes by itself; results have to be right.
"""The driver of CUDA, for tests and figures on a machine with a GPU."""
import ctypes
import threading

_NON_BLOCKING, _GEQUAL = 1, 0
_HOLD_SECONDS = 2  # at most: a call of the driver may wait for what is held


class Missing(Exception):
    """There is no device."""


def open_driver():
    """The library, and its first device. Missing: why there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Missing(str(error)) from None
    count, device = ctypes.c_int(), ctypes.c_int()
    code = library.cuInit(0)
    if code != 0:
        raise Missing(f"cuInit: error {code}")
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise Missing("the driver has no device")
    library.cuDeviceGet(ctypes.byref(device), 0)
    return library, device


def has_device():
    """Whether there is one: asked in a process of its own, so that this one can fork."""
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_try_open)


def _try_open():
    try:
        open_driver()
    except Missing as error:
        return str(error)
    return None


class RealDriver:
    """Device 0."""
    is_fake = False

    def __init__(self):
        self.library, self.device = open_driver()
        self.reads, self.holds = [], []

    def __getattr__(self, name):  # the driver's own functions
        return getattr(self.library, name)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode()} ({code})")

    def name(self):
        text = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", text, 128, self.device)
        return text.value.decode()

    def pin(self, size):
        """Pinned memory of the host: its address."""
        at = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(at), ctypes.c_size_t(size), 0)
        return at.value

    def event(self):
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), 0)
        return made

    def to_host(self, host, device, size, stream):
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(device),
                  ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def to_device(self, device, host, size, stream):
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device), ctypes.c_void_p(host),
                  ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def fill(self, device, value, size, stream):
        self.call("cuMemsetD8Async", ctypes.c_uint64(device), ctypes.c_ubyte(value),
                  ctypes.c_size_t(size), ctypes.c_void_p(stream))

    # ---- the functions of the driver without a device

    def fake_cuda_context(self):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.fake_cuda_make_current(context.value)
        return context.value

    def fake_cuda_make_current(self, context):
        self.call("cuCtxSetCurrent", ctypes.c_void_p(context))

    def _in(self, context):
        """The context, if none is current."""
        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        return _Current(self, context, current.value)

    def fake_cuda_stream(self, context):
        self.context, stream = context, ctypes.c_void_p()
        with self._in(context):
            self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return stream.value

    def fake_cuda_alloc(self, context, size):
        at = ctypes.c_uint64()
        with self._in(context):
            self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value

    def fake_cuda_free(self, at):
        with self._in(self.context):
            self.call("cuMemFree_v2", ctypes.c_uint64(at))

    def fake_cuda_store(self, at, content, size):
        with self._in(self.context):
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(at), content, ctypes.c_size_t(size))

    def fake_cuda_load(self, at, to, size):
        with self._in(self.context):
            self.call("cuMemcpyDtoH_v2", to if isinstance(to, ctypes.Array) else
                      ctypes.c_void_p(to), ctypes.c_uint64(at), ctypes.c_size_t(size))

    def fake_cuda_hold(self, stream):
        """What comes later in the stream waits until release(), or for some seconds; where the
        driver cannot, it does not wait."""
        wait = getattr(self.library, "cuStreamWaitValue32_v2",
                       getattr(self.library, "cuStreamWaitValue32", None))
        with self._in(self.context):
            flag = self.pin(4)
            ctypes.memset(flag, 0, 4)
            if wait is not None:
                wait(ctypes.c_void_p(stream), ctypes.c_uint64(flag), ctypes.c_uint32(1), _GEQUAL)
        timer = threading.Timer(_HOLD_SECONDS, ctypes.memset, (flag, 1, 1))
        timer.daemon = True
        timer.start()
        self.holds.append((flag, timer))

    def fake_cuda_release(self, stream):
        flag, timer = self.holds.pop(0)
        timer.cancel()
        ctypes.memset(flag, 1, 1)

    def fake_cuda_write(self, stream, at, content, size):
        with self._in(self.context):
            host = self.pin(size)
            ctypes.memmove(host, content, size)
            self.to_device(at, host, size, stream)

    def fake_cuda_read(self, stream, at, to, size):
        with self._in(self.context):
            host = self.pin(size)
            self.to_host(host, at, size, stream)
        self.reads.append((host, to, size))

    def fake_cuda_synchronize(self, stream):
        with self._in(self.context):
            code = self.library.cuStreamSynchronize(ctypes.c_void_p(stream))
        self._end_reads()
        return code

    def fake_cuda_synchronize_all(self, context):
        with self._in(context):
            code = self.library.cuCtxSynchronize()
        self._end_reads()
        return code

    def _end_reads(self):
        for host, to, size in self.reads:
            ctypes.memmove(to, host, size)
        self.reads.clear()

    def fake_cuda_reports(self, text, size):
        return 0

    def fake_cuda_leaks(self):
        return 0


class _Current:
    def __init__(self, driver, context, before):
        self.driver, self.context, self.before = driver, context, before

    def __enter__(self):
        self.driver.fake_cuda_make_current(self.context)

    def __exit__(self, *error):
        self.driver.fake_cuda_make_current(self.before)
