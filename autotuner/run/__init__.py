"""Run: the line that a variant goes through, the jobs, and the processes on this machine that do them.

The door is `executor.Executor` (submit, wait, close), `jobs` (what can be asked for) and `line.Line` (the stages); the
gate and the races are driven in line.py alone.
"""
