"""What an executor's zygote imports before the first job. It is one for all executors of a process, and the first of
them says what it imports: what is missing here each forked process imports anew, which takes it longer than its job."""

from autotuner.devices.cpu import device as cpu_device
from autotuner.devices.cuda import device as cuda_device
from autotuner.gate import launching
from autotuner.ops.sdpa import tensors
from autotuner.tuning.workbench import STATISTICS

EVERY = (launching.__name__, tensors.__name__, STATISTICS, "tests.conformance.executors")
CPU = (cpu_device.__name__, *EVERY)
CUDA = (cuda_device.__name__, *EVERY)
