"""Programs that measure autotuner itself, a folder for each thing measured: `python -m benchmarks.FOLDER.PROGRAM`."""
