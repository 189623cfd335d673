"""torch's compiler. Its import takes 7 s on a GPU machine, so processes are forked off one that has it.

They could use no GPU if that one had asked CUDA for anything, as the import of torch's own benchmarker does.
"""

import os

os.environ["TORCHINDUCTOR_USE_EXPERIMENTAL_BENCHMARKER"] = "0"  # Triton's instead
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes of its own

import torch._inductor.compile_fx

torch._dynamo.config.recompile_limit = 256  # each problem has a module of one class: the ninth would not be compiled
