"""The Python of every package: these files are copied into it as they are, and import nothing of autotuner."""
