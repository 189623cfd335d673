"""Reports: outcomes, studies and sweeps in words, tables and figures for a person.

Each takes values and returns something to print; `progress` alone prints, while a sweep runs.
"""
