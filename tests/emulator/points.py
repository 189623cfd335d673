"""A point of each CUDA implementation of attention that the emulator runs, small in every way."""

Point = dict[str, int | str]

SCALAR: Point = {
    "BLOCK_M": 32,
    "BLOCK_N": 32,
    "NUM_WARPS": 4,
    "VEC_WIDTH": 8,
    "REDUCE": "warp",
    "STAGES": 2,
    "PAD": 8,
    "SYNC_POLICY": 0,
}
WMMA: Point = {
    "BLOCK_M": 64,
    "BLOCK_N": 64,
    "NUM_WARPS": 4,
    "STAGES": 2,
    "PAD": 8,
    "PRODUCER_WARPS": 0,
    "ACC": "float",
    "FIXED": 0,
    "SYNC_POLICY": 0,
}
MMA: Point = {
    "WARPS_M": 4,
    "ROW_TILES": 1,
    "WARPS_N": 1,
    "BLOCK_N": 64,
    "STAGES": 2,
    "SPLIT": 1,
    "LOAD": "cp_async",
    "MULTICAST": 1,
    "EXP": "ex2",
    "Q_FROM": "registers",
    "FIXED": 0,
    "SYNC_POLICY": 0,
}
WGMMA: Point = {
    "CONSUMERS": 2,
    "BLOCK_N": 64,
    "STAGES": 2,
    "BLOCKS_SM": 1,
    "SCHEDULE": "dynamic",
    "OVERLAP": 1,
    "PING_PONG": 1,
    "Q_FROM": "shared",
    "Q_BUFFERS": 2,
    "EARLY_START": 0,
    "O_STAGING": "query",
    "SOFTMAX": "spec_rounded",
}
DEFAULTS = {"scalar": SCALAR, "wmma": WMMA, "mma": MMA, "wgmma": WGMMA}
