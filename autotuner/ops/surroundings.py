"""What a variant may have changed of the process that judges it, by name: the driver hears the number of one."""

AUTOCAST = ("torch.is_autocast_enabled cpu", "torch.is_autocast_enabled cuda")
MODES = ("torch.is_grad_enabled", "torch.is_inference_mode_enabled", "torch.autograd._profiler_enabled")
STACKS = ("torch._C._len_torch_function_stack", "torch._C._len_torch_dispatch_stack")
PRECISION = ("torch.get_default_dtype", "torch.get_float32_matmul_precision")
DETERMINISM = ("torch.are_deterministic_algorithms_enabled", "torch.backends.cudnn.deterministic")
SDP = tuple(f"torch.backends.cuda.{each}_sdp_enabled" for each in ("flash", "mem_efficient", "math", "cudnn"))
LIBRARIES = ("torch.backends.cudnn.enabled", "torch.backends.cudnn.benchmark", "torch.backends.mkldnn.enabled")
PYTHON = ("sys.getprofile", "sys.gettrace", "sys.getswitchinterval", "gc.isenabled", "gc.get_threshold")
SETTINGS = (*AUTOCAST, *MODES, *STACKS, *PRECISION, *DETERMINISM, *SDP, *LIBRARIES, *PYTHON)
"""What says how torch and Python are set, and with what argument it is asked."""
MODULES = ("builtins", "math", "time", "socket", "torch._tensor", "torch.nn.functional", "autotuner")
"""Modules whose functions and constants nobody replaces; of the last one those in it, too."""
OF_TORCH = ("torch.nn.attention", "torch.backends.cuda", "torch.Tensor", "torch")
"""More, watched where a module is imported, once what it compiles is there: torch's compiler replaces some."""
REPLACED = "manual_seed"
"""Of torch, by its compiler, when that is first imported."""
THREAD, OPERATORS = "the priority of its thread, or the signals that it takes", "operators of torch.library"
CHANGED = ("what runs there, by source of Python", *SETTINGS, *MODULES, *OF_TORCH, THREAD, OPERATORS)
