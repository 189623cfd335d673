"""What an executor's zygote imports before the first job. It is one for all executors of a process, and the first of
them says what it imports."""

from autotuner.devices.cpu import device as cpu_device
from autotuner.devices.cuda import device as cuda_device

CPU = (cpu_device.__name__,)
CUDA = (cuda_device.__name__,)
