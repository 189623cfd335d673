"""Sweeps as jobs: asked for, queued, worked on, paused, and followed. The one door for them: the command line, Python
programs and pages call the same functions.

`queue` asks for sweeps and changes them, `outlook` says where each is and what happens to it, `worker` works on them,
`sweep_run` is one run of one. The store holds all of it; no process has to live for a sweep to be there.
"""
